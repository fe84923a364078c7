package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// This file disturbs the clocks of nodes by libfaketime, which is loaded into the servers. Whenever a
// server reads its clock, libfaketime reads an offset and a rate from a file, and shows:
//
//	shown = true + offset + (true - start of the process) * (rate - 1)

// fakeTimeLibraries is where libfaketime is installed: "apt install faketime" on Debian.
const fakeTimeLibraries = "/usr/lib/*/faketime/libfaketime.so.1"

// errNoFakeTime means that the clocks of servers cannot be disturbed.
var errNoFakeTime = errors.New("libfaketime is not here (apt install faketime)")

// findFakeTime returns the path of libfaketime.
func findFakeTime() (string, error) {
	if os.Getenv(envFakeTime) == noFakeTime {
		return "", errNoFakeTime
	}
	found, err := filepath.Glob(fakeTimeLibraries)
	if err != nil || len(found) == 0 {
		return "", errors.Join(errNoFakeTime, err)
	}
	return found[0], nil
}

// A nodeClock is the clock of one node. A nil *nodeClock is the true clock.
type nodeClock struct {
	library, file string

	mu      sync.Mutex
	started time.Time // when the server process started
	offset  time.Duration
	rate    float64
	setBack time.Duration // sum of all steps back
}

func newNodeClock(library, dir string) (*nodeClock, error) {
	if library == "" {
		return nil, nil //nolint:nilnil // the true clock
	}
	c := &nodeClock{library: library, file: filepath.Join(dir, "clock"), rate: 1}
	return c, c.starting()
}

// env returns the environment that makes a server use c. The C library must be preloaded before
// jemalloc, which asks for the time before libfaketime is ready.
func (c *nodeClock) env() []string {
	if c == nil {
		return nil
	}
	return []string{
		"LD_PRELOAD=" + c.library + " libc.so.6",
		"FAKETIME_TIMESTAMP_FILE=" + c.file,
		"FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1", // keeps the server's own timers right
	}
}

// ahead returns how far c is ahead of the true clock at the time now. The caller holds c.mu.
func (c *nodeClock) ahead(now time.Time) time.Duration {
	return c.offset + time.Duration(float64(now.Sub(c.started))*(c.rate-1))
}

// starting must be called before each start of the server process. libfaketime applies the rate only to the time since
// that start. So starting adds to the offset what the rate has caused until now, and the clock does not jump.
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

// run changes the rate, without a jump.
func (c *nodeClock) run(rate float64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	ahead := c.ahead(now)
	c.rate, c.offset = rate, 0
	c.offset = ahead - c.ahead(now)
	return c.write()
}

// step moves the clock forward or back.
func (c *nodeClock) step(by time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += by
	c.setBack += max(-by, 0)
	return c.write()
}

// wasSetBack returns by how much the clock was set back in total.
func (c *nodeClock) wasSetBack() time.Duration {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setBack
}

// write replaces the file atomically, so that no reader sees a part of it.
func (c *nodeClock) write() error {
	text := fmt.Sprintf("%+.9f x%.9f\n", c.offset.Seconds(), c.rate)
	draft := c.file + ".new"
	if err := os.WriteFile(draft, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(draft, c.file)
}

// tidy removes the files that libfaketime leaves behind when a process is killed.
func (c *nodeClock) tidy(pid int) {
	if c == nil {
		return
	}
	for _, name := range []string{"faketime_shm_%d", "sem.faketime_sem_%d"} {
		_ = os.Remove(filepath.Join("/dev/shm", fmt.Sprintf(name, pid))) // files in other folders stay
	}
}
