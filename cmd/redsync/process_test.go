//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// This file has what the tests of processes share.

// probeName is the name by which a test runs probeMain.
const probeName = "probe"

func init() { roles[probeName] = probeMain }

// probeMain is a COMMAND for tests: "probe FILE [child] [ticks]". It appends a line "ready PID" to FILE, then the name of each
// signal that it gets, and ends with status 7 once there is a file FILE.end. So it ignores each signal that can be ignored,
// but TSTP stops it. With child it first starts another probe in its process group, with the file FILE.child. With ticks
// it appends a line "tick" all the time.
func probeMain() {
	signals := make(chan os.Signal, 64) // before there is a file, which others wait for
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	path := os.Args[1]
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		os.Exit(1)
	}
	if slices.Contains(os.Args[2:], "child") {
		child := exec.Command(os.Args[0], append([]string{path + ".child"}, os.Args[3:]...)...)
		child.Stderr = os.Stderr
		if child.Start() != nil {
			os.Exit(1)
		}
		for !exists(path + ".child") {
			time.Sleep(time.Millisecond)
		}
	}
	fmt.Fprintf(file, "ready %d\n", os.Getpid())
	for range 100 * 120 { // a bound for a test that has failed
		select {
		case s := <-signals:
			fmt.Fprintln(file, s)
		case <-time.After(10 * time.Millisecond):
		}
		if slices.Contains(os.Args[2:], "ticks") {
			fmt.Fprintln(file, "tick")
		}
		if exists(path + ".end") {
			os.Exit(7)
		}
	}
	os.Exit(1)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// await waits until ok holds.
func await(t require.TestingT, what string, ok func() bool) {
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "after a minute there is not: "+what)
	}
}

// shortTTL is the TTL of locks that a test keeps for longer than it, or whose end it awaits. With the --kill-after of short,
// COMMAND goes on if the machine stands still for a second or two: the last extension is at most a third of the TTL ago.
const shortTTL = 5 * time.Second

// short are the flags for shortTTL.
var short = "--ttl " + shortTTL.String() + " --kill-after 0.3"

// A note is the file of a probe.
type note string

func newNote(t *testing.T) note { return note(filepath.Join(t.TempDir(), "note")) }

func (n note) child() note { return n + ".child" }

// lines returns what the probe has written.
func (n note) lines() []string {
	text, _ := os.ReadFile(string(n))
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// count returns how many lines are this one.
func (n note) count(line string) (count int) {
	for _, l := range n.lines() {
		if l == line {
			count++
		}
	}
	return count
}

// pids returns the process of the probe, and that of its child.
func (n note) pids(t *testing.T) []int { return []int{n.pid(t), n.child().pid(t)} }

// await waits for a line.
func (n note) await(t *testing.T, line string) {
	await(t, fmt.Sprintf("%q in %v", line, n.lines()), func() bool { return n.count(line) > 0 })
}

// pid waits until the probe is ready, and returns its number.
func (n note) pid(t *testing.T) (pid int) {
	await(t, "a probe", func() bool {
		number, ok := strings.CutPrefix(n.lines()[0], "ready ")
		pid, _ = strconv.Atoi(number)
		return ok && pid != 0
	})
	return pid
}

// end makes the probe end.
func (n note) end(t *testing.T) {
	require.NoError(t, os.WriteFile(string(n)+".end", nil, 0o600))
}

// A run is a redsync that has been started.
type run struct {
	*testing.T
	cmd    *exec.Cmd
	stdout string // a file
	stderr string // a file
	ended  chan struct{}
}

// program returns a call of a program in a session of its own, without a terminal.
func program(servers []*realredis.Server, argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), nodesVariable+"="+listOf(servers))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// start starts redsync with these arguments on the servers.
func start(t *testing.T, servers []*realredis.Server, line string, args ...string) *run {
	return launch(t, program(servers, append(strings.Fields("redsync "+line), args...)...))
}

// launch starts cmd. The end of the test kills it.
func launch(t *testing.T, cmd *exec.Cmd) *run {
	dir := t.TempDir()
	r := &run{t, cmd, filepath.Join(dir, "stdout"), filepath.Join(dir, "stderr"), make(chan struct{})}
	stdout := must(os.Create(r.stdout))
	defer stdout.Close()
	stderr := must(os.Create(r.stderr))
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	require.NoError(t, cmd.Start())
	go func() {
		defer close(r.ended)
		cmd.Wait()
	}()
	t.Cleanup(func() {
		cmd.Process.Kill() // then the holder kills COMMAND
		<-r.ended
		if t.Failed() {
			t.Logf("%v\nstdout:\n%sstderr:\n%s", cmd.Args, r.read(r.stdout), r.read(r.stderr))
		}
	})
	return r
}

// scene lets a test go on beside others, with servers and a note of its own.
func scene(t *testing.T) ([]*realredis.Server, note) {
	t.Parallel()
	return realredis.Start(t, 5), newNote(t)
}

// under starts redsync with a line of arguments, and the probe with its own.
func (n note) under(t *testing.T, servers []*realredis.Server, line string, args ...string) *run {
	return start(t, servers, line, append([]string{"--", probeName, string(n)}, args...)...)
}

// ends makes the probe end that r runs under the lock "job", which is released then.
func (r *run) ends(servers []*realredis.Server, n note) {
	n.end(r.T)
	r.wantStatus(7)
	wantFree(r.T, servers, "job")
}

// read returns what is in a file.
func (r *run) read(path string) string {
	text, err := os.ReadFile(path)
	require.NoError(r, err)
	return string(text)
}

// pid returns the number of the front.
func (r *run) pid() int { return r.cmd.Process.Pid }

// signal sends a signal to the front.
func (r *run) signal(s syscall.Signal) {
	send(r, r.pid(), s)
}

// send sends a signal.
func send(t require.TestingT, pid int, s syscall.Signal) {
	require.NoError(t, syscall.Kill(pid, s), s)
}

// hasEnded reports whether the front has ended.
func (r *run) hasEnded() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// status waits until the front has ended, and returns its exit status as a shell shows it.
func (r *run) status() int {
	await(r, fmt.Sprintf("an end of %v, stderr: %s", r.cmd.Args, r.read(r.stderr)), r.hasEnded)
	return statusOf(r.cmd.ProcessState.Sys().(syscall.WaitStatus))
}

// wantStatus fails the test unless the front ends with this status.
func (r *run) wantStatus(want int) {
	require.Equal(r, want, r.status())
}

// wantStderr fails the test unless stderr has these texts.
func (r *run) wantStderr(texts ...string) {
	for _, text := range texts {
		assert.Contains(r, r.read(r.stderr), text)
	}
}

// A state is what /proc says of a process.
type state struct {
	letter byte // 0: there is no such process
	parent int
	group  int
}

func stateOf(pid int) state {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return state{}
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	parent, _ := strconv.Atoi(fields[1])
	group, _ := strconv.Atoi(fields[2])
	return state{fields[0][0], parent, group}
}

// isAlive reports whether a process runs or is stopped. One that nobody has waited for is dead.
func isAlive(pid int) bool { return !strings.ContainsRune("\x00ZX", rune(stateOf(pid).letter)) }

// isStopped reports whether a process is stopped.
func isStopped(pid int) bool { return stateOf(pid).letter == 'T' }

// awaitDead waits until processes are dead.
func awaitStopped(t *testing.T, pids ...int) {
	for _, pid := range pids {
		await(t, "a process that is stopped", func() bool { return isStopped(pid) })
	}
}

func awaitDead(t *testing.T, pids ...int) {
	for _, pid := range pids {
		await(t, fmt.Sprintf("an end of process %d: %+v", pid, stateOf(pid)), func() bool { return !isAlive(pid) })
	}
}

// holder waits until the front has a holder, and returns its number.
func (r *run) holder() (pid int) {
	await(r, "a holder", func() bool {
		pid = childOf(r.pid())
		return pid != 0
	})
	return pid
}

// childOf returns a child of a process, 0 if it has none.
func childOf(parent int) int {
	return append(childrenOf(parent), 0)[0]
}

// childrenOf returns the children of a process.
func childrenOf(parent int) (pids []int) {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, entry := range entries {
		if pid, err := strconv.Atoi(filepath.Base(entry)); err == nil && stateOf(pid).parent == parent {
			pids = append(pids, pid)
		}
	}
	return pids
}

// nodesWith returns on how many servers there is the lock of this name.

// isHeld reports whether a majority of the servers has the lock of this name.
func isHeld(t *testing.T, servers []*realredis.Server, name string) bool {
	return keys(t, servers, name) > len(servers)/2
}

// wantFree fails the test unless the lock of this name is released. A slow server may have it for a while, because redsync
// does not wait for all of them, but not until it expires.
func wantFree(t *testing.T, servers []*realredis.Server, name string) {
	for end := time.Now().Add(releaseTime); ; time.Sleep(5 * time.Millisecond) {
		count, now := 0, time.Now()
		for _, s := range servers {
			left := realredis.Must(t, s, "PTTL", name).(int64)
			if left == -2 { // there is no such key
				continue
			}
			count++
			if expires := now.Add(time.Duration(left) * time.Millisecond); left >= 0 && expires.Before(end) {
				end = expires
			}
		}
		if count == 0 {
			return
		}
		if time.Now().After(end) {
			assert.Fail(t, "nodes still have it", name)
			return
		}
	}
}

// awaitFree waits until no server has the lock of this name.
func awaitFree(t *testing.T, servers []*realredis.Server, name string) {
	await(t, "nodes without "+name, func() bool { return keys(t, servers, name) == 0 })
}

// deleteLock takes a lock off all servers.
func deleteLock(t *testing.T, servers []*realredis.Server, name string) {
	for _, s := range servers {
		realredis.Must(t, s, "DEL", name)
	}
}
