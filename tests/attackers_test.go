package redsync_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
)

// This file shows what an attacker can do, and what not, as far as no other file does: see the table in docs/safety.md.

// One node of five grants a lock to everybody. A lock that all nodes have granted is safe. One that has a bare quorum with
// that node is not: no client can tell.
func TestANodeThatGrantsEverybody(t *testing.T) {
	play(t, func(f field) {
		liar := f.nodes[2]
		liar.On("set", 1e6, embedded.Fault{Then: func(args []string) { liar.Del(args[0]) }})
		m := f.held()
		errorIs(f, f.another().NewMutex("lock").TryLock(), redsync.ErrFailed)
		f.unlocks(m)
		f.kill(3, 4)
		bare := obtained(f, f.NewMutex("lock"))
		sleep(2 * sec) // it tries no longer to fill its key into the other nodes
		f.restart(3, 4)
		f.kill(0, 1)
		second := f.another().NewMutex("lock")
		require.NoError(f, second.TryLock(), "three of five nodes say yes")
		assert.Positive(f, bare.Remaining())
		assert.Positive(f, second.Remaining())
		f.restart(0, 1)
	})
}

// Somebody who may publish wakes a waiter all the time. The waiter makes an attempt after the other, whatever the number of
// messages, and gets nothing that is not free.
func TestForgedWakeUps(t *testing.T) {
	play(t, func(f field) {
		m := f.held(withWatchdog)
		w := f.calls(f.another(), forever)
		sleep(sec)
		channels := f.nodes[0].PubSubChannels("redsync:*")
		require.NotEmpty(f, channels)

		asks := func() int { return f.nodes[1].Commands("set") + f.nodes[1].Commands("evalsha") }
		before := asks()
		for range 500 {
			for range 10 {
				for _, channel := range channels {
					f.nodes[0].Publish(channel, "lock")
				}
			}
			sleep(ms)
		}
		assert.Less(f, asks()-before, 500, "5000 messages on each channel")
		require.False(f, w.isDone())
		f.unlock(m)
		<-w.done
		require.NoError(f, w.err)
	})
}
