package redsync_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file shows the events of attempts and of votes.

func TestObserveAttempt(t *testing.T) {
	taken := func(err error) bool { return errors.As(err, new(*redsync.ErrTaken)) }
	failed := func(err error) bool { return !taken(err) && errors.As(err, new(*redsync.RedisError)) }
	late := func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }
	acquired := func(err error) bool { return err == nil }
	for name, c := range map[string]struct {
		given func(f field)
		want  observe.Attempt
		err   func(error) bool
	}{
		"the third grant decides": {
			func(f field) { f.delays("set") },
			observe.Attempt{Took: 20 * time.Millisecond, Granted: 3},
			acquired,
		},
		"the third refusal decides": {
			func(f field) {
				for _, n := range f.nodes {
					_ = n.Set("lock", "another")
				}
				f.delays("set")
			},
			observe.Attempt{Took: 20 * time.Millisecond, Refused: 3},
			taken,
		},
		"two nodes are down": {
			func(f field) {
				f.kill(0, 1)
				f.delays("set")
			},
			observe.Attempt{Took: 40 * time.Millisecond, Granted: 3, Failed: 2},
			acquired,
		},
		"three nodes are down": {
			func(f field) {
				f.kill(1, 2, 3)
				for _, n := range f.nodes {
					n.On("set", 1, embedded.Fault{Delay: time.Second})
				}
			},
			observe.Attempt{Failed: 3},
			failed,
		},
		"taken where a node is down": {
			func(f field) {
				f.kill(0)
				_, _, _ = f.nodes[1].Set("lock", "another"), f.nodes[2].Set("lock", "another"), f.nodes[3].Set("lock", "another")
				f.delays("set")
			},
			observe.Attempt{Took: 30 * time.Millisecond, Refused: 3, Failed: 1},
			taken,
		},
		"given up undecided": {
			func(f field) { f.freeze(0, 2, 4) },
			observe.Attempt{Took: patience, Granted: 2, Failed: 3},
			failed,
		},
		"ended by the context": {
			func(f field) { f.freeze(0, 1, 2, 4) },
			observe.Attempt{Took: 300 * time.Millisecond, Granted: 1}, // the others have not failed
			late,
		},
	} {
		t.Run(name, func(t *testing.T) {
			observing(t, func(f field, r *redsynctest.Recorder) {
				c.given(f)
				ctx := f.Context()
				if c.want.Took == 300*time.Millisecond {
					var cancel func()
					ctx, cancel = context.WithTimeout(ctx, c.want.Took)
					defer cancel()
				}
				locked := f.NewMutex("lock").TryLockContext(ctx)
				got, err := only[observe.Attempt](f.T, r)
				c.want.Name, c.want.Mode, c.want.Try = "lock", observe.Plain, 1
				assert.Equal(t, c.want, got)
				assert.True(t, c.err(err), "%v", err)
				assert.Equal(t, locked == nil, err == nil)
			})
		})
	}
}

func TestObserveAttemptsAndAcquiredOverSeveralTries(t *testing.T) {
	observing(t, func(f field, r *redsynctest.Recorder) {
		for _, n := range f.nodes {
			require.NoError(f, n.Set("lock", "another"))
		}
		time.AfterFunc(2500*time.Millisecond, func() { f.lose(0, 1, 2, 3, 4) })
		require.NoError(f, f.NewMutex("lock", redsync.WithRetryDelay(400*time.Millisecond)).Lock())
		attempts, errs := of[observe.Attempt](r)
		require.Len(f, attempts, 9)
		for i, a := range attempts {
			assert.Equal(t, max(i, 1), a.Try, "the first try is two attempts: a plain one, and one that queues")
			assert.Equal(t, i == 8, errs[i] == nil)
		}
		acquired, _ := only[observe.Acquired](f.T, r)
		assert.Equal(t, observe.Acquired{
			Name: "lock", Mode: observe.Plain, Took: 2800 * time.Millisecond, Waited: 2800 * time.Millisecond, Tries: 8, Left: validity,
			Call: acquired.Call,
		}, acquired)
	})
}

func TestObserveVotesTellsEveryNodeOnceAndWhetherItCounts(t *testing.T) {
	observing(t, func(f field, r *redsynctest.Recorder) {
		m := f.NewMutex("lock")
		for _, c := range []struct {
			op, command string
			do          func() error
		}{
			{"lock", "set", m.Lock},
			{"extend", "evalsha", func() error { _, err := m.Extend(); return err }},
			{"valid", "evalsha", func() error { _, err := m.Valid(); return err }},
			{"unlock", "evalsha", func() error { _, err := m.Unlock(); return err }},
		} {
			forget(r)
			f.delays(c.command)
			require.NoError(f, c.do(), c.op)
			time.Sleep(time.Second)
			votes, errs := of[observe.Vote](r)
			require.Len(f, votes, 5, c.op)
			for i, v := range votes {
				assert.Equal(t, observe.Vote{
					Name: "lock", Mode: observe.Plain, Node: i, Op: c.op, Took: time.Duration(i) * 10 * time.Millisecond, Late: i > 2,
				}, v)
				assert.NoError(t, errs[i])
			}
		}
	})
}

func TestObserveVotesOfNodesThatDoNotGrant(t *testing.T) {
	observing(t, func(f field, r *redsynctest.Recorder) {
		require.NoError(f, f.nodes[0].Set("lock", "another"))
		f.kill(1)
		f.nodes[2].On("set", 1, embedded.Fault{Err: "ERR no"})
		f.freeze(3)
		require.Error(f, f.NewMutex("lock").TryLock())
		time.Sleep(20 * time.Second)
		votes, errs := of[observe.Vote](r)
		got := map[int]error{}
		for i, v := range votes {
			if v.Op == "lock" {
				assert.NotContains(t, got, v.Node)
				got[v.Node] = errs[i]
				assert.Equal(t, v.Node == 3, v.Late)
				if v.Node == 3 {
					assert.Equal(t, 5*time.Second, v.Took, "the longest that a connection is trusted")
				}
			}
		}
		require.Len(f, got, 5)
		var taken *redsync.ErrNodeTaken
		require.ErrorAs(f, got[0], &taken)
		var failed *redsync.RedisError
		for _, i := range []int{1, 2, 3} {
			require.ErrorAs(f, got[i], &failed)
			assert.Equal(t, i, failed.Node)
		}
		assert.ErrorContains(t, got[2], "ERR no")
		assert.NoError(t, got[4])
	})
}

func TestObserveVotesOfTheReleaseOfAFailedAttempt(t *testing.T) {
	observing(t, func(f field, r *redsynctest.Recorder) {
		for _, n := range f.nodes[:3] {
			require.NoError(f, n.Set("lock", "another"))
		}
		require.Error(f, f.NewMutex("lock", redsync.WithFailFast(false)).TryLock())
		time.Sleep(time.Second)
		ops := map[string]int{}
		votes, _ := of[observe.Vote](r)
		for _, v := range votes {
			ops[v.Op]++
		}
		assert.Equal(t, map[string]int{"lock": 4 * 5, "unlock": 4 * 5}, ops, "two of five nodes grant the lock. To TryLock the votes look split, so it makes four attempts")
		released, _ := of[observe.Released](r)
		assert.Empty(t, released)
	})
}

func TestObserveVoteOfASecondPoolOnOneServerIsNoGrant(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		twins := process(append(embedded.Nodes{f.nodes[0]}, f.nodes[:4]...))
		defer twins.Close(f.Context())
		for _, n := range f.nodes[1:] {
			n.On("evalsha", 1, embedded.Fault{Delay: 10 * time.Millisecond})
		}
		r := &redsynctest.Recorder{}
		ok, err := twins.NewMutex("lock", redsync.WithValue(m.Value()), redsync.WithObserver(r)).Extend()
		require.NoError(t, err)
		assert.True(t, ok)
		var granted []int
		votes, errs := of[observe.Vote](r)
		for i, v := range votes {
			switch {
			case errs[i] == nil && !v.Late:
				granted = append(granted, v.Node)
			case !v.Late:
				assert.ErrorContains(t, errs[i], "it is the same server as another node")
			}
		}
		assert.Len(t, granted, 3, "%v", votes)
	})
}

// An observer can tell which attempt the error of a call comes from.
func TestErrorOfLockHasTheErrorThatTheObserverWasTold(t *testing.T) {
	for name, c := range map[string]struct {
		options []redsync.Option
		lock    func(*redsync.Mutex) error
	}{
		"TryLock":       {nil, (*redsync.Mutex).TryLock},
		"TryLock, fair": {[]redsync.Option{redsync.WithFair()}, (*redsync.Mutex).TryLock},
		"Lock":          {[]redsync.Option{redsync.WithTries(2)}, (*redsync.Mutex).Lock},
	} {
		t.Run(name, func(t *testing.T) {
			observing(t, func(f field, r *redsynctest.Recorder) {
				for _, n := range f.nodes {
					require.NoError(f, n.Set("lock", "another"))
				}
				err := c.lock(f.NewMutex("lock", c.options...))
				_, told := of[observe.Attempt](r)
				require.NotEmpty(f, told)
				require.Error(f, told[len(told)-1])
				assert.ErrorIs(f, err, told[len(told)-1])
			})
		})
	}
}

// While the release of an Unlock is sent again for an hour, nothing keeps the Unlock's context in memory.
func TestVotesDoNotKeepTheContextOfACall(t *testing.T) {
	onKit(t, func(k kit) {
		k.meet()
		type key struct{}
		unlock := func(m *redsync.Mutex) weak.Pointer[[1 << 20]byte] {
			large := new([1 << 20]byte)
			_, err := m.UnlockContext(context.WithValue(k.Context(), key{}, large))
			require.NoError(k, err)
			return weak.Make(large)
		}
		m := k.With(redsync.WithObserver(onlyVotes{})).NewMutex("lock", redsync.WithExpiry(time.Hour), redsync.WithNodeTimeout(time.Second))
		require.NoError(k, m.Lock())
		k.down(4)
		kept := unlock(m)
		time.Sleep(time.Minute)
		other := k.NewMutex("other") // a connection keeps its last batch until the next reply
		require.NoError(k, other.Lock())
		k.unlock(other)
		for i := 0; i < 10 && kept.Value() != nil; i++ {
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
		assert.Nil(k, kept.Value())
	})
}

// onlyVotes is an observer of votes that keeps none.
type onlyVotes struct{}

func (onlyVotes) ObserveVote(context.Context, observe.Vote) {}
