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

// A type uses another type of its package if it or one of its methods names that type, a field or a method of it. An interface
// that only one type of the package implements stands for that type. A circle is types of which each uses every other one, directly
// or through others, or through functions. Nobody can understand or change one of them alone. To move code to another file does
// not change a circle.

func TestCirclesOfTypes(t *testing.T) {
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
			t.Logf("%s: %d: %v", short(p.ImportPath), len(circle), circle)
		}
	}
	assert.Empty(t, compare("types in the largest circle", bounds["types in the largest circle"], got))
}

type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string // without tests
}

// list returns the packages of the module that a program of a user links, and the files with what each package exports.
func list(t *testing.T) (packages []listed, exports map[string]string) {
	t.Helper()
	exports = map[string]string{}
	out := run(t, "go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", ".")
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages, exports
		}
		require.NoError(t, err)
		exports[p.ImportPath] = p.Export
		if strings.HasPrefix(p.ImportPath+"/", module+"/") {
			packages = append(packages, p)
		}
	}
}

// largestCircle returns the types in the largest circle of a package, nil if there is no circle.
func largestCircle(t *testing.T, fset *token.FileSet, files []*ast.File, imports types.Importer) (largest []string) {
	t.Helper()
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: imports}
	p, err := config.Check("", fset, files, info)
	require.NoError(t, err)

	owner, uses := map[types.Object]string{}, map[string]map[string]bool{}
	each(files, info.Defs, func(name string, object types.Object) {
		owner[object], uses[name] = name, map[string]bool{}
	})
	each(files, info.Uses, func(from string, object types.Object) {
		for _, used := range append(behind(p, object), object) {
			if to := owner[used]; to != "" && to != from {
				uses[from][to] = true
			}
		}
	})
	// What uses via also uses what via uses.
	for via, used := range uses {
		for _, mine := range uses {
			if mine[via] {
				maps.Copy(mine, used)
			}
		}
	}
	for _, one := range slices.Sorted(maps.Keys(uses)) {
		var circle []string
		for _, other := range slices.Sorted(maps.Keys(uses[one])) {
			if _, is := p.Scope().Lookup(other).(*types.TypeName); is && uses[other][one] {
				circle = append(circle, other)
			}
		}
		if len(circle) > len(largest) {
			largest = circle
		}
	}
	return largest
}

// each calls do for each object that is among idents in a type or a function, with its name: methods belong to their type.
func each(files []*ast.File, idents map[*ast.Ident]types.Object, do func(name string, object types.Object)) {
	in := func(n ast.Node, name string) {
		ast.Inspect(n, func(n ast.Node) bool {
			if ident, is := n.(*ast.Ident); is && idents[ident] != nil {
				do(name, idents[ident])
			}
			return true
		})
	}
	for _, f := range files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					name, _, _ = strings.Cut(strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*"), "[")
				}
				in(d, name)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if s, is := s.(*ast.TypeSpec); is {
						in(s, s.Name.Name)
					}
				}
			}
		}
	}
}

// behind returns the method that a call of an interface's method reaches, if only one type of the package has it.
func behind(p *types.Package, called types.Object) (methods []types.Object) {
	f, ok := called.(*types.Func)
	if !ok || called.Pkg() != p || f.Signature().Recv() == nil {
		return nil
	}
	i, _ := f.Signature().Recv().Type().Underlying().(*types.Interface)
	for _, name := range p.Scope().Names() {
		named, is := p.Scope().Lookup(name).(*types.TypeName)
		if !is || i == nil {
			continue
		}
		if t := types.NewPointer(named.Type()); types.Implements(t, i) {
			m, _, _ := types.LookupFieldOrMethod(t, true, p, f.Name())
			methods = append(methods, m)
		}
	}
	if len(methods) != 1 {
		return nil
	}
	return methods
}
