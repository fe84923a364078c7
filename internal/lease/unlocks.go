package lease

import (
	"context"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/alarm"
	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
)

// An Unlocks is what a Mutex remembers of its last Unlock, for calls during it or after its failure. Mutex.mu guards
// it.
type Unlocks struct {
	lease *Lease     // nil if adopted, or nothing is remembered
	last  *Unlocking // made when a call waits, when the Unlock fails, or for an adopted lease
}

// An Unlocking is one Unlock, as other calls see it.
type Unlocking struct {
	from  any           // what an adopted lease comes from; otherwise nil
	done  chan struct{} // closed when the Unlock has ended or is forgotten: the rest is fixed
	lease *Lease        // nil if forgotten
	ok    bool
	err   error
}

// Begin remembers an Unlock of l or, if that is nil, of a lease to be adopted from a pointer.
func (u *Unlocks) Begin(l *Lease, from any) {
	u.Forget()
	u.lease = l
	if l == nil {
		u.last = &Unlocking{from: from, done: make(chan struct{})}
	}
}

// Last returns the last Unlock, nil if there is nothing to wait for or to ask.
func (u *Unlocks) Last() *Unlocking {
	if u.lease != nil && u.last == nil {
		u.last = &Unlocking{done: make(chan struct{})}
	}
	return u.last
}

// End notes how the Unlock has ended, and forgets it if nothing more can be learned. l is nil after a panic. For from
// see Begin.
func (u *Unlocks) End(l *Lease, from any, ok bool, err error) {
	if (l == nil || u.lease != l) && (from == nil || u.last == nil || u.last.from != from) {
		return // the Mutex has been locked again
	}
	settled := ok || l == nil || l.failedRelease() == nil
	if last := u.last; last != nil || !settled {
		last = u.Last()
		last.lease, last.ok, last.err = l, ok, err
		close(last.done)
	}
	if settled {
		*u = Unlocks{}
	}
}

// Forget forgets the last Unlock, because the Mutex is locked again.
func (u *Unlocks) Forget() {
	if u.last != nil && !u.last.HasEnded() {
		close(u.last.done)
	}
	*u = Unlocks{}
}

// Settle forgets an Unlock that has succeeded after all.
func (u *Unlocks) Settle(last *Unlocking) {
	if u.last == last {
		*u = Unlocks{}
	}
}

// HasEnded reports whether the Unlock has ended.
func (u *Unlocking) HasEnded() bool {
	select {
	case <-u.done:
		return true
	default:
		return false
	}
}

// Wait waits until the Unlock has ended. It reports false if ctx is done before.
func (u *Unlocking) Wait(ctx context.Context) bool {
	return Await(ctx, u.done)
}

// Outcome returns what the Unlock has returned. known is false if it is forgotten.
func (u *Unlocking) Outcome() (ok bool, err error, known bool) { //nolint:revive // err is no failure of this call
	return u.ok, u.err, u.lease != nil
}

// Retry repeats the release of a failed Unlock at once where that is due later, and waits for the node deadline. It
// reports whether a quorum has confirmed the release in time.
func (u *Unlocking) Retry(ctx context.Context) bool {
	l, rel := u.lease, u.lease.failedRelease()
	k, r := l.terms.Keeper, l.writes.needRare()
	k.repeats.Hurry(func(f alarm.Firer) bool { again, is := f.(repetition); return is && again.release == rel })
	left := l.terms.Timing.NodeTimeout
	for pause := time.Millisecond; ; pause *= 2 {
		r.mu.Lock()
		won := rel.round.Rule().Quorum(r.failed.deleted)
		r.mu.Unlock()
		pause = min(pause, left)
		if left -= pause; won || pause <= 0 || rel.open.Load() == 0 || !k.Pause(ctx, pause, nil) {
			return won
		}
	}
}

// Outlives notes that the release goes on after its Unlock has failed with the result res of Wait.
func (rel *Release) Outlives(res quorum.Result) {
	granted := claim.Nodes(0)
	for i, v := range res.Votes {
		if v.Choice == claim.Granted {
			granted = granted.With(i)
		}
	}
	if res.Won && rel.inTime {
		granted = rel.round.Rule().All()
	}
	rel.noteDeleted(granted)
	r := rel.lease.writes.locked()
	defer r.mu.Unlock()
	r.failedLocked().release = rel
}

func (l *Lease) failedRelease() *Release {
	r := l.writes.rare.Load()
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		return nil
	}
	return r.failed.release
}
