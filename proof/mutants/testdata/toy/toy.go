// Package toy is code that the tests of command mutants mutate.
package toy

import (
	_ "embed"
	"runtime"
	"strings"
)

//go:embed toy.lua
var source string

// Lines holds the lines of the script. A test looks at the second one only.
var Lines = strings.Split(source, "\n")

const size = 3

// Full is tested on both sides of the boundary.
func Full(n int) bool { return n >= size }

// Clamp is not tested at its boundaries.
func Clamp(n int) int {
	if n > 10 {
		return 10
	}
	return n
}

// Unused is executed by no test.
func Unused(n int) int {
	return n + 2
}

// A Pair has a type parameter, and a method with several kinds of parameters.
type Pair[T any] struct{ a, b []T }

// Add counts what it adds.
func (p *Pair[T]) Add(_ string, more ...T) (count int) {
	for range more {
		count++
	}
	p.a = append(p.a, more...)
	return count
}

// Spin does not end without its i++.
func Spin(int) {
	for i := 0; i < 3; {
		i++
	}
}

// Status returns 2 if f panics, else 0. Its test accepts any positive number after a panic.
func Status(f func()) (status int) {
	defer caught(&status)
	f()
	return 0
}

func caught(status *int) {
	runtime.Gosched()
	if recover() != nil {
		*status = 2
	}
}
