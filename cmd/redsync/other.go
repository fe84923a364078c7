//go:build !unix

package main

import (
	"fmt"
	"io"
	"runtime"
)

func holderMain() int { return exitInternal }

// front says that there is neither run nor lead.
func front(_ *job, command string, _ []string, stderr io.Writer) int {
	return say(stderr, &failure{exitUsage, fmt.Errorf(
		"%s is not available on %s: it needs the process groups and signals of Unix", command, runtime.GOOS)})
}
