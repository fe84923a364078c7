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
)

const module = "github.com/seed14bd9ef4/redsync"

// mayImport lists, for the packages of the library, what their code may import
// besides the standard library. A trailing slash stands for all packages below.
var mayImport = map[string][]string{
	module + "/internal/jitter":  {},
	module + "/internal/clock":   {},
	module + "/internal/notice":  {},
	module + "/internal/address": {"github.com/redis/go-redis/v9/"},
	module + "/internal/peek":    {module + "/internal/lease", module + "/internal/queue"},
	module + "/observe":          {},
	module + "/internal/alarm":   {module + "/internal/clock"},
	module + "/internal/journal": {module + "/internal/notice"},
	module + "/internal/foreign": {},
	module + "/pool":             {module + "/internal/jitter", module + "/internal/foreign", module + "/internal/address", "github.com/redis/go-redis/v9/"},
	module + "/internal/script":  {module + "/pool"},
	module + "/internal/claim":   {module + "/internal/script", module + "/internal/jitter"},
	module + "/internal/quorum":  {module + "/internal/claim", module + "/internal/clock", module + "/pool"},
	module + "/internal/lease": {
		module + "/internal/quorum", module + "/internal/claim", module + "/internal/script", module + "/pool",
		module + "/internal/alarm", module + "/internal/clock",
	},
	module + "/internal/queue": {
		module + "/internal/lease", module + "/internal/quorum", module + "/internal/claim", module + "/internal/script",
		module + "/pool", module + "/internal/clock", module + "/internal/jitter",
	},
	module + "/internal/watch": {
		module + "/internal/lease", module + "/internal/script", module + "/pool",
	},
	module + "/fencing": {"github.com/redis/go-redis/v9/"},
	module: {
		module + "/internal/queue", module + "/internal/lease", module + "/internal/quorum", module + "/internal/claim",
		module + "/internal/script", module + "/pool", module + "/observe",
		module + "/internal/clock", module + "/internal/notice", module + "/internal/jitter",
		module + "/internal/journal", module + "/internal/peek", module + "/internal/watch", module + "/internal/address", module + "/internal/foreign",
		"github.com/redis/go-redis/v9/", "github.com/hashicorp/go-multierror",
	},
	module + "/redsynctest": {
		module, module + "/pool", module + "/observe", module + "/internal/script",
		module + "/internal/embedded", module + "/internal/realredis", "github.com/redis/go-redis/v9/",
	},
}

// forProgramsWithoutTests are the packages that programs of users import. Packages that are for tests alone must not
// come with them.
var forProgramsWithoutTests = []string{module, module + "/pool", module + "/fencing", module + "/observe"}

// forTests are the packages that are for tests alone.
var forTests = []string{
	"testing", "testing/", module + "/redsynctest", module + "/internal/embedded", module + "/internal/realredis",
	module + "/internal/stall", "github.com/alicebob/miniredis/", "github.com/yuin/gopher-lua/", "github.com/stretchr/testify/",
}

// nobodyImports are programs and test suites with modules of their own. No package may import them.
var nobodyImports = []string{
	module + "/chaos/", module + "/bench/", module + "/examples/fencing/", module + "/examples/paused/",
}

type listedPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

// TestImportsRunOneWay holds the import directions: the library -> queue -> lease -> quorum -> claim ->
// script -> pool -> go-redis; fencing -> go-redis; redsynctest and everything else -> the library.
func TestImportsRunOneWay(t *testing.T) {
	seen := 0
	for _, p := range listPackages(t) {
		if allowed, ok := mayImport[p.ImportPath]; ok {
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

// TestProgramsDoNotGetWhatIsForTests looks at everything that the packages import, directly or not.
func TestProgramsDoNotGetWhatIsForTests(t *testing.T) {
	for _, p := range goList(t, append([]string{"-deps"}, forProgramsWithoutTests...)...) {
		assert.False(t, matches(forTests, p.ImportPath), "%s is for tests alone", p.ImportPath)
	}
	found := false // a control: the same search finds Miniredis where it is imported
	for _, p := range goList(t, "-deps", module+"/redsynctest") {
		found = found || matches(forTests, p.ImportPath) && strings.HasPrefix(p.ImportPath, "github.com/alicebob/miniredis/")
	}
	assert.True(t, found)
}

// listPackages returns the packages of this module.
func listPackages(t *testing.T) []listedPackage {
	t.Helper()
	return goList(t, module+"/...")
}

// goList runs "go list" and returns what it prints about packages.
func goList(t *testing.T, args ...string) (packages []listedPackage) {
	t.Helper()
	args = append([]string{"list", "-json=ImportPath,Imports,TestImports,XTestImports"}, args...)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
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

func matches(list []string, path string) bool {
	return slices.ContainsFunc(list, func(item string) bool {
		prefix, below := strings.CutSuffix(item, "/")
		return path == prefix || below && strings.HasPrefix(path, item)
	})
}

// isStandard reports whether path is of the standard library: no dot in its
// first element.
func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}
