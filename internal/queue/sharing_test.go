package queue

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim/claimtest"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A process that reads many names once each must not remember all their holds, even if nobody unlocks them.
func TestHoldsThatNobodyCanJoinAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 3)
		h.answer = granted
		for i := range 1000 {
			terms := h.terms()
			terms.Claim, terms.Joins = claimtest.Shared("name-"+strconv.Itoa(i)), true
			_, failure := h.Lock(t.Context(), terms, clock.Now(), 1, &Wait{})
			require.Nil(t, failure)
			time.Sleep(maxChain)
		}
		assert.LessOrEqual(t, len(h.sharing.holds), 66)
		h.closes()
	})
}

// granted is the answer of nodes that let a reader in.
func granted(int, pool.Request) (*pool.Reply, error) {
	return &pool.Reply{Value: script.Granted, Fate: pool.Answered, Conn: 1}, nil
}

// reads returns the terms of readers that share their holds.
func (h *house) reads() *Terms {
	t := h.terms()
	t.Claim, t.Joins = claimtest.Shared("lock"), true
	return t
}

func (h *house) isReady(w *call) bool {
	h.lines.mu.Lock()
	defer h.lines.mu.Unlock()
	return w.agenda.ready
}

// The readers that join a hold leave their line. Who is the first then has a reason to try: no node tells it of what was
// before.
func TestWhoIsTheFirstOnceReadersHaveJoinedTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 3)
		h.answer = granted
		hold := h.holds(h.reads())
		reader, writer := h.waits(h.reads(), h.silent()), h.waits(h.terms(), h.silent())
		require.False(t, h.isReady(writer))
		h.sharing.share(hold, nil)
		require.NotNil(t, reader.handedOff)
		assert.True(t, h.isReady(writer))
		h.lines.leave(&writer.waiter, nil)
		for _, l := range []*lease.Lease{hold, reader.handedOff} {
			l.End(nil)
			h.ReleaseAndAdmit(l)
		}
		h.closes()
	})
}

// A reader that is trying does not join, because it may win a hold of its own. Those behind it join all the same.
func TestReadersBehindOneThatTriesShareAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 3)
		h.answer = granted
		hold := h.holds(h.reads())
		first, second := h.waits(h.reads(), h.refused()), h.waits(h.reads(), h.refused())
		require.NotNil(t, first.begin(true, false))
		h.sharing.share(hold, nil)
		assert.Nil(t, first.handedOff)
		require.NotNil(t, second.handedOff)
		h.lines.leave(&first.waiter, nil)
		for _, l := range []*lease.Lease{hold, second.handedOff} {
			l.End(nil)
			h.ReleaseAndAdmit(l)
		}
		h.closes()
	})
}

// A writer behind readers of its own process shows its ticket, as if another process held the lock. Otherwise later
// readers of other processes would enter before it.
func TestAWriterBehindReadersOfItsProcessShowsItsTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 3)
		h.answer = granted
		fair := h.terms()
		fair.Fair = true
		reader, writer := h.waits(h.reads(), h.refused()), h.waits(fair, h.refused())
		hold := h.holds(h.reads())
		h.lines.leave(&reader.waiter, hold)
		u := writer.begin(false, false)
		require.NotNil(t, u)
		assert.True(t, u.enters())
		h.lines.leave(&writer.waiter, nil)
		hold.End(nil)
		h.ReleaseAndAdmit(hold)
		h.closes()
	})
}
