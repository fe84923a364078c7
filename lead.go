package redsync

import (
	"context"
	"errors"
	"slices"

	"github.com/seed14bd9ef4/redsync/internal/watch"
)

// Lead waits until this process leads, and calls fn for one term. The leadership is the lock on the name, with
// WithFencing and a watchdog. Candidates wait as in LockContext, until ctx ends or the time of WithWait is over.
// WithTries has no effect.
//
// The context of fn ends with ctx, or when the leadership is lost, at Until at the latest. Only fencing stops code that
// goes on after it: send FromContext(ctx).Fence(), the number of the term, with every write.
//
// When fn returns, Lead resigns. After a loss it waits for fn, pauses for 50 to 250 ms, and campaigns again. See
// docs/leaders.md.
//
// Errors:
//
//   - That of fn, joined with that of a failed release.
//   - The error of ctx, and its cause, with ErrFailed or ErrNoQuorum as from LockContext. After the time of WithWait
//     these alone.
//   - ErrNoQuorum at once, if too many nodes deny the lock until somebody changes a setting (such as NOPERM or
//     WRONGPASS).
//   - ErrNested, if ctx comes from a Do that holds the name.
//   - ErrClosed, ErrDuplicateNode or ErrNoPools.
//   - The error of the function of WithGenValueFunc, or one that names an option or a name that cannot be used. Lead
//     excludes WithShared, WithPermits, WithValue and WithSequencer.
func (r *Redsync) Lead(ctx context.Context, name string, fn func(context.Context) error, options ...Option) error {
	m := r.NewMutex(name, slices.Concat(options, []Option{OptionFunc(leads)})...)
	if fn == nil {
		return m.failure("lead", errNilFunc)
	}
	return m.lead(orBackground(ctx), fn)
}

func leads(m *Mutex) {
	set := m.change()
	set.leads, set.fencing = true, true
}

// lead is Lead with the name and options of m. Each term has its own Mutex: otherwise code of a former term would get
// the new token from FromContext.
func (m *Mutex) lead(ctx context.Context, fn func(context.Context) error) error {
	for {
		again, err := m.twin().leadOnce(ctx, fn)
		if !again {
			return err
		}
		// The pause lets other candidates come first. The retry delay may be 0, or an hour.
		if !m.core.keeper.Pause(ctx, defaultDelay(0), nil) {
			return errors.Join(err, m.failure("lead", m.interruption(ctx)))
		}
	}
}

// leadOnce campaigns until m leads, and calls fn. again says that the term was lost.
func (m *Mutex) leadOnce(ctx context.Context, fn func(context.Context) error) (again bool, err error) {
	h, err := m.lock(ctx, false, true)
	if err != nil {
		// The term was over before it began: this goroutine was held up. Other errors do not go away.
		return errors.Is(err, errTooLate) && ctx.Err() == nil && !m.core.keeper.IsClosed(), err
	}
	watch.Tell(&m.core.keeper, m.keyed.Name(), watch.Leads)
	defer watch.Tell(&m.core.keeper, m.keyed.Name(), watch.Leaves) // after the release, also on panic
	return m.whileHeld(ctx, h, fn)
}
