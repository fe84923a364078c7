package redsync_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// This file elects leaders on real servers. No test asserts a time that a slow machine may miss.

// A realElection notes what happens on real servers, in order.
type realElection struct {
	*testing.T
	mu     sync.Mutex
	events []string
	fences []uint64
	led    chan string // the names of candidates that have begun to lead
}

func newRealElection(t *testing.T) *realElection {
	t.Helper()
	return &realElection{T: t, led: make(chan string, 100)}
}

func (e *realElection) note(event string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, event)
}

// runs starts a candidate, which leads until its context ends, or until a value comes on resign.
func (e *realElection) runs(ctx context.Context, rs *redsync.Redsync, name string, resign <-chan struct{}) (done chan error) {
	done = make(chan error, 1)
	go func() {
		done <- rs.Lead(ctx, "lock", func(ctx context.Context) error {
			e.note(name + " leads")
			defer e.note(name + " has ended")
			e.mu.Lock()
			e.fences = append(e.fences, redsync.FromContext(ctx).Fence())
			e.mu.Unlock()
			e.led <- name
			select {
			case <-ctx.Done():
			case <-resign:
			}
			return nil
		}, redsync.WithExpiry(6*time.Second)) // a term outlives a stall of the machine
	}()
	return done
}

// follows returns who leads next.
func (e *realElection) follows() string {
	e.Helper()
	select {
	case name := <-e.led:
		return name
	case <-time.After(time.Minute): //nolint:forbidigo // it fails the test
		require.Fail(e, "nobody leads")
		return ""
	}
}

// rises checks that the terms have rising tokens.
func (e *realElection) rises() {
	e.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.fences[1:] {
		assert.Less(e, e.fences[i], e.fences[i+1])
	}
}

// All servers are down for a while, and come back without their keys.
func TestLeadersOutliveTheirServers(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 3)
	e := newRealElection(t)
	for _, name := range []string{"a", "b"} {
		rs := realProcess(servers)
		closesSoon(t, rs)
		e.runs(t.Context(), rs, name, nil)
	}
	before := e.follows()
	for _, s := range servers {
		s.Kill()
	}
	await(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.events[len(e.events)-1] == before+" has ended"
	})
	for _, s := range servers {
		require.NoError(t, s.Relaunch())
	}
	e.follows()
	e.mu.Lock()
	assert.Len(t, e.events, 3)
	e.mu.Unlock()
	e.rises()
}

// await waits until is reports true.
func await(t *testing.T, is func() bool) {
	t.Helper()
	require.Eventually(t, is, time.Minute, 10*time.Millisecond)
}
