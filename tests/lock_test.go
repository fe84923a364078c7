package redsync_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file tests what Lock and TryLock return, how often they try, and how long they wait for nodes.

func TestMutexTryLockSplitSaysWhatItKnows(t *testing.T) {
	onKit(t, func(k kit) {
		k.held()
		k.lose(2)
		k.freeze(3, 4)
		start := time.Now()
		err := k.nodes.Process().NewMutex("lock").TryLock()
		assert.Less(k, time.Since(start), 400*ms)
		assert.Equal(k, []int{0, 1}, isTaken(k, err).Nodes)
		for i := range 5 {
			if i < 3 {
				assert.NotContains(k, err.Error(), named(i))
			} else {
				says(k, err, named(i)+"no answer in time, and the other nodes were split")
			}
		}
	})
}

func TestMutexLockMakesItsTriesWithDelaysBetween(t *testing.T) {
	play(t, func(f field) {
		f.held(withExpiry(hour))
		r := &redsynctest.Recorder{}
		m := f.process().NewMutex("lock", withTries(5), withRetryDelay(sec), recordsTo(r))
		before := f.commands("set")
		start := time.Now()
		errorIs(f, m.Lock(), redsync.ErrFailed)
		took(f, start, 4*sec)
		synctest.Wait()
		assert.Equal(f, before+5, f.commands("set")) // only the first attempt is a plain SET
		attempts, _ := of[observe.Attempt](r)
		perTry := map[int]int{}
		for _, a := range attempts {
			perTry[a.Try]++
		}
		// The first try has three attempts: the first attempt, the one that enters the queues, and one half a second
		// later. That last one shows that the waiter is alive.
		assert.Equal(f, map[int]int{1: 3, 2: 2, 3: 2, 4: 2, 5: 1}, perTry)
	})
}

func TestMutexLockMakes32TriesByDefault(t *testing.T) {
	onKit(t, func(k kit) {
		k.held(withExpiry(hour))
		rs := k.nodes.Process()
		locked(k, rs.NewMutex("other"))
		err := rs.NewMutex("lock").Lock()
		says(k, err, "gave up after 32 tries")
		assert.NotContains(k, err.Error(), "of this process")
	})
}

// A nil context stands for context.Background() in every function that takes a context.
//
//nolint:staticcheck // a nil context is what this is about
func TestNilContextIsBackground(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.NewMutex("lock")
		for _, lock := range []func(context.Context) error{m.LockContext, m.TryLockContext} {
			noError(k, lock(nil))
			noError(k, k.Current(nil, m.Sequencer()))
			for _, operation := range []func(context.Context) (bool, error){m.ExtendContext, m.ValidContext, m.UnlockContext} {
				k.confirms(operation(nil))
			}
		}
		holds := func(ctx context.Context) error {
			assert.NotNil(k, redsync.FromContext(ctx))
			return nil
		}
		for _, do := range dos {
			noError(k, do(m, nil, holds))
		}
		noError(k, k.Do(nil, "lock", holds))
		noError(k, k.ran(k.TryDo(nil, "lock", holds)))
		assert.Nil(k, redsync.FromContext(nil))

		locked(k, m)
		m = k.NewMutex("lock", withSequencer(must(m.Detach(nil))))
		noError(k, m.Do(nil, holds))
		noError(k, k.Close(nil))
		errorIs(k, m.LockContext(nil), redsync.ErrClosed)
	})
	one := []string{miniredis.RunT(t).Addr()}
	shut(t, must(redsync.Open(nil, one)))
	shut(t, must(redsync.OpenJoint(nil, one, one)))
}

func TestMutexNodeDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		options opts
		want    time.Duration
	}{
		"5 % of the default expiry":       {nil, 400 * ms},
		"at least 50 ms":                  {opts{withExpiry(500 * ms)}, 50 * ms},
		"at most half of the validity":    {opts{withExpiry(22 * ms), redsync.WithDriftFactor(0)}, 10 * ms},
		"by WithTimeoutFactor":            {opts{redsync.WithTimeoutFactor(0.25)}, 2 * sec},
		"by WithNodeTimeout":              {opts{withNodeTimeout(7 * ms)}, 7 * ms},
		"half of the longest of validity": {opts{redsync.WithTimeoutFactor(1), redsync.WithDriftFactor(0)}, 3999 * ms},
	} {
		kitMetAs(t, name, func(k kit) {
			k.freeze(0, 2, 4)
			start := time.Now()
			errorIs(k, k.tries(c.options...), redsync.ErrNoQuorum)
			took(k, start, c.want)
		})
	}
}

func TestMutexWithoutFailFastWaitsForEveryNode(t *testing.T) {
	play(t, func(f field) {
		f.delays("set")
		start := time.Now()
		m := f.locks(hearsAll)
		took(f, start, 40*ms)
		f.keysOn(5)
		f.freeze(1)
		start = time.Now()
		f.extends(m)
		took(f, start, 400*ms) // the call waits for the frozen nodes until the node deadline
	})
}
