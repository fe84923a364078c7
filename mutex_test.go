package redsync_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A field is five embedded nodes in virtual time and a Redsync on them.
type field struct {
	*testing.T
	*redsync.Redsync
	nodes embedded.Nodes
	last  *[]func() // to be done at the end, also of a test that fails
}

// play runs f in a bubble; afterwards nothing may be left running.
func play(t *testing.T, f func(f field)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nodes := embedded.Start(5)
		defer func() {
			nodes.Close()
			time.Sleep(time.Minute) // what ends by itself has ended
		}()
		rs := process(nodes)
		defer func() { _ = rs.Close(t.Context()) }() // nodes may be frozen
		var last []func()
		defer func() {
			for _, do := range last {
				do()
			}
		}()
		f(field{t, rs, nodes, &last})
	})
}

// process is a Redsync with connections of its own.
func process(nodes embedded.Nodes) *redsync.Redsync {
	var pools []pool.Pool
	for _, n := range nodes {
		pools = append(pools, pool.New(n.Client()))
	}
	return redsync.New(pools...)
}

// named is how errors name an embedded node.
func named(i int) string { return fmt.Sprintf("node #%d (127.0.0.1:%d): ", i, 7001+i) }

// held returns a Mutex that holds the lock on all five nodes.
func (f field) held(options ...redsync.Option) *redsync.Mutex {
	f.Helper()
	m := f.NewMutex("lock", options...)
	require.NoError(f, m.Lock())
	time.Sleep(time.Millisecond)
	require.Equal(f, 5, f.nodes.Keys("lock"))
	return m
}

// meet lets the Redsync hear from every node, for which its first Lock waits.
func (f field) meet() {
	f.Helper()
	m := f.NewMutex("meet")
	require.NoError(f, m.Lock())
	_, err := m.Unlock()
	require.NoError(f, err)
}

// commands counts what all nodes were sent.
func (f field) commands(names ...string) int {
	count := 0
	for _, n := range f.nodes {
		for _, name := range names {
			count += n.Commands(name)
		}
	}
	return count
}

// traffic counts what a lock sends; what is on its way has arrived then.
func (f field) traffic() int {
	synctest.Wait()
	return f.commands("set", "evalsha", "eval")
}

// lose deletes the key on some nodes.
func (f field) lose(nodes ...int) {
	for _, i := range nodes {
		f.nodes[i].Del("lock")
	}
}

func (f field) freeze(nodes ...int) {
	for _, i := range nodes {
		f.nodes[i].Freeze()
	}
}

// operations are Unlock, Extend and Valid by name.
func operations(m *redsync.Mutex) map[string]func() (bool, error) {
	return map[string]func() (bool, error){"Unlock": m.Unlock, "Extend": m.Extend, "Valid": m.Valid}
}

// The states of a Mutex.

func TestMutexIdleIsNotHeldAndSendsNothing(t *testing.T) {
	play(t, func(f field) {
		m := f.NewMutex("lock")
		for name, operation := range operations(m) {
			ok, err := operation()
			assert.False(t, ok, name)
			require.ErrorIs(t, err, redsync.ErrNotHeld, name)
		}
		assert.Zero(t, m.Until())
		assert.Zero(t, m.Remaining())
		assert.Empty(t, m.Value())
		assert.Equal(t, "lock", m.Name())
		assert.Zero(t, f.traffic())
	})
}

func TestMutexHeldCountsFromBeforeTheFirstRequest(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		for i, n := range f.nodes {
			n.On("set", 1, embedded.Fault{Delay: time.Duration(i) * 100 * time.Millisecond})
		}
		start := time.Now()
		m := f.NewMutex("lock")
		require.NoError(t, m.Lock())
		assert.Equal(t, 200*time.Millisecond, time.Since(start), "the third node decides")
		assert.Equal(t, 8*time.Second-82*time.Millisecond, m.Until().Sub(start))
		assert.Equal(t, 8*time.Second-282*time.Millisecond, m.Remaining())
		value, err := f.nodes[0].Get("lock")
		require.NoError(t, err)
		assert.Equal(t, value, m.Value())
	})
}

func TestMutexUnlockedIsIdleAgain(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		ok, err := m.Unlock()
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Zero(t, m.Until())
		assert.Zero(t, m.Remaining())
		before := f.traffic()
		for name, operation := range operations(m) {
			ok, err := operation()
			assert.False(t, ok, name)
			require.ErrorIs(t, err, redsync.ErrNotHeld, name)
		}
		assert.Equal(t, before, f.traffic())
	})
}

func TestMutexAdoptedGoesByTheNodesAlone(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		adopted := f.NewMutex("lock", redsync.WithValue(m.Value()))
		assert.Zero(t, adopted.Until())
		assert.Equal(t, m.Value(), adopted.Value())
		ok, err := adopted.Valid()
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Zero(t, adopted.Until(), "Valid takes nothing over")

		time.Sleep(5 * time.Second)
		start := time.Now()
		ok, err = adopted.Extend()
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, 8*time.Second-82*time.Millisecond, adopted.Until().Sub(start))

		time.Sleep(7 * time.Second)
		require.Zero(t, m.Remaining(), "the former holder's time is over")
		ok, err = adopted.Unlock()
		require.NoError(t, err)
		assert.True(t, ok)
		time.Sleep(time.Millisecond)
		assert.Zero(t, f.nodes.Keys("lock"))
	})
}

func TestMutexAdoptedUnlockHasNoTimeCondition(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithExpiry(time.Hour))
		adopted := f.NewMutex("lock", redsync.WithValue(m.Value()), redsync.WithExpiry(time.Second))
		time.Sleep(time.Minute)
		ok, err := adopted.Unlock()
		require.NoError(t, err)
		assert.True(t, ok)
		_, err = adopted.Unlock()
		require.ErrorIs(t, err, redsync.ErrNotHeld)
	})
}

func TestMutexAdoptedWithAWrongValueHoldsNothing(t *testing.T) {
	play(t, func(f field) {
		f.held()
		for _, name := range []string{"Extend", "Valid", "Unlock"} {
			m := f.NewMutex("lock", redsync.WithValue("wrong"))
			ok, err := operations(m)[name]()
			assert.False(t, ok, name)
			require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired, name)
			var taken *redsync.ErrTaken
			require.ErrorAs(t, err, &taken, name)
			assert.GreaterOrEqual(t, len(taken.Nodes), 3)
			assert.Zero(t, m.Until())
		}
		assert.Equal(t, 5, f.nodes.Keys("lock"))
	})
}

// An adopted value that has expired may be another's lock by now: not even an Extend that
// heals sets its keys.
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
			assert.Equal(t, 5, f.nodes.Keys("lock"), "it is held, and heals from then on")
		}
	})
}

func TestMutexOverByTimeSaysSoWithoutAsking(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithExpiry(time.Second))
		until := m.Until()
		time.Sleep(time.Until(until))
		before := f.traffic()
		for _, name := range []string{"Extend", "Valid"} {
			ok, err := operations(m)[name]()
			assert.False(t, ok, name)
			require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired, name)
			require.NotErrorIs(t, err, redsync.ErrLockLost, name)
		}
		assert.Equal(t, before, f.traffic())
		assert.Equal(t, until, m.Until())
		assert.Zero(t, m.Remaining())

		ok, err := m.Unlock()
		assert.False(t, ok)
		require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
		synctest.Wait()
		assert.Equal(t, before+5, f.traffic(), "the release goes to all nodes in the background")
		assert.Zero(t, f.nodes.Keys("lock"), "the drift has not passed: the keys were there")
		assert.Zero(t, m.Until())
		_, err = m.Unlock()
		require.ErrorIs(t, err, redsync.ErrNotHeld)
	})
}

func TestMutexOverByProofStaysSo(t *testing.T) {
	for _, finder := range []string{"Extend", "Valid"} {
		t.Run("found by "+finder, func(t *testing.T) {
			play(t, func(f field) {
				m := f.held()
				f.lose(0, 1, 2)
				ok, err := operations(m)[finder]()
				assert.False(t, ok)
				lost := func(err error) {
					t.Helper()
					require.ErrorIs(t, err, redsync.ErrLockLost)
					require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
				}
				lost(err)
				assert.Zero(t, m.Until())
				assert.Zero(t, m.Remaining())
				before := f.traffic()
				for _, name := range []string{"Extend", "Valid"} {
					_, err := operations(m)[name]()
					lost(err)
				}
				assert.Equal(t, before, f.traffic())
				_, err = m.Unlock()
				lost(err)
				synctest.Wait()
				assert.Zero(t, f.nodes.Keys("lock"))
			})
		})
	}
}

func TestMutexLockStartsANewHoldWhenOver(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		former := m.Value()
		f.lose(0, 1, 2)
		_, err := m.Extend()
		require.ErrorIs(t, err, redsync.ErrLockLost)
		require.NoError(t, m.TryLock())
		assert.NotEqual(t, former, m.Value())
		ok, err := m.Valid()
		require.NoError(t, err)
		assert.True(t, ok)
	})
}

func TestMutexLockWaitsForAnotherHoldOfTheSameMutex(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		value := m.Value()
		require.ErrorIs(t, m.TryLock(), redsync.ErrFailed)
		assert.Equal(t, value, m.Value())
		ok, err := m.Valid()
		require.NoError(t, err)
		assert.True(t, ok)
	})
}

// Unlock's decisions.

func TestMutexUnlockReturnsOnceAQuorumHasDeleted(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		for i, n := range f.nodes {
			n.On("evalsha", 1, embedded.Fault{Delay: time.Duration(i+1) * 10 * time.Millisecond})
		}
		start := time.Now()
		ok, err := m.Unlock()
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, 30*time.Millisecond, time.Since(start))
		time.Sleep(21 * time.Millisecond)
		assert.Zero(t, f.nodes.Keys("lock"))
	})
}

func TestMutexUnlockAfterUntilIsNoSuccessAlthoughAQuorumDeleted(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithExpiry(time.Second))
		time.Sleep(m.Remaining() - 5*time.Millisecond)
		for _, n := range f.nodes {
			n.On("evalsha", 1, embedded.Fault{Delay: 10 * time.Millisecond})
		}
		ok, err := m.Unlock()
		assert.False(t, ok)
		require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
	})
}

func TestMutexUnlockOfALostLockSaysExpired(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		f.lose(0, 1, 2)
		ok, err := m.Unlock()
		assert.False(t, ok)
		require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
		_, err = m.Unlock()
		require.ErrorIs(t, err, redsync.ErrNotHeld)
	})
}

func TestMutexUnlockWithTooFewAnswersCannotTell(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		f.freeze(0, 1, 2)
		start := time.Now()
		ok, err := m.Unlock()
		assert.Equal(t, 400*time.Millisecond, time.Since(start))
		assert.False(t, ok)
		require.NotErrorIs(t, err, redsync.ErrLockAlreadyExpired)
		var nodes *multierror.Error
		require.ErrorAs(t, err, &nodes)
		assert.Len(t, nodes.Errors, 3, "an entry for each node that did not delete")
		var node *redsync.RedisError
		require.ErrorAs(t, err, &node)
		assert.ErrorContains(t, err, "no answer within 400ms")
		for _, n := range f.nodes {
			n.Thaw()
		}
		time.Sleep(time.Millisecond)
		assert.Zero(t, f.nodes.Keys("lock"), "the release went on")
	})
}

// A connection that breaks under a release leaves open what the node has done. Unlock
// answers by what the repetition finds.
func TestMutexUnlockWhoseConnectionBreaksAnswersByTheRepetition(t *testing.T) {
	for name, c := range map[string]struct {
		fault embedded.Fault
		after func(f field) // while the repetition is on its way
		want  time.Duration
		err   string // "": true
	}{
		"before the node had it":                 {fault: embedded.Fault{LoseCommand: true}, want: 50 * time.Millisecond},
		"after the node had it: nobody can tell": {fault: embedded.Fault{LoseReply: true}, want: 50 * time.Millisecond, err: "the key is gone now"},
		"after, and somebody else has it now": {
			fault: embedded.Fault{LoseReply: true}, want: 50 * time.Millisecond, err: "the reply to the release was lost",
			after: func(f field) {
				for _, n := range f.nodes[:3] {
					require.NoError(f, n.Set("lock", "another's"))
				}
			},
		},
		"and nobody listens any more": {
			fault: embedded.Fault{LoseCommand: true}, want: 50 * time.Millisecond, err: "connection refused",
			after: func(f field) {
				for _, n := range f.nodes[:3] {
					n.Kill()
				}
			},
		},
		"and the node says no more": {
			fault: embedded.Fault{LoseCommand: true}, want: 400 * time.Millisecond, err: "connection lost",
			after: func(f field) { f.freeze(0, 1, 2) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				m := f.held()
				for _, n := range f.nodes[:3] {
					n.On("evalsha", 1, c.fault)
				}
				if c.after != nil {
					go func() {
						time.Sleep(time.Millisecond)
						c.after(f)
					}()
				}
				start := time.Now()
				ok, err := m.Unlock()
				assert.Equal(t, c.want, time.Since(start))
				if c.err == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, c.err)
					require.NotErrorIs(t, err, redsync.ErrLockAlreadyExpired, "it is no proof")
					var node *redsync.RedisError
					require.ErrorAs(t, err, &node)
				}
				assert.Equal(t, c.err == "", ok)
			})
		})
	}
}

func TestMutexUnlockFailsAtOnceWhereNobodyListens(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		for _, n := range f.nodes[:3] {
			n.Kill()
		}
		time.Sleep(time.Millisecond) // the connections are known to be gone
		start := time.Now()
		ok, err := m.Unlock()
		assert.False(t, ok)
		require.ErrorContains(t, err, "connection refused")
		assert.Zero(t, time.Since(start))
	})
}

func TestMutexUnlockThatBreaksIsToldOnce(t *testing.T) {
	observe(t, func(f field, r *recorder) {
		m := f.held()
		r.forget()
		f.nodes[4].On("evalsha", 1, embedded.Fault{LoseReply: true})
		_, err := m.Unlock()
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		votes, errs := of[redsync.Vote](r)
		require.Len(t, votes, 5)
		assert.Equal(t, 4, votes[4].Node)
		assert.ErrorContains(t, errs[4], "the key is gone now")
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

// The value may come to a node that did not have it when it was asked.
func TestMutexAdoptedUnlockGoesOnWhereTheValueWasMissing(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		other := f.another()
		defer func() { _ = other.Close(f.Context()) }()
		f.nodes[1].On("set", 1, embedded.Fault{Delay: 3 * time.Second})
		m := f.NewMutex("lock")
		require.NoError(t, m.Lock())
		ok, err := other.NewMutex("lock", redsync.WithValue(m.Value())).Unlock()
		require.NoError(t, err)
		assert.True(t, ok)
		time.Sleep(5 * time.Second)
		assert.Zero(t, f.nodes.Keys("lock"))
	})
}

func TestMutexUnlockRepeatsUntilTheNodeIsBack(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithExpiry(time.Minute))
		f.nodes[0].Kill()
		ok, err := m.Unlock()
		require.NoError(t, err)
		assert.True(t, ok)
		time.Sleep(20 * time.Second)
		assert.Equal(t, 1, f.nodes.Keys("lock"))
		f.nodes[0].Restart(false)
		time.Sleep(3 * time.Second)
		assert.Zero(t, f.nodes.Keys("lock"))
	})
}

func TestMutexUnlockGivesUpOnANodeWhenItsKeyHasRunOut(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		f.nodes[0].Kill()
		_, err := m.Unlock()
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		start := time.Now()
		require.NoError(t, f.Close(f.Context()), "nothing is pending")
		assert.Zero(t, time.Since(start))
	})
}

func TestMutexReleaseSentInFullWhereTheScriptIsMissing(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		for _, n := range f.nodes {
			n.On("evalsha", 2, embedded.Fault{Err: "NOSCRIPT No matching script. Please use EVAL."})
		}
		ok, err := m.Extend()
		require.NoError(t, err)
		assert.True(t, ok)
		ok, err = m.Unlock()
		require.NoError(t, err)
		assert.True(t, ok)
		time.Sleep(time.Millisecond)
		assert.Zero(t, f.nodes.Keys("lock"))
		assert.LessOrEqual(t, 5+3, f.commands("eval"), "a round that is decided sends nothing more")
	})
}

// Extend's decisions.

func TestMutexExtendMovesUntil(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		for range 10 {
			time.Sleep(7 * time.Second)
			start := time.Now()
			ok, err := m.Extend()
			require.NoError(t, err)
			assert.True(t, ok)
			assert.Equal(t, 8*time.Second-82*time.Millisecond, m.Until().Sub(start))
		}
		assert.Equal(t, 5, f.nodes.Keys("lock"))
	})
}

func TestMutexExtendUnconfirmedLeavesTheOldUntil(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		until := m.Until()
		for _, n := range f.nodes[:3] {
			n.On("evalsha", 1, embedded.Fault{LoseCommand: true})
		}
		time.Sleep(time.Second)
		ok, err := m.Extend()
		assert.False(t, ok)
		require.ErrorIs(t, err, redsync.ErrExtendFailed)
		require.NotErrorIs(t, err, redsync.ErrLockLost)
		assert.Equal(t, until, m.Until())
		ok, err = m.Extend()
		require.NoError(t, err, "it may be tried again")
		assert.True(t, ok)
	})
}

func TestMutexExtendWaitsForSlowNodesUntilTheOldUntil(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		f.freeze(0, 1, 2, 3, 4) // as a whole: a single connection that is slow would be replaced
		time.AfterFunc(3*time.Second, func() { f.thaw(0, 1, 2, 3, 4) })
		start := time.Now()
		ok, err := m.Extend()
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, 3*time.Second, time.Since(start))
		assert.Equal(t, 8*time.Second-82*time.Millisecond, m.Until().Sub(start))
	})
}

func TestMutexExtendWithAFrozenMajorityLosesTheLockAtUntil(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithExpiry(3 * time.Second))
		until := m.Until()
		f.freeze(1, 2, 3)
		ok, err := m.Extend()
		assert.Equal(t, until.UnixNano(), time.Now().UnixNano())
		assert.False(t, ok)
		require.ErrorIs(t, err, redsync.ErrLockLost)
		require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
	})
}

func TestMutexExtendEndsWithItsContext(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		f.freeze(1, 2, 3)
		reason := errors.New("the user went away")
		ctx, cancel := context.WithTimeoutCause(f.Context(), time.Second, reason)
		defer cancel()
		start := time.Now()
		ok, err := m.ExtendContext(ctx)
		assert.Equal(t, time.Second, time.Since(start))
		assert.False(t, ok)
		require.ErrorIs(t, err, redsync.ErrExtendFailed)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, reason)
		assert.Positive(t, m.Remaining())
	})
}

func TestMutexUnlockAbandonsAnExtendUnderWay(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithSetNXOnExtend())
		f.freeze(1, 2, 3)
		var wg sync.WaitGroup
		wg.Go(func() {
			ok, err := m.Extend()
			assert.False(t, ok)
			assert.ErrorIs(t, err, redsync.ErrNotHeld)
		})
		time.Sleep(100 * time.Millisecond)
		_, err := m.Unlock()
		require.Error(t, err)
		wg.Wait()
		for _, n := range f.nodes {
			n.Thaw()
		}
		time.Sleep(time.Second)
		assert.Zero(t, f.nodes.Keys("lock"))
	})
}

func TestMutexExtendTakenByAnotherNamesTheNodes(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		for _, n := range f.nodes[:3] {
			require.NoError(t, n.Set("lock", "another"))
		}
		_, err := m.Extend()
		require.ErrorIs(t, err, redsync.ErrLockLost)
		var taken *redsync.ErrTaken
		require.ErrorAs(t, err, &taken)
		assert.Equal(t, []int{0, 1, 2}, taken.Nodes)
	})
}

func TestMutexExtendHealsWithoutCountingWhatItHealed(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithSetNXOnExtend())
		f.lose(0, 1, 2)
		until := m.Until()
		time.Sleep(time.Second)
		ok, err := m.Extend()
		assert.False(t, ok)
		require.ErrorIs(t, err, redsync.ErrExtendFailed)
		assert.Equal(t, until, m.Until())
		time.Sleep(time.Millisecond)
		assert.Equal(t, 5, f.nodes.Keys("lock"))
		ok, err = m.Extend()
		require.NoError(t, err, "the next round counts them")
		assert.True(t, ok)
	})
}

func TestMutexHealingProvesALossByAnotherValueOnly(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithSetNXOnExtend())
		f.lose(0, 1, 2)
		ok, err := m.Valid()
		assert.False(t, ok)
		require.NotErrorIs(t, err, redsync.ErrLockLost)
		for _, n := range f.nodes[:3] {
			require.NoError(t, n.Set("lock", "another"))
		}
		_, err = m.Valid()
		require.ErrorIs(t, err, redsync.ErrLockLost)
	})
}

func TestMutexHealingExtendLostOnTheWayIsReleasedAfterAll(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithSetNXOnExtend())
		f.lose(0)
		// The extend is executed long after Unlock's release.
		f.nodes[0].On("evalsha", 1, embedded.Fault{LoseCommand: true, Then: func(args []string) {
			go func() {
				time.Sleep(300 * time.Millisecond)
				_ = f.nodes[0].Set("lock", args[3])
			}()
		}})
		ok, err := m.Extend()
		require.NoError(t, err)
		assert.True(t, ok)
		ok, err = m.Unlock()
		require.NoError(t, err)
		assert.True(t, ok)
		time.Sleep(301 * time.Millisecond)
		assert.Equal(t, 1, f.nodes.Keys("lock"))
		time.Sleep(2 * time.Second)
		assert.Zero(t, f.nodes.Keys("lock"))
	})
}

// Valid's decisions.

func TestMutexValidWithTooFewAnswersIsNotTrueAndLosesNothing(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		f.freeze(0, 1, 2)
		start := time.Now()
		ok, err := m.Valid()
		assert.Equal(t, 400*time.Millisecond, time.Since(start))
		assert.False(t, ok)
		require.NotErrorIs(t, err, redsync.ErrLockLost)
		var nodes *multierror.Error
		require.ErrorAs(t, err, &nodes)
		assert.Positive(t, m.Remaining())
	})
}

// Lock.

func TestMutexLockTakenSaysWhere(t *testing.T) {
	play(t, func(f field) {
		f.held()
		err := process(f.nodes).NewMutex("lock").TryLock()
		require.ErrorIs(t, err, redsync.ErrFailed)
		var taken *redsync.ErrTaken
		require.ErrorAs(t, err, &taken)
		var node *redsync.RedisError
		assert.NotErrorAs(t, err, &node, "no node is down")
	})
}

func TestMutexLockTakenWithDeadNodesSaysBoth(t *testing.T) {
	play(t, func(f field) {
		f.held()
		f.nodes[0].Kill()
		f.nodes[1].Kill()
		err := process(f.nodes).NewMutex("lock").TryLock()
		require.ErrorIs(t, err, redsync.ErrFailed)
		var taken *redsync.ErrTaken
		require.ErrorAs(t, err, &taken)
		assert.NotEmpty(t, taken.Nodes)
		var down *redsync.RedisError
		require.ErrorAs(t, err, &down)
		assert.Contains(t, []int{0, 1}, down.Node)
		assert.NotContains(t, err.Error(), "\n")
		assert.NotContains(t, err.Error(), "had decided")
	})
}

func TestMutexLockWithoutAQuorumIsNotTakenAlthoughOneNodeRefuses(t *testing.T) {
	play(t, func(f field) {
		f.held()
		f.nodes[0].Kill()
		f.nodes[1].Kill()
		f.freeze(2, 3)
		start := time.Now()
		err := process(f.nodes).NewMutex("lock").TryLock()
		assert.Equal(t, 400*time.Millisecond, time.Since(start), "the frozen ones might answer")
		var taken *redsync.ErrTaken
		require.NotErrorAs(t, err, &taken)
		var down *redsync.RedisError
		require.ErrorAs(t, err, &down)
	})
}

func TestMutexLockUndecidedAtItsDeadlineSaysWhatItKnows(t *testing.T) {
	play(t, func(f field) {
		f.held()
		f.lose(2)
		f.freeze(3, 4)
		start := time.Now()
		err := process(f.nodes).NewMutex("lock").TryLock()
		assert.Equal(t, 400*time.Millisecond, time.Since(start))
		var taken *redsync.ErrTaken
		require.ErrorAs(t, err, &taken)
		assert.Equal(t, []int{0, 1}, taken.Nodes)
		for i := range 5 {
			if i < 3 {
				assert.NotContains(t, err.Error(), named(i))
			} else {
				assert.ErrorContains(t, err, named(i)+"no answer within 400ms")
			}
		}
	})
}

func TestMutexLockWithDeadNodesSaysWhichAndNotTaken(t *testing.T) {
	play(t, func(f field) {
		for _, n := range f.nodes[2:] {
			n.Kill()
		}
		err := f.NewMutex("lock").TryLock()
		require.ErrorIs(t, err, redsync.ErrFailed)
		var taken *redsync.ErrTaken
		require.NotErrorAs(t, err, &taken)
		for i := 2; i < 5; i++ {
			assert.ErrorContains(t, err, named(i)+fmt.Sprintf("dial 127.0.0.1:%d: connection refused", 7001+i))
		}
	})
}

func TestMutexLockMakesItsTriesWithDelaysBetween(t *testing.T) {
	play(t, func(f field) {
		f.held(redsync.WithExpiry(time.Hour))
		r := &recorder{}
		m := process(f.nodes).NewMutex("lock", redsync.WithTries(5), redsync.WithRetryDelay(time.Second), redsync.WithObserver(r))
		before := f.commands("set")
		start := time.Now()
		require.ErrorIs(t, m.Lock(), redsync.ErrFailed)
		assert.Equal(t, 4*time.Second, time.Since(start))
		synctest.Wait()
		assert.Equal(t, before+5, f.commands("set"), "the first attempt asks nobody who waits")
		attempts, _ := of[redsync.Attempt](r)
		perTry := map[int]int{}
		for _, a := range attempts {
			perTry[a.Try]++
		}
		// The first try is that attempt, the one that enters the queues, and the one
		// that shows half a second later that the waiter is alive.
		assert.Equal(t, map[int]int{1: 3, 2: 2, 3: 2, 4: 2, 5: 1}, perTry)
	})
}

func TestMutexLockDelayFuncIsToldTheTries(t *testing.T) {
	play(t, func(f field) {
		f.held(redsync.WithExpiry(time.Hour))
		var seen []int
		m := process(f.nodes).NewMutex("lock", redsync.WithTries(4), redsync.WithRetryDelayFunc(func(tries int) time.Duration {
			seen = append(seen, tries)
			return time.Duration(tries) * time.Second
		}))
		start := time.Now()
		require.ErrorIs(t, m.Lock(), redsync.ErrFailed)
		assert.Equal(t, []int{1, 2, 3}, seen)
		assert.Equal(t, 6*time.Second, time.Since(start))
	})
}

func TestMutexLockWithoutLimitWaitsForTheHolder(t *testing.T) {
	play(t, func(f field) {
		f.held(redsync.WithExpiry(time.Minute))
		start := time.Now()
		require.NoError(t, process(f.nodes).NewMutex("lock", redsync.WithTries(0)).Lock())
		assert.GreaterOrEqual(t, time.Since(start), 59*time.Second)
		assert.LessOrEqual(t, time.Since(start), 61*time.Second)
	})
}

func TestMutexLockContextDoneBeforehandSendsNothing(t *testing.T) {
	play(t, func(f field) {
		reason := errors.New("not today")
		ctx, cancel := context.WithCancelCause(f.Context())
		cancel(reason)
		err := f.NewMutex("lock").LockContext(ctx)
		require.ErrorIs(t, err, redsync.ErrFailed)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, reason)
		assert.Zero(t, f.traffic())
	})
}

func TestMutexLockContextEndedWhileTakenSaysBoth(t *testing.T) {
	play(t, func(f field) {
		f.held()
		ctx, cancel := context.WithTimeout(f.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := process(f.nodes).NewMutex("lock").LockContext(ctx)
		assert.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, err, redsync.ErrFailed)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var taken *redsync.ErrTaken
		require.ErrorAs(t, err, &taken)
	})
}

func TestMutexLockNilContextIsBackground(t *testing.T) {
	play(t, func(f field) {
		m := f.NewMutex("lock")
		require.NoError(t, m.LockContext(nil)) //nolint:staticcheck // redsync takes it, so do we
		for _, operation := range []func(context.Context) (bool, error){m.ExtendContext, m.ValidContext, m.UnlockContext} {
			ok, err := operation(nil)
			require.NoError(t, err)
			assert.True(t, ok)
		}
	})
}

func TestMutexLockGivesEachAttemptAFreshValue(t *testing.T) {
	play(t, func(f field) {
		var mu sync.Mutex
		values := map[string]int{}
		for _, n := range f.nodes {
			note := func(value string) {
				mu.Lock()
				defer mu.Unlock()
				values[value]++
			}
			n.On("set", 100, embedded.Fault{Then: func(args []string) { note(args[1]) }})
			n.On("evalsha", 100, embedded.Fault{Then: func(args []string) {
				if len(args) > 6 && strings.Contains(args[6], ":") { // a waiter's acquire, no release
					note(args[4])
				}
			}})
		}
		for _, n := range f.nodes[:3] {
			require.NoError(t, n.Set("lock", "another"))
		}
		require.Error(t, f.NewMutex("lock", redsync.WithTries(6)).Lock())
		synctest.Wait()
		assert.GreaterOrEqual(t, len(values), 6)
		for value, nodes := range values {
			assert.Equal(t, 5, nodes, value)
			assert.GreaterOrEqual(t, len(value)*5, 128, "bits of base 32")
		}
	})
}

func TestMutexLockRefusesAValueUsedBefore(t *testing.T) {
	play(t, func(f field) {
		value := rand.Text()
		constant := repeating(value)
		m := f.NewMutex("lock", constant)
		require.NoError(t, m.Lock())
		_, err := m.Unlock()
		require.NoError(t, err)
		err = f.NewMutex("other", constant).Lock()
		require.ErrorIs(t, err, redsync.ErrFailed)
		assert.ErrorContains(t, err, fmt.Sprintf("WithGenValueFunc returned %q again", value))
	})
}

func TestMutexLockRefusesAValueUsedByAnotherRedsync(t *testing.T) {
	play(t, func(f field) {
		constant := repeating(rand.Text())
		a := f.NewMutex("lock", constant)
		require.NoError(t, a.Lock())
		other := process(f.nodes)
		defer func() { _ = other.Close(f.Context()) }()
		require.ErrorContains(t, other.NewMutex("lock", constant).TryLock(), "again")
		synctest.Wait()
		assert.Equal(t, 5, f.nodes.Keys("lock"), "the holder's keys")
	})
}

func TestMutexLockRefusesAValueWhoseReleaseIsOnItsWay(t *testing.T) {
	play(t, func(f field) {
		constant := repeating(rand.Text())
		for _, n := range f.nodes[2:] {
			n.On("set", 1, embedded.Fault{Delay: 17 * time.Second})
		}
		a := f.NewMutex("lock", constant)
		require.Error(t, a.TryLock())
		time.Sleep(16 * time.Second)
		require.ErrorContains(t, a.TryLock(), "again")
	})
}

// repeating is a generator that always returns value.
func repeating(value string) redsync.Option {
	return redsync.WithGenValueFunc(func() (string, error) { return value, nil })
}

func TestMutexLockReportsTheGeneratorsError(t *testing.T) {
	play(t, func(f field) {
		broken := errors.New("no entropy")
		err := f.NewMutex("lock", redsync.WithGenValueFunc(func() (string, error) { return "", broken })).Lock()
		require.ErrorIs(t, err, broken)
		require.ErrorIs(t, err, redsync.ErrFailed)
		err = f.NewMutex("lock", redsync.WithGenValueFunc(func() (string, error) { return "", nil })).Lock()
		assert.ErrorContains(t, err, "empty value")
		assert.Zero(t, f.traffic())
	})
}

func TestMutexNodeDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		options []redsync.Option
		want    time.Duration
	}{
		"5 % of the default expiry":       {nil, 400 * time.Millisecond},
		"at least 50 ms":                  {[]redsync.Option{redsync.WithExpiry(500 * time.Millisecond)}, 50 * time.Millisecond},
		"at most half of the validity":    {[]redsync.Option{redsync.WithExpiry(22 * time.Millisecond), redsync.WithDriftFactor(0)}, 10 * time.Millisecond},
		"by WithTimeoutFactor":            {[]redsync.Option{redsync.WithTimeoutFactor(0.25)}, 2 * time.Second},
		"by WithNodeTimeout":              {[]redsync.Option{redsync.WithNodeTimeout(7 * time.Millisecond)}, 7 * time.Millisecond},
		"half of the longest of validity": {[]redsync.Option{redsync.WithTimeoutFactor(1), redsync.WithDriftFactor(0)}, 3999 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				f.freeze(0, 2, 4)
				start := time.Now()
				require.ErrorIs(t, f.NewMutex("lock", c.options...).TryLock(), redsync.ErrFailed)
				assert.Equal(t, c.want, time.Since(start))
			})
		})
	}
}

func TestMutexWithoutFailFastWaitsForEveryNode(t *testing.T) {
	play(t, func(f field) {
		for i, n := range f.nodes {
			n.On("set", 1, embedded.Fault{Delay: time.Duration(i+1) * 10 * time.Millisecond})
		}
		start := time.Now()
		m := f.NewMutex("lock", redsync.WithFailFast(false))
		require.NoError(t, m.Lock())
		assert.Equal(t, 50*time.Millisecond, time.Since(start))
		assert.Equal(t, 5, f.nodes.Keys("lock"))
		f.freeze(1)
		start = time.Now()
		ok, err := m.Extend()
		require.NoError(t, err)
		assert.True(t, ok, "the outcome is that of the quorum")
		assert.Equal(t, 400*time.Millisecond, time.Since(start), "the node deadline")
	})
}

func TestMutexWithoutFailFastDecidesInTime(t *testing.T) {
	for name, operation := range map[string]func(*redsync.Mutex) (bool, error){
		"Extend": (*redsync.Mutex).Extend,
		"Unlock": (*redsync.Mutex).Unlock,
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				m := f.held(redsync.WithFailFast(false))
				time.Sleep(m.Remaining() - 200*time.Millisecond)
				f.freeze(4)
				start := time.Now()
				ok, err := operation(m)
				require.NoError(t, err, "decided before Until, whatever the frozen node does")
				assert.True(t, ok)
				assert.Equal(t, 400*time.Millisecond, time.Since(start))
			})
		})
	}
}

func TestMutexReleasesATermFoundLostWhileAnotherGoroutineLocks(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, m.Lock()) })
		time.Sleep(10 * time.Millisecond) // it waits
		former := redsync.PeekValue(m)
		f.lose(0, 1, 2)
		_, err := m.Extend()
		require.ErrorIs(t, err, redsync.ErrLockLost)
		wg.Wait()
		_, err = m.Unlock()
		require.NoError(t, err)
		time.Sleep(time.Second)
		for i, n := range f.nodes {
			value, _ := n.Get("lock")
			assert.NotEqual(t, former, value, "node %d", i)
		}
	})
}

func TestMutexAdoptedExtendedTwiceAtOnceMovesUntilTwice(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		a := f.NewMutex("lock", redsync.WithValue(m.Value()), redsync.WithFailFast(false))
		f.freeze(4)
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
		assert.Equal(t, 8*time.Second-82*time.Millisecond, a.Until().Sub(start))
		wg.Wait()
	})
}

// An observer that takes its time stands for any caller that is held up.
type slow struct{ by time.Duration }

func (s slow) ObserveAttempt(redsync.Attempt) { time.Sleep(s.by) }

func TestLockThatIsHeldUpBeyondItsValidityFails(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		m := f.NewMutex("lock", redsync.WithObserver(slow{10 * time.Second}))
		err := m.Lock()
		require.ErrorIs(t, err, redsync.ErrFailed)
		require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
		require.ErrorIs(t, m.Err(), redsync.ErrNotHeld)
	})
}

// Bad input.

func TestMutexBadInputIsAnErrorThatNamesIt(t *testing.T) {
	for want, option := range map[string]redsync.Option{
		"WithExpiry(-1s) is out of range":                redsync.WithExpiry(-time.Second),
		"WithExpiry(2ms) is out of range":                redsync.WithExpiry(2 * time.Millisecond),
		"WithTries(-1) is out of range: 0 (no limit)":    redsync.WithTries(-1),
		"WithRetryDelay(-1ns) is out of range: 0 or":     redsync.WithRetryDelay(-1),
		"WithRetryDelayFunc(nil)":                        redsync.WithRetryDelayFunc(nil),
		"WithGenValueFunc(nil)":                          redsync.WithGenValueFunc(nil),
		"WithDriftFactor(1) is out of range: 0 <= fac":   redsync.WithDriftFactor(1),
		"WithDriftFactor(-0.5) is out of range":          redsync.WithDriftFactor(-0.5),
		"WithTimeoutFactor(0) is out of range: 0 < fact": redsync.WithTimeoutFactor(0),
		"WithTimeoutFactor(2) is out of range":           redsync.WithTimeoutFactor(2),
		"WithNodeTimeout(0s) is out of range":            redsync.WithNodeTimeout(0),
		"WithNodeTimeout(8s) is out of range: 0 < time":  redsync.WithNodeTimeout(8 * time.Second),
		"option #0 is nil":                               nil,
		"nil OptionFunc":                                 redsync.OptionFunc(nil),
	} {
		t.Run(want, func(t *testing.T) {
			play(t, func(f field) {
				for _, m := range []*redsync.Mutex{f.NewMutex("lock", option), f.With(option).NewMutex("lock")} {
					refuses(t, m, want)
				}
				assert.Zero(t, f.traffic())
			})
		})
	}
}

// refuses checks that every operation of m fails saying what.
func refuses(t *testing.T, m *redsync.Mutex, what string) {
	t.Helper()
	require.ErrorContains(t, m.Lock(), what)
	require.ErrorContains(t, m.TryLock(), what)
	for name, operation := range operations(m) {
		ok, err := operation()
		assert.False(t, ok, name)
		require.ErrorContains(t, err, what, name)
	}
	assert.Zero(t, m.Until())
	assert.Zero(t, m.Remaining())
}

func TestMutexNegativeDelayOfAFunctionIsAnError(t *testing.T) {
	play(t, func(f field) {
		f.held()
		m := process(f.nodes).NewMutex("lock", redsync.WithRetryDelayFunc(func(int) time.Duration { return -time.Second }))
		require.ErrorContains(t, m.Lock(), "WithRetryDelayFunc(-1s) is out of range: 0 or more")
	})
}

func TestMutexNames(t *testing.T) {
	for _, name := range []string{"a", " ", "a b\n\r\tc", "{a}", "a}b", "{}", "}:fence", "x:fence", strings.Repeat("x", 64<<10), "\x00\xff", "日本"} {
		play(t, func(f field) {
			m := f.NewMutex(name)
			require.NoError(t, m.Lock())
			ok, err := m.Extend()
			require.NoError(t, err)
			assert.True(t, ok)
			ok, err = m.Unlock()
			require.NoError(t, err)
			assert.True(t, ok)
		})
	}
	for name, want := range map[string]string{
		"":          "must not be empty",
		"{a}:fence": "reserved",
		"{}:queue":  "reserved",
	} {
		play(t, func(f field) { refuses(t, f.NewMutex(name), want) })
	}
}

func TestZeroAndPoollessValuesFailWithoutPanic(t *testing.T) {
	refuses(t, new(redsync.Mutex), "no pools")
	refuses(t, new(redsync.Redsync).NewMutex("lock"), "no pools")
	refuses(t, redsync.New().NewMutex("lock"), "no pools")
	require.ErrorIs(t, redsync.New().NewMutex("lock").Lock(), redsync.ErrNoPools)
	var failed *redsync.Redsync // of an Open that failed
	require.ErrorIs(t, failed.NewMutex("lock").Lock(), redsync.ErrNoPools)
	require.ErrorIs(t, failed.With(redsync.WithFair()).NewMutex("lock").TryLock(), redsync.ErrNoPools)
	require.ErrorIs(t, failed.Do(t.Context(), "lock", func(context.Context) error { return nil }), redsync.ErrNoPools)
	require.ErrorIs(t, failed.Current(t.Context(), redsync.Sequencer{Name: "lock", Value: "value"}), redsync.ErrNoPools)
	refuses(t, redsync.New(pool.New(nil)).NewMutex("lock", redsync.WithValue("v")), "nil client")
	refuses(t, redsync.New(nil).NewMutex("lock"), "pool #0: it is nil")
	for _, rs := range []*redsync.Redsync{nil, new(redsync.Redsync), redsync.New(), redsync.New(nil)} {
		require.NoError(t, rs.Close(t.Context()))
	}
}

// Many goroutines.

func TestMutexUsedByManyGoroutinesAtOnce(t *testing.T) {
	play(t, func(f field) {
		m := f.NewMutex("lock", redsync.WithTries(0), redsync.WithExpiry(time.Second), redsync.WithRetryDelay(time.Millisecond))
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for range 10 {
					switch i % 4 {
					case 0:
						if m.TryLock() == nil {
							_, _ = m.Unlock()
						}
					case 1:
						_, _ = m.Extend()
					case 2:
						_, _ = m.Valid()
					case 3:
						_, _, _, _ = m.Until(), m.Remaining(), m.Value(), m.Name()
					}
					time.Sleep(time.Duration(i+1) * time.Millisecond)
				}
			})
		}
		wg.Wait()
		_, _ = m.Unlock()
		time.Sleep(2 * time.Second)
		assert.Zero(t, f.nodes.Keys("lock"))
	})
}

func TestMutexSharedByGoroutinesExcludesThem(t *testing.T) {
	play(t, func(f field) {
		m := f.NewMutex("lock", redsync.WithTries(0), redsync.WithRetryDelay(3*time.Millisecond))
		var inside, count int
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 20 {
					if !assert.NoError(t, m.Lock()) {
						return
					}
					inside++
					assert.Equal(t, 1, inside)
					time.Sleep(time.Millisecond)
					inside--
					count++
					_, err := m.Unlock()
					assert.NoError(t, err)
				}
			})
		}
		wg.Wait()
		assert.Equal(t, 160, count)
	})
}
