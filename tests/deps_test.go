package redsync_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// mayImport lists, for the packages of the library, what their code may import besides the standard library. A "." stands
// for this module, a trailing slash for all packages below.
var mayImport = map[string]string{
	"./internal/jitter":   "",
	"./internal/clock":    "",
	"./internal/notice":   "",
	"./internal/address":  goRedis,
	"./internal/fortests": "./internal/lease ./internal/queue",
	"./observe":           "",
	"./internal/alarm":    "./internal/clock",
	"./internal/journal":  "./internal/notice",
	"./internal/foreign":  "",
	"./internal/wire":     "./internal/jitter ./internal/foreign ./internal/address " + goRedis,
	"./pool":              "./internal/wire " + goRedis,
	"./internal/script":   "./internal/wire ./internal/foreign",
	"./internal/claim":    "./internal/script ./internal/jitter",
	"./internal/quorum":   "./internal/claim ./internal/script ./internal/clock ./internal/wire",
	"./internal/lease": "./internal/quorum ./internal/claim ./internal/script ./internal/wire ./internal/alarm " +
		"./internal/clock",
	"./internal/queue": "./internal/lease ./internal/quorum ./internal/claim ./internal/script ./internal/wire " +
		"./internal/clock ./internal/jitter",
	"./internal/watch": "./internal/lease ./internal/script ./internal/wire",
	"./fencing":        "./internal/clock " + goRedis,
	".": "./internal/queue ./internal/lease ./internal/quorum ./internal/claim ./internal/script ./internal/wire ./pool ./observe " +
		"./internal/clock ./internal/notice ./internal/jitter ./internal/journal ./internal/fortests ./internal/watch " +
		"./internal/address ./internal/foreign github.com/hashicorp/go-multierror " + goRedis,
	"./redsynctest": ". ./pool ./observe ./internal/script ./internal/testkit/embedded ./internal/testkit/realredis " + goRedis,
}

const goRedis = "github.com/redis/go-redis/v9/"

// forTests are the packages that are for tests alone.
const forTests = "testing testing/ ./redsynctest ./internal/testkit/ " +
	"github.com/alicebob/miniredis/ github.com/yuin/gopher-lua/ github.com/stretchr/testify/"

// nobodyImports are programs and test suites with modules of their own. No package may import them.
const nobodyImports = "./proof/ ./bench/ ./examples/"

type listedPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

// TestImportsRunOneWay holds the import directions: the library -> queue -> lease -> quorum -> claim ->
// script -> wire -> go-redis; pool -> wire; fencing -> go-redis; redsynctest and everything else -> the library.
func TestImportsRunOneWay(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	seen := 0
	for _, p := range goList(t, "./...") {
		if allowed, ok := mayImport[inModule(p.ImportPath)]; ok {
			seen++
			for _, path := range p.Imports {
				assert.True(t, isStandard(path) || matches(allowed, path), "%s must not import %s", p.ImportPath, path)
			}
		}
		for _, path := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			assert.False(t, matches(nobodyImports, path), "%s must not import %s", p.ImportPath, path)
		}
	}
	assert.Equal(t, len(mayImport), seen, "each package in mayImport is a package of this module")
}

// TestProgramsDoNotGetWhatIsForTests looks at everything that the packages that programs import, import, directly or
// not.
func TestProgramsDoNotGetWhatIsForTests(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	for _, p := range goList(t, "-deps", ".", "./pool", "./fencing", "./observe") {
		assert.False(t, matches(forTests, p.ImportPath), "%s is for tests alone", p.ImportPath)
	}
	found := false // a control: the same search finds Miniredis where it is imported
	for _, p := range goList(t, "-deps", "./redsynctest") {
		found = found || matches(forTests, p.ImportPath) && strings.HasPrefix(p.ImportPath, "github.com/alicebob/miniredis/")
	}
	assert.True(t, found)
}

// goList runs "go list" and returns what it prints about packages.
func goList(t *testing.T, args ...string) (packages []listedPackage) {
	args = append([]string{"list", "-json=ImportPath,Imports,TestImports,XTestImports"}, args...)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = "..", append(cmd.Environ(), "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		require.NoError(t, err)
		packages = append(packages, p)
	}
}

func matches(list, path string) bool {
	return slices.ContainsFunc(strings.Fields(list), func(item string) bool {
		prefix, below := strings.CutSuffix(item, "/")
		return inModule(path) == prefix || below && strings.HasPrefix(inModule(path), item)
	})
}

// inModule returns the path with a "." for this module.
func inModule(path string) string {
	return strings.Replace(path, "github.com/seed14bd9ef4/redsync", ".", 1)
}

// isStandard reports whether path is of the standard library: no dot in its
// first element.
func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}
