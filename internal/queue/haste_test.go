package queue

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file shows which nodes a waiter hears, when it knows that it cannot win, and when it pauses.

// What a node has said counts only if its vote would. A wake-up is no reason to try if the nodes that may be free are no
// quorum.
func TestWaiterHearsNodesWhoseVotesCount(t *testing.T) {
	for name, c := range map[string]struct {
		nodes    string // by node: it was unfit, has granted, or taken; L: it is late; *: it wakes the waiter
		free     claim.Nodes
		hopeless bool
	}{
		"nobody has answered":                   {"- - - - -", 0, false},
		"all have refused":                      {"t t t t t", 0, true},
		"a quorum has refused, and none wakes":  {"t t t g g", 24, true},
		"a free node wakes it":                  {"t t t g* g", 24, true},
		"one that has refused wakes it":         {"t* t t g g", 25, false},
		"two have not answered":                 {"t* t t - -", 1, false},
		"one of five that have refused":         {"t* t t t t", 1, false},
		"one that is late has refused":          {"tL* t t t t", 0, true},
		"a majority does not count":             {"u* u* u* * *", 24, true},
		"a minority does not count":             {"u* u* * * *", 28, false},
		"a minority does not count, and grants": {"u* g g - -", 6, false},
		"two are late":                          {"g - t L* L*", 1, true},
		"three are late: they are needed":       {"g g L* L* L*", 31, false},
		"two late, and one does not count":      {"u * * L* L*", 30, false},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, 5, func(h *house) {
				w := h.waits(h.terms(), h.refused())
				u := h.asks(w)
				nodes := strings.Fields(c.nodes)
				for i, node := range nodes {
					switch node[0] {
					case 'u':
						u.Heard(i, 1, false)
					case 'g':
						u.Heard(i, 1, true)
					case 't':
						u.Heard(i, 0, true)
					}
				}
				w.end(u, nil, h.refused())
				r := &quorum.Round{}
				r.Prepare(h.Context(), h.keeper.Set, w.terms.Nobody().Release(lease.Releasing{}), false, false)
				synctest.Wait() // a reply to the release shows that its node is not late
				for i, node := range nodes {
					if strings.Contains(node, "L") {
						r.NoteLate(i, wire.Unknown)
					}
					if strings.Contains(node, "*") {
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
