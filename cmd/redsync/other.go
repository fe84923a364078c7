//go:build !unix

package main

import (
	"fmt"
	"io"
	"runtime"
)

func isHolder() bool { return false }

func holderMain() int { return exitInternal }

// front says that there is neither run nor lead.
func front(_ *job, args []string, stderr io.Writer) int {
	return say(stderr, &failure{exitUsage, fmt.Errorf(
		"%s is not available on %s: it needs the process groups and signals of Unix", args[0], runtime.GOOS)})
}
