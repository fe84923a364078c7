package lease

import (
	"slices"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/alarm"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
)

// A watchdog extends its lease by itself. It runs on the Keeper's schedule, and keeps no goroutine.
// It starts a round every third of the expiry, counted from the lease's start, so that a late timer shifts nothing. If a round is
// undecided after patience, another starts and the first stays open, because its
// votes count until the old Until. If a round fails, another starts after a backoff.
// So a quorum of nodes that answers again before the end of the validity is enough.
type watchdog struct {
	lease   *Lease
	next    alarm.Alarm // when to start the next round
	verdict alarm.Alarm // when one is decided

	mu      sync.Mutex // guards what follows
	stopped bool
	rounds  []extending // that are open, none between extensions
	backoff time.Duration
}

// extending is a round of a watchdog.
type extending struct {
	*quorum.Round
	began clock.Instant
	left  time.Duration // of the validity then
}

// backoffDivisor: the first backoff is patience / backoffDivisor, and it doubles with
// each round that fails, up to patience.
const backoffDivisor = 8

func newWatchdog(l *Lease) *watchdog {
	w := &watchdog{lease: l}
	w.next.What, w.verdict.What = w, verdict{w}
	return w
}

// start watches over the lease, which has just begun. Close may have ended it.
func (w *watchdog) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.schedule(w.third(clock.Now()))
	}
}

// stop lets go of the lease, which is over. Nothing that the watchdog has begun
// sends anything after it.
func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.lease.terms.Keeper.extensions.Drop(&w.next)
	w.closeRoundsLocked()
}

// closeRoundsLocked gives up what is open.
func (w *watchdog) closeRoundsLocked() {
	for _, r := range w.rounds {
		r.Close()
	}
	w.rounds = nil
	w.lease.terms.Keeper.extensions.Drop(&w.verdict)
}

// schedule makes the watchdog start a round in a while. It need not succeed: the
// schedule is closed only with the core, which ends all holds.
func (w *watchdog) schedule(after time.Duration) {
	w.lease.terms.Keeper.extensions.Set(&w.next, time.Now().Add(after))
}

// third returns how long it is to the next third of the expiry.
func (w *watchdog) third(now clock.Instant) time.Duration {
	third := w.lease.terms.Timing.Expiry / 3
	return third - (now.Mono-w.lease.First.Mono)%third
}

// patience is how long a round may be undecided before another is tried as well,
// which reaches nodes that have come back meanwhile.
func (w *watchdog) patience() time.Duration {
	return max(w.lease.terms.Timing.NodeTimeout, w.lease.terms.Timing.Expiry/10)
}

// fire starts a round. It runs on the schedule's goroutine. It does nothing when
// the lease is over, or lasts as long as WithMaxHold allows already.
func (w *watchdog) Fire(closing bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if closing || w.stopped {
		return
	}
	e, err := w.lease.extension(clock.Now())
	if err != nil {
		if w.lease.NotHeld(clock.Now()) != nil {
			w.closeRoundsLocked()
		}
		return
	}
	if n := len(w.rounds); n > 0 {
		last := w.rounds[n-1]
		if last.IsFinal() { // its verdict is due as well
			w.schedule(w.patience())
			return
		}
		// It is undecided still: observers are told now, not at Until.
		w.tell(last, last.SoFar(quorum.ErrNoAnswer))
	}
	r := extending{&quorum.Round{}, e.start, w.lease.Remaining(e.start)}
	r.Prepare(w.lease.terms.Keeper.Set, e, false, w)
	w.rounds = append(w.rounds, r)
	w.schedule(w.patience())
	r.Send()
}

// Decided implements quorum.Decider. It calls for the verdict of one of the rounds.
func (w *watchdog) Decided() {
	w.lease.terms.Keeper.extensions.Set(&w.verdict, time.Now())
}

// A verdict is due when a round is decided. It is an alarm apart from the one for
// the next round: each has its own time, and setting one must not move the other.
type verdict struct{ *watchdog }

func (v verdict) Fire(closing bool) {
	if closing {
		return
	}
	if lost := v.look(); lost != nil {
		_ = v.lease.Lose(lost)
	}
}

// look acts on the rounds that are decided. It returns why the lock is lost, if the
// nodes prove that it is.
func (w *watchdog) look() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lease.NotHeld(clock.Now()) != nil { // too late; its end has been told
		w.closeRoundsLocked()
		return nil
	}
	for i, r := range slices.Backward(w.rounds) {
		if !r.IsFinal() {
			continue
		}
		res := r.Result(quorum.ErrNoAnswer)
		w.rounds = slices.Delete(w.rounds, i, i+1)
		if res.Won {
			w.tell(r, res)
			w.closeRoundsLocked()
			w.backoff = 0
			w.schedule(w.third(clock.Now()))
			return nil
		}
		w.tell(r, res)
		switch {
		case w.lease.Disproved(res):
			return w.lease.terms.Keeper.Errors.Rejected(res)
		case i == len(w.rounds): // no younger round is under way, so one starts after the backoff
			patience := w.patience()
			w.backoff = min(max(2*w.backoff, patience/backoffDivisor), patience)
			w.schedule(w.backoff)
		}
	}
	return nil
}

// tell tells what has become of r, or what it has come to so far.
func (w *watchdog) tell(r extending, res quorum.Result) {
	if to := w.lease.terms.Events; to != nil {
		to.Extended(res, clock.Now().Since(r.began), r.left)
	}
}
