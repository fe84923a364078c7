package redsync

import (
	"context"
	"errors"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file is about shared locks: many readers of a name at once, or one writer.

// WithShared makes a Mutex a reader: any number of readers can hold a name at once. A writer is any lock on the name
// without this option: one of NewMutex, of NewMultiMutex or of redsync v4. A writer excludes all others, and a reader
// excludes every writer.
//
// Readers do not starve a writer that waits in Lock. Once the writer stands in the queues of a quorum of nodes, readers
// that come later wait behind it, except those that share the hold of a reader of their process (see below). When a
// writer unlocks, all readers that are before the next writer in the queue can enter. A writer that does not queue
// (TryLock, or redsync v4) finds the name taken for as long as readers overlap. A reader that crashes keeps writers out
// until its keys expire, and no longer.
//
// A Mutex has one hold at a time, also with this option: Lock of a held Mutex waits until that hold ends. Use a Mutex
// for each reader, or Do, which many goroutines may call on one Mutex at once.
//
// Code that already reads a name inside a Do can lock it again with Do and the context of the outer Do: that call joins
// the hold, even while a writer waits. A second Lock without that context can deadlock, as with sync.RWMutex. If a
// writer has begun to wait in between, the second Lock waits for the writer, and the writer waits for the first hold.
// The deadlock lasts until one of the two gives up, because its tries are used up or its context has ended.
//
// Readers of one process (of the same New or Open) share a hold. The nodes keep one value for all of them, and the last
// of them releases it. When a reader acquires the lock, the readers that wait directly behind it in the process share
// its hold. Readers that call Lock or TryLock soon after share it, too, unless a writer waits in the process. Soon
// means within 20 ms, or within a tenth of the expiry if that is shorter. If an attempt is under way whose hold a
// TryLock could share, the TryLock waits for that attempt, at most for the node deadline. An extension by one reader,
// or by its watchdog, extends the hold for all of them. Each reader has a Lost of its own. A reader does not share a
// hold
//
//   - with a reader whose expiry, drift, node deadline, lock delay, WithOwner or WithSetNXOnExtend differs from its own;
//   - if it has WithFencing, WithMaxHold, WithGenValueFunc, WithSequencer or WithHandOver(false);
//   - once your code has read the value of that hold (Mutex.Value, Mutex.Sequencer), or one of its readers has lost it.
//
// WithShared excludes NewMultiMutex and WithValue: with either, every operation fails. WithSequencer adopts a
// shared hold. The default is off.
func WithShared() Option {
	return OptionFunc(func(m *Mutex) { m.change().shared = true })
}

// Downgrade turns the exclusive hold of m into a shared one (see WithShared). No writer can have the lock in
// between. All readers that are before the next writer in the queue can then enter. Downgrade also extends the hold, as
// Extend does: it moves Until if a quorum confirms the extension before the old Until.
//
// Once Downgrade has sent anything, the hold is shared even if Downgrade fails, because a node may have let readers in.
// The hold cannot become exclusive again, but the next Lock of m is exclusive. Redsync.Current still accepts a
// Sequencer from before the call, but nobody can adopt that Sequencer any more, because it describes an exclusive lock.
// After the call, Detach and Sequencer return the Sequencer of a shared lock.
//
// These errors say what has become of the hold:
//
//   - ErrExtendFailed: too few nodes have confirmed the downgrade (with ErrNoQuorum if too few answered). The hold is
//     shared, and lasts until the old Until. The next Extend, the watchdog or another Downgrade tells the other nodes.
//   - ErrLockAlreadyExpired, ErrLockLost: the hold is over, as after ExtendContext.
//   - ErrNotHeld: m is not held, or has adopted a hold that Extend has not confirmed yet.
//   - ErrClosed: see Redsync.Close.
//   - ErrNested: an exclusive call of Do has joined the hold (see Mutex.Do). Nothing was sent, and the hold is as
//     it was.
//   - Any other error names a faulty option or name, or says why this lock cannot become shared. It may be on several
//     names, it may have WithShared, WithPermits or WithMinHold, or its value may contain a line feed (WithValue,
//     WithGenValueFunc). Nothing was sent, and the hold is as it was.
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
