package structure

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A file uses another file of its package if it names what that file declares: a function, a type, a field, a method.
// A circle is files of which each uses every other one, directly or through files between them. Nobody can understand
// or change one of them alone.

func TestCirclesOfFiles(t *testing.T) {
	needsGo(t)
	packages, exports := list(t)
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	got := map[string]int{}
	for _, p := range packages {
		if strings.Contains(p.ImportPath, "/testkit/") { // no program links it
			continue
		}
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			files = append(files, f)
		}
		if circle := largestCircle(t, fset, files, imports); len(circle) > 0 {
			got[short(p.ImportPath)] = len(circle)
			t.Logf("%s: %d files: %v", short(p.ImportPath), len(circle), circle)
		}
	}
	assert.Empty(t, compare("files in the largest circle", bounds["files in the largest circle"], got))
}

type listed struct {
	ImportPath, Dir, Export string
	DepOnly                 bool
	GoFiles                 []string // without tests
}

// list returns the packages of the module, and the files with what each package that they import exports.
func list(t *testing.T) (packages []listed, exports map[string]string) {
	t.Helper()
	exports = map[string]string{}
	out := run(t, "go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,DepOnly,GoFiles", "./...")
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages, exports
		}
		require.NoError(t, err)
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			packages = append(packages, p)
		}
	}
}

// largestCircle returns the names of the files in the largest circle of a package, nil if there is no circle.
func largestCircle(t *testing.T, fset *token.FileSet, files []*ast.File, imports types.Importer) (largest []string) {
	t.Helper()
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: imports}
	p, err := config.Check("", fset, files, info)
	require.NoError(t, err)

	fileOf := func(pos token.Pos) string { return filepath.Base(fset.Position(pos).Filename) }
	uses := map[string]map[string]bool{}
	for _, f := range files {
		uses[fileOf(f.Pos())] = map[string]bool{}
	}
	for name, object := range info.Uses {
		if from, to := fileOf(name.Pos()), fileOf(object.Pos()); object.Pkg() == p && from != to {
			uses[from][to] = true
		}
	}
	// If a file uses via, it also uses what via uses.
	for via, used := range uses {
		for _, mine := range uses {
			if mine[via] {
				maps.Copy(mine, used)
			}
		}
	}
	for _, file := range slices.Sorted(maps.Keys(uses)) {
		var circle []string
		for _, other := range slices.Sorted(maps.Keys(uses[file])) {
			if uses[other][file] {
				circle = append(circle, other)
			}
		}
		if len(circle) > len(largest) {
			largest = circle
		}
	}
	return largest
}
