package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"strconv"
	"strings"

	"golang.org/x/tools/go/analysis"
)

func pathOf(spec *ast.ImportSpec) string {
	path, _ := strconv.Unquote(spec.Path.Value)
	return path
}

func isOldPath(path string) bool {
	return path == "github.com/go-redsync/redsync" || strings.HasPrefix(path, "github.com/go-redsync/redsync/")
}

func importsOld(file *ast.File) bool {
	for _, spec := range file.Imports {
		if isOldPath(pathOf(spec)) {
			return true
		}
	}
	return false
}

// mover collects the edits of one file.
type mover struct {
	*finder
	file  *ast.File
	edits []analysis.TextEdit

	old     []*ast.ImportSpec // of packages that become package pool
	pools   []ast.Node        // the uses of what becomes pool.Pool and pool.New
	becomes map[ast.Node]string
	stay    bool // something of v4/redis is left to a person
}

func (m *mover) replace(from, to token.Pos, text string) {
	m.edits = append(m.edits, analysis.TextEdit{Pos: from, End: to, NewText: []byte(text)})
}

// move reports the edits of a file, as one diagnostic.
func (f *finder) move(file *ast.File) {
	if !importsOld(file) {
		return
	}
	m := &mover{finder: f, file: file, becomes: map[ast.Node]string{}}
	var root, poolSpec *ast.ImportSpec
	for _, spec := range file.Imports {
		switch path := pathOf(spec); {
		case path == v4:
			root = spec
		case path == v4redis, path == goredis:
			m.old = append(m.old, spec)
		case path == pool:
			poolSpec = spec
		case path == here:
			f.report(spec, "both")
			return
		case strings.HasPrefix(path, v4+"/"):
			f.report(spec, driverKind(path))
		case isOldPath(path):
			f.report(spec, "old")
		}
	}
	if root != nil && root.Name != nil && root.Name.Name == "." {
		f.report(root, "dot")
	}
	if root != nil {
		m.replace(root.Path.Pos(), root.Path.End(), strconv.Quote(here))
	}
	m.uses()
	m.imports(poolSpec)
	m.keys()
	if len(m.edits) > 0 {
		f.Report(analysis.Diagnostic{
			Pos: file.Pos(), Category: "move",
			SuggestedFixes: []analysis.SuggestedFix{{Message: "move", TextEdits: m.edits}},
		})
	}
}

// uses finds the uses of packages that become package pool.
func (m *mover) uses() {
	ast.PreorderStack(m.file, nil, func(n ast.Node, stack []ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		o := m.TypesInfo.Uses[id]
		if o == nil || o.Pkg() == nil || o.Parent() != o.Pkg().Scope() {
			return true
		}
		var at ast.Node = id
		if sel, isSel := stack[len(stack)-1].(*ast.SelectorExpr); isSel && sel.Sel == id {
			at, stack = sel, stack[:len(stack)-1]
		}
		switch {
		case isOld(o, v4redis, "Pool") && isEmbedded(stack): // what has the interface is a pool of the program's own
			m.report(at, "pool-own")
			m.stay = true
		case isOld(o, v4redis, "Pool"):
			m.pools, m.becomes[at] = append(m.pools, at), "Pool"
		case isOld(o, goredis, "NewPool"):
			m.pools, m.becomes[at] = append(m.pools, at), "New"
		case o.Pkg().Path() == v4redis:
			m.stay = true
		}
		return true
	})
}

// isEmbedded says whether an interface embeds what has these parents.
func isEmbedded(parents []ast.Node) bool {
	if len(parents) < 3 {
		return false
	}
	field, ok := parents[len(parents)-1].(*ast.Field)
	_, inInterface := parents[len(parents)-3].(*ast.InterfaceType)
	return ok && inInterface && len(field.Names) == 0
}

// imports replaces the imports of what becomes package pool by one, and the uses.
func (m *mover) imports(poolSpec *ast.ImportSpec) {
	name := ""
	if poolSpec != nil && poolSpec.Name != nil {
		name = poolSpec.Name.Name
	} else if poolSpec != nil {
		name = "pool"
	}
	if name == "" || name == "_" || name == "." {
		name = m.freeName()
	}
	for _, at := range m.pools {
		m.replace(at.Pos(), at.End(), name+"."+m.becomes[at])
	}
	line := strconv.Quote(pool)
	if name != "pool" {
		line = name + " " + line
	}
	needed := poolSpec == nil
	for i, spec := range m.old {
		stays := pathOf(spec) == v4redis && m.stay
		blank := spec.Name != nil && spec.Name.Name == "_"
		switch {
		case stays && needed && len(m.pools) > 0 && i == len(m.old)-1:
			between := "\n\t"
			if !m.inParens(spec) {
				between = "\nimport "
			}
			m.replace(spec.Pos(), spec.Pos(), line+between)
			needed = false
		case stays:
		case needed && blank && len(m.pools) == 0:
			m.replace(spec.Pos(), spec.End(), "_ "+strconv.Quote(pool))
			needed = false
		case needed && len(m.pools) > 0:
			m.replace(spec.Pos(), spec.End(), line)
			needed = false
		default:
			m.remove(spec)
		}
	}
}

func (m *mover) declOf(spec *ast.ImportSpec) *ast.GenDecl {
	for _, decl := range m.file.Decls {
		if d, ok := decl.(*ast.GenDecl); ok && d.Pos() <= spec.Pos() && spec.End() <= d.End() {
			return d
		}
	}
	return nil
}

func (m *mover) inParens(spec *ast.ImportSpec) bool {
	d := m.declOf(spec)
	return d != nil && d.Lparen.IsValid()
}

// remove takes an import away, and its line if nothing else is on it.
func (m *mover) remove(spec *ast.ImportSpec) {
	from, to := spec.Pos(), spec.End()
	if d := m.declOf(spec); d != nil && (!d.Lparen.IsValid() || len(d.Specs) == 1) {
		from, to = d.Pos(), d.End()
	}
	file := m.Fset.File(from)
	source, err := m.ReadFile(file.Name())
	if err != nil || file.Offset(to) > len(source) {
		m.replace(from, to, "")
		return
	}
	start, end := file.Offset(from), file.Offset(to)
	lineStart := start
	for lineStart > 0 && (source[lineStart-1] == ' ' || source[lineStart-1] == '\t') {
		lineStart--
	}
	lineEnd := end
	for lineEnd < len(source) && strings.ContainsRune(" \t;\r", rune(source[lineEnd])) {
		lineEnd++
	}
	if (lineStart == 0 || source[lineStart-1] == '\n') && lineEnd < len(source) && source[lineEnd] == '\n' {
		from, to = file.Pos(lineStart), file.Pos(lineEnd+1)
	} else if lineEnd > end {
		to = file.Pos(lineEnd)
	}
	m.replace(from, to, "")
}

// freeName returns a name for package pool that means nothing else where the file needs it, and that no file of the
// package declares.
func (m *mover) freeName() string {
	for i := 0; ; i++ {
		name := "pool"
		if i > 0 {
			name = "redsyncpool"
		}
		if i > 1 {
			name += strconv.Itoa(i)
		}
		if m.isFree(name) {
			return name
		}
	}
}

func (m *mover) isFree(name string) bool {
	replaced := func(o types.Object) bool {
		p, ok := o.(*types.PkgName)
		return ok && (p.Imported().Path() == v4redis && !m.stay || p.Imported().Path() == goredis)
	}
	if m.Pkg.Scope().Lookup(name) != nil {
		return false
	}
	if scope := m.TypesInfo.Scopes[m.file]; scope != nil {
		if o := scope.Lookup(name); o != nil && !replaced(o) {
			return false
		}
	}
	for _, at := range m.pools {
		if scope := m.Pkg.Scope().Innermost(at.Pos()); scope != nil {
			if _, o := scope.LookupParent(name, at.Pos()); o != nil && !replaced(o) {
				return false
			}
		}
	}
	return !m.declaredElsewhere(name)
}

// declaredElsewhere says whether a file of the package that the build tags exclude declares the name.
func (m *mover) declaredElsewhere(name string) bool {
	for _, path := range m.IgnoredFiles {
		file, _ := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if file == nil {
			continue
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == name {
					return true
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.ValueSpec:
						for _, n := range s.Names {
							if n.Name == name {
								return true
							}
						}
					case *ast.TypeSpec:
						if s.Name.Name == name {
							return true
						}
					}
				}
			}
		}
	}
	return false
}

// keys names the fields of error values that are built without them: the types have more fields here.
func (m *mover) keys() {
	ast.Inspect(m.file, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok || len(lit.Elts) == 0 {
			return true
		}
		t := m.TypesInfo.TypeOf(lit)
		if p, isPointer := types.Unalias(t).(*types.Pointer); isPointer {
			t = p.Elem()
		}
		named, ok := types.Unalias(t).(*types.Named)
		if !ok || !isOld(named.Obj(), v4, "RedisError", "ErrTaken", "ErrNodeTaken") {
			return true
		}
		fields, ok := named.Underlying().(*types.Struct)
		if _, keyed := lit.Elts[0].(*ast.KeyValueExpr); keyed || !ok {
			return true
		}
		for i, each := range lit.Elts {
			m.replace(each.Pos(), each.Pos(), fmt.Sprintf("%s: ", fields.Field(i).Name()))
		}
		return true
	})
}
