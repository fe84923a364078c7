package queue

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file shows a waiter in each of its states, and what others may do with it there.

// A waiter that has won the lock on the nodes stays in its line for a moment. If another holder
// unlocks in that moment (the nodes had lost that holder's key), its lock must not be handed to
// this waiter.
func TestWaiterThatHasWonIsHandedNothing(t *testing.T) {
	inHouse(t, 1, func(h *house) {
		terms := h.terms()
		giver := h.holds(terms)
		w := h.waits(terms, h.refused())
		u := h.asks(w)
		won := w.fresh("v")
		w.wins(u, won)
		assert.False(h, h.unlocks(giver))
		assert.Nil(h, w.handedOff)
		h.lines.leave(&w.waiter, won)
	})
}

// A call that gives up says why the lock was not free, also if it has made no attempt of its own. That another waiter of its
// line has won meanwhile is no reason.
func TestWinOfAWaiterIsNotWhyAnotherGivesUp(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		terms := h.terms()
		w, next := h.waits(terms, h.refused()), h.waits(terms, lease.Outcome{})
		w.agenda.followsRelease = true
		u := w.begin(false, false)
		require.NotNil(h, u)
		require.False(h, u.enters(), "it follows a release")
		won := w.fresh("v")
		w.wins(u, won)
		assert.True(h, next.lastOutcome().Taken())
		h.lines.leave(&w.waiter, won)
	})
}

// A node may tell a waiter of a release before the call that released returns. The waiter then tries without a ticket, as
// it does after that call.
func TestWaiterThatANodeTellsOfTheReleaseFirst(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		giver := h.holds(h.terms())
		w := h.waits(h.terms(), h.refused())
		w.agenda.ready = false
		require.Len(h, h.admit(nil, giver, true), 1)
		assert.False(h, w.agenda.ready, "the release has not been sent")
		assert.False(h, w.begin(false, false).enters())
	})
}

// A leaving is a context that is done, and that calls meanwhile when it is asked.
type leaving struct {
	context.Context //nolint:containedctx // it is one
	meanwhile       func()
}

func (l leaving) Err() error {
	l.meanwhile()
	return context.Canceled
}

// A waiter sees that nothing has been handed to it, and that its context is done. If the lock is handed to it
// after that, but before it has left the line, it still has the lock.
func TestWaiterThatIsHandedTheLockWhileItLeavesHasIt(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		terms := h.terms()
		giver := h.holds(terms)
		w := h.waits(terms, h.refused())
		w.agenda.ready = false
		var once sync.Once
		l, failure := w.run(leaving{h.Context(), func() {
			once.Do(func() { assert.True(h, h.unlocks(giver)) })
		}})
		require.NotNil(h, l)
		assert.Nil(h, failure)
		assert.Same(h, w.handedOff, l)
		assert.Equal(h, served, w.state)
		assert.Zero(h, h.lines.count.Load())
		require.NoError(h, l.Begin())
		require.False(h, h.unlocks(l))
	})
}

// While the release of the giver puts the ticket of the first waiter into the queues, the wait of that waiter ends. A
// node may then get the command that removes the ticket before the release that puts it in. So a second release of the
// giver removes the ticket.
func TestTicketOfAWaiterWhoseWaitEndsDuringTheReleaseIsRemoved(t *testing.T) {
	for name, meanwhile := range map[string]func(h *house, w *call){
		"it gives up while it tries": func(h *house, w *call) {
			u := h.asks(w)
			u.rollBack(w.fresh("failed"), h.refused(), true)
		},
		"it hears no quorum": func(h *house, w *call) {
			u := h.asks(w)
			u.rollBack(w.fresh("failed"), h.silent(), false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, 1, func(h *house) {
				terms := h.terms()
				terms.Passes = false
				giver := h.holds(terms)
				w := h.waits(terms, h.refused())
				h.lines.byName["lock"].others = true
				var ticket any
				h.answer = func(_ int, req wire.Request) (*wire.Reply, error) {
					if ticket == nil {
						ticket = w.ticket.String()
						meanwhile(h, w)
					}
					return scripted.Yes(req)
				}
				before := len(h.fakes[0].Sent())
				assert.False(h, h.unlocks(giver))
				synctest.Wait()
				sent := h.fakes[0].Sent()[before:]
				last := sent[len(sent)-1].Args
				assert.Contains(h, sent[0].Args, ticket, "it enters")
				assert.Contains(h, last, ticket, "it leaves")
				assert.Contains(h, last, any(giver.Claim().Value()))
				assert.NotEqual(h, sent[0].Args, last)
				if w.state != gone {
					h.leaves(w)
				}
			})
		})
	}
}

// An attempt that follows a release of this process at once enters no queue, so that no node tells the waiter of a
// later release. If it fails, it is repeated in the queues.
func TestAttemptRightBehindAReleaseIsRepeatedInTheQueues(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		h.answer = func(_ int, req wire.Request) (*wire.Reply, error) {
			if req.Args[0] == "set" {
				return &wire.Reply{Fate: wire.Answered, Conn: 1}, nil // the key is there already
			}
			return scripted.Yes(req)
		}
		w := h.waits(h.terms(), h.refused())
		w.agenda.followsRelease = true
		u := w.begin(false, false)
		require.False(h, u.enters())
		l, _ := w.try(h.Context(), 1, u)
		require.Nil(h, l)
		require.True(h, w.agenda.ready)
		u = w.begin(false, false)
		assert.True(h, u.enters())
	})
}

func TestAdmissionOfTheFirstInLine(t *testing.T) {
	for scene, want := range map[string]string{
		"heard":               "tries ready",
		"heard trying":        "tries",
		"others heard":        "enters",
		"fair heard":          "enters",
		"others":              "enters tries ready",
		"fair":                "enters tries ready",
		"others heard trying": "enters tries",
		"fair trying":         "enters tries",
		"fair others heard":   "enters",
	} {
		t.Run(scene, func(t *testing.T) {
			inHouse(t, 3, func(h *house) {
				is, wanted := func(what string) bool { return strings.Contains(scene, what) }, func(what string) bool { return strings.Contains(want, what) }
				giver := h.holds(h.terms())
				terms := h.terms()
				terms.Fair = is("fair")
				w := h.waits(terms, h.refused())
				l := h.lines.byName["lock"]
				l.others, l.holder = is("others"), giver
				if is("trying") {
					h.asks(w)
				}
				all := h.admit(nil, giver, is("heard"))
				require.Len(h, all, 1)
				assert.Same(h, &w.waiter, all[0].waiter)
				assert.Equal(h, wanted("enters"), all[0].enters)
				assert.Equal(h, wanted("tries"), all[0].tries)
				assert.Equal(h, wanted("ready"), w.agenda.ready, "what it was told before")
				assert.Nil(h, l.holder, "it is released")
				if all[0].enters {
					assert.Equal(h, w.ticket, all[0].ticket)
					assert.Empty(h, w.entered, "the release has not been sent")
					assert.True(h, h.lines.entered(all[0], giver))
					assert.Equal(h, []*lease.Lease{giver}, w.entered, "through its release the ticket leaves the queues")
				}
				h.leaves(w)
				assert.Empty(h, h.admit(nil, giver, is("heard")))
				h.unlocks(giver)
			})
		})
	}
}

// Readers do not keep each other back. So the release of a reader is no reason for the next reader in its line, and takes
// none from it. Behind a writer that has stepped down it is one, because some nodes may not know of that.
func TestAReaderThatIsReleasedLeavesTheNextReaderItsReason(t *testing.T) {
	for name, downgraded := range map[string]bool{"a reader": false, "a writer that has stepped down": true} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, 3, func(h *house) {
				writer := claim.Keyed{}
				writer.Init("lock")
				terms := h.terms()
				terms.Claim = writer.Shared()
				giver := h.holds(h.terms())
				if downgraded {
					giver.Replace(writer.Downgraded(script.Downgrade{}))
				} else {
					giver.Replace(writer.Shared())
				}
				w := h.waits(terms, h.refused())
				h.lines.byName["lock"].others = true
				require.True(h, w.agenda.ready)
				assert.Equal(h, downgraded, len(h.admit(nil, giver, true)) == 1)
				assert.Equal(h, !downgraded, w.agenda.ready)
				h.leaves(w)
				h.unlocks(giver)
			})
		})
	}
}

// An attempt that nothing can mend, such as one without a usable value, says nothing of the lock to others in its line.
func TestAttemptThatNothingMendsIsNoReasonForOthers(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		first, second := h.waits(h.terms(), lease.Outcome{}), h.waits(h.terms(), lease.Outcome{})
		u := h.asks(first)
		first.end(u, nil, lease.Outcome{Kind: lease.Unusable, Err: errors.New("no value")})
		assert.Equal(h, lease.Waiting, second.lastOutcome().Kind)
	})
}

func TestWaiterIsHandedNothingWhileItTries(t *testing.T) {
	inHouse(t, 3, func(h *house) {
		giver := h.holds(h.terms())
		w := h.waits(h.terms(), h.refused())
		u := h.asks(w)
		assert.False(h, h.unlocks(giver))
		assert.Nil(h, w.handedOff)
		w.end(u, nil, h.refused())
		assert.True(h, w.agenda.ready, "it has been told that the lock is free")
	})
}
