//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/seed14bd9ef4/redsync"
)

// A term is the time in which a lock is held and COMMAND runs.
type term struct {
	mutex *redsync.Mutex
	done  chan outcome // gets one value, once COMMAND has ended
}

// validity returns until when the lock is valid, and for how long. If it is extended just then, only left may tell: so the next
// call returns another until.
func (t *term) validity() (until time.Time, left time.Duration) {
	until = t.mutex.Until()
	return until, t.mutex.Remaining()
}

// An outcome is how COMMAND has ended.
type outcome struct {
	status int
	err    error // why COMMAND did not run, or why its end was not its own

	// awaitGone waits until all of its processes are gone. It is nil if they were not killed.
	awaitGone func()
}

// A command is a COMMAND that runs.
type command struct {
	term    *term
	pid     int
	target  int                     // what signals are sent to: the process, or a negative number for its group
	events  chan syscall.WaitStatus // each stop, continuation and the end. A channel of one: nobody may read it any more
	leash   leash
	until   time.Time // what the front knows
	stopped bool
	quit    deadline // when it gets KILL because lead is to end; zero while lead goes on
}

// start starts COMMAND.
func (j *job) start(t *term, front int) (*command, error) {
	path, err := lookUp(j.command[0])
	if err != nil {
		return nil, err
	}
	c := &command{term: t, events: make(chan syscall.WaitStatus, 1), leash: leash{killAfter: j.killAfter}}
	group := &syscall.SysProcAttr{Setpgid: true}
	if j.foreground {
		if group.Pgid, err = syscall.Getpgid(front); err != nil {
			return nil, &failure{exitInternal, fmt.Errorf("the process group of redsync: %w", err)}
		}
	}
	diesWithHolder(group)
	process, err := os.StartProcess(path, j.command, &os.ProcAttr{
		Env: j.environment(t.mutex.Fence()), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: group,
	})
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, &failure{exitNotFound, fmt.Errorf("%q cannot be executed: %w", path, cause(err))}
	case err != nil:
		return nil, &failure{exitNotRun, fmt.Errorf("%q cannot be executed: %w", path, cause(err))}
	}
	c.pid, c.target = process.Pid, -process.Pid
	if j.foreground {
		c.target = c.pid
	}
	_ = process.Release()
	go c.wait()
	return c, nil
}

// wait notes what becomes of COMMAND, until it has ended. (os.Process.Wait tells nothing of a stop.)
func (c *command) wait() {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(c.pid, &status, syscall.WUNTRACED|syscall.WCONTINUED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil: // cannot be: only wait waits for it
			status = syscall.WaitStatus(exitInternal << 8)
		}
		c.events <- status
		if status.Exited() || status.Signaled() {
			return
		}
	}
}

// signal sends a signal to COMMAND.
func (c *command) signal(s syscall.Signal) { _ = syscall.Kill(c.target, s) }

// trouble says what is wrong with the lock, which was valid for left when that was seen.
func (c *command) trouble(left time.Duration) string {
	if err := c.term.mutex.Err(); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("the lock could not be extended, and is valid for %v more", left.Round(time.Millisecond))
}

// isLost reports whether the lock is lost.
func (c *command) isLost() bool { return c.term.mutex.Remaining() == 0 }

// awaitGone waits until no process of the group of COMMAND is left, after it was killed. It waits for a second at most.
func (c *command) awaitGone() {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for range 100 {
		if errors.Is(syscall.Kill(c.target, 0), syscall.ESRCH) {
			return
		}
		<-look.C
	}
}

// statusOf returns the exit status for that of COMMAND.
func statusOf(s syscall.WaitStatus) int {
	if s.Signaled() {
		return exitSignalBase + int(s.Signal())
	}
	return s.ExitStatus()
}
