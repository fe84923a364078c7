package redsync_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// This file shows that the first Lock of a process waits for every node, and no later one does.

func TestFirstLockWaitsForEveryNodeOnce(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(k kit)
		want  time.Duration
	}{
		"all answer":                       {func(kit) {}, 0},
		"one is frozen: the node deadline": {func(k kit) { k.freeze(4) }, 400 * ms},
		"one is slow":                      {func(k kit) { k.nodes.Node(2).Delay(70 * ms) }, 70 * ms},
		"two are dead":                     {func(k kit) { k.down(0, 1) }, 0},
	} {
		kitAs(t, name, func(k kit) {
			c.fault(k)
			start := time.Now()
			m := obtained(k, k.NewMutex("lock"))
			took(k, start, c.want)
			assert.Equal(k, start.Add(validity).UnixNano(), m.Until().UnixNano())
			start = time.Now()
			obtained(k, k.NewMutex("other"))
			obtained(k, k.With(withExpiry(minute)).NewMutex("third")) // a copy from With knows the nodes, too
			took(k, start, 0)
		})
	}
}

// The caller keeps half of the time that its context has left.
func TestFirstLockLeavesTimeToItsContext(t *testing.T) {
	for name, c := range map[string]struct{ timeout, want time.Duration }{
		"shorter than the node deadline": {100 * ms, 50 * ms},
		"hardly longer":                  {500 * ms, 250 * ms},
		"long enough":                    {sec, 400 * ms},
	} {
		kitAs(t, name, func(k kit) {
			k.freeze(4)
			ctx, start := limited(k, c.timeout), time.Now()
			require.NoError(k, k.NewMutex("lock").LockContext(ctx))
			alive(k, ctx)
			took(k, start, c.want)
		})
	}
}

func TestFirstLockThatIsInterruptedHasWaitedForAll(t *testing.T) {
	onKit(t, func(k kit) {
		k.freeze(4)
		ctx, cancel := context.WithCancel(k.Context())
		time.AfterFunc(30*ms, cancel)
		start := time.Now()
		_ = k.NewMutex("lock").LockContext(ctx)
		locked(k, k.NewMutex("other"))
		took(k, start, 30*ms)
	})
}
