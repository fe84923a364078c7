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

// Nodes restart without data. A hold that heals survives that, with an owner as without. Nobody has forced anything.
func TestEyesRestartIsNoForce(t *testing.T) {
	for _, owner := range []bool{false, true} {
		for _, nodes := range [][]int{{0, 1, 2}, {0, 1, 2, 3, 4}} {
			play(t, func(f field) {
				options := []redsync.Option{redsync.WithWatchdog(), redsync.WithSetNXOnExtend()}
				if owner {
					options = append(options, redsync.WithOwner("w"))
				}
				m := f.another().NewMutex("lock", options...)
				require.NoError(f, m.Lock())
				time.Sleep(2 * time.Second)
				f.reboot(true, nodes...)
				time.Sleep(20 * time.Second)
				t.Log(owner, nodes, m.Err())
				assert.NoError(f, m.Err(), "owner %v, nodes %v", owner, nodes)
			})
		}
	}
}

// One node is down, and an extension that heals runs after two deletions and before the other two. A quorum is deleted.
func TestEyesAHealThatSplitsTheForce(t *testing.T) {
	play(t, func(f field) {
		m := f.another().NewMutex("lock", redsync.WithOwner("w"), redsync.WithExpiry(6*time.Second), redsync.WithWatchdog(), redsync.WithSetNXOnExtend())
		start := time.Now()
		require.NoError(f, m.Lock())
		rs := f.newcomer(0, func(_, node int) time.Duration {
			if node >= 2 {
				return 20 * time.Millisecond
			}
			return 0
		})
		f.closes(rs)
		f.as(rs).meet()
		operator := rs.NewMutex("lock")
		f.nodes[4].Kill()
		h := f.holderOf(operator)
		time.Sleep(time.Until(start.Add(2*time.Second - 5*time.Millisecond)))
		require.NoError(f, operator.ForceUnlock(f.Context(), h))
		time.Sleep(5 * time.Second)
		require.ErrorIs(f, m.Err(), redsync.ErrForced)
		assert.Empty(f, f.nodes[0].Keys())
	})
}

func TestEyesLeadForced(t *testing.T) {
	play(t, func(f field) {
		rs := f.another()
		ctx, cancel := context.WithCancel(f.Context())
		terms := make(chan error, 10)
		done := make(chan error, 1)
		go func() {
			done <- rs.Lead(ctx, "lock", func(ctx context.Context) error {
				<-ctx.Done()
				terms <- context.Cause(ctx)
				return nil
			}, redsync.WithOwner("w"))
		}()
		time.Sleep(2 * time.Second)
		operator := f.NewMutex("lock")
		require.NoError(f, operator.ForceUnlock(f.Context(), f.holderOf(operator)))
		start := time.Now()
		require.ErrorIs(f, <-terms, redsync.ErrForced)
		assert.Less(f, time.Since(start), 10*time.Millisecond)
		time.Sleep(time.Second)
		h := f.holderOf(operator)
		assert.Equal(f, "w", h.Owner)
		cancel()
		t.Log(<-done)
	})
}

func TestEyesNestedDo(t *testing.T) {
	play(t, func(f field) {
		rs := f.another(redsync.WithOwner("w"))
		err := rs.Do(f.Context(), "lock", func(ctx context.Context) error {
			return rs.Do(ctx, "lock", func(ctx context.Context) error {
				time.Sleep(2 * time.Second)
				operator := f.NewMutex("lock")
				require.NoError(f, operator.ForceUnlock(f.Context(), f.holderOf(operator)))
				select {
				case <-ctx.Done():
				case <-time.After(time.Minute):
				}
				return context.Cause(ctx)
			})
		})
		require.ErrorIs(f, err, redsync.ErrForced)
	})
}

// A key without an end.
func TestEyesCloseAfterAForceOfAnEndlessKey(t *testing.T) {
	play(t, func(f field) {
		for _, n := range f.nodes {
			require.NoError(f, n.Set("lock", "Tq2NfQ6zYQ1dUt4QkPJqkA=="))
		}
		rs := f.another()
		operator := rs.NewMutex("lock")
		h := f.holderOf(operator)
		assert.Negative(f, h.TTL)
		f.kill(0, 1, 2)
		err := operator.ForceUnlock(f.Context(), h)
		t.Log(err)
		start := time.Now()
		t.Log(rs.Close(f.Context()))
		assert.Less(f, time.Since(start), time.Minute)
		f.restart(0, 1, 2)
	})
}

// The user has seen the value.
func TestEyesShownValue(t *testing.T) {
	for offset := -12 * time.Millisecond; offset <= 12*time.Millisecond; offset += time.Millisecond {
		play(t, func(f field) {
			rs := f.newcomer(0, everywhere(3*time.Millisecond))
			f.closes(rs)
			f.as(rs).meet()
			m := rs.NewMutex("lock", redsync.WithOwner("w"), redsync.WithExpiry(6*time.Second), redsync.WithWatchdog(), redsync.WithSetNXOnExtend())
			start := time.Now()
			require.NoError(f, m.Lock())
			_ = m.Value()
			operator := f.NewMutex("lock")
			h := f.holderOf(operator)
			time.Sleep(time.Until(start.Add(2*time.Second + offset)))
			require.NoError(f, operator.ForceUnlock(f.Context(), h))
			time.Sleep(100 * time.Millisecond)
			require.ErrorIs(f, m.Err(), redsync.ErrForced)
			left := 0
			for _, n := range f.nodes {
				if n.Exists("lock") {
					left++
				}
			}
			assert.Zero(f, left, "offset %v", offset)
		})
	}
}

// Downgraded on some nodes only.
func TestEyesDowngradedOnSome(t *testing.T) {
	play(t, func(f field) {
		m := f.another(redsync.WithOwner("w")).NewMutex("lock", redsync.WithExpiry(time.Minute))
		require.NoError(f, m.Lock())
		time.Sleep(1500 * time.Millisecond)
		f.freeze(3, 4)
		err := m.Downgrade(f.Context())
		t.Log(err)
		f.kill(3, 4)
		time.Sleep(time.Second)
		f.restart(3, 4)
		operator := f.NewMutex("lock")
		for _, h := range f.inspected(operator).Holders {
			t.Log(h)
			t.Log(operator.ForceUnlock(f.Context(), h))
		}
		time.Sleep(time.Second)
		t.Log(m.Err())
		synctest.Wait()
		for i, n := range f.nodes {
			v, _ := n.Get("lock")
			assert.Empty(f, v, "node %d", i)
		}
	})
}
