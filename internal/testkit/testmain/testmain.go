// Package testmain runs the tests of a package with many nodes inside the process, for its TestMain.
package testmain

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	// garbage is the GC percentage of the tests. They allocate much and keep little, so fewer collections
	// save a quarter of their processor time. They need up to 500 MB.
	garbage = 800

	// patience is how long goroutines may take to end after the tests. go-redis looks only once a second whether a
	// pool that could not dial has been closed. A silent connection to a server may last until its timeout.
	patience = 10 * time.Second
	pause    = 100 * time.Millisecond
)

// Run runs the tests and exits. It fails if goroutines are left, except those that the options in ignore name.
func Run(m *testing.M, ignore ...goleak.Option) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	// go-redis v9.22 looks up the host names of clients. A channel of package net, which the first look-up makes, must
	// belong to no bubble.
	_, _ = net.DefaultResolver.LookupIPAddr(context.Background(), "localhost")
	code := m.Run()
	if err := leaks(ignore...); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// RunWaiting does what Run does, and lets 32 tests run in parallel, even with fewer processors. It is for parallel tests
// that mostly wait: for real servers, or for each other.
func RunWaiting(m *testing.M, ignore ...goleak.Option) {
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	Run(m, ignore...)
}

// leaks returns what is left after patience, nil as soon as nothing is left.
func leaks(ignore ...goleak.Option) error {
	end := time.Now().Add(patience)
	err := goleak.Find(ignore...)
	for err != nil && time.Now().Before(end) {
		time.Sleep(pause) //nolint:forbidigo // goleak does not signal
		err = goleak.Find(ignore...)
	}
	return err
}
