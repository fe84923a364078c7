package queue

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/testkit/claimtest"
)

// This file shows how waiters for several names stand in the lines of a process.

// wants returns the terms of locks on these names.
func (h *house) wants(fair bool, names ...string) *lease.Terms {
	t := h.terms()
	t.Fair = fair
	t.Claim = claimtest.Exclusive(names...)
	return t
}

// keptBack is an attempt that found all of its names free on all nodes, except the name with the index by.
func (h *house) keptBack(by int, names ...string) lease.Outcome {
	o := h.refused()
	if o.Lines = names; names == nil {
		o.Lines = []string{"a", "b"}
	}
	for i := range o.Result.Votes {
		o.Result.Votes[i].Answer.Detail = &claim.Detail{Wait: claim.Never, Free: ^(claim.Lines(1) << by)}
	}
	return o
}

// multi is a call for a and b, which the name with the index by keeps back.
func (h *house) multi(by int) *call { return h.waits(h.wants(false, "a", "b"), h.keptBack(by)) }

// single is a call for one name.
func (h *house) single(fair bool, name string) *call {
	return h.waits(h.wants(fair, name), h.refused())
}

// stands checks in which lines w stands.
func (h *house) stands(w *call, names ...string) {
	h.Helper()
	assert.Equal(h, names, w.stands())
}

// moves moves w to the line of its name with the index at.
func (h *house) moves(w *call, at int) {
	h.lines.mu.Lock()
	defer h.lines.mu.Unlock()
	h.lines.moveLocked(&w.waiter, at, true)
}

// forget empties what tells c to look again.
func (c *call) forget() {
	for len(c.look) > 0 {
		<-c.look
	}
}

// failsAt lets an attempt of w fail, because the name with the index by kept it back.
func (h *house) failsAt(w *call, by int) {
	h.Helper()
	u := h.asks(w)
	o := h.keptBack(by, w.names...)
	u.fails(w, o)
}

// isFirst reports whether w talks to the nodes.
func (h *house) isFirst(w *call) bool {
	h.lines.mu.Lock()
	defer h.lines.mu.Unlock()
	return h.lines.isFirstLocked(&w.waiter)
}

// A waiter does not move after an attempt that has heard no quorum, or that has put no ticket in the queues although an
// earlier attempt has.
func TestWaiterForSeveralNamesStaysWhereItsTicketIs(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		m := h.multi(0)
		h.failsAt(m, 1)
		h.stands(m, "b")
		require.True(h, m.isQueued())

		m.agenda.followsRelease = true
		u := m.begin(false, false)
		require.False(h, u.enters())
		u.fails(m, h.keptBack(0))
		h.stands(m, "b")
		assert.True(h, m.agenda.ready, "it is repeated with a ticket")

		u = m.begin(false, false)
		u.fails(m, h.silent())
		h.stands(m, "b")
		assert.False(h, m.isQueued())
	})
}

// A wake-up about one name is no reason any more when its waiter has come to wait for another.
func TestWaiterThatMovesForgetsTheReasonOfItsFormerName(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		m := h.multi(0)
		u := h.asks(m)
		h.wakes("a")
		require.True(h, m.isWoken())
		u.rollBack(m.fresh("v"), h.keptBack(1), false)
		assert.False(h, m.isWoken())
		m.end(u, nil, h.keptBack(1))
	})
}

// answers lets an attempt of w fail. The first nodes have answered it, and taken has the names because of which each of
// them refused. late has the same for the last nodes, whose answers come after the decision, while the attempt ends.
func (h *house) answers(w *call, taken []claim.Lines, late ...claim.Lines) *turn {
	h.Helper()
	u := h.asks(w)
	u.conclusive = true
	o := h.keptBack(0, w.names...)
	for i := range o.Result.Votes {
		if i >= len(taken) {
			o.Result.Votes[i] = claim.Failure(quorum.ErrNoAnswer)
			continue
		}
		o.Result.Votes[i].Answer.Detail.Free = ^taken[i]
		u.Heard(i, ^taken[i], true)
	}
	for i, taken := range late {
		if i == 0 {
			u.Heard(len(o.Result.Votes)-len(late), ^taken, true)
		}
	}
	u.rollBack(w.fresh("v"), o, false)
	for i, taken := range late {
		if i > 0 {
			u.Heard(len(o.Result.Votes)-len(late)+i, ^taken, true)
		}
	}
	w.end(u, nil, o)
	return u
}

// It is chance which nodes answer first. The first answers decide an attempt, but need not show which name is taken on
// a quorum of nodes.
func TestWaiterForSeveralNamesStaysInItsLineUnlessAnotherNameKeepsItBack(t *testing.T) {
	inHouse(t, 5, func(h *house) {
		m := h.multi(1)
		const a, b, both = claim.Lines(0b01), claim.Lines(0b10), claim.Lines(0b11)
		for _, taken := range [][]claim.Lines{{b, b, b}, {both, both, both}, {a, a, b}, {both, both, a, 0, b}, {a, a, b, 0, 0}} {
			m.agenda = agenda{}
			h.answers(m, taken)
			h.stands(m, "b")
			assert.False(h, m.agenda.ready, "%b", taken)
		}
		h.answers(m, []claim.Lines{both, a, a})
		h.stands(m, "a") // a is taken on three nodes
		h.answers(m, []claim.Lines{b, b, 0, 0, 0})
		h.stands(m, "b") // nobody can release a
	})
}

// Answers that come after the decision can show that another name keeps a waiter back.
func TestWaiterForSeveralNamesMovesWhenMoreNodesHaveAnswered(t *testing.T) {
	const a, b, both = claim.Lines(0b01), claim.Lines(0b10), claim.Lines(0b11)
	first := []claim.Lines{a, a, b}
	inHouse(t, 5, func(h *house) {
		for _, fair := range []bool{false, true} {
			m := h.waits(h.wants(fair, "a", "b"), h.keptBack(0))
			m.agenda = agenda{}
			u := h.answers(m, first)
			assert.Equal(h, 0, m.at)
			assert.False(h, m.agenda.ready)
			u.Heard(3, ^b, true)
			assert.Equal(h, 0, m.at, "a may still be taken on three nodes")
			h.wakes("b")
			assert.False(h, m.isWoken())
			u.Heard(4, ^b, true)
			assert.Equal(h, 1, m.at)
			assert.True(h, m.isWoken(), "b has become free on a node")
			assert.Equal(h, !fair, m.agenda.ready, "unless it is fair, its ticket is not in the queues of b")

			m.agenda = agenda{}
			u = h.answers(m, first)
			u.Heard(3, ^both, true)
			assert.Equal(h, 0, m.at, "a is taken on three nodes")
			assert.Equal(h, !fair, m.agenda.ready)

			m.agenda = agenda{}
			h.answers(m, first, b, b)
			assert.Equal(h, 1, m.at, "the others have answered while the attempt ended")
			assert.Equal(h, !fair, m.agenda.ready)
			h.leaves(m)
		}
	})
}

func TestTwoThatShareANameDoNotTryAtOnce(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		m, b, c := h.multi(0), h.single(false, "b"), h.single(false, "c")
		for _, w := range []*call{m, b, c} {
			require.True(h, h.isFirst(w))
		}
		u := h.asks(m)
		assert.Nil(h, b.begin(true, false), "m is trying")
		h.asks(c)
		what, _ := b.due()
		assert.NotEqual(h, tryNow, what)
		b.forget()
		m.end(u, nil, h.keptBack(0))
		assert.Len(h, b.look, 1, "it may go on")
		h.asks(m)
		b.forget()
		h.leaves(m)
		assert.Len(h, b.look, 1, "it may go on, although nobody waits for several names any more")

		m = h.multi(0)
		h.asks(b)
		assert.Nil(h, m.begin(true, false))
		h.leaves(b)
		h.asks(m) // b has left while it was trying
	})
}

// Waiters must never wait for each other in a circle. In each group of waiters that share names, one waiter always
// talks to the nodes.
func TestSomebodyIsAlwaysFirst(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		inHouse(t, 3, func(h *house) {
			var all []*call
			for range rapid.IntRange(1, 40).Draw(rt, "steps") {
				if len(all) == 0 || rapid.IntRange(0, 2).Draw(rt, "what") > 0 && len(all) < 8 {
					names := rapid.SampledFrom([][]string{{"a"}, {"b"}, {"c"}, {"a", "b"}, {"b", "c"}, {"a", "c"}, {"a", "b", "c"}}).Draw(rt, "names")
					terms := h.wants(rapid.Bool().Draw(rt, "fair"), names...)
					terms.Priority = rapid.IntRange(-1, 1).Draw(rt, "priority")
					terms.Timing.NodeTimeout = time.Duration(rapid.IntRange(1, 3).Draw(rt, "deadline")) * 100 * ms
					why := []lease.Outcome{{}, h.silent(), h.keptBack(0, names...), h.keptBack(len(names)-1, names...)}[rapid.IntRange(0, 3).Draw(rt, "why")]
					all = append(all, h.waits(terms, why))
				} else {
					i := rapid.IntRange(0, len(all)-1).Draw(rt, "who")
					w := all[i]
					if rapid.Bool().Draw(rt, "leaves") {
						h.leaves(w)
						all = append(all[:i], all[i+1:]...)
					} else if u := w.begin(true, false); u != nil {
						o := []lease.Outcome{h.silent(), h.keptBack(0, w.names...), h.keptBack(len(w.names)-1, w.names...)}[rapid.IntRange(0, 2).Draw(rt, "came to")]
						u.fails(w, o)
					}
				}
				for _, w := range all {
					if !h.somebodyTries(w, all) {
						t.Fatalf("nobody who stands in the way of %v may try", w.names)
					}
				}
			}
		})
	})
}

// somebodyTries reports whether w, or somebody for whom w waits directly or indirectly, talks to the nodes.
func (h *house) somebodyTries(w *call, all []*call) bool {
	h.lines.mu.Lock()
	defer h.lines.mu.Unlock()
	ahead := map[*waiter]bool{&w.waiter: true}
	for range all {
		for _, behind := range all {
			if !ahead[&behind.waiter] {
				continue
			}
			if h.lines.isFirstLocked(&behind.waiter) {
				return true
			}
			for _, name := range behind.stands() {
				ahead[h.lines.byName[name].first()] = true
			}
		}
	}
	return false
}

// Nobody tells a waiter without a place in the queues that a name has become free. So when it comes to wait for another
// name, it asks at once.
func TestWaiterThatIsNotQueuedAsksWhenItMoves(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		for _, denied := range []bool{false, true} {
			m := h.multi(0)
			u := h.asks(m)
			u.conclusive = true
			u.denied.Store(denied)
			u.fails(m, h.keptBack(1))
			assert.Equal(h, denied, m.agenda.ready)
			u = h.asks(m)
			u.conclusive = true
			u.fails(m, h.keptBack(0))
			assert.Equal(h, denied, m.agenda.ready)
			h.leaves(m)
		}
	})
}

// A line is in the order of the tickets, even if a waiter joins late because its first attempt took long.
func TestLineIsInTheOrderOfTheTickets(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		early := newCall(h.Group, h.terms(), clock.Now())
		time.Sleep(ms)
		late := h.waits(h.terms(), lease.Outcome{})
		h.lines.join(&early.waiter, h.refused())
		assert.True(h, h.isFirst(early))
		h.lines.mu.Lock()
		assert.Less(h, h.ticketLocked(&early.waiter).String(), h.ticketLocked(&late.waiter).String())
		h.lines.mu.Unlock()
		h.leaves(early)
	})
}

// If a lease of its own process has kept a fair waiter back, the waiter waits for the name that this lease
// releases.
func TestFairWaiterWaitsForTheNameThatItsProcessReleases(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		holder := h.holds(h.wants(false, "b"))
		m := h.waits(h.wants(true, "a", "b"), lease.Outcome{})
		all := h.admit(nil, holder, true)
		require.Len(h, all, 1)
		assert.False(h, all[0].tries)
		m.agenda = agenda{}
		h.wakes("b")
		assert.True(h, m.isWoken())
		h.unlocks(holder)
	})
}

// A waiter for several names waits for one name at a time. A hold of its process on another name does not keep it from
// trying, because that hold may have ended, or may end before the others do.
func TestWaiterForSeveralNamesTriesWhileItsProcessHoldsAnotherName(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		m := h.multi(1)
		a := h.single(false, "a")
		hold := h.holds(h.wants(false, "a"))
		h.lines.leave(&a.waiter, hold)
		assert.NotNil(h, m.begin(false, false), "it stands in the line of b")
		m.end(&turn{group: h.Group, waiter: &m.waiter}, nil, h.keptBack(0))
		h.moves(m, 0)
		assert.Nil(h, m.begin(false, false), "it stands in the line of a")
		h.unlocks(hold)
	})
}

// A ticket may have entered the queues of several names with the releases of several locks. A waiter that gives up takes it
// out of all of them.
func TestWhoGivesUpLeavesTheQueueOfEachNameThatAReleaseHasPutItIn(t *testing.T) {
	inHouse(t, 1, func(h *house) {
		w := h.waits(h.wants(true, "a", "b"), lease.Outcome{})
		for _, name := range []string{"a", "b"} {
			h.releaseAndAdmit(lease.New(h.wants(true, name), "of "+name, clock.Now()), lease.Releasing{})
		}
		ticket := any(w.ticket.String())
		ctx, cancel := context.WithCancel(h.Context())
		cancel()
		_, failure := w.run(ctx)
		require.NotNil(h, failure)
		synctest.Wait()
		for _, value := range []any{"of a", "of b"} {
			var with []bool
			for _, req := range h.fakes[0].Sent() {
				if slices.Contains(req.Args, value) {
					with = append(with, slices.Contains(req.Args, ticket))
				}
			}
			assert.Equal(h, []bool{true, true}, with, "%v: it has entered, and left", value)
		}
	})
}

func TestWaiterForSeveralNamesStandsInTheLineOfTheNameThatKeepsItBack(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		m := h.waits(h.wants(false, "a", "b", "c"), h.keptBack(1, "a", "b", "c"))
		h.stands(m, "b")
		a, b, c := h.single(false, "a"), h.single(false, "b"), h.single(false, "c")
		assert.True(h, h.isFirst(m))
		assert.True(h, h.isFirst(a), "m keeps nobody from a")
		assert.False(h, h.isFirst(b))
		assert.True(h, h.isFirst(c))

		for _, w := range []*call{a, b, c} {
			w.agenda.ready = false
		}
		h.failsAt(m, 0)
		h.stands(m, "a")
		assert.True(h, h.isFirst(m), "it came before a")
		assert.True(h, m.agenda.ready, "a may have had a reason to try")
		assert.False(h, h.isFirst(a))
		assert.True(h, h.isFirst(b))
		assert.True(h, b.agenda.ready, "it is the first now")
		assert.False(h, c.agenda.ready)

		m.agenda.ready = false
		h.failsAt(m, 0)
		h.stands(m, "a")
	})
}

func TestWakeUpIsAReasonOnlyForTheNameThatAWaiterWaitsFor(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		m := h.multi(0)
		m.agenda = agenda{}
		for i := range 3 {
			h.lines.wake("b", i, true, nil)
		}
		assert.Equal(h, agenda{}, m.agenda)
		assert.Zero(h, m.listening().freeLocked())
		h.lines.nudge("b")
		assert.Equal(h, agenda{}, m.agenda)

		h.moves(m, 1)
		assert.Equal(h, claim.Nodes(0b111), m.listening().freeLocked(), "now it waits for b")
		assert.True(h, m.isWoken())
		assert.True(h, m.agenda.ready)

		m.agenda = agenda{}
		h.wakes("a")
		assert.False(h, m.isWoken())
		h.wakes("b")
		assert.True(h, m.isWoken())

		u := h.asks(m)
		assert.Zero(h, m.listening().freeLocked(), "a new attempt, new news")
		u.Heard(1, 0b01, true)
		assert.Zero(h, m.listening().freeLocked())
		u.Heard(2, 0b11, true)
		assert.Equal(h, claim.Nodes(0b100), m.listening().freeLocked())
		m.end(u, nil, h.keptBack(1))
	})
}

func TestFairWaiterForSeveralNamesStandsInAllItsLines(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		b := h.single(true, "b")
		m := h.waits(h.wants(true, "a", "b"), h.keptBack(1))
		a := h.single(true, "a")
		h.stands(m, "a", "b")
		assert.False(h, h.isFirst(m))
		assert.False(h, h.isFirst(a), "it stands behind m")
		assert.True(h, h.isFirst(b))
		m.agenda = agenda{}
		h.leaves(b)
		assert.True(h, h.isFirst(m))
		assert.True(h, m.agenda.ready)
		h.failsAt(m, 0)
		h.stands(m, "a", "b")
		m.agenda = agenda{}
		h.wakes("b")
		assert.False(h, m.isWoken(), "it waits for a")
		h.wakes("a")
		assert.True(h, m.isWoken())
	})
}

// A fair waiter has a reason to try, but its process holds one of its names. When that hold is lost, the waiter must go
// on.
func TestFairWaiterGoesOnWhenAHoldOfItsProcessIsLost(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		holder := h.holds(h.wants(false, "b"))
		m := h.waits(h.wants(true, "a", "b"), h.keptBack(0))
		h.lines.byName["b"].holder = holder
		m.agenda.ready = true
		what, _ := m.due()
		assert.Equal(h, showTicket, what, "its process holds b")
		m.agenda.refresh = time.Now().Add(sec)
		what, _ = m.due()
		assert.Equal(h, nothing, what, "its ticket has been shown")
		m.forget()
		holder.Lose(ends.Expired)
		assert.Len(h, m.look, 1)
		what, _ = m.due()
		assert.NotEqual(h, nothing, what)
	})
}

// The release of a lock of several names puts the next in line of each name into the queue of that name.
func TestReleaseOfSeveralNamesEntersTheNextOfEach(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		a, b := h.single(true, "a"), h.single(true, "b")
		all := h.admit(nil, h.multi(0).fresh("v"), true)
		require.Len(h, all, 2)
		for i, w := range []*call{a, b} {
			assert.Equal(h, admission{waiter: &w.waiter, line: i, ticket: w.ticket, enters: true}, all[i])
			assert.False(h, w.ticket.IsZero())
		}
	})
}
