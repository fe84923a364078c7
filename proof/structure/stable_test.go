package structure

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The comment of each package says what docs/versions.md says of it: stable or experimental.
func TestPackagesSayWhetherTheyAreStable(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/versions.md"))
	require.NoError(t, err)
	rows := regexp.MustCompile("(?m)^\\| `([a-z/-]+)`.* \\| (stable|experimental)").FindAllStringSubmatch(string(page), -1)
	require.Len(t, rows, 10, "packages that somebody imports, and the commands")
	for _, row := range rows {
		dir := filepath.Join(root, row[1])
		if row[1] == "redsync" {
			dir = root
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		var comments strings.Builder
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			comment, _, _ := strings.Cut(string(text), "\npackage ")
			comments.WriteString(strings.ReplaceAll(comment, "\n//", ""))
		}
		assert.Regexp(t, " "+row[2]+`[^.]* \(docs/versions\.md\)`, comments.String(), row[1])
	}
}
