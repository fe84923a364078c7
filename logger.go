package redsync

import (
	"context"
	"errors"
	"log/slog"
)

// This file is the observer that writes a log.

// logObserver is the observer of WithLogger.
type logObserver struct{ log *slog.Logger }

func (l *logObserver) ObserveAttempt(a Attempt) {
	level, message := outcome(a.Err, "redsync: attempt won", "redsync: attempt failed")
	var taken *ErrTaken
	if errors.As(a.Err, &taken) || errors.Is(a.Err, context.Canceled) {
		level = slog.LevelDebug
	}
	l.write(level, message, a.Name, a.Err, "try", a.Try, "took", a.Took,
		"granted", a.Granted, "refused", a.Refused, "failed", a.Failed)
}

func (l *logObserver) ObserveAcquired(a Acquired) {
	l.write(slog.LevelDebug, "redsync: acquired", a.Name, nil, "waited", a.Waited, "tries", a.Tries, "left", a.Left)
}

func (l *logObserver) ObserveExtended(e Extended) {
	level, message := outcome(e.Err, "redsync: extended", "redsync: extend failed")
	l.write(level, message, e.Name, e.Err, "watchdog", e.Watchdog, "took", e.Took, "left", e.Left)
}

func (l *logObserver) ObserveReleased(r Released) {
	level, message := outcome(r.Err, "redsync: unlocked", "redsync: unlock failed")
	l.write(level, message, r.Name, r.Err, "held", r.Held, "left", r.Left, "took", r.Took)
}

func (l *logObserver) ObserveDetached(d Detached) {
	l.write(slog.LevelDebug, "redsync: detached", d.Name, nil, "held", d.Held, "left", d.Left)
}

func (l *logObserver) ObserveLost(lost Lost) {
	level := slog.LevelError
	if errors.Is(lost.Err, ErrClosed) { // as was asked for
		level = slog.LevelDebug
	}
	l.write(level, "redsync: lost", lost.Name, lost.Err, "held", lost.Held)
}

func (l *logObserver) ObserveUnsettled(u Unsettled) {
	level, message := slog.LevelDebug, "redsync: release will be repeated"
	if u.Dropped {
		level, message = slog.LevelWarn, "redsync: release given up"
	}
	l.write(level, message, u.Name, u.Err, "node", u.Node, "pending", u.Pending)
}

func (l *logObserver) ObserveUnwoken(u Unwoken) {
	l.write(slog.LevelWarn, "redsync: nobody is woken by the node", u.Name, u.Err, "node", u.Node)
}

func (l *logObserver) ObserveNodeDown(d NodeDown) {
	args := []any{"node", d.Node, "address", d.Address, "error", d.Err}
	if d.Omitted > 0 {
		args = append(args, "omitted", d.Omitted)
	}
	l.log.Warn("redsync: node is down", args...)
}

func (l *logObserver) ObserveNodeUp(u NodeUp) {
	l.log.Info("redsync: node is up again", "node", u.Node, "address", u.Address, "down", u.Down)
}

func (l *logObserver) ObserveMissed(m Missed) {
	l.log.Warn("redsync: events were dropped", "events", m.Events)
}

// outcome returns what to write of something that succeeded or failed.
func outcome(err error, success, failure string) (slog.Level, string) {
	if err != nil {
		return slog.LevelWarn, failure
	}
	return slog.LevelDebug, success
}

func (l *logObserver) write(level slog.Level, message, name string, err error, args ...any) {
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	if err != nil {
		args = append(args, "error", err)
	}
	l.log.Log(context.Background(), level, message, append([]any{"lock", name}, args...)...)
}
