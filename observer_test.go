package redsync_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// A recorder is an observer that keeps every event. Errors are kept beside the
// events, so that the rest of an event can be compared as a whole.
type recorder struct {
	mu     sync.Mutex
	events []any
	errs   []error
}

func (r *recorder) note(event any, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events, r.errs = append(r.events, event), append(r.errs, err)
}

func (r *recorder) ObserveAttempt(e redsync.Attempt) {
	err := e.Err
	e.Err = nil
	r.note(e, err)
}

func (r *recorder) ObserveVote(e redsync.Vote) {
	err := e.Err
	e.Err = nil
	r.note(e, err)
}

func (r *recorder) ObserveAcquired(e redsync.Acquired) { r.note(e, nil) }

func (r *recorder) ObserveExtended(e redsync.Extended) {
	err := e.Err
	e.Err = nil
	r.note(e, err)
}

func (r *recorder) ObserveReleased(e redsync.Released) {
	err := e.Err
	e.Err = nil
	r.note(e, err)
}

func (r *recorder) ObserveDetached(e redsync.Detached) { r.note(e, nil) }

func (r *recorder) ObserveLost(e redsync.Lost) {
	err := e.Err
	e.Err = nil
	r.note(e, err)
}

func (r *recorder) ObserveUnsettled(e redsync.Unsettled) {
	err := e.Err
	e.Err = nil
	r.note(e, err)
}

func (r *recorder) ObserveMissed(e redsync.Missed) { r.note(e, nil) }

// of returns the events of one kind, in order, with their errors.
func of[E any](r *recorder) (events []E, errs []error) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, e := range r.events {
		if e, ok := e.(E); ok {
			events, errs = append(events, e), append(errs, r.errs[i])
		}
	}
	return events, errs
}

// only returns the one event of a kind, with its error.
func only[E any](t *testing.T, r *recorder) (E, error) {
	t.Helper()
	events, errs := of[E](r)
	require.Len(t, events, 1)
	return events[0], errs[0]
}

// forget drops what was recorded so far.
func (r *recorder) forget() {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events, r.errs = nil, nil
}

// observe runs f on five nodes, all known, with a recorder of what the locks of
// its field do.
func observe(t *testing.T, f func(f field, r *recorder)) {
	t.Helper()
	play(t, func(plain field) {
		plain.meet()
		time.Sleep(time.Millisecond)
		r := &recorder{}
		plain.Redsync = plain.With(redsync.WithObserver(r))
		f(plain, r)
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
		r := &recorder{}
		ok, err := twins.NewMutex("lock", redsync.WithValue(m.Value()), redsync.WithObserver(r)).Extend()
		require.NoError(t, err)
		assert.True(t, ok)
		var granted []int
		votes, errs := of[redsync.Vote](r)
		for i, v := range votes {
			switch {
			case errs[i] == nil && !v.Late:
				granted = append(granted, v.Node)
			case !v.Late:
				assert.ErrorIs(t, errs[i], redsync.ErrDuplicateNode)
			}
		}
		assert.Len(t, granted, 3, "%v", votes)
	})
}

func TestObserveLostNotOfALockThatCloseForestalled(t *testing.T) {
	observe(t, func(f field, r *recorder) {
		for _, n := range f.nodes {
			n.On("set", 1, embedded.Fault{Delay: 10 * time.Millisecond})
		}
		var wg sync.WaitGroup
		wg.Go(func() { assert.ErrorIs(t, f.NewMutex("lock").Lock(), redsync.ErrClosed) })
		time.Sleep(time.Millisecond)
		require.NoError(t, f.Close(f.Context()))
		wg.Wait()
		lost, _ := of[redsync.Lost](r)
		assert.Empty(t, lost, "it was never held")
		acquired, _ := of[redsync.Acquired](r)
		assert.Empty(t, acquired)
	})
}

func TestObserveAcquiredOnceWhereTwoCallsAdoptALock(t *testing.T) {
	observe(t, func(f field, r *recorder) {
		m := f.With().NewMutex("lock")
		require.NoError(t, m.Lock())
		a := f.NewMutex("lock", redsync.WithValue(m.Value()))
		r.forget()
		for _, n := range f.nodes {
			n.On("evalsha", 2, embedded.Fault{Delay: 10 * time.Millisecond})
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				_, err := a.Extend()
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		acquired, _ := of[redsync.Acquired](r)
		assert.Len(t, acquired, 1)
	})
}

// span is the validity of a lock with the defaults, and patience the node deadline.
const (
	span     = 8*time.Second - 82*time.Millisecond
	patience = 400 * time.Millisecond
)

// delays makes node i take i times 10 ms for the next command.
func (f field) delays(command string) {
	for i, n := range f.nodes {
		n.On(command, 1, embedded.Fault{Delay: time.Duration(i) * 10 * time.Millisecond})
	}
}

func TestObserveAttempt(t *testing.T) {
	taken := func(err error) bool { return errors.As(err, new(*redsync.ErrTaken)) }
	failed := func(err error) bool { return !taken(err) && errors.As(err, new(*redsync.RedisError)) }
	late := func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }
	acquired := func(err error) bool { return err == nil }
	for name, c := range map[string]struct {
		given func(f field)
		want  redsync.Attempt
		err   func(error) bool
	}{
		"the third grant decides": {
			func(f field) { f.delays("set") },
			redsync.Attempt{Took: 20 * time.Millisecond, Granted: 3},
			acquired,
		},
		"the third refusal decides": {
			func(f field) {
				for _, n := range f.nodes {
					_ = n.Set("lock", "another")
				}
				f.delays("set")
			},
			redsync.Attempt{Took: 20 * time.Millisecond, Refused: 3},
			taken,
		},
		"two nodes are down": {
			func(f field) {
				f.kill(0, 1)
				f.delays("set")
			},
			redsync.Attempt{Took: 40 * time.Millisecond, Granted: 3, Failed: 2},
			acquired,
		},
		"three nodes are down": {
			func(f field) {
				f.kill(1, 2, 3)
				for _, n := range f.nodes {
					n.On("set", 1, embedded.Fault{Delay: time.Second})
				}
			},
			redsync.Attempt{Failed: 3},
			failed,
		},
		"taken where a node is down": {
			func(f field) {
				f.kill(0)
				_, _, _ = f.nodes[1].Set("lock", "another"), f.nodes[2].Set("lock", "another"), f.nodes[3].Set("lock", "another")
				f.delays("set")
			},
			redsync.Attempt{Took: 30 * time.Millisecond, Refused: 3, Failed: 1},
			taken,
		},
		"given up undecided": {
			func(f field) { f.freeze(0, 2, 4) },
			redsync.Attempt{Took: patience, Granted: 2, Failed: 3},
			failed,
		},
		"ended by the context": {
			func(f field) { f.freeze(0, 1, 2, 4) },
			redsync.Attempt{Took: 300 * time.Millisecond, Granted: 1, Failed: 4},
			late,
		},
	} {
		t.Run(name, func(t *testing.T) {
			observe(t, func(f field, r *recorder) {
				c.given(f)
				ctx := f.Context()
				if c.want.Took == 300*time.Millisecond {
					var cancel func()
					ctx, cancel = context.WithTimeout(ctx, c.want.Took)
					defer cancel()
				}
				locked := f.NewMutex("lock").TryLockContext(ctx)
				got, err := only[redsync.Attempt](f.T, r)
				c.want.Name, c.want.Try = "lock", 1
				assert.Equal(t, c.want, got)
				assert.True(t, c.err(err), "%v", err)
				assert.Equal(t, locked == nil, err == nil)
			})
		})
	}
}

func TestObserveAttemptsAndAcquiredOverSeveralTries(t *testing.T) {
	observe(t, func(f field, r *recorder) {
		for _, n := range f.nodes {
			require.NoError(f, n.Set("lock", "another"))
		}
		time.AfterFunc(2500*time.Millisecond, func() { f.lose(0, 1, 2, 3, 4) })
		require.NoError(f, f.NewMutex("lock", redsync.WithRetryDelay(400*time.Millisecond)).Lock())
		attempts, errs := of[redsync.Attempt](r)
		require.Len(f, attempts, 9)
		for i, a := range attempts {
			assert.Equal(t, max(i, 1), a.Try, "the first try is two attempts: a plain one, and one that queues")
			assert.Equal(t, i == 8, errs[i] == nil)
		}
		acquired, _ := only[redsync.Acquired](f.T, r)
		assert.Equal(t, redsync.Acquired{Name: "lock", Waited: 2800 * time.Millisecond, Tries: 8, Left: span}, acquired)
	})
}

func TestObserveVotesTellsEveryNodeOnceAndWhetherItCounts(t *testing.T) {
	observe(t, func(f field, r *recorder) {
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
			r.forget()
			f.delays(c.command)
			require.NoError(f, c.do(), c.op)
			time.Sleep(time.Second)
			votes, errs := of[redsync.Vote](r)
			require.Len(f, votes, 5, c.op)
			for i, v := range votes {
				assert.Equal(t, redsync.Vote{
					Name: "lock", Node: i, Op: c.op, Latency: time.Duration(i) * 10 * time.Millisecond, Late: i > 2,
				}, v)
				assert.NoError(t, errs[i])
			}
		}
	})
}

func TestObserveVotesOfNodesThatDoNotGrant(t *testing.T) {
	observe(t, func(f field, r *recorder) {
		require.NoError(f, f.nodes[0].Set("lock", "another"))
		f.kill(1)
		f.nodes[2].On("set", 1, embedded.Fault{Err: "ERR no"})
		f.freeze(3)
		require.Error(f, f.NewMutex("lock").TryLock())
		time.Sleep(20 * time.Second)
		votes, errs := of[redsync.Vote](r)
		got := map[int]error{}
		for i, v := range votes {
			if v.Op == "lock" {
				assert.NotContains(t, got, v.Node)
				got[v.Node] = errs[i]
				assert.Equal(t, v.Node == 3, v.Late)
				if v.Node == 3 {
					assert.Equal(t, 5*time.Second, v.Latency, "the longest that a connection is trusted")
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

// A release that is repeated is one round.
func TestObserveVotesTellARepeatedReleaseOnce(t *testing.T) {
	observe(t, func(f field, r *recorder) {
		m := f.held()
		f.kill(4)
		_, err := m.Unlock()
		require.NoError(f, err)
		time.Sleep(5 * time.Second)
		f.nodes[4].Restart(false)
		time.Sleep(5 * time.Second)
		require.Zero(f, f.nodes.Keys("lock"))
		unlocks := 0
		votes, _ := of[redsync.Vote](r)
		for _, v := range votes {
			if v.Op == "unlock" {
				unlocks++
			}
		}
		assert.Equal(t, 5, unlocks)
	})
}

// What a failed attempt leaves is released, which is not an Unlock.
// Two nodes are busy when they are asked, and release the lock when they are asked again.
// Each has had its vote by then.
func TestUnlockCountsTheFirstAnswerOfANode(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		for _, n := range f.nodes[:2] {
			n.On("evalsha", 1, embedded.Fault{Err: "BUSY Redis is busy running a script."})
		}
		f.freeze(3, 4)
		start := time.Now()
		ok, err := m.Unlock()
		assert.False(t, ok)
		assert.Equal(t, patience, time.Since(start))
		require.ErrorContains(t, err, named(0)+"BUSY")
		require.ErrorContains(t, err, named(1)+"BUSY")
		require.ErrorContains(t, err, named(3)+"no answer within")
		assert.Equal(t, 2, f.nodes.Keys("lock"), "those that are frozen")
		for _, n := range f.nodes {
			n.Thaw()
		}
		time.Sleep(time.Second)
		assert.Zero(t, f.nodes.Keys("lock"))
	})
}

func TestObserveVotesOfTheReleaseOfAFailedAttempt(t *testing.T) {
	observe(t, func(f field, r *recorder) {
		for _, n := range f.nodes[:3] {
			require.NoError(f, n.Set("lock", "another"))
		}
		require.Error(f, f.NewMutex("lock").TryLock())
		time.Sleep(time.Second)
		ops := map[string]int{}
		votes, _ := of[redsync.Vote](r)
		for _, v := range votes {
			ops[v.Op]++
		}
		assert.Equal(t, map[string]int{"lock": 5, "unlock": 5}, ops)
		released, _ := of[redsync.Released](r)
		assert.Empty(t, released)
	})
}

func TestObserveAdoption(t *testing.T) {
	observe(t, func(f field, r *recorder) {
		value := f.held().Value()
		r.forget()
		a := f.NewMutex("lock", redsync.WithValue(value))
		f.delays("evalsha")
		_, err := a.Extend()
		require.NoError(f, err)
		acquired, _ := only[redsync.Acquired](f.T, r)
		assert.Equal(t, redsync.Acquired{
			Name: "lock", Waited: 20 * time.Millisecond, Left: span - 20*time.Millisecond,
		}, acquired)
		extended, _ := of[redsync.Extended](r)
		assert.Empty(t, extended)
		time.Sleep(time.Second)
		_, err = a.Unlock()
		require.NoError(f, err)
		released, _ := only[redsync.Released](f.T, r)
		assert.Equal(t, redsync.Released{
			Name: "lock", Held: 1020 * time.Millisecond, Left: span - 1020*time.Millisecond,
		}, released)
	})
}

var errSilent = errors.New("a node did not answer")

func TestObserveReleased(t *testing.T) {
	for name, c := range map[string]struct {
		unlock func(f field, m *redsync.Mutex)
		want   redsync.Released
		err    error // nil, or that a node did not answer, if it is errSilent
	}{
		"in time": {
			func(f field, _ *redsync.Mutex) {
				time.Sleep(2999 * time.Millisecond)
				f.delays("evalsha")
			},
			redsync.Released{Held: 3 * time.Second, Left: span - 3*time.Second, Took: 20 * time.Millisecond},
			nil,
		},
		"after an extension": {
			func(_ field, m *redsync.Mutex) {
				time.Sleep(4999 * time.Millisecond)
				_, _ = m.Extend()
				time.Sleep(5 * time.Second)
			},
			redsync.Released{Held: 10 * time.Second, Left: span - 5*time.Second},
			nil,
		},
		"over before": {
			func(field, *redsync.Mutex) { time.Sleep(time.Minute - time.Millisecond) },
			redsync.Released{Held: time.Minute},
			redsync.ErrLockAlreadyExpired,
		},
		"found to be over": {
			func(f field, _ *redsync.Mutex) { f.lose(0, 1, 2) },
			redsync.Released{Held: time.Millisecond, Left: span - time.Millisecond},
			redsync.ErrLockAlreadyExpired,
		},
		"too few answers to tell": {
			func(f field, _ *redsync.Mutex) { f.freeze(0, 1, 2) },
			redsync.Released{Held: time.Millisecond, Left: span - time.Millisecond, Took: patience},
			errSilent,
		},
	} {
		t.Run(name, func(t *testing.T) {
			observe(t, func(f field, r *recorder) {
				m := f.held()
				c.unlock(f, m)
				_, unlocked := m.Unlock()
				_, _ = m.Unlock() // ErrNotHeld is no event
				got, err := only[redsync.Released](f.T, r)
				c.want.Name = "lock"
				assert.Equal(t, c.want, got)
				assert.Equal(t, unlocked, err)
				if errors.Is(c.err, errSilent) {
					require.ErrorAs(f, err, new(*redsync.RedisError))
					return
				}
				require.ErrorIs(f, err, c.err)
			})
		})
	}
}

func TestObserveReleasedOfAnAdoptedLockHasNoTimes(t *testing.T) {
	observe(t, func(f field, r *recorder) {
		a := f.NewMutex("lock", redsync.WithValue(f.held().Value()))
		_, err := a.Unlock()
		require.NoError(f, err)
		released, err := only[redsync.Released](f.T, r)
		require.NoError(f, err)
		assert.Equal(t, redsync.Released{Name: "lock"}, released)
	})
}

func TestObserveExtendedByHand(t *testing.T) {
	for name, c := range map[string]struct {
		given   func(f field)
		want    redsync.Extended
		err     error
		options []redsync.Option
	}{
		"confirmed by the third": {
			given: func(f field) { f.delays("evalsha") },
			want:  redsync.Extended{Took: 20 * time.Millisecond, Left: span - 5020*time.Millisecond},
		},
		"unconfirmed": {
			given: func(f field) {
				for _, n := range f.nodes[:3] {
					n.On("evalsha", 1, embedded.Fault{LoseCommand: true})
				}
			},
			want: redsync.Extended{Left: span - 5*time.Second}, err: redsync.ErrExtendFailed,
		},
		"no answer until Until": {
			given: func(f field) { f.freeze(0, 1, 2) },
			want:  redsync.Extended{Took: span - 5*time.Second}, err: redsync.ErrLockLost,
		},
		"proven lost": {
			given: func(f field) { f.lose(0, 1, 2) },
			want:  redsync.Extended{Left: span - 5*time.Second}, err: redsync.ErrLockLost,
		},
		"at WithMaxHold": {
			given: func(field) {}, options: []redsync.Option{redsync.WithMaxHold(7 * time.Second)},
			want: redsync.Extended{Left: 2 * time.Second}, err: redsync.ErrMaxHold,
		},
	} {
		t.Run(name, func(t *testing.T) {
			observe(t, func(f field, r *recorder) {
				m := f.held(c.options...)
				time.Sleep(4999 * time.Millisecond)
				c.given(f)
				_, extended := m.Extend()
				got, err := only[redsync.Extended](f.T, r)
				c.want.Name = "lock"
				assert.Equal(t, c.want, got)
				require.ErrorIs(f, err, c.err)
				assert.Equal(t, extended, err)
			})
		})
	}
}

func TestObserveExtendedByTheWatchdog(t *testing.T) {
	observe(t, func(f field, r *recorder) {
		m := f.held(redsync.WithExpiry(9*time.Second), redsync.WithWatchdog())
		time.Sleep(6999 * time.Millisecond)
		got, errs := of[redsync.Extended](r)
		each := redsync.Extended{Name: "lock", Watchdog: true, Left: 6*time.Second - 92*time.Millisecond}
		assert.Equal(t, []redsync.Extended{each, each}, got)
		assert.Equal(t, []error{nil, nil}, errs)
		r.forget()

		f.freeze(0, 1, 2) // at 7 s; it begins at 9 s, and is patient for 900 ms
		time.Sleep(4 * time.Second)
		got, errs = of[redsync.Extended](r)
		each.Took = 900 * time.Millisecond
		first, second := each, each
		first.Left -= 900 * time.Millisecond
		second.Left -= 1800 * time.Millisecond
		assert.Equal(t, []redsync.Extended{first, second}, got)
		for _, err := range errs {
			require.ErrorIs(f, err, redsync.ErrExtendFailed)
			require.ErrorAs(f, err, new(*redsync.RedisError))
		}
		r.forget()

		for _, n := range f.nodes {
			n.Thaw()
		}
		time.Sleep(500 * time.Millisecond)
		got, errs = of[redsync.Extended](r)
		third := each
		third.Took, third.Left = 200*time.Millisecond, each.Left-2*time.Second
		assert.Equal(t, []redsync.Extended{third}, got)
		assert.Equal(t, []error{nil}, errs)
		_, err := m.Unlock()
		require.NoError(f, err)
		lost, _ := of[redsync.Lost](r)
		assert.Empty(t, lost)
	})
}

func TestObserveLostOnceWithItsCause(t *testing.T) {
	lock := func(f field, options ...redsync.Option) *redsync.Mutex {
		m := f.held(options...)
		time.Sleep(999 * time.Millisecond)
		return m
	}
	for name, c := range map[string]struct {
		lose func(f field) *redsync.Mutex
		held time.Duration
		is   error
	}{
		"by its expiry": {func(f field) *redsync.Mutex { return lock(f) }, span, redsync.ErrLockAlreadyExpired},
		"after an extension": {func(f field) *redsync.Mutex {
			m := lock(f)
			_, err := m.Extend()
			assert.NoError(f, err)
			return m
		}, time.Second + span, redsync.ErrLockAlreadyExpired},
		"by WithMaxHold": {func(f field) *redsync.Mutex {
			return lock(f, redsync.WithMaxHold(3*time.Second))
		}, 3 * time.Second, redsync.ErrMaxHold},
		"with a watchdog that nobody answers": {func(f field) *redsync.Mutex {
			m := lock(f, redsync.WithWatchdog())
			f.freeze(0, 1, 2)
			return m
		}, span, redsync.ErrLockAlreadyExpired},
		"proven by a watchdog": {func(f field) *redsync.Mutex {
			m := lock(f, redsync.WithWatchdog(), redsync.WithExpiry(9*time.Second))
			f.lose(0, 1, 2)
			return m
		}, 3 * time.Second, redsync.ErrLockAlreadyExpired},
		"proven by Extend": {func(f field) *redsync.Mutex {
			m := lock(f)
			f.lose(0, 1, 2)
			_, _ = m.Extend()
			return m
		}, time.Second, redsync.ErrLockAlreadyExpired},
		"proven by Valid": {func(f field) *redsync.Mutex {
			m := lock(f)
			f.lose(0, 1, 2)
			_, _ = m.Valid()
			return m
		}, time.Second, redsync.ErrLockAlreadyExpired},
		"by Close": {func(f field) *redsync.Mutex {
			m := lock(f)
			assert.NoError(f, f.Close(f.Context()))
			return m
		}, time.Second, redsync.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			observe(t, func(f field, r *recorder) {
				m := c.lose(f)
				time.Sleep(10 * time.Second)
				_ = m.Remaining()
				_, _ = m.Valid()
				_, _ = m.Extend()
				cause := m.Err()
				_, _ = m.Unlock()
				time.Sleep(10 * time.Second)
				got, err := only[redsync.Lost](f.T, r)
				assert.Equal(t, redsync.Lost{Name: "lock", Held: c.held}, got)
				require.ErrorIs(f, err, redsync.ErrLockLost)
				require.ErrorIs(f, err, c.is)
				assert.Equal(t, cause.Error(), err.Error(), "as Err says")
				extended, _ := of[redsync.Extended](r)
				for _, e := range extended {
					assert.GreaterOrEqual(t, e.Left, time.Duration(0))
				}
			})
		})
	}
}

func TestObserveLostOfEachHoldOfAMutex(t *testing.T) {
	observe(t, func(f field, r *recorder) {
		m := f.NewMutex("lock", redsync.WithExpiry(time.Second))
		for range 3 {
			require.NoError(f, m.Lock())
			time.Sleep(2 * time.Second)
		}
		lost, _ := of[redsync.Lost](r)
		assert.Len(t, lost, 3)
	})
}

// A clean Unlock is no loss, nor is an attempt that never held anything.
func TestObserveLostNothing(t *testing.T) {
	observe(t, func(f field, r *recorder) {
		m := f.held()
		require.Error(f, f.NewMutex("lock").TryLock())
		_, err := m.Unlock()
		require.NoError(f, err)
		f.freeze(0, 1, 2)
		require.Error(f, f.NewMutex("lock", redsync.WithExpiry(time.Second), redsync.WithTimeoutFactor(1)).TryLock())
		a := f.NewMutex("lock", redsync.WithValue("other"), redsync.WithExpiry(time.Second))
		_, _ = a.Extend()
		_, _ = a.Valid()
		time.Sleep(20 * time.Second)
		lost, _ := of[redsync.Lost](r)
		assert.Empty(t, lost)
		require.NoError(f, f.Close(f.Context()))
	})
}

func TestObserveUnsettledUntilTheKeysHaveRunOut(t *testing.T) {
	observe(t, func(f field, r *recorder) {
		m := f.held()
		f.kill(4)
		_, err := m.Unlock()
		require.NoError(f, err)
		time.Sleep(100 * time.Millisecond)
		got, errs := of[redsync.Unsettled](r)
		require.Len(f, got, 2, "at once, and after 50 ms")
		for i, u := range got {
			assert.Equal(t, redsync.Unsettled{Name: "lock", Node: 4, Pending: u.Pending}, u)
			assert.Error(t, errs[i])
		}
		assert.Equal(t, 1, got[1].Pending)
		time.Sleep(20 * time.Second)
		got, _ = of[redsync.Unsettled](r)
		assert.InDelta(t, 12, len(got), 2)
		for _, u := range got {
			assert.False(t, u.Dropped)
		}
	})
}

func TestObserveUnsettledDroppedByClose(t *testing.T) {
	observe(t, func(f field, r *recorder) {
		f.held()
		f.kill(4)
		require.NoError(f, f.Close(f.Context()))
		got, err := only[redsync.Unsettled](f.T, r)
		assert.Equal(t, 4, got.Node)
		assert.True(t, got.Dropped)
		require.Error(f, err)
	})
}

// What happens in the background is told in the order in which it happened.
func TestObserveBackgroundInOrder(t *testing.T) {
	observe(t, func(f field, r *recorder) {
		m := f.held(redsync.WithExpiry(9*time.Second), redsync.WithWatchdog())
		r.forget()
		time.Sleep(4 * time.Second)
		f.lose(0, 1, 2)
		time.Sleep(4 * time.Second)
		f.kill(4)
		_, _ = m.Unlock()
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		var kinds []string
		for _, e := range r.events {
			switch e := e.(type) {
			case redsync.Vote, redsync.Released:
			default:
				kinds = append(kinds, fmt.Sprintf("%T", e))
			}
		}
		assert.Equal(t, []string{"redsync.Extended", "redsync.Extended", "redsync.Lost", "redsync.Unsettled"}, kinds)
	})
}

// A blocker is an observer that blocks on what happens in the background.
type blocker struct {
	recorder
	gate chan struct{}
}

func (b *blocker) ObserveExtended(e redsync.Extended) {
	<-b.gate
	b.recorder.ObserveExtended(e)
}

func TestObserverThatBlocksDelaysNoLock(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		b := &blocker{gate: make(chan struct{})}
		rs := f.With(redsync.WithObserver(b))
		dog := rs.NewMutex("lock", redsync.WithWatchdog())
		require.NoError(f, dog.Lock())
		time.Sleep(3 * time.Second) // the observer is stuck in the first extension
		m := rs.NewMutex("other", redsync.WithExpiry(time.Second))
		require.NoError(f, m.Lock())
		start := time.Now()
		<-m.Lost()
		assert.Equal(t, 988*time.Millisecond, time.Since(start))
		time.Sleep(time.Minute)
		require.NoError(f, dog.Err(), "it is extended all the time")
		start = time.Now()
		require.NoError(f, rs.Close(f.Context()))
		assert.Zero(t, time.Since(start))
		lost, _ := of[redsync.Lost](&b.recorder)
		assert.Empty(t, lost, "nothing was told yet")

		close(b.gate)
		lost, _ = of[redsync.Lost](&b.recorder)
		assert.Len(t, lost, 2)
		extended, _ := of[redsync.Extended](&b.recorder)
		assert.Len(t, extended, 23, "within 63.988 s")
	})
}

func TestWithObserverAddsToThoseBefore(t *testing.T) {
	play(t, func(f field) {
		var a, b, c, d recorder
		first := f.With(redsync.WithObserver(&a))
		both := first.With(redsync.WithObserver(&b))
		other := first.With(redsync.WithObserver(&c))
		for name, rs := range map[string]*redsync.Redsync{"none": f.Redsync, "first": first, "both": both, "other": other} {
			require.NoError(f, rs.NewMutex(name).Lock())
		}
		require.NoError(f, both.NewMutex("own", redsync.WithObserver(&d)).Lock())
		require.NoError(f, both.NewMutex("after").Lock())
		earlier, _ := of[redsync.Acquired](&a)
		assert.Len(t, earlier, 5)
		a.forget()
		m := first.NewMutex("votes", redsync.WithObserver(onlyLost{}), redsync.WithWatchdog())
		require.NoError(f, m.TryLock())
		votes, _ := of[redsync.Vote](&a)
		assert.Len(t, votes, 5, "although the last observer takes none")
		_, err := m.Unlock()
		require.NoError(f, err)
		for who, want := range map[*recorder][]string{
			&a: {"votes"}, &b: {"both", "own", "after"}, &c: {"other"}, &d: {"own"},
		} {
			var names []string
			events, _ := of[redsync.Acquired](who)
			for _, e := range events {
				names = append(names, e.Name)
			}
			assert.ElementsMatch(t, want, names)
		}
	})
}

// onlyLost is an observer of losses alone, and no pointer.
type onlyLost struct{ lost func(redsync.Lost) }

func (o onlyLost) ObserveLost(e redsync.Lost) { o.lost(e) }

func TestObserverOfOneKindIsEnough(t *testing.T) {
	play(t, func(f field) {
		var lost atomic.Int32
		m := f.NewMutex("lock", redsync.WithExpiry(time.Second), redsync.WithWatchdog(),
			redsync.WithObserver(onlyLost{func(redsync.Lost) { lost.Add(1) }}))
		require.NoError(f, m.Lock())
		f.freeze(0, 1, 2)
		time.Sleep(2 * time.Second)
		assert.Equal(t, int32(1), lost.Load())
	})
}

func TestObserversThatAreNoneAreAnError(t *testing.T) {
	var pointer *slog.Logger
	for want, option := range map[string]redsync.Option{
		"WithObserver(<nil>): it has no method of an observer":               redsync.WithObserver(nil),
		"WithObserver(int): it has no method of an observer":                 redsync.WithObserver(1),
		"WithObserver(redsync_test.recorder): it has no method of an observ": redsync.WithObserver(recorder{}), //nolint:govet // its methods are on the pointer
		"WithLogger(nil)": redsync.WithLogger(pointer),
	} {
		t.Run(want, func(t *testing.T) {
			play(t, func(f field) {
				refuses(f.T, f.NewMutex("lock", option), want)
				refuses(f.T, f.With(option).NewMutex("lock", redsync.WithObserver(&recorder{})), want)
				assert.Zero(t, f.traffic())
			})
		})
	}
}

// An entry is one line of a log.
type entry struct {
	level   slog.Level
	message string
	attrs   []string
}

// A logbook is a slog.Handler that keeps what is written.
type logbook struct {
	slog.Handler
	mu      sync.Mutex
	entries []entry
	text    strings.Builder
}

func newLogbook() *logbook {
	l := &logbook{}
	l.Handler = slog.NewTextHandler(&l.text, &slog.HandlerOptions{Level: slog.LevelDebug})
	return l
}

func (l *logbook) Handle(ctx context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := entry{level: r.Level, message: r.Message}
	r.Attrs(func(a slog.Attr) bool {
		e.attrs = append(e.attrs, a.Key)
		return true
	})
	l.entries = append(l.entries, e)
	return l.Handler.Handle(ctx, r)
}

// above counts what is above debug, by level and message.
func (l *logbook) above() map[string]int {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	count := map[string]int{}
	for _, e := range l.entries {
		if e.level > slog.LevelDebug {
			count[e.level.String()+" "+e.message]++
		}
	}
	return count
}

func TestLoggerLevels(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(f field)
		want    map[string]int // above debug
	}{
		"all is well": {func(f field) {
			m := f.held(redsync.WithWatchdog())
			time.Sleep(20 * time.Second)
			_, err := m.Extend()
			require.NoError(f, err)
			_, err = m.Unlock()
			require.NoError(f, err)
		}, map[string]int{}},
		"the lock is taken": {func(f field) {
			f.held(redsync.WithWatchdog())
			require.Error(f, f.NewMutex("lock", redsync.WithTries(3)).Lock())
		}, map[string]int{}},
		"the lock is taken and two nodes are down": {func(f field) {
			f.held(redsync.WithWatchdog())
			f.kill(0, 1)
			require.Error(f, f.NewMutex("lock").TryLock())
		}, map[string]int{"WARN redsync: node is down": 2}},
		"a node is down": {func(f field) {
			f.kill(0)
			m := f.NewMutex("lock", redsync.WithWatchdog())
			require.NoError(f, m.Lock())
			time.Sleep(20 * time.Second)
			_, err := m.Unlock()
			require.NoError(f, err)
		}, map[string]int{"WARN redsync: node is down": 1}},
		"two contend": {func(f field) {
			require.NoError(f, f.nodes[0].Set("lock", "one"))
			require.NoError(f, f.nodes[1].Set("lock", "one"))
			require.NoError(f, f.nodes[2].Set("lock", "two"))
			require.Error(f, f.NewMutex("lock").TryLock())
		}, map[string]int{}},
		"the caller cancels": {func(f field) {
			f.freeze(0, 1, 2)
			ctx, cancel := context.WithCancel(f.Context())
			time.AfterFunc(time.Millisecond, cancel)
			require.Error(f, f.NewMutex("lock").LockContext(ctx))
		}, map[string]int{}},
		"no quorum is reachable": {func(f field) {
			f.kill(0, 1, 2)
			require.Error(f, f.NewMutex("lock", redsync.WithTries(2)).Lock())
		}, map[string]int{"WARN redsync: attempt failed": 2, "WARN redsync: node is down": 3}},
		"the lock expires": {func(f field) {
			m := f.held()
			time.Sleep(10 * time.Second)
			_ = m.Err()
			_, _ = m.Extend()
		}, map[string]int{"ERROR redsync: lost": 1}},
		"a loss is found by Unlock": {func(f field) {
			m := f.held()
			f.lose(0, 1, 2)
			_, _ = m.Unlock()
		}, map[string]int{"WARN redsync: unlock failed": 1}},
		"an extension fails": {func(f field) {
			m := f.held()
			for _, n := range f.nodes[:3] {
				n.On("evalsha", 1, embedded.Fault{LoseCommand: true})
			}
			_, err := m.Extend()
			require.ErrorIs(f, err, redsync.ErrExtendFailed)
		}, map[string]int{"WARN redsync: extend failed": 1, "WARN redsync: node is down": 3}},
		"a watchdog finds a loss": {func(f field) {
			f.held(redsync.WithWatchdog())
			f.lose(0, 1, 2)
			time.Sleep(20 * time.Second)
		}, map[string]int{"WARN redsync: extend failed": 1, "ERROR redsync: lost": 1}},
		"Close ends a hold and gives up on a node": {func(f field) {
			f.held()
			f.kill(0)
			require.NoError(f, f.Close(f.Context()))
		}, map[string]int{"WARN redsync: release given up": 1, "WARN redsync: node is down": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				f.meet()
				book := newLogbook()
				f.Redsync = f.With(redsync.WithLogger(slog.New(book)))
				c.happens(f)
				assert.Equal(t, c.want, book.above(), "%s", &book.text)
			})
		})
	}
}

func TestLoggerMessagesAndAttributes(t *testing.T) {
	play(t, func(f field) {
		book := newLogbook()
		f.Redsync = f.With(redsync.WithLogger(slog.New(book)))
		m := f.held()
		_, err := m.Extend()
		require.NoError(f, err)
		f.nodes[4].Kill()
		_, err = m.Unlock()
		require.NoError(f, err)
		f.kill(0, 1)
		time.Sleep(20 * time.Second)
		m = f.NewMutex("lock")
		require.Error(f, m.TryLock())
		for _, i := range []int{0, 1, 4} {
			f.nodes[i].Restart(false)
		}
		require.NoError(f, m.TryLock())
		time.Sleep(time.Second)
		f.lose(0, 1, 2, 3, 4)
		_, err = m.Extend()
		require.ErrorIs(f, err, redsync.ErrLockLost)
		_, err = m.Unlock()
		require.Error(f, err)
		got := map[string]string{}
		synctest.Wait()
		for _, e := range book.entries {
			if attrs := strings.Join(e.attrs, " "); len(attrs) > len(got[e.message]) { // error is not always there
				got[e.message] = attrs
			}
		}
		assert.Equal(t, map[string]string{
			"redsync: attempt won":              "lock try took granted refused failed",
			"redsync: attempt failed":           "lock try took granted refused failed error",
			"redsync: acquired":                 "lock waited tries left",
			"redsync: extended":                 "lock watchdog took left",
			"redsync: extend failed":            "lock watchdog took left error",
			"redsync: unlocked":                 "lock held left took",
			"redsync: unlock failed":            "lock held left took error",
			"redsync: lost":                     "lock held error",
			"redsync: node is down":             "node address error",
			"redsync: node is up again":         "node address down",
			"redsync: release will be repeated": "lock node pending error",
		}, got)
	})
}

// The value is what proves the ownership of a lock.
func TestEventsAndLogNeverContainAValue(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		book, r := newLogbook(), &recorder{}
		f.Redsync = f.With(redsync.WithLogger(slog.New(book)), redsync.WithObserver(r), redsync.WithTries(1))
		var values []string
		m := f.held(redsync.WithWatchdog())
		values = append(values, m.Value())
		require.Error(f, f.NewMutex("lock").Lock())
		a := f.NewMutex("lock", redsync.WithValue(m.Value()))
		_, err := a.Extend()
		require.NoError(f, err)
		f.kill(0)
		f.freeze(1)
		time.Sleep(10 * time.Second)
		f.lose(2, 3, 4)
		time.Sleep(20 * time.Second)
		_, _ = m.Unlock()
		_, _ = a.Unlock()
		own := rand.Text()
		constant := redsync.WithGenValueFunc(func() (string, error) { return own, nil })
		require.NoError(f, f.NewMutex("other", constant).Lock())
		require.Error(f, f.NewMutex("other", constant).Lock())
		values = append(values, own)
		_ = f.Close(f.Context())
		synctest.Wait()
		all := book.text.String() + fmt.Sprintf("%+v %v", r.events, r.errs)
		assert.Greater(t, len(all), 1000)
		for _, value := range values {
			assert.NotContains(t, all, value)
		}
	})
}
