package queue

import (
	"slices"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file decides why and when a waiter tries next. The agenda takes no lock, reads no clock and does no I/O itself:
// a view gives it what it needs.

// An agenda is what a waiter knows of why and when to try next. Each attempt begins with an empty one.
type agenda struct {
	ready          bool      // try at once: it is new or now the first, must repeat its attempt, or the lock was released
	followsRelease bool      // try right after a release of this process: no other process is known to wait
	polls          bool      // it polls, because the retry delay of its pacer is over
	shown          uint8     // how often the ticket was shown since the last attempt
	graceEnd       time.Time // when it tries even if fewer nodes than a quorum have woken it, unless that is hopeless; zero: no node has
	pauseEnd       time.Time // before that it does not try, whatever it hears: see haste.go; zero: it need not pause
	runsOut        time.Time // when what refused the last attempt runs out on a quorum, or the pause after a split is over; zero: not known
	refresh        time.Time // when the ticket must be shown to the nodes again; zero: it has not been shown
}

// A waiter that rests shows its ticket maxShown times before it makes an attempt instead. An attempt costs two commands,
// and showing one. But only an attempt tells how long the lock is still taken, and whether a quorum answers.
const maxShown = 3

const (
	// aliveFor is how long a waiter counts as alive after its ticket has been shown to the nodes.
	aliveFor = script.AliveFor * time.Millisecond

	// showEvery is how often a waiter shows its ticket.
	showEvery = aliveFor / 2
)

// A news is what a waiter has learned of one of its names since its last attempt began.
type news struct {
	woken claim.Nodes // the nodes that have told it that the lock of the name is free
	freed claim.Nodes // the nodes on which its attempt found the name free: the attempt's release leaves the name free there
	taken claim.Nodes // the nodes on which its attempt found the name taken
	ended bool        // something that held the name has ended
	told  bool        // a message has woken it, or a release of this process
}

// An event is what makes a waiter go on.
type event int

const (
	nothing      event = iota
	handed             // the lock has been handed over to it
	tryNow             // there is reason to try
	elapsed            // the retry delay of this waiter is over
	prompted           // the retry delay of its pacer is over
	notFirst           // nothing to do: it is neither the first in line nor the pacer
	showTicket         // it must show its ticket, and not try
	unsubscribed       // there is reason to try, but no subscription has been opened
	ended              // the context is done, or the Redsync closed
)

// A view is what a waiter sees around it.
type view struct {
	now       time.Time // zero if handedOff is set, or none of first, paces and shows
	handedOff bool      // the lock has been handed over to it
	first     bool      // it is the first in its line
	paces     bool      // it is not the first, but its retry delay decides when the first polls
	shows     bool      // it may not try, but shows its ticket: see lines.showsLocked
	rests     bool      // it is the first, and the nodes can wake it: see Group.isWakableLocked
	tick      time.Time // when its retry delay is over

	// Set for the first in line only.
	collides bool          // another call of this process, with which it shares a name, is trying
	held     time.Duration // how much longer this process holds the lock, as far as the line knows
	free     claim.Nodes   // the nodes that count on which the name that it waits for is free, as far as it knows
	hopeless bool          // it cannot win, even if the name is free on all nodes that have not said that it is taken
	quiet    time.Time     // until then it tries only if a quorum is free: see splits.quiet; zero: it does not matter
	rule     claim.Rule
	from     time.Time // until then its attempt waits to hear the nodes: see subscriber.hears
	listens  bool      // it can hear nodes, or need not
}

// next returns what the waiter must do now. If that is nothing, it also returns when the waiter must look
// again, even if nothing has happened; a zero time means never. A waiter that is notFirst also looks again at
// the time that pace.sleep returns.
func (v view) next(a agenda) (event, time.Time) {
	var shows time.Time // when it shows its ticket
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

// maxAhead bounds how many delays are drawn ahead. A waiter with more tries left wakes up in between.
const maxAhead = 256

// minTry is the least retry delay after a try that asked no node, or failed for another reason than a taken lock.
const minTry = 10 * time.Millisecond

// A pace holds the retry delays of a waiter. Only the goroutine of the waiter uses it. A waiter that stands behind others does
// not wake up after each of its delays. If its tries are limited, it sleeps until the last delay is over, and then gives up.
type pace struct {
	delay func(tries int) time.Duration
	limit int // the last try; 0 is no limit

	try  int       // the number of the current try: the last one that was made or passed over
	tick time.Time // when the delay after the current try is over

	last   time.Duration   // the delay that begin has drawn last
	ahead  []time.Duration // the delays after the tries to come, drawn already
	asleep bool            // the waiter ignores tick
}

// begin begins the delay after the current try. A delay shorter than least is lengthened to least. If the delay
// is negative, begin begins none and reports false.
func (p *pace) begin(least time.Duration) bool {
	p.last = p.draw()
	if p.last < 0 {
		return false
	}
	p.tick = time.Now().Add(max(p.last, least))
	return true
}

// draw returns the delay after the current try.
func (p *pace) draw() time.Duration {
	if len(p.ahead) == 0 {
		return p.delay(p.try)
	}
	d := p.ahead[0]
	p.ahead = p.ahead[1:]
	return d
}

// sleep makes the waiter ignore tick, and returns when the waiter must wake up even if nothing has happened.
// It draws the delays before the last try, at most maxAhead and only up to a negative one, and returns when
// they are over. Without a limit it draws none, and returns the zero time: never.
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

// pass passes over the try that was due at tick, and moves tick to the end of the delay after that try.
func (p *pace) pass() {
	d := max(p.draw(), minTry)
	p.try++
	p.tick = p.tick.Add(d)
}

// wake ends the sleep: the waiter goes by tick again. It passes over the tries that were due by now, as far
// as sleep has drawn the delays after them. Without a limit sleep has drawn none: then the current delay
// begins anew if it is over.
func (p *pace) wake(now time.Time) {
	p.asleep = false
	for !now.Before(p.tick) && len(p.ahead) > 0 && p.ahead[0] >= 0 {
		p.pass()
	}
	if p.limit == 0 && !now.Before(p.tick) {
		p.tick = now.Add(max(p.last, minTry))
	}
}
