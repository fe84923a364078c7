package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
)

func TestLogLines(t *testing.T) {
	for _, c := range []struct {
		name string
		log  func(*slog.Logger)
		want []string
	}{
		{"attributes", func(l *slog.Logger) { l.Warn("redsync: node is down", "node", 2, "error", errors.New("no route")) }, []string{"redsync: node is down, node: 2, error: no route"}},
		{"a duration is rounded", func(l *slog.Logger) { l.Info("said", "left", 1234567*time.Microsecond) }, []string{"said, left: 1.235s"}},
		{"those of the logger come first", func(l *slog.Logger) {
			with := l.With("a", 1)
			with.With("b", 2).Warn("x", "d", 4)
			with.With("c", 3).Warn("y")
		}, []string{"x, a: 1, b: 2, d: 4", "y, a: 1, c: 3"}},
		{"groups are flat", func(l *slog.Logger) { l.WithGroup("g").Warn("x", "a", 1) }, []string{"x, a: 1"}},
		{"the holder says a loss itself", func(l *slog.Logger) { l.Warn("redsync: lost", "lock", "job") }, nil},
		{"details are not for people", func(l *slog.Logger) { l.Debug("x") }, nil},
	} {
		var got []string
		c.log(slog.New(&logLines{say: func(s string) { got = append(got, s) }}))
		require.Equal(t, c.want, got, c.name)
	}
}

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"a lock":          "redsync: a lock\n",
		"redsync: a lock": "redsync: a lock\n",
		"one\ntwo":        "redsync: one two\n",
		"\x1b]0;x\a\x9b":  `redsync: \x1b]0;x\a\x9b` + "\n",
	} {
		var got bytes.Buffer
		line(&got, text)
		require.Equal(t, want, got.String())
	}
}

func TestDenials(t *testing.T) {
	denies := &redsync.RedisError{Node: 1, Err: denial()}
	down := &redsync.RedisError{Node: 2, Err: errors.New("connection refused")}
	no := func(errs ...error) error { return errors.Join(redsync.ErrNoQuorum, &multierror.Error{Errors: errs}) }
	for err, ends := range map[error]bool{
		nil: false, redsync.ErrFailed: false,
		no(denies, denies, denies): true, no(denies, denies, down): false, no(down, denies, denies): false,
		no(denies, denies, errors.New("silent")):   false,
		&multierror.Error{Errors: []error{denies}}: false, // a quorum has answered
	} {
		ctx, cancel := context.WithCancelCause(context.Background())
		(&denials{cancel}).attempted(ctx, observe.Attempt{Err: err})
		var denied *redsync.RedisError
		require.Equal(t, ends, errors.As(context.Cause(ctx), &denied), err)
		cancel(nil)
	}
}

// denial is the answer of a node that lacks a permission.
func denial() error {
	return redisError("NOPERM User robot has no permissions to run the 'set' command")
}

// redisError is an answer that begins with the kind of the error, as go-redis returns it.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}
