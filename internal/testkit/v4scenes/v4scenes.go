// Package v4scenes has the scenes of redsync v4's driver tests (mutex_test.go and redsync_test.go of
// github.com/go-redsync/redsync at 5560bd2), written for the public API of this library. Each scene can be played
// through any options of go-redis that reach its nodes.
//
// redsync v4 plays its 12 tests with each of its drivers. Here tests and rueidispool do.
package v4scenes

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/pool"
)

// MaxNodes is how many nodes the largest scene needs.
const MaxNodes = 8

// A Scene is one test of redsync v4.
type Scene struct {
	Test    string // its name there
	Nodes   int    // how many it needs
	Changed string // how it differs from the test of redsync v4, "" if it does not
	play    func(s stage)
}

// Play plays s through options that reach MaxNodes nodes. The names of its locks begin with driver, so that drivers can
// share the nodes.
func (s Scene) Play(t *testing.T, driver string, options []*redis.Options) {
	t.Helper()
	require.Len(t, options, MaxNodes)
	st := stage{T: t, name: driver + "-" + s.Test}
	var pools []wire.Pool
	for _, opt := range options[:s.Nodes] {
		client := redis.NewClient(opt)
		st.clients = append(st.clients, client)
		pools = append(pools, pool.New(client))
	}
	// An attempt waits for every node, as in redsync v4, and a slow machine gets time for it.
	st.Redsync = redsync.New(pools...).With(redsync.WithFailFast(false), redsync.WithExpiry(time.Minute), redsync.WithTimeoutFactor(0.2))
	defer st.close()
	s.play(st)
}

// A stage is the nodes of one scene and a Redsync on them.
type stage struct {
	*testing.T
	*redsync.Redsync

	name    string
	clients []*redis.Client
}

// close waits until the requests of the scene have ended.
func (s stage) close() {
	s.Helper()
	if err := s.Close(context.Background()); err != nil { // a slow machine outlasts a short expiry before its release is confirmed
		require.ErrorContains(s, err, "keys that were left have expired")
	}
	for _, c := range s.clients {
		require.NoError(s, c.Close())
	}
}

// mutex returns a mutex with the n-th name of the scene.
func (s stage) mutex(n int, options ...redsync.Option) *redsync.Mutex {
	return s.NewMutex(fmt.Sprintf("%s-%d", s.name, n), options...)
}

// requireAcquired fails unless a quorum of the nodes has the value of m.
func (s stage) requireAcquired(m *redsync.Mutex) {
	s.Helper()
	require.NoError(s, s.acquired(m))
}

func (s stage) acquired(m *redsync.Mutex) error {
	n, value := 0, m.Value()
	for _, c := range s.clients {
		if got, err := c.Get(context.Background(), m.Name()).Result(); err == nil && got == value {
			n++
		}
	}
	if want := len(s.clients)/2 + 1; value == "" || n < want {
		return fmt.Errorf("%d nodes have the value %q of %s, want %d", n, value, m.Name(), want)
	}
	return nil
}

// expiries returns how long each node keeps the key of m.
func (s stage) expiries(m *redsync.Mutex) (left []time.Duration) {
	s.Helper()
	for _, c := range s.clients {
		ttl, err := c.PTTL(context.Background(), m.Name()).Result()
		require.NoError(s, err)
		left = append(left, ttl)
	}
	return left
}

// outlast waits until every key of m has expired, and m with them.
func (s stage) outlast(m *redsync.Mutex) {
	s.Helper()
	until := m.Until()
	require.False(s, until.IsZero())
	for range 1000 { // 20 s
		pause(20 * time.Millisecond)
		if time.Now().After(until) && s.gone(m) {
			return
		}
	}
	require.Fail(s, "the keys do not expire")
}

func (s stage) gone(m *redsync.Mutex) bool {
	s.Helper()
	for _, c := range s.clients {
		n, err := c.Exists(context.Background(), m.Name()).Result()
		require.NoError(s, err)
		if n > 0 {
			return false
		}
	}
	return true
}

// pause waits: in virtual time, or for a condition on a real server.
func pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}
