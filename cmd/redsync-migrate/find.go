package main

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

const (
	v4      = "github.com/go-redsync/redsync/v4"
	v4redis = v4 + "/redis"
	goredis = v4redis + "/goredis/v9"
	here    = "github.com/seed14bd9ef4/redsync"
	pool    = here + "/pool"
)

// analyzer reports what differs from redsync v4. The category of a diagnostic is its kind in rules, or "move" for the
// edits of a file.
//
//nolint:gochecknoglobals // as each Analyzer
var analyzer = &analysis.Analyzer{
	Name: "redsyncmigrate",
	Doc:  "moves a program from redsync v4 to " + here,
	Run: func(pass *analysis.Pass) (any, error) {
		f := &finder{Pass: pass, imported: imported(pass.Pkg)}
		for _, file := range pass.Files {
			f.look(file)
			f.move(file)
		}
		f.ownTypes()
		return nil, nil //nolint:nilnil // it has no result
	},
}

// finder looks for uses in one package.
type finder struct {
	*analysis.Pass
	imported map[string]*types.Package // all that the package imports, also indirectly
}

func imported(p *types.Package) map[string]*types.Package {
	all := map[string]*types.Package{}
	var add func(p *types.Package)
	add = func(p *types.Package) {
		for _, each := range p.Imports() {
			if all[each.Path()] == nil {
				all[each.Path()] = each
				add(each)
			}
		}
	}
	add(p)
	return all
}

func (f *finder) report(at ast.Node, kind string) { f.say(at, kind, rules[kind].text) }

func (f *finder) say(at ast.Node, kind, text string) {
	f.Report(analysis.Diagnostic{Pos: at.Pos(), End: at.End(), Category: kind, Message: text})
}

// look reports the uses in a file.
func (f *finder) look(file *ast.File) {
	if ast.IsGenerated(file) && importsOld(file) {
		f.report(file.Name, "generated")
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:generate") && strings.Contains(c.Text, "go-redsync/redsync") {
				f.report(c, "generate")
			}
		}
	}
	ast.PreorderStack(file, nil, func(n ast.Node, stack []ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			f.lookAtUse(n, stack)
		case *ast.SelectorExpr:
			f.lookAtMethod(n, stack)
		case *ast.TypeAssertExpr:
			if n.Type != nil {
				f.lookAtAssertion(n.Type)
			}
		case *ast.TypeSwitchStmt:
			for _, clause := range n.Body.List {
				for _, each := range clause.(*ast.CaseClause).List { //nolint:forcetypeassert // as the language has it
					f.lookAtAssertion(each)
				}
			}
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				f.lookAtText(n, "error-text", n.X, n.Y)
			}
		case *ast.SwitchStmt:
			f.lookAtTextSwitch(n)
		case *ast.CallExpr:
			f.lookAtCall(n)
		case *ast.FuncDecl:
			if n.Body != nil {
				f.lookAtOrder(n.Body)
			}
		case *ast.FuncLit:
			f.lookAtOrder(n.Body)
		}
		return true
	})
}

// isOld says whether the object is of that package of redsync v4, with one of these names.
func isOld(o types.Object, path string, names ...string) bool {
	return o != nil && o.Pkg() != nil && o.Pkg().Path() == path && slices.Contains(names, o.Name())
}

func (f *finder) lookAtUse(id *ast.Ident, stack []ast.Node) {
	o := f.TypesInfo.Uses[id]
	if o == nil || o.Pkg() == nil {
		return
	}
	if o.Pkg().Path() == v4 && o.Parent() == o.Pkg().Scope() {
		switch o.Name() {
		case "ErrFailed", "ErrExtendFailed", "ErrLockAlreadyExpired":
			f.lookAtError(id, o.Name(), stack)
		case "New":
			if !isCalled(id, stack) {
				f.report(id, "compare-signature")
			}
		}
		return
	}
	switch {
	case isOld(o, v4redis, "Conn", "Script", "NewScript"):
		f.report(id, "conn")
	case isDriver(o.Pkg().Path()) && o.Parent() == o.Pkg().Scope():
		f.report(id, driverKind(o.Pkg().Path()))
	case isOld(o, goredis, "NewPool"):
		if !isCalled(id, stack) {
			f.report(id, "pool-value")
		}
	case f.isForeign(o) && mentionsOld(o.Type(), 0):
		f.say(id, "foreign", o.Pkg().Name()+"."+o.Name()+": "+rules["foreign"].text)
	}
}

// isDriver says whether the package has a pool of redsync v4 for which there is none here.
func isDriver(path string) bool { return strings.HasPrefix(path, v4redis+"/") && path != goredis }

func driverKind(path string) string {
	if kind := drivers[strings.TrimPrefix(path, v4)]; kind != "" {
		return kind
	}
	return "driver"
}

// isForeign says whether the object is of a package that this run does not look at.
func (f *finder) isForeign(o types.Object) bool {
	path := strings.TrimSuffix(o.Pkg().Path(), "_test")
	if path == strings.TrimSuffix(f.Pkg.Path(), "_test") || isOfLibrary(path) || looked[path] {
		return false
	}
	_, isName := o.(*types.PkgName)
	return !isName
}

// looked are the paths of all packages that this run looks at.
//
//nolint:gochecknoglobals // an Analyzer has no other way to know
var looked = map[string]bool{}

func isOfLibrary(path string) bool {
	return path == v4 || strings.HasPrefix(path, v4+"/") || path == here || strings.HasPrefix(path, here+"/")
}

// mentionsOld says whether a type of redsync v4 stands in the type.
func mentionsOld(t types.Type, depth int) bool {
	in := func(t types.Type) bool { return mentionsOld(t, depth+1) }
	if depth > 6 {
		return false
	}
	switch t := types.Unalias(t).(type) {
	case *types.Named:
		if p := t.Obj().Pkg(); p != nil && (p.Path() == v4 || p.Path() == v4redis) {
			return true
		}
		for i := range t.TypeArgs().Len() {
			if in(t.TypeArgs().At(i)) {
				return true
			}
		}
	case *types.Pointer:
		return in(t.Elem())
	case *types.Slice:
		return in(t.Elem())
	case *types.Array:
		return in(t.Elem())
	case *types.Chan:
		return in(t.Elem())
	case *types.Map:
		return in(t.Key()) || in(t.Elem())
	case *types.Tuple:
		for i := range t.Len() {
			if in(t.At(i).Type()) {
				return true
			}
		}
	case *types.Signature:
		return in(t.Params()) || in(t.Results())
	}
	return false
}

// isCalled says whether the name, perhaps with its package before it, is what a call calls.
func isCalled(id *ast.Ident, stack []ast.Node) bool {
	var n ast.Node = id
	for _, each := range slices.Backward(stack) {
		switch parent := each.(type) {
		case *ast.SelectorExpr, *ast.ParenExpr:
			n = parent
		case *ast.CallExpr:
			return parent.Fun == n
		default:
			return false
		}
	}
	return false
}

// lookAtError reports a use of an error's variable.
func (f *finder) lookAtError(id *ast.Ident, name string, stack []ast.Node) {
	compared := false
	for _, each := range slices.Backward(stack) {
		switch parent := each.(type) {
		case *ast.SelectorExpr, *ast.ParenExpr:
			continue
		case *ast.BinaryExpr:
			if parent.Op == token.EQL || parent.Op == token.NEQ {
				f.report(parent, "error-compared")
				compared = true
			}
		case *ast.CaseClause:
			f.report(id, "error-compared")
			compared = true
		case *ast.CallExpr:
			called := calledName(parent)
			switch is := called == "Is" || strings.HasSuffix(called, "ErrorIs") || strings.HasSuffix(called, "ErrorIsf"); {
			case called == "Errorf" || called == "Join" || called == "Return" || called == "panic": // it makes an error
			case !is:
				f.report(id, "error-compared")
			case name == "ErrFailed":
				f.report(id, "error-failed")
			case name == "ErrExtendFailed":
				f.report(id, "error-extend")
			}
			return
		case *ast.ReturnStmt:
			return
		}
		break
	}
	switch name {
	case "ErrFailed":
		f.report(id, "error-failed")
	case "ErrExtendFailed":
		f.report(id, "error-extend")
	default:
		if !compared {
			f.report(id, "error-kept")
		}
	}
}

func calledName(call *ast.CallExpr) string {
	switch fun := ast.Unparen(call.Fun).(type) {
	case *ast.SelectorExpr:
		return fun.Sel.Name
	case *ast.Ident:
		return fun.Name
	}
	return ""
}

// lookAtAssertion reports a type to which an error is asserted.
func (f *finder) lookAtAssertion(to ast.Expr) {
	t := f.TypesInfo.TypeOf(to)
	if t == nil {
		return
	}
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	named, ok := types.Unalias(t).(*types.Named)
	switch {
	case !ok:
	case isOld(named.Obj(), v4, "ErrTaken"):
		f.report(to, "error-taken")
	case isOld(named.Obj(), v4, "ErrNodeTaken", "RedisError"):
		f.report(to, "error-asserted")
	case isOld(named.Obj(), "github.com/hashicorp/go-multierror", "Error") && f.imported[v4] != nil:
		f.report(to, "error-multi")
	}
}

// lookAtText reports if a constant with words of redsync v4 is compared, or looked for.
func (f *finder) lookAtText(at ast.Node, kind string, in ...ast.Expr) {
	for _, each := range in {
		value := f.TypesInfo.Types[each].Value
		if value == nil || value.Kind() != constant.String {
			continue
		}
		for _, word := range words {
			if strings.Contains(constant.StringVal(value), word) {
				f.report(at, kind)
				return
			}
		}
	}
}

func (f *finder) lookAtTextSwitch(s *ast.SwitchStmt) {
	for _, clause := range s.Body.List {
		for _, each := range clause.(*ast.CaseClause).List { //nolint:forcetypeassert // as the language has it
			f.lookAtText(each, "error-text", each)
		}
	}
}

func (f *finder) lookAtCall(call *ast.CallExpr) {
	sel, _ := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	id, _ := ast.Unparen(call.Fun).(*ast.Ident)
	if sel != nil {
		id = sel.Sel
	}
	o := f.TypesInfo.Uses[id]
	if id == nil || o == nil || o.Pkg() == nil {
		return
	}
	name, path := o.Name(), o.Pkg().Path()
	switch path {
	case "strings", "regexp":
		kind := "error-contains"
		if slices.Contains([]string{"HasPrefix", "HasSuffix", "EqualFold", "Compare", "TrimPrefix", "CutPrefix"}, name) || path == "regexp" {
			kind = "error-text"
		}
		f.lookAtText(call, kind, call.Args...)
		return
	case "github.com/stretchr/testify/assert", "github.com/stretchr/testify/require":
		switch strings.TrimSuffix(name, "f") {
		case "EqualError":
			f.lookAtText(call, "error-text", call.Args...)
		case "ErrorContains", "Contains", "Regexp":
			f.lookAtText(call, "error-contains", call.Args...)
		}
		return
	case v4:
	case v4redis: // a conversion to the interface
		if name == "Pool" && len(call.Args) == 1 && !mentionsOld(f.TypesInfo.TypeOf(call.Args[0]), 0) {
			f.report(call, "pool-own")
		}
		return
	default:
		f.lookAtHook(call, o)
		return
	}
	var value constant.Value
	if len(call.Args) > 0 {
		value = f.TypesInfo.Types[call.Args[0]].Value
	}
	switch name {
	case "New":
		if len(call.Args) > 1 || call.Ellipsis.IsValid() {
			f.report(id, "failfast-default")
		}
	case "WithGenValueFunc":
		f.report(id, "genvalue")
	case "WithSetNXOnExtend":
		f.report(id, "setnx")
	case "WithFailFast":
		if value == nil || !constant.BoolVal(value) {
			f.report(id, "failfast-false")
		}
	case "NewMutex":
		if value != nil && constant.StringVal(value) == "" {
			f.report(id, "name-empty")
		}
	}
	if value == nil {
		return
	}
	if number := constant.ToFloat(value); number.Kind() == constant.Float || number.Kind() == constant.Int {
		v, _ := constant.Float64Val(number)
		for _, each := range optionValues[name] {
			if each.differs(v) {
				f.say(id, "option-value", each.text)
			}
		}
	}
}

// lookAtHook reports what gives a client of go-redis a hook, or mocks it, or looks for goroutines that are left.
func (f *finder) lookAtHook(call *ast.CallExpr, o types.Object) {
	path := o.Pkg().Path()
	switch {
	case o.Name() == "AddHook" && strings.HasPrefix(path, "github.com/redis/go-redis/v9"),
		strings.HasPrefix(path, "github.com/redis/go-redis/extra/") && strings.HasPrefix(o.Name(), "Instrument"):
		f.report(call, "hook")
	case strings.HasPrefix(path, "github.com/go-redis/redismock") && strings.HasPrefix(o.Name(), "New"):
		f.report(call, "mock")
	case path == "go.uber.org/goleak" && f.imported[v4] != nil && slices.Contains([]string{"VerifyTestMain", "VerifyNone", "Find"}, o.Name()):
		f.report(call, "goleak")
	}
}

// mutexMethod returns the name of the method of a Mutex that is selected, directly or by an interface that Mutex implements.
func (f *finder) mutexMethod(sel *ast.SelectorExpr) string {
	selection := f.TypesInfo.Selections[sel]
	if selection == nil {
		return ""
	}
	fn, ok := selection.Obj().(*types.Func)
	if !ok {
		return ""
	}
	if fn.Pkg() != nil && fn.Pkg().Path() == v4 {
		return fn.Name()
	}
	face, isFace := selection.Recv().Underlying().(*types.Interface)
	if p := f.imported[v4]; p != nil && isFace {
		if mutex, isType := p.Scope().Lookup("Mutex").(*types.TypeName); isType && types.Implements(types.NewPointer(mutex.Type()), face) {
			return fn.Name()
		}
	}
	return ""
}

func (f *finder) lookAtMethod(sel *ast.SelectorExpr, stack []ast.Node) {
	if selection := f.TypesInfo.Selections[sel]; selection != nil {
		if named, ok := types.Unalias(selection.Recv()).(*types.Named); ok && isOld(named.Obj(), v4redis, "Pool", "Conn") {
			f.report(sel, "pool-get")
		}
	}
	name := f.mutexMethod(sel)
	if name != "Unlock" && name != "UnlockContext" || len(stack) < 2 {
		return
	}
	used := true
	switch parent := stack[len(stack)-2].(type) {
	case *ast.ExprStmt, *ast.DeferStmt, *ast.GoStmt:
		used = false
	case *ast.AssignStmt:
		first, isName := parent.Lhs[0].(*ast.Ident)
		used = !isName || first.Name != "_"
	case *ast.ValueSpec:
		used = parent.Names[0].Name != "_"
	}
	if used {
		f.report(sel.Sel, "unlock-bool")
	}
}

// lookAtOrder reports what is called after Unlock in one function, without a Lock between them.
func (f *finder) lookAtOrder(body *ast.BlockStmt) {
	unlocked := map[string][]ast.Node{} // by the Mutex, the stack at its Unlock
	ast.PreorderStack(body, nil, func(n ast.Node, stack []ast.Node) bool {
		switch n.(type) {
		case *ast.FuncLit, *ast.DeferStmt, *ast.GoStmt:
			return false
		}
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of := types.ExprString(sel.X)
		switch f.mutexMethod(sel) {
		case "Unlock", "UnlockContext":
			unlocked[of] = slices.Clone(stack)
		case "Lock", "LockContext", "TryLock", "TryLockContext":
			delete(unlocked, of)
		case "Extend", "ExtendContext", "Valid", "ValidContext", "Value", "Until":
			if before := unlocked[of]; before != nil && reaches(before, call) {
				f.report(call, "after-unlock")
			}
		}
		return true
	})
}

// reaches says whether the statements at the top of the stack can run on to the node: no block between them ends with a
// jump, and they are no alternatives.
func reaches(stack []ast.Node, to ast.Node) bool {
	for i, n := range slices.Backward(stack) {
		if n.Pos() <= to.Pos() && to.End() <= n.End() {
			if alternative, ok := n.(*ast.IfStmt); ok && alternative.Else != nil {
				return alternative.Else.Pos() > to.Pos() || i+1 < len(stack) && stack[i+1] != ast.Node(alternative.Body)
			}
			switch n.(type) {
			case *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
				return false
			}
			if block, ok := n.(*ast.BlockStmt); ok && i > 0 {
				switch stack[i-1].(type) {
				case *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
					return len(block.List) == 1
				}
			}
			return true
		}
		var list []ast.Stmt
		switch n := n.(type) {
		case *ast.BlockStmt:
			list = n.List
		case *ast.CaseClause:
			list = n.Body
		case *ast.CommClause:
			list = n.Body
		}
		if len(list) == 0 {
			continue
		}
		switch last := list[len(list)-1].(type) {
		case *ast.ReturnStmt, *ast.BranchStmt:
			return false
		case *ast.ExprStmt:
			if call, ok := last.X.(*ast.CallExpr); ok {
				switch calledName(call) {
				case "panic", "Exit", "Fatal", "Fatalf", "FailNow":
					return false
				}
			}
		}
	}
	return true
}

// ownTypes reports the types of the package that implement a pool or a connection of redsync v4.
func (f *finder) ownTypes() {
	p := f.imported[v4redis]
	if p == nil {
		return
	}
	for id, o := range f.TypesInfo.Defs {
		name, ok := o.(*types.TypeName)
		if !ok || types.IsInterface(name.Type()) || name.IsAlias() {
			continue
		}
		if _, isParam := name.Type().(*types.TypeParam); isParam {
			continue
		}
		for old, kind := range map[string]string{"Pool": "pool-own", "Conn": "conn-own"} {
			face, isFace := p.Scope().Lookup(old).Type().Underlying().(*types.Interface)
			if isFace && types.Implements(types.NewPointer(name.Type()), face) {
				f.report(id, kind)
			}
		}
	}
}
