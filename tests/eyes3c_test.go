package redsync_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// The context ends: what the operator is told, when nothing was sent and when the force goes on.
func TestEyesContextErrors(t *testing.T) {
	play(t, func(f field) {
		m := f.another(redsync.WithOwner("w")).NewMutex("lock", redsync.WithWatchdog())
		require.NoError(f, m.Lock())
		h := f.holderOf(f.NewMutex("lock"))
		a := f.newcomer(0, everywhere(10*time.Millisecond))
		f.closes(a)
		f.as(a).meet()
		ctx, cancel := context.WithTimeout(f.Context(), 5*time.Millisecond)
		defer cancel()
		err := a.NewMutex("lock").ForceUnlock(ctx, h)
		t.Log(err)
		require.ErrorIs(f, err, context.DeadlineExceeded)
		require.ErrorIs(f, err, redsync.ErrNoQuorum)
	})
}

// Nodes deny SUBSCRIBE.
func TestEyesSubscribeDenied(t *testing.T) {
	for _, heals := range []bool{false, true} {
		play(t, func(f field) {
			for _, n := range f.nodes {
				n.On("subscribe", 1000, embedded.Fault{Err: "NOPERM this user has no permissions to run the 'subscribe' command"})
			}
			options := []redsync.Option{redsync.WithWatchdog(), redsync.WithOwner("w")}
			if heals {
				options = append(options, redsync.WithSetNXOnExtend())
			}
			m := f.another().NewMutex("lock", options...)
			require.NoError(f, m.Lock())
			time.Sleep(1500 * time.Millisecond)
			operator := f.NewMutex("lock")
			require.NoError(f, operator.ForceUnlock(f.Context(), f.holderOf(operator)))
			time.Sleep(10 * time.Second)
			t.Log(heals, m.Err())
		})
	}
}

// A megabyte on the channel, and floods of ids.
func TestEyesHostileMessages(t *testing.T) {
	play(t, func(f field) {
		m := f.another(redsync.WithOwner("w")).NewMutex("lock", redsync.WithWatchdog(), redsync.WithSetNXOnExtend())
		require.NoError(f, m.Lock())
		time.Sleep(1500 * time.Millisecond)
		h := f.holderOf(f.NewMutex("lock"))
		channel := "redsync:" + strings.Repeat("0", 0)
		channel += pad16(h.Process)
		c := f.nodes[0].Client()
		for range 50 {
			require.NoError(f, c.Publish(f.Context(), channel, "forced "+strings.Repeat("x", 1<<20)).Err())
			require.NoError(f, c.Publish(f.Context(), channel, "forced "+h.ID+strings.Repeat(" ", 1<<20)).Err())
			require.NoError(f, c.Publish(f.Context(), channel, strings.Repeat("forced ", 1<<17)).Err())
		}
		_ = c.Close()
		time.Sleep(10 * time.Second)
		require.NoError(f, m.Err())
		require.NoError(f, func() error { o := f.NewMutex("lock"); return o.ForceUnlock(f.Context(), f.holderOf(o)) }())
		time.Sleep(100 * time.Millisecond)
		require.ErrorIs(f, m.Err(), redsync.ErrForced)
	})
}

func pad16(n uint64) string {
	s := ""
	for range 16 {
		s = string(rune('0'+n%10)) + s
		n /= 10
	}
	return s
}

// Tokens never go back after a force.
func TestEyesFencingAfterForce(t *testing.T) {
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

// MaxHold, MinHold and a lock delay.
func TestEyesMinHold(t *testing.T) {
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

// A healing holder that has heard nothing yet, or whose connections are gone.
func TestEyesHealsAndIsYoung(t *testing.T) {
	play(t, func(f field) {
		m := f.another(redsync.WithOwner("w")).NewMutex("lock", redsync.WithWatchdog(), redsync.WithSetNXOnExtend())
		require.NoError(f, m.Lock())
		time.Sleep(500 * time.Millisecond)
		operator := f.NewMutex("lock")
		require.NoError(f, operator.ForceUnlock(f.Context(), f.holderOf(operator)))
		time.Sleep(10 * time.Second)
		t.Log(m.Err())
	})
}

// Nodes with a restart guard.
func TestEyesDownFrozen(t *testing.T) {
	play(t, func(f field) {
		m := f.another(redsync.WithOwner("w")).NewMutex("lock", redsync.WithExpiry(30*time.Second), redsync.WithWatchdog())
		require.NoError(f, m.Lock())
		time.Sleep(1500 * time.Millisecond)
		operator := f.NewMutex("lock")
		h := f.holderOf(operator)
		f.freeze(3, 4)
		start := time.Now()
		require.NoError(f, operator.ForceUnlock(f.Context(), h))
		t.Log(time.Since(start))
		synctest.Wait()
		time.Sleep(300 * time.Millisecond)
		t.Log(m.Err())
		require.ErrorIs(f, m.Err(), redsync.ErrForced)
		f.thaw(3, 4)
		time.Sleep(3 * time.Second)
		assert.Zero(f, f.nodes.Keys("lock"))
	})
}
