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
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// When the hold of a Do ends that other calls have joined, and what keeps it from ending. nesting_test.go shows what joins.

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

// Goroutines join and leave at random, also while the outer function has returned. No function runs without the lock,
// and the lock is free afterwards.
func TestManyNestedCalls(t *testing.T) {
	for range testlength.Of(5, 20, 200) {
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
