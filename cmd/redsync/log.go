package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// logLines is a handler that says the warnings of the library in lines for people. A loss is not among them, because the
// holder says it, with what becomes of COMMAND.
type logLines struct {
	say   func(string)
	attrs []slog.Attr
}

func (*logLines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l *logLines) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "redsync: lost" {
		return nil
	}
	var text strings.Builder
	text.WriteString(r.Message)
	write := func(a slog.Attr) bool {
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(a.Value.Duration().Round(time.Millisecond).String())
		}
		fmt.Fprintf(&text, ", %s: %v", a.Key, a.Value)
		return true
	}
	for _, a := range l.attrs {
		write(a)
	}
	r.Attrs(write)
	l.say(text.String())
	return nil
}

func (l *logLines) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logLines{l.say, append(l.attrs[:len(l.attrs):len(l.attrs)], attrs...)}
}

func (l *logLines) WithGroup(string) slog.Handler { return l }
