package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows which nodes a waiter hears, when it knows that it cannot win, and when it pauses.

// What a node has said counts only if its vote would. A wake-up is no reason to try if the nodes that may be free are no
// quorum.
func TestWaiterHearsNodesWhoseVotesCount(t *testing.T) {
	for name, c := range map[string]struct {
		granted, taken, unfit claim.Nodes // by the last attempt
		late, woken           claim.Nodes
		free                  claim.Nodes
		hopeless              bool
	}{
		"nobody has answered":                   {},
		"all have refused":                      {taken: 31, hopeless: true},
		"a quorum has refused, and none wakes":  {taken: 7, granted: 24, free: 24, hopeless: true},
		"a free node wakes it":                  {taken: 7, granted: 24, woken: 8, free: 24, hopeless: true},
		"one that has refused wakes it":         {taken: 7, granted: 24, woken: 1, free: 25},
		"two have not answered":                 {taken: 7, woken: 1, free: 1},
		"one of five that have refused":         {taken: 31, woken: 1, free: 1},
		"one that is late has refused":          {taken: 31, late: 1, woken: 1, hopeless: true},
		"a majority does not count":             {unfit: 7, woken: 31, free: 24, hopeless: true},
		"a minority does not count":             {unfit: 3, woken: 31, free: 28},
		"a minority does not count, and grants": {unfit: 1, granted: 6, woken: 1, free: 6},
		"two are late":                          {granted: 1, taken: 4, late: 24, woken: 24, free: 1, hopeless: true},
		"three are late: they are needed":       {granted: 3, late: 28, woken: 28, free: 31},
		"two late, and one does not count":      {unfit: 1, late: 24, woken: 30, free: 30},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, 5, func(h *house) {
				w := h.waits(h.terms(), h.refused())
				u := h.asks(w)
				for i := range 5 {
					switch {
					case c.unfit.Has(i):
						u.Heard(i, 1, false)
					case c.granted.Has(i), c.taken.Has(i):
						u.Heard(i, claim.Lines(uint64(c.granted)>>i&1), true)
					}
				}
				w.end(u, nil, h.refused())
				r := &quorum.Round{}
				r.Prepare(h.Context(), h.keeper.Set, lease.Nobody(&w.terms.Terms).Release(lease.Releasing{}), false, false)
				for i := range 5 {
					if c.late.Has(i) {
						r.NoteLate(i, pool.Reply{Fate: pool.Unknown})
					}
					if c.woken.Has(i) {
						h.lines.wake("lock", i, true, nil)
					}
				}
				assert.Equal(h, c.free, w.listening().freeLocked())
				assert.Equal(h, c.hopeless, w.listening().isHopelessLocked())
			})
		})
	}
}

// A waiter that fails although no rival holds the lock pauses, and longer each time, also if it is woken. If rivals are
// trying, it first tries three times more. Attempts after a time has passed do not count.
func TestWaiterPausesAfterHaste(t *testing.T) {
	withoutJitter(t)
	for name, c := range map[string]struct {
		taken  claim.Nodes
		timely bool
		pauses [7]time.Duration
	}{
		"nobody is in the way": {pauses: [7]time.Duration{16 * ms, 32 * ms, 64 * ms, 128 * ms, 128 * ms, 128 * ms, 128 * ms}},
		"the votes are split":  {taken: 3, pauses: [7]time.Duration{3: 16 * ms, 4: 32 * ms, 5: 64 * ms, 6: 128 * ms}},
		"a rival holds":        {taken: 7},
		"it polls":             {timely: true},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, 5, func(h *house) {
				w := h.waits(h.terms(), h.refused())
				o := h.silent()
				o.Result.Taken, o.Result.Count = c.taken, claim.Count{Failed: 31 &^ c.taken, Refused: c.taken}
				copy(o.Result.Votes, h.refused().Result.Votes[:c.taken.Len()])
				for i, want := range c.pauses {
					w.agenda.ready, w.agenda.pauseEnd = true, time.Time{}
					if c.timely {
						w.agenda.runsOut = time.Now()
					}
					u := w.begin(false, false)
					u.conclusive = true
					w.end(u, nil, o)
					if want == 0 {
						assert.Zero(h, w.agenda.pauseEnd, "attempt %d", i)
						continue
					}
					assert.Equal(h, want-1, time.Until(w.agenda.pauseEnd), "attempt %d", i)
				}
			})
		})
	}
}
