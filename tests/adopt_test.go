package redsync_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/puppet"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows how a lock is adopted by its value: with WithValue, and by the Extend that takes the lock
// over.

func TestMutexAdoptedUnlockHasNoTimeCondition(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held(redsync.WithExpiry(time.Hour))
		adopted := k.NewMutex("lock", redsync.WithValue(m.Value()), redsync.WithExpiry(time.Second))
		time.Sleep(time.Minute)
		ok, err := adopted.Unlock()
		require.NoError(t, err)
		assert.True(t, ok)
		_, err = adopted.Unlock()
		require.ErrorIs(t, err, redsync.ErrNotHeld)
	})
}

func TestMutexAdoptedWithAWrongValueHoldsNothing(t *testing.T) {
	onKit(t, func(k kit) {
		k.held()
		for _, name := range []string{"Extend", "Valid", "Unlock"} {
			m := k.NewMutex("lock", redsync.WithValue("wrong"))
			ok, err := operations(m)[name]()
			assert.False(t, ok, name)
			require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired, name)
			var taken *redsync.ErrTaken
			require.ErrorAs(t, err, &taken, name)
			assert.GreaterOrEqual(t, len(taken.Nodes), 3)
			assert.Zero(t, m.Until())
		}
		assert.Equal(t, 5, k.keys("lock"))
	})
}

// If the lock of an adopted value has expired, another process may hold the lock by now. So not even an Extend with
// WithSetNXOnExtend sets missing keys.
func TestMutexAdoptedHealsNothing(t *testing.T) {
	play(t, func(f field) {
		for _, alive := range []int{0, 2, 3} {
			for _, n := range f.nodes[:alive] {
				require.NoError(t, n.Set("lock", "v"))
				n.SetTTL("lock", time.Minute)
			}
			m := f.NewMutex("lock", redsync.WithValue("v"), redsync.WithSetNXOnExtend())
			ok, err := m.Extend()
			synctest.Wait()
			assert.Equal(t, alive, f.nodes.Keys("lock"))
			if alive < 3 {
				assert.False(t, ok)
				require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
				continue
			}
			require.NoError(t, err)
			assert.True(t, ok)
			ok, err = m.Extend()
			require.NoError(t, err)
			assert.True(t, ok)
			synctest.Wait()
			assert.Equal(t, 5, f.nodes.Keys("lock"), "after the first Extend, the lock is held, and later ones set missing keys")
		}
	})
}

func TestMutexAdoptedUnlockIsSettledByNodesThatHadTheValue(t *testing.T) {
	for name, c := range map[string]struct {
		options []redsync.Option
		lose    []int
		most    int
	}{
		"all had it":                            {most: 5},
		"one had not":                           {lose: []int{2}, most: 5 + 15},
		"the giver may have healed it":          {options: []redsync.Option{redsync.WithSetNXOnExtend()}, most: 5 * 16},
		"the giver may have sent it repeatedly": {options: []redsync.Option{redsync.WithFencing()}, most: 5 * 16},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				other := f.another()
				defer func() { _ = other.Close(f.Context()) }()
				m := f.held()
				f.lose(c.lose...)
				before := f.commands("evalsha", "eval")
				ok, err := other.NewMutex("lock", append(c.options, redsync.WithValue(m.Value()))...).Unlock()
				require.NoError(t, err)
				assert.True(t, ok)
				time.Sleep(20 * time.Second)
				sent := f.commands("evalsha", "eval") - before
				assert.LessOrEqual(t, sent, c.most)
				assert.Equal(t, c.most > 5, sent > 5, "%d", sent)
			})
		})
	}
}

func TestMutexAdoptedExtendedTwiceAtOnceMovesUntilTwice(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held()
		a := k.NewMutex("lock", redsync.WithValue(m.Value()), redsync.WithFailFast(false))
		k.freeze(4)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := a.Extend()
			assert.NoError(t, err)
		})
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		ok, err := a.Extend()
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, validity, a.Until().Sub(start))
		wg.Wait()
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

// Unlock releases the adopted value while the first Extend waits for the nodes. The nodes then confirm the Extend, but
// the lock is not held.
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
		err := f.as(other).adopting(func(*redsync.Mutex) {
			wg.Go(func() { assert.NoError(t, other.Close(f.Context())) })
		})
		require.ErrorIs(t, err, redsync.ErrClosed)
		wg.Wait()
	})
}

// The first waiter in a line got the lock, and a Mutex that has adopted the lock releases it. The other waiters in the
// line must not have to wait for its expiry.
func TestWaitersNoticeThatAnAdoptedLockIsReleased(t *testing.T) {
	for name, c := range map[string]struct {
		elsewhere bool
		within    time.Duration
	}{
		"in the same process": {false, 0},
		"in another process":  {true, 250 * time.Millisecond}, // the retry delay
	} {
		t.Run(name, func(t *testing.T) {
			onKit(t, func(k kit) {
				k.meet()
				releaser := k.Redsync
				if c.elsewhere {
					releaser = k.another()
				}
				options := []redsync.Option{redsync.WithTries(0), redsync.WithHandOver(false)}
				m := k.held(options...)
				holder, waiter := k.calls(k.Redsync, options...), k.calls(k.Redsync, options...)
				time.Sleep(time.Second)
				k.unlock(m)
				time.Sleep(10 * time.Millisecond)
				if waiter.isDone() {
					holder, waiter = waiter, holder
				}
				require.True(t, holder.isDone())
				require.False(t, waiter.isDone())
				k.unlock(releaser.NewMutex("lock", redsync.WithValue(holder.Value())))
				k.within(waiter, c.within)
			})
		})
	}
}

func TestTakeOverKeepsToTheMaxHoldOfTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := redsync.New(&puppet.Puppet{Answer: func(req pool.Request) (*pool.Reply, error) {
			if isExtend(req) {
				time.AfterFunc(300*time.Millisecond, func() {
					reply, _ := puppet.Yes(req)
					req.To.Receive(req.Tag, *reply)
				})
				return nil, nil
			}
			return puppet.Yes(req)
		}})
		m := rs.NewMutex("lock", redsync.WithValue("v"), redsync.WithMaxHold(7950*time.Millisecond))
		start := time.Now()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				ok, err := m.Extend()
				assert.NoError(t, err)
				assert.True(t, ok)
			})
			time.Sleep(250 * time.Millisecond)
		}
		wg.Wait()
		assert.Equal(t, 550*time.Millisecond, time.Since(start))
		assert.Equal(t, 7950*time.Millisecond, m.Until().Sub(start))
		require.NoError(t, rs.Close(t.Context()))
	})
}
