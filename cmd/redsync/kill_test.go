//go:build linux

package main

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWaiterEnds: the front of a redsync that waits ends if the holder is killed, and at a signal if it is stopped. If the front is
// killed, the holder ends. COMMAND never begins.
func TestWaiterEnds(t *testing.T) {
	servers, second := scene(t)
	for status, says := range map[int]string{
		exitInternal: "redsync: the process that gets the lock was killed",
		143:          `redsync: ended by the signal "terminated", although the process that gets the lock is stopped`,
		137:          "",
	} {
		n, name := newNote(t), fmt.Sprint("job", status)
		first := n.under(t, servers, "run "+name)
		n.pid(t)
		r := second.under(t, servers, "run "+name)
		awaitQueue(t, servers, name)
		holder := r.holder()
		switch status {
		case exitInternal:
			send(t, holder, syscall.SIGKILL)
		case 143:
			send(t, holder, syscall.SIGSTOP)
			awaitStopped(t, holder)
			r.signal(syscall.SIGTERM)
		default:
			r.signal(syscall.SIGKILL)
		}
		r.wantStatus(status)
		r.wantStderr(says)
		awaitDead(t, holder)
		n.end(t)
		first.wantStatus(7)
	}
	assert.False(t, exists(string(second)))
}

// TestKillBoth: if both are killed at once, nobody is left to kill the child of COMMAND, and the nodes drop the lock after its
// ttl. COMMAND itself dies with the holder.
func TestKillBoth(t *testing.T) {
	servers, n := scene(t)
	r := n.under(t, servers, "run --ttl 10 job", "child")
	pid, child, holder := n.pid(t), n.child().pid(t), r.holder()
	for _, p := range []int{r.pid(), holder} { // no one sees the end of the other
		send(t, p, syscall.SIGSTOP)
		awaitStopped(t, p)
	}
	send(t, holder, syscall.SIGKILL) // the end of the front would continue the holder, whose process group has no parent then
	send(t, r.pid(), syscall.SIGKILL)
	awaitDead(t, r.pid(), holder, pid)
	awaitFree(t, servers, "job")
	assert.True(t, isAlive(child))
	n.child().end(t)
	awaitDead(t, child)
}

// TestStopFront: while the front is stopped, for longer than the ttl, the lock is kept and COMMAND goes on. The front does not
// kill COMMAND when it is continued.
func TestStopFront(t *testing.T) {
	servers, n := scene(t)
	r := n.under(t, servers, "run "+short+" job", "ticks")
	n.pid(t)
	for range 2 {
		r.signal(syscall.SIGSTOP)
		awaitStopped(t, r.pid())
		time.Sleep(shortTTL + shortTTL/4)
		require.True(t, isHeld(t, servers, "job"))
		before := n.count("tick")
		r.signal(syscall.SIGCONT)
		await(t, "more ticks", func() bool { return n.count("tick") > before+50 })
	}
	r.signal(syscall.SIGUSR1)
	n.await(t, syscall.SIGUSR1.String())
	r.ends(servers, n)
}

// TestStopFrontAtLoss: the holder ends COMMAND while the front is stopped. The front tells the status when it goes on.
func TestStopFrontAtLoss(t *testing.T) {
	servers, n := scene(t)
	r := n.under(t, servers, "run --ttl 3 job", "child")
	pids := n.pids(t)
	r.signal(syscall.SIGSTOP)
	deleteLock(t, servers, "job")
	awaitDead(t, pids...)
	r.signal(syscall.SIGCONT)
	r.wantStatus(exitLost)
}

// TestStopWaiter: a redsync that waits stops and goes on, however close the two signals are.
func TestStopWaiter(t *testing.T) {
	servers, n := scene(t)
	first := n.under(t, servers, "run job")
	n.pid(t)
	var waiters []*run
	for i := range 8 {
		r := start(t, servers, "run job -- true")
		waiters = append(waiters, r)
		r.holder()
		awaitQueue(t, servers, "job")
		r.signal(syscall.SIGTSTP)
		if i == 0 {
			awaitStopped(t, r.holder())
		}
		r.signal(syscall.SIGCONT)
	}
	n.end(t)
	first.wantStatus(7)
	for _, r := range waiters {
		r.wantStatus(0)
	}
}

// TestStopCommandThenEnd: a COMMAND that is stopped is continued, so that it gets a signal that ends it.
func TestStopCommandThenEnd(t *testing.T) {
	servers, n := scene(t)
	r := start(t, servers, "run job -- sh -c", `echo ready $$ >"$0"; kill -STOP $$; exec sleep 600`, string(n))
	pid := n.pid(t)
	awaitStopped(t, pid)
	r.signal(syscall.SIGTERM)
	r.wantStatus(128 + int(syscall.SIGTERM))
	wantFree(t, servers, "job")
}
