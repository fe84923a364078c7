package redsync

import (
	"context"
	"errors"
	"slices"

	"github.com/seed14bd9ef4/redsync/internal/watch"
)

// This file is about leaders. Of several processes that campaign for a name, one leads until it resigns or
// loses the lock.

// Lead makes this process a candidate for the leadership of a name, and calls fn while the process leads. The
// leadership is the lock on the name, with WithFencing and with a watchdog. So at most one candidate leads at a
// time, under the same assumptions as the exclusion of a lock (see the package documentation).
//
// Candidates wait in queues, as LockContext does, and a resignation wakes the first of them. WithTries has no effect.
// Lead goes on campaigning while nodes fail, also while all of them are down, until ctx ends or the time of WithWait is over.
//
// fn runs for one term. Its context ends when ctx does, or when the leadership is lost. Lead notices a loss at Until
// at the latest, before any other candidate can lead. After a loss context.Cause matches ErrLockLost. FromContext
// returns the Mutex of the term. When the process awakes from a pause, the context may end a moment late: Remaining of
// the Mutex is exact, so call it before each step. Fence of the Mutex is the number of the term, which rises from
// term to term, but not by one. Send that number along with every write, and let the resource refuse lower numbers
// (package fencing does that). Only that protects against code that goes on after its context has ended. Unlock of
// the Mutex fails, because Lead releases the leadership when fn has returned.
//
// What ends a term decides what follows:
//
//   - fn returns while the process leads. That is a resignation. Lead releases the leadership and returns the
//     error of fn. If the release fails, the reason is joined with that error, as with Do. To resign and to stay
//     a candidate, call Lead again.
//   - The leadership is lost, because no quorum confirmed it in time, or by WithMaxHold. Lead waits until fn has
//     returned, so fn must return soon. Then it pauses for 50 to 250 ms, so that other candidates come first.
//     After that it campaigns again, whatever fn returned. The next term has another Mutex.
//   - ctx ends, or Close is called. Lead waits until fn has returned, and returns. If ctx has ended, this is a
//     resignation, too: Lead returns the error of fn. Close ends the context of fn and releases the leadership at
//     once, while fn may still run. To shut down, end ctx, wait for Lead, and then call Close.
//   - fn panics. Lead releases the leadership, and the panic goes on.
//
// When a term begins, and after it has ended, Lead tells those who watch the name (see Mutex.Watch): it publishes a message
// on every node, on the channel redsync:{name}:leader, and does not wait for that. If nodes deny it, they see the change a
// little later.
//
// Lead returns only when no fn runs. If fn is nil, it returns an error at once. If Lead ends while the process does
// not lead, its error says why:
//
//   - The error of ctx and its cause. ErrFailed comes with it if another candidate led at the last attempt, or
//     ErrNoQuorum if too few nodes answered it: see LockContext.
//   - After the time of WithWait the same without the error of ctx.
//   - ErrClosed, ErrDuplicateNode or ErrNoPools.
//   - An error that names an option or a name that cannot be used. Lead excludes WithShared, WithPermits, WithValue
//     and WithSequencer.
//   - ErrNested or ErrUpgrade, if ctx comes from a Do that holds the name.
//   - ErrNoQuorum, with a *RedisError for each node that will deny the lock until somebody changes the settings of
//     the node or of the client (NOPERM, NOAUTH, WRONGPASS, DENIED, CROSSSLOT). Lead ends with these errors once the
//     other nodes are no quorum. If a node forbids only the queues, candidates wait without them.
//   - The error of the function of WithGenValueFunc, or a negative delay of WithRetryDelayFunc.
//
// If an earlier term was lost, the error includes that loss and what fn returned in that term only if Lead has made
// no attempt since.
func (r *Redsync) Lead(ctx context.Context, name string, fn func(context.Context) error, options ...Option) error {
	m := r.NewMutex(name, slices.Concat(options, []Option{OptionFunc(leads)})...)
	if fn == nil {
		return m.failure("lead", errNilFunc)
	}
	return m.lead(orBackground(ctx), fn)
}

// leads is the option that makes a Mutex one of Lead.
func leads(m *Mutex) {
	set := m.change()
	set.leads, set.fencing = true, true
}

// lead does what Lead does, with the name and the options of m. Each term has a Mutex of its own. Otherwise code of a
// former term that still runs would get the token of the new term from FromContext.
func (m *Mutex) lead(ctx context.Context, fn func(context.Context) error) error {
	for {
		again, err := m.twin().leadOnce(ctx, fn)
		if !again {
			return err
		}
		// The pause lets other candidates come first, and it keeps terms that are lost at once from following each
		// other quickly. The retry delay of the user is not used, because it may be 0, or as long as an hour.
		if !m.core.keeper.Pause(ctx, defaultDelay(0), nil) {
			return errors.Join(err, m.failure("lead", m.interruption(ctx)))
		}
	}
}

// leadOnce campaigns until m leads, and calls fn. It returns true if the term was lost, so that Lead campaigns again.
func (m *Mutex) leadOnce(ctx context.Context, fn func(context.Context) error) (again bool, err error) {
	h, err := m.lock(ctx, false, true)
	if err != nil {
		// If this goroutine was held up, the term was over before it had begun, so Lead campaigns again. No
		// other error goes away by itself.
		return errors.Is(err, errTooLate) && ctx.Err() == nil && !m.core.keeper.IsClosed(), err
	}
	watch.Tell(&m.core.keeper, m.room.Name(), watch.Leads)
	defer watch.Tell(&m.core.keeper, m.room.Name(), watch.Leaves) // after the release, also if fn panics
	return m.whileHeld(ctx, h, fn)
}
