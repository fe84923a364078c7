package quorum

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNodeThatDeniesQueuesIsAskedAgainAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newScene(1).Nodes[0]
		denies := func() bool {
			assert.Equal(t, n.DeniesQueueOf("a"), n.DeniesQueues([]string{"a"}))
			return n.DeniesQueueOf("a")
		}
		assert.False(t, denies())
		n.Deny("a", false)
		assert.True(t, n.Tells())
		assert.True(t, denies())
		time.Sleep(deniedFor - 1)
		assert.True(t, denies())
		time.Sleep(time.Nanosecond)
		assert.False(t, denies())
		n.Deny("a", false)
		assert.False(t, n.Tells(), "it has been told before")
		assert.True(t, denies())
	})
}

// That a node denies the queue of a lock is told once it executes a script on that lock.
func TestADenialIsDoubtedUntilTheLockIsAllowed(t *testing.T) {
	n := newScene(1).Nodes[0]
	n.Doubt("a", denied{})
	require.NoError(t, n.Allows("b"))
	n.Doubt("b", denied{})
	require.NoError(t, n.Allows("a"))
	n.Denies("a")
	n.Doubt("b", denied{})
	n.Denies("b")
	require.NoError(t, n.Allows("b"), "it denied the lock, too, and nothing is known of its queue")
	n.Doubt("b", denied{})
	n.Denies("a")
	require.ErrorIs(t, n.Allows("b"), denied{})
	assert.False(t, n.Tells())
	n.Doubt("a", denied{})
	require.NoError(t, n.Allows("a"), "it has been told before")
}

// A denial says nothing of other names, unless the user lacks a permission. In that case releases leave out the queues
// of all names, which only costs wake-ups. Readers still look at the queues of other names.
func TestADenialIsAboutOneName(t *testing.T) {
	n := newScene(1).Nodes[0]
	n.Deny("a", false)
	assert.False(t, n.DeniesQueueOf("b"))
	assert.False(t, n.DeniesQueues([]string{"b"}))
	assert.False(t, n.DeniesQueues([]string{"a", "b"}))
	n.Deny("a", true)
	assert.False(t, n.DeniesQueueOf("b"))
	assert.True(t, n.DeniesQueues([]string{"b"}))
	assert.True(t, n.DeniesQueues([]string{"b", "c"}))
}

func TestFewDenialsAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newScene(1).Nodes[0]
		for i := range maxRecent {
			n.Deny(strconv.Itoa(i), false)
		}
		time.Sleep(deniedFor / 2)
		n.Deny("0", false)
		assert.True(t, n.DeniesQueueOf("1"), "there is room for a name that is known")
		time.Sleep(deniedFor / 2)
		n.Deny("more", false)
		assert.True(t, n.DeniesQueueOf("0"), "only what is out of date is forgotten")
		for i := range maxRecent {
			n.Deny("and "+strconv.Itoa(i), false)
		}
		assert.LessOrEqual(t, len(n.denials.names), maxRecent)
		assert.False(t, n.DeniesQueueOf("never"))
		assert.True(t, n.DeniesQueueOf("and "+strconv.Itoa(maxRecent-1)))
	})
}
