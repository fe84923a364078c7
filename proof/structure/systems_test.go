package structure

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// otherSystems are those on which the tests do not run. The gate looks at the first two: no Unix, and a word of 32 bits.
var otherSystems = []string{"windows/amd64", "linux/386", "darwin/arm64", "freebsd/amd64", "linux/arm64"}

// TestOtherSystems checks that the library, its tests and the programs of this module have no compile error on other
// systems. It checks types from source, because compiling everything for each system takes minutes; go vet does that in
// .ci/nightly.
func TestOtherSystems(t *testing.T) {
	needsGo(t)
	t.Setenv("CGO_ENABLED", "0")
	nightly, err := os.ReadFile("../../.ci/nightly")
	require.NoError(t, err)
	require.Contains(t, string(nightly), strings.Join(otherSystems, " "))
	for _, system := range otherSystems[:testlength.InGate(0, 0, 2, 5)] {
		goos, goarch, _ := strings.Cut(system, "/")
		t.Setenv("GOOS", goos)
		t.Setenv("GOARCH", goarch)
		sources := withTests(t)
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			c := checker{token.NewFileSet(), goarch, map[string]*types.Package{"unsafe": types.Unsafe}}
			checked := 0
			for _, p := range sources {
				if errs := c.check(p); !p.Standard && p.Module.Main {
					require.Empty(t, errs, p.ImportPath)
					checked++
				}
			}
			require.Greater(t, checked, 50, "packages, most of them twice: with and without tests")
		})
	}
}

// A source is a package, or a package with its tests, as go list describes it.
type source struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Standard        bool
	Module          struct{ Main bool }
}

// withTests returns the packages of this module, with their tests, and what they import, each behind what it imports.
func withTests(t *testing.T) (sources []source) {
	t.Helper()
	out := run(t, "go", "list", "-deps", "-test", "-json=ImportPath,Dir,GoFiles,ImportMap,Standard,Module", "./...")
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var s source
		err := d.Decode(&s)
		if errors.Is(err, io.EOF) {
			return sources
		}
		require.NoError(t, err)
		if !strings.HasSuffix(s.ImportPath, ".test") { // a generated program
			sources = append(sources, s)
		}
	}
}

type checker struct {
	fset   *token.FileSet
	goarch string
	known  map[string]*types.Package
}

// check checks the types of a package, and returns its errors. In the packages of others it looks at declarations only.
func (c checker) check(s source) (errs []error) {
	var files []*ast.File
	for _, name := range s.GoFiles {
		f, err := parser.ParseFile(c.fset, filepath.Join(s.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			errs = append(errs, err)
		}
		files = append(files, f)
	}
	conf := types.Config{
		IgnoreFuncBodies: !s.Module.Main,
		FakeImportC:      true,
		Importer:         imports{s.ImportMap, c.known},
		Sizes:            types.SizesFor("gc", c.goarch),
		Error:            func(err error) { errs = append(errs, err) },
	}
	path, _, _ := strings.Cut(s.ImportPath, " ")
	c.known[s.ImportPath], _ = conf.Check(path, c.fset, files, nil)
	return errs
}

// imports finds what a package imports.
type imports struct {
	renamed map[string]string
	known   map[string]*types.Package
}

func (i imports) Import(path string) (*types.Package, error) {
	if to, is := i.renamed[path]; is {
		path = to
	}
	if p := i.known[path]; p != nil {
		return p, nil
	}
	return nil, errors.New("not listed: " + path)
}
