package redsync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file is about shared locks: many readers of a name at once, or one writer.

// WithShared makes a Mutex a reader: any number of readers can hold a name at once. A writer is a lock on the
// name without this option: of NewMutex, of NewMultiMutex, or of redsync v4. A writer excludes everybody
// else, and a reader excludes every writer.
//
// Readers do not starve a writer that waits in Lock. Once the writer stands in the queues of a quorum of
// nodes, readers that come later wait behind it. When a writer unlocks, all readers that wait before the next
// writer can enter. A writer that does not queue finds the name taken for as long as readers overlap:
// TryLock, and redsync v4. A reader that crashes keeps writers out until its own expiry, and no longer.
//
// A Mutex has one hold at a time, also with this option: Lock waits while its own Mutex is held. Use a Mutex for
// each reader, or Do, which many goroutines may call on one Mutex at once.
//
// Do not lock a name for reading in work that reads it already. If a writer waits by then, the second Lock
// waits for the writer, and the writer waits for the first reader. As with sync.RWMutex, that is a deadlock,
// until the tries of one of them are used up or its context ends.
//
// Readers of one process (of the same New or Open) share a hold. When one of them acquires the lock, the
// readers that wait right behind it in the process have it, too. So do readers that come within 20 ms, and
// within a tenth of the expiry, unless a writer waits in the process; also those that call TryLock. While an
// attempt is under way whose hold they could share, calls of TryLock wait for it, at most for the node deadline.
// On the nodes the readers of a hold have one value, which the last of them releases. An extension by one of
// them, or by its watchdog, is for all of them. Each has a Lost of its own.
//
// Readers share a hold only if they have the same expiry, drift, node deadline, lock delay and
// WithSetNXOnExtend. None is shared with WithFencing, WithMaxHold, WithGenValueFunc, WithSequencer or
// WithHandOver(false), nor once the user has seen its value (Mutex.Value, Mutex.Sequencer).
//
// WithShared excludes NewMultiMutex and WithValue: with either, every operation fails. WithSequencer adopts a
// shared hold. The default is off.
func WithShared() Option {
	return OptionFunc(func(m *Mutex) { m.change().shared = true })
}

// Downgrade turns the exclusive hold of m into a shared one (see WithShared). No writer can have the lock in
// between. The readers that wait before the next writer can enter. Downgrade also extends the hold: it moves
// Until if a quorum confirms it before the old Until.
//
// From the call on the hold is shared, even if Downgrade fails, because a node may have let readers in. There
// is no way back within the hold. The next Lock of m is exclusive again. A Sequencer from before the call stays
// good for Redsync.Current, but nobody can adopt it any more: it is of an exclusive lock. Detach and Sequencer
// return one of a shared lock from then on.
//
// These errors tell what has become of the hold:
//
//   - ErrExtendFailed: too few nodes have confirmed the downgrade. The hold lasts until the old Until.
//     Extend, the watchdog or another Downgrade tells the other nodes.
//   - ErrLockAlreadyExpired, ErrLockLost: the hold is over, as after ExtendContext.
//   - ErrNotHeld: m is not held, or has adopted a hold that Extend has not confirmed yet. Nothing was sent.
//   - ErrClosed.
//   - An error that names an option or a name, such as WithShared, or a lock on several names, or that says that
//     the value has a line feed (WithValue, WithGenValueFunc). Nothing was sent, and the hold is as it was.
func (m *Mutex) Downgrade(ctx context.Context) error {
	ctx = orBackground(ctx)
	h, err := m.open("downgrade")
	if err != nil {
		return err
	}
	defer m.core.endCall()
	switch {
	case m.multi != nil:
		return m.failure("downgrade", errors.New("a lock on several names cannot become shared"))
	case m.set.shared:
		return m.failure("downgrade", errors.New("WithShared: the lock is shared already"))
	case !h.Begun():
		return m.failure("downgrade", ErrNotHeld)
	case !script.MayBeValue(h.Value(), true):
		return m.failure("downgrade", errLineFeed)
	}
	start := clock.Now()
	left := h.Remaining(start)
	res, over := h.Downgrade(ctx)
	_, err = m.extended(ctx, "downgrade", h, res, over)
	m.tellExtended(ctx, start, left, err)
	return err
}

// errLineFeed is the error of a Downgrade whose record no node could read.
var errLineFeed = errors.New("the value of a shared lock must have no line feed")

// errBusy is the error of a Lock of a shared Mutex that is held.
var errBusy = errors.New("redsync: this Mutex holds the lock already: use a Mutex for each reader")

// awaitOwn waits until m, which is shared, is not held, and returns how many more tries limit allows. 0 is no limit. It
// returns errBusy once the tries are used up.
func (m *Mutex) awaitOwn(ctx context.Context, limit int) (left int, err error) {
	for try := 1; ; try++ {
		h := m.current()
		if h == nil || h.Remaining(clock.Now()) == 0 {
			return max(limit-try+1, min(limit, 1)), nil
		}
		if try == limit {
			return 0, errBusy
		}
		delay := m.set.delay(try)
		if delay < 0 {
			return 0, outOfRange("WithRetryDelayFunc", delay, "0 or more")
		}
		timer := time.NewTimer(max(delay, time.Millisecond))
		select {
		case <-h.Done():
		case <-timer.C:
		case <-m.core.keeper.Closing():
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil || m.core.keeper.IsClosed() {
			return 0, m.withInterruption(ctx, errBusy)
		}
	}
}

// forDo returns the Mutex that a Do of m uses: m itself, unless m is shared and in use. Then it is another one for the
// same lock. done must be called when the Do has ended.
func (m *Mutex) forDo() (mine *Mutex, done func()) {
	if m.set == nil || !m.set.shared {
		return m, func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.doing || m.hold != nil && m.hold.NotHeld(clock.Now()) == nil {
		twin := &Mutex{core: m.core, name: m.name, set: m.set, claim: claim.NewExclusive(m.name)}
		twin.prepare()
		return twin, func() {}
	}
	m.doing = true
	return m, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.doing = false
	}
}

// A doing is what the context of a Do's function knows: the Mutex and its hold, and the Do around it.
type doing struct {
	mutex *Mutex
	hold  *lease.Lease
	outer *doing
}

// checkUpgrade returns ErrUpgrade if m would lock exclusively what a Do around ctx holds shared.
func (m *Mutex) checkUpgrade(ctx context.Context) error {
	if m.set.shared {
		return nil
	}
	d, _ := ctx.Value(mutexKey{}).(*doing)
	for ; d != nil; d = d.outer {
		c := d.hold.Claim()
		if !c.Shares() || d.mutex.core != m.core || d.hold.NotHeld(clock.Now()) != nil {
			continue
		}
		for _, name := range m.claimed().Lines() {
			if name == c.Name() {
				return fmt.Errorf("%w: %q", ErrUpgrade, name)
			}
		}
	}
	return nil
}
