package queue

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/puppet"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows a waiter in each of its states, and what others may do with it there.

// A waiter that has won the lock on the nodes stays in its line for a moment. If another holder
// unlocks in that moment (the nodes had lost that holder's key), its lock must not be handed to
// this waiter.
func TestWaiterThatHasWonIsHandedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 1)
		terms := h.terms()
		giver := h.holds(terms)
		w := h.waits(terms, h.refused())
		u := w.begin(true, false)
		require.NotNil(t, u)
		won := lease.New(&terms.Terms, "v", clock.Now())
		w.end(u, won, lease.Outcome{Kind: lease.Won})
		assert.False(t, h.unlocks(giver))
		assert.Nil(t, w.handedOff)
		h.lines.leave(&w.waiter, won)
		assert.Zero(t, h.lines.count.Load())
		h.closes()
	})
}

// A call that gives up says why the lock was not free, also if it has made no attempt of its own. That another waiter of its
// line has won meanwhile is no reason.
func TestWinOfAWaiterIsNotWhyAnotherGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 3)
		terms := h.terms()
		w, next := h.waits(terms, h.refused()), h.waits(terms, lease.Outcome{})
		w.agenda.followsRelease = true
		u := w.begin(false, false)
		require.NotNil(t, u)
		require.False(t, u.enters(), "it follows a release")
		won := lease.New(&terms.Terms, "v", clock.Now())
		w.end(u, won, lease.Outcome{Kind: lease.Won})
		assert.True(t, next.lastOutcome().Taken())
		h.lines.leave(&w.waiter, won)
		h.lines.leave(&next.waiter, nil)
		h.closes()
	})
}

// waiting <--> trying --> served: a waiter whose second attempt wins.
func TestWaiterTriesUntilItIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 3)
		terms := h.terms()
		w, next := h.waits(terms, h.refused()), h.waits(terms, lease.Outcome{})
		assert.Equal(t, waiting, w.state)
		assert.True(t, w.agenda.ready, "the nodes have answered")
		what, _ := next.due()
		assert.Equal(t, notFirst, what)
		assert.Nil(t, next.begin(true, false), "another is the first")

		u := w.begin(false, false)
		require.NotNil(t, u)
		assert.Equal(t, trying, w.state)
		assert.Equal(t, agenda{}, w.agenda, "a new attempt, a new agenda")
		assert.EqualValues(t, 1, w.attempts)
		assert.True(t, u.enters())
		assert.True(t, u.place.Strict, "it is no poll")
		ticket := w.ticket
		assert.False(t, ticket.IsZero())

		w.end(u, nil, h.refused())
		assert.Equal(t, waiting, w.state)
		assert.False(t, w.heardTooFew)
		assert.Equal(t, time.Now().Add(lease.AliveFor/2), w.agenda.refresh, "its ticket is shown again in time")
		assert.True(t, w.agenda.ready, "it could not hear, so that it tries again")

		u = w.begin(true, false)
		assert.Equal(t, trying, w.state)
		assert.Equal(t, ticket, u.place.Ticket, "it keeps its place")
		assert.False(t, u.place.Strict, "a poll takes the lock where it is free")
		won := lease.New(&terms.Terms, "v", clock.Now())
		w.end(u, won, lease.Outcome{Kind: lease.Won})
		assert.Equal(t, trying, w.state, "until it leaves its line")
		assert.Same(t, &w.waiter, h.lines.byName["lock"].first())

		h.lines.leave(&w.waiter, won)
		assert.Equal(t, served, w.state)
		assert.Same(t, &next.waiter, h.lines.byName["lock"].first())
		assert.Same(t, won, h.lines.byName["lock"].holder)
		assert.Nil(t, w.handedOff)
		assert.True(t, next.agenda.ready, "it is the first now")
		what, at := next.due()
		assert.Equal(t, nothing, what, "it knows who holds the lock")
		assert.Equal(t, time.Now().Add(timing.Validity), at)

		h.lines.leave(&w.waiter, won)
		assert.Equal(t, served, w.state, "it has left")
		h.lines.leave(&next.waiter, nil)
		assert.Equal(t, gone, next.state)
		assert.Zero(t, h.lines.count.Load())
		h.closes()
	})
}

// trying --> waiting, heardTooFew --> gone: a waiter that the nodes do not answer lets one with more time try.
func TestWaiterThatIsNotHeardLetsAnotherTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 3)
		w := h.waits(h.terms(), lease.Outcome{})
		patient := h.terms()
		patient.Timing.NodeTimeout = time.Second
		next := h.waits(patient, lease.Outcome{})
		l := h.lines.byName["lock"]
		u := w.begin(false, false)
		w.end(u, nil, h.silent())
		assert.Equal(t, waiting, w.state)
		assert.True(t, w.heardTooFew)
		assert.Same(t, &next.waiter, l.first())
		assert.True(t, next.agenda.ready)
		assert.Nil(t, w.begin(true, false))

		u = next.begin(false, false)
		time.Sleep(600 * ms) // longer than w has waited for the nodes
		next.end(u, nil, h.refused())
		assert.True(t, w.heardTooFew, "it would not have heard them either")
		assert.Same(t, &next.waiter, l.first())
		u = next.begin(false, false)
		time.Sleep(400 * ms)
		next.end(u, nil, h.refused())
		assert.False(t, w.heardTooFew)
		assert.Same(t, &w.waiter, l.first())
		assert.True(t, w.agenda.ready)

		for _, leaver := range []*call{w, next} {
			h.lines.leave(&leaver.waiter, nil)
			assert.Equal(t, gone, leaver.state)
			assert.False(t, h.lines.entered(admission{waiter: &leaver.waiter, ticket: leaver.ticket}, nil))
		}
		assert.Zero(t, h.lines.count.Load())
		h.closes()
	})
}

// waiting --> served: the lock is handed over, and no node is told.
func TestWaiterIsHandedTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 3)
		terms := h.terms()
		giver := h.holds(terms)
		w, next := h.waits(terms, h.refused()), h.waits(terms, h.refused())
		sent := len(h.puppets[0].Sent())
		require.True(t, h.unlocks(giver))
		assert.Equal(t, served, w.state)
		require.NotNil(t, w.handedOff)
		assert.Equal(t, giver.Claim().Value(), w.handedOff.Claim().Value())
		assert.Len(t, h.puppets[0].Sent(), sent)
		assert.Len(t, w.look, 1, "it is told")
		what, _ := w.due()
		assert.Equal(t, handed, what)
		assert.Nil(t, w.begin(true, false))
		assert.Same(t, &next.waiter, h.lines.byName["lock"].first())
		assert.Same(t, w.handedOff, h.lines.byName["lock"].holder)

		l, failure := w.run(t.Context())
		assert.Same(t, w.handedOff, l)
		assert.Nil(t, failure)
		admitted := admission{waiter: &w.waiter, ticket: w.ticket}
		assert.False(t, h.lines.entered(admitted, giver), "the release of the lock may have removed its ticket")
		require.NoError(t, l.Begin())
		require.True(t, h.unlocks(l), "it goes on to the next")
		require.NoError(t, next.handedOff.Begin())
		require.False(t, h.unlocks(next.handedOff), "nobody waits any more")
		h.closes()
	})
}

func TestWaiterIsHandedNothingWhileItTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 3)
		terms := h.terms()
		giver := h.holds(terms)
		w := h.waits(terms, h.refused())
		u := w.begin(true, false)
		assert.False(t, h.unlocks(giver))
		assert.Nil(t, w.handedOff)
		assert.Equal(t, trying, w.state)
		w.end(u, nil, h.refused())
		assert.Equal(t, waiting, w.state)
		assert.True(t, w.agenda.ready, "it has been told that the lock is free")
		h.lines.leave(&w.waiter, nil)
		h.closes()
	})
}

// A lock is handed over only to a waiter whose settings allow it. Each of these waiters waits for the same
// name, but is handed nothing.
func TestWaiterOfAnotherKindIsHandedNothing(t *testing.T) {
	for name, change := range map[string]func(h *house, giving, waiting *Terms){
		"none is allowed to the waiter": func(_ *house, _, waiting *Terms) { waiting.Passes = false },
		"none is allowed to the giver":  func(_ *house, giving, _ *Terms) { giving.Passes = false },
		"another expiry":                func(_ *house, _, waiting *Terms) { waiting.Timing.Validity-- },
		"another Redsync": func(h *house, _, waiting *Terms) {
			waiting.Keeper = &lease.Keeper{Set: h.keeper.Set, Errors: &ends, Waiters: h.Group}
			waiting.Keeper.Init()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, 3)
				giving, waiting := h.terms(), h.terms()
				change(h, giving, waiting)
				giver := h.holds(giving)
				w := h.waits(waiting, h.refused())
				w.agenda.ready = false
				assert.False(t, h.unlocks(giver))
				assert.Nil(t, w.handedOff)
				assert.True(t, w.agenda.ready, "it tries right after the release")
				assert.True(t, w.agenda.followsRelease)
				h.lines.leave(&w.waiter, nil)
				h.closes()
			})
		})
	}
}

// A node may tell a waiter of a release before the call that released returns. The waiter then tries without a ticket, as
// it does after that call.
func TestWaiterThatANodeTellsOfTheReleaseFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 3)
		giver := h.holds(h.terms())
		w := h.waits(h.terms(), h.refused())
		w.agenda.ready = false
		require.Len(t, h.admit(nil, giver, true), 1)
		assert.False(t, w.agenda.ready, "the release has not been sent")
		assert.False(t, w.begin(false, false).enters())
		h.lines.leave(&w.waiter, nil)
		h.closes()
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
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 3)
		terms := h.terms()
		giver := h.holds(terms)
		w := h.waits(terms, h.refused())
		w.agenda.ready = false
		var once sync.Once
		l, failure := w.run(leaving{t.Context(), func() {
			once.Do(func() { assert.True(t, h.unlocks(giver)) })
		}})
		require.NotNil(t, l)
		assert.Nil(t, failure)
		assert.Same(t, w.handedOff, l)
		assert.Equal(t, served, w.state)
		assert.Zero(t, h.lines.count.Load())
		require.NoError(t, l.Begin())
		require.False(t, h.unlocks(l))
		h.closes()
	})
}

func TestWaiterThatLeavesIsHandedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 3)
		terms := h.terms()
		giver := h.holds(terms)
		w := h.waits(terms, h.refused())
		w.agenda.ready = false
		l, failure := w.run(leaving{t.Context(), func() {}})
		assert.Nil(t, l)
		require.NotNil(t, failure)
		assert.True(t, failure.Interrupted)
		assert.True(t, failure.Last.Taken(), "that is why it was not served")
		assert.Equal(t, gone, w.state)
		assert.False(t, h.unlocks(giver))
		assert.Nil(t, w.handedOff)
		h.closes()
	})
}

// While the release of the giver puts the ticket of the first waiter into the queues, the wait of that waiter ends. A
// node may then get the command that removes the ticket before the release that puts it in. So a second release of the
// giver removes the ticket.
func TestTicketOfAWaiterWhoseWaitEndsDuringTheReleaseIsRemoved(t *testing.T) {
	for name, meanwhile := range map[string]func(h *house, w *call){
		"it gives up": func(h *house, w *call) { h.lines.leave(&w.waiter, nil) },
		"it gives up while it tries": func(h *house, w *call) {
			u := w.begin(true, false)
			u.rollBack(lease.New(&w.terms.Terms, "failed", clock.Now()), h.refused(), true)
		},
		"it hears no quorum": func(h *house, w *call) {
			u := w.begin(true, false)
			u.rollBack(lease.New(&w.terms.Terms, "failed", clock.Now()), h.silent(), false)
		},
		"it is served, and unlocks": func(h *house, w *call) {
			u, won := w.begin(true, false), lease.New(&w.terms.Terms, "won", clock.Now())
			w.end(u, won, lease.Outcome{Kind: lease.Won})
			h.lines.leave(&w.waiter, won)
			require.NoError(h, won.Begin())
			assert.False(h, h.unlocks(won))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, 1)
				terms := h.terms()
				terms.Passes = false
				giver := h.holds(terms)
				w := h.waits(terms, h.refused())
				h.lines.byName["lock"].others = true
				var ticket any
				h.answer = func(_ int, req pool.Request) (*pool.Reply, error) {
					if ticket == nil {
						ticket = w.ticket.String()
						meanwhile(h, w)
					}
					return puppet.Yes(req)
				}
				before := len(h.puppets[0].Sent())
				assert.False(t, h.unlocks(giver))
				synctest.Wait()
				sent := h.puppets[0].Sent()[before:]
				last := sent[len(sent)-1].Args
				assert.Contains(t, sent[0].Args, ticket, "it enters")
				assert.Contains(t, last, ticket, "it leaves")
				assert.Contains(t, last, any(giver.Claim().Value()))
				assert.NotEqual(t, sent[0].Args, last)
				if w.state != gone {
					h.lines.leave(&w.waiter, nil)
				}
				h.closes()
			})
		})
	}
}

// A waiter has won the lock without a place in the queues, and has not left its line yet. In that moment another
// holder unlocks (the nodes had lost that holder's key), and its release puts the waiter's ticket into the
// queues. The release of the waiter's lock removes the ticket.
func TestTicketThatEntersTheQueuesOnceItsWaiterHasWonIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 1)
		terms := h.terms()
		terms.Passes = false
		giver := h.holds(terms)
		w := h.waits(terms, h.refused())
		w.agenda.followsRelease = true
		u, won := w.begin(true, false), lease.New(&terms.Terms, "won", clock.Now())
		require.False(t, u.enters())
		w.end(u, won, lease.Outcome{Kind: lease.Won})
		h.lines.byName["lock"].others = true
		assert.False(t, h.unlocks(giver))
		require.Equal(t, []*lease.Lease{giver}, w.entered, "the ticket has entered")
		h.lines.leave(&w.waiter, won)
		require.NoError(t, won.Begin())
		assert.False(t, h.unlocks(won))
		sent := h.puppets[0].Sent()
		assert.Contains(t, sent[len(sent)-1].Args, any(w.ticket.String()))
		h.closes()
	})
}

// An attempt that follows a release of this process at once enters no queue, so that no node tells the waiter of a
// later release. If it fails, it is repeated in the queues.
func TestAttemptRightBehindAReleaseIsRepeatedInTheQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 3)
		h.answer = func(_ int, req pool.Request) (*pool.Reply, error) {
			if req.Args[0] == "set" {
				return &pool.Reply{Fate: pool.Answered, Conn: 1}, nil // the key is there already
			}
			return puppet.Yes(req)
		}
		w := h.waits(h.terms(), h.refused())
		w.agenda.followsRelease = true
		u := w.begin(false, false)
		require.False(t, u.enters())
		l, _ := w.try(t.Context(), 1, u)
		require.Nil(t, l)
		require.True(t, w.agenda.ready)
		u = w.begin(false, false)
		assert.True(t, u.enters())
		h.lines.leave(&w.waiter, nil)
		h.closes()
	})
}

func TestAdmissionOfTheFirstInLine(t *testing.T) {
	for name, c := range map[string]struct {
		others, fair, heard, trying bool
		enters, tries, ready        bool
	}{
		"nobody else waits":                     {heard: true, tries: true, ready: true},
		"nobody else waits, it is trying":       {heard: true, trying: true, tries: true},
		"other processes wait":                  {others: true, heard: true, enters: true},
		"it is fair":                            {fair: true, heard: true, enters: true},
		"other processes wait, it cannot hear":  {others: true, enters: true, tries: true, ready: true},
		"it is fair, and cannot hear":           {fair: true, enters: true, tries: true, ready: true},
		"other processes wait, it is trying":    {others: true, heard: true, trying: true, enters: true, tries: true},
		"it is fair, trying, and cannot hear":   {fair: true, trying: true, enters: true, tries: true},
		"fair, and other processes wait, hears": {fair: true, others: true, heard: true, enters: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, 3)
				terms := h.terms()
				giver := h.holds(terms)
				terms = h.terms()
				terms.Fair = c.fair
				w := h.waits(terms, h.refused())
				l := h.lines.byName["lock"]
				l.others, l.holder = c.others, giver
				if c.trying {
					require.NotNil(t, w.begin(true, false))
				}
				all := h.admit(nil, giver, c.heard)
				require.Len(t, all, 1)
				assert.Same(t, &w.waiter, all[0].waiter)
				assert.Equal(t, c.enters, all[0].enters)
				assert.Equal(t, c.tries, all[0].tries)
				assert.Equal(t, c.ready, w.agenda.ready, "what it was told before")
				assert.Nil(t, l.holder, "it is released")
				if c.enters {
					assert.Equal(t, w.ticket, all[0].ticket)
					assert.Empty(t, w.entered, "the release has not been sent")
					assert.True(t, h.lines.entered(all[0], giver))
					assert.Equal(t, []*lease.Lease{giver}, w.entered, "through its release the ticket leaves the queues")
				}
				h.lines.leave(&w.waiter, nil)
				assert.Empty(t, h.admit(nil, giver, c.heard))
				h.unlocks(giver)
				h.closes()
			})
		})
	}
}

// Readers do not keep each other back. So the release of a reader is no reason for the next reader in its line, and takes
// none from it. Behind a writer that has stepped down it is one, because some nodes may not know of that.
func TestAReaderThatIsReleasedLeavesTheNextReaderItsReason(t *testing.T) {
	for name, downgraded := range map[string]bool{"a reader": false, "a writer that has stepped down": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, 3)
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
				require.True(t, w.agenda.ready)
				assert.Equal(t, downgraded, len(h.admit(nil, giver, true)) == 1)
				assert.Equal(t, !downgraded, w.agenda.ready)
				h.lines.leave(&w.waiter, nil)
				h.unlocks(giver)
				h.closes()
			})
		})
	}
}

// Waiters stand in the order of their priority, and then of their arrival.
func TestLineIsInTheOrderOfPriorityAndArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 3)
		var arrived []*call
		for _, priority := range []int{0, 5, -5, 5, 0} {
			terms := h.terms()
			terms.Priority = priority
			arrived = append(arrived, h.waits(terms, lease.Outcome{}))
		}
		var order []int
		for _, w := range h.lines.byName["lock"].waiters {
			for i, a := range arrived {
				if &a.waiter == w {
					order = append(order, i)
				}
			}
		}
		assert.Equal(t, []int{1, 3, 0, 4, 2}, order)
		for _, w := range arrived {
			h.lines.leave(&w.waiter, nil)
		}
		h.closes()
	})
}

// The retry delays of waiters are compared by their mean. If a function of the user's makes them, by the last one.
func TestWaiterIsComparedByTheMeanOfItsDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 3)
		for mean, want := range map[time.Duration]time.Duration{time.Second: time.Second, OfUser: 50 * ms} {
			terms := h.terms()
			terms.Delay, terms.Mean = func(int) time.Duration { return 50 * ms }, mean
			w := h.waits(terms, lease.Outcome{})
			assert.Equal(t, want, w.mean)
			h.lines.leave(&w.waiter, nil)
		}
		terms := h.terms()
		terms.Delay = func(int) time.Duration { return -1 }
		assert.False(t, newCall(h.Group, terms, clock.Now()).join(0, lease.Outcome{}), "a negative delay ends the call")
		assert.Zero(t, h.lines.count.Load())
		h.closes()
	})
}

// An attempt that nothing can mend, such as one without a usable value, says nothing of the lock to others in its line.
func TestAttemptThatNothingMendsIsNoReasonForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 3)
		first, second := h.waits(h.terms(), lease.Outcome{}), h.waits(h.terms(), lease.Outcome{})
		u := first.begin(true, false)
		require.NotNil(t, u)
		first.end(u, nil, lease.Outcome{Kind: lease.Unusable, Err: errors.New("no value")})
		assert.Equal(t, lease.Waiting, second.lastOutcome().Kind)
		h.allLeave(first, second)
	})
}
