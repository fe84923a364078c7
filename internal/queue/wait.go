package queue

import (
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

// A call is a call of Lock that waits in line. Except for the waiter, only its goroutine uses it.
type call struct {
	waiter
	group     *Group
	why       *lease.Outcome // of the last attempt that its context has not cut
	pace      pace
	split     *splits // of its attempts since one was split
	opened    func()  // to call once it has left its line, if others wait to join its hold
	queueless bool    // a node denies it its queue
	hasty     int8    // how many of its last attempts were in haste and in vain
	unasked   bool    // nothing had told it that the lock is free: see lines.silent
}

func newCall(g *Group, t *lease.Terms, start clock.Instant) *call {
	c := &call{group: g, waiter: waiter{
		terms: t, names: t.Claim.Lines(), start: start, mean: t.Mean, look: make(chan struct{}, 1),
	}}
	if t.Rests {
		c.mean = showEvery
	}
	c.place = g.lines.tickets.Add(1)
	c.number = c.place
	c.news, c.entered = c.roomOfNews[:], c.roomOfEntered[:0]
	if len(c.names) > 1 {
		c.news = make([]news, len(c.names))
	}
	return c
}

// join begins the first retry delay, and puts c in its lines. If the delay is negative, join reports false instead.
func (c *call) join(limit int, first lease.Outcome) bool {
	c.pace = pace{delay: c.terms.Delay, limit: limit, try: 1}
	if !c.pace.begin(0) {
		return false
	}
	if c.mean < 0 {
		c.mean = c.pace.last
	}
	if first.Kind != lease.NotAsked {
		own := first
		c.why, c.tries = &own, 1
	}
	c.group.lines.join(&c.waiter, first)
	return true
}

func (c *call) run(ctx context.Context) (l *lease.Lease, failure *Failure) {
	returned := false
	defer func() { // also after a panic
		switch {
		case returned && l != nil && l == c.handedOff: // it is out of its line
		case l != nil && l.BeginSharing():
			c.group.sharing.share(l, &c.waiter)
		default:
			c.group.lines.leave(&c.waiter, l)
		}
		if c.opened != nil {
			c.opened()
		}
		switch {
		case c.handedOff != nil:
			l, failure = c.handedOff, nil // even if waitInLine gave up meanwhile
			if !returned {
				l.Abandon(c.terms.Keeper.Errors.Failed)
			}
		case l == nil:
			for _, entered := range c.entered {
				entered.LeaveQueuesOnRelease(c.ticket)
				entered.Release(lease.Releasing{})
			}
		}
		if l != nil && !c.ticket.IsZero() { // it may have entered the queues
			c.group.leaveOnWin(l, c.ticket)
		}
	}()
	l, failure = c.waitInLine(ctx)
	returned = true
	return l, failure
}

func (c *call) waitInLine(ctx context.Context) (*lease.Lease, *Failure) {
	for {
		what := c.sleepUntilDue(ctx)
		switch what {
		case handed:
			return c.handedOff, nil
		case ended:
			if res, severed := c.severed(); severed {
				return nil, &Failure{Last: lease.Outcome{Kind: lease.NotWon, Result: res}}
			}
			return nil, &Failure{Last: c.lastOutcome(), Interrupted: true, Tries: c.pace.try}
		case showTicket:
			c.group.showTicket(&c.waiter)
			continue
		case elapsed:
			c.pace.try++
		}
		last := what == elapsed && c.pace.try == c.pace.limit
		least := minTry
		if what == elapsed && !last && c.passesOver() {
			// The try counts, and asks no node.
		} else if u := c.begin(what == elapsed || what == prompted, last); u != nil {
			l, o := c.tryInLine(ctx, c.pace.try, u)
			if l != nil {
				return l, nil
			}
			if !o.Mends() {
				c.group.look(c.terms.Keeper.Set)
				return nil, &Failure{Last: o}
			}
			if by, denied := c.denied(u, o); denied {
				return nil, &Failure{Last: o, Denied: by}
			}
			if o.Taken() {
				took := time.Since(u.began)
				least = took + jitter.N(2*took+1) // otherwise attempts of far processes always overlap
				if c.split != nil {
					least = max(least, time.Until(c.split.untilQuiet()))
				}
			}
		} else if what == elapsed {
			c.group.lines.prompt(&c.waiter)
		}
		if last {
			return nil, &Failure{Last: c.lastOutcome(), Interrupted: true, Tries: c.pace.try}
		}
		if what != elapsed {
			continue
		}
		if !c.pace.begin(least) {
			return nil, &Failure{Delay: c.pace.last}
		}
		if c.terms.Mean < 0 {
			c.group.lines.setMean(&c.waiter, c.pace.last)
		}
	}
}

// severed returns what an attempt would find if the user has closed the clients, but not the Redsync.
func (c *call) severed() (res quorum.Result, severed bool) {
	if !c.group.severed.Load() || c.terms.Keeper.IsClosed() {
		return res, false
	}
	return c.terms.Keeper.Set.Severed()
}

// denied reports whether the nodes deny the lock, and returns the denials by node.
func (c *call) denied(u *turn, o lease.Outcome) (by []claim.Vote, denied bool) {
	c.group.lines.mu.Lock()
	defer c.group.lines.mu.Unlock()
	if !c.denials.note(o, u.mayDoWithoutQueue(), c.terms.EndsIfDenied) {
		return nil, false
	}
	return slices.Clone(c.denials.votes), true
}

func (c *call) sleepUntilDue(ctx context.Context) event {
	var timer *time.Timer
	for {
		what, at := c.due()
		switch {
		case what == handed:
			return handed
		case ctx.Err() != nil || c.terms.Keeper.IsClosed() || c.group.severed.Load():
			return ended
		case what == notFirst:
			last := c.pace.sleep()
			if !last.IsZero() && !time.Now().Before(last) {
				c.pace.wake(time.Now())
				return elapsed
			}
			at = earlier(at, last)
		case what == showTicket:
			return showTicket
		case c.pace.asleep:
			c.pace.wake(time.Now())
			continue
		case what == unsubscribed:
			c.group.subscriber.listen(c.terms.Keeper.Set, c.terms.Events)
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
		case <-c.look:
		case <-fires:
		case <-ctx.Done():
			return ended
		case <-c.terms.Keeper.Closing():
			return ended
		}
	}
}

func (c *call) listening() listening {
	return listening{&c.waiter, c.group.Rash, c.split != nil && c.split.arePatient()}
}

func (c *call) due() (event, time.Time) {
	ls, w := &c.group.lines, &c.waiter
	ls.mu.Lock()
	defer ls.mu.Unlock()
	v := view{tick: c.pace.tick, handedOff: c.handedOff != nil}
	switch {
	case v.handedOff:
	case ls.isFirstLocked(w):
		v.now, v.first = time.Now(), true
		v.collides, v.held, v.rule = ls.collidesLocked(w), ls.heldForLocked(w), c.terms.Keeper.Set.Rule()
		v.from, v.listens = c.hears()
		hears := c.listening()
		v.free, v.hopeless = hears.freeLocked(), hears.isHopelessLocked()
		v.rests = c.terms.Rests && c.group.isWakableLocked(w)
		if c.split != nil {
			v.quiet = c.split.untilQuiet()
		}
		if v.now.Before(v.quiet) {
			v.free &^= c.terms.Keeper.Set.Late()
		}
	case ls.pacesLocked(w):
		v.now, v.paces = time.Now(), true
	}
	if !v.handedOff && (!v.first || v.held > 0) && ls.showsLocked(w) {
		v.now, v.shows = time.Now(), true
	}
	return v.next(c.agenda)
}

// hears is subscriber.hears for c. The first attempt does not wait to hear nodes: it may succeed, and is repeated
// otherwise. The caller holds lines.mu.
func (c *call) hears() (from time.Time, listens bool) {
	if c.why == nil || !c.terms.Fair && (c.queueless || c.agenda.followsRelease) {
		return time.Time{}, true
	}
	return c.group.subscriber.hears(c.terms.Timing.NodeTimeout)
}

// isUntoldLocked reports whether the next attempt of c has no reason but its own questions.
func (c *call) isUntoldLocked() bool {
	a := c.agenda
	ranOut := !a.runsOut.IsZero() && !a.runsOut.After(time.Now())
	return c.isQueued() && !a.ready && !a.followsRelease && !ranOut && !c.news[c.at].told
}

// passesOver reports whether c omits the try that is due, because the nodes can wake the first in each of its lines.
func (c *call) passesOver() bool {
	if !c.terms.Rests {
		return false
	}
	ls := &c.group.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, name := range c.stands() {
		if l := ls.byName[name]; c.handedOff == nil && !c.group.isWakableLocked(l.first()) {
			return false
		}
	}
	if c.pace.try <= 1+earlyShows && c.handedOff == nil && ls.isFirstLocked(&c.waiter) {
		c.agenda.refresh = time.Now()
	}
	return true
}

func (c *call) lastOutcome() lease.Outcome {
	ls := &c.group.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch {
	case c.why != nil:
		return *c.why
	case c.handedOff != nil:
		return lease.Outcome{}
	}
	return ls.byName[c.stands()[0]].why
}

// begin starts an attempt of c, or returns nil if c must not try. poll says that the retry delay is the only reason. A
// poll is made although this process seems to hold the lock, which may be released elsewhere. Except in fair mode, it
// takes a free lock out of turn.
func (c *call) begin(poll, last bool) *turn {
	ls, w := &c.group.lines, &c.waiter
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if c.handedOff != nil || !ls.isFirstLocked(w) || ls.collidesLocked(w) || !poll && ls.heldForLocked(w) > 0 {
		return nil
	}
	// Two kinds of attempts respect no queue: one right after a release of this process, and, like that of a call that
	// barges, the first one of a reader that may share a hold.
	plain := (c.agenda.followsRelease || c.terms.Joins && c.why == nil) && !c.terms.Fair
	ls.beginTryLocked(w)
	hasty := !poll && c.isHastyLocked()
	c.vain = c.vain && !poll
	few := hasty && !c.agenda.ready && c.listening().areFewLocked()
	c.unasked = c.isUntoldLocked()
	if c.unasked && c.terms.Keeper.Set.Rule().Quorum(c.news[c.at].woken) {
		ls.silent.Note(c.names[c.at], silentFor)
	}
	c.agenda = agenda{}
	clear(c.news)
	if len(c.names) > 1 {
		c.sight = newSight(c.terms.Keeper.Set.Rule(), len(c.names))
	}
	c.attempts++
	c.tries = uint32(c.pace.try) //nolint:gosec // it is positive
	u := &turn{group: c.group, waiter: w, number: c.attempts, began: time.Now(), leaves: last, hasty: hasty, few: few}
	if !plain && (!c.queueless || c.terms.Fair) {
		u.place.Ticket, u.place.Alive = c.group.ticketLocked(w), script.AliveFor
		u.place.Strict = c.terms.Fair || !poll
	}
	return u
}

// tryInLine makes the attempt, unless c can share a hold.
func (c *call) tryInLine(ctx context.Context, try int, u *turn) (l *lease.Lease, o lease.Outcome) {
	if !c.terms.Joins {
		return c.try(ctx, try, u)
	}
	l, done := c.group.sharing.joinOrOpen(ctx, c.terms)
	if l != nil {
		o.Kind = lease.Won
		c.end(u, l, o)
		return l, o
	}
	defer func() {
		if l == nil { // also after a panic
			done(false)
			return
		}
		c.opened = func() { done(true) }
	}()
	return c.try(ctx, try, u)
}

// try makes the attempt. Its failure is conclusive if c can hear the nodes, has waited long enough for that, or uses no
// queues. Otherwise end makes c, which may miss a message, try again as soon as it can hear the nodes.
func (c *call) try(ctx context.Context, try int, u *turn) (*lease.Lease, lease.Outcome) {
	s := &c.group.subscriber
	switch {
	case c.queueless && !c.terms.Fair:
		u.conclusive = true
	case !u.enters(), u.leaves:
	case c.why == nil:
		u.conclusive = s.ready()
	default:
		s.listen(c.terms.Keeper.Set, c.terms.Events)
		from, _ := s.hears(c.terms.Timing.NodeTimeout)
		u.conclusive = from.IsZero()
	}
	u.patient = c.split != nil && c.split.arePatient()
	l, o := c.group.attempt(ctx, c.terms, clock.Now(), try, u, u.leaves || c.queueless)
	switch {
	case u.patient:
		c.group.leftovers.note(c.names[0], c.split, o.Result.Rule)
	case c.split == nil && o.Result.Split:
		if c.split = c.group.leftovers.of(c.names[0]); c.split == nil {
			c.split = newSplits(len(o.Result.Votes))
		}
	}
	if c.split != nil {
		c.split.note(o, u.began)
		c.split.beQuiet(o, c.terms.Timing.NodeTimeout)
	}
	c.end(u, l, o)
	return l, o
}

// end notes how an attempt has ended, and when to try again.
func (c *call) end(u *turn, l *lease.Lease, o lease.Outcome) {
	ls := &c.group.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	won, proves := l != nil, !o.IsCut()
	if !won && (proves || c.why == nil && o.IsUnopened()) {
		why := o
		c.why = &why
	}
	c.queueless = c.queueless || u.denied.Load()
	if !u.leaves { // it leaves soon, or is in no line
		ls.triedLocked(&c.waiter, won, won || o.Heard() || o.Result.Rule == nil, time.Since(u.began))
	}
	if won && c.unasked {
		ls.silent.Note(c.names[c.at], silentFor)
	}
	switch {
	case won && u.enters():
		l.LeaveQueuesOnRelease(c.ticket)
	case won, u.leaves, !o.Mends():
	default:
		for _, name := range c.stands() {
			if line := ls.byName[name]; proves {
				line.why = o
				line.why.Told = nil // only observers of c were told of it
			}
		}
		c.agenda.ready = c.agenda.ready || !u.conclusive || o.MayWinAtOnce()
		if u.enters() {
			c.agenda.runsOut = runsOut(o, clock.Now())
		}
		if c.split != nil && c.split.wasSplit() {
			c.agenda.runsOut = earlier(c.agenda.runsOut, time.Now().Add(max(c.split.quiet, c.split.pause())))
		}
		var pause time.Duration
		if pause, c.hasty = c.listening().afterLocked(o, time.Since(u.began), u.hasty, c.hasty); pause > 0 {
			c.agenda.pauseEnd = time.Now().Add(pause)
		}
		if u.few {
			c.vain = true
		}
		c.agenda.refresh = time.Now().Add(showEvery)
		ls.reconsiderLocked(&c.waiter)
	}
}

// earlyShows is how many first retry delays make a resting waiter show its ticket at once, to see a release without a
// message.
const earlyShows = 2

// A waiter that the nodes can wake rests: its retry delays pass without an attempt, and it shows its ticket every half
// second. The reply tells whether the lock is free. With a retry delay of the user's it does not rest.

// isWakableLocked reports whether the nodes can wake w, the first in its line.
func (g *Group) isWakableLocked(w *waiter) bool {
	if !w.isQueued() || w.heardTooFew || g.lines.silent.Has(w.names[w.at]) || !g.subscriber.wakes(w.unfit) {
		return false
	}
	for _, n := range w.terms.Keeper.Set.Nodes {
		if n.DeniesQueues(w.names) {
			return false
		}
	}
	return true
}
