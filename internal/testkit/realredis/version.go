package realredis

import (
	"os/exec"
	"regexp"
	"sync"
)

// beforeSeven matches what a server older than Redis 7.0 prints for --version. Valkey begins with 7.2.
var beforeSeven = regexp.MustCompile(`\bv=[0-6]\.`)

// since7s has, by the path of a program, what since7 has found.
var since7s sync.Map

// since7 reports whether a server has the options of Redis 7.0.
func since7(program string) bool {
	path, err := exec.LookPath(program)
	if err != nil {
		return true // the start will say so
	}
	if known, ok := since7s.Load(path); ok {
		return known.(bool)
	}
	text, err := exec.Command(path, "--version").Output() //nolint:gosec // the server that is about to be started
	is := err != nil || !beforeSeven.Match(text)
	since7s.Store(path, is)
	return is
}
