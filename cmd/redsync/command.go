//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
	target  int // what signals are sent to: the process, or a negative number for its group
	leash   leash
	until   time.Time // what the front knows
	alarmed time.Time // until when the lock was valid when COMMAND got TERM or KILL because of it
	stopped bool
	quit    deadline // when it gets KILL because lead is to end; zero while lead goes on
}

// start starts COMMAND.
func (j *job) start(t *term, front int) (*command, error) {
	path, err := lookUp(j.command[0])
	if err != nil {
		return nil, err
	}
	c := &command{term: t, leash: leash{killAfter: j.killAfter}}
	group := &syscall.SysProcAttr{Setpgid: true}
	if j.foreground {
		if group.Pgid, err = syscall.Getpgid(front); err != nil {
			return nil, &failure{exitInternal, fmt.Errorf("the process group of redsync: %w", err)}
		}
	}
	diesWithHolder(group)
	attr := &os.ProcAttr{Env: j.environment(t.mutex.Fence()), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: group}
	process, err := os.StartProcess(path, j.command, attr)
	if errors.Is(err, syscall.ENOEXEC) && isScript(path) {
		process, err = os.StartProcess(scriptShell, scriptCall(path, j.command), attr)
	}
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
	return c, nil
}

// scriptShell runs a script that names no program to run it.
const scriptShell = "/bin/sh"

// isScript reports whether a file that the system does not execute may be a script without "#!", which every shell and execvp
// run. Like a shell it takes a file for a program if there is a NUL in its first line.
func isScript(path string) bool {
	file, err := os.Open(path) //nolint:gosec // the command that the user wants to run
	if err != nil {
		return false
	}
	defer file.Close()
	begin := make([]byte, 128)
	n, err := io.ReadFull(file, begin)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false
	}
	first, _, _ := bytes.Cut(begin[:n], []byte("\n"))
	return !bytes.Contains(first, []byte{0})
}

// scriptCall returns the arguments of scriptShell for a script.
func scriptCall(path string, command []string) []string {
	if !strings.Contains(path, "/") { // in the current directory; the shell would take it for a flag, or look in PATH
		path = "./" + path
	}
	return slices.Concat([]string{scriptShell, path}, command[1:])
}

// change returns what has become of COMMAND since the last call. ok says that something has. (os.Process.Wait tells nothing of
// a stop.)
func (c *command) change() (status syscall.WaitStatus, ok bool) {
	for {
		pid, err := syscall.Wait4(c.pid, &status, syscall.WUNTRACED|syscall.WCONTINUED|syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil: // cannot be: nobody else waits for it
			return syscall.WaitStatus(exitInternal << 8), true
		}
		return status, pid != 0
	}
}

// signal sends a signal to COMMAND.
func (c *command) signal(s syscall.Signal) { _ = syscall.Kill(c.target, s) }

// trouble says what is wrong with the lock, which was valid for left when that was seen.
func (c *command) trouble(left time.Duration) string {
	if err := c.term.mutex.Err(); err != nil {
		return err.Error()
	}
	if c.isSaved(left) {
		return "the lock was extended again after TERM, but COMMAND did not end"
	}
	return fmt.Sprintf("the lock could not be extended, and is valid for %v more", left.Round(time.Millisecond))
}

// isSaved reports whether the lock, which is valid for left, was extended after COMMAND had got TERM because it was not.
func (c *command) isSaved(left time.Duration) bool {
	return left > 0 && !c.alarmed.IsZero() && c.term.mutex.Until().After(c.alarmed)
}

// isLost reports whether the lock is lost.
func (c *command) isLost() bool { return c.term.mutex.Remaining() == 0 }

// awaitGone waits until no process of the group of COMMAND is left, after it was killed. It waits for a second at most.
func (c *command) awaitGone() {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for begin := time.Now(); !isGone(-c.target) && time.Since(begin) < time.Second; {
		<-look.C
	}
}

// isGone reports whether no process of a group runs. A zombie does not: it only waits for a parent, which may never come to it if
// that is the first process of a container.
func isGone(group int) bool {
	if errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) {
		return true
	}
	zombies := 0
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // none outside of Linux
	for _, path := range paths {
		text, _ := os.ReadFile(path) //nolint:gosec // of /proc
		switch of, isZombie := groupIn(string(text)); {
		case of != group:
		case !isZombie:
			return false
		default:
			zombies++
		}
	}
	return zombies > 0
}

// groupIn reads the group of a process from its file stat in /proc, and whether it is a zombie without threads that run.
func groupIn(stat string) (group int, isZombie bool) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]) // the name may have spaces
	if len(fields) < 18 {
		return 0, false
	}
	group, _ = strconv.Atoi(fields[2])
	return group, fields[0] == "X" || fields[0] == "Z" && fields[17] <= "1"
}

// statusOf returns the exit status for that of COMMAND.
func statusOf(s syscall.WaitStatus) int {
	if s.Signaled() {
		return exitSignalBase + int(s.Signal())
	}
	return s.ExitStatus()
}
