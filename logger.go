package redsync

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/observe"
)

// This file is the observer that writes a log.

// logObserver is the observer of WithLogger.
type logObserver struct{ log *slog.Logger }

func (l *logObserver) ObserveAttempt(ctx context.Context, a observe.Attempt) {
	level, message := outcome(a.Err, "redsync: attempt won", "redsync: attempt failed")
	ended := errors.Is(a.Err, context.Canceled) || errors.Is(a.Err, context.DeadlineExceeded)
	if errors.Is(a.Err, ErrFailed) || ended && !errors.Is(a.Err, ErrNoQuorum) {
		level = slog.LevelDebug
	}
	l.write(ctx, level, message, a.Name, a.Err, "try", a.Try, "took", a.Took,
		"granted", a.Granted, "refused", a.Refused, "failed", a.Failed)
}

func (l *logObserver) ObserveAcquired(ctx context.Context, a observe.Acquired) {
	l.write(ctx, slog.LevelDebug, "redsync: acquired", a.Name, nil, "took", a.Took, "waited", a.Waited, "tries", a.Tries, "left", a.Left)
}

func (l *logObserver) ObserveNotAcquired(ctx context.Context, n observe.NotAcquired) {
	l.write(ctx, slog.LevelDebug, "redsync: not acquired", n.Name, n.Err, "took", n.Took)
}

func (l *logObserver) ObserveExtended(ctx context.Context, e observe.Extended) {
	level, message := outcome(e.Err, "redsync: extended", "redsync: extend failed")
	l.write(ctx, level, message, e.Name, e.Err, "watchdog", e.Watchdog, "took", e.Took, "left", e.Left)
}

func (l *logObserver) ObserveReleased(ctx context.Context, r observe.Released) {
	level, message := outcome(r.Err, "redsync: unlocked", "redsync: unlock failed")
	l.write(ctx, level, message, r.Name, r.Err, "held", r.Held, "left", r.Left, "took", r.Took)
}

func (l *logObserver) ObserveDetached(ctx context.Context, d observe.Detached) {
	l.write(ctx, slog.LevelDebug, "redsync: detached", d.Name, nil, "held", d.Held, "left", d.Left, "took", d.Took)
}

func (l *logObserver) ObserveLost(ctx context.Context, lost observe.Lost) {
	level := slog.LevelError
	if errors.Is(lost.Err, ErrClosed) { // the program has called Close, so the loss is no error
		level = slog.LevelDebug
	}
	l.write(ctx, level, "redsync: lost", lost.Name, lost.Err, "held", lost.Held)
}

func (l *logObserver) ObserveReleaseUnconfirmed(ctx context.Context, u observe.ReleaseUnconfirmed) {
	level, message := slog.LevelDebug, "redsync: release will be repeated"
	if u.GivenUp {
		level, message = slog.LevelWarn, "redsync: release given up"
	}
	if u.Name == "" { // at the end of Close
		l.log.Log(ctx, level, "redsync: releases given up", "node", u.Node, "releases", u.Pending, "error", u.Err)
		return
	}
	l.write(ctx, level, message, u.Name, u.Err, "node", u.Node, "pending", u.Pending)
}

func (l *logObserver) ObserveWakeUpDenied(ctx context.Context, u observe.WakeUpDenied) {
	l.write(ctx, slog.LevelWarn, "redsync: the node does not let waiters be woken", u.Name, u.Err, "node", u.Node)
}

func (l *logObserver) ObserveNodeDown(ctx context.Context, d observe.NodeDown) {
	args := []any{"node", d.Node, "address", d.Address, "error", d.Err}
	if d.Omitted > 0 {
		args = append(args, "omitted", d.Omitted)
	}
	l.log.WarnContext(ctx, "redsync: node is down", args...)
}

func (l *logObserver) ObserveNodeUp(ctx context.Context, u observe.NodeUp) {
	l.log.InfoContext(ctx, "redsync: node is up again", "node", u.Node, "address", u.Address, "down", u.Down)
}

func (l *logObserver) ObserveOneServer(ctx context.Context, o observe.OneServer) {
	l.log.WarnContext(ctx, "redsync: two nodes are one server, which counts once", "nodes", o.Nodes[:],
		"addresses", o.Addresses[:], "run_id", o.RunID)
}

func (l *logObserver) ObserveTwoServers(ctx context.Context, t observe.TwoServers) {
	l.log.InfoContext(ctx, "redsync: the two nodes are different servers again", "nodes", t.Nodes[:], "addresses", t.Addresses[:])
}

func (l *logObserver) ObserveRegisterIgnored(ctx context.Context, r observe.RegisterIgnored) {
	l.write(ctx, slog.LevelWarn, "redsync: a fencing register is ignored", r.Name, r.Err, "node", r.Node, "address", r.Address)
}

func (l *logObserver) ObserveEventsDropped(ctx context.Context, d observe.EventsDropped) {
	l.log.WarnContext(ctx, "redsync: events were dropped", "events", d.Events)
}

// outcome returns the level and the message for an event: success if err is nil, failure otherwise.
func outcome(err error, success, failure string) (slog.Level, string) {
	if err != nil {
		return slog.LevelWarn, failure
	}
	return slog.LevelDebug, success
}

func (l *logObserver) write(ctx context.Context, level slog.Level, message, name string, err error, args ...any) {
	if !l.log.Enabled(ctx, level) {
		return
	}
	if err != nil {
		args = append(args, "error", err)
	}
	l.log.Log(ctx, level, message, append([]any{"lock", cutName(name)}, args...)...)
}

// pingPause is how long Ping does not repeat a line.
const pingPause = 10 * time.Second

// pinged is what the last line of Ping was about.
type pinged struct {
	mu       sync.Mutex
	answered claim.Nodes
	at       time.Time
}

// isNew reports whether Ping must write a line: these nodes answered, and others did not.
func (p *pinged) isNew(answered claim.Nodes) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if answered == p.answered && time.Since(p.at) < pingPause {
		return false
	}
	p.answered, p.at = answered, time.Now()
	return true
}
