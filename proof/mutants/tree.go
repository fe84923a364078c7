package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// An area is a package whose files are mutated.
type area struct {
	dir   string   // from the top of the tree
	tests []string // the packages whose tests try it, in this order
}

// A library is a package that is mutated.
type library struct {
	area
	path    string
	sources []*source // Go files in the order of the build, then scripts
}

// A tree is a module and its mutated packages.
type tree struct {
	root      string
	libraries []*library
	files     *token.FileSet
	importer  types.Importer
}

// listed is the output of go list for a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, EmbedFiles     []string
}

// readTree finds all mutants of the areas of the module at root.
func readTree(ctx context.Context, root string, areas []area) (*tree, error) {
	t := &tree{root: root, files: token.NewFileSet()}
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,EmbedFiles"}
	for _, a := range areas {
		args = append(args, "./"+a.dir)
	}
	out, err := t.goTool(ctx, args...)
	if err != nil {
		return nil, err
	}
	exports, byDir := map[string]string{}, map[string]listed{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath], byDir[p.Dir] = p.Export, p
	}
	t.importer = importer.ForCompiler(t.files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, a := range areas {
		p := byDir[filepath.Join(root, a.dir)]
		l := &library{area: a, path: p.ImportPath}
		for _, name := range append(p.GoFiles, p.EmbedFiles...) {
			if err := t.readSource(l, filepath.Join(p.Dir, name)); err != nil {
				return nil, err
			}
		}
		t.libraries = append(t.libraries, l)
	}
	return t, nil
}

func (t *tree) readSource(l *library, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	name, err := filepath.Rel(t.root, path)
	if err != nil {
		return err
	}
	s := &source{name: filepath.ToSlash(name), path: path, text: string(text), pkg: l}
	switch filepath.Ext(name) {
	case ".go":
		err = readGo(t.files, s)
	case ".lua":
		readLua(s)
	}
	l.sources = append(l.sources, s)
	return err
}

// goTool runs the go command at the top of the tree, in its workspace if it has one, and returns its output.
func (t *tree) goTool(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = t.root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return out, nil
}

// mutants returns all mutants of the tree.
func (t *tree) mutants() (all []*mutant) {
	for _, l := range t.libraries {
		for _, s := range l.sources {
			all = append(all, s.mutants...)
		}
	}
	return all
}

// compiles reports whether m compiles. It may change m: if a dropped statement was the only use of
// a variable, compiles puts an assignment of that variable to _ in its place. An import that m leaves
// unused is an error only if m is built alone; otherwise the original function still uses it.
func (t *tree) compiles(m *mutant) bool {
	if m.source.file == nil {
		return true
	}
	unused, ok := t.check(m)
	if ok && len(unused) > 0 && m.Kind == "drop" {
		for _, name := range unused {
			m.text += "_ = " + name + "; "
		}
		unused, ok = t.check(m)
	}
	return ok && len(unused) == 0
}

// check returns the variables that m leaves unused, and whether m has no other error.
func (t *tree) check(m *mutant) (unused []string, ok bool) {
	mutated, err := parser.ParseFile(t.files, m.source.path, m.apply(m.source.text), parser.SkipObjectResolution)
	if err != nil {
		return nil, false
	}
	var files []*ast.File
	for _, s := range m.source.pkg.sources {
		if s == m.source {
			files = append(files, mutated)
		} else if s.file != nil {
			files = append(files, s.file)
		}
	}
	ok = true
	config := types.Config{Importer: t.importer, Error: func(err error) {
		text := err.Error()
		if typed := (types.Error{}); errors.As(err, &typed) {
			text = typed.Msg
		}
		if name, found := strings.CutPrefix(text, "declared and not used: "); found {
			unused = append(unused, name)
		} else if m.isAlone() || !strings.HasSuffix(text, " imported and not used") {
			ok = false
		}
	}}
	_, _ = config.Check(m.source.pkg.path, t.files, files, nil) // config.Error has taken the errors
	return unused, ok
}
