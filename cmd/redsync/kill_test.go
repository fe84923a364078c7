//go:build linux

package main

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// TestKillFront: if the front is killed, the holder kills COMMAND and its child, which ignore TERM, and releases the lock.
func TestKillFront(t *testing.T) {
	servers, n := scene(t)
	r := n.under(t, servers, "run --ttl 600 job", "child")
	pids := []int{n.pid(t), n.child().pid(t)}
	holder := r.holder()
	r.signal(syscall.SIGKILL)
	awaitDead(t, append(pids, holder)...)
	wantFree(t, servers, "job")
}

// TestKillFrontOfWaiter: if the front is killed while it waits, the holder ends, and the lock is not acquired.
func TestKillFrontOfWaiter(t *testing.T) {
	servers, n := scene(t)
	first := n.under(t, servers, "run job")
	n.pid(t)
	second := newNote(t)
	r := start(t, servers, "run", "job", "--", probeName, string(second))
	await(t, "a place in the queue", func() bool { return queues(t, servers) == len(servers) })
	holder := r.holder()
	r.signal(syscall.SIGKILL)
	awaitDead(t, holder)
	first.ends(servers, n)
	assert.False(t, exists(string(second)), "COMMAND has begun without a front")
}

// TestHolderEnds: if the holder is killed or stopped, the front kills COMMAND. Nobody releases the lock.
func TestHolderEnds(t *testing.T) {
	t.Parallel()
	for s, said := range map[syscall.Signal]string{
		syscall.SIGKILL: "lost: the process that holds the lock was killed", syscall.SIGSTOP: "lost: the process that holds the lock is stopped",
	} {
		servers, n := realredis.Start(t, 5), newNote(t)
		r := n.under(t, servers, "run "+short+" job", "child")
		pids := []int{n.pid(t), n.child().pid(t), r.holder()}
		send(t, r.holder(), s)
		r.wantStatus(exitLost)
		r.wantStderr("redsync: " + said)
		awaitDead(t, pids...)
		awaitFree(t, servers, "job")
	}
}

// TestHolderOfWaiterEnds: the front of a redsync that waits ends if the holder is killed, and at a signal if it is stopped.
func TestHolderOfWaiterEnds(t *testing.T) {
	servers, n := scene(t)
	first := n.under(t, servers, "run job")
	n.pid(t)
	for s, c := range map[syscall.Signal]struct {
		status int
		said   string
	}{
		syscall.SIGKILL: {exitInternal, "the process that gets the lock was killed"},
		syscall.SIGSTOP: {143, `ended by the signal "terminated", although the process that gets the lock is stopped`},
	} {
		r := start(t, servers, "run", "job", "--", "true")
		await(t, "a place in the queue", func() bool { return queues(t, servers) == len(servers) })
		holder := r.holder()
		send(t, holder, s)
		await(t, "a holder that does nothing", func() bool { return isStopped(holder) || !isAlive(holder) })
		if s == syscall.SIGSTOP {
			r.signal(syscall.SIGTERM)
		}
		r.wantStatus(c.status)
		r.wantStderr("redsync: " + c.said)
		awaitDead(t, holder)
	}
	n.end(t)
	first.wantStatus(7)
}

// TestKillBoth: if both are killed at once, nobody is left to kill the child of COMMAND, and the nodes drop the lock after its
// ttl. COMMAND itself dies with the holder.
func TestKillBoth(t *testing.T) {
	servers, n := scene(t)
	r := n.under(t, servers, "run --ttl 10 job", "child")
	pid, child, holder := n.pid(t), n.child().pid(t), r.holder()
	for _, p := range []int{r.pid(), holder} { // no one sees the end of the other
		send(t, p, syscall.SIGSTOP)
		await(t, "a stop", func() bool { return isStopped(p) })
	}
	send(t, holder, syscall.SIGKILL) // the end of the front would continue the holder, whose process group has no parent then
	send(t, r.pid(), syscall.SIGKILL)
	awaitDead(t, r.pid(), holder, pid)
	awaitFree(t, servers, "job")
	assert.True(t, isAlive(child), "the child has ended: the usage text can promise more")
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
		await(t, "a front that is stopped", func() bool { return isStopped(r.pid()) })
		time.Sleep(shortTTL + shortTTL/4)
		require.True(t, isHeld(t, servers, "job"), "the lock is not held while the front is stopped")
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
	pids := []int{n.pid(t), n.child().pid(t)}
	r.signal(syscall.SIGSTOP)
	deleteLock(t, servers, "job")
	awaitDead(t, pids...)
	r.signal(syscall.SIGCONT)
	r.wantStatus(exitLost)
}

// TestStopCommand: TSTP and CONT are passed on. The lock is kept while COMMAND is stopped, for longer than the ttl.
func TestStopCommand(t *testing.T) {
	servers, n := scene(t)
	r := n.under(t, servers, "run "+short+" job", "child", "ticks")
	pids := []int{n.pid(t), n.child().pid(t)}
	for _, direct := range []bool{false, true} {
		if direct {
			send(t, -pids[0], syscall.SIGSTOP)
		} else {
			r.signal(syscall.SIGTSTP)
		}
		for _, pid := range pids {
			await(t, "a COMMAND that is stopped", func() bool { return isStopped(pid) })
		}
		time.Sleep(shortTTL + shortTTL/4)
		require.True(t, isHeld(t, servers, "job"), "the lock is not held while COMMAND is stopped")
		r.signal(syscall.SIGCONT)
		for _, pid := range pids {
			await(t, "a COMMAND that goes on", func() bool { return isAlive(pid) && !isStopped(pid) })
		}
	}
	n.child().end(t)
	awaitDead(t, pids[1])
	n.end(t)
	r.wantStatus(7)
}

// TestStopWaiter: a redsync that waits stops and goes on, however close the two signals are.
func TestStopWaiter(t *testing.T) {
	servers, n := scene(t)
	first := n.under(t, servers, "run job")
	n.pid(t)
	var waiters []*run
	for i := range 8 {
		r := start(t, servers, "run", "job", "--", "true")
		waiters = append(waiters, r)
		r.holder()
		await(t, "a place in the queue", func() bool { return queues(t, servers) == len(servers) })
		r.signal(syscall.SIGTSTP)
		if i == 0 {
			await(t, "a holder that is stopped", func() bool { return isStopped(r.holder()) })
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
	r := start(t, servers, "run", "job", "--", "sh", "-c", `echo ready $$ >"$0"; kill -STOP $$; exec sleep 600`, string(n))
	pid := n.pid(t)
	await(t, "a COMMAND that is stopped", func() bool { return isStopped(pid) })
	r.signal(syscall.SIGTERM)
	r.wantStatus(128 + int(syscall.SIGTERM))
	wantFree(t, servers, "job")
}
