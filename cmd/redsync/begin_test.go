//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// TestHolderEndsAtBegin: if the holder is killed or stopped in the moment in which it starts COMMAND, COMMAND dies, although
// the holder has not told the front which process it is.
func TestHolderEndsAtBegin(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 5)
	for name, s := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range 4 {
				r := start(t, servers, fmt.Sprintf("run --ttl 3 --kill-after 0.3 job-%s-%d -- sleep 600", name, i))
				holder, command := r.holder(), 0
				for command == 0 && !r.hasEnded() { // without a pause
					command = firstChild(holder)
				}
				send(t, holder, s)
				r.wantStatus(exitLost)
				r.wantStderr("redsync: lost: the process that holds the lock")
				awaitDead(t, command)
			}
		})
	}
}

// firstChild returns a child of a process, 0 if it has none. It is faster than childOf.
func firstChild(parent int) (pid int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, list := range lists {
		if text, err := os.ReadFile(list); err == nil && len(text) > 0 {
			fmt.Sscan(string(text), &pid)
		}
	}
	return pid
}

// fullPipe returns the end for writing of a pipe that nobody reads, and that has no room.
func fullPipe(t *testing.T) *os.File {
	from, to, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { from.Close(); to.Close() })
	fd := int(to.Fd())
	require.NoError(t, syscall.SetNonblock(fd, true))
	for _, text := range [][]byte{make([]byte, 4096), make([]byte, 1)} {
		for err = nil; err == nil; {
			_, err = syscall.Write(fd, text)
		}
		require.ErrorIs(t, err, syscall.EAGAIN)
	}
	require.NoError(t, syscall.SetNonblock(fd, false))
	return to
}

// TestStderrFull: while nobody reads stderr, signals reach COMMAND. Once COMMAND has ended, one ends redsync.
func TestStderrFull(t *testing.T) {
	servers, n := scene(t)
	cmd := program(servers, "sh", "-c", `exec "$@" 2>&3`, "sh", "redsync", "run", "--ttl", "600", "job", "--", probeName, string(n))
	cmd.ExtraFiles = []*os.File{fullPipe(t)}
	r := launch(t, cmd)
	pid := n.pid(t)
	deleteLock(t, servers, "job") // a loss that redsync has to speak of
	n.await(t, "terminated")
	r.signal(syscall.SIGUSR1)
	n.await(t, "user defined signal 1")
	n.end(t)
	awaitDead(t, pid)
	await(t, "the end of redsync", func() bool {
		syscall.Kill(r.pid(), syscall.SIGTERM) // it may have ended just now
		return r.hasEnded()
	})
}

// TestOrdersToStoppedHolder: the front does not wait for a holder that reads no orders.
func TestOrdersToStoppedHolder(t *testing.T) {
	near, far, err := newLinks()
	require.NoError(t, err)
	f := &frontProcess{job: &job{}, link: near, outgoing: make(chan order, maxOrders)}
	var sending sync.WaitGroup
	sending.Go(f.sendOrders)
	for range 10_000 { // the buffer of the link has room for some hundred
		f.got(syscall.SIGUSR1)
	}
	assert.Less(t, f.orders, 10_000)
	require.NoError(t, near.conn.Close())
	require.NoError(t, far.Close())
	close(f.outgoing)
	sending.Wait()
}

// A fullFile is a file on a disk without room.
type fullFile struct{}

func (fullFile) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// TestLookersSayThatTheyCannotWrite: what nobody can read is no success.
func TestLookersSayThatTheyCannotWrite(t *testing.T) {
	servers := realredis.Start(t, 1)
	for _, args := range []string{"status --json job", "status job", "status --watch job", "check"} {
		var stderr strings.Builder
		command, flags, _ := strings.Cut(args, " ")
		status := dispatch(append([]string{command, "--nodes", servers[0].Addr()}, strings.Fields(flags)...), fullFile{}, &stderr)
		assert.Equal(t, exitInternal, status, args)
		assert.Equal(t, "redsync: no space left\n", stderr.String(), args)
	}
}
