package main

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// This file is about functions that return too early. It knows no goWalk.

// isDropped reports whether another mutant does the same as a return at the beginning of body: the one that drops what
// is the only statement of the function or of its last if, that makes the condition around it never true, or that drops
// the function, because body is all of it and it is deferred or a goroutine.
func isDropped(body *ast.BlockStmt, fn *ast.FuncType, all *ast.BlockStmt, deferred bool) bool {
	if fn.Results.NumFields() > 0 {
		return false
	}
	if deferred {
		return true
	}
	if last, ok := all.List[len(all.List)-1].(*ast.IfStmt); len(body.List) > 1 || body != all && (!ok || last.Body != body) {
		return false
	}
	switch n := body.List[0].(type) {
	case *ast.IfStmt:
		return n.Else == nil
	case *ast.ForStmt:
		return n.Cond != nil
	case *ast.AssignStmt, *ast.IncDecStmt, *ast.ExprStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt, *ast.ReturnStmt:
		return true
	}
	return false
}

// leavesLocked reports whether a return at the beginning of body leaves a mutex locked, because a statement below it
// in the same function, whose body is all, unlocks the mutex. Such a mutant hangs in any test. The function may lock the
// mutex below, too: then nothing is left locked.
func leavesLocked(body, all *ast.BlockStmt) (leaves bool) {
	decided := false
	ast.Inspect(all, func(n ast.Node) bool {
		if n == nil || decided || n.End() <= body.Lbrace {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.DeferStmt:
			return false // it runs after an early return, too, or has not begun
		case *ast.ExprStmt:
			if n.Pos() > body.Lbrace && (unlocks(n) || calls(n.X, "Lock", "RLock")) {
				decided, leaves = true, unlocks(n)
			}
		}
		return true
	})
	return leaves
}

// unlocks reports whether n unlocks a mutex, now or later. Without such a statement the next test that needs the
// mutex hangs until its time is over: that says no more than that the code is executed, and takes long.
func unlocks(n ast.Stmt) bool {
	switch n := n.(type) {
	case *ast.ExprStmt:
		return calls(n.X, "Unlock", "RUnlock")
	case *ast.DeferStmt:
		return calls(n.Call, "Unlock", "RUnlock")
	}
	return false
}

// calls reports whether n calls a method that has one of these names, without arguments.
func calls(n ast.Expr, names ...string) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) > 0 {
		return false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains(names, method.Sel.Name)
}

// returnOfZeros returns the statement that ends a function of this type with zero values.
func returnOfZeros(fn *ast.FuncType) string {
	var values []string
	for _, of := range resultsOf(fn) {
		values = append(values, zero(of))
	}
	return strings.TrimSpace("return " + strings.Join(values, ", "))
}

// resultsOf returns the type of each result.
func resultsOf(fn *ast.FuncType) (results []ast.Expr) {
	if fn.Results != nil {
		for _, field := range fn.Results.List {
			results = append(results, slices.Repeat([]ast.Expr{field.Type}, max(len(field.Names), 1))...)
		}
	}
	return results
}

// returnsZeros reports whether n does what returnOfZeros says.
func returnsZeros(n ast.Stmt, fn *ast.FuncType) bool {
	end, ok := n.(*ast.ReturnStmt)
	of := resultsOf(fn)
	if !ok || len(end.Results) != len(of) {
		return false // without values, it may return named ones
	}
	for i, e := range end.Results {
		text := types.ExprString(e)
		if text != zero(of[i]) && text != "nil" && text != types.ExprString(of[i])+"{}" {
			return false
		}
	}
	return true
}

// zero returns the zero value of a type.
func zero(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr, *ast.MapType, *ast.ChanType, *ast.FuncType, *ast.InterfaceType:
		return "nil"
	case *ast.ArrayType:
		if of.Len == nil {
			return "nil"
		}
	case *ast.Ident:
		if text, ok := zeros[of.Name]; ok {
			return text
		}
	}
	return "*new(" + types.ExprString(of) + ")"
}

var zeros = map[string]string{
	"bool": "false", "string": `""`, "error": "nil", "any": "nil",
	"int": "0", "int32": "0", "int64": "0", "uint": "0", "uint8": "0", "uint32": "0", "uint64": "0", "byte": "0", "float64": "0",
}
