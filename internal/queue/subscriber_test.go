package queue

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file shows sessions from inside; tests/wakeups_test.go shows who is woken.

// Once the session is ready, waiters try without hearing the nodes whose subscriptions stand later. Such a node may have
// sent a message meanwhile, so its subscription counts as a wake-up.
func TestNodeThatIsHeardLateWakesTheFirstInLine(t *testing.T) {
	inHouse(t, 5, func(h *house) {
		w := h.waits(h.terms(), h.refused())
		set := h.keeper.Set
		s := &session{subscriber: &h.subscriber, set: set, rule: set.Rule(), begun: time.Now()}
		h.subscriber.session = s
		for _, n := range set.Nodes[:3] {
			listener{session: s, node: n}.Subscribed()
		}
		time.Sleep(wakeGrace)
		synctest.Wait()
		require.True(h, h.subscriber.ready())
		assert.Zero(h, w.listening().freeLocked(), "the session was not ready")
		listener{session: s, node: set.Nodes[3]}.Subscribed()
		assert.True(h, w.listening().freeLocked().Has(3))
		h.subscriber.stop(nil)
	})
}

// A mute is a pool through which nobody can subscribe.
type mute struct {
	*scripted.Node
	closed *int
}

func (mute) Client() any          { return nil }
func (m mute) Sibling() wire.Pool { return m }
func (m mute) Close() error       { *m.closed++; return nil }
func (mute) Subscribe(string, wire.Listener) (*wire.Subscription, error) {
	return nil, errors.New("no")
}

// A session closes the pools that it has made, also those through which it could not subscribe.
func TestSessionClosesItsPools(t *testing.T) {
	h, closed := newHouse(t, 1), 0
	set := h.keeper.Set
	s := &session{subscriber: &h.subscriber, set: set, rule: set.Rule(), begun: time.Now(), ready: true}
	h.subscriber.session = s
	s.subscribeLocked(listener{session: s, node: &quorum.Node{Pool: mute{closed: &closed}}})
	h.subscriber.stop(nil)
	assert.Equal(t, 1, closed)
}
