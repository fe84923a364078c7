package main

import (
	"fmt"
	"os"
	"strings"
)

// readEquivalents returns the identities in file, which lists the mutants that no test can tell
// from the original. An entry is a line with the mutant's identity, followed by indented lines with
// the reason. Lines that begin with # are comments.
func readEquivalents(file string) (ids []string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	reasoned := true
	for number, line := range strings.Split(string(text), "\n") {
		switch {
		case line == "" || line[0] == '#':
		case line[0] == ' ' || line[0] == '\t':
			reasoned = true
		case !reasoned:
			return nil, fmt.Errorf("%s:%d: the mutant above has no reason", file, number+1)
		default:
			ids, reasoned = append(ids, line), false
		}
	}
	if !reasoned {
		return nil, fmt.Errorf("%s: the last mutant has no reason", file)
	}
	return ids, nil
}
