package redsync

import (
	"context"
	"errors"
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
// nodes, readers that come later wait behind it, except those that join a young hold of their process (see
// below). When a writer unlocks, all readers that are before the next writer in the queue can enter. A writer that does
// not queue (TryLock, or redsync v4) finds the name taken for as long as readers overlap. A reader that
// crashes keeps writers out until its own expiry, and no longer.
//
// A reader, too, has one hold at a time: Lock waits until its own Mutex is no longer held. Use a Mutex for
// each reader, or Do, which many goroutines may call on one Mutex at once.
//
// In work that already holds a name for reading, read the name with Do and the context of the outer Do: the
// call joins the hold, also while a writer waits. Do not lock the name again without that context. If a writer
// has begun to wait in between, the second Lock waits for the writer, and the writer waits for the end of the
// first hold. As with sync.RWMutex that is a deadlock. It lasts until one of the two has used up its tries, or
// until its context ends.
//
// Readers of one process (of the same New or Open) share a hold. On the nodes they have one value, which
// the last of them releases. When a reader acquires the lock, the readers that wait right behind it in the
// process share its hold. So do readers that come within 20 ms, and within a tenth of the expiry, unless
// a writer waits in the process; also those that call TryLock. While an attempt is under way whose hold they
// could share, calls of TryLock wait for it, at most for the node deadline. An extension by one of the readers,
// or by its watchdog, is for all of them. Each reader has a Lost of its own. A reader does not share a hold
//
//   - with readers that have another expiry, drift, node deadline, lock delay or WithSetNXOnExtend;
//   - with WithFencing, WithMaxHold, WithGenValueFunc, WithSequencer or WithHandOver(false);
//   - once the user has seen the value of that hold (Mutex.Value, Mutex.Sequencer), or one of its readers has
//     lost it.
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
// Once Downgrade has sent anything, the hold is shared even if Downgrade fails, because a node may have let readers
// in. The hold cannot become exclusive again; the next Lock of m is exclusive. Redsync.Current still accepts a
// Sequencer from before the call, but nobody can adopt that Sequencer any more, because it describes an exclusive
// lock. After the call, Detach and Sequencer return the Sequencer of a shared lock.
//
// These errors say what has become of the hold:
//
//   - ErrExtendFailed: too few nodes have confirmed the downgrade. The hold is shared, and lasts until the old
//     Until. The next Extend, the watchdog or another Downgrade tells the other nodes.
//   - ErrLockAlreadyExpired, ErrLockLost: the hold is over, as after ExtendContext.
//   - ErrNotHeld: m is not held, or has adopted a hold that Extend has not confirmed yet.
//   - ErrClosed: see Redsync.Close.
//   - ErrNested: an exclusive call of Do has joined the hold (see Mutex.Do). Nothing was sent, and the hold is as
//     it was.
//   - Any other error says why this lock cannot become shared: it is on several names, it has WithShared,
//     WithPermits or WithMinHold, or its value has a line feed (WithValue, WithGenValueFunc); or the error names
//     a faulty option or name. Nothing was sent, and the hold is as it was.
func (m *Mutex) Downgrade(ctx context.Context) error {
	ctx = orBackground(ctx)
	h, err := m.open("downgrade")
	if err != nil {
		return err
	}
	defer m.core.endCall()
	if err := m.mayDowngrade(h); err != nil {
		return m.failure("downgrade", err)
	}
	if n := m.nestOf(h); n != nil {
		if err := n.makeShared(); err != nil {
			return m.failure("downgrade", err)
		}
	}
	start := clock.Now()
	left := h.Remaining(start)
	res, over := h.Downgrade(ctx)
	_, err = m.extended(ctx, "downgrade", h, res, over)
	m.tellExtended(ctx, start, left, err)
	return err
}

// mayDowngrade returns why h, the hold of m, cannot become shared.
func (m *Mutex) mayDowngrade(h *lease.Lease) error {
	switch {
	case m.multi != nil:
		return errors.New("a lock on several names cannot become shared")
	case m.set.shared:
		return errors.New("WithShared: the lock is shared already")
	case m.set.permits != 0:
		return errors.New("WithPermits: a permit cannot become shared")
	case h.Terms().Timing.MinHold > 0:
		return errors.New("WithMinHold: the lock stays exclusive until its keys have run out")
	case !h.Begun(): // m has adopted the hold, and Extend has not confirmed it yet
		return ErrNotHeld
	case !script.MayBeValue(h.Value(), true): // a node could not read the record of a reader with this value
		return errors.New("the value of a shared lock must have no line feed")
	}
	return nil
}

// errHeldByItself is the error of Lock if the Mutex is held already, for settings with sharesName.
var errHeldByItself = errors.New("redsync: this Mutex holds the lock already: use a Mutex for each holder")

// awaitOwn waits until m itself is not held. Locks with settings.sharesName need this, because the nodes would
// grant m a second hold. awaitOwn checks m, and checks again after each retry delay or when the hold ends. Each
// check uses one of the limit tries. awaitOwn returns how many tries are left for the nodes, at least one. Once the
// tries are used up, it returns errHeldByItself. A limit of 0 means no limit, and awaitOwn then returns 0.
func (m *Mutex) awaitOwn(ctx context.Context, limit int) (left int, err error) {
	for try := 1; ; try++ {
		h := m.current()
		free := h == nil || h.Remaining(clock.Now()) == 0
		switch {
		case free && limit == 0:
			return 0, nil
		case free:
			return limit - (try - 1), nil
		case try == limit:
			return 0, errHeldByItself
		}
		delay := m.set.delay(try)
		if delay < 0 {
			return 0, outOfRange("WithRetryDelayFunc", delay, "0 or more")
		}
		if !m.core.keeper.Pause(ctx, max(delay, time.Millisecond), h.Done()) {
			return 0, m.withInterruption(ctx, errHeldByItself)
		}
	}
}

// forDo returns the Mutex that a Do of m uses. With WithShared or WithPermits, many goroutines may call Do of
// m at once: forDo returns m itself if it is not in use, and otherwise a new Mutex with the same settings. In
// any other case it returns m. done must be called when the Do has ended.
func (m *Mutex) forDo() (mine *Mutex, done func()) {
	if m.set == nil || !m.set.sharesName() || m.multi != nil { // several names exclude both options, so m fails by itself
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
	twin := &Mutex{core: m.core, name: m.name, set: m.set, claim: claim.NewExclusive(m.name), permits: m.permits}
	twin.prepare()
	return twin
}
