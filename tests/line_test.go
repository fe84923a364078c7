package redsync_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
)

// This file shows the line in which the waiters of one process stand.

func TestWaitersOfAProcessAreServedInOrder(t *testing.T) {
	const waiters = 30
	for name, options := range map[string]opts{
		"handed over":     nil,
		"not handed over": {redsync.WithHandOver(false)},
		"fair":            {withFair},
		"polling":         {redsync.WithRetryDelay(5 * ms)},
	} {
		kitAs(t, name, func(k kit) {
			m := locked(k, k.another(options...).NewMutex("lock"))
			var calls []*call
			for range waiters {
				calls = append(calls, k.calls(k.Redsync, patient(options...)...))
			}
			time.Sleep(time.Second)
			k.unlock(m)
			start := time.Now()
			assert.Equal(k, ascending(waiters), k.inOrder(calls, ms))
			took(k, start, waiters*ms, "each waiter is woken, and none waits for a timer")
			k.nothingLeft()
		})
	}
}

// WithTries counts retry delays. A waiter behind others gives up when its own delays are over.
func TestEachWaiterOfAProcessGivesUpAfterItsOwnTries(t *testing.T) {
	inEachMode(t, onKit, func(k kit, mode opts) {
		m := k.held(append(mode, redsync.WithExpiry(time.Minute))...)
		other := k.another(mode...)
		var calls []*call
		var starts []time.Time
		for i := range 10 {
			starts = append(starts, time.Now())
			calls = append(calls, k.calls(other, redsync.WithTries(3+i%3), redsync.WithRetryDelay(time.Second)))
			time.Sleep(10 * ms)
		}
		for i, c := range calls {
			<-c.done
			assert.Equal(k, time.Duration(2+i%3)*time.Second, c.at.Sub(starts[i]))
			require.ErrorIs(k, c.err, redsync.ErrFailed)
			taken := isTaken(k, c.err)
			assert.GreaterOrEqual(k, len(taken.Nodes), 3)
		}
		k.unlock(m)
		k.nothingLeft()
	})
}

// No waiter of another process is known. The next waiter of this process tries right behind the release, with the plain
// command. It does not wait for a message from the nodes.
func TestWaiterOfAProcessTriesRightBehindTheRelease(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithHandOver(false))
		time.Sleep(ms) // each node has it
		c := f.calls(f.Redsync, patient()...)
		time.Sleep(ms)
		before := f.commands("set")
		f.atOnce(m, c)
		synctest.Wait()
		assert.Equal(f, before+5, f.commands("set"))
		f.unlocks(c.Mutex)
		f.nobodyWaits()
	})
}

// attemptCounter counts attempts, and those that failed.
type attemptCounter struct{ made, failed atomic.Int64 }

func (c *attemptCounter) ObserveAttempt(_ context.Context, a observe.Attempt) {
	c.made.Add(1)
	if a.Err != nil {
		c.failed.Add(1)
	}
}

// delays records the arguments of its calls as a DelayFunc.
type delays struct {
	mu    sync.Mutex
	tries []int
	delay time.Duration
}

func (d *delays) of(tries int) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tries = append(d.tries, tries)
	return d.delay
}

func (d *delays) taken() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.tries)
}

// The retry delays of a waiter behind others are counted, but do not wake it. It asks its DelayFunc for them ahead of
// time, and once for each.
func TestWaitersBehindOthersSleep(t *testing.T) {
	inEachMode(t, onKit, func(k kit, mode opts) {
		const waiters = 100
		holder := k.held(append(mode, redsync.WithExpiry(time.Minute))...)
		b := k.another(mode...)
		k.calls(b, patient()...)
		var all []*call
		var asked []*delays
		start := time.Now()
		for i := range waiters {
			d := &delays{delay: 100 * ms}
			tries := 0
			if i%2 == 0 {
				tries = 32
			}
			asked = append(asked, d)
			all = append(all, k.calls(b, redsync.WithTries(tries), redsync.WithRetryDelayFunc(d.of)))
		}
		calls := func() (n int) {
			for _, d := range asked[1:] { // asked[0] is the one by which the first polls
				n += len(d.taken())
			}
			return n
		}
		before := calls()
		time.Sleep(3 * time.Second)
		assert.LessOrEqual(k, calls()-before, 31)
		for i := 0; i < waiters; i += 2 {
			<-all[i].done
			assert.Equal(k, 3100*ms, all[i].at.Sub(start), "#%d", i)
			require.ErrorIs(k, all[i].err, redsync.ErrFailed)
			want := ascending(32)[1:]
			assert.Equal(k, want, asked[i].taken(), "#%d", i)
		}
		k.unlock(holder)
		synctest.Wait()
	})
}

// A negative delay is an error, but only when its turn has come.
func TestWaiterBehindOthersFailsAtADelayThatIsNegative(t *testing.T) {
	onKit(t, func(k kit) {
		k.held(redsync.WithExpiry(time.Minute))
		b := k.another()
		k.calls(b, patient()...)
		start := time.Now()
		w := k.calls(b, redsync.WithRetryDelayFunc(func(tries int) time.Duration {
			return time.Duration(4-tries) * 100 * ms
		}))
		<-w.done
		require.ErrorContains(k, w.err, "WithRetryDelayFunc(-100ms) is out of range")
		assert.Equal(k, 600*ms+10*ms, w.at.Sub(start), "a retry delay of 0 is replaced by a short one")
	})
}
