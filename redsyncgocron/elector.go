package redsyncgocron

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
)

// again is how long an Elector pauses after an error of Lead that may mend. Nodes that deny a lock do so until somebody
// changes their settings.
const again = 10 * time.Second

// An Elector makes one of several schedulers run the jobs: the one whose process leads. Make one with NewElector, for
// gocron.WithDistributedElector. Many goroutines and schedulers may use it at once.
type Elector struct {
	config
	name     string
	stop     context.CancelFunc
	stopping <-chan struct{} // closed when the Elector is to resign
	done     chan struct{}   // closed when it has
	released error           // why the resignation is unconfirmed; set before done is closed

	term    atomic.Pointer[redsync.Mutex] // the last one; nil before the first
	resigns bool                          // the last term has ended by a resignation. Only run and lead use it

	mu  sync.Mutex
	why error // why nobody can be elected; nil if nodes decide
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector that campaigns for the leadership of a name until Shutdown, or until ctx ends. Both are a
// resignation: another candidate leads at once. All processes must use the same name and the same nodes. NewElector waits
// for no node, so the process does not lead yet when it returns.
//
// It returns an error if ctx is done, or if the name or an option cannot be used. What only Lead finds out, IsLeader
// returns, and WithReport tells: nodes that deny the lock, for example. The expiry of the leadership is that of rs (8 s by
// default). If a leader crashes, another process leads after at most that time. A WithWait of rs has no effect.
func NewElector(ctx context.Context, rs *redsync.Redsync, name string, options ...Option) (*Elector, error) { //nolint:contextcheck // nil is allowed
	if ctx == nil {
		ctx = context.Background() // as in package redsync
	}
	c := configured(options)
	if err := errors.Join(c.err, context.Cause(ctx)); err != nil {
		return nil, err
	}
	if err := usable(rs.NewMutex(c.prefix + name)); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	e := &Elector{config: c, name: name, stop: stop, stopping: ctx.Done(), done: make(chan struct{})}
	go e.run(ctx, rs.With(redsync.WithHooks(&observe.Hooks{Attempt: e.attempted})))
	return e, nil
}

// usable returns an error if m has a name or options that cannot be used. It sends nothing.
func usable(m *redsync.Mutex) error {
	if m.Value() != "" {
		return nil // Unlock would release the lock that m adopts; Lead says that it excludes that
	}
	if _, err := m.Unlock(); !errors.Is(err, redsync.ErrNotHeld) {
		return err
	}
	return nil
}

// IsLeader implements gocron.Elector. It returns nil while this process leads. It sends nothing, and goes by the clocks of
// this process: it returns an error from the end of the validity on, even if no node can be reached, so before another
// process can lead.
//
// The error matches redsync.ErrNotHeld. If nobody can be elected, it also says why: it matches redsync.ErrNoQuorum if too
// few nodes answer, or is what has ended the campaign. ctx has no effect.
//
// gocron asks before each run, and not during a run. So a job that has begun goes on after the leadership is lost.
func (e *Elector) IsLeader(context.Context) error {
	stopping := isClosed(e.stopping)
	if m := e.term.Load(); m != nil && m.Remaining() > 0 && !stopping {
		return nil
	}
	why := e.reason()
	switch {
	case why != nil:
		return fmt.Errorf("redsyncgocron: %q does not lead: %w: %w", e.name, redsync.ErrNotHeld, why)
	case stopping:
		return fmt.Errorf("redsyncgocron: %q has resigned: %w", e.name, redsync.ErrNotHeld)
	}
	return fmt.Errorf("redsyncgocron: %q does not lead: %w", e.name, redsync.ErrNotHeld)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Shutdown resigns, and waits until the leadership is released and nothing of the Elector runs any more, or until ctx ends.
// From its beginning on, IsLeader returns an error. Call it after the Shutdown of the scheduler and before the Close of rs.
//
// The error matches redsync.ErrNoQuorum if too few nodes have confirmed the release. The next leader then may have to wait
// until the leadership expires. If ctx ends first, the error is that of ctx, and the resignation goes on. Shutdown may be
// called again.
func (e *Elector) Shutdown(ctx context.Context) error {
	e.stop()
	if isClosed(e.done) {
		return e.released // also if ctx is done, too
	}
	select {
	case <-e.done:
		return e.released
	case <-ctx.Done():
		return fmt.Errorf("redsyncgocron: %q: the resignation goes on: %w", e.name, context.Cause(ctx))
	}
}

// run campaigns until ctx ends, or until an error that does not mend.
func (e *Elector) run(ctx context.Context, rs *redsync.Redsync) {
	defer close(e.done)
	defer e.stop()
	for {
		err := rs.Lead(ctx, e.prefix+e.name, e.lead, redsync.WithTries(0)) // in place of a WithWait of rs
		if ctx.Err() != nil {
			e.resigned(err)
			return
		}
		e.failed(err)
		if !mends(err) || !pause(ctx, again) {
			return
		}
	}
}

// resigned notes the end of the campaign. err is what Lead has returned after the end of its context: the error of
// the context if the process did not lead, and otherwise why the leadership could not be released, or nil.
func (e *Elector) resigned(err error) {
	e.note(nil)
	if !e.resigns || err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return // without a term that has ended by it, Lead may just have failed for another reason
	}
	e.released = err
	e.report(Event{NotReleased, e.name, err})
}

// lead is one term.
func (e *Elector) lead(ctx context.Context) error {
	e.term.Store(redsync.FromContext(ctx))
	<-ctx.Done()
	why := context.Cause(ctx)
	if e.resigns = !errors.Is(why, redsync.ErrLockLost); !e.resigns {
		e.report(Event{Lost, e.name, why})
	}
	return nil
}

// failed notes why nobody can be elected. It reports that unless an earlier failure, which may mend, was reported and nodes
// have decided nothing since.
func (e *Elector) failed(err error) {
	if isNew := e.note(err); isNew || !mends(err) {
		e.report(Event{NotElected, e.name, err})
	}
}

// reason returns why nobody can be elected, nil if nodes decide.
func (e *Elector) reason() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.why
}

// note notes why nobody can be elected, nil if nodes decide. It reports whether nothing was noted before.
func (e *Elector) note(why error) (isNew bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	isNew, e.why = e.why == nil, why
	return isNew
}

// mends reports whether Lead may go better if it is called again: once somebody has changed the settings of the nodes that
// have denied the lock, or where an address leads.
func mends(err error) bool {
	return errors.Is(err, redsync.ErrNoQuorum) || errors.Is(err, redsync.ErrDuplicateNode)
}

// pause returns false if ctx ends before d has passed.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// attempted is told of the attempts of Lead, which goes on silently while too few nodes answer.
func (e *Elector) attempted(_ context.Context, a observe.Attempt) {
	switch {
	case a.Err == nil, errors.Is(a.Err, redsync.ErrFailed):
		e.note(nil)
	case errors.Is(a.Err, redsync.ErrNoQuorum):
		e.failed(a.Err)
	}
}
