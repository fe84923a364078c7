package redsync_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// Calls inside the function of a Do on the same name: which join its hold, and which fail. The context says who owns it.

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

// A call with a longer minimal hold must not rely on keys that may go sooner. No reader has a minimal hold.
func TestACallThatAsksForALongerMinimalHold(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		for outer, texts := range map[time.Duration][]string{
			0: {"1.012s", "has 0s"}, 500 * time.Millisecond: {"1.012s", "has 507ms"}, time.Second: nil, time.Minute: nil,
		} {
			name := fmt.Sprint("lock ", outer)
			var options []redsync.Option
			if outer > 0 {
				options = append(options, redsync.WithMinHold(outer))
			}
			f.inside(name, func(ctx context.Context) {
				m := f.NewMutex(name, redsync.WithMinHold(time.Second))
				if texts == nil {
					f.joins(ctx, m, redsync.FromContext(ctx), name)
					return
				}
				err := m.Do(ctx, never)
				require.ErrorIs(f, err, redsync.ErrNested)
				for _, text := range append(texts, "WithMinHold with drift") {
					require.ErrorContains(f, err, text)
				}
			}, options...)
		}
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
