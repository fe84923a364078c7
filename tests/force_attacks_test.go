package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file attacks ForceUnlock, and those who hear of it.

// Nodes restart without data. A hold that heals survives that, with an owner as without: no message has come.
func TestARestartIsNoForce(t *testing.T) {
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
				assert.NoError(f, m.Err(), "owner %v, nodes %v", owner, nodes)
			})
		}
	}
}

// One node is down, and an extension that heals runs after two deletions and before the other two. A quorum is deleted.
func TestAHealThatSplitsTheForce(t *testing.T) {
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

// Lead ends the term at once, and campaigns again.
func TestALeaderThatIsForcedEndsItsTerm(t *testing.T) {
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
		<-done
	})
}

// A key without an end was forced, and a quorum is down. Close does not wait for it for ever.
func TestCloseDoesNotWaitForAKeyWithoutAnEnd(t *testing.T) {
	play(t, func(f field) {
		for _, n := range f.nodes {
			require.NoError(f, n.Set("lock", "Tq2NfQ6zYQ1dUt4QkPJqkA=="))
		}
		rs := f.another()
		operator := rs.NewMutex("lock")
		h := f.holderOf(operator)
		assert.Negative(f, h.TTL)
		f.kill(0, 1, 2)
		require.ErrorIs(f, operator.ForceUnlock(f.Context(), h), redsync.ErrNoQuorum)
		start := time.Now()
		_ = rs.Close(f.Context()) // names the lock
		assert.Less(f, time.Since(start), time.Minute)
		f.restart(0, 1, 2)
	})
}

// Close comes while a holder asks nodes that were frozen.
func TestCloseWhileTheHolderAsks(t *testing.T) {
	for _, ms := range []int{0, 1, 5, 10, 15, 20, 25, 30, 40, 60, 100} {
		play(t, func(f field) {
			rs := f.far()
			m := rs.NewMutex("lock", redsync.WithOwner("w"), redsync.WithWatchdog(), redsync.WithSetNXOnExtend())
			require.NoError(f, m.Lock())
			time.Sleep(1500 * time.Millisecond)
			h := f.holderOf(f.NewMutex("lock"))
			f.freeze(0, 1, 2)
			client := f.nodes[3].Client()
			channel := fmt.Sprintf("redsync:%016d", h.Process)
			for range 10 {
				require.NoError(f, client.Publish(f.Context(), channel, "forced "+h.ID).Err())
			}
			_ = client.Close()
			time.Sleep(time.Duration(ms) * time.Millisecond)
			start := time.Now()
			f.thaw(0, 1, 2)
			err := rs.Close(f.Context())
			require.NoError(f, err)
			assert.Less(f, time.Since(start), time.Second)
			synctest.Wait()
			assert.Zero(f, f.nodes.Keys("lock"))
		})
	}
}

// Two operators and the holder itself force at once. Contexts end at each moment: the release goes on.
func TestSeveralOperatorsAndContextsThatEnd(t *testing.T) {
	play(t, func(f field) {
		m := f.another(redsync.WithOwner("w")).NewMutex("lock", redsync.WithWatchdog())
		require.NoError(f, m.Lock())
		time.Sleep(1500 * time.Millisecond)
		a, b := f.newcomer(0, everywhere(3*time.Millisecond)), f.newcomer(1, func(_, n int) time.Duration { return time.Duration(n+1) * time.Millisecond })
		f.closes(a, b)
		f.as(a).meet()
		f.as(b).meet()
		ma, mb := a.NewMutex("lock"), b.NewMutex("lock")
		h := f.holderOf(ma)
		var wg sync.WaitGroup
		wg.Go(func() { _ = ma.ForceUnlock(f.Context(), h) })
		wg.Go(func() { _ = mb.ForceUnlock(f.Context(), h) })
		wg.Go(func() { _ = m.ForceUnlock(f.Context(), h) })
		wg.Wait()
		synctest.Wait()
		require.ErrorIs(f, m.Err(), redsync.ErrForced)
	})
	for ms := range 30 {
		at := time.Duration(ms) * time.Millisecond
		play(t, func(f field) {
			m := f.another(redsync.WithOwner("w")).NewMutex("lock", redsync.WithWatchdog())
			require.NoError(f, m.Lock())
			time.Sleep(1500 * time.Millisecond)
			h := f.holderOf(f.NewMutex("lock"))
			a := f.newcomer(0, everywhere(10*time.Millisecond))
			f.closes(a)
			ctx, cancel := context.WithTimeout(f.Context(), at)
			defer cancel()
			start := time.Now()
			_ = a.NewMutex("lock").ForceUnlock(ctx, h)
			took := time.Since(start)
			time.Sleep(time.Second)
			if at > 0 {
				require.ErrorIs(f, m.Err(), redsync.ErrForced)
				assert.Zero(f, f.nodes.Keys("lock"))
			}
			assert.LessOrEqual(f, took, at+time.Millisecond)
		})
	}
}

// All permits of one holder are released, and healing gives none back.
func TestForceUnlockReleasesAllPermitsOfAHolder(t *testing.T) {
	play(t, func(f field) {
		m := f.another(redsync.WithOwner("w")).NewMutex("p", redsync.WithPermits(3), redsync.WithWeight(2), redsync.WithFair(), redsync.WithWatchdog(), redsync.WithSetNXOnExtend())
		require.NoError(f, m.Lock())
		time.Sleep(1500 * time.Millisecond)
		operator := f.NewMutex("p", redsync.WithPermits(3), redsync.WithFair())
		h := f.holderOf(operator)
		require.NoError(f, operator.ForceUnlock(f.Context(), h))
		time.Sleep(100 * time.Millisecond)
		require.ErrorIs(f, m.Err(), redsync.ErrForced)
		assert.Empty(f, f.nodes[0].Keys())
	})
}

// A value that one node alone has is cleared away there. The holder of the lock is left alone.
func TestForceUnlockOfAValueWithoutAQuorum(t *testing.T) {
	play(t, func(f field) {
		m := f.another(redsync.WithOwner("w")).NewMutex("lock", redsync.WithWatchdog())
		require.NoError(f, f.nodes[0].Set("lock", "Tq2NfQ6zYQ1dUt4QkPJqkA=="))
		f.nodes[0].SetTTL("lock", time.Minute)
		require.NoError(f, m.Lock())
		operator := f.NewMutex("lock")
		s := f.inspected(operator)
		h := s.Nodes[0].Holders[0]
		_ = operator.ForceUnlock(f.Context(), h)
		time.Sleep(10 * time.Second)
		v, _ := f.nodes[0].Get("lock")
		assert.NotEqual(f, "Tq2NfQ6zYQ1dUt4QkPJqkA==", v)
		require.NoError(f, m.Err())
	})
}

// A megabyte on the channel ends nothing, and the next message is heard.
func TestVeryLongMessagesOfAForceEndNothing(t *testing.T) {
	play(t, func(f field) {
		m := f.another(redsync.WithOwner("w")).NewMutex("lock", redsync.WithWatchdog(), redsync.WithSetNXOnExtend())
		require.NoError(f, m.Lock())
		time.Sleep(1500 * time.Millisecond)
		h := f.holderOf(f.NewMutex("lock"))
		channel := fmt.Sprintf("redsync:%016d", h.Process)
		c := f.nodes[0].Client()
		for range testlength.Of(2, 50, 50) {
			require.NoError(f, c.Publish(f.Context(), channel, "forced "+strings.Repeat("x", 1<<20)).Err())
			require.NoError(f, c.Publish(f.Context(), channel, "forced "+h.ID+strings.Repeat(" ", 1<<20)).Err())
			require.NoError(f, c.Publish(f.Context(), channel, strings.Repeat("forced ", 1<<17)).Err())
		}
		_ = c.Close()
		time.Sleep(10 * time.Second)
		require.NoError(f, m.Err())
		operator := f.NewMutex("lock")
		require.NoError(f, operator.ForceUnlock(f.Context(), f.holderOf(operator)))
		time.Sleep(100 * time.Millisecond)
		require.ErrorIs(f, m.Err(), redsync.ErrForced)
	})
}

// Tokens never go back after a force.
func TestTokensRiseOverForces(t *testing.T) {
	play(t, func(f field) {
		var last uint64
		for i := range 20 {
			m := f.another(redsync.WithOwner("w")).NewMutex("lock", redsync.WithFencing(), redsync.WithWatchdog(), redsync.WithSetNXOnExtend())
			require.NoError(f, m.Lock())
			require.Greater(f, m.Fence(), last)
			last = m.Fence()
			time.Sleep(time.Duration(i) * 200 * time.Millisecond)
			operator := f.NewMutex("lock")
			require.NoError(f, operator.ForceUnlock(f.Context(), f.holderOf(operator)))
		}
	})
}

// A force takes keys away that would stay after Unlock, or after a loss.
func TestForceUnlockEndsMinimalHoldAndLockDelay(t *testing.T) {
	for _, o := range []redsync.Option{redsync.WithMinHold(5 * time.Second), redsync.WithLockDelay(5 * time.Second), redsync.WithMaxHold(time.Minute)} {
		for _, heals := range []bool{false, true} {
			play(t, func(f field) {
				options := []redsync.Option{o, redsync.WithWatchdog(), redsync.WithOwner("w")}
				if heals {
					options = append(options, redsync.WithSetNXOnExtend())
				}
				m := f.another().NewMutex("lock", options...)
				require.NoError(f, m.Lock())
				time.Sleep(1500 * time.Millisecond)
				operator := f.NewMutex("lock", o)
				require.NoError(f, operator.ForceUnlock(f.Context(), f.holderOf(operator)))
				time.Sleep(200 * time.Millisecond)
				synctest.Wait()
				require.ErrorIs(f, m.Err(), redsync.ErrForced)
				assert.Zero(f, f.nodes.Keys("lock"))
			})
		}
	}
}

// Two nodes are frozen, and the node deadline is long. The holder hears of the force all the same.
func TestFrozenNodesDoNotDelayWhoHearsOfTheForce(t *testing.T) {
	play(t, func(f field) {
		m := f.another(redsync.WithOwner("w")).NewMutex("lock", redsync.WithExpiry(30*time.Second), redsync.WithWatchdog())
		require.NoError(f, m.Lock())
		time.Sleep(1500 * time.Millisecond)
		operator := f.NewMutex("lock")
		h := f.holderOf(operator)
		f.freeze(3, 4)
		require.NoError(f, operator.ForceUnlock(f.Context(), h))
		synctest.Wait()
		time.Sleep(300 * time.Millisecond)
		require.ErrorIs(f, m.Err(), redsync.ErrForced)
		f.thaw(3, 4)
		time.Sleep(3 * time.Second)
		assert.Zero(f, f.nodes.Keys("lock"))
	})
}

// The nodes take a while to subscribe. A force that comes meanwhile is heard by nobody, and a hold that heals would undo it.
func TestAHolderThatHealsIsToldOfAForceBeforeItsSubscriptions(t *testing.T) {
	play(t, func(f field) {
		for _, n := range f.nodes {
			n.On("subscribe", 1, embedded.Fault{Delay: 300 * time.Millisecond})
		}
		m := f.another(redsync.WithOwner("w")).NewMutex("lock", redsync.WithWatchdog(), redsync.WithSetNXOnExtend())
		require.NoError(f, m.Lock())
		time.Sleep(1200 * time.Millisecond) // it listens from the first second on, and has asked the nodes
		operator := f.NewMutex("lock")
		require.NoError(f, operator.ForceUnlock(f.Context(), f.holderOf(operator)))
		time.Sleep(5 * time.Second)
		require.ErrorIs(f, m.Err(), redsync.ErrForced)
		assert.Zero(f, f.nodes.Keys("lock"))
	})
}

// Joint sets: the operator knows both sets, or one of them only. Two nodes that have deleted the value end the holder. They are
// a quorum of one set, and none of both: the holder may release the rest itself, before the force does.
func TestForceUnlockWithJointSets(t *testing.T) {
	for _, both := range []bool{true, false} {
		for _, heals := range []bool{false, true} {
			play(t, func(f field) {
				pools := func(from, to int) (all []pool.Pool) {
					for _, n := range f.nodes[from:to] {
						all = append(all, pool.New(n.Client()))
					}
					return all
				}
				options := []redsync.Option{redsync.WithOwner("w"), redsync.WithWatchdog()}
				if heals {
					options = append(options, redsync.WithSetNXOnExtend())
				}
				rs := redsync.NewJoint(pools(0, 3), pools(2, 5))
				op := redsync.NewJoint(pools(0, 3), pools(2, 5))
				if !both {
					op = redsync.New(pools(0, 3)...)
				}
				f.closes(rs, op)
				m := rs.NewMutex("lock", options...)
				require.NoError(f, m.Lock())
				time.Sleep(1500 * time.Millisecond)
				operator := op.NewMutex("lock")
				s, err := operator.Inspect(f.Context())
				require.NoError(f, err)
				require.Len(f, s.Holders, 1)
				if err := operator.ForceUnlock(f.Context(), s.Holders[0]); !both || !errors.Is(err, redsync.ErrNotHeld) {
					require.NoError(f, err)
				}
				time.Sleep(200 * time.Millisecond)
				require.ErrorIs(f, m.Err(), redsync.ErrForced)
				assert.Zero(f, f.nodes.Keys("lock"), "both %v, heals %v", both, heals)
			})
		}
	}
}
