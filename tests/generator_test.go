package redsync_test

import (
	"context"
	"crypto/rand"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file shows what a generator of values must return.

// A value has at least 128 bits: 5 for each character of base 32.
func TestMutexLockGivesEachAttemptAFreshValue(t *testing.T) {
	play(t, func(f field) {
		var mu sync.Mutex
		values := map[string]int{}
		note := func(value string) {
			mu.Lock()
			defer mu.Unlock()
			values[value]++
		}
		for _, n := range f.nodes {
			n.On("set", 100, embedded.Fault{Then: func(args []string) { note(args[1]) }})
			n.On("evalsha", 100, embedded.Fault{Then: func(args []string) {
				if len(args) > 6 && strings.Contains(args[6], ":") { // a waiter's acquire, not a release
					note(args[4])
				}
			}})
		}
		f.occupy("lock")
		require.Error(f, f.NewMutex("lock", withTries(6), withRetryDelay(100*ms)).Lock())
		synctest.Wait()
		assert.GreaterOrEqual(f, len(values), 6)
		for value, nodes := range values {
			assert.Equal(f, 5, nodes, value)
			assert.GreaterOrEqual(f, len(value)*5, 128)
		}
	})
}

// repeating is a generator that always returns value.
func repeating(value string) redsync.Option {
	return withGenValueFunc(func() (string, error) { return value, nil })
}

// sameValue is what a process may do with one value, which constant makes each time.
var sameValue = map[string]func(f field, constant redsync.Option){
	"many names": func(f field, constant redsync.Option) {
		for range 2 {
			var all []*redsync.Mutex
			for i := range 50 {
				all = append(all, locked(f, f.NewMutex(strconv.Itoa(i), constant)))
			}
			for _, m := range all {
				f.unlock(m)
			}
		}
		f.unlock(locked(f, f.NewMultiMutex([]string{"0", "1"}, constant)))
	},
	"one name again": func(f field, constant redsync.Option) {
		m := f.NewMutex("lock", constant)
		for range 20 {
			f.unlock(locked(f, m))
			f.unlock(f.obtains(constant))
		}
		locked(f, m)
		sleep(8 * sec) // it has run out
		f.unlock(locked(f, m))
	},
	"contended": func(f field, constant redsync.Option) {
		other := f.as(f.another()).held()
		waiter := f.inLine(constant)
		sleep(3 * sec)
		f.unlock(other)
		f.served(waiter, sec)
		f.unlock(f.obtains(constant))
	},
	"a leader again": func(f field, constant redsync.Option) {
		for range 3 {
			require.NoError(f, f.Lead(f.Context(), "lock", func(context.Context) error {
				sleep(20 * sec)
				return nil
			}, constant))
		}
	},
	"while it is held": func(f field, constant redsync.Option) { // redsync v4 deletes the keys: see package safety
		m := f.held(constant)
		for _, rs := range []*redsync.Redsync{f.Redsync, f.another(), f.Redsync} {
			var taken *redsync.ErrTaken
			require.ErrorAs(f, rs.NewMutex("lock", constant).TryLock(), &taken)
			assert.Len(f, taken.Nodes, 5)
			f.keysOn(5)
		}
		waiters := []*call{f.inLine(constant), f.waits(f.another(), constant)}
		sleep(5 * sec)
		f.stillWait(waiters...)
		f.extends(m)
		f.unlock(m)
		synctest.Wait()
		if !waiters[0].isDone() { // the other one was first
			slices.Reverse(waiters)
		}
		f.served(waiters[0], sec)
		f.served(waiters[1], sec)
	},
	"an Unlock after it has run out": func(f field, constant redsync.Option) { // one node has not answered yet
		f.freeze(4)
		m := locked(f, f.NewMutex("lock", constant, oneSecond))
		sleep(1100 * ms)
		next := f.obtains(constant)
		errorIs(f, second(m.Unlock()), redsync.ErrLockAlreadyExpired)
		f.keysOn(4)
		f.thaw(4)
		f.unlock(next)
	},
	"while it is unlocked": func(f field, constant redsync.Option) { // by commands that another connection may overtake
		m, next := f.held(constant), f.another().NewMutex("lock", constant)
		onEach(f.nodes, "evalsha", 1, embedded.Fault{Delay: 100 * ms})
		go f.unlock(m)
		synctest.Wait()
		require.NoError(f, next.TryLock())
		f.unlock(next)
	},
	"while it was adopted": func(f field, constant redsync.Option) {
		m := f.held(constant)
		s := must(m.Detach(f.Context()))
		require.ErrorContains(f, f.tries(constant), "taken")
		heir := f.another().NewMutex("lock", redsync.WithSequencer(s))
		f.extends(heir)
		sleep(5 * sec)
		f.extends(heir)
		sleep(5 * sec)
		require.ErrorContains(f, f.tries(constant), "taken")
		f.keysOn(5)
		f.unlock(heir)
		f.unlock(f.obtains(constant))
		sleep(ms)                                                         // all nodes have answered the release
		_, err := f.NewMutex("lock", redsync.WithValue(s.Value)).Unlock() // as a process may do when it starts
		errorIs(f, err, redsync.ErrLockAlreadyExpired)
		f.unlock(f.obtains(constant))
	},
	"while its keys stay on purpose": func(f field, constant redsync.Option) {
		f.unlock(f.held(constant, withMinHold(20*sec)))
		sleep(10 * sec)
		require.ErrorContains(f, f.tries(constant), "taken")
		f.keysOn(5)
		sleep(11 * sec)
		f.held(constant, withLockDelay(20*sec))
		sleep(10 * sec) // it has run out
		require.ErrorContains(f, f.tries(constant), "taken")
		f.keysOn(5)
		sleep(20 * sec)
		f.unlock(f.obtains(constant))
	},
	"on other nodes": func(f field, constant redsync.Option) {
		m := f.held(constant)
		others := embedded.Start(3)
		f.Cleanup(others.Close)
		there := process(others)
		f.closes(there)
		f.unlock(locked(f, there.NewMutex("lock", constant)))
		f.keysOn(5)
		f.kill(3, 4)
		f.unlock(f.NewMutex("lock", redsync.WithValue(m.Value())))
		f.unlock(locked(f, there.NewMutex("lock", constant)))
		sleep(sec)
		f.restart(3, 4)
		sleep(2 * sec)
		f.keysOn(0) // the release here has gone on
	},
}

func TestAValueOfTheUsersOwnComesBack(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	for name, use := range sorted(sameValue) {
		t.Run(name, func(t *testing.T) { play(t, func(f field) { use(f, repeating(rand.Text())) }) })
	}
}

// A node whose reply was lost may run the release again later. Whatever makes sure that it does not, the lock works there.
func TestANodeThatMayStillRunAReleaseDoesNotCountForItsValue(t *testing.T) {
	const doubt = "it may still run a command of an earlier lock with the same value"
	late := embedded.Fault{LoseReply: true, Again: 5 * sec}
	for name, ends := range map[string]func(f field){
		"restarted": func(f field) { f.reboot(false, 2, 3, 4); wake(f.Redsync) },
		"answers later": func(f field) { // the last ones are needed
			sleep(2 * minute)
			f.delays("ping")
			f.nodes[0].On("set", 1, embedded.Fault{Err: "LOADING Redis is loading the dataset in memory"})
		},
		"one value again": nil,
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				value := rand.Text()
				constant := repeating(value)
				m := f.held(constant)
				onEach(f.nodes[2:], "evalsha", 1, late)
				_, _ = m.Unlock()
				sleep(sec)
				asked := f.commands("ping")
				for range 2 {
					err := m.TryLock()
					errorIs(f, err, redsync.ErrNoQuorum)
					says(f, err, named(2)+doubt, named(3)+doubt, named(4)+doubt)
					assert.NotContains(f, err.Error(), value)
				}
				assert.Equal(f, asked, f.commands("ping"), "the answers would end no doubt yet")
				f.unlock(f.obtains()) // with another value
				f.unlock(locked(f, f.NewMutex("other", constant)))
				if ends == nil {
					return
				}
				ends(f)
				require.NoError(f, m.TryLock())
				f.extends(m)
				f.unlock(m)
			})
		})
	}
	play(t, func(f field) { // the others are a quorum
		constant := repeating(rand.Text())
		m := f.held(constant)
		onEach(f.nodes[3:], "evalsha", 1, late)
		f.unlock(m)
		sleep(sec)
		m = f.obtains(constant, withExpiry(minute))
		f.nodes[2].On("evalsha", 1, embedded.Fault{Err: "LOADING Redis is loading the dataset in memory"})
		ok, err := m.Extend()
		assert.False(f, ok)
		says(f, err, named(3)+doubt, named(4)+doubt)
		sleep(5 * sec) // the nodes delete the keys
		assert.Equal(f, 3, f.nodes.Keys("lock"))
		errorIs(f, f.another().NewMutex("lock").TryLock(), redsync.ErrFailed)
		f.extends(m)
	})
}

func TestMutexLockReportsTheGeneratorsError(t *testing.T) {
	play(t, func(f field) {
		err := f.NewMutex("lock", withGenValueFunc(func() (string, error) { return "", errWork })).Lock()
		errorIs(f, err, errWork)
		require.NotErrorIs(f, err, redsync.ErrFailed)
		require.ErrorContains(f, f.NewMutex("lock", repeating("")).Lock(), "empty value")
		f.hasSent(0)
	})
}

// A generator of values that fails for a waiter ends its Lock, because it would fail again.
func TestWaiterEndsWithItsGenerator(t *testing.T) {
	play(t, func(f field) {
		f.held()
		calls := 0
		m := f.NewMutex("lock", withTries(100), withRetryDelay(10*ms),
			withGenValueFunc(func() (string, error) {
				if calls++; calls > 1 {
					return "", errWork
				}
				return rand.Text(), nil
			}))
		before := f.traffic()
		errorIs(f, m.Lock(), errWork)
		assert.Equal(f, 2, calls)
		f.hasSent(before+5*2, "the first attempt and its release")
		f.nobodyWaits()
	})
}
