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
// It starts a round every third of the expiry, counted from the lease's start, so that a late timer does not
// delay later rounds. The votes of a round count until the old validity ends. While a round is undecided, the
// watchdog sends its command again after each resendAfter. It does so only to nodes that have
// not answered or have failed, because they may have come back. If a round fails, another starts after a
// backoff. So the lease is extended if a quorum of nodes answers again some time before the validity ends.
type watchdog struct {
	lease *Lease
	next  alarm.Alarm // when to start a round, or to send it again

	mu      sync.Mutex // guards what follows
	stopped bool
	open    *watchRound // nil between extensions
	backoff time.Duration
}

// A watchRound is a round of a watchdog, and the operation of that round.
type watchRound struct {
	behindFill
	round   quorum.Round
	verdict alarm.Alarm   // fires when the round is decided
	began   clock.Instant // when the round was started, or last sent again; guarded by watchdog.mu
	left    time.Duration // what was left of the validity at began; guarded by watchdog.mu
}

// backoffDivisor: the first backoff is resendAfter / backoffDivisor, and it doubles with
// each round that fails, up to resendAfter.
const backoffDivisor = 8

func newWatchdog(l *Lease) *watchdog {
	w := &watchdog{lease: l}
	w.next.What = w
	return w
}

// start starts it for a lease that has just begun. Close may have stopped it already.
func (w *watchdog) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := clock.Now(); !w.stopped {
		w.lease.terms.Keeper.extensions.Set(&w.next, now.After(w.third(now)))
	}
}

// extendSoon makes it start the next round within resendAfter and some time, if none is open.
func (w *watchdog) extendSoon(beyond time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	within := w.resendAfter() + beyond
	if !w.stopped && w.open == nil && within < w.third(clock.Now()) {
		w.schedule(within)
	}
}

// hasten makes it look at the lease at once, if it would do so only after a time.
func (w *watchdog) hasten(by time.Time) { w.lease.terms.Keeper.extensions.Hasten(&w.next, by) }

// stop ends it, because the lease is over. After stop it sends nothing, not even for a round that is open.
func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.lease.terms.Keeper.extensions.Drop(&w.next)
	w.closeRoundLocked()
}

// restart gives up the open round, if there is one, because its command is out of date. The next round begins at the next third of the expiry.
func (w *watchdog) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open != nil && !w.stopped {
		w.closeRoundLocked()
		w.schedule(w.third(clock.Now()))
	}
}

// closeRoundLocked gives up the open round, if there is one.
func (w *watchdog) closeRoundLocked() {
	if w.open != nil {
		w.open.round.Close()
		w.lease.terms.Keeper.extensions.Drop(&w.open.verdict)
	}
	w.open = nil
}

// schedule sets the alarm next. It ignores a closed schedule: only the Keeper's Close closes the schedule,
// which also ends all leases.
func (w *watchdog) schedule(after time.Duration) {
	w.lease.terms.Keeper.extensions.Set(&w.next, time.Now().Add(after))
}

// third returns the time until the next whole third of the expiry has passed since the lease's start.
func (w *watchdog) third(now clock.Instant) time.Duration {
	third := w.lease.terms.Timing.Expiry / 3
	return third - (now.Mono-w.lease.First.Mono)%third
}

// resendAfter is how long a round may be undecided before it is sent again.
func (w *watchdog) resendAfter() time.Duration {
	return max(w.lease.terms.Timing.NodeTimeout, w.lease.terms.Timing.Expiry/10)
}

// Fire implements alarm.Firer.
func (w *watchdog) Fire(closing bool) {
	if !closing {
		w.fire(false)
	}
}

// fire starts a round, or sends an undecided round again. It starts none while another lease that shares the hold extends
// it. It runs on the schedule's goroutine. If the lease is over, it gives up the open round. If the lease already lasts as
// long as MaxHold allows, it starts no round. admitted is set if the throttle has let w go on.
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
	case !w.open.round.IsFinal(): // the verdict of a final round has an alarm of its own
		if res := w.open.round.SoFar(quorum.ErrNoAnswer); !res.Won {
			w.note(res)
			w.open.tell(res, false) // so that observers know before the validity ends
		}
		now := clock.Now()
		w.open.began, w.open.left = now, w.lease.Remaining(now)
		w.open.round.Again()
	}
	w.schedule(w.resendAfter())
}

// mayBegin reports whether w may begin a round at now. If not, the throttle lets it go on later.
func (w *watchdog) mayBegin(now clock.Instant) bool {
	t := w.lease.terms
	return t.Keeper.throttle.admits(w, now, w.lease.Remaining(now), t.Timing.Validity)
}

// goOn implements resumer.
func (w *watchdog) goOn() { w.fire(true) }

// startLocked starts a round and reports true. If the lease is over, or can last no longer, it reports false.
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

// Decided implements quorum.Decider. It sets the alarm for the verdict, which is not the alarm for the next round: each
// has its own time, and setting one must not move the other.
func (r *watchRound) Decided() {
	r.lease.terms.Keeper.extensions.Set(&r.verdict, time.Now())
}

// A verdict is the alarm of a watchdog whose round is decided.
type verdict watchdog

// Fire implements alarm.Firer.
func (v *verdict) Fire(closing bool) {
	if closing {
		return
	}
	if lost := (*watchdog)(v).look(); lost != nil {
		_ = v.lease.Lose(lost)
	}
}

// look acts on the open round if it is decided. It returns why the lease is lost, if the
// nodes prove that it is.
func (w *watchdog) look() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lease.NotHeld(clock.Now()) != nil { // too late: the lease has ended
		w.closeRoundLocked()
		return nil
	}
	r := w.open
	if r == nil || !r.round.IsFinal() {
		return nil
	}
	res := r.round.Result(nil) // it is final, so nobody has waited for the other nodes
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

// note notes the result of a round, or its result so far, for the error of a loss.
func (w *watchdog) note(res quorum.Result) {
	if res.Won {
		w.lease.noteMissed(nil)
		return
	}
	missed := res // a copy, so that a won round costs no allocation
	w.lease.noteMissed(&missed)
}

// tell tells the observers the result of a round, or its result so far if it is not final.
func (r *watchRound) tell(res quorum.Result, final bool) {
	if to := r.lease.terms.Events; to != nil {
		to.Extended(r.lease, res, final && r.lease.Disproved(res), r.began.Wall, clock.Now().Since(r.began), r.left)
	}
}

// A throttle makes watchdogs wait while a node is behind with its replies. Otherwise the extensions of very many locks that
// are due at once would pile up there, and the limit of outstanding replies would refuse some. The watchdogs whose
// validity ends first go on first. The first of them does not wait once half of its validity has passed. So one with a
// longer expiry may wait for longer than that, but never behind one whose validity ends later.
type throttle struct {
	alarms   *alarm.Schedule
	isBehind func() bool
	again    alarm.Alarm // when to let watchdogs go on

	mu      sync.Mutex // guards what follows
	waiting earliest
}

// extensionsInARow spreads the extensions of many locks that are due at once. The schedule pauses for 1 ms
// after that many alarms. Each extension takes two alarms, so that at most 64,000 begin in a second.
const extensionsInARow = 128

// throttlePause is how long the throttle pauses before it looks at the nodes again.
const throttlePause = time.Millisecond

func (p *throttle) init(alarms *alarm.Schedule, isBehind func() bool) {
	p.alarms, p.isBehind = alarms, isBehind
	p.again.What = p
}

// admits reports whether a watchdog may begin a round at now. If not, the throttle calls its goOn later. The lease is valid
// for left, and was valid for validity after its last extension.
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

// Fire implements alarm.Firer: it lets watchdogs go on, until a node is behind.
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

// A resumer is a watchdog.
type resumer interface{ goOn() }

// A throttled is a watchdog that waits. It may have been stopped since. The times are by the monotonic clock.
type throttled struct {
	resumer
	ends  time.Duration // when its validity ends
	until time.Duration // when it waits no longer: half of the validity has passed
}

// earliest implements heap.Interface, the watchdog whose validity ends first at the front.
type earliest []throttled

func (e *earliest) Len() int           { return len(*e) }
func (e *earliest) Less(i, j int) bool { return (*e)[i].ends < (*e)[j].ends }
func (e *earliest) Swap(i, j int)      { (*e)[i], (*e)[j] = (*e)[j], (*e)[i] }

// Push implements heap.Interface.
func (e *earliest) Push(x any) { *e = append(*e, x.(throttled)) }

// Pop implements heap.Interface.
func (e *earliest) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = throttled{}
	*e = (*e)[:last]
	return x
}
