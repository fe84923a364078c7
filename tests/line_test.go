package redsync_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file shows the line in which the waiters of one process stand.

func TestWaitersOfAProcessAreServedInOrder(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	const waiters = 30
	for name, options := range map[string]opts{
		"handed over":     nil,
		"not handed over": {noHandOver},
		"fair":            {withFair},
		"polling":         {withRetryDelay(5 * ms)},
	} {
		kitAs(t, name, func(k kit) {
			m := locked(k, k.another(options...).NewMutex("lock"))
			var calls []*call
			for range waiters {
				calls = append(calls, k.inLine(options...))
			}
			time.Sleep(sec)
			k.unlock(m)
			start := time.Now()
			assert.Equal(k, ascending(waiters), k.inOrder(calls, ms))
			took(k, start, waiters*ms) // each waiter is woken, and none waits for a timer
			k.nothingLeft()
		})
	}
}

// WithTries counts retry delays. A waiter behind others gives up when its own delays are over.
func TestEachWaiterOfAProcessGivesUpAfterItsOwnTries(t *testing.T) {
	inEachMode(t, onKit, func(k kit, mode opts) {
		m := k.held(append(mode, lasting)...)
		other := k.another(mode...)
		var calls []*call
		start := time.Now()
		for i := range 10 {
			calls = append(calls, k.calls(other, withTries(3+i%3), withRetryDelay(sec)))
			time.Sleep(10 * ms)
		}
		for i, c := range calls {
			<-c.done
			assert.Equal(k, time.Duration(2+i%3)*sec+time.Duration(i)*10*ms, c.at.Sub(start))
			errorIs(k, c.err, redsync.ErrFailed)
			assert.GreaterOrEqual(k, len(isTaken(k, c.err).Nodes), 3)
		}
		k.unlock(m)
		k.nothingLeft()
	})
}

// The retry delays of a waiter behind others are counted, but do not wake it. It asks its DelayFunc for them ahead of
// time, and once for each.
func TestWaitersBehindOthersSleep(t *testing.T) {
	inEachMode(t, onKit, func(k kit, mode opts) {
		holder := k.held(append(mode, lasting)...)
		b := k.another(mode...)
		k.waits(b)
		var all []*call
		var mu sync.Mutex
		var asked [100][]int // for the delays behind which tries
		calls := func() (n int) {
			mu.Lock()
			defer mu.Unlock()
			for _, tries := range asked[1:] { // asked[0] is the one by which the first polls
				n += len(tries)
			}
			return n
		}
		start := time.Now()
		for i := range asked {
			all = append(all, k.calls(b, withTries((i+1)%2*32), redsync.WithRetryDelayFunc(func(tries int) time.Duration {
				mu.Lock()
				defer mu.Unlock()
				asked[i] = append(asked[i], tries)
				return 100 * ms
			})))
		}
		before := calls()
		time.Sleep(3 * sec)
		assert.LessOrEqual(k, calls()-before, 31)
		for i := 0; i < len(all); i += 2 {
			<-all[i].done
			assert.Equal(k, 3100*ms, all[i].at.Sub(start), "#%d", i)
			errorIs(k, all[i].err, redsync.ErrFailed)
			assert.Equal(k, ascending(32)[1:], asked[i], "#%d", i)
		}
		k.unlock(holder)
		synctest.Wait()
	})
}

// A negative delay is an error, but only when its turn has come.
func TestWaiterBehindOthersFailsAtADelayThatIsNegative(t *testing.T) {
	onKit(t, func(k kit) {
		k.held(lasting)
		b := k.another()
		k.waits(b)
		start := time.Now()
		w := k.calls(b, redsync.WithRetryDelayFunc(func(tries int) time.Duration {
			return time.Duration(4-tries) * 100 * ms
		}))
		<-w.done
		says(k, w.err, "WithRetryDelayFunc(-100ms) is out of range")
		assert.Equal(k, 600*ms+10*ms, w.at.Sub(start)) // a retry delay of 0 is replaced by a short one
	})
}
