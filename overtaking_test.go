package redsync_test

import (
	"crypto/rand"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/pool"
)

// Operations that overtake each other: one comes while another of the same lock is being
// sent, or waits for its replies.

// hookedProcess is a Redsync whose next Send runs a function first, where one is stored in
// hook.
func (f field) hookedProcess(hook *atomic.Pointer[func()]) *redsync.Redsync {
	var pools []pool.Pool
	for _, n := range f.nodes {
		pools = append(pools, hooked{pool.New(n.Client()), hook})
	}
	rs := redsync.New(pools...)
	f.closes(rs)
	field{f.T, rs, f.nodes, f.last}.meet()
	return rs
}

// pausing returns a function that starts an Unlock of m in another goroutine and then yields many
// times, like a goroutine that is preempted for long: whatever need not wait for it goes on. It
// does not sleep, because time stands still in a bubble while the Unlock waits for a mutex.
func (f field) pausing(wg *sync.WaitGroup, m *redsync.Mutex) func() {
	return func() {
		wg.Go(func() { f.unlock(m) })
		for range 10_000 {
			runtime.Gosched()
		}
	}
}

// An Extend that sets missing keys again is held up before it sends. The release must not go
// out before it: the keys would be set again behind the release.
func TestUnlockDoesNotOvertakeAnExtendThatHeals(t *testing.T) {
	play(t, func(f field) {
		var hook atomic.Pointer[func()]
		rs := f.hookedProcess(&hook)
		m := field{f.T, rs, f.nodes, f.last}.held(redsync.WithSetNXOnExtend())
		var wg sync.WaitGroup
		pause := f.pausing(&wg, m)
		hook.Store(&pause)
		ok, err := m.Extend()
		assert.False(t, ok)
		require.ErrorIs(t, err, redsync.ErrNotHeld)
		wg.Wait()
		f.noKeys()
	})
}

// The same of a watchdog that sends its script in full, because the node does not have it.
func TestUnlockDoesNotOvertakeAWatchdogThatHeals(t *testing.T) {
	play(t, func(f field) {
		var hook atomic.Pointer[func()]
		rs := f.hookedProcess(&hook)
		m := field{f.T, rs, f.nodes, f.last}.held(redsync.WithSetNXOnExtend(), redsync.WithWatchdog(), redsync.WithExpiry(9*time.Second))
		f.nodes[0].On("evalsha", 1, embedded.Fault{Delay: 5 * time.Millisecond, Err: "NOSCRIPT No matching script. Please use EVAL."})
		for _, n := range f.nodes[1:] {
			n.On("evalsha", 1, embedded.Fault{Delay: 50 * time.Millisecond})
		}
		time.Sleep(3*time.Second + time.Millisecond) // it has sent the script to all, by SHA1
		var wg sync.WaitGroup
		pause := f.pausing(&wg, m)
		hook.Store(&pause)
		before := f.commands("eval")
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		require.Nil(t, hook.Load(), "the script was sent in full")
		assert.Equal(t, before+1, f.commands("eval"))
		assert.False(t, f.nodes[0].Exists("lock"), "the release comes last")
		wg.Wait()
		f.noKeys()
	})
}

// pausesAfter is a pool that runs a function after it has sent, once.
type pausesAfter struct {
	pool.Pool
	hook *atomic.Pointer[func()]
}

func (p pausesAfter) Send(req pool.Request) error {
	err := p.Pool.Send(req)
	if f := p.hook.Swap(nil); f != nil {
		(*f)()
	}
	return err
}

// An Extend is held up when it has sent to the first node alone, which has answered. Detach
// must not return before the others: the receiver may unlock, and another one lock.
func TestDetachDoesNotOvertakeAnExtend(t *testing.T) {
	play(t, func(f field) {
		var hook atomic.Pointer[func()]
		var pools []pool.Pool
		for _, n := range f.nodes {
			pools = append(pools, pausesAfter{pool.New(n.Client()), &hook})
		}
		rs := redsync.New(pools...)
		f.closes(rs)
		m := rs.NewMutex("lock")
		require.NoError(t, m.Lock())
		_, err := m.Extend() // the nodes know the script
		require.NoError(t, err)
		synctest.Wait()
		var wg sync.WaitGroup
		var before int
		pause := func() {
			wg.Go(func() {
				_, err := m.Detach(f.Context())
				before = f.commands("evalsha")
				assert.NoError(f, err)
			})
			for range 10_000 {
				runtime.Gosched()
			}
		}
		hook.Store(&pause)
		_, err = m.Extend()
		require.ErrorIs(t, err, redsync.ErrNotHeld)
		wg.Wait()
		synctest.Wait()
		assert.Equal(t, before, f.commands("evalsha"), "nothing is sent after Detach")
		assert.Equal(t, 10, before)
	})
}

// adopting returns the error of the first Extend of a lock adopted by WithValue. The nodes answer
// it after 100 ms; meanwhile is called before that.
func (f field) adopting(meanwhile func(m *redsync.Mutex)) error {
	f.Helper()
	m := f.NewMutex("lock", redsync.WithValue(f.held().Value()))
	for _, n := range f.nodes {
		n.On("evalsha", 1, embedded.Fault{Delay: 100 * time.Millisecond})
	}
	var wg sync.WaitGroup
	var ok bool
	var err error
	wg.Go(func() { ok, err = m.Extend() })
	synctest.Wait()
	meanwhile(m)
	wg.Wait()
	assert.False(f, ok)
	assert.Zero(f, m.Until())
	return err
}

// Unlock releases the adopted value while its first Extend waits for the nodes, which
// confirm it: the lock is not held for all that.
func TestExtendOfAnAdoptedLockThatIsUnlockedMeanwhile(t *testing.T) {
	play(t, func(f field) {
		require.ErrorIs(t, f.adopting(f.unlock), redsync.ErrNotHeld)
		f.noKeys()
	})
}

// Close comes while the first Extend of an adopted lock waits for the nodes: the lock is not
// taken over, nor released, because another process may hold it.
func TestExtendOfAnAdoptedLockThatMeetsClose(t *testing.T) {
	play(t, func(f field) {
		other := f.another()
		f.closes(other)
		var wg sync.WaitGroup
		err := field{f.T, other, f.nodes, f.last}.adopting(func(*redsync.Mutex) {
			wg.Go(func() { assert.NoError(t, other.Close(f.Context())) })
		})
		require.ErrorIs(t, err, redsync.ErrClosed)
		wg.Wait()
	})
}

// Every node owes as many replies as its pool allows, so the pools refuse another TryLock. A release
// is sent at once all the same: room is reserved for it.
func TestUnlockIsSentToNodesAtTheLimitOfOutstandingReplies(t *testing.T) {
	play(t, func(f field) {
		rs := f.process(pool.WithOutstanding(1))
		f.closes(rs)
		g := field{f.T, rs, f.nodes, f.last}
		g.meet()
		synctest.Wait() // nothing is owed
		m := g.held()
		f.freeze(0, 1, 2, 3, 4)
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, rs.NewMutex("other").TryLock()) })
		synctest.Wait()
		var full *pool.OutstandingError
		require.ErrorAs(t, rs.NewMutex("more").TryLock(), &full)
		wg.Go(func() { f.unlock(m) })
		synctest.Wait()
		f.thaw(0, 1, 2, 3, 4)
		wg.Wait()
	})
}

// The nodes answer a release with NOPERM, because the Redis user may not touch queues. The release
// that follows, without the queue, must still raise the registers, even where they were lost.
func TestUnlockWithoutPermissionForQueuesRaisesTheRegisters(t *testing.T) {
	play(t, func(f field) {
		m := f.fenced().NewMutex("lock")
		require.NoError(t, m.Lock())
		token := m.Fence()
		synctest.Wait()
		for _, n := range f.nodes {
			n.Del(fenceKey)
			n.On("evalsha", 1, embedded.Fault{Err: "NOPERM No permissions to access a key"})
		}
		f.unlock(m)
		f.areAt(token, token, token, token, token)
		f.noKeys()
	})
}

// A generator of values that fails for a waiter ends its Lock, because it would fail again.
func TestWaiterEndsWithItsGenerator(t *testing.T) {
	play(t, func(f field) {
		f.held()
		broken, calls := errors.New("no more values"), 0
		m := f.NewMutex("lock", redsync.WithTries(100), redsync.WithRetryDelay(10*time.Millisecond),
			redsync.WithGenValueFunc(func() (string, error) {
				if calls++; calls > 1 {
					return "", broken
				}
				return rand.Text(), nil
			}))
		require.ErrorIs(t, m.Lock(), broken)
		assert.Equal(t, 2, calls)
		f.nobodyWaits()
	})
}

// A waiter is handed the lock while a function of its user's runs, which panics then. Nobody
// holds the lock, so it is released.
func TestWaiterThatPanicsReleasesWhatItWasHanded(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		giver := f.NewMutex("lock")
		require.NoError(t, giver.Lock())
		calls := 0
		m := f.NewMutex("lock", redsync.WithTries(0), redsync.WithRetryDelayFunc(func(int) time.Duration {
			if calls++; calls > 1 {
				before := f.traffic()
				f.unlock(giver)
				assert.Equal(t, before, f.traffic(), "it is handed over")
				panic("the user's")
			}
			return 5 * time.Millisecond
		}))
		assert.PanicsWithValue(t, "the user's", func() { _ = m.Lock() })
		require.ErrorIs(t, m.Err(), redsync.ErrNotHeld)
		synctest.Wait()
		assert.Zero(t, f.nodes.Keys("lock"))
		f.nobodyWaits()
		f.closesAtOnce()
	})
}
