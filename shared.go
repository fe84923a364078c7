package redsync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// This file is about shared locks: many readers of a name at once, or one writer.

// WithShared makes a read lock of a Mutex: any number of clients can hold the name at once, as long as all of them set
// this option. Writers lock the name without it: NewMutex, NewMultiMutex, and redsync v4. A reader excludes every
// writer, and a writer excludes everybody.
//
// Readers do not starve writers: once a writer waits in the queues of a quorum, readers that come later wait behind it. When
// a writer releases the lock, all readers before the next writer are let in at once. A writer that does not wait
// in the queues, as TryLock and redsync v4, finds a name taken for as long as readers overlap. A reader that
// crashes keeps writers out until its own expiry.
//
// Readers of one process share a hold: when a reader acquires the lock, the readers of the process that wait behind it have it too, and so do
// those that come within 20 ms and a tenth of the expiry, unless a writer waits in the process. They share one value on the nodes, which the last of them
// releases. Each has a Mutex, with an Until and a Lost of its own. Readers share only with the same expiry, drift, node
// deadline and lock delay, and not with WithFencing, WithMaxHold, WithGenValueFunc, WithSequencer or WithHandOver(false), nor
// if the user has seen the value (Mutex.Value, Mutex.Sequencer).
//
// A Mutex has one hold at a time, also with this option: Lock waits while the Mutex is held. Use a Mutex for each reader,
// or Do, which any number of goroutines may call at once.
//
// WithShared does not go together with NewMultiMutex or WithValue: WithSequencer adopts a shared lock. It has no effect on
// locks that are held. The default is off.
func WithShared() Option {
	return OptionFunc(func(m *Mutex) { m.change().shared = true })
}

// Downgrade turns an exclusive hold into a shared one, without a gap: no writer can hold the lock in between. It lets in
// the readers that wait before the next writer. It is an extension, too: it moves Until when a quorum
// confirms it.
//
// The hold is shared from the moment of the call, whatever Downgrade returns, until Unlock. There is no way back
// within the hold. The next Lock of m is exclusive again. After ErrExtendFailed too few nodes have confirmed it:
// the hold lasts until the old Until, and further extensions or another Downgrade bring the news to the other nodes. After any other error m is not held:
// see ExtendContext. Downgrade of a lock that is not exclusive is an error that changes nothing: a Mutex WithShared, or one of several
// names.
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
	}
	start := clock.Now()
	left := h.Remaining(start)
	res, over := h.Downgrade(ctx)
	_, err = m.extended(ctx, "downgrade", h, res, over)
	m.tellExtended(ctx, start, left, err)
	return err
}

// errBusy is the error of a Lock of a shared Mutex that is held.
var errBusy = errors.New("redsync: this Mutex holds the lock already: use a Mutex for each reader")

// awaitOwn waits until m, which is shared, is not held. It returns errBusy once the tries of Lock are used up.
func (m *Mutex) awaitOwn(ctx context.Context, once bool) error {
	for try := 1; ; try++ {
		h := m.current()
		if h == nil || h.NotHeld(clock.Now()) != nil {
			return nil
		}
		if once || try == m.set.tries {
			return errBusy
		}
		delay := m.set.delay(try)
		if delay < 0 {
			return outOfRange("WithRetryDelayFunc", delay, "0 or more")
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
			return m.withInterruption(ctx, errBusy)
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
