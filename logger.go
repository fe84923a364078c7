package redsync

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/journal"
	"github.com/seed14bd9ef4/redsync/observe"
)

// This file writes the log. What lasts, or happens to many locks at once, goes through the Redsync's journal, which
// says it once.

// denialsRepeat is long, because somebody must change the node.
const denialsRepeat = time.Hour

// logLines writes the lines of one logger of WithLogger.
type logLines struct {
	log    *slog.Logger
	states *journal.Journal
}

func (l *logLines) hooks() *observe.Hooks {
	return &observe.Hooks{
		Attempt:            l.attempt,
		Acquired:           l.acquired,
		NotAcquired:        l.notAcquired,
		Extended:           l.extended,
		Released:           l.released,
		Detached:           l.detached,
		Lost:               l.lost,
		ReleaseUnconfirmed: l.releaseUnconfirmed,
		WakeUpDenied:       l.wakeUpDenied,
		NodeDown:           l.nodeDown,
		NodeUp:             l.nodeUp,
		OneServer:          l.oneServer,
		TwoServers:         l.twoServers,
		RegisterIgnored:    l.registerIgnored,
		EventsDropped:      l.eventsDropped,
	}
}

func (l *logLines) attempt(ctx context.Context, a observe.Attempt) {
	switch {
	case errors.Is(a.Err, errForeign):
		l.rarely(ctx, journal.Every, "redsync: a key has another type", a.Name, 0, a.Err)
	case errors.Is(a.Err, errNameDenied):
		l.rarely(ctx, journal.Every, "redsync: the nodes deny the name of the lock", a.Name, 0, a.Err)
	case errors.Is(a.Err, ErrNoQuorum):
		l.states.NoQuorum(l.log, journal.Trouble{
			Name: a.Name, Tries: a.Try, Joins: ctx.Value(joinsKey{}) != nil, Err: a.Err,
			Op: journal.Locks, Denied: errors.Is(a.Err, errDenied),
		})
	case a.Err == nil || errors.Is(a.Err, ErrFailed):
		l.states.Answered(l.log, journal.Locks, nil, a.Start)
	}
	message := "redsync: attempt won"
	if a.Err != nil {
		message = "redsync: attempt failed"
	}
	l.debug(ctx, message, a.Name, a.Err, "try", a.Try, "took", a.Took,
		"granted", a.Granted, "refused", a.Refused, "failed", a.Failed)
}

func (l *logLines) acquired(ctx context.Context, a observe.Acquired) {
	l.debug(ctx, "redsync: acquired", a.Name, nil, "took", a.Took, "waited", a.Waited, "tries", a.Tries, "left", a.Left)
}

func (l *logLines) notAcquired(ctx context.Context, n observe.NotAcquired) {
	l.debug(ctx, "redsync: not acquired", n.Name, n.Err, "took", n.Took)
}

// extended writes a Warn only if the nodes answered and did not extend the lock. A lost lock has its own line.
func (l *logLines) extended(ctx context.Context, e observe.Extended) {
	level, message := slog.LevelDebug, "redsync: extended"
	args := []any{"watchdog", e.Watchdog, "took", e.Took, "left", e.Left}
	switch {
	case e.Err == nil:
		l.states.Answered(l.log, journal.Extends, extendedBy(ctx), e.Start)
	case errors.Is(e.Err, ErrNoQuorum):
		message = "redsync: extend failed"
		l.states.NoQuorum(l.log, journal.Trouble{
			Name: e.Name, Held: extendedBy(ctx), Err: e.Err, Op: journal.Extends, Denied: errors.Is(e.Err, errDenied),
		})
	default:
		message = "redsync: extend failed"
		if !isExpected(e.Err) && !errors.Is(e.Err, ErrLockLost) {
			if total, say := l.states.Rarely(l.log, journal.Subject{Message: message}, 1, journal.Every); say {
				level, args = slog.LevelWarn, andOmitted(args, total)
			}
		}
	}
	l.write(ctx, level, message, e.Name, e.Err, args...)
}

// released writes the Error of a loss that Unlock has found. Any other loss has its line already.
func (l *logLines) released(ctx context.Context, r observe.Released) {
	args := []any{"held", r.Held, "left", r.Left, "took", r.Took}
	switch {
	case r.Err == nil:
		l.states.Answered(l.log, journal.Unlocks, nil, r.Start)
		l.debug(ctx, "redsync: unlocked", r.Name, nil, args...)
		return
	case errors.Is(r.Err, ErrNoQuorum):
		l.states.NoQuorum(l.log, journal.Trouble{Name: r.Name, Err: r.Err, Op: journal.Unlocks, Denied: errors.Is(r.Err, errDenied)})
	case r.Ended && errors.Is(r.Err, ErrLockAlreadyExpired) && !isExpected(r.Err):
		l.write(ctx, slog.LevelError, "redsync: lost", r.Name, r.Err, "held", r.Held)
	}
	l.debug(ctx, "redsync: unlock failed", r.Name, r.Err, args...)
}

func (l *logLines) detached(ctx context.Context, d observe.Detached) {
	l.debug(ctx, "redsync: detached", d.Name, nil, "held", d.Held, "left", d.Left, "took", d.Took)
}

func (l *logLines) lost(ctx context.Context, lost observe.Lost) {
	level := slog.LevelError
	if errors.Is(lost.Err, ErrClosed) { // the program has called Close
		level = slog.LevelDebug
	}
	l.write(ctx, level, "redsync: lost", lost.Name, lost.Err, "held", lost.Held)
}

func (l *logLines) releaseUnconfirmed(ctx context.Context, u observe.ReleaseUnconfirmed) {
	if u.Name == "" { // at the end of Close
		l.states.AddLeft(l.log, journal.Left{
			Node: u.Node, Address: u.Address, Releases: u.Pending, Within: u.Within, Err: u.Err,
		})
		return
	}
	args := []any{"node", u.Node, "address", u.Address, "pending", u.Pending}
	if !u.GivenUp {
		l.debug(ctx, "redsync: release will be repeated", u.Name, u.Err, args...)
		return
	}
	l.rarely(ctx, journal.Every, "redsync: release given up", u.Name, u.Node, u.Err, args...)
}

func (l *logLines) wakeUpDenied(ctx context.Context, u observe.WakeUpDenied) {
	l.rarely(ctx, denialsRepeat, "redsync: the node does not let waiters be woken", u.Name, u.Node, u.Err,
		"node", u.Node, "address", u.Address)
}

func (l *logLines) nodeDown(_ context.Context, d observe.NodeDown) {
	l.states.NodeDown(l.log, d.Node, d.Address, d.Omitted, d.Err)
}

func (l *logLines) nodeUp(_ context.Context, u observe.NodeUp) {
	l.states.NodeUp(u.Node, u.Down)
}

func (l *logLines) oneServer(_ context.Context, o observe.OneServer) {
	l.states.OneServer(l.log, o.Nodes, o.Addresses, o.RunID)
}

func (l *logLines) twoServers(_ context.Context, t observe.TwoServers) {
	l.states.TwoServers(t.Nodes)
}

func (l *logLines) registerIgnored(ctx context.Context, r observe.RegisterIgnored) {
	l.rarely(ctx, journal.Every, "redsync: a fencing register is ignored", r.Name, r.Node, r.Err,
		"node", r.Node, "address", r.Address)
}

func (l *logLines) eventsDropped(ctx context.Context, d observe.EventsDropped) {
	const message = "redsync: events were dropped"
	l.states.ForgetNodes()
	if total, say := l.states.Rarely(l.log, journal.Subject{Message: message}, d.Events, journal.Every); say {
		l.log.WarnContext(ctx, message, "events", total)
	}
}

// isExpected reports whether an operation failed because of what the program has done, or of WithMaxHold.
func isExpected(err error) bool {
	for _, cause := range []error{context.Canceled, context.DeadlineExceeded, ErrNotHeld, ErrClosed, ErrMaxHold} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

// rarely writes a Warn, at most once in per for a node (0 for none).
func (l *logLines) rarely(
	ctx context.Context, per time.Duration, message, name string, node int, err error, args ...any,
) {
	total, say := l.states.Rarely(l.log, journal.Subject{Message: message, Node: node}, 1, per)
	if say {
		l.write(ctx, slog.LevelWarn, message, name, err, andOmitted(args, total)...)
	}
}

func andOmitted(args []any, total int) []any {
	if total > 1 {
		args = append(args, "omitted", total-1)
	}
	return args
}

func (l *logLines) debug(ctx context.Context, message, name string, err error, args ...any) {
	l.write(ctx, slog.LevelDebug, message, name, err, args...)
}

func (l *logLines) write(ctx context.Context, level slog.Level, message, name string, err error, args ...any) {
	if !l.log.Enabled(ctx, level) {
		return
	}
	if err != nil {
		args = append(args, "error", err)
	}
	if name != "" {
		args = append([]any{"lock", journal.CutName(name)}, args...)
	}
	l.log.Log(ctx, level, message, args...)
}
