package pool_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/pool"
)

// shared has the optional methods by which pools of one client find each other.
type shared interface {
	pool.Pool
	Client() any
	MetBefore() bool
	Sibling() pool.Pool
}

// unused returns a client that starts no goroutine and opens no connection.
func unused(address string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                     address,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

func newShared(c *redis.Client) shared { return pool.New(c).(shared) }

func TestPoolsOfOneClientKnowIt(t *testing.T) {
	a, b := unused("a:1"), unused("a:1")
	defer func() { _ = a.Close(); _ = b.Close() }()
	first, second, other := newShared(a), newShared(a), newShared(b)
	assert.Equal(t, first.Client(), second.Client())
	assert.NotEqual(t, first.Client(), other.Client())
	assert.False(t, first.MetBefore())
	assert.True(t, second.MetBefore())
	assert.True(t, first.MetBefore())
	assert.False(t, other.MetBefore())
	assert.True(t, first.MetBefore(), "a client that is met later makes nobody forget")
	assert.Nil(t, pool.New(a, pool.WithOutstanding(0)).(shared).Client(), "a pool that can never send has no Client")
}

func TestSiblingOutlivesThePool(t *testing.T) {
	c := unused("a:1")
	defer func() { _ = c.Close() }()
	p := newShared(c)
	sibling := p.Sibling()
	assert.Equal(t, p.Client(), sibling.(shared).Client())
	require.NoError(t, p.Close())
	subscription, err := sibling.(pool.Subscriber).Subscribe("channel", nothing{})
	require.NoError(t, err)
	subscription.Close()
}

type nothing struct{}

func (nothing) Subscribed()        {}
func (nothing) Message(string)     {}
func (nothing) Unsubscribed(error) {}
func (nothing) Refused(error)      {}

// The record of known clients must not keep them in memory. Otherwise a program that makes a new client
// for each request would leak them.
func TestClientsThatWereMetAreNotKept(t *testing.T) {
	before := pool.ClientsMet()
	for range 100 {
		newShared(unused("a:1")).MetBefore()
	}
	assert.Eventually(t, func() bool {
		runtime.GC()
		return pool.ClientsMet() < before+50
	}, time.Minute, 10*time.Millisecond)
}

// Pools of a Cluster or Ring client report their client as well. Their MetBefore is always true, because they
// never know which server answers.
func TestRoutedPoolsOfOneClientKnowIt(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}, HeartbeatFrequency: time.Hour})
	t.Cleanup(func() { _ = ring.Close() })
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { _ = cluster.Close() })
	known := func(c redis.UniversalClient) shared { return pool.New(c).(shared) }
	require.Equal(t, known(ring).Client(), known(ring).Client())
	require.Equal(t, known(cluster).Client(), known(cluster).Sibling().(shared).Client())
	require.NotEqual(t, known(ring).Client(), known(cluster).Client())
	require.True(t, known(ring).MetBefore())
	require.NoError(t, known(cluster).Sibling().Close())
}
