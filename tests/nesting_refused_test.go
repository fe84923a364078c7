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

// A call whose options ask for more than the hold has must not rely on it.
func TestACallThatAsksForMoreThanTheHoldHas(t *testing.T) {
	type options = opts
	shared := withShared
	for name, c := range map[string]struct {
		less, more options
		asks       string // what more asks for
		has, no    string // what a hold with less has, and one with no option
	}{
		"WithExpiry":    {options{redsync.WithExpiry(4 * time.Second)}, options{redsync.WithExpiry(8001 * ms)}, "(8.001s)", "has 4s", "has 8s"},
		"WithLockDelay": {options{redsync.WithLockDelay(time.Second)}, options{redsync.WithLockDelay(2 * time.Second)}, "(2s)", "has 1s", "has 0s"},
		"WithMaxHold":   {options{redsync.WithMaxHold(time.Hour)}, options{redsync.WithMaxHold(2 * time.Hour)}, "(2h0m0s)", "has 1h0m0s", "has no limit"},
		"WithFencing":   {nil, options{withFencing}, "()", "has no token", "has no token"},
		"WithFair":      {nil, options{withFair, redsync.WithTries(1), redsync.WithPriority(7), redsync.WithHandOver(false)}, "", "", ""}, // about waiting
	} {
		playMetAs(t, name, func(f field) {
			inside := func(outer, inner options, texts ...string) {
				for _, outer := range []options{outer, append(options{shared}, outer...)} {
					f.inside("lock", func(ctx context.Context) {
						m := f.With(append(options{shared}, inner...)...).NewMutex("lock")
						synctest.Wait()
						if len(texts) == 0 {
							f.joins(ctx, m, redsync.FromContext(ctx), name)
							return
						}
						for _, do := range dos {
							err := do(m, ctx, never)
							require.ErrorIs(f, err, redsync.ErrNested)
							require.NotErrorIs(f, err, redsync.ErrFailed)
							for _, text := range append(texts, name, `"lock"`) {
								require.ErrorContains(f, err, text)
							}
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
// from then on, must not rely on them, even if the hold has the same option.
func TestACallWithAMinimalHoldDoesNotJoin(t *testing.T) {
	playMet(t, func(f field) {
		f.inside("lock", func(ctx context.Context) {
			require.NoError(f, f.Do(ctx, "lock", nothing))
			for _, do := range dos {
				err := do(f.NewMutex("lock", redsync.WithMinHold(time.Second)), ctx, never)
				require.ErrorIs(f, err, redsync.ErrNested)
				require.ErrorContains(f, err, "WithMinHold(1s)")
			}
		}, redsync.WithMinHold(time.Minute))
	})
}

// While an exclusive call has joined the hold, the hold cannot be downgraded. Readers that have joined do not prevent
// that.
func TestDowngradeWhileCallsHaveJoined(t *testing.T) {
	playMet(t, func(f field) {
		f.inside("lock", func(ctx context.Context) {
			outer := redsync.FromContext(ctx)
			require.ErrorIs(f, f.Do(ctx, "lock", func(context.Context) error {
				until := outer.Until()
				time.Sleep(time.Second)
				f.silently("Downgrade", func() {
					err := outer.Downgrade(ctx)
					require.ErrorIs(f, err, redsync.ErrNested)
					require.NotErrorIs(f, err, redsync.ErrFailed)
					require.ErrorContains(f, err, `downgrade "lock"`)
				})
				assert.Equal(f, until, outer.Until())
				return f.notRun(f.TryDo(f.Context(), "lock", never, withShared))
			}), errOthers)
			require.NoError(f, f.Do(ctx, "lock", func(inner context.Context) error {
				require.NoError(f, outer.Downgrade(inner))
				require.NoError(f, outer.Downgrade(inner), "again")
				return f.ran(f.TryDo(f.Context(), "lock", nothing, withShared))
			}, withShared))
			require.ErrorIs(f, f.Do(ctx, "lock", never), redsync.ErrUpgrade)
		})
		require.NoError(f, f.Do(f.Context(), "lock", func(ctx context.Context) error {
			return f.Do(ctx, "lock", nothing)
		}), "the next hold is exclusive again")
	})
}

// The hold of a Do is lost, and the Mutex gets another one, while an exclusive call that had joined the first still runs.
// That call is not on the second hold, which therefore can be downgraded.
func TestDowngradeOfTheHoldAfterThatOfADo(t *testing.T) {
	playMet(t, func(f field) {
		m := f.NewMutex("lock")
		require.ErrorIs(f, m.Do(f.Context(), func(ctx context.Context) error {
			return f.Do(context.WithoutCancel(ctx), "lock", func(inner context.Context) error {
				f.lose(allNodes...)
				<-inner.Done()
				locked(f, m)
				f.downgrades(m)
				f.unlock(m)
				return nil
			})
		}), redsync.ErrLockLost)
		f.noKeys()
	})
}

// Unlock must not release the lock while a call that has joined still runs. Once that call has returned, Unlock works
// as usual.
func TestUnlockWhileCallsHaveJoined(t *testing.T) {
	playMet(t, func(f field) {
		m := f.NewMutex("lock")
		require.ErrorIs(f, m.Do(f.Context(), func(ctx context.Context) error {
			require.NoError(f, f.Do(ctx, "lock", func(inner context.Context) error {
				f.silently("Unlock", func() {
					ok, err := m.Unlock()
					assert.False(f, ok)
					require.ErrorIs(f, err, redsync.ErrNested)
					require.NotErrorIs(f, err, redsync.ErrLockAlreadyExpired)
					require.ErrorContains(f, err, `unlock "lock"`)
				})
				_, err := m.Detach(inner)
				require.ErrorContains(f, err, "Do unlocks it")
				alive(f, m)
				f.keysOn(5)
				return inner.Err()
			}, withShared))
			f.unlock(m)
			synctest.Wait()
			f.keysOn(0)
			return nil
		}), redsync.ErrNotHeld)

		require.ErrorIs(f, m.Do(f.Context(), func(ctx context.Context) error {
			return f.Do(context.WithoutCancel(ctx), "lock", func(inner context.Context) error {
				f.lose(allNodes...)
				<-inner.Done()
				_, err := m.Unlock()
				require.ErrorIs(f, err, redsync.ErrLockLost, "the Unlock fails, because the hold is over anyway")
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
			_ = f.Do(f.Context(), "lock", func(ctx context.Context) error {
				outer := redsync.FromContext(ctx)
				ctx = turning(context.WithoutCancel(ctx), func() {
					if err := change(outer); err != nil {
						assert.ErrorIs(f, err, redsync.ErrNested, "the call has joined")
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
					assert.True(f, ok, "no function runs without the lock")
					ran, _ := f.TryDo(f.Context(), "lock", nothing, withShared)
					assert.False(f, ran, "a reader beside an exclusive call")
					return err
				})
				if err != nil {
					assert.ErrorIs(f, err, redsync.ErrUpgrade)
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
		require.ErrorIs(f, f.Do(f.Context(), "lock", func(ctx context.Context) error {
			require.ErrorIs(f, f.NewMutex("lock", redsync.WithValue("wrong")).Do(ctx, never), redsync.ErrLockAlreadyExpired)
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
