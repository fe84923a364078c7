package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file tests calls inside the function of a Do on the same name. The context says who owns the hold.

// silently checks that do sends nothing to the nodes.
func (f field) silently(what string, do func()) {
	f.Helper()
	before := f.traffic()
	do()
	assert.Equal(f, before, f.traffic(), what)
}

// inside calls do within a Do on a name.
func (f field) inside(name string, do func(ctx context.Context), options ...redsync.Option) {
	f.Helper()
	noError(f, f.does(name, func(ctx context.Context) error {
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
			"Do": m.Do(ctx, never), "TryDo": f.notRun(m.TryDo(ctx, never)), "Lock": m.LockContext(ctx), "TryLock": m.TryLockContext(ctx),
		} {
			require.ErrorIs(f, err, want, what)
			require.NotErrorIs(f, err, redsync.ErrFailed, what)
			for _, text := range texts {
				require.ErrorContains(f, err, text, what)
			}
		}
	})
	took(f, start, 0)
	isOver(f, m, redsync.ErrNotHeld)
}

func TestDoWithinDoJoinsTheHold(t *testing.T) {
	for _, derives := range []bool{false, true} {
		playMet(t, func(f field) {
			f.inside("lock", func(ctx context.Context) {
				m := redsync.FromContext(ctx)
				if derives {
					ctx = context.WithValue(context.WithoutCancel(ctx), t, 1)
				}
				synctest.Wait()
				f.joins(ctx, m, m, "the same Mutex")
				f.joins(ctx, f.NewMutex("lock", withFair), m, "another Mutex")
				f.joins(ctx, f.With(once).NewMutex("lock"), m, "of a copy of the Redsync")
				f.silently("Redsync", func() {
					fails := func(context.Context) error { return errWork }
					errorIs(f, f.Do(ctx, "lock", fails), errWork)
					errorIs(f, f.ran(f.TryDo(ctx, "lock", func(ctx context.Context) error {
						return f.ran(f.TryDo(ctx, "lock", fails))
					})), errWork)
				})
				noError(f, f.Do(ctx, "other", func(ctx context.Context) error {
					other := redsync.FromContext(ctx)
					assert.Equal(f, "other", other.Name())
					synctest.Wait()
					f.joins(ctx, f.NewMutex("lock"), m, "through another name")
					return f.Do(ctx, "lock", func(ctx context.Context) error {
						f.joins(ctx, f.NewMutex("other"), other, "through a joined call")
						return nil
					})
				}))
			})
			f.closesAtOnce() // it does not wait for calls that have joined and returned
			f.noKeys()
		})
	}
}

// A joined function has a context of its own. It ends when the call's context ends, and when the call returns.
func TestContextOfAJoinedCall(t *testing.T) {
	play(t, func(f field) {
		enough := errors.New("enough")
		f.inside("lock", func(outer context.Context) {
			ctx, cancel := context.WithCancelCause(outer)
			var left context.Context
			noError(f, f.Do(ctx, "lock", func(inner context.Context) error {
				cancel(enough)
				errorIs(f, context.Cause(inner), enough)
				return outer.Err()
			}))
			noError(f, f.Do(outer, "lock", func(inner context.Context) error {
				left = inner //nolint:fatcontext // to look at it afterwards
				return nil
			}))
			isOver(f, left, context.Canceled)

			err := f.Do(ctx, "lock", never)
			require.NotErrorIs(f, err, redsync.ErrFailed)
			require.NotErrorIs(f, err, redsync.ErrNested)
			errorIs(f, err, enough, context.Canceled)
			says(f, f.Do(outer, "lock", nil), "the function is nil")
			says(f, f.Do(outer, "lock", never, withTries(-1)), "WithTries(-1) is out of range")
		})
	})
}

// The kind of the hold decides: a reader joins any hold, a writer only an exclusive one.
func TestWhichKindsJoin(t *testing.T) {
	playMet(t, func(f field) {
		reader, writer := f.NewMutex("lock", withShared), f.NewMutex("lock")
		f.inside("lock", func(ctx context.Context) { // a writer's
			outer := redsync.FromContext(ctx)
			synctest.Wait()
			f.joins(ctx, writer, outer, "write in write")
			f.joins(ctx, reader, outer, "read in write")
			noError(f, reader.Do(ctx, func(ctx context.Context) error {
				f.joins(ctx, writer, outer, "write in read in write: the hold is exclusive")
				return nil
			}))
			noError(f, outer.Downgrade(ctx))
			synctest.Wait()
			f.joins(ctx, reader, outer, "read after Downgrade")
			f.refusesNested(ctx, writer, redsync.ErrNested, upgrade, `"lock"`)
		})
		f.inside("lock", func(ctx context.Context) { // a reader's
			outer := redsync.FromContext(ctx)
			time.Sleep(sec)
			waits := f.foreign()
			time.Sleep(ms)
			f.joins(ctx, reader, outer, "read in read, while a writer waits")
			errorIs(f, f.notRun(reader.TryDo(f.Context(), never)), errOthers) // a TryDo without the context does not join, and finds the lock taken
			f.refusesNested(context.WithoutCancel(ctx), f.NewMultiMutex([]string{"lock", "z"}), redsync.ErrNested, upgrade, `"lock"`)
			f.stillWait(waits)
			time.AfterFunc(sec, func() { f.unlock(waits) })
		}, withShared)
		time.Sleep(2 * sec)
		f.noKeys()
	})
}

// A Lock inside a Do could wait for itself. Even a reader's Lock inside a reader's Do could, if a writer has come in
// between.
func TestLockWithinDoIsAnError(t *testing.T) {
	play(t, func(f field) {
		var left context.Context
		for _, outer := range []opts{nil, {withShared}} {
			f.inside("lock", func(ctx context.Context) {
				left = context.WithoutCancel(ctx) //nolint:fatcontext // for calls that come afterwards
				own := redsync.FromContext(ctx)
				f.silently("Lock", func() {
					for _, err := range []error{
						f.NewMutex("lock", withShared).LockContext(ctx), f.NewMutex("lock", withShared).TryLockContext(left),
						own.LockContext(ctx), own.TryLockContext(ctx),
					} {
						isNested(f, err, `"lock"`)
					}
					writer := f.NewMutex("lock").LockContext(ctx)
					require.ErrorIs(f, writer, redsync.ErrNested)
					require.Equal(f, outer != nil, strings.Contains(writer.Error(), upgrade))
				})
				f.confirms(own.Valid())
				err := f.another().NewMutex("lock").TryLockContext(ctx)
				erred(f, err)
				require.NotErrorIs(f, err, redsync.ErrNested) // another Redsync cannot know that the lock is held around the call
			}, outer...)
			m := f.NewMutex("lock")
			noError(f, m.LockContext(left)) // Lock works once the hold is over, even with its old context
			f.unlock(m)
		}
		errorIs(f, f.does("lock", func(ctx context.Context) error {
			f.unlock(redsync.FromContext(ctx))
			m := f.NewMutex("lock")
			noError(f, m.LockContext(ctx)) // Lock works once the function has unlocked
			f.unlock(m)
			return f.Do(ctx, "lock", func(inner context.Context) error {
				assert.NotSame(f, redsync.FromContext(ctx), redsync.FromContext(inner)) // the call has not joined: it has a hold of its own
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
	"returns later": func() error { time.Sleep(20 * sec); return nil },
}

// The hold lasts until joined calls have returned, even if the context that they were given does not end with the outer
// context. Do ends the contexts of their functions.
func TestTheHoldLastsUntilTheJoinedCallsHaveReturned(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	for name, end := range ways {
		playAs(t, name, func(f field) {
			other := f.another()
			var waiter *call
			var ended, left time.Time
			var joined, outer sync.WaitGroup
			outer.Go(func() {
				defer func() { left = time.Now(); _ = recover() }() //nolint:errcheck // it is that of the way
				_ = f.does("lock", func(ctx context.Context) error {
					for i := range 3 {
						joined.Go(func() {
							assert.NoError(f, f.Do(context.WithoutCancel(ctx), "lock", func(inner context.Context) error {
								<-inner.Done()
								assert.Equal(f, ended, time.Now())
								assert.ErrorIs(f, context.Cause(inner), context.Canceled)
								time.Sleep(time.Duration(i) * 10 * sec)
								return redsync.FromContext(inner).Err()
							}))
						})
					}
					synctest.Wait()
					waiter = f.waits(other)
					time.Sleep(sec)
					defer func() { ended = time.Now() }()
					return end()
				})
			})
			outer.Wait()
			joined.Wait()
			assert.Equal(f, ended.Add(20*sec), left) // Do has waited for all joined calls
			f.within(waiter, 10*ms)
			assert.WithinDuration(f, left, waiter.at, 10*ms)
			f.unlock(waiter)
			f.noKeys()
		})
	}
}

// Once the outer function has returned, a call joins the hold only if it is inside a joined function that still runs,
// because the release waits for that function. Any other call waits for the release and then locks.
func TestCallsThatComeWhileDoWaitsForJoinedOnes(t *testing.T) {
	playMet(t, func(f field) {
		var wg sync.WaitGroup
		var outer *redsync.Mutex
		var released time.Time
		returned := make(chan struct{})
		f.inside("lock", func(ctx context.Context) {
			outer = redsync.FromContext(ctx)
			wg.Go(func() {
				<-returned
				time.Sleep(sec)
				m := f.NewMutex("lock", forever)
				assert.ErrorIs(f, m.LockContext(ctx), context.Canceled)
				assert.NoError(f, m.Do(context.WithoutCancel(ctx), func(inner context.Context) error {
					assert.Same(f, m, redsync.FromContext(inner)) // the call has not joined: it has a hold of its own
					return inner.Err()
				}))
				assert.WithinDuration(f, released, time.Now(), 100*ms) // it waits for the release
			})
			wg.Go(func() {
				assert.NoError(f, f.Do(context.WithoutCancel(ctx), "lock", func(inner context.Context) error {
					<-inner.Done()
					close(returned)
					time.Sleep(20 * sec)
					assert.ErrorIs(f, f.Do(inner, "lock", never), context.Canceled)
					inner = context.WithoutCancel(inner)
					f.silently("Do in a joined function", func() {
						assert.ErrorIs(f, f.Do(inner, "lock", func(ctx context.Context) error {
							assert.ErrorIs(f, ctx.Err(), context.Canceled) // the context that the call was given has ended already
							assert.Same(f, outer, redsync.FromContext(ctx))
							return errWork
						}), errWork)
						assert.ErrorIs(f, f.NewMutex("lock").LockContext(inner), redsync.ErrNested)
					})
					time.Sleep(20 * sec)
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

// A function outlives its hold. The calls that have joined learn why the hold ended, and later calls lock for
// themselves.
func TestJoinedCallsLearnOfALoss(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(f field)
		is   error
	}{
		"the nodes lose it": {hit(field.lose, allNodes...), redsync.ErrLockAlreadyExpired},
		"WithMaxHold":       {func(field) {}, redsync.ErrMaxHold},
		"Close":             {func(f field) { noError(f, f.Close(f.Context())) }, redsync.ErrClosed},
	} {
		for _, waits := range []bool{false, true} {
			playAs(t, fmt.Sprintf("%s, the outer function has returned: %v", name, waits), func(f field) {
				lost := func(err error) { assert.ErrorIs(f, err, redsync.ErrLockLost); assert.ErrorIs(f, err, c.is) }
				var wg sync.WaitGroup
				joined := make(chan struct{})
				wg.Go(func() {
					lost(f.does("lock", func(ctx context.Context) error {
						wg.Go(func() {
							err := f.Do(context.WithoutCancel(ctx), "lock", func(inner context.Context) error {
								close(joined)
								<-redsync.FromContext(inner).Lost()
								<-inner.Done()
								if !waits {
									lost(context.Cause(inner))
									assert.Same(f, context.Cause(ctx), context.Cause(inner))
								}
								return errWork
							})
							lost(err)
							assert.ErrorIs(f, err, errWork)
							assert.NotErrorIs(f, err, redsync.ErrFailed)
							says(f, err, `do "lock"`)
						})
						<-joined
						if waits {
							return nil
						}
						<-ctx.Done()
						if name == "the nodes lose it" {
							assert.NoError(f, f.Do(context.WithoutCancel(ctx), "lock", func(again context.Context) error {
								assert.NotSame(f, redsync.FromContext(ctx), redsync.FromContext(again)) // the call has not joined: it has a hold of its own
								return again.Err()
							}))
						}
						return nil
					}, withMaxHold(10*sec)))
				})
				<-joined
				time.Sleep(sec)
				c.lose(f)
				wg.Wait()
			})
		}
	}
}
