package redsync_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// Replies that come after their round: nothing is sent for it any more, and no vote counts.

// hasNoScript lets nodes say after d that they do not have the next script.
func (f field) hasNoScript(d time.Duration, nodes ...int) {
	synctest.Wait() // for scripts that are on their way
	for _, i := range nodes {
		f.nodes[i].On("evalsha", 1, embedded.Fault{Delay: d, Err: "NOSCRIPT No matching script. Please use EVAL."})
	}
}

// neverInFull looks that no node is sent a script in full, nor has the key of the lock, for
// the next second.
func (f field) neverInFull() {
	f.Helper()
	for range 100 {
		assert.Zero(f, f.commands("eval"))
		assert.Zero(f, f.nodes.Keys("lock"))
		time.Sleep(10 * time.Millisecond)
	}
}

// A node does not have the script of an acquire, and says so when the others have decided
// and the lock has been released. It is not sent the acquire in full: that would set the key
// again.
func TestANodeThatLacksTheScriptIsNotAskedOnceTheOthersHaveDecided(t *testing.T) {
	for name, option := range map[string]redsync.Option{"fencing": redsync.WithFencing(), "fair": redsync.WithFair()} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				f.meet()
				f.hasNoScript(100*time.Millisecond, 3, 4)
				m := f.NewMutex("lock", option)
				require.NoError(t, m.TryLock())
				f.unlock(m)
				time.Sleep(time.Millisecond)
				f.neverInFull()
			})
		})
	}
}

// The nodes do not have the script, and say so when the caller has given up: what the
// acquire left has been released by then.
func TestANodeThatLacksTheScriptIsNotAskedOnceTheCallerHasGivenUp(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		f.hasNoScript(100*time.Millisecond, 0, 1, 2, 3, 4)
		ctx, cancel := context.WithTimeout(f.Context(), 50*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, f.NewMutex("lock", redsync.WithFencing()).TryLockContext(ctx), context.DeadlineExceeded)
		f.neverInFull()
	})
}

// An Extend that has reported that it failed moves Until no more, whatever the nodes say
// afterwards.
func TestExtendWhoseCallerHasGivenUpMovesNothing(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		time.Sleep(time.Second)
		until := m.Until()
		for _, n := range f.nodes {
			n.On("evalsha", 1, embedded.Fault{Delay: 100 * time.Millisecond})
		}
		ctx, cancel := context.WithTimeout(f.Context(), 50*time.Millisecond)
		defer cancel()
		ok, err := m.ExtendContext(ctx)
		assert.False(t, ok)
		require.ErrorIs(t, err, redsync.ErrExtendFailed)
		time.Sleep(time.Second)
		assert.Equal(t, until, m.Until())
		f.unlock(m)
	})
}
