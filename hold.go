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

// Value returns the value of the current lock, also after a loss, until the next Lock or Unlock. Before the first Lock
// it is that of WithValue or WithSequencer, otherwise "".
//
// Code that has the value can extend and release the lock. Once Value or Sequencer has returned it, Unlock does not
// hand the lock over, no further reader shares it, and a later Lock of m does not release it. To give the lock away use
// Detach. For a library that releases only once, acquire it with WithFailFast(false): a slow node may set its key after
// Lock has returned.
func (m *Mutex) Value() string {
	h, adopts := m.holdOrAdopted()
	if h != nil {
		return h.Show()
	}
	return adopts.valueOf()
}

// Until returns the time at which the lock ends unless it is extended, also after that time. It returns the zero time
// before the first Lock, after Unlock or Detach, and once Close has ended the lock or the nodes have proved its loss.
// To decide whether to go on, ask Remaining.
func (m *Mutex) Until() time.Time {
	if h := m.current(); h != nil {
		return h.Until()
	}
	return time.Time{}
}

// Remaining returns how long the holder may still rely on the lock, 0 when m is not held: the shorter of the times by
// the wall clock and the monotonic clock. It sends nothing: call it before each step that needs the lock.
func (m *Mutex) Remaining() time.Duration {
	if h := m.current(); h != nil {
		return h.Remaining(clock.Now())
	}
	return 0
}

// Lost returns a channel that is closed when the lock has ended without Unlock or Detach: at Until, or soon after it if
// a timer is late, even if no node can be reached; earlier on Close, and when an extension or a Valid proves the loss.
// Err says why. If m is not held, Lost returns nil.
//
// A machine that was suspended, or a wall clock that was set forward, is noticed within a tenth of the expiry (at least
// 10 ms, at most 1 s).
func (m *Mutex) Lost() <-chan struct{} {
	if h := m.current(); h != nil {
		return h.Lost(clock.Now())
	}
	return nil
}

// Err returns nil while m is held, and ErrNotHeld before the first Lock and after Unlock or Detach. Otherwise it
// returns ErrLockLost with its cause: ErrLockAlreadyExpired (Until has passed, or the nodes have proved the loss),
// ErrMaxHold, ErrForced or ErrClosed. It sends nothing.
func (m *Mutex) Err() error {
	if h := m.current(); h != nil {
		return h.Err(clock.Now())
	}
	return ErrNotHeld
}

// Fence returns the fencing token of the current lock: the resource that the lock protects refuses a write with a lower
// one than it has seen (package fencing). If one Lock of a name returned before another began, the second gets the
// greater token. No two Locks get the same one. WithFencing names the limits.
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

// ExtendContext makes the lock last for its expiry from now on. It moves Until and returns true if a quorum confirms
// that before the old Until. It waits at most until then or until ctx is done, and for an adopted value not yet
// extended for the node deadline.
//
// After ErrExtendFailed, with ErrNoQuorum if too few nodes answered, the lock is held until the old Until: try again,
// unless ErrMaxHold comes with it. After ErrLockAlreadyExpired the lock is over; see ErrLockLost.
func (m *Mutex) ExtendContext(ctx context.Context) (bool, error) {
	ctx = orBackground(ctx)
	if m.isZero() {
		return false, ErrExtendFailed
	}
	h, from, err := m.open("extend")
	if err != nil {
		return false, err
	}
	defer m.core.keeper.EndCall()
	start, left, adopted := clock.Now(), time.Duration(0), false
	var ok bool
	if h.Begun() {
		left = h.Remaining(start)
		ok, err = m.extend(ctx, h)
	} else {
		adopted, ok, err = m.adopt(ctx, h, from)
	}
	if !adopted { // adopt has told: observe.Acquired
		m.tellExtended(ctx, h, start, left, err)
	}
	return ok, err
}

func (m *Mutex) tellExtended(ctx context.Context, h *lease.Lease, start clock.Instant, left time.Duration, err error) {
	if h.Terms().Events != nil {
		eventsOf(h.Terms()).extended(ctx, h, start, left, err)
	}
}

// open begins an operation that needs a hold; after success m.core.keeper.EndCall ends it. For an adopted hold it
// returns a new lease and the adoption.
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
		m.core.keeper.EndCall()
		return nil, nil, m.failure(op, err)
	}
	return h, from, nil
}

func (m *Mutex) extend(ctx context.Context, h *lease.Lease) (bool, error) {
	waiting, stop := apartFrom(ctx, h)
	defer stop()
	res, over := h.Extend(waiting)
	return m.extended(waiting, "extend", h, res, over)
}

// extended returns what an operation that prolongs h returns. over is why h cannot be prolonged.
func (m *Mutex) extended(ctx context.Context, op string, h *lease.Lease, res quorum.Result, over error) (bool, error) {
	switch {
	case over == nil && res.Won:
		return true, nil
	case errors.Is(over, ErrLockAlreadyExpired) && !errors.Is(over, ErrLockLost) && !errors.Is(over, ErrNotHeld):
		// A quorum may have the value, but another client may have had the lock since Until.
		err := ranOut(over, res)
		h.End(err)
		return false, m.failure(op, err)
	case over != nil: // ended otherwise, or WithMaxHold allows no more
		return false, m.failure(op, over)
	case h.Disproved(res):
		return false, m.failure(op, h.Lose(ends.Rejected(m.label(), res)))
	}
	return false, m.failure(op, ErrExtendFailed, m.interruption(ctx), unconfirmed(m.label(), res), stillHeld(h))
}

// stillHeld says for how long h is held. An adopted value may be nobody's.
func stillHeld(h *lease.Lease) error {
	left := h.Remaining(clock.Now())
	if left == 0 || !h.Begun() {
		return nil
	}
	return notef("the lock is still held for %v", journal.Rounded(left))
}

// Downgrade turns the exclusive lock of m into a shared one (WithShared), and extends it. No writer can have the lock
// in between. Readers ahead of the next writer in the queue can then enter.
//
// Once Downgrade has sent anything, the lock is shared for good, even if it fails, because a node may have let readers
// in. The next Lock of m is exclusive. See docs/readers.md.
//
// Errors:
//
//   - ErrExtendFailed: too few nodes have confirmed (with ErrNoQuorum if too few answered). The lock is shared, and
//     lasts until the old Until. The next Extend, the watchdog or another Downgrade tells the other nodes.
//   - ErrLockAlreadyExpired, ErrLockLost: the lock is over.
//   - ErrNotHeld: m is not held, or has adopted a lock that Extend has not confirmed yet.
//   - ErrClosed.
//   - ErrNested: an exclusive call of Do has joined the lock. Nothing was sent.
//   - Any other, without any traffic, names an option or a name, or says why this lock cannot become shared: it is on
//     several names, has WithShared, WithPermits or WithMinHold, or a value with a line feed.
func (m *Mutex) Downgrade(ctx context.Context) error {
	ctx = orBackground(ctx)
	h, _, err := m.open("downgrade")
	if err != nil {
		return err
	}
	defer m.core.keeper.EndCall()
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

func (m *Mutex) mayDowngrade(h *lease.Lease) error {
	switch fixed := m.set.kind().isFixed; {
	case fixed != nil:
		return fixed
	case h.Terms().Timing.MinHold > 0:
		return errors.New("WithMinHold: the lock stays exclusive until its keys have run out")
	case !h.Begun(): // Extend has not confirmed it yet
		return ErrNotHeld
	case !script.MayBeValue(h.Value(), true): // a node could not read the reader's record
		return errors.New("the value of a shared lock must have no line feed")
	}
	return nil
}

// Valid is ValidContext without a context.
func (m *Mutex) Valid() (bool, error) { return m.ValidContext(context.Background()) }

// ValidContext asks the nodes whether they hold the lock. It returns true only if a quorum does, and Until has not
// passed by then. If Until has passed before, it asks nobody. Remaining is the cheap local check.
//
// After ErrLockLost or ErrLockAlreadyExpired the lock is over. Any other error, such as ErrNoQuorum, changes nothing.
func (m *Mutex) ValidContext(ctx context.Context) (bool, error) {
	if m.isZero() {
		return true, nil
	}
	return m.valid(orBackground(ctx), "valid")
}

func (m *Mutex) valid(ctx context.Context, op string) (bool, error) {
	h, _, err := m.open(op)
	if err != nil {
		return false, err
	}
	defer m.core.keeper.EndCall()
	waiting, stop := apartFrom(ctx, h)
	defer stop()
	return m.checked(waiting, op, h, h.Check(waiting))
}

func (m *Mutex) checked(ctx context.Context, op string, h *lease.Lease, res quorum.Result) (bool, error) {
	over := h.NotHeld(clock.Now())
	switch {
	case over != nil:
		return false, m.failure(op, over)
	case res.Won:
		return true, nil
	case !h.Begun() && res.Rejected:
		return false, m.failure(op, ErrLockAlreadyExpired, unconfirmed(m.label(), res))
	case h.Begun() && h.Disproved(res):
		return false, m.failure(op, h.Lose(ends.Rejected(m.label(), res)))
	}
	return false, m.failure(op, m.interruption(ctx), unconfirmed(m.label(), res), stillHeld(h))
}

// Current asks the nodes whether s belongs to the current hold of its lock, and returns nil if a quorum holds its
// value. The error matches ErrLockAlreadyExpired only if the nodes prove that the hold is over. The hold may end right
// after the answer: a server that cannot accept that must compare tokens.
//
// Ask through the same nodes as the holder. While the nodes change, a Redsync of NewJoint finds only holds of NewJoint,
// and one of New also finds those of a NewJoint with the same nodes as one of its sets.
func (r *Redsync) Current(ctx context.Context, s Sequencer) error {
	if s.Name == "" || s.Value == "" {
		return fmt.Errorf("redsync: a sequencer without a hold: %w", ErrNotHeld)
	}
	as := observe.Mode("")
	if s.Mode == modePlain {
		as = observe.Plain
	}
	if s.Mode == modePlain || s.Mode == modeReaders {
		s.Mode = modeRead // the holder may have downgraded it; valid_shared.lua finds either form
	}
	adopts := func(m *Mutex) {
		set := m.change()
		set.takeAsIs(&adoption{sequencer: s, mode: as})
		set.prefix = ""
	}
	if prefix := r.prefix(); !s.isUnder(prefix) {
		return fail("current", s.Name, fmt.Errorf("the lock is not one of WithPrefix(%s)", quoted(prefix)))
	}
	m := r.newMutex(s.Name)
	m.configure([]Option{OptionFunc(adopts)})
	_, err := m.valid(orBackground(ctx), "current")
	return err
}
