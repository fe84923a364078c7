package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	"github.com/seed14bd9ef4/redsync/internal/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// Calls inside the function of a Do on the same name. The context says who owns the hold.

// silently looks that f sends nothing to the nodes.
func (f field) silently(what string, do func()) {
	f.Helper()
	before := f.traffic()
	do()
	assert.Equal(f, before, f.traffic(), what)
}

// inside calls do within a Do on a name.
func (f field) inside(name string, do func(ctx context.Context), options ...redsync.Option) {
	f.Helper()
	require.NoError(f, f.Do(f.Context(), name, func(ctx context.Context) error {
		do(ctx)
		return nil
	}, options...))
}

// joins checks that a Do of m with ctx joins the hold of outer.
func (f field) joins(ctx context.Context, m, outer *redsync.Mutex, what string) {
	f.Helper()
	called := false
	f.silently(what, func() {
		require.NoError(f, m.Do(ctx, func(inner context.Context) error {
			called = true
			assert.Same(f, outer, redsync.FromContext(inner), what)
			assert.NoError(f, inner.Err(), what)
			return nil
		}), what)
	})
	assert.True(f, called, what)
}

// refusesNested checks that Do and TryDo, Lock and TryLock of m with ctx fail at once, and send nothing.
func (f field) refusesNested(ctx context.Context, m *redsync.Mutex, want error, texts ...string) {
	f.Helper()
	start := time.Now()
	f.silently(want.Error(), func() {
		for what, err := range map[string]error{
			"Do": m.Do(ctx, never), "TryDo": m.TryDo(ctx, never), "Lock": m.LockContext(ctx), "TryLock": m.TryLockContext(ctx),
		} {
			require.ErrorIs(f, err, want, what)
			require.ErrorIs(f, err, redsync.ErrFailed, what)
			for _, text := range texts {
				require.ErrorContains(f, err, text, what)
			}
		}
	})
	assert.Zero(f, time.Since(start))
	require.ErrorIs(f, m.Err(), redsync.ErrNotHeld)
}

func TestDoWithinDoJoinsTheHold(t *testing.T) {
	type key struct{}
	for name, derive := range map[string]func(ctx context.Context) context.Context{
		"its context":   func(ctx context.Context) context.Context { return ctx },
		"WithoutCancel": context.WithoutCancel,
		"WithValue":     func(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			inEachMode(t, play, func(f field, mode []redsync.Option) {
				f.meet()
				m := f.NewMutex("lock", mode...)
				require.NoError(f, m.Do(f.Context(), func(ctx context.Context) error {
					ctx = derive(ctx)
					synctest.Wait()
					f.joins(ctx, m, m, "the same Mutex")
					f.joins(ctx, f.NewMutex("lock"), m, "another Mutex")
					f.joins(ctx, f.With(redsync.WithTries(1)).NewMutex("lock"), m, "of a copy of the Redsync")
					var wg sync.WaitGroup
					wg.Go(func() { f.joins(ctx, f.NewMutex("lock"), m, "another goroutine") })
					wg.Wait()
					f.silently("Redsync", func() {
						require.ErrorIs(f, f.Do(ctx, "lock", func(context.Context) error { return errWork }), errWork)
						require.ErrorIs(f, f.TryDo(ctx, "lock", func(context.Context) error { return errWork }), errWork)
						require.NoError(f, f.TryDo(ctx, "lock", func(ctx context.Context) error {
							return f.TryDo(ctx, "lock", func(ctx context.Context) error {
								assert.Same(f, m, redsync.FromContext(ctx))
								return m.Err()
							})
						}))
					})
					require.NoError(f, f.Do(ctx, "other", func(ctx context.Context) error {
						assert.Equal(f, "other", redsync.FromContext(ctx).Name())
						synctest.Wait()
						f.joins(ctx, f.NewMutex("lock"), m, "through another name")
						other := redsync.FromContext(ctx)
						return f.Do(ctx, "lock", func(ctx context.Context) error {
							f.joins(ctx, f.NewMutex("other"), other, "through a joined call")
							return nil
						})
					}))
					return m.Err()
				}))
				f.noKeys()
			})
		})
	}
}

// The context of a joined function is its own: it has what the call's context has, and ends with the call.
func TestContextOfAJoinedCall(t *testing.T) {
	play(t, func(f field) {
		enough := errors.New("enough")
		f.inside("lock", func(outer context.Context) {
			ctx, cancel := context.WithCancelCause(outer)
			var left context.Context
			require.NoError(f, f.Do(ctx, "lock", func(inner context.Context) error {
				left = inner //nolint:fatcontext // to look at it afterwards
				cancel(enough)
				require.ErrorIs(f, context.Cause(inner), enough)
				return outer.Err()
			}))
			require.NoError(f, f.Do(outer, "lock", func(inner context.Context) error {
				left = inner //nolint:fatcontext // to look at it afterwards
				return nil
			}))
			require.ErrorIs(f, left.Err(), context.Canceled)

			err := f.Do(ctx, "lock", never)
			require.ErrorIs(f, err, redsync.ErrFailed)
			require.ErrorIs(f, err, enough)
			require.ErrorIs(f, err, context.Canceled)
			require.NotErrorIs(f, err, redsync.ErrNested)
			require.ErrorContains(f, f.Do(outer, "lock", nil), "the function is nil")
			require.ErrorContains(f, f.Do(outer, "lock", never, redsync.WithTries(-1)), "WithTries(-1) is out of range")
		})
	})
}

// Observers hear of the hold, not of the calls that join it.
func TestObserversAreNotToldOfJoinedCalls(t *testing.T) {
	observing(t, func(f field, r *redsynctest.Recorder) {
		f.inside("lock", func(ctx context.Context) {
			require.NoError(f, f.Do(ctx, "lock", nothing))
			require.ErrorIs(f, f.NewMutex("lock").LockContext(ctx), redsync.ErrNested)
		})
		_, _ = only[observe.Acquired](f.T, r)
		_, _ = only[observe.Released](f.T, r)
		assert.Empty(f, redsynctest.Events[observe.NotAcquired](r))
	})
}

// The kind of the hold decides: a reader joins each, a writer only an exclusive one.
func TestWhichKindsJoin(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		shared := redsync.WithShared()
		f.inside("lock", func(ctx context.Context) { // a writer's
			outer := redsync.FromContext(ctx)
			synctest.Wait()
			f.joins(ctx, f.NewMutex("lock"), outer, "write in write")
			f.joins(ctx, f.NewMutex("lock", shared), outer, "read in write")
			require.NoError(f, f.Do(ctx, "lock", func(ctx context.Context) error {
				f.joins(ctx, f.NewMutex("lock"), outer, "write in read in write: the hold is exclusive")
				return nil
			}, shared))
			require.NoError(f, outer.Downgrade(ctx))
			synctest.Wait()
			f.joins(ctx, f.NewMutex("lock", shared), outer, "read after Downgrade")
			f.refusesNested(ctx, f.NewMutex("lock"), redsync.ErrUpgrade, `"lock"`)
		})
		f.inside("lock", func(ctx context.Context) { // a reader's
			outer := redsync.FromContext(ctx)
			time.Sleep(time.Second)
			writer := f.calls(f.another(), patient()...)
			time.Sleep(time.Millisecond)
			f.joins(ctx, f.NewMutex("lock", shared), outer, "read in read, while a writer waits")
			f.joins(ctx, outer, outer, "the same Mutex")
			var taken *redsync.ErrTaken
			require.ErrorAs(f, f.TryDo(f.Context(), "lock", never, shared), &taken, "without the context it waits behind the writer")
			f.refusesNested(ctx, f.NewMutex("lock"), redsync.ErrUpgrade, `"lock"`)
			f.refusesNested(context.WithoutCancel(ctx), f.NewMultiMutex([]string{"lock", "z"}), redsync.ErrUpgrade, `"lock"`)
			require.False(f, writer.isDone())
			time.AfterFunc(time.Second, func() { f.unlock(writer.Mutex) })
		}, shared)
		time.Sleep(2 * time.Second)
		f.noKeys()
	})
}

// A Lock inside a Do could wait for itself, also a reader's inside a reader's Do, if a writer has come between.
func TestLockWithinDoIsAnError(t *testing.T) {
	play(t, func(f field) {
		other := f.another()
		f.closes(other)
		shared := redsync.WithShared()
		var left context.Context
		for _, outer := range [][]redsync.Option{nil, {shared}} {
			f.inside("lock", func(ctx context.Context) {
				left = context.WithoutCancel(ctx) //nolint:fatcontext // for calls that come afterwards
				for _, inner := range [][]redsync.Option{nil, {shared}} {
					want := redsync.ErrNested
					if outer != nil && inner == nil {
						want = redsync.ErrUpgrade
					}
					f.silently("Lock", func() {
						for _, err := range []error{
							f.NewMutex("lock", inner...).LockContext(ctx),
							f.NewMutex("lock", inner...).TryLockContext(context.WithoutCancel(ctx)),
							redsync.FromContext(ctx).LockContext(ctx),
						} {
							require.ErrorIs(f, err, redsync.ErrFailed)
							require.ErrorContains(f, err, `"lock"`)
						}
						require.ErrorIs(f, f.NewMutex("lock", inner...).LockContext(ctx), want)
						require.ErrorIs(f, redsync.FromContext(ctx).TryLockContext(ctx), redsync.ErrNested)
					})
				}
				require.NoError(f, redsync.FromContext(ctx).Err())
				_, err := redsync.FromContext(ctx).Valid()
				require.NoError(f, err)
				z := f.NewMutex("z")
				require.NoError(f, z.LockContext(ctx), "another name")
				f.unlock(z)
				err = other.NewMutex("lock").TryLockContext(ctx)
				require.Error(f, err)
				require.NotErrorIs(f, err, redsync.ErrNested, "another Redsync cannot know")
			}, outer...)
			m := f.NewMutex("lock")
			require.NoError(f, m.LockContext(left), "that hold is over")
			f.unlock(m)
		}
		require.ErrorIs(f, f.Do(f.Context(), "lock", func(ctx context.Context) error {
			f.unlock(redsync.FromContext(ctx))
			m := f.NewMutex("lock")
			require.NoError(f, m.LockContext(ctx), "fn has unlocked")
			f.unlock(m)
			return f.Do(ctx, "lock", func(inner context.Context) error {
				assert.NotSame(f, redsync.FromContext(ctx), redsync.FromContext(inner), "it has locked")
				return nil
			})
		}), redsync.ErrNotHeld)
	})
}

// ways are the ways in which the function of a Do ends.
var ways = map[string]func() error{
	"returns":       func() error { return nil },
	"fails":         func() error { return errWork },
	"panics":        func() error { panic("the user's") },
	"calls Goexit":  func() error { runtime.Goexit(); return nil },
	"returns later": func() error { time.Sleep(time.Minute); return nil },
}

// The hold lasts also when the context of a joined call does not end with the outer
// one: Do ends it.
func TestTheHoldLastsUntilTheJoinedCallsHaveReturned(t *testing.T) {
	for name, end := range ways {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				other := f.another()
				f.closes(other)
				var waiter *call
				var joined sync.WaitGroup
				const late = time.Minute
				var ended, left time.Time
				var outer sync.WaitGroup
				outer.Go(func() {
					defer func() { _ = recover() }() //nolint:errcheck // it is that of the way
					defer func() { left = time.Now() }()
					_ = f.Do(f.Context(), "lock", func(ctx context.Context) error {
						for i := range 3 {
							joined.Go(func() {
								assert.NoError(f, f.Do(context.WithoutCancel(ctx), "lock", func(inner context.Context) error {
									<-inner.Done()
									assert.Equal(f, ended, time.Now())
									assert.ErrorIs(f, context.Cause(inner), context.Canceled)
									time.Sleep(time.Duration(i) * late)
									assert.NoError(f, redsync.FromContext(inner).Err())
									return nil
								}))
							})
						}
						synctest.Wait()
						waiter = f.calls(other, patient()...)
						time.Sleep(time.Second)
						defer func() { ended = time.Now() }()
						return end()
					})
				})
				outer.Wait()
				joined.Wait()
				require.NotNil(f, waiter)
				assert.Equal(f, ended.Add(2*late), left, "Do has waited for all of them")
				f.within(waiter, 10*time.Millisecond)
				assert.False(f, waiter.at.Before(left.Add(-10*time.Millisecond)))
				f.unlock(waiter.Mutex)
				f.noKeys()
			})
		})
	}
}

// Once the outer function has returned, a call joins the hold only if it is inside a joined function that still runs:
// the release waits for that. Any other call locks, and waits for the release.
func TestCallsThatComeWhileDoWaitsForJoinedOnes(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		var wg sync.WaitGroup
		var outer *redsync.Mutex
		var released time.Time
		returned := make(chan struct{})
		f.inside("lock", func(ctx context.Context) {
			outer = redsync.FromContext(ctx)
			for name, lock := range map[string]func(ctx context.Context, m *redsync.Mutex) error{
				"Do": func(ctx context.Context, m *redsync.Mutex) error {
					return m.Do(ctx, func(inner context.Context) error {
						assert.Same(f, m, redsync.FromContext(inner), "it has locked")
						assert.NoError(f, inner.Err())
						return nil
					})
				},
				"Lock": func(ctx context.Context, m *redsync.Mutex) error {
					err := m.LockContext(ctx)
					if err == nil {
						f.unlock(m)
					}
					return err
				},
			} {
				wg.Go(func() {
					<-returned
					time.Sleep(time.Second)
					assert.NoError(f, lock(context.WithoutCancel(ctx), f.NewMutex("lock", redsync.WithTries(0))), name)
					assert.Equal(f, released.Round(100*time.Millisecond), time.Now().Round(100*time.Millisecond), "%s waits for the release", name)
					assert.ErrorIs(f, lock(ctx, f.NewMutex("lock")), context.Canceled, name)
				})
			}
			wg.Go(func() {
				assert.NoError(f, f.Do(context.WithoutCancel(ctx), "lock", func(inner context.Context) error {
					<-inner.Done()
					close(returned)
					time.Sleep(20 * time.Second)
					assert.ErrorIs(f, f.Do(inner, "lock", never), context.Canceled)
					inner = context.WithoutCancel(inner)
					called := false
					f.silently("Do in a joined function", func() {
						assert.NoError(f, f.Do(inner, "lock", func(ctx context.Context) error {
							called = true
							assert.ErrorIs(f, ctx.Err(), context.Canceled, "it has ended already")
							assert.Same(f, outer, redsync.FromContext(ctx))
							return nil
						}))
						assert.ErrorIs(f, f.NewMutex("lock").LockContext(inner), redsync.ErrNested)
					})
					assert.True(f, called)
					time.Sleep(20 * time.Second)
					released = time.Now()
					return outer.Err()
				}))
			})
			synctest.Wait()
		})
		wg.Wait()
		f.noKeys()
	})
}

// A function outlives its hold: the calls that have joined learn why, and later ones lock.
func TestJoinedCallsLearnOfALoss(t *testing.T) {
	for name, c := range map[string]struct {
		options []redsync.Option
		lose    func(f field)
		is      []error
	}{
		"the nodes lose it": {nil, func(f field) { f.lose(0, 1, 2, 3, 4) }, []error{redsync.ErrLockAlreadyExpired}},
		"WithMaxHold":       {[]redsync.Option{redsync.WithMaxHold(10 * time.Second)}, func(field) {}, []error{redsync.ErrMaxHold}},
		"Close": {nil, func(f field) {
			require.NoError(f, f.Close(f.Context()))
		}, []error{redsync.ErrClosed}},
	} {
		for _, waits := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, the outer function has returned: %v", name, waits), func(t *testing.T) {
				play(t, func(f field) {
					is := append(c.is, redsync.ErrLockLost)
					var wg sync.WaitGroup
					var causes [2]error
					joined := make(chan struct{})
					wg.Go(func() {
						err := f.Do(f.Context(), "lock", func(ctx context.Context) error {
							wg.Go(func() {
								err := f.Do(context.WithoutCancel(ctx), "lock", func(inner context.Context) error {
									close(joined)
									if waits {
										<-redsync.FromContext(inner).Lost()
										return errWork
									}
									<-inner.Done()
									causes[1] = context.Cause(inner)
									return errWork
								})
								assert.ErrorIs(f, err, errWork)
								for _, want := range is {
									assert.ErrorIs(f, err, want)
								}
								assert.NotErrorIs(f, err, redsync.ErrFailed)
								assert.ErrorContains(f, err, `do "lock"`)
							})
							<-joined
							if waits {
								return nil
							}
							<-ctx.Done()
							causes[0] = context.Cause(ctx)
							if name == "the nodes lose it" {
								assert.NoError(f, f.Do(context.WithoutCancel(ctx), "lock", func(again context.Context) error {
									assert.NotSame(f, redsync.FromContext(ctx), redsync.FromContext(again), "it has locked")
									return again.Err()
								}))
							}
							return nil
						}, c.options...)
						for _, want := range is {
							assert.ErrorIs(f, err, want)
						}
					})
					<-joined
					time.Sleep(time.Second)
					c.lose(f)
					wg.Wait()
					if !waits {
						assert.Same(f, causes[0], causes[1])
						for _, want := range is {
							require.ErrorIs(f, causes[1], want)
						}
					}
				})
			})
		}
	}
}

// A call for several names joins if it finds all of them, in one hold or in several.
func TestSeveralNamesJoin(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		m := f.NewMultiMutex([]string{"a", "b", "c"})
		require.NoError(f, m.Do(f.Context(), func(ctx context.Context) error {
			synctest.Wait()
			f.joins(ctx, f.NewMultiMutex([]string{"c", "b", "a"}), m, "all of them")
			f.joins(ctx, f.NewMultiMutex(both), m, "two of three")
			f.joins(ctx, f.NewMutex("b"), m, "one")
			f.joins(ctx, f.NewMutex("b", redsync.WithShared()), m, "read in write")
			f.refusesNested(ctx, f.NewMultiMutex([]string{"z", "c", "a"}), redsync.ErrNested, `"a", "c"`)
			require.NoError(f, f.NewMultiMutex([]string{"y", "z"}).Do(ctx, func(inner context.Context) error {
				assert.Equal(f, "y, z", redsync.FromContext(inner).Name(), "it has locked: it has none of the names")
				synctest.Wait()
				f.joins(inner, f.NewMultiMutex([]string{"a", "z"}), redsync.FromContext(inner), "of both holds")
				return nil
			}))
			return m.Err()
		}))
		f.inside("a", func(ctx context.Context) {
			f.inside("b", func(ctx context.Context) {}, redsync.WithShared())
			require.NoError(f, f.Do(ctx, "b", func(ctx context.Context) error {
				f.refusesNested(ctx, f.NewMultiMutex(both), redsync.ErrUpgrade, `"b"`)
				return nil
			}, redsync.WithShared()))
			f.refusesNested(ctx, f.NewMultiMutex(both), redsync.ErrNested, `a Do around the call holds "a"`)
		})
	})
}

// The context ends when any of the joined holds is lost, and no hold ends before the call.
func TestACallOnTwoHolds(t *testing.T) {
	for _, lost := range both {
		t.Run(lost, func(t *testing.T) {
			play(t, func(f field) {
				var cause error
				err := f.Do(f.Context(), "a", func(ctx context.Context) error {
					return f.Do(ctx, "b", func(ctx context.Context) error {
						err := f.NewMultiMutex(both).Do(context.WithoutCancel(ctx), func(ctx context.Context) error {
							for _, n := range f.nodes {
								n.Del(lost)
							}
							<-ctx.Done()
							cause = context.Cause(ctx)
							return nil
						})
						assert.ErrorIs(f, err, redsync.ErrLockLost)
						assert.ErrorIs(f, err, cause)
						return nil
					})
				})
				require.ErrorIs(f, cause, redsync.ErrLockLost)
				require.ErrorIs(f, err, cause)
			})
		})
	}
}

// Both holds last until a call on both has returned.
func TestTwoHoldsLastUntilTheirCallHasReturned(t *testing.T) {
	play(t, func(f field) {
		start := time.Now()
		f.inside("a", func(ctx context.Context) {
			require.NoError(f, f.Do(ctx, "b", func(ctx context.Context) error {
				go func() {
					assert.NoError(f, f.NewMultiMutex(both).Do(context.WithoutCancel(ctx), func(ctx context.Context) error {
						<-ctx.Done()
						time.Sleep(time.Minute)
						return nil
					}))
				}()
				synctest.Wait()
				return nil
			}))
			assert.Equal(f, time.Minute, time.Since(start).Round(time.Second))
		})
		f.noKeys()
	})
}

// A semaphore inside itself would wait for its own permit. A lock of the same name is another thing.
func TestPermitsDoNotJoin(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		f.inside("lock", func(ctx context.Context) {
			synctest.Wait()
			for _, m := range []*redsync.Mutex{
				f.NewMutex("lock", redsync.WithPermits(2)), f.NewMutex("lock", redsync.WithPermits(5)),
			} {
				f.refusesNested(ctx, m, redsync.ErrNested, `permit of "lock"`)
				f.refusesNested(context.WithoutCancel(ctx), m, redsync.ErrNested)
			}
			require.NoError(f, f.Do(ctx, "other", nothing, redsync.WithPermits(2)))
			require.NoError(f, f.Do(f.Context(), "lock", nothing, redsync.WithPermits(2)), "without the context")
			f.inside("lock", func(context.Context) {})
			require.NoError(f, f.Do(ctx, "lock", func(inner context.Context) error {
				assert.NotSame(f, redsync.FromContext(ctx), redsync.FromContext(inner))
				synctest.Wait()
				f.refusesNested(inner, f.NewMutex("lock", redsync.WithPermits(2)), redsync.ErrNested, `permit of "lock"`)
				f.joins(inner, f.NewMutex("lock"), redsync.FromContext(inner), "the lock")
				return nil
			}))
			w := f.NewMutex("lock")
			require.NoError(f, w.LockContext(ctx))
			f.unlock(w)
		}, redsync.WithPermits(2))
		f.inside("lock", func(ctx context.Context) {
			require.NoError(f, f.Do(ctx, "lock", nothing, redsync.WithPermits(1)))
			require.NoError(f, f.NewMutex("lock", redsync.WithPermits(1)).LockContext(ctx))
		})
	})
}

// deep calls Do inside Do, and returns how many calls succeeded and the error of the next.
func (f field) deep(ctx context.Context, m *redsync.Mutex) (count int, err error) {
	err = m.Do(ctx, func(ctx context.Context) error {
		var deeper error
		if count, deeper = f.deep(ctx, m); deeper == nil {
			return nil
		}
		count, err = count+1, deeper
		return deeper
	})
	if count == 0 && err == nil {
		return 0, errWork
	}
	return count, err
}

func TestNestingIsLimited(t *testing.T) {
	for _, limit := range []int{1, 2, 3, 10} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			play(t, func(f field) {
				m := f.NewMutex("lock", redsync.WithNesting(limit))
				count, err := f.deep(f.Context(), m)
				assert.Equal(f, limit, count)
				require.ErrorIs(f, err, redsync.ErrNested)
				require.ErrorIs(f, err, redsync.ErrFailed)
				require.ErrorContains(f, err, fmt.Sprintf(`WithNesting(%d): the hold of "lock" has %[1]d`, limit))
				f.noKeys()
			})
		})
	}
}

// Both limits count, that of the outermost call and that of the call that joins, and those that have returned do not.
func TestLimitsOfNesting(t *testing.T) {
	for name, c := range map[string]struct {
		outer, inner []redsync.Option
		room         int // how many calls can join at once
	}{
		"none":               {nil, nil, 100},
		"outermost":          {[]redsync.Option{redsync.WithNesting(3)}, nil, 2},
		"inner":              {nil, []redsync.Option{redsync.WithNesting(4)}, 3},
		"outermost is less":  {[]redsync.Option{redsync.WithNesting(2)}, []redsync.Option{redsync.WithNesting(4)}, 1},
		"inner is less":      {[]redsync.Option{redsync.WithNesting(4)}, []redsync.Option{redsync.WithNesting(3)}, 2},
		"inner does not":     {nil, []redsync.Option{redsync.WithNesting(1)}, 0},
		"outermost does not": {[]redsync.Option{redsync.WithNesting(1)}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				f.meet()
				for range 2 {
					f.inside("lock", func(ctx context.Context) {
						for range 2 {
							var joined, refused atomic.Int32
							var wg sync.WaitGroup
							for range 100 {
								wg.Go(func() {
									called := false
									err := f.Do(ctx, "lock", func(context.Context) error {
										called = true
										time.Sleep(time.Second)
										return nil
									}, c.inner...)
									if called {
										joined.Add(1)
										assert.NoError(f, err)
									} else {
										refused.Add(1)
										assert.ErrorIs(f, err, redsync.ErrNested)
									}
								})
							}
							wg.Wait()
							assert.EqualValues(f, c.room, joined.Load())
							assert.EqualValues(f, 100-c.room, refused.Load())
						}
					}, c.outer...)
				}
			})
		})
	}
}

// If one of several holds has no room, the call joins none of them.
func TestLimitOfOneOfTwoHolds(t *testing.T) {
	for _, full := range both {
		play(t, func(f field) {
			limit := func(name string) redsync.Option {
				if name == full {
					return redsync.WithNesting(2)
				}
				return redsync.WithNesting(3)
			}
			f.inside("a", func(ctx context.Context) {
				require.NoError(f, f.Do(ctx, "b", func(ctx context.Context) error {
					return f.Do(ctx, full, func(ctx context.Context) error {
						for range 5 {
							require.ErrorIs(f, f.NewMultiMutex(both).Do(ctx, never), redsync.ErrNested)
						}
						for _, name := range both {
							if name != full {
								require.NoError(f, f.Do(ctx, name, func(ctx context.Context) error {
									return f.Do(ctx, name, nothing)
								}), "the calls that failed count no more")
							}
						}
						return nil
					})
				}, limit("b")))
			}, limit("a"))
		})
	}
}

func TestNestingOutOfRange(t *testing.T) {
	onKit(t, func(k kit) {
		for _, n := range []int{0, -1} {
			refuses(t, k.NewMutex("lock", redsync.WithNesting(n)), fmt.Sprintf("WithNesting(%d) is out of range: 1 or more", n))
			require.ErrorContains(k, k.Do(k.Context(), "lock", never, redsync.WithNesting(n)), "is out of range")
		}
	})
}

// A call whose options ask for more than the hold has must not rely on it.
func TestACallThatAsksForMoreThanTheHoldHas(t *testing.T) {
	type options = []redsync.Option
	for name, c := range map[string]struct {
		outer, inner options
		texts        []string // of the error; nil if it joins
	}{
		"longer expiry":           {options{redsync.WithExpiry(4 * time.Second)}, options{redsync.WithExpiry(4001 * time.Millisecond)}, []string{"WithExpiry(4.001s)", "has 4s"}},
		"longer than the default": {nil, options{redsync.WithExpiry(9 * time.Second)}, []string{"WithExpiry(9s)", "has 8s"}},
		"the same expiry":         {options{redsync.WithExpiry(4 * time.Second)}, options{redsync.WithExpiry(4 * time.Second)}, nil},
		"shorter expiry":          {nil, options{redsync.WithExpiry(4 * time.Second)}, nil},
		"no expiry":               {options{redsync.WithExpiry(4 * time.Second)}, nil, nil},
		"lock delay":              {nil, options{redsync.WithLockDelay(time.Second)}, []string{"WithLockDelay(1s)", "has 0s"}},
		"longer lock delay":       {options{redsync.WithLockDelay(time.Second)}, options{redsync.WithLockDelay(2 * time.Second)}, []string{"WithLockDelay(2s)", "has 1s"}},
		"shorter lock delay":      {options{redsync.WithLockDelay(time.Second)}, options{redsync.WithLockDelay(time.Millisecond)}, nil},
		"no lock delay":           {options{redsync.WithLockDelay(time.Second)}, nil, nil},
		"fencing":                 {nil, options{redsync.WithFencing()}, []string{"WithFencing()", "has no token"}},
		"the token is there":      {options{redsync.WithFencing()}, options{redsync.WithFencing()}, nil},
		"no fencing":              {options{redsync.WithFencing()}, nil, nil},
		"longest hold":            {nil, options{redsync.WithMaxHold(time.Hour)}, []string{"WithMaxHold(1h0m0s)", "has no limit"}},
		"longer hold":             {options{redsync.WithMaxHold(time.Hour)}, options{redsync.WithMaxHold(2 * time.Hour)}, []string{"WithMaxHold(2h0m0s)", "has 1h0m0s"}},
		"shorter hold":            {options{redsync.WithMaxHold(time.Hour)}, options{redsync.WithMaxHold(time.Minute)}, []string{"WithMaxHold(1m0s)", "has 1h0m0s"}},
		"the same longest hold":   {options{redsync.WithMaxHold(time.Hour)}, options{redsync.WithMaxHold(time.Hour)}, nil},
		"no longest hold":         {options{redsync.WithMaxHold(time.Hour)}, nil, nil},
		"what is about waiting":   {nil, options{redsync.WithFair(), redsync.WithTries(1), redsync.WithPriority(7), redsync.WithHandOver(false)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				f.meet()
				for what, outer := range map[string]options{"write": c.outer, "read": append(c.outer, redsync.WithShared())} {
					f.inside("lock", func(ctx context.Context) {
						inner := append(options{redsync.WithShared()}, c.inner...)
						m := f.With(inner...).NewMutex("lock")
						synctest.Wait()
						if c.texts == nil {
							f.joins(ctx, m, redsync.FromContext(ctx), what)
							return
						}
						for _, do := range dos {
							err := do(m, ctx, never)
							require.ErrorIs(f, err, redsync.ErrNested)
							require.ErrorIs(f, err, redsync.ErrFailed)
							for _, text := range append(c.texts, `"lock"`) {
								require.ErrorContains(f, err, text)
							}
						}
					}, outer...)
				}
			})
		})
	}
}

// A minimal hold counts from the attempt that has locked. A call that comes later, and wants the keys to stay for d from
// then on, must not rely on them, even if the hold has the same option.
func TestACallWithAMinimalHoldDoesNotJoin(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		for name, outer := range map[string][]redsync.Option{
			"without": nil, "with": {redsync.WithMinHold(time.Second)}, "longer": {redsync.WithMinHold(time.Minute)},
		} {
			f.inside(name, func(ctx context.Context) {
				require.NoError(f, f.Do(ctx, name, func(context.Context) error { return nil }))
				for _, do := range dos {
					err := do(f.NewMutex(name, redsync.WithMinHold(time.Second)), ctx, never)
					require.ErrorIs(f, err, redsync.ErrNested)
					require.ErrorContains(f, err, "WithMinHold(1s)")
				}
			}, outer...)
		}
	})
}

// While an exclusive call is on the hold, it stays exclusive. Readers that have joined do not mind.
func TestDowngradeWhileCallsHaveJoined(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		f.inside("lock", func(ctx context.Context) {
			outer := redsync.FromContext(ctx)
			require.NoError(f, f.Do(ctx, "lock", func(inner context.Context) error {
				until := outer.Until()
				time.Sleep(time.Second)
				f.silently("Downgrade", func() {
					err := outer.Downgrade(ctx)
					require.ErrorIs(f, err, redsync.ErrNested)
					require.NotErrorIs(f, err, redsync.ErrFailed)
					require.ErrorContains(f, err, `downgrade "lock"`)
					require.ErrorIs(f, redsync.FromContext(inner).Downgrade(inner), redsync.ErrNested)
				})
				assert.Equal(f, until, outer.Until())
				require.Error(f, f.TryDo(f.Context(), "lock", never, redsync.WithShared()))
				return f.Do(inner, "lock", nothing)
			}))
			require.NoError(f, f.Do(ctx, "lock", func(inner context.Context) error {
				require.NoError(f, outer.Downgrade(inner))
				require.ErrorIs(f, f.Do(inner, "lock", never), redsync.ErrUpgrade)
				require.NoError(f, outer.Downgrade(inner), "again")
				return f.TryDo(f.Context(), "lock", nothing, redsync.WithShared())
			}, redsync.WithShared()))
			require.ErrorIs(f, f.Do(ctx, "lock", never), redsync.ErrUpgrade)
		})
		require.NoError(f, f.Do(f.Context(), "lock", func(ctx context.Context) error {
			return f.Do(ctx, "lock", nothing)
		}), "the next hold is exclusive again")
	})
}

// Unlock must not release the lock under a call that has joined. Once that has returned, Unlock does what it does.
func TestUnlockWhileCallsHaveJoined(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		m := f.NewMutex("lock")
		require.ErrorIs(f, m.Do(f.Context(), func(ctx context.Context) error {
			require.NoError(f, f.Do(ctx, "lock", func(inner context.Context) error {
				f.silently("Unlock", func() {
					for _, unlock := range []func() (bool, error){m.Unlock, redsync.FromContext(inner).Unlock} {
						ok, err := unlock()
						assert.False(f, ok)
						require.ErrorIs(f, err, redsync.ErrNested)
						require.NotErrorIs(f, err, redsync.ErrLockAlreadyExpired)
						require.ErrorContains(f, err, `unlock "lock"`)
					}
				})
				_, err := m.Detach(inner)
				require.ErrorContains(f, err, "Do unlocks it")
				require.NoError(f, m.Err())
				assert.Equal(f, 5, f.nodes.Keys("lock"))
				return inner.Err()
			}, redsync.WithShared()))
			f.unlock(m)
			synctest.Wait()
			assert.Zero(f, f.nodes.Keys("lock"))
			return nil
		}), redsync.ErrNotHeld)

		require.ErrorIs(f, m.Do(f.Context(), func(ctx context.Context) error {
			return f.Do(context.WithoutCancel(ctx), "lock", func(inner context.Context) error {
				f.lose(0, 1, 2, 3, 4)
				<-inner.Done()
				_, err := m.Unlock()
				require.ErrorIs(f, err, redsync.ErrLockLost, "it is over anyway")
				return nil
			})
		}), redsync.ErrLockLost)
		f.noKeys()
	})
}

// A Mutex that adopts a hold adopts it inside a Do, too, and ends it.
func TestDoThatAdoptsDoesNotJoin(t *testing.T) {
	play(t, func(f field) {
		require.ErrorIs(f, f.Do(f.Context(), "lock", func(ctx context.Context) error {
			wrong := f.NewMutex("lock", redsync.WithValue("wrong"))
			require.ErrorIs(f, wrong.Do(ctx, never), redsync.ErrLockAlreadyExpired)
			adopts := f.NewMutex("lock", redsync.WithSequencer(redsync.FromContext(ctx).Sequencer()))
			return adopts.Do(ctx, func(inner context.Context) error {
				assert.Same(f, adopts, redsync.FromContext(inner))
				synctest.Wait()
				f.joins(inner, f.NewMutex("lock"), adopts, "the innermost hold")
				return nil
			})
		}), redsync.ErrLockAlreadyExpired)
		f.noKeys()
	})
}

// A call that another call has kept from adopting must not lock what a Do around it holds: it would wait for itself.
func TestDoThatAdoptsTooLate(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		_ = f.Do(f.Context(), "lock", func(ctx context.Context) error {
			adopts := f.NewMutex("lock", redsync.WithSequencer(redsync.FromContext(ctx).Sequencer()))
			for _, n := range f.nodes {
				n.On("evalsha", 2, embedded.Fault{Delay: 100 * time.Millisecond})
			}
			var adopted, refused atomic.Int32
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					err := adopts.Do(ctx, func(ctx context.Context) error {
						adopted.Add(1)
						return lasts(time.Second)(ctx)
					})
					if errors.Is(err, redsync.ErrNested) {
						refused.Add(1)
					}
				})
			}
			wg.Wait()
			assert.EqualValues(f, 1, adopted.Load())
			assert.EqualValues(f, 1, refused.Load())
			return nil
		})
	})
}

// Goroutines join and leave at random, also while the outer function has returned. No function runs without the lock,
// and the lock is free afterwards.
func TestManyNestedCalls(t *testing.T) {
	for range testlength.Of(5, 8, 200) {
		play(t, func(f field) {
			other := f.another()
			f.closes(other)
			var theirs, ours atomic.Int64
			var wg sync.WaitGroup
			wg.Go(func() {
				for range 10 {
					assert.NoError(f, other.Do(f.Context(), "lock", func(ctx context.Context) error {
						theirs.Add(1)
						time.Sleep(time.Millisecond)
						assert.Zero(f, ours.Load())
						theirs.Add(-1)
						return ctx.Err()
					}, redsync.WithTries(0)))
					time.Sleep(rand.N(20 * time.Millisecond))
				}
			})
			var work func(ctx context.Context, depth int)
			work = func(ctx context.Context, depth int) {
				options := []redsync.Option{redsync.WithTries(0)}
				if depth > 0 && rand.N(3) == 0 {
					options = append(options, redsync.WithShared())
				}
				err := f.Do(ctx, "lock", func(ctx context.Context) error {
					ours.Add(1)
					defer ours.Add(-1)
					assert.Zero(f, theirs.Load())
					time.Sleep(rand.N(3 * time.Millisecond))
					for range rand.N(4) {
						if depth < 4 {
							wg.Go(func() {
								time.Sleep(rand.N(5 * time.Millisecond))
								work(context.WithoutCancel(ctx), depth+1)
							})
						}
					}
					time.Sleep(rand.N(5 * time.Millisecond))
					return redsync.FromContext(ctx).Err()
				}, options...)
				if !errors.Is(err, redsync.ErrUpgrade) { // inside a reader that has locked anew
					assert.NoError(f, err)
				}
			}
			for range 5 {
				work(f.Context(), 0)
			}
			wg.Wait()
			f.noKeys()
		})
	}
}
