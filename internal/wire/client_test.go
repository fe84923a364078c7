package wire

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shared has the optional methods by which pools of one client find each other.
type shared interface {
	Pool
	Client() any
	MetBefore() bool
	Sibling() Pool
}

func newShared(c redis.UniversalClient) shared { return New(c, Config{}).(shared) }

func TestPoolsOfOneClientKnowIt(t *testing.T) {
	a, b := unused(t, &redis.Options{}), unused(t, &redis.Options{})
	first, second, other := newShared(a), newShared(a), newShared(b)
	assert.Equal(t, first.Client(), second.Client())
	assert.NotEqual(t, first.Client(), other.Client())
	assert.False(t, first.MetBefore())
	assert.True(t, second.MetBefore())
	assert.True(t, first.MetBefore())
	assert.False(t, other.MetBefore())
	assert.True(t, first.MetBefore(), "a client that is met later makes nobody forget")
	assert.Nil(t, New(a, Config{Wrong: errors.New("wrong")}).(shared).Client(), "a pool that can never send has no Client")
}

func TestSiblingOutlivesThePool(t *testing.T) {
	p := newShared(unused(t, &redis.Options{}))
	sibling := p.Sibling()
	assert.Equal(t, p.Client(), sibling.(shared).Client())
	require.NoError(t, p.Close())
	listening(t, sibling)
}

// The record of known clients must not keep them in memory. Otherwise a program that makes a new client
// for each request would leak them.
func TestClientsThatWereMetAreNotKept(t *testing.T) {
	known := func() int {
		met.mu.Lock()
		defer met.mu.Unlock()
		return len(met.by)
	}
	before := known()
	for range 100 { // clients that start no goroutine
		newShared(redis.NewClient(&redis.Options{MaintNotificationsConfig: noNotifications})).MetBefore()
	}
	assert.Eventually(t, func() bool {
		runtime.GC()
		return known() < before+50
	}, time.Minute, 10*time.Millisecond)
}

// Pools of a Cluster or Ring client report their client as well. Their MetBefore is always true, because they
// never know which server answers.
func TestRoutedPoolsOfOneClientKnowIt(t *testing.T) {
	clients := hookable(t)
	ring, cluster := clients["*redis.Ring"], clients["*redis.ClusterClient"]
	require.Equal(t, newShared(ring).Client(), newShared(ring).Client())
	require.Equal(t, newShared(cluster).Client(), newShared(cluster).Sibling().(shared).Client())
	require.NotEqual(t, newShared(ring).Client(), newShared(cluster).Client())
	require.True(t, newShared(ring).MetBefore())
	require.True(t, newShared(cluster).(*routedPool).Together("j", "exa"), "they have one slot")
	require.NoError(t, newShared(cluster).Sibling().Close())
}
