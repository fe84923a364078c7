package redsync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/journal"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/observe"
)

// This file has what a holder asks of its lock, and how it keeps it.

// Value returns the value that the nodes hold for the current lock, also after a loss, until the next Lock or Unlock.
// Before the first Lock it is the value of WithValue or WithSequencer. Otherwise it is "".
//
// Who has the value can extend and release the lock. Once Value or Sequencer has returned it, no other lock of this
// process gets it: Unlock does not hand the lock over, no further reader shares it, and a later Lock of m does not
// release it. To give the lock away use Detach.
//
// A slow node may set its key after Lock has returned. To give the lock to a library that releases only once, acquire
// it with WithFailFast(false).
func (m *Mutex) Value() string {
	h, adopts := m.holdOrAdopted()
	if h != nil {
		return h.Show()
	}
	return adopts.valueOf()
}

// Until returns the time at which the lock ends unless it is extended. It still returns that time after the lock has
// expired. It returns the zero time before the first Lock, after Unlock or Detach, and once Close has ended
// the lock or the nodes have proved that it is lost. Use Until for display only. To decide whether you may go
// on, ask Remaining: it also notices a clock that was set and a machine that slept.
func (m *Mutex) Until() time.Time {
	if h := m.current(); h != nil {
		return h.Until()
	}
	return time.Time{}
}

// Remaining returns how long the holder may still rely on the lock. It goes by the wall clock and
// by the monotonic clock, and returns the shorter of the two times. It returns 0 when m is not
// held. It sends nothing, so call it before each step that needs the lock.
func (m *Mutex) Remaining() time.Duration {
	if h := m.current(); h != nil {
		return h.Remaining(clock.Now())
	}
	return 0
}

// Lost returns a channel that is closed when the lock has ended without Unlock or Detach. That is at Until, or soon after
// it if a timer is late, even if no node can be reached. It is earlier on Close, and when an extension or a Valid proves
// that the nodes no longer hold the lock. Err says why. If m is not held, Lost returns nil.
//
// While the machine is suspended, no timer fires. Once the machine runs again, the library notices the
// suspension within a tenth of the expiry (at least 10 ms, at most 1 s). It needs the same time to notice
// that a wall clock was set forward.
func (m *Mutex) Lost() <-chan struct{} {
	if h := m.current(); h != nil {
		return h.Lost(clock.Now())
	}
	return nil
}

// Err returns nil while m is held. Otherwise it returns why m is not held. Before the first
// Lock, and after Unlock or Detach, that is ErrNotHeld. In all other cases it is ErrLockLost
// together with its cause: ErrLockAlreadyExpired (Until has passed, or the nodes have proved the
// loss), ErrMaxHold or ErrClosed. Err sends nothing.
func (m *Mutex) Err() error {
	if h := m.current(); h != nil {
		return h.Err(clock.Now())
	}
	return ErrNotHeld
}

// Fence returns the fencing token of the current lock: a number for the resource that the lock protects. The resource
// refuses a write with a lower number than one it has seen (package fencing does that). So a late holder cannot
// overwrite what the next one wrote.
//
// If one Lock of a name returned before another began, the second gets the greater token, even if both had the lock
// at once and clocks differ. No two Locks get the same token. WithFencing names the limits.
//
// Fence is 0 without WithFencing, before the first Lock, and after Unlock or Detach. After a loss it stays until the
// next Lock or Unlock. An adopted lock has the token of its Sequencer.
func (m *Mutex) Fence() uint64 {
	if h := m.current(); h != nil {
		return h.Token()
	}
	return 0
}

// Extend is ExtendContext without a context.
func (m *Mutex) Extend() (bool, error) { return m.ExtendContext(context.Background()) }

// ExtendContext makes the lock last for its expiry from now on. It moves Until and returns
// true if a quorum confirms the extension before the old Until.
//
// It waits for the nodes at most until the old Until has passed or ctx is done. For an adopted
// value that has not been extended, the limit is the node deadline instead of the old Until.
// After ErrExtendFailed the lock is still held until the old Until, and Extend may be tried
// again. ErrNoQuorum comes with it if too few nodes answered. If the error also matches ErrMaxHold,
// WithMaxHold does not allow a longer hold. After ErrLockAlreadyExpired the lock is over; see ErrLockLost.
func (m *Mutex) ExtendContext(ctx context.Context) (bool, error) {
	ctx = orBackground(ctx)
	if m.isZero() {
		return false, ErrExtendFailed
	}
	h, from, err := m.open("extend")
	if err != nil {
		return false, err
	}
	defer m.core.endCall()
	start, left, adopted := clock.Now(), time.Duration(0), false
	var ok bool
	if h.Begun() {
		left = h.Remaining(start)
		ok, err = m.extend(ctx, h)
	} else {
		adopted, ok, err = m.adopt(ctx, h, from)
	}
	if !adopted { // adopt has already told the observers: observe.Acquired
		m.tellExtended(ctx, h, start, left, err)
	}
	return ok, err
}

// tellExtended tells the observers how an Extend has ended. left is how long h was valid at start.
func (m *Mutex) tellExtended(ctx context.Context, h *lease.Lease, start clock.Instant, left time.Duration, err error) {
	if h.Terms().Events != nil {
		eventsOf(h.Terms()).extended(ctx, h, start, left, err)
	}
}

// open begins an operation that needs a hold. It returns the current term, or a new one for an
// adopted hold; from is that adoption. It fails if m is not held. After success the caller must end the operation with
// m.core.endCall.
func (m *Mutex) open(op string) (h *lease.Lease, from *adoption, err error) {
	t, err := m.beginCall()
	if err != nil {
		return nil, nil, m.failure(op, err)
	}
	h, from = m.holdOrAdopted()
	switch {
	case h != nil:
		err = h.NotHeld(clock.Now())
	case from != nil:
		h = m.adoptLease(t, from, clock.Now())
	default:
		err = ErrNotHeld
	}
	if err != nil {
		m.core.endCall()
		return nil, nil, m.failure(op, err)
	}
	return h, from, nil
}

// extend makes one round that prolongs h, and acts on what the nodes say.
func (m *Mutex) extend(ctx context.Context, h *lease.Lease) (bool, error) {
	waiting, stop := apartFrom(ctx, h)
	defer stop()
	res, over := h.Extend(waiting)
	return m.extended(waiting, "extend", h, res, over)
}

// extended returns what an operation that prolongs h returns. res is what the nodes said, and over is why h
// is not held any more, or cannot be prolonged.
func (m *Mutex) extended(ctx context.Context, op string, h *lease.Lease, res quorum.Result, over error) (bool, error) {
	switch {
	case over == nil && res.Won:
		return true, nil
	case errors.Is(over, ErrLockAlreadyExpired) && !errors.Is(over, ErrLockLost) && !errors.Is(over, ErrNotHeld):
		// Until passed meanwhile. Even if a quorum has the value now, another client may have held the lock
		// in between.
		err := ranOut(over, res)
		h.End(err)
		return false, m.failure(op, err)
	case over != nil: // unlocked, lost or closed meanwhile, or held for as long as WithMaxHold allows
		return false, m.failure(op, over)
	case h.Disproved(res):
		return false, m.failure(op, h.Lose(ends.Rejected(m.label(), res)))
	}
	return false, m.failure(op, ErrExtendFailed, m.interruption(ctx), unconfirmed(m.label(), res), stillHeld(h))
}

// stillHeld says for how long h is still held, if it has begun: an adopted value may be nobody's.
func stillHeld(h *lease.Lease) error {
	left := h.Remaining(clock.Now())
	if left == 0 || !h.Begun() {
		return nil
	}
	return notef("the lock is still held for %v", journal.Rounded(left))
}

// Downgrade turns the exclusive lock of m into a shared one (see WithShared), and extends it as Extend does. No
// writer can have the lock in between. Readers that are before the next writer in the queue can then enter.
//
// Once Downgrade has sent anything, the lock is shared for good, even if Downgrade fails, because a node may have let
// readers in. The next Lock of m is exclusive. See docs/readers.md.
//
// Errors:
//
//   - ErrExtendFailed: too few nodes have confirmed (with ErrNoQuorum if too few answered). The lock is shared, and
//     lasts until the old Until. The next Extend, the watchdog or another Downgrade tells the other nodes.
//   - ErrLockAlreadyExpired, ErrLockLost: the lock is over, as after ExtendContext.
//   - ErrNotHeld: m is not held, or has adopted a lock that Extend has not confirmed yet.
//   - ErrClosed: see Redsync.Close.
//   - ErrNested: an exclusive call of Do has joined the lock. Nothing was sent.
//   - Any other error names an option or a name, or says why this lock cannot become shared: it is on several names,
//     has WithShared, WithPermits or WithMinHold, or has a value with a line feed. Nothing was sent.
func (m *Mutex) Downgrade(ctx context.Context) error {
	ctx = orBackground(ctx)
	h, _, err := m.open("downgrade")
	if err != nil {
		return err
	}
	defer m.core.endCall()
	if err := m.mayDowngrade(h); err != nil {
		return m.failure("downgrade", err)
	}
	if err := m.shareNest(h); err != nil {
		return m.failure("downgrade", err)
	}
	start := clock.Now()
	left := h.Remaining(start)
	waiting, stop := apartFrom(ctx, h)
	defer stop()
	res, over := h.Downgrade(waiting)
	_, err = m.extended(waiting, "downgrade", h, res, over)
	m.tellExtended(ctx, h, start, left, err)
	return err
}

// mayDowngrade returns why h, the hold of m, cannot become shared.
func (m *Mutex) mayDowngrade(h *lease.Lease) error {
	switch fixed := m.set.kind().isFixed; {
	case fixed != nil:
		return fixed
	case h.Terms().Timing.MinHold > 0:
		return errors.New("WithMinHold: the lock stays exclusive until its keys have run out")
	case !h.Begun(): // m has adopted the hold, and Extend has not confirmed it yet
		return ErrNotHeld
	case !script.MayBeValue(h.Value(), true): // a node could not read the record of a reader with this value
		return errors.New("the value of a shared lock must have no line feed")
	}
	return nil
}

// Valid is ValidContext without a context.
func (m *Mutex) Valid() (bool, error) { return m.ValidContext(context.Background()) }

// ValidContext asks the nodes whether they hold the lock. It returns true only if a
// quorum holds it, and if Until has not passed when the nodes have answered. If Until has
// passed before the call, it fails without asking. Remaining is the cheap local check.
//
// After ErrLockLost or ErrLockAlreadyExpired the lock is over. After any other error, such as ErrNoQuorum, nothing
// has changed: a lock that was held is held until Until.
func (m *Mutex) ValidContext(ctx context.Context) (bool, error) {
	if m.isZero() {
		return true, nil
	}
	return m.valid(orBackground(ctx), "valid")
}

// valid does what Valid does. op is the operation, for errors.
func (m *Mutex) valid(ctx context.Context, op string) (bool, error) {
	h, _, err := m.open(op)
	if err != nil {
		return false, err
	}
	defer m.core.endCall()
	waiting, stop := apartFrom(ctx, h)
	defer stop()
	return m.checked(waiting, op, h, h.Check(waiting))
}

// checked returns what Valid returns after a check with the result res.
func (m *Mutex) checked(ctx context.Context, op string, h *lease.Lease, res quorum.Result) (bool, error) {
	over := h.NotHeld(clock.Now())
	switch {
	case over != nil:
		return false, m.failure(op, over)
	case res.Won:
		return true, nil
	case !h.Begun() && res.Rejected: // adopted: there is no hold to lose
		return false, m.failure(op, ErrLockAlreadyExpired, unconfirmed(m.label(), res))
	case h.Begun() && h.Disproved(res):
		return false, m.failure(op, h.Lose(ends.Rejected(m.label(), res)))
	}
	return false, m.failure(op, m.interruption(ctx), unconfirmed(m.label(), res), stillHeld(h))
}

// Current asks the nodes whether s belongs to the current hold of its lock. It returns nil if
// a quorum holds the value of s. The error matches ErrLockAlreadyExpired if the nodes prove
// that the hold is over. Any other error leaves open whether the hold is over.
//
// Ask through the same set of nodes as the holder. While the nodes change, a Redsync of NewJoint finds only the holds
// of NewJoint. A Redsync of New also finds the holds of a NewJoint that has the same nodes as one of its two sets.
//
// The hold may end right after the answer. A server that cannot accept that must compare
// tokens instead.
func (r *Redsync) Current(ctx context.Context, s Sequencer) error {
	if s.Name == "" || s.Value == "" {
		return fmt.Errorf("redsync: a sequencer without a hold: %w", ErrNotHeld)
	}
	as := observe.Mode("") // that of the kind of lock that finds the value
	if s.Mode == modePlain {
		as = observe.Plain
	}
	if s.Mode == modePlain || s.Mode == modeReaders {
		s.Mode = modeRead // the holder may have downgraded the lock; valid_shared.lua finds the value in either form
	}
	adopts := func(m *Mutex) {
		set := m.change()
		set.takeAsIs(&adoption{sequencer: s, mode: as})
		set.prefix = "" // the name has it already
	}
	if prefix := r.prefix(); !s.isUnder(prefix) {
		return fail("current", s.Name, fmt.Errorf("the lock is not one of WithPrefix(%s)", quoted(prefix)))
	}
	m := r.newMutex(s.Name)
	m.configure([]Option{OptionFunc(adopts)})
	_, err := m.valid(orBackground(ctx), "current")
	return err
}
