package redsync_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file shows what ForceUnlock releases, and who learns of it when.

// holderOf returns the only holder that m.Inspect finds.
func (u user) holderOf(m *redsync.Mutex) redsync.Holder {
	u.Helper()
	s := u.inspected(m)
	require.Len(u, s.Holders, 1)
	return s.Holders[0]
}

func TestForceUnlockReleasesALockOfEachKind(t *testing.T) {
	for _, kind := range lockKinds {
		for _, owner := range [][]redsync.Option{nil, {redsync.WithOwner("worker-7@host")}} {
			t.Run(kind.column, func(t *testing.T) {
				play(t, func(f field) {
					holder := kind.lock(f.another(owner...), redsync.WithWatchdog())
					require.NoError(f, holder.Lock())
					synctest.Wait()
					operator := kind.lock(f.Redsync)
					h := f.holderOf(operator)
					require.NoError(f, operator.ForceUnlock(f.Context(), h))
					synctest.Wait()
					for _, key := range kind.keys {
						assert.False(f, f.nodes[0].Exists(key))
					}
					err := operator.ForceUnlock(f.Context(), h)
					require.ErrorIs(f, err, redsync.ErrNotHeld)
					require.NotErrorIs(f, err, redsync.ErrNoQuorum)
					<-holder.Lost()
					_, err = holder.Unlock()
					require.ErrorIs(f, err, redsync.ErrLockAlreadyExpired)
				})
			})
		}
	}
}

// Who learns when: the table of ForceUnlock.
func TestWhenTheHolderLearnsOfTheForce(t *testing.T) {
	const trip = 2 * hop
	for name, c := range map[string]struct {
		options []redsync.Option
		held    time.Duration // for how long by then
		within  time.Duration
		forced  bool
	}{
		"owner, held for long":      {[]redsync.Option{redsync.WithOwner("w"), redsync.WithWatchdog()}, 5 * time.Second, 2 * trip, true},
		"owner that heals":          {[]redsync.Option{redsync.WithOwner("w"), redsync.WithWatchdog(), redsync.WithSetNXOnExtend()}, 5 * time.Second, 2 * trip, true},
		"owner without a watchdog":  {[]redsync.Option{redsync.WithOwner("w"), redsync.WithExpiry(time.Minute)}, 5 * time.Second, 2 * trip, true},
		"owner, held for a moment":  {[]redsync.Option{redsync.WithOwner("w"), redsync.WithWatchdog()}, 100 * time.Millisecond, time.Second, true},
		"watchdog without an owner": {[]redsync.Option{redsync.WithWatchdog()}, 5 * time.Second, 8*time.Second/3 + 2*trip, false},
		"neither":                   {nil, time.Second, 8 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				r := &redsynctest.Recorder{}
				holder := f.far().With(redsync.WithObserver(r)).NewMutex("a", c.options...)
				require.NoError(f, holder.Lock())
				time.Sleep(c.held)
				operator := f.NewMutex("a")
				h := f.holderOf(operator)
				require.NoError(f, operator.ForceUnlock(f.Context(), h))
				start := time.Now()
				select {
				case <-holder.Lost():
				case <-time.After(time.Minute):
				}
				assert.LessOrEqual(f, time.Since(start), c.within)
				err := holder.Err()
				require.ErrorIs(f, err, redsync.ErrLockLost)
				assert.Equal(f, c.forced, errors.Is(err, redsync.ErrForced), "%v", err)
				synctest.Wait()
				lost := redsynctest.Events[observe.Lost](r)
				require.Len(f, lost, 1)
				assert.Equal(f, err, lost[0].Err)
				assert.Empty(f, f.nodes[0].Keys(), "nobody has taken it back")
				_, err = holder.Unlock()
				require.ErrorIs(f, err, redsync.ErrLockAlreadyExpired)
			})
		})
	}
}

// Inside Do the context ends, and its cause says why.
func TestForceEndsTheContextOfDo(t *testing.T) {
	play(t, func(f field) {
		err := f.another(redsync.WithOwner("w")).Do(f.Context(), "a", func(ctx context.Context) error {
			time.Sleep(2 * time.Second)
			operator := f.NewMutex("a")
			require.NoError(f, operator.ForceUnlock(f.Context(), f.holderOf(operator)))
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
			return context.Cause(ctx)
		})
		require.ErrorIs(f, err, redsync.ErrForced)
		require.ErrorIs(f, err, redsync.ErrLockLost)
		assert.ErrorIs(f, redsync.ErrForced, redsync.ErrLockLost)
	})
}
