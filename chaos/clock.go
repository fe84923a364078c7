package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// This file is the clocks of nodes, which libfaketime disturbs. It is loaded into the
// servers, and reads from a file, at every look at the clock, what it shall show:
//
//	shown = true + offset + (true - start of the process) * (rate - 1)

// fakeTimeLibraries are where libfaketime is: "apt install faketime" on Debian.
const fakeTimeLibraries = "/usr/lib/*/faketime/libfaketime.so.1"

// errNoFakeTime means that the clocks of servers cannot be disturbed.
var errNoFakeTime = errors.New("libfaketime is not here (apt install faketime)")

// findFakeTime returns the path of the library.
func findFakeTime() (string, error) {
	found, err := filepath.Glob(fakeTimeLibraries)
	if err != nil || len(found) == 0 {
		return "", errors.Join(errNoFakeTime, err)
	}
	return found[0], nil
}

// A nodeClock is that of one node. A nil *nodeClock is the true one.
type nodeClock struct {
	library, file string

	mu      sync.Mutex
	started time.Time // the process
	offset  time.Duration
	rate    float64
	setBack time.Duration // in all
}

func newNodeClock(library, dir string) (*nodeClock, error) {
	if library == "" {
		return nil, nil //nolint:nilnil // the true clock
	}
	c := &nodeClock{library: library, file: filepath.Join(dir, "clock"), rate: 1}
	return c, c.starting()
}

// env returns what makes a server go by c. The C library comes before jemalloc, which
// asks for the time before libfaketime is ready to tell it.
func (c *nodeClock) env() []string {
	if c == nil {
		return nil
	}
	return []string{
		"LD_PRELOAD=" + c.library + " libc.so.6",
		"FAKETIME_TIMESTAMP_FILE=" + c.file,
		"FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1", // of the server's own timers
	}
}

// ahead returns by how much c is ahead of the true clock.
func (c *nodeClock) ahead(now time.Time) time.Duration {
	return c.offset + time.Duration(float64(now.Sub(c.started))*(c.rate-1))
}

// starting must be called before the process starts: the clock goes on from where it is,
// like that of a machine.
func (c *nodeClock) starting() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.offset, c.started = c.ahead(now), now
	return c.write()
}

// run changes the rate, and nothing at once.
func (c *nodeClock) run(rate float64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	ahead := c.ahead(now)
	c.rate, c.offset = rate, 0
	c.offset = ahead - c.ahead(now)
	return c.write()
}

// step sets the clock, forward or back.
func (c *nodeClock) step(by time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += by
	c.setBack += max(-by, 0)
	return c.write()
}

// wasSetBack returns by how much, in all.
func (c *nodeClock) wasSetBack() time.Duration {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setBack
}

// write replaces the file at once, so that none reads half of it.
func (c *nodeClock) write() error {
	text := fmt.Sprintf("%+.9f x%.9f\n", c.offset.Seconds(), c.rate)
	draft := c.file + ".new"
	if err := os.WriteFile(draft, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(draft, c.file)
}

// tidy removes what libfaketime leaves behind of a process that was killed.
func (c *nodeClock) tidy(pid int) {
	if c == nil {
		return
	}
	for _, name := range []string{"faketime_shm_%d", "sem.faketime_sem_%d"} {
		_ = os.Remove(filepath.Join("/dev/shm", fmt.Sprintf(name, pid))) // where it is elsewhere it stays
	}
}
