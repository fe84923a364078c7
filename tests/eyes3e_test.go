package redsync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A hold with a short expiry heals before it listens.
func TestEyesYoungHoldThatHealsSoon(t *testing.T) {
	play(t, func(f field) {
		m := f.another(redsync.WithOwner("w")).NewMutex("lock", redsync.WithExpiry(2*time.Second), redsync.WithWatchdog(), redsync.WithSetNXOnExtend())
		require.NoError(f, m.Lock())
		time.Sleep(300 * time.Millisecond)
		operator := f.NewMutex("lock")
		require.NoError(f, operator.ForceUnlock(f.Context(), f.holderOf(operator)))
		time.Sleep(5 * time.Second)
		require.ErrorIs(f, m.Err(), redsync.ErrForced)
	})
}

// Joint sets: the operator knows both sets, or one of them only.
func TestEyesJointForce(t *testing.T) {
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
				require.NoError(f, operator.ForceUnlock(f.Context(), s.Holders[0]))
				time.Sleep(200 * time.Millisecond)
				t.Log(both, heals, m.Err())
				require.ErrorIs(f, m.Err(), redsync.ErrForced)
				assert.Zero(f, f.nodes.Keys("lock"), fmt.Sprint(both, heals))
			})
		}
	}
}
