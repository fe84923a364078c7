package redsyncotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/seed14bd9ef4/redsync"
)

// Do is rs.Do with a span "redsync.do" around fn. The context of fn has this span, which is a child of the span in ctx. So
// the spans of Lock and Unlock, which the hooks make, stand beside it. The tracer is that of the span in ctx, or else
// that of otel.GetTracerProvider.
//
// The span also ends if fn panics. If fn returns an error or panics, the status of the span is Error, with the error.type
// of README.md ("panic" for a panic) instead of the text of the error. It is no error if fn stops because ctx was canceled.
//
// If a provider, a span processor or an exporter panics, otel.Handle is told once, and Do returns what it would return
// without.
func Do(
	ctx context.Context, rs *redsync.Redsync, name string, fn func(context.Context) error, options ...redsync.Option,
) error {
	return rs.Do(ctx, name, spanned("redsync.do", fn), options...)
}

// Lead is rs.Lead with a span "redsync.lead" around each call of fn: one for each term. All else is as with Do.
func Lead(
	ctx context.Context, rs *redsync.Redsync, name string, fn func(context.Context) error, options ...redsync.Option,
) error {
	return rs.Lead(ctx, name, spanned("redsync.lead", fn), options...)
}

// spanned returns fn with a span around it, nil for nil.
func spanned(name string, fn func(context.Context) error) func(context.Context) error {
	if fn == nil {
		return nil
	}
	return func(ctx context.Context) error {
		ctx, span := begun(ctx, name)
		status := "panic" // or runtime.Goexit
		defer func() {
			defer caught() // a panic of span's; one of fn's goes on
			// In a deferred closure, because an End that is deferred itself would note the text of the panic.
			if status != "" {
				span.SetAttributes(keyErrorType.String(status))
			}
			if status != "" && status != typeCanceled {
				span.SetStatus(codes.Error, status)
			}
			span.End()
		}()
		err := fn(ctx)
		status = resultType(ctx, err)
		return err
	}
}

// begun starts a span. If the provider panics, the function runs without one.
func begun(ctx context.Context, name string) (inside context.Context, span trace.Span) {
	defer func() {
		if v := recover(); v != nil {
			report(v)
			inside, span = ctx, noop.Span{}
		}
	}()
	return tracerOf(ctx).Start(ctx, name)
}

// resultType returns the error.type of what a function has returned. If it stopped because its lock was lost, that is why
// the lock was lost.
func resultType(ctx context.Context, err error) string {
	why := context.Cause(ctx)
	if err != nil && errors.Is(err, context.Canceled) && errors.Is(why, redsync.ErrLockLost) {
		ctx, err = context.WithoutCancel(ctx), why
	}
	return errorType(ctx, err)
}

// tracerOf returns the tracer of the span in ctx, or else of the global provider.
func tracerOf(ctx context.Context) trace.Tracer {
	span := trace.SpanFromContext(ctx)
	if sc := span.SpanContext(); sc.IsValid() && !sc.IsRemote() { // a remote span has a tracer that makes nothing
		return span.TracerProvider().Tracer(scopeName, trace.WithInstrumentationVersion(version()))
	}
	return otel.GetTracerProvider().Tracer(scopeName, trace.WithInstrumentationVersion(version()))
}
