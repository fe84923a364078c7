package redsync_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file tests what Lock and TryLock return, how often they try, and how long they wait for nodes.

func TestMutexLockWithoutAQuorumIsNotTakenAlthoughOneNodeRefuses(t *testing.T) {
	onKit(t, func(k kit) {
		k.held()
		k.down(0, 1)
		k.freeze(2, 3)
		start := time.Now()
		err := k.nodes.Process().NewMutex("lock").TryLock()
		took(k, start, 400*ms, "TryLock waits for the frozen nodes, which might still answer")
		var taken *redsync.ErrTaken
		require.NotErrorAs(k, err, &taken)
		var down *redsync.RedisError
		require.ErrorAs(k, err, &down)
	})
}

func TestMutexTryLockSplitSaysWhatItKnows(t *testing.T) {
	onKit(t, func(k kit) {
		k.held()
		k.lose(2)
		k.freeze(3, 4)
		start := time.Now()
		err := k.nodes.Process().NewMutex("lock").TryLock()
		assert.Less(k, time.Since(start), 400*ms)
		taken := isTaken(k, err)
		assert.Equal(k, []int{0, 1}, taken.Nodes)
		for i := range 5 {
			if i < 3 {
				assert.NotContains(k, err.Error(), named(i))
			} else {
				assert.ErrorContains(k, err, named(i)+"no answer in time, and the other nodes were split")
			}
		}
	})
}

func TestMutexLockMakesItsTriesWithDelaysBetween(t *testing.T) {
	play(t, func(f field) {
		f.held(redsync.WithExpiry(time.Hour))
		r := &redsynctest.Recorder{}
		m := f.process().NewMutex("lock", redsync.WithTries(5), redsync.WithRetryDelay(time.Second), redsync.WithObserver(r))
		before := f.commands("set")
		start := time.Now()
		require.ErrorIs(f, m.Lock(), redsync.ErrFailed)
		took(f, start, 4*time.Second)
		synctest.Wait()
		assert.Equal(f, before+5, f.commands("set"), "only the first attempt is a plain SET")
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
		k.held(redsync.WithExpiry(time.Hour))
		require.ErrorContains(k, k.nodes.Process().NewMutex("lock").Lock(), "gave up after 32 tries")
	})
}

func TestMutexLockDelayFuncIsToldTheTries(t *testing.T) {
	onKit(t, func(k kit) {
		k.held(redsync.WithExpiry(time.Hour))
		var seen []int
		m := k.nodes.Process().NewMutex("lock", redsync.WithTries(4), redsync.WithRetryDelayFunc(func(tries int) time.Duration {
			seen = append(seen, tries)
			return time.Duration(tries) * time.Second
		}))
		start := time.Now()
		require.ErrorIs(k, m.Lock(), redsync.ErrFailed)
		assert.Equal(k, []int{1, 2, 3}, seen)
		took(k, start, 6*time.Second)
	})
}

// A nil context stands for context.Background() in every function that takes a context.
//
//nolint:staticcheck // a nil context is what this is about
func TestNilContextIsBackground(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.NewMutex("lock")
		for _, lock := range []func(context.Context) error{m.LockContext, m.TryLockContext} {
			require.NoError(k, lock(nil))
			require.NoError(k, k.Current(nil, m.Sequencer()))
			for _, operation := range []func(context.Context) (bool, error){m.ExtendContext, m.ValidContext, m.UnlockContext} {
				k.confirms(operation(nil))
			}
		}
		work := func(ctx context.Context) error {
			assert.NotNil(k, redsync.FromContext(ctx))
			return nil
		}
		for _, do := range dos {
			require.NoError(k, do(m, nil, work))
		}
		require.NoError(k, k.Do(nil, "lock", work))
		require.NoError(k, k.ran(k.TryDo(nil, "lock", work)))
		assert.Nil(k, redsync.FromContext(nil))

		locked(k, m)
		s, err := m.Detach(nil)
		require.NoError(k, err)
		m = k.NewMutex("lock", redsync.WithSequencer(s))
		require.NoError(k, m.Do(nil, work))
		require.NoError(k, k.Close(nil))
		require.ErrorIs(k, m.LockContext(nil), redsync.ErrClosed)
	})
	one := []string{miniredis.RunT(t).Addr()}
	rs, err := redsync.Open(nil, one)
	require.NoError(t, err)
	shut(t, rs)
	rs, err = redsync.OpenJoint(nil, one, one)
	require.NoError(t, err)
	shut(t, rs)
}

func TestMutexNodeDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		options opts
		want    time.Duration
	}{
		"5 % of the default expiry":       {nil, 400 * ms},
		"at least 50 ms":                  {opts{redsync.WithExpiry(500 * ms)}, 50 * ms},
		"at most half of the validity":    {opts{redsync.WithExpiry(22 * ms), redsync.WithDriftFactor(0)}, 10 * ms},
		"by WithTimeoutFactor":            {opts{redsync.WithTimeoutFactor(0.25)}, 2 * time.Second},
		"by WithNodeTimeout":              {opts{redsync.WithNodeTimeout(7 * ms)}, 7 * ms},
		"half of the longest of validity": {opts{redsync.WithTimeoutFactor(1), redsync.WithDriftFactor(0)}, 3999 * ms},
	} {
		kitMetAs(t, name, func(k kit) {
			k.freeze(0, 2, 4)
			start := time.Now()
			require.ErrorIs(k, k.NewMutex("lock", c.options...).TryLock(), redsync.ErrNoQuorum)
			took(k, start, c.want)
		})
	}
}

func TestMutexWithoutFailFastWaitsForEveryNode(t *testing.T) {
	play(t, func(f field) {
		for i, n := range f.nodes {
			n.On("set", 1, embedded.Fault{Delay: time.Duration(i+1) * 10 * ms})
		}
		start := time.Now()
		m := locked(f, f.NewMutex("lock", hearsAll))
		took(f, start, 50*ms)
		f.keysOn(5)
		f.freeze(1)
		start = time.Now()
		f.confirms(m.Extend())
		took(f, start, 400*ms, "the call waits for the frozen nodes until the node deadline")
	})
}
