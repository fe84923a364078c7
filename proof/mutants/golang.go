package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// A source is a file that is mutated.
type source struct {
	name    string // from the top of the tree, with slashes
	path    string
	text    string
	pkg     *library
	tokens  *token.File
	file    *ast.File // nil for a Lua script
	mutants []*mutant
}

// A function is a Go function with a body.
type function struct {
	name     string
	decl     *ast.FuncDecl
	recovers bool // it calls recover, which works only if this function itself was deferred
}

// readGo parses a file of Go, and finds its mutants.
func readGo(files *token.FileSet, s *source) error {
	file, err := parser.ParseFile(files, s.path, s.text, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return err
	}
	s.file, s.tokens = file, files.File(file.Pos())
	if ast.IsGenerated(file) {
		return nil
	}
	for _, decl := range file.Decls {
		w := &goWalk{source: s, whole: map[ast.Expr]bool{}}
		if fn, ok := decl.(*ast.FuncDecl); ok {
			if fn.Body == nil || isText(fn.Name.Name) {
				continue
			}
			w.fn = &function{nameOf(fn), fn, recovers(fn)}
			w.early(fn.Body)
			ast.Inspect(fn.Body, w.visit)
		} else {
			ast.Inspect(decl, w.visit)
		}
		s.mutants = append(s.mutants, w.found...)
	}
	describe(s, s.mutants)
	return nil
}

// isText reports whether a function of that name makes texts for people.
func isText(name string) bool {
	return slices.Contains([]string{"String", "GoString", "Error", "LogValue"}, name)
}

// recovers reports whether fn itself calls recover, not a function literal in it.
func recovers(fn *ast.FuncDecl) (found bool) {
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			f, isName := call.Fun.(*ast.Ident)
			found = found || isName && f.Name == "recover"
		}
		_, inside := n.(*ast.FuncLit)
		return !inside
	})
	return found
}

// nameOf returns "f", "(T).f" or "(*T).f".
func nameOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	star, t := "", fn.Recv.List[0].Type
	if pointer, ok := t.(*ast.StarExpr); ok {
		star, t = "*", pointer.X
	}
	switch generic := t.(type) {
	case *ast.IndexExpr:
		t = generic.X
	case *ast.IndexListExpr:
		t = generic.X
	}
	return "(" + star + t.(*ast.Ident).Name + ")." + fn.Name.Name
}

// A goWalk finds the mutants of one declaration.
type goWalk struct {
	source *source
	fn     *function
	stack  []ast.Node        // the visited node, after its parents
	whole  map[ast.Expr]bool // conditions, which are negated as a whole
	found  []*mutant
}

func (w *goWalk) add(kind string, from, to token.Pos, text string) {
	m := &mutant{Kind: kind, fn: w.fn, edit: edit{w.source.tokens.Offset(from), w.source.tokens.Offset(to), text}}
	if w.fn != nil {
		m.Func = w.fn.name
	}
	w.found = append(w.found, m)
}

func (w *goWalk) text(n ast.Node) string {
	return w.source.text[w.source.tokens.Offset(n.Pos()):w.source.tokens.Offset(n.End())]
}

func (w *goWalk) replace(kind string, n ast.Node, text string) { w.add(kind, n.Pos(), n.End(), text) }

// operator replaces an operator by another one.
func (w *goWalk) operator(kind string, at token.Pos, from, to token.Token) {
	w.add(kind, at, at+token.Pos(len(from.String())), to.String())
}

// parent returns the n-th parent of the visited node, counted from 0; nil if there is none.
func (w *goWalk) parent(n int) ast.Node {
	if n = len(w.stack) - 2 - n; n < 0 {
		return nil
	}
	return w.stack[n]
}

func (w *goWalk) visit(n ast.Node) bool {
	if n == nil {
		w.stack = w.stack[:len(w.stack)-1]
		return true
	}
	if isSkipped(n) {
		return false
	}
	w.stack = append(w.stack, n)
	switch n := n.(type) {
	case ast.Stmt:
		w.statement(n)
	case ast.Expr:
		w.expression(n)
	}
	return true
}

// isSkipped reports whether nothing inside n is mutated: n is an import, a type, or a call that makes an
// error or a panic.
func isSkipped(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ImportSpec, *ast.TypeSpec:
		return true
	case *ast.CallExpr:
		switch f := n.Fun.(type) {
		case *ast.Ident:
			return f.Name == "panic"
		case *ast.SelectorExpr:
			of, ok := f.X.(*ast.Ident)
			return ok && (of.Name == "errors" && f.Sel.Name == "New" || of.Name == "fmt" && f.Sel.Name == "Errorf")
		}
	}
	return false
}

// condition mutates the condition of a branch or a loop: negated, never true and, except for a loop,
// always true. The forms that are never or always true keep the text of the condition, because the code
// compiles only if the variables in it are still used.
func (w *goWalk) condition(cond ast.Expr, loop bool) {
	if cond == nil {
		return
	}
	w.whole[cond] = true
	text := w.text(cond)
	if not, ok := cond.(*ast.UnaryExpr); ok && not.Op == token.NOT {
		w.replace("negate", cond, w.text(not.X))
	} else {
		w.replace("negate", cond, "!("+text+")")
	}
	w.replace("never", cond, "false && ("+text+")")
	if !loop {
		w.replace("always", cond, "true || ("+text+")")
	}
}

var (
	boundaries = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR}
	opposites  = map[token.Token]token.Token{
		token.EQL: token.NEQ, token.NEQ: token.EQL, token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
		token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN, token.INC: token.DEC, token.DEC: token.INC,
	}
)

func (w *goWalk) statement(n ast.Stmt) {
	switch n := n.(type) {
	case *ast.IfStmt:
		w.condition(n.Cond, false)
		w.early(n.Body)
	case *ast.ForStmt:
		w.condition(n.Cond, true)
	case *ast.SwitchStmt:
		for _, clause := range n.Body.List {
			for _, cond := range clause.(*ast.CaseClause).List {
				if n.Tag == nil {
					w.condition(cond, false)
				}
			}
		}
	case *ast.CaseClause, *ast.CommClause:
		w.replace("drop case", n, "")
	case *ast.AssignStmt:
		if to, ok := opposites[n.Tok]; ok {
			w.operator("swap", n.TokPos, n.Tok, to)
		}
		if n.Tok != token.DEFINE {
			w.drop(n)
		}
	case *ast.IncDecStmt:
		w.operator("swap", n.TokPos, n.Tok, opposites[n.Tok])
		w.drop(n)
	case *ast.ExprStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt:
		if !unlocks(n) {
			w.drop(n)
		}
	case *ast.ReturnStmt:
		if _, ok := w.parent(1).(*ast.IfStmt); ok {
			w.drop(n)
		}
	case *ast.BranchStmt:
		if n.Tok == token.BREAK || n.Tok == token.CONTINUE {
			w.drop(n)
		}
	}
}

// drop adds the mutant without n if n stands in a list of statements.
func (w *goWalk) drop(n ast.Stmt) {
	switch parent := w.parent(0).(type) {
	case *ast.BlockStmt, *ast.CaseClause:
		w.replace("drop", n, "")
	case *ast.CommClause:
		if parent.Comm != n {
			w.replace("drop", n, "")
		}
	}
}

// early adds the mutant that returns zero values at the beginning of body, which is the body of a function or of an
// if.
func (w *goWalk) early(body *ast.BlockStmt) {
	fn, all := w.around()
	if len(body.List) == 0 || isDropped(body, fn, all, w.isDeferred()) || leavesLocked(body, all) {
		return
	}
	if !returnsZeros(body.List[0], fn) {
		w.add("return early", body.Lbrace+1, body.Lbrace+1, " "+returnOfZeros(fn)+"; ")
	}
}

// around returns the type and the body of the innermost function around the visited node, or of that node.
func (w *goWalk) around() (fn *ast.FuncType, body *ast.BlockStmt) {
	for _, n := range slices.Backward(w.stack) {
		if literal, ok := n.(*ast.FuncLit); ok {
			return literal.Type, literal.Body
		}
	}
	return w.fn.decl.Type, w.fn.decl.Body
}

// isDeferred reports whether the visited node is a function that is deferred, or that is a goroutine.
func (w *goWalk) isDeferred() bool {
	if call, ok := w.parent(0).(*ast.CallExpr); !ok || call.Fun != w.stack[len(w.stack)-1] {
		return false
	}
	switch w.parent(1).(type) {
	case *ast.DeferStmt, *ast.GoStmt:
		return true
	}
	return false
}

func (w *goWalk) expression(n ast.Expr) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		w.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT && !w.whole[n] {
			w.replace("negate", n, w.text(n.X))
		}
	case *ast.CallExpr:
		w.call(n)
	case *ast.FuncLit:
		w.early(n.Body)
	case *ast.Ident:
		switch n.Name {
		case "true":
			w.replace("constant", n, "false")
		case "false":
			w.replace("constant", n, "true")
		}
	case *ast.BasicLit:
		w.literal(n)
	}
}

func (w *goWalk) call(n *ast.CallExpr) {
	name, ok := n.Fun.(*ast.Ident)
	if ok && name.Name == "min" {
		w.replace("swap", name, "max")
	} else if ok && name.Name == "max" {
		w.replace("swap", name, "min")
	} else if !isUnordered(n) {
		w.arguments(n.Args)
	}
}

// arguments swaps neighbors. What results does not compile if their types differ, so it is never drawn.
func (w *goWalk) arguments(args []ast.Expr) {
	for i := 1; i < len(args); i++ {
		a, b := args[i-1], args[i]
		if w.text(a) != w.text(b) {
			w.add("swap arguments", a.Pos(), b.End(), w.text(b)+", "+w.text(a))
		}
	}
}

// isUnordered reports whether the order of the arguments of n is of no interest: n makes a text for people, joins
// errors, compares for equality, or makes something whose length and capacity it names.
func isUnordered(n *ast.CallExpr) bool {
	switch f := n.Fun.(type) {
	case *ast.Ident:
		return f.Name == "make"
	case *ast.SelectorExpr:
		of, ok := f.X.(*ast.Ident)
		return ok && (of.Name == "fmt" || of.Name == "errors" || f.Sel.Name == "Equal")
	}
	return false
}

func (w *goWalk) binary(n *ast.BinaryExpr) {
	if n.Op == token.LAND || n.Op == token.LOR {
		w.replace("drop argument", n, w.text(n.X))
		w.replace("drop argument", n, w.text(n.Y))
		return
	}
	if to, ok := boundaries[n.Op]; ok {
		w.operator("boundary", n.OpPos, n.Op, to)
	}
	if to, ok := opposites[n.Op]; ok && !w.whole[n] && !w.isTuning(n) {
		w.operator("swap", n.OpPos, n.Op, to)
	}
}

// literal changes an integer by one, unless it is a capacity for make, or isTuning holds for the
// expression around it.
func (w *goWalk) literal(n *ast.BasicLit) {
	value, err := strconv.ParseInt(n.Value, 0, 64)
	if n.Kind != token.INT || err != nil || w.isCapacity(n) || w.isTuning(w.parent(0)) {
		return
	}
	w.replace("constant", n, strconv.FormatInt(value+1, 10))
	if value == 1 {
		w.replace("constant", n, "0")
	}
}

func (w *goWalk) isCapacity(n ast.Expr) bool {
	up := 0
	for sum, is := w.parent(up).(*ast.BinaryExpr); is; sum, is = w.parent(up).(*ast.BinaryExpr) { // 3 + len(args)
		n, up = sum, up+1
	}
	call, ok := w.parent(up).(*ast.CallExpr)
	if !ok || len(call.Args) < 2 || call.Args[len(call.Args)-1] != n {
		return false
	}
	f, ok := call.Fun.(*ast.Ident)
	if !ok || f.Name != "make" {
		return false
	}
	_, isMap := call.Args[0].(*ast.MapType)
	return isMap || len(call.Args) == 3
}

// isTuning reports whether n computes with a unit of time or a number of kilobytes, outside of all functions. Tests need not
// notice a small change of such a duration or size.
func (w *goWalk) isTuning(n ast.Node) bool {
	product, ok := n.(*ast.BinaryExpr)
	return ok && w.fn == nil && (strings.Contains(w.text(product), "time.") || strings.HasSuffix(w.text(product), "<< 10"))
}
