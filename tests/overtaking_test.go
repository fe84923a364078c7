package redsync_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tests operations that could overtake each other: one comes while another operation of the same lock is
// being sent, or waits for its replies.

// pausing stores a function in hook that calls end in another goroutine, and returns one that waits for end. end ends the
// hold of m. Once the hold has ended, the function yields many times, like a goroutine that is preempted for long, so that
// everything goes on that need not wait for it. The function does not sleep, because time stands still in a bubble while
// end waits for a mutex.
func pausing(hook *atomic.Pointer[func()], m *redsync.Mutex, end func()) (wait func()) {
	var wg sync.WaitGroup
	pause := func() {
		ended := fortests.Ended(m)
		wg.Go(end)
		<-ended
		for range 10_000 {
			runtime.Gosched()
		}
	}
	hook.Store(&pause)
	return wg.Wait
}

// hookedProcess returns a Redsync. If a function is stored in hook, the next Send runs it first.
func (f field) hookedProcess(hook *atomic.Pointer[func()]) *redsync.Redsync {
	rs := f.wrapped(func(p pool.Pool) pool.Pool { return hooked{p, hook} })
	f.as(rs).meet()
	return rs
}

// An Extend that sets missing keys again is held up before it sends. The release must not be sent before the Extend,
// which would then set the keys again after the release.
func TestUnlockDoesNotOvertakeAnExtendThatHeals(t *testing.T) {
	play(t, func(f field) {
		var hook atomic.Pointer[func()]
		rs := f.hookedProcess(&hook)
		m := f.as(rs).held(withSetNXOnExtend)
		wait := pausing(&hook, m, func() { f.unlock(m) })
		failsWith(t, m.Extend, redsync.ErrNotHeld)
		wait()
		f.noKeys()
	})
}

// The same for a watchdog that sends its script in full, because a node does not have it.
func TestUnlockDoesNotOvertakeAWatchdogThatHeals(t *testing.T) {
	play(t, func(f field) {
		var hook atomic.Pointer[func()]
		rs := f.hookedProcess(&hook)
		m := f.as(rs).held(withSetNXOnExtend, withWatchdog, nineSeconds)
		f.nodes[0].On("evalsha", 1, embedded.Fault{Delay: 5 * ms, Err: "NOSCRIPT No matching script. Please use EVAL."})
		onEach(f.nodes[1:], "evalsha", 1, embedded.Fault{Delay: 50 * ms})
		time.Sleep(3*sec + ms) // it has sent the script to all, by SHA1
		wait := pausing(&hook, m, func() { f.unlock(m) })
		before := f.commands("eval")
		time.Sleep(5 * ms)
		synctest.Wait()
		require.Nil(t, hook.Load()) // the hook was called when the script was sent in full
		assert.Equal(t, before+1, f.commands("eval"))
		assert.False(t, f.nodes[0].Exists("lock")) // the release reaches the node after the script
		wait()
		f.noKeys()
	})
}

// pausesAfter is a pool that runs a function once, after it has sent a request.
type pausesAfter struct {
	pool.Pool
	hook *atomic.Pointer[func()]
}

func (p pausesAfter) Send(req wire.Request) error {
	err := p.Pool.Send(req)
	if f := p.hook.Swap(nil); f != nil {
		(*f)()
	}
	return err
}

// An Extend is held up after it has sent to the first node only, which has answered. Detach must not return before the
// Extend has sent to the other nodes. Otherwise these commands might arrive after the receiver has unlocked and another
// process has locked.
func TestDetachDoesNotOvertakeAnExtend(t *testing.T) {
	play(t, func(f field) {
		var hook atomic.Pointer[func()]
		rs := f.wrapped(func(p pool.Pool) pool.Pool { return pausesAfter{p, &hook} })
		m := locked(t, rs.NewMutex("lock"))
		_, err := m.Extend() // the nodes know the script
		noError(t, err)
		synctest.Wait()
		var before int
		wait := pausing(&hook, m, func() {
			_, err := m.Detach(f.Context())
			before = f.commands("evalsha")
			assert.NoError(f, err)
		})
		failsWith(t, m.Extend, redsync.ErrNotHeld)
		wait()
		synctest.Wait()
		assert.Equal(t, before, f.commands("evalsha")) // the Extend sends nothing after Detach
		assert.Equal(t, 10, before)
	})
}
