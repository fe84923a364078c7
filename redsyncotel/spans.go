package redsyncotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed14bd9ef4/redsync/observe"
)

// spans makes the spans of calls, at their end.
type spans struct {
	tracer         trace.Tracer
	watchdogSilent bool
}

// lock makes the span of a Lock.
func (s *spans) lock(ctx context.Context, t *table, p point, start time.Time, took time.Duration, err error) {
	s.ofCall(ctx, "redsync.lock", t, p, start, took, err)
}

// unlock makes the span of an Unlock.
func (s *spans) unlock(ctx context.Context, t *table, p point, r observe.Released) {
	s.ofCall(ctx, "redsync.unlock", t, p, r.Start, r.Took, r.Err)
}

// extend makes the span of an extension. The watchdog extends a lock when the span in whose context it was acquired may
// have ended long since, so its span is no child of that one, but has a link to it. A span that is not sampled would be
// linked to nothing.
func (s *spans) extend(ctx context.Context, t *table, p point, e observe.Extended) {
	const name = "redsync.extend"
	switch {
	case !e.Watchdog:
		s.ofCall(ctx, name, t, p, e.Start, e.Took, e.Err)
	case !s.watchdogSilent && trace.SpanContextFromContext(ctx).IsSampled():
		s.add(ctx, name, t, p, e.Start, e.Took, e.Err, trace.WithNewRoot(), trace.WithLinks(trace.LinkFromContext(ctx)))
	}
}

// ofCall makes a child of the caller's span. Without one there is no span: it would be a trace of its own. Nor is there one
// if nobody stores the caller's span: to ask the sampler for a child of it would allocate for each call.
func (s *spans) ofCall(
	ctx context.Context, name string, t *table, p point, start time.Time, took time.Duration, err error,
) {
	if parent := trace.SpanFromContext(ctx); parent.SpanContext().IsSampled() || parent.IsRecording() {
		s.add(ctx, name, t, p, start, took, err)
	}
}

func (s *spans) add(
	ctx context.Context, name string, t *table, p point, start time.Time, took time.Duration, err error,
	more ...trace.SpanStartOption,
) {
	_, span := s.tracer.Start(ctx, name, append(more, trace.WithTimestamp(start))...)
	if span.IsRecording() {
		span.SetAttributes(p.attributes(t.name)...)
		// That others have the lock, or that the caller has canceled the call, is no failure.
		if err != nil && p.outcome != outcomeTaken && contextType(ctx, err) != typeCanceled {
			span.SetStatus(codes.Error, p.errorType)
		}
	}
	span.End(trace.WithTimestamp(start.Add(took)))
}
