package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ideaLines is how many lines the file may have that shows the idea of a program.
const ideaLines = 60

// Each program in examples has a row in the table of examples/README.md, which names the file with its idea.
func TestExamplesShowTheirIdeaInAShortFile(t *testing.T) {
	examples := filepath.Join(root, "examples")
	index, err := os.ReadFile(filepath.Join(examples, "README.md"))
	require.NoError(t, err)
	ideas := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| .+ \\| \\[\\S+\\]\\((\\S+\\.go)\\) \\|$").FindAllStringSubmatch(string(index), -1) {
		ideas[row[1]] = row[2]
	}
	folders, err := os.ReadDir(examples)
	require.NoError(t, err)
	programs := 0
	for _, folder := range folders {
		if !folder.IsDir() || folder.Name() == "internal" {
			continue
		}
		programs++
		file := ideas[folder.Name()]
		if !assert.True(t, strings.HasPrefix(file, folder.Name()+"/"), "%s: the row of examples/README.md", folder.Name()) {
			continue
		}
		code, err := os.ReadFile(filepath.Join(examples, file))
		require.NoError(t, err)
		assert.LessOrEqual(t, strings.Count(string(code), "\n"), ideaLines, file)
		assert.Contains(t, string(code), `"github.com/seed14bd9ef4/redsync`, "%s: the use of the library", file)
	}
	assert.Len(t, ideas, programs)
}
