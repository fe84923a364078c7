package redsync

import (
	"slices"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/alarm"
	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// This file is automatic extension: the watchdog of a hold, which runs on the
// core's schedule and keeps no goroutine.

// A watchdog extends its hold. It starts a round every third of the expiry, counted
// from the hold's start, so that a late timer shifts nothing. If a round is
// undecided after patience, another starts and the first stays open, because its
// votes count until the old Until. If a round fails, another starts after a backoff.
// So a quorum of nodes that answers again before the end of the validity is enough.
type watchdog struct {
	hold    *hold
	alarm   alarm.Alarm // when to start the next round
	verdict alarm.Alarm // when one is decided

	mu      sync.Mutex
	stopped bool
	rounds  []extending // that are open, none between extensions
	backoff time.Duration
}

// extending is a round of a watchdog.
type extending struct {
	*round
	began clock.Instant
	left  time.Duration // of the validity then
}

// backoffDivisor: the first backoff is patience / backoffDivisor, and it doubles with
// each round that fails, up to patience.
const backoffDivisor = 8

func newWatchdog(h *hold) *watchdog {
	w := &watchdog{hold: h}
	w.alarm.What, w.verdict.What = w, verdict{w}
	return w
}

// start watches over the hold, which has just begun. Close may have ended it.
func (w *watchdog) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.schedule(w.next(clock.Now()))
	}
}

// stop lets go of the hold, which is over. Nothing that the watchdog has begun
// sends anything after it.
func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.hold.core.extends.Drop(&w.alarm)
	w.closeRoundsLocked()
}

// closeRoundsLocked gives up what is open.
func (w *watchdog) closeRoundsLocked() {
	for _, r := range w.rounds {
		r.close()
	}
	w.rounds = nil
	w.hold.core.extends.Drop(&w.verdict)
}

// schedule makes the watchdog start a round in a while. It need not succeed: the
// schedule is closed only with the core, which ends all holds.
func (w *watchdog) schedule(after time.Duration) {
	w.hold.core.extends.Set(&w.alarm, time.Now().Add(after))
}

// next returns how long it is to the next third of the expiry.
func (w *watchdog) next(now clock.Instant) time.Duration {
	third := w.hold.timing.expiry / 3
	return third - (now.Mono-w.hold.first.Mono)%third
}

// patience is how long a round may be undecided before another is tried as well,
// which reaches nodes that have come back meanwhile.
func (w *watchdog) patience() time.Duration {
	return max(w.hold.timing.nodeTimeout, w.hold.timing.expiry/10)
}

// fire starts a round. It runs on the schedule's goroutine. It does nothing when
// the hold is over, or lasts as long as WithMaxHold allows already.
func (w *watchdog) Fire(closing bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if closing || w.stopped {
		return
	}
	e, err := w.hold.extension(clock.Now())
	if err != nil {
		if w.hold.whyNotHeld(clock.Now()) != nil {
			w.closeRoundsLocked()
		}
		return
	}
	if n := len(w.rounds); n > 0 {
		last := w.rounds[n-1]
		if last.isDecided() { // its verdict is due as well
			w.schedule(w.patience())
			return
		}
		// It is undecided still: observers are told now, not at Until.
		w.tell(last, because(ErrExtendFailed, last.soFar(errNoAnswer).err()))
	}
	r := extending{&round{}, e.start, w.hold.remaining(e.start)}
	r.prepare(w.hold.core, false, w)
	w.rounds = append(w.rounds, r)
	w.schedule(w.patience())
	r.start(e)
}

// notifyDecided calls for the verdict of one of the rounds.
func (w *watchdog) notifyDecided() {
	w.hold.core.extends.Set(&w.verdict, time.Now())
}

// A verdict is due when a round is decided. It is an alarm apart from the one for
// the next round: each has its own time, and setting one must not move the other.
type verdict struct{ *watchdog }

func (v verdict) Fire(closing bool) {
	if closing {
		return
	}
	if lost := v.heed(); lost != nil {
		_ = v.hold.lose(lost)
	}
}

// heed acts on the rounds that are decided. It returns why the lock is lost, if the
// nodes prove that it is.
func (w *watchdog) heed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hold.whyNotHeld(clock.Now()) != nil { // too late; its end has been told
		w.closeRoundsLocked()
		return nil
	}
	for i, r := range slices.Backward(w.rounds) {
		if !r.isDecided() {
			continue
		}
		res := r.result(errNoAnswer)
		w.rounds = slices.Delete(w.rounds, i, i+1)
		if res.tally.won() {
			w.tell(r, nil)
			w.closeRoundsLocked()
			w.backoff = 0
			w.schedule(w.next(clock.Now()))
			return nil
		}
		w.tell(r, because(ErrExtendFailed, res.err()))
		switch {
		case w.hold.lostBy(res):
			return res.err()
		case i == len(w.rounds): // no younger round is under way, so one starts after the backoff
			patience := w.patience()
			w.backoff = min(max(2*w.backoff, patience/backoffDivisor), patience)
			w.schedule(w.backoff)
		}
	}
	return nil
}

// tell tells what has become of r.
func (w *watchdog) tell(r extending, err error) {
	if w.hold.set.observers == nil {
		return
	}
	event := w.hold.extendedEvent(r.began, r.left, err)
	event.Watchdog = true
	tellLater(w.hold.core, w.hold.set.observers, ExtendedObserver.ObserveExtended, event)
}
