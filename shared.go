package redsync

import (
	"context"
	"errors"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file is about shared locks: many readers of a name at once, or one writer.

// WithShared makes a Mutex a reader: any number of readers can hold a name at once, but none together with a writer.
// A writer is any lock on the name without this option, also of NewMultiMutex or redsync v4. The default is off.
//
// Readers that come later wait behind a writer that waits in Lock. TryLock and redsync v4 find the name taken while
// readers overlap.
//
// Use a Mutex for each reader, or Do of one Mutex. A read inside a read needs Do with the context of the outer Do:
// otherwise it can deadlock with a writer that waits.
//
// Readers of one process may share a lock: see docs/readers.md, and docs/reference.md for what excludes WithShared.
func WithShared() Option {
	return OptionFunc(func(m *Mutex) { m.change().shared = true })
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

// forDo returns the Mutex that a Do of m uses. With WithShared or WithPermits, many goroutines may call Do of
// m at once: forDo returns m itself if it is not in use, and otherwise a new Mutex with the same settings. In
// any other case it returns m. The caller must call done when the Do has ended.
func (m *Mutex) forDo() (mine *Mutex, done func()) {
	if m.set == nil || !m.set.kind().sharesName {
		return m, func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.usedByDo || m.hold != nil && m.hold.NotHeld(clock.Now()) == nil {
		return m.twin(), func() {}
	}
	m.usedByDo = true
	return m, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.usedByDo = false
	}
}

// twin returns a new Mutex with the name and the settings of m. The new Mutex adopts nothing.
func (m *Mutex) twin() *Mutex {
	twin := (&Redsync{core: m.core, set: m.set}).newMutex(m.label())
	twin.prepare()
	return twin
}
