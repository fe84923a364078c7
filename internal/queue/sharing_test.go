package queue

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/claimtest"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// A process that reads many names once each must not remember all their holds, even if nobody unlocks them.
func TestHoldsThatNobodyCanJoinAreForgotten(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		h.answer = granted
		for i := range 1000 {
			terms := h.terms()
			terms.Claim, terms.Joins = claimtest.Shared("name-"+strconv.Itoa(i)), true
			_, failure := h.Lock(h.Context(), terms, clock.Now(), 1, &Wait{})
			require.Nil(h, failure)
			time.Sleep(maxChain)
		}
		assert.LessOrEqual(h, len(h.sharing.holds), 66)
	})
}

// granted is the answer of nodes that let a reader in.
func granted(int, wire.Request) (*wire.Reply, error) {
	return &wire.Reply{Value: script.Granted, Fate: wire.Answered, Conn: 1}, nil
}

// reads returns the terms of readers that share their holds.
func (h *house) reads() *lease.Terms {
	t := h.terms()
	t.Claim, t.Joins = claimtest.Shared("lock"), true
	return t
}

// ends ends leases, and releases them.
func (h *house) ends(leases ...*lease.Lease) {
	for _, l := range leases {
		l.End(nil)
		h.ReleaseAndAdmit(l)
	}
}

func (h *house) isReady(w *call) bool {
	h.lines.mu.Lock()
	defer h.lines.mu.Unlock()
	return w.agenda.ready
}

// The readers that join a hold leave their line. Who is the first then has a reason to try: no node tells it of what was
// before.
func TestWhoIsTheFirstOnceReadersHaveJoinedTries(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		h.answer = granted
		hold := h.holds(h.reads())
		reader, writer := h.waits(h.reads(), h.silent()), h.waits(h.terms(), h.silent())
		require.False(h, h.isReady(writer))
		h.sharing.share(hold, nil)
		require.NotNil(h, reader.handedOff)
		assert.True(h, h.isReady(writer))
		h.leaves(writer)
		h.ends(hold, reader.handedOff)
	})
}

// A reader that is trying does not join, because it may win a hold of its own. Those behind it join all the same.
func TestReadersBehindOneThatTriesShareAHold(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		h.answer = granted
		hold := h.holds(h.reads())
		first, second := h.waits(h.reads(), h.refused()), h.waits(h.reads(), h.refused())
		h.asks(first)
		h.sharing.share(hold, nil)
		assert.Nil(h, first.handedOff)
		require.NotNil(h, second.handedOff)
		h.leaves(first)
		h.ends(hold, second.handedOff)
	})
}

// A writer behind readers of its own process shows its ticket, as if another process held the lock. Otherwise later
// readers of other processes would enter before it.
func TestAWriterBehindReadersOfItsProcessShowsItsTicket(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		h.answer = granted
		fair := h.terms()
		fair.Fair = true
		reader, writer := h.waits(h.reads(), h.refused()), h.waits(fair, h.refused())
		hold := h.holds(h.reads())
		h.lines.leave(&reader.waiter, hold)
		u := writer.begin(false, false)
		require.NotNil(h, u)
		assert.True(h, u.enters())
		h.leaves(writer)
		h.ends(hold)
	})
}
