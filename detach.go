package redsync

import (
	"context"
	"errors"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/queue"
	"github.com/seed14bd9ef4/redsync/observe"
)

// Sequencer returns the Sequencer of the current hold, the zero value if m is not held. From then on Unlock does not
// hand the lock over. If other readers share the hold (WithShared), the Sequencer stays current until the last of them
// has unlocked, and nobody can adopt it.
func (m *Mutex) Sequencer() Sequencer {
	h := m.current()
	if h == nil {
		return Sequencer{}
	}
	if h.ShowHeld(clock.Now()) == "" {
		return Sequencer{}
	}
	return sequencerOf(h)
}

// Detach gives the lock away without releasing it. A Mutex with WithSequencer, in any process, takes it over: it should
// call Extend or Do before Until.
//
// After success m is not held: Close does not unlock the lock, and Lost is not closed. Detach waits for answers at most
// for the node deadline or until ctx is done.
//
// Errors:
//
//   - ErrNotHeld, also for an adopted value that has not been extended.
//   - ErrLockAlreadyExpired or ErrLockLost, if the lock is over. If Until passes meanwhile, both match.
//   - The error of ctx, and its cause, if ctx was done before.
//   - ErrClosed.
//   - One that says why this lock cannot be detached (Do or Lead will unlock it, other readers share it, or it has
//     WithMinHold), or that names an option or a name that cannot be used.
func (m *Mutex) Detach(ctx context.Context) (Sequencer, error) {
	ctx = orBackground(ctx)
	if _, err := m.beginCall(); err != nil {
		return Sequencer{}, m.failure("detach", err)
	}
	defer m.core.keeper.EndCall()
	start := clock.Now()
	h, err := m.cutOff(ctx)
	if err != nil {
		return Sequencer{}, m.failure("detach", err)
	}
	waiting, stop := apartFrom(ctx, h)
	defer stop()
	h.End(nil)
	h.AwaitReplies(waiting)
	left, err := h.EndLate(clock.Now())
	// Waiters of this process relied on an Unlock that will not come. Make them ask the nodes.
	m.core.member.Group.Nudge(h.Claim().Lines())
	if err != nil {
		h.ClearUnlessDelayed()
		return Sequencer{}, m.failure("detach", err)
	}
	h.LeaveQueues()
	if h.Terms().Events != nil {
		told, e := false, eventsOf(h.Terms())
		e.over(h)
		defer func() {
			if !told { // an observer has panicked, so the caller gets no Sequencer
				h.ClearAway()
			}
		}()
		tell(ctx, e.to.now.Detached, observe.Detached{
			Name: e.name, Mode: e.mode, Start: start.Wall, Took: clock.Now().Since(start), Held: start.Since(h.First), Left: left,
		})
		told = true
	}
	return sequencerOf(h), nil
}

// cutOff ends the current term and removes it from m. If it fails, it has changed nothing.
func (m *Mutex) cutOff(ctx context.Context) (*lease.Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, now := m.hold, clock.Now()
	if h == nil {
		return nil, ErrNotHeld
	}
	if err := h.NotHeld(now); err != nil {
		return nil, err
	}
	if h.Terms().InDo {
		return nil, errInDo
	}
	if h.Terms().Timing.MinHold > 0 {
		return nil, errMinHoldDetach
	}
	if !h.IsAlone(true) {
		return nil, errSharedByOthers
	}
	if ctx.Err() != nil {
		return nil, m.interruption(ctx)
	}
	if err := h.EndHeld(now); err != nil {
		return nil, err // by Close or a loss since the check
	}
	m.hold = nil
	return h, nil
}

var (
	errSharedByOthers = errors.New("redsync: other readers of this process share the hold")
	errInDo           = errors.New("redsync: Do unlocks it when its function returns")
	errMinHoldDetach  = errors.New(
		"redsync: a lock with WithMinHold cannot be detached: its receiver does not know when it was acquired")
)

// adopt extends a lock acquired elsewhere. adopted reports whether this call has made it m's own.
func (m *Mutex) adopt(ctx context.Context, h *lease.Lease, from *adoption) (adopted, ok bool, err error) {
	res, e := h.Confirm(ctx, from.sequencer.Token)
	switch {
	case res.Won && h.NotHeld(clock.Now()) == nil:
		ok, err = m.takeOver(h, e)
		if adopted = ok && h.Begun(); adopted && h.Terms().Events != nil {
			m.acquired(ctx, h, h.First, queue.Wait{}, from)
		}
		return adopted, ok, err
	case res.Rejected:
		return false, false, m.failure("extend", ErrLockAlreadyExpired, unconfirmed(m.label(), res))
	}
	return false, false, m.failure("extend", ErrExtendFailed, m.interruption(ctx), unconfirmed(m.label(), res))
}

// takeOver makes h, which a quorum has confirmed, the current term, or prolongs it if another call has made it so.
func (m *Mutex) takeOver(h *lease.Lease, e lease.Extension) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.hold == nil && m.adopts != nil && m.adopts.valueOf() == h.Value():
		if err := h.Begin(); err != nil {
			return false, m.failure("extend", err)
		}
		m.hold, m.adopts = h, nil
		m.unlocks.Forget()
	case m.hold == nil || m.hold.Value() != h.Value():
		return false, m.failure("extend", ErrNotHeld)
	default:
		m.hold.Prolong(e, clock.Now())
		if err := m.hold.NotHeld(clock.Now()); err != nil {
			return false, m.failure("extend", err)
		}
	}
	return true, nil
}
