package redsyncotel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/redsyncotel"
)

// parent runs do in a span of the program, and returns this span and those that were made meanwhile.
func (k kit) parent(do func(ctx context.Context)) (trace.SpanContext, tracetest.SpanStubs) {
	ctx, span := k.tracer.Start(k.Context(), "parent")
	do(ctx)
	made := k.exporter.GetSpans() // not the parent, which has not ended
	span.End()
	k.exporter.Reset()
	return span.SpanContext(), made
}

func names(spans tracetest.SpanStubs) (all []string) {
	for _, s := range spans {
		all = append(all, s.Name)
	}
	return all
}

// The spans of calls are children of the caller's span, and have the times of the calls.
func TestSpansOfCallsAreChildrenOfTheCallers(t *testing.T) {
	onKit(t, func(k kit) {
		other := k.held()
		start := time.Now()
		m := k.mutex()
		parent, spans := k.parent(func(ctx context.Context) {
			time.AfterFunc(100*time.Millisecond, func() { k.unlock(other) })
			require.NoError(k, m.LockContext(ctx))
			_, err := m.ExtendContext(ctx)
			require.NoError(k, err)
			_, err = m.UnlockContext(ctx)
			require.NoError(k, err)
		})
		require.Equal(k, []string{"redsync.lock", "redsync.extend", "redsync.unlock"}, names(spans))
		for _, s := range spans {
			assert.Equal(k, parent.SpanID(), s.Parent.SpanID(), s.Name)
			assert.Equal(k, codes.Unset, s.Status.Code, s.Name)
			assert.Equal(k, "(devel)", s.InstrumentationScope.Version, s.Name)
		}
		assert.True(k, start.Equal(spans[0].StartTime))
		assert.Equal(k, 100*time.Millisecond, spans[0].EndTime.Sub(spans[0].StartTime))
		assert.Equal(k, map[string]string{"redsync.mode": "plain", "redsync.outcome": "acquired"}, text(attribute.NewSet(spans[0].Attributes...)))
	})
}

// A call whose context has no span makes none.
func TestNoSpanWithoutASpanOfTheCaller(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held(redsync.WithWatchdog())
		time.Sleep(5 * time.Second)
		k.unlock(m)
		settles()
		assert.Empty(k, k.exporter.GetSpans())
	})
}

// A span that is recorded has children, even if it is not sampled.
func TestSpansOfCallsInASpanThatIsOnlyRecorded(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSampler(recordsOnly{}), sdktrace.WithSpanProcessor(recorder))
	ctx, _ := tracers.Tracer("program").Start(t.Context(), "parent")
	o, _ := observer(t, redsyncotel.WithTracerProvider(tracers))
	tellPair(ctx, o)
	assert.Len(t, recorder.Ended(), 2)
}

type recordsOnly struct{ sdktrace.Sampler }

func (recordsOnly) ShouldSample(sdktrace.SamplingParameters) sdktrace.SamplingResult {
	return sdktrace.SamplingResult{Decision: sdktrace.RecordOnly}
}

// The status of a span is Error if the call failed, unless the lock is taken or the caller has canceled it.
func TestStatusOfSpans(t *testing.T) {
	for name, c := range map[string]struct {
		play func(k kit, ctx context.Context)
		want string // the description of the error
	}{
		"taken": {func(k kit, ctx context.Context) {
			k.mutex().TryLockContext(ctx)
		}, ""},
		"canceled": {func(k kit, ctx context.Context) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			k.mutex().LockContext(ctx)
		}, ""},
		"taken until the deadline": {func(k kit, ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			k.mutex().LockContext(ctx)
		}, ""},
		"frozen until the deadline": {func(k kit, ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			defer cancel()
			k.frozen(func() { k.rs.NewMutex("order:18").LockContext(ctx) })
		}, "deadline_exceeded"},
		"no quorum": {func(k kit, ctx context.Context) {
			k.frozen(func() { k.rs.NewMutex("order:18").TryLockContext(ctx) })
		}, "no_quorum"},
		"Unlock of a lock that has expired, after the caller was canceled": {func(k kit, ctx context.Context) {
			m := k.rs.NewMutex("order:18")
			require.NoError(k, m.Lock())
			time.Sleep(5 * time.Second)
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			m.UnlockContext(ctx)
		}, "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			onKit(t, func(k kit) {
				k.held(redsync.WithWatchdog())
				_, spans := k.parent(func(ctx context.Context) { c.play(k, ctx) })
				require.Len(k, spans, 1)
				assert.Equal(k, c.want, spans[0].Status.Description)
				assert.Equal(k, c.want != "", spans[0].Status.Code == codes.Error)
				assert.Equal(k, c.want == "", spans[0].Status.Code == codes.Unset)
			})
		})
	}
}

// Each extension of the watchdog is a trace of its own, with a link to the span in whose context the lock was acquired.
func TestExtensionsOfTheWatchdog(t *testing.T) {
	for _, silent := range []bool{false, true} {
		var options []redsyncotel.Option
		if silent {
			options = append(options, redsyncotel.WithoutWatchdogSpans())
		}
		onKit(t, func(k kit) {
			m := k.mutex(redsync.WithWatchdog())
			parent, _ := k.parent(func(ctx context.Context) { require.NoError(k, m.LockContext(ctx)) })
			time.Sleep(2 * time.Second)
			k.unlock(m)
			settles()
			spans := k.exporter.GetSpans()
			assert.Equal(k, silent, len(spans) == 0)
			for _, s := range spans {
				assert.Equal(k, "redsync.extend", s.Name)
				assert.False(k, s.Parent.IsValid())
				assert.NotEqual(k, parent.TraceID(), s.SpanContext.TraceID())
				require.Len(k, s.Links, 1)
				assert.Equal(k, parent.SpanID(), s.Links[0].SpanContext.SpanID())
			}
			assert.Positive(k, total(collect(k.T, k.reader)["redsync.extend"], "redsync.outcome", "extended"))
		}, options...)
	}
}

// The context of the function has the span of Do, which is a child of the caller's span.
func TestDoPutsASpanAroundTheFunction(t *testing.T) {
	onKit(t, func(k kit) {
		var inner trace.SpanContext
		parent, spans := k.parent(func(ctx context.Context) {
			require.NoError(k, redsyncotel.Do(ctx, k.rs, "order:17", func(ctx context.Context) error {
				inner = trace.SpanContextFromContext(ctx)
				assert.NotNil(k, redsync.FromContext(ctx))
				return nil
			}))
		})
		require.Equal(k, []string{"redsync.lock", "redsync.do", "redsync.unlock"}, names(spans))
		assert.Equal(k, inner.SpanID(), spans[1].SpanContext.SpanID())
		assert.Equal(k, parent.SpanID(), spans[1].Parent.SpanID())
		assert.Equal(k, codes.Unset, spans[1].Status.Code)
		assert.Equal(k, "(devel)", spans[1].InstrumentationScope.Version)
	})
}

// Nobody stores the trace of a span that is not sampled, so no extension has a link to it.
func TestExtensionsWithoutASampledSpan(t *testing.T) {
	onKit(t, func(k kit) {
		caller := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, Remote: true})
		m := k.mutex(redsync.WithWatchdog())
		require.NoError(k, m.LockContext(trace.ContextWithRemoteSpanContext(k.Context(), caller)))
		time.Sleep(20 * time.Second)
		k.unlock(m)
		settles()
		assert.NotContains(k, names(k.exporter.GetSpans()), "redsync.extend")
	})
}

// Errors and panics of the function are in the status of the span, without their text.
func TestDoTellsThatTheFunctionFailed(t *testing.T) {
	secret := errors.New("order:17 of 10.0.0.1:6379")
	for want, fn := range map[string]func(k kit, ctx context.Context) error{
		"_OTHER":    func(kit, context.Context) error { return secret },
		"no_quorum": func(kit, context.Context) error { return fmt.Errorf("%w: %w", redsync.ErrNoQuorum, secret) },
		"panic":     func(kit, context.Context) error { panic(secret) },
		"taken": func(k kit, ctx context.Context) error {
			k.nodes.Steal("order:17")
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(want, func(t *testing.T) {
			onKit(t, func(k kit) {
				_, spans := k.parent(func(ctx context.Context) {
					defer func() { assert.Equal(k, want == "panic", recover() != nil) }()
					assert.Error(k, redsyncotel.Do(ctx, k.rs, "order:17", func(ctx context.Context) error { return fn(k, ctx) }))
				})
				i := slices.Index(names(spans), "redsync.do") // extensions of the watchdog may be before it
				require.Positive(k, i)
				assert.Equal(k, sdktrace.Status{Code: codes.Error, Description: want}, spans[i].Status)
				assert.NotContains(k, fmt.Sprint(spans), "order:17")
				settles()
			})
		})
	}
}

// fails is a provider whose spans panic at their start, and an exporter that panics.
type fails struct{ noop.TracerProvider }

func (fails) Tracer(string, ...trace.TracerOption) trace.Tracer          { panic("order:17") }
func (fails) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { panic("order:17") }
func (fails) Shutdown(context.Context) error                             { return nil }

// startless is a span of fails.
type startless struct{ noop.Span }

func (startless) SpanContext() trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}})
}

func (startless) TracerProvider() trace.TracerProvider { return fails{} }

// What panics at the start or the end of a span changes no result of Do and Lead. The error handler is told once.
func TestTracingThatPanicsChangesNoResult(t *testing.T) {
	defer otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	var told []string
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { told = append(told, err.Error()) }))
	_, exported := sdktrace.NewTracerProvider(sdktrace.WithSyncer(fails{})).Tracer("program").Start(t.Context(), "parent")
	wrong := errors.New("wrong")
	for _, span := range []trace.Span{exported, startless{}} {
		for _, result := range []any{nil, wrong, "panic"} {
			for name, do := range map[string]func(
				context.Context, *redsync.Redsync, string, func(context.Context) error, ...redsync.Option,
			) error{"Do": redsyncotel.Do, "Lead": redsyncotel.Lead} {
				onKit(t, func(k kit) {
					told = nil
					ran := 0
					defer func() {
						panicked := recover()
						assert.Equal(k, result == "panic", panicked != nil, "%s: %v", name, panicked)
						assert.Equal(k, 1, ran)
						assert.Equal(k, []string{"redsyncotel: a provider of OpenTelemetry has panicked with a string"}, told)
						settles()
					}()
					err := do(trace.ContextWithSpan(k.Context(), span), k.rs, "order:17", func(context.Context) error {
						ran++
						if result == "panic" {
							panic(result)
						}
						err, _ := result.(error)
						return err
					})
					if want, _ := result.(error); want != nil {
						assert.ErrorIs(k, err, want)
					} else {
						assert.NoError(k, err)
					}
				})
			}
		}
	}
}

// Each term of a Lead has a span of its own.
func TestLeadPutsASpanAroundEachTerm(t *testing.T) {
	onKit(t, func(k kit) {
		_, spans := k.parent(func(ctx context.Context) {
			terms := 0
			require.NoError(k, redsyncotel.Lead(ctx, k.rs, "order:17", func(ctx context.Context) error {
				if terms++; terms == 1 {
					k.nodes.Expire("order:17")
					<-ctx.Done()
				}
				return nil
			}))
		})
		var terms int
		for _, s := range spans {
			if s.Name == "redsync.lead" {
				terms++
			}
		}
		assert.Equal(k, 2, terms)
	})
}

// Do passes on what it is given.
func TestDoWithoutAFunction(t *testing.T) {
	onKit(t, func(k kit) {
		require.ErrorContains(k, redsyncotel.Do(k.Context(), k.rs, "order:17", nil), "nil")
		require.ErrorContains(k, redsyncotel.Lead(k.Context(), k.rs, "order:17", nil), "nil")
		require.ErrorContains(k, redsyncotel.Do(k.Context(), k.rs, "order:17", func(context.Context) error { return nil },
			redsync.WithTries(-1)), "WithTries")
	})
}

// Without a span in the context, or with one of another process, Do uses the global tracer.
func TestDoUsesTheGlobalTracer(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	defer otel.SetTracerProvider(noop.NewTracerProvider()) // otel does not take its own default back
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)))
	onKit(t, func(k kit) {
		do := func(ctx context.Context) tracetest.SpanStub {
			defer exporter.Reset()
			require.NoError(k, redsyncotel.Do(ctx, k.rs, "order:17", func(context.Context) error { return nil }))
			require.Equal(k, []string{"redsync.do"}, names(exporter.GetSpans()))
			return exporter.GetSpans()[0]
		}
		assert.False(k, do(k.Context()).Parent.IsValid())
		remote := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
		assert.Equal(k, trace.SpanID{2}, do(trace.ContextWithRemoteSpanContext(k.Context(), remote)).Parent.SpanID())
	})
}
