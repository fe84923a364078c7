package queue

import (
	"slices"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// An agenda is why and when a waiter tries next. It takes no lock, reads no clock and does no I/O.
type agenda struct {
	ready          bool
	followsRelease bool      // try right after a release: no other process is known to wait
	polls          bool      // the retry delay of its pacer is over
	shown          uint8     // how often the ticket was shown since the last attempt
	graceEnd       time.Time // when it tries even if fewer nodes than a quorum have woken it
	pauseEnd       time.Time // before that it does not try: see haste.go
	runsOut        time.Time // when what refused the last attempt runs out, or the pause after a split ends
	refresh        time.Time // when the ticket must be shown again
}

// maxShown is how often a resting waiter shows its ticket before it makes an attempt. That tells how long the lock is
// still taken, and whether a quorum answers.
const maxShown = 3

const (
	// aliveFor is how long a ticket counts after it was shown to the nodes.
	aliveFor = script.AliveFor * time.Millisecond

	showEvery = aliveFor / 2
)

// A news is what a waiter has learned of a name since its last attempt began.
type news struct {
	woken claim.Nodes // they have told that the name is free
	freed claim.Nodes // its attempt found the name free there, and leaves it free
	taken claim.Nodes // its attempt found the name taken there
	ended bool        // something that held the name has ended
	told  bool        // by a message, or by a release of this process
}

// An event makes a waiter go on.
type event int

const (
	nothing event = iota
	handed
	tryNow
	elapsed  // its own retry delay is over
	prompted // that of its pacer is
	notFirst // neither the first nor the pacer
	showTicket
	unsubscribed // it should try, but no subscription is open
	ended        // by the context or Close
)

// A view is what a waiter sees around it.
type view struct {
	now       time.Time // zero if nothing below needs it
	handedOff bool
	first     bool      // the first in its line
	paces     bool      // not the first, but decides when the first polls
	shows     bool      // see lines.showsLocked
	rests     bool      // see Group.isWakableLocked
	tick      time.Time // when its retry delay is over

	// Set for the first in line only.
	collides bool          // see lines.collidesLocked
	held     time.Duration // for how much longer this process holds the lock
	free     claim.Nodes   // see listening.freeLocked
	hopeless bool          // see listening.isHopelessLocked
	quiet    time.Time     // until then it tries only if a quorum is free
	rule     claim.Rule
	from     time.Time // see call.hears
	listens  bool
}

// next returns what the waiter must do now, or when it must look again. A zero time means never.
func (v view) next(a agenda) (event, time.Time) {
	var shows time.Time
	if v.shows {
		shows = a.refresh
	}
	switch {
	case v.handedOff:
		return handed, v.tick
	case v.shows && !shows.After(v.now):
		return showTicket, v.now
	case !v.first && !v.paces:
		return notFirst, shows
	case !v.now.Before(v.tick):
		return elapsed, v.tick
	case !v.first || v.collides:
		return nothing, earlier(v.tick, shows)
	case a.polls:
		return prompted, v.tick
	case v.held > 0:
		return nothing, earlier(earlier(v.tick, v.now.Add(v.held)), shows)
	case a.pauseEnd.After(v.now):
		return nothing, earlier(v.tick, a.pauseEnd)
	}
	grace := a.graceEnd
	switch {
	case v.hopeless:
		grace = time.Time{}
	case !grace.IsZero() && grace.Before(v.quiet):
		grace = v.quiet
	}
	tries := earlier(a.runsOut, grace)
	at := earlier(tries, a.refresh)
	woken := !a.graceEnd.IsZero() && v.rule.Quorum(v.free)
	if !a.ready && !woken {
		switch {
		case at.IsZero() || at.After(v.now):
			return nothing, earlier(v.tick, at)
		case v.rests && a.shown < maxShown && (tries.IsZero() || tries.After(v.now)):
			return showTicket, v.now
		}
	}
	switch {
	case !v.listens:
		return unsubscribed, v.now
	case !v.from.IsZero():
		return nothing, earlier(v.tick, v.from)
	}
	return tryNow, v.now
}

// earlier returns the earlier of two times. A zero time means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

const maxAhead = 256

// minTry is the least retry delay, unless a taken lock is why the try failed.
const minTry = 10 * time.Millisecond

// A pace holds the retry delays of a waiter, for its goroutine only. A waiter behind others sleeps through its delays.
// If its tries are limited, it wakes up when the last delay is over.
type pace struct {
	delay func(tries int) time.Duration
	limit int // the last try; 0: none

	try  int       // the last one that was made or passed over
	tick time.Time // when the delay after that is over

	last   time.Duration   // drawn by begin
	ahead  []time.Duration // drawn for later tries
	asleep bool            // ignores tick
}

// begin begins the delay after the current try, unless that is negative.
func (p *pace) begin(least time.Duration) bool {
	p.last = p.draw()
	if p.last < 0 {
		return false
	}
	p.tick = time.Now().Add(max(p.last, least))
	return true
}

func (p *pace) draw() time.Duration {
	if len(p.ahead) == 0 {
		return p.delay(p.try)
	}
	d := p.ahead[0]
	p.ahead = p.ahead[1:]
	return d
}

// sleep makes the waiter ignore tick, and returns when it must wake up: when the delays before the last try, or those
// that can be drawn ahead, are over. Without a limit it returns the zero time.
func (p *pace) sleep() time.Time {
	p.asleep = true
	if p.limit == 0 {
		return time.Time{}
	}
	at := p.tick
	n := min(p.limit-p.try-1, maxAhead)
	p.ahead = slices.Grow(p.ahead, max(n-len(p.ahead), 0))
	for i := range n {
		if i == len(p.ahead) {
			p.ahead = append(p.ahead, p.delay(p.try+1+i))
		}
		if p.ahead[i] < 0 {
			break
		}
		at = at.Add(max(p.ahead[i], minTry))
	}
	return at
}

func (p *pace) pass() {
	d := max(p.draw(), minTry)
	p.try++
	p.tick = p.tick.Add(d)
}

// wake ends the sleep, and passes over tries that were due. Without a limit, a delay that is over begins anew.
func (p *pace) wake(now time.Time) {
	p.asleep = false
	for !now.Before(p.tick) && len(p.ahead) > 0 && p.ahead[0] >= 0 {
		p.pass()
	}
	if p.limit == 0 && !now.Before(p.tick) {
		p.tick = now.Add(max(p.last, minTry))
	}
}
