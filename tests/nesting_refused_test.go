package redsync_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
)

// This file tests what joined calls do not get, and what they prevent.

// upgrade stands in the error of an exclusive call inside a Do that holds the name shared.
const upgrade = "an exclusive lock within a shared one"

// isNested checks that err says that a call is inside a Do, and has these texts.
func isNested(tb testing.TB, err error, texts ...string) {
	tb.Helper()
	errorIs(tb, err, redsync.ErrNested)
	require.NotErrorIs(tb, err, redsync.ErrFailed)
	says(tb, err, texts...)
}

// A call whose options ask for more than the hold has must not rely on it.
func TestACallThatAsksForMoreThanTheHoldHas(t *testing.T) {
	for name, c := range map[string]struct {
		less, more opts
		asks       string // what more asks for
		has, no    string // what a hold with less has, and one with no option
	}{
		"WithExpiry":    {opts{withExpiry(4 * sec)}, opts{withExpiry(8001 * ms)}, "(8.001s)", "has 4s", "has 8s"},
		"WithLockDelay": {opts{withLockDelay(sec)}, opts{withLockDelay(2 * sec)}, "(2s)", "has 1s", "has 0s"},
		"WithMaxHold":   {opts{withMaxHold(hour)}, opts{withMaxHold(2 * hour)}, "(2h0m0s)", "has 1h0m0s", "has no limit"},
		"WithFencing":   {nil, opts{withFencing}, "()", "has no token", "has no token"},
		"WithFair":      {nil, opts{withFair, once, redsync.WithPriority(7), noHandOver}, "", "", ""}, // about waiting
	} {
		playMetAs(t, name, func(f field) {
			inside := func(outer, inner opts, texts ...string) {
				for _, outer := range []opts{outer, append(opts{withShared}, outer...)} {
					f.inside("lock", func(ctx context.Context) {
						m := f.NewMutex("lock", append(opts{withShared}, inner...)...)
						synctest.Wait()
						if len(texts) == 0 {
							f.joins(ctx, m, redsync.FromContext(ctx), name)
							return
						}
						for _, do := range dos {
							isNested(f, do(m, ctx, never), append(texts, name, `"lock"`)...)
						}
					}, outer...)
				}
			}
			if c.asks != "" {
				inside(nil, c.more, c.asks, c.no)
				inside(c.less, c.more, c.asks, c.has)
			} else {
				inside(nil, c.more)
			}
			inside(c.more, c.more)
			inside(c.more, nil)
			if name == "WithMaxHold" {
				inside(c.more, c.less, "(1h0m0s)", "has 2h0m0s")
			} else {
				inside(c.more, c.less)
			}
		})
	}
}

// A minimal hold counts from the attempt that has locked. A call that comes later, and wants the keys to stay for d
// from then on, must not rely on them, even if the hold has the same option. No call joins a permit.
func TestACallWithAMinimalHoldDoesNotJoin(t *testing.T) {
	playMet(t, func(f field) {
		f.inside("lock", func(ctx context.Context) {
			noError(f, f.Do(ctx, "lock", nothing))
			for _, do := range dos {
				isNested(f, do(f.NewMutex("lock", withMinHold(sec)), ctx, never), "WithMinHold(1s)")
			}
		}, withMinHold(minute))
		f.inside("p", func(ctx context.Context) {
			isNested(f, f.Do(ctx, "p", never, withPermits(2)), `has a permit of "p"`)
		}, withPermits(2))
	})
}

// While an exclusive call has joined the hold, the hold cannot be downgraded. Readers that have joined do not prevent
// that.
func TestDowngradeWhileCallsHaveJoined(t *testing.T) {
	playMet(t, func(f field) {
		f.inside("lock", func(ctx context.Context) {
			outer := redsync.FromContext(ctx)
			errorIs(f, f.Do(ctx, "lock", func(context.Context) error {
				until := outer.Until()
				time.Sleep(sec)
				f.silently("Downgrade", func() { isNested(f, outer.Downgrade(ctx), `downgrade "lock"`) })
				assert.Equal(f, until, outer.Until())
				return f.notRun(f.TryDo(f.Context(), "lock", never, withShared))
			}), errOthers)
			noError(f, f.Do(ctx, "lock", func(inner context.Context) error {
				noError(f, outer.Downgrade(inner))
				noError(f, outer.Downgrade(inner)) // again
				return f.ran(f.TryDo(f.Context(), "lock", nothing, withShared))
			}, withShared))
			isNested(f, f.Do(ctx, "lock", never), upgrade)
		})
		noError(f, f.does("lock", func(ctx context.Context) error {
			return f.Do(ctx, "lock", nothing)
		})) // the next hold is exclusive again
	})
}

// Unlock must not release the lock while a call that has joined still runs. Once that call has returned, Unlock works
// as usual.
func TestUnlockWhileCallsHaveJoined(t *testing.T) {
	playMet(t, func(f field) {
		m := f.NewMutex("lock")
		errorIs(f, m.Do(f.Context(), func(ctx context.Context) error {
			noError(f, f.Do(ctx, "lock", func(inner context.Context) error {
				f.silently("Unlock", func() {
					ok, err := m.Unlock()
					assert.False(f, ok)
					isNested(f, err, `unlock "lock"`)
					require.NotErrorIs(f, err, redsync.ErrLockAlreadyExpired)
				})
				_, err := m.Detach(inner)
				says(f, err, "Do unlocks it")
				alive(f, m)
				f.keysOn(5)
				return inner.Err()
			}, withShared))
			f.unlock(m)
			synctest.Wait()
			f.keysOn(0)
			return nil
		}), redsync.ErrNotHeld)

		errorIs(f, m.Do(f.Context(), func(ctx context.Context) error {
			return f.Do(context.WithoutCancel(ctx), "lock", func(inner context.Context) error {
				f.lose(allNodes...)
				<-inner.Done()
				failsWith(f, m.Unlock, redsync.ErrLockLost) // the hold is over anyway
				return nil
			})
		}), redsync.ErrLockLost)
		f.noKeys()
	})
}

// The hold ends, or is downgraded, while an exclusive call is about to join it. Then the call locks instead, or fails.
func TestTheHoldChangesWhileACallJoins(t *testing.T) {
	for name, change := range map[string]func(m *redsync.Mutex) error{
		"Unlock":    func(m *redsync.Mutex) error { return second(m.Unlock()) },
		"Downgrade": func(m *redsync.Mutex) error { return m.Downgrade(context.Background()) },
	} {
		joined, not := 0, 0
		atEachTurn(t, func(f field, turning turner) {
			f.meet()
			_ = f.does("lock", func(ctx context.Context) error {
				outer := redsync.FromContext(ctx)
				ctx = turning(context.WithoutCancel(ctx), func() {
					if err := change(outer); err != nil {
						assert.ErrorIs(f, err, redsync.ErrNested) // the call has joined
					}
					synctest.Wait()
				})
				err := f.Do(ctx, "lock", func(inner context.Context) error {
					m := redsync.FromContext(inner)
					if m == outer {
						joined++
					} else {
						not++
					}
					ok, err := m.Valid()
					assert.True(f, ok) // no function runs without the lock
					ran, _ := f.TryDo(f.Context(), "lock", nothing, withShared)
					assert.False(f, ran) // a reader beside an exclusive call
					return err
				})
				if err != nil {
					assert.ErrorIs(f, err, redsync.ErrNested)
					assert.Equal(f, "Downgrade", name)
					not++
				}
				return nil
			})
			f.noKeys()
		})
		assert.Positive(t, joined, name)
		assert.Positive(t, not, name)
	}
}

// A Mutex that adopts a hold adopts it inside a Do, too, and ends it.
func TestDoThatAdoptsDoesNotJoin(t *testing.T) {
	play(t, func(f field) {
		errorIs(f, f.does("lock", func(ctx context.Context) error {
			errorIs(f, f.NewMutex("lock", withValue("wrong")).Do(ctx, never), redsync.ErrLockAlreadyExpired)
			adopts := f.NewMutex("lock", withSequencer(redsync.FromContext(ctx).Sequencer()))
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
