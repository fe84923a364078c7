package queue

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/jitter"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file is about one call of Lock that waits in a line.

const (
	// wakeGrace is how long the first in line waits, after its first wake-up, for the wake-ups of a quorum. A
	// random time of up to wakeGrace is added. The wait has an end, because wake-ups may be lost. A session
	// waits for wakeGrace as well.
	wakeGrace = 2 * time.Millisecond

	// runOutJitter spreads the attempts of waiters for which the same TTL runs out.
	runOutJitter = 10 * time.Millisecond

	// minTry is the least retry delay after a try that asked no node, or failed for another reason than a
	// taken lock.
	minTry = 10 * time.Millisecond
)

// A waiter is one call of Lock that waits.
type waiter struct {
	terms *Terms
	names []string // of the lines in which it can stand: see stands
	start clock.Instant
	look  chan struct{}  // has room for one token: something has changed
	why   *lease.Outcome // of the last attempt that its context has not cut; nil if it has made none
	pace  pace           // its retry delays
	split *splits        // its attempts, since one was split

	queueless bool   // a node denies us its queue
	opened    func() // must be called once w has left its line: others wait to join its hold; nil if it has won none

	// lines.mu guards what follows, and pace.mean.
	state       state
	heardTooFew bool           // the last attempt heard fewer nodes than a quorum
	handedOff   *lease.Lease   // the lease that was handed over to it, or by which it shares a hold; nil if none was
	ticket      script.Ticket  // its place in the queues; zero until ticketLocked makes it
	attempts    int            // made so far
	agenda      agenda         // why and when it tries next
	place       uint32         // the number of its first ticket
	number      uint32         // the number of its next ticket
	at          int            // the index of the name that it waits for: the one that kept it back
	news        []news         // by name
	sight       *lease.Sight   // what its last attempt has seen; nil for one name, and for a waiter in no line
	denials     denials        // of the lock, if terms.EndsIfDenied
	entered     []*lease.Lease // the leases whose releases take the ticket out of the queues; none if it is in no queue

	roomOfNews    [1]news
	roomOfEntered [1]*lease.Lease
}

// A state is where a waiter is.
//
//	waiting <--> trying --won--> served
//	   |            |
//	   |            +--> gone
//	   +--> served (it was handed the lock, or has joined a hold), gone
type state uint8

const (
	waiting state = iota // in its line
	trying               // an attempt is under way, or has won: the lock is not handed over to it
	served               // it has the lock, and has left its line
	gone                 // it has left its line without the lock
)

func newWaiter(t *Terms, start clock.Instant) *waiter {
	w := &waiter{terms: t, names: t.Claim.Lines(), start: start, look: make(chan struct{}, 1)}
	w.place = t.Group.tickets.Add(1)
	w.number = w.place
	w.news, w.entered = w.roomOfNews[:], w.roomOfEntered[:0]
	if len(w.names) > 1 {
		w.news = make([]news, len(w.names))
	}
	return w
}

// stands returns the names of the lines in which w stands while it waits: in fair mode all its names,
// otherwise the name that it waits for. In either mode only news of the name that it waits for make it try. If
// news of any name did, two waiters could wake each other for ever while a name that both want is taken: each
// failed attempt takes their free names for a moment, and its release tells the first waiters for these names.
func (w *waiter) stands() []string {
	if w.terms.Fair {
		return w.names
	}
	return w.names[w.at : w.at+1]
}

func (w *waiter) isFair() bool { return w.terms.Fair }

// shares reports whether w is a reader.
func (w *waiter) shares() bool { return w.terms.Claim.Shares() }

// standsInOneOfSeveral reports whether w has several names, and stands in the line of one of them at a time.
func (w *waiter) standsInOneOfSeveral() bool { return len(w.names) > 1 && !w.terms.Fair }

// isQueued reports whether the ticket of w may be in the queue of a node.
func (w *waiter) isQueued() bool { return len(w.entered) > 0 }

func (w *waiter) lines() *lines           { return &w.terms.Group.lines }
func (w *waiter) subscriber() *subscriber { return &w.terms.Group.subscriber }

// ticketLocked returns w's ticket, which it makes when it is first needed.
func (w *waiter) ticketLocked() script.Ticket {
	if w.ticket.IsZero() {
		g := w.terms.Group
		w.ticket = script.NewTicket(w.terms.Priority, w.start.Wall.UnixMicro(), g.Process, w.number)
		if w.shares() {
			w.ticket = w.ticket.Shared()
		}
		w.number = g.tickets.Add(1)
	}
	return w.ticket
}

// compare returns a negative number if w stands before other in every line. That is the order of their
// tickets. If it were another order, the nodes could tell the process that it is the turn of one waiter while
// another is the first in line.
func (w *waiter) compare(other *waiter) int {
	return cmp.Or(
		cmp.Compare(other.terms.Priority, w.terms.Priority),
		cmp.Compare(w.start.Wall.UnixMicro(), other.start.Wall.UnixMicro()),
		cmp.Compare(w.place, other.place),
	)
}

func (w *waiter) markReadyLocked() {
	w.agenda.ready = true
	w.lookAgain()
}

// wakeLocked notes that node i has told w that the lock of a name is free. This is a reason to try only if w
// waits for that name. w may come to wait for it later.
func (w *waiter) wakeLocked(name string, i int) {
	at := slices.Index(w.names, name)
	w.news[at].woken = w.news[at].woken.With(i)
	if at != w.at {
		return
	}
	w.beginGraceLocked()
	w.lookAgain()
}

func (w *waiter) beginGraceLocked() {
	if w.agenda.graceEnd.IsZero() {
		w.agenda.graceEnd = time.Now().Add(wakeGrace + jitter.N(wakeGrace))
	}
}

// nudgeLocked notes that something that held a name has ended. This is a reason to try if w waits for that
// name.
func (w *waiter) nudgeLocked(name string) {
	at := slices.Index(w.names, name)
	if at == w.at {
		w.markReadyLocked()
		return
	}
	w.news[at].ended = true
	w.lookAgain() // w may have waited for the end of a hold of its process: see heldForLocked
}

// freeLocked returns the nodes on which the name that w waits for is free, as far as w knows: those that have
// told it, and those on which the release of its last attempt leaves the name free.
func (w *waiter) freeLocked() claim.Nodes { return w.news[w.at].woken | w.news[w.at].freed }

// entersLocked notes that a release is about to put w's ticket in a queue.
func (w *waiter) entersLocked() {
	w.agenda.refresh = time.Now().Add(lease.AliveFor / 2)
	w.lookAgain()
}

// enteredLocked notes that the release of h puts w's ticket in the queue of a name.
func (w *waiter) enteredLocked(h *lease.Lease, name string) {
	removes := func(l *lease.Lease) bool { return slices.Contains(l.Claim().Lines(), name) }
	if !slices.ContainsFunc(w.entered, removes) {
		w.entered = append(w.entered, h)
	}
}

// leaveQueuesWithLocked lets the release of holder, the lease that w has got, take the ticket of w out of the
// queues. The ticket may have entered a queue after the attempt of w that won.
func (w *waiter) leaveQueuesWithLocked(holder *lease.Lease) {
	if w.isQueued() {
		holder.LeaveQueuesOnRelease(w.ticket)
	}
}

func (w *waiter) lookAgain() {
	select {
	case w.look <- struct{}{}:
	default:
	}
}

// run is the rest of Lock after w has joined its line. It makes attempts until one succeeds, or Lock must
// give up.
func (w *waiter) run(ctx context.Context) (l *lease.Lease, failure *Failure) {
	returned := false
	defer func() { // also if a function of the user's has panicked
		if !returned || l == nil || l != w.handedOff { // a lock that was handed over has taken w out of its line
			w.lines().leave(w, l)
		}
		if w.opened != nil {
			w.opened()
		}
		switch {
		case w.handedOff != nil:
			l, failure = w.handedOff, nil // also if the lock was handed over while waitInLine gave up
			if !returned {
				l.Abandon(w.terms.Keeper.Errors.Failed)
			}
		case l == nil:
			w.leaveQueues()
		}
		if l != nil && !w.ticket.IsZero() { // w has won, and may have entered the queues
			w.terms.leaveOnWin(l, w.ticket)
		}
	}()
	l, failure = w.waitInLine(ctx)
	returned = true
	return l, failure
}

func (w *waiter) waitInLine(ctx context.Context) (*lease.Lease, *Failure) {
	for {
		what := w.sleepUntilDue(ctx)
		switch what {
		case handed:
			return w.handedOff, nil
		case ended:
			if res, severed := w.severed(); severed {
				return nil, &Failure{Last: lease.Outcome{Kind: lease.NotWon, Result: res}}
			}
			return nil, &Failure{Last: w.lastOutcome(), Interrupted: true, Tries: w.pace.try}
		case showTicket:
			w.showTicket()
			continue
		case elapsed:
			w.pace.try++
		}
		last := what == elapsed && w.pace.try == w.pace.limit
		least := minTry
		if u := w.begin(what == elapsed || what == prompted, last); u != nil {
			l, o := w.tryInLine(ctx, w.pace.try, u)
			switch {
			case l != nil:
				return l, nil
			case !o.Mends():
				w.terms.Group.look(w.terms.Keeper.Set)
				return nil, &Failure{Last: o}
			case w.isDenied(u, o):
				return nil, &Failure{Last: o, Denied: w.denied()}
			case o.Taken():
				took := time.Since(u.began)
				least = took + jitter.N(2*took+1) // with shorter delays attempts of far processes always overlap
				least = max(least, time.Until(w.split.untilQuiet()))
			}
		} else if what == elapsed {
			w.lines().prompt(w)
		}
		if last {
			return nil, &Failure{Last: w.lastOutcome(), Interrupted: true, Tries: w.pace.try}
		}
		if what == elapsed && !w.delay(least) {
			return nil, &Failure{Delay: w.pace.last}
		}
	}
}

// severed reports whether the user has closed the clients, and not the Redsync, and returns what an attempt would find.
func (w *waiter) severed() (res quorum.Result, severed bool) {
	if !w.terms.Group.severed.Load() || w.terms.Keeper.IsClosed() {
		return res, false
	}
	return w.terms.Keeper.Set.Severed()
}

// isDenied reports whether the nodes deny the lock, after a failed attempt.
func (w *waiter) isDenied(u *turn, o lease.Outcome) bool {
	if !w.terms.EndsIfDenied {
		return false
	}
	ls := w.lines()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return w.denials.note(o, u.mayDoWithoutQueue())
}

// denied returns the denials by node.
func (w *waiter) denied() []claim.Vote {
	ls := w.lines()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return slices.Clone(w.denials.votes)
}

// delay begins the next retry delay. A delay shorter than least is lengthened to least. If the delay is
// negative, delay begins none and reports false.
func (w *waiter) delay(least time.Duration) bool {
	if !w.pace.begin(least) {
		return false
	}
	if w.terms.Mean == OfUser {
		w.lines().setPace(w, w.pace.last)
	}
	return true
}

// sleepUntilDue waits until w has something to do, and returns the event that is the reason.
func (w *waiter) sleepUntilDue(ctx context.Context) event {
	var timer *time.Timer
	for {
		what, at := w.due()
		switch {
		case what == handed:
			return handed
		case ctx.Err() != nil || w.terms.Keeper.IsClosed() || w.terms.Group.severed.Load():
			return ended
		case what == notFirst:
			last := w.pace.sleep()
			if !last.IsZero() && !time.Now().Before(last) {
				w.pace.wake(time.Now())
				return elapsed
			}
			at = earlier(at, last)
		case what == showTicket:
			return showTicket
		case w.pace.asleep:
			w.pace.wake(time.Now())
			continue
		case what == unsubscribed:
			w.subscriber().listen(w.terms.Keeper.Set, w.terms.Attempts)
			continue
		case what != nothing:
			return what
		}
		var fires <-chan time.Time
		if timer != nil {
			timer.Stop()
		}
		if !at.IsZero() {
			if timer == nil {
				timer = time.NewTimer(0)
				defer timer.Stop()
			}
			timer.Reset(time.Until(at))
			fires = timer.C
		}
		select {
		case <-w.look:
		case <-fires:
		case <-ctx.Done():
			return ended
		case <-w.terms.Keeper.Closing():
			return ended
		}
	}
}

// due returns what w must do now, and when it must look again if that is nothing: see view.next.
func (w *waiter) due() (event, time.Time) {
	ls := w.lines()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	v := view{tick: w.pace.tick, handedOff: w.handedOff != nil}
	switch {
	case v.handedOff:
	case ls.isFirstLocked(w):
		v.now, v.first = time.Now(), true
		v.collides, v.held, v.free = ls.collidesLocked(w), ls.heldForLocked(w), w.freeLocked()
		v.rule, v.subscriptions = w.terms.Keeper.Set.Rule(), w
		if v.quiet = w.split.untilQuiet(); v.now.Before(v.quiet) {
			v.free &^= w.terms.Keeper.Set.Late()
		}
	case ls.pacesLocked(w):
		v.now, v.paces = time.Now(), true
	}
	if !v.handedOff && (!v.first || v.held > 0) && ls.showsLocked(w) {
		v.now, v.shows = time.Now(), true
	}
	return v.next(w.agenda)
}

// hears implements subscriptions. due, which calls it through view.next, holds lines.mu.
func (w *waiter) hears() (from time.Time, listens bool) {
	if !w.needsToHear() {
		return time.Time{}, true
	}
	return w.subscriber().hears(w.maxWaitToHear())
}

// needsToHear reports whether w must be able to hear the nodes before it tries, because the attempt puts its
// ticket in the queues. Before its very first attempt it need not: that attempt may succeed, and is repeated
// if it fails.
func (w *waiter) needsToHear() bool {
	return w.why != nil && (w.terms.Fair || !w.queueless && !w.agenda.followsRelease)
}

// maxWaitToHear is how long at most w waits until it can hear the nodes.
func (w *waiter) maxWaitToHear() time.Duration { return min(w.terms.Timing.NodeTimeout, maxWaitToHear) }

// lastOutcome returns why the lock has not been acquired so far: the last outcome of w, or that of its line
// if w has made no attempt.
func (w *waiter) lastOutcome() lease.Outcome {
	ls := w.lines()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch {
	case w.why != nil:
		return *w.why
	case w.handedOff != nil:
		return lease.Outcome{}
	}
	return ls.byName[w.stands()[0]].why
}

// begin starts an attempt of w, and returns it. It returns nil if w is not the first in line, if it collides
// with the attempt of another waiter, or if it has been handed the lock. It also returns nil if this process
// holds the lock, unless poll is set.
//
// poll says that the retry delay is the only reason for the attempt. A poll is made although this process
// seems to hold the lock, because the lock may have been released elsewhere. A poll takes a free lock out
// of turn, except in fair mode. Any other attempt respects the order of the queues.
//
// last says that no attempt follows: w then leaves the queues.
func (w *waiter) begin(poll, last bool) *turn {
	ls := w.lines()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.handedOff != nil || !ls.isFirstLocked(w) || ls.collidesLocked(w) || !poll && ls.heldForLocked(w) > 0 {
		return nil
	}
	// Two kinds of attempts show no ticket, and so respect no queue. One follows a release of this process at
	// once, when nobody else is known to wait. The other is the first attempt of a reader that may share a
	// hold. It is like the attempt of a call that barges, although the reader stands in the line: see
	// Terms.Lock.
	plain := (w.agenda.followsRelease || w.terms.Joins && w.why == nil) && !w.terms.Fair
	ls.beginTryLocked(w)
	w.agenda = agenda{}
	clear(w.news)
	if len(w.names) > 1 {
		w.sight = lease.NewSight(w.terms.Keeper.Set.Rule(), len(w.names))
	}
	w.attempts++
	u := &turn{waiter: w, number: w.attempts, began: time.Now(), leaves: last}
	if !plain && (!w.queueless || w.terms.Fair) {
		u.place.Ticket, u.place.Alive = w.ticketLocked(), lease.AliveFor.Milliseconds()
		u.place.Strict = w.terms.Fair || !poll
	}
	return u
}

// tryInLine makes the attempt of a waiter that is in a line, unless it can share the hold of a call that has not joined
// the line.
func (w *waiter) tryInLine(ctx context.Context, try int, u *turn) (l *lease.Lease, o lease.Outcome) {
	l, done := w.lines().joinOrOpen(ctx, w.terms)
	if l != nil {
		o.Kind = lease.Won
		w.end(u, l, o)
		return l, o
	}
	defer func() {
		if l == nil { // also if a function of the user's has panicked
			done(false)
			return
		}
		w.opened = func() { done(true) }
	}()
	return w.try(ctx, try, u)
}

// try makes the attempt. Before that it decides whether a failure is conclusive.
//
// A failure is conclusive if w can hear the nodes before the attempt or has waited long enough for that, or
// if w uses no queues (queueless). Otherwise w may miss a message, and end makes it try again as soon as it
// can hear the nodes. An attempt without a ticket is repeated with one.
func (w *waiter) try(ctx context.Context, try int, u *turn) (*lease.Lease, lease.Outcome) {
	s := w.subscriber()
	switch {
	case w.queueless && !w.terms.Fair:
		u.conclusive = true
	case !u.enters(), u.leaves:
	case w.why == nil:
		u.conclusive = s.ready()
	default:
		s.listen(w.terms.Keeper.Set, w.terms.Attempts)
		from, _ := s.hears(w.maxWaitToHear())
		u.conclusive = from.IsZero()
	}
	patient := w.split.arePatient()
	l, o := w.terms.attempt(ctx, clock.Now(), try, u)
	switch {
	case patient:
		w.terms.Group.leftovers.note(w.names[0], w.split, o.Result.Rule)
	case w.split == nil && o.Result.Split:
		w.split = w.terms.Group.leftovers.of(w.names[0])
	}
	w.split = w.split.after(o, u.began)
	w.split.beQuiet(o, w.terms.Timing.NodeTimeout)
	w.end(u, l, o)
	return l, o
}

// end notes how an attempt has ended. If the attempt failed and w goes on, end notes when to try again.
func (w *waiter) end(u *turn, l *lease.Lease, o lease.Outcome) {
	ls := w.lines()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	won, proves := l != nil, !o.IsCut()
	if !won && proves {
		why := o
		w.why = &why
	}
	w.queueless = w.queueless || u.denied.Load()
	if !u.leaves { // a waiter that leaves does so at once, and the waiter of tryQueued is in no line
		ls.triedLocked(w, won, won || o.Heard() || o.Result.Rule == nil, time.Since(u.began))
	}
	switch {
	case won && u.enters():
		l.LeaveQueuesOnRelease(w.ticket)
	case won, u.leaves, !o.Mends():
	default:
		for _, name := range w.stands() {
			if line := ls.byName[name]; proves {
				line.why = o
				line.why.Told = nil // observers of w were told of it, and not those of the others
			}
		}
		w.agenda.ready = w.agenda.ready || !u.conclusive || o.MayWinAtOnce()
		if u.enters() {
			w.agenda.runsOut = runsOut(o, clock.Now())
		}
		if w.split.wasSplit() {
			w.agenda.runsOut = earlier(w.agenda.runsOut, time.Now().Add(max(w.split.quiet, w.split.pause())))
		}
		w.agenda.refresh = time.Now().Add(lease.AliveFor / 2)
		ls.reconsiderLocked(w)
	}
}

// showTicket puts the ticket of w into the queues of all its names, or lets it count as alive there for
// longer, without an attempt.
func (w *waiter) showTicket() {
	ls := w.lines()
	ls.mu.Lock()
	w.agenda.refresh = time.Now().Add(lease.AliveFor / 2)
	ticket := w.ticketLocked()
	l := lease.Nobody(&w.terms.Terms)
	w.entered = append(w.entered[:0], l)
	ls.mu.Unlock()
	var enters []lease.Entering
	for i := range w.names {
		enters = append(enters, lease.Entering{Ticket: ticket, Line: i})
	}
	l.Release(lease.Releasing{Enters: enters})
}

// leaveQueues takes the ticket of w, which has left its line, out of the queues of the nodes, if it may be
// in one.
func (w *waiter) leaveQueues() {
	for _, l := range w.entered {
		l.LeaveQueuesOnRelease(w.ticket)
		l.Release(lease.Releasing{})
	}
}
