package lease

import (
	"container/heap"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/alarm"
	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
)

// A watchdog extends its lease by itself. It runs on the Keeper's schedule, and keeps no goroutine.
//
// It starts a round every third of the expiry, counted from the lease's start: a late timer delays no later round.
// Votes count until the old validity ends. An undecided round is sent again after each resendAfter, to nodes that have
// not answered or have failed. If a round fails, another starts after a backoff.
type watchdog struct {
	lease *Lease
	next  alarm.Alarm // when to start a round, or to send it again

	mu      sync.Mutex // guards what follows
	stopped bool
	open    *watchRound
	backoff time.Duration
}

// A watchRound is a round of a watchdog, and its operation.
type watchRound struct {
	behindFill
	round   quorum.Round
	verdict alarm.Alarm   // when the round is decided
	began   clock.Instant // or was last sent again; guarded by watchdog.mu
	left    time.Duration // of the validity at began; guarded by watchdog.mu
}

// backoffDivisor: the backoff starts at resendAfter / backoffDivisor and doubles up to resendAfter.
const backoffDivisor = 8

func newWatchdog(l *Lease) *watchdog {
	w := &watchdog{lease: l}
	w.next.What = w
	return w
}

func (w *watchdog) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := clock.Now(); !w.stopped {
		w.lease.terms.Keeper.extensions.Set(&w.next, now.After(w.third(now)))
	}
}

// extendSoon makes the next round start within resendAfter and beyond, if none is open.
func (w *watchdog) extendSoon(beyond time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	within := w.resendAfter() + beyond
	if !w.stopped && w.open == nil && within < w.third(clock.Now()) {
		w.schedule(within)
	}
}

func (w *watchdog) hasten(by time.Time) { w.lease.terms.Keeper.extensions.Hasten(&w.next, by) }

// stop ends it. Then it sends nothing, not even for an open round.
func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.lease.terms.Keeper.extensions.Drop(&w.next)
	w.closeRoundLocked()
}

// restart gives up the open round, whose command is out of date.
func (w *watchdog) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open != nil && !w.stopped {
		w.closeRoundLocked()
		w.schedule(w.third(clock.Now()))
	}
}

func (w *watchdog) closeRoundLocked() {
	if w.open != nil {
		w.open.round.Close()
		w.lease.terms.Keeper.extensions.Drop(&w.open.verdict)
	}
	w.open = nil
}

func (w *watchdog) schedule(after time.Duration) {
	w.lease.terms.Keeper.extensions.Set(&w.next, time.Now().Add(after))
}

// third returns the time until a whole number of thirds has passed since the start.
func (w *watchdog) third(now clock.Instant) time.Duration {
	third := w.lease.terms.Timing.Expiry / 3
	return third - (now.Mono-w.lease.First.Mono)%third
}

// resendAfter is how long a round may be undecided before it is sent again.
func (w *watchdog) resendAfter() time.Duration {
	return max(w.lease.terms.Timing.NodeTimeout, w.lease.terms.Timing.Expiry/10)
}

func (w *watchdog) Fire(closing bool) {
	if !closing {
		w.fire(false)
	}
}

// fire starts a round or sends an undecided one again. It starts none while another lease extends the shared hold, or
// if MaxHold allows none. admitted: the throttle has let w go on.
func (w *watchdog) fire(admitted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.stopped:
		return
	case w.lease.NotHeld(clock.Now()) != nil:
		w.closeRoundLocked()
		return
	case w.open == nil:
		now := clock.Now()
		switch w.lease.duty(now) {
		case extendNow:
			if !admitted && !w.mayBegin(now) || !w.startLocked() {
				return
			}
		case lookAgain:
			w.schedule(min(w.resendAfter(), w.third(now)))
			return
		case extendLater:
			w.schedule(w.third(now))
			return
		}
	case !w.open.round.IsFinal(): // a final round has its verdict
		if res := w.open.round.SoFar(quorum.ErrNoAnswer); !res.Won {
			w.note(res)
			w.open.tell(res, false) // before the validity ends
		}
		now := clock.Now()
		w.open.began, w.open.left = now, w.lease.Remaining(now)
		w.open.round.Again()
	}
	w.schedule(w.resendAfter())
}

func (w *watchdog) mayBegin(now clock.Instant) bool {
	t := w.lease.terms
	return t.Keeper.throttle.admits(w, now, w.lease.Remaining(now), t.Timing.Validity)
}

func (w *watchdog) goOn() { w.fire(true) }

// startLocked reports false if the lease is over, or can last no longer.
func (w *watchdog) startLocked() bool {
	e, err := w.lease.extension(clock.Now())
	if err != nil {
		return false
	}
	set := w.lease.terms.Keeper.Set
	r, ballots, _ := claim.WithRoom[watchRound, quorum.Ballot, struct{}](len(set.Nodes))
	r.behindFill, r.round.Ballots = e.behindFill(), ballots
	r.verdict.What, r.began, r.left = (*verdict)(w), e.start, w.lease.Remaining(e.start)
	w.open = r
	r.round.Prepare(quorum.NoCall, set, r, false, false)
	r.round.Send()
	return true
}

// Decided sets the alarm of the verdict, and does not move that of the next round.
func (r *watchRound) Decided() {
	r.lease.terms.Keeper.extensions.Set(&r.verdict, time.Now())
}

// A verdict is the alarm of a watchdog whose round is decided.
type verdict watchdog

func (v *verdict) Fire(closing bool) {
	if closing {
		return
	}
	if lost := (*watchdog)(v).look(); lost != nil {
		_ = v.lease.Lose(lost)
	}
}

// look acts on a decided round, and returns why the lease is lost, if it is.
func (w *watchdog) look() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lease.NotHeld(clock.Now()) != nil {
		w.closeRoundLocked()
		return nil
	}
	r := w.open
	if r == nil || !r.round.IsFinal() {
		return nil
	}
	res := r.round.Result(nil) // nobody has waited for the other nodes
	w.open = nil
	w.note(res)
	r.tell(res, true)
	switch {
	case res.Won:
		w.backoff = 0
		w.schedule(w.third(clock.Now()))
	case w.lease.Disproved(res):
		return w.lease.terms.Keeper.Errors.Rejected(w.lease.Claim().Name(), res)
	default:
		after := w.resendAfter()
		w.backoff = min(max(2*w.backoff, after/backoffDivisor), after)
		w.schedule(w.backoff)
	}
	return nil
}

func (w *watchdog) note(res quorum.Result) {
	if res.Won {
		w.lease.noteMissed(nil)
		return
	}
	missed := res // a won round costs no allocation
	w.lease.noteMissed(&missed)
}

func (r *watchRound) tell(res quorum.Result, final bool) {
	if to := r.lease.terms.Events; to != nil {
		to.Extended(r.lease, res, final && r.lease.Disproved(res), r.began.Wall, clock.Now().Since(r.began), r.left)
	}
}

// A throttle makes watchdogs wait while a node is behind with its replies. Otherwise extensions of very many locks
// would pile up until the pool refuses some. The validity that ends first goes on first, and waits no longer once half
// of it has passed.
type throttle struct {
	alarms   *alarm.Schedule
	isBehind func() bool
	again    alarm.Alarm

	mu      sync.Mutex // guards what follows
	waiting earliest
}

// extensionsInARow spreads extensions. The schedule pauses for 1 ms after that many alarms: at most 64,000 extensions
// begin in a second.
const extensionsInARow = 128

const throttlePause = time.Millisecond

func (p *throttle) init(alarms *alarm.Schedule, isBehind func() bool) {
	p.alarms, p.isBehind = alarms, isBehind
	p.again.What = p
}

// admits reports whether a watchdog may begin a round; if not, goOn is called later. left is the rest of validity.
func (p *throttle) admits(w resumer, now clock.Instant, left, validity time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 && !p.isBehind() || left < validity/2 {
		return true
	}
	heap.Push(&p.waiting, throttled{w, now.Mono + left, now.Mono + left - validity/2})
	p.alarms.Set(&p.again, time.Now().Add(throttlePause))
	return false
}

func (p *throttle) Fire(closing bool) {
	for n := 0; n < extensionsInARow && !closing; n++ {
		p.mu.Lock()
		if len(p.waiting) == 0 {
			p.mu.Unlock()
			return
		}
		if p.isBehind() && p.waiting[0].until > clock.Now().Mono {
			p.mu.Unlock()
			break
		}
		next := heap.Pop(&p.waiting).(throttled)
		p.mu.Unlock()
		next.goOn()
	}
	p.alarms.Set(&p.again, time.Now().Add(throttlePause))
}

type resumer interface{ goOn() }

// A throttled waits, or has been stopped since. Its times are monotonic.
type throttled struct {
	resumer
	ends  time.Duration // its validity
	until time.Duration // half of it has passed
}

type earliest []throttled

func (e *earliest) Len() int           { return len(*e) }
func (e *earliest) Less(i, j int) bool { return (*e)[i].ends < (*e)[j].ends }
func (e *earliest) Swap(i, j int)      { (*e)[i], (*e)[j] = (*e)[j], (*e)[i] }

func (e *earliest) Push(x any) { *e = append(*e, x.(throttled)) }

func (e *earliest) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = throttled{}
	*e = (*e)[:last]
	return x
}
