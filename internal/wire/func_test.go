package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// What a function returns is a reply.
func TestReplyOfAFunction(t *testing.T) {
	for name, c := range map[string]struct {
		value any
		err   error
		want  Reply // of an error only the text is compared
	}{
		"null":                    {want: Reply{Fate: Answered}},
		"null of go-redis":        {"", fmt.Errorf("get: %w", redis.Nil), Reply{Fate: Answered}},
		"null in bytes":           {[]byte(nil), nil, Reply{Fate: Answered}},
		"bytes":                   {[]byte("v"), nil, Reply{Value: "v", Fate: Answered}},
		"set":                     {true, nil, Reply{Value: "OK", Fate: Answered}},
		"not set":                 {false, nil, Reply{Fate: Answered}},
		"number":                  {uint8(7), nil, Reply{Value: int64(7), Fate: Answered}},
		"list":                    {[]any{[]byte("a"), 2, nil, []string{"b"}}, nil, Reply{Value: []any{"a", int64(2), nil, []any{"b"}}, Fate: Answered}},
		"answer":                  {nil, refusal("ERR no"), Reply{Err: errors.New("ERR no"), Fate: Answered}},
		"answer in another type":  {nil, fmt.Errorf("do: %w", errors.New("NOSCRIPT No matching script")), Reply{Err: errors.New("NOSCRIPT No matching script"), Fate: Answered}},
		"answer as a value":       {errors.New("WRONGTYPE no"), nil, Reply{Err: errors.New("WRONGTYPE no"), Fate: Answered}},
		"end of the connection":   {"OK", io.EOF, Reply{Err: io.EOF}},
		"words like an answer's":  {nil, errors.New("ERRATIC network"), Reply{Err: errors.New("ERRATIC network")}},
		"type of no answer":       {1.5, nil, Reply{Err: errors.New("pool: the call has returned a value of a type that no node answers with: float64")}},
		"type of no answer, deep": {[]any{struct{}{}}, nil, Reply{Err: errors.New("pool: the call has returned a value of a type that no node answers with: []interface {}")}},
		"closed client":           {nil, redis.ErrClosed, Reply{Err: redis.ErrClosed}},
	} {
		got := replyOfFunc(c.value, c.err)
		require.Equal(t, c.want.Value, got.Value, name)
		require.Equal(t, c.want.Fate, got.Fate, name)
		require.Equal(t, c.want.Err != nil, got.Err != nil, name)
		require.False(t, IsPermanent(got.Err) && got.Fate != Answered, "%s: the next call may use another client", name)
		if c.want.Err != nil {
			require.EqualError(t, got.Err, c.want.Err.Error(), name)
			require.Equal(t, got.Fate == Answered, IsRefusal(got.Err), name)
		}
	}
	do := func(context.Context, ...any) (any, error) { return nil, nil }
	for text, p := range map[string]Pool{
		"Func needs a function":     Func(nil, Config{}),
		"WithRestartGuard excludes": Func(do, Config{Guard: 1}),
		"wrong option":              Func(do, Config{Wrong: errors.New("wrong option")}),
	} {
		require.ErrorContains(t, p.(Failing).Err(), text)
		require.ErrorContains(t, p.Send(Request{}), text)
	}
}

// bubbled counts the goroutines in bubbles: those of the runtime come and go.
func bubbled() int {
	stacks := make([]byte, 1<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte(", synctest bubble"))
}

// A function that misbehaves costs its node, nothing else: no request is without a reply, no goroutine beyond four stays, and
// requests that it would answer are answered.
func TestFunctionsThatMisbehave(t *testing.T) {
	stuck := make(chan struct{})
	for name, c := range map[string]struct {
		do   func(ctx context.Context) // of the command BAD
		text string
		late bool // the reply comes after longestCall
	}{
		"never returns":        {func(context.Context) { <-stuck }, errNoEnd.Error(), true},
		"returns with its ctx": {func(ctx context.Context) { <-ctx.Done(); panic(ctx.Err()) }, "context deadline exceeded", true},
		"panics":               {func(context.Context) { panic("oops") }, "oops", false},
		"panics with nil":      {func(context.Context) { panic(error(nil)) }, "panic called with nil", false}, //nolint:govet // it is meant
		"ends its goroutine":   {func(context.Context) { runtime.Goexit() }, errEnded.Error(), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stuck = make(chan struct{})
				before := bubbled()
				require.Positive(t, before)
				p, in := Func(func(ctx context.Context, args ...any) (any, error) {
					if args[0] == "bad" {
						c.do(ctx)
					}
					return args[1], nil
				}, Config{Name: "f"}), make(replies, 100)
				for round := range 2 { // after a while it works again
					start := time.Now()
					for range maxCalls - 1 {
						send(t, p, in, "bad", 0)
					}
					require.Equal(t, "good", ask(t, p, "good", "good").Value)
					require.LessOrEqual(t, time.Since(start), (maxCalls-1)*slowCall)
					for range maxCalls - 1 {
						r := in.wait(t)
						require.ErrorContains(t, r.Err, c.text, "%d", round)
						require.Equal(t, Unknown, r.Fate)
						require.Zero(t, r.Conn)
					}
					if c.late {
						require.GreaterOrEqual(t, time.Since(start), longestCall)
					}
					if name == "never returns" {
						break
					}
				}
				for range 50 { // more than it may take
					send(t, p, in, "bad", 0)
				}
				for range 50 {
					require.Error(t, in.wait(t).Err)
				}
				if name == "never returns" {
					require.Equal(t, errStuck, p.Send(request(in, "good", "good")))
				}
				require.NoError(t, p.Close())
				require.ErrorIs(t, p.Send(request(in, "good", "good")), ErrClosed)
				time.Sleep(time.Minute)
				synctest.Wait()
				require.LessOrEqual(t, bubbled()-before, maxCalls)
				close(stuck)
				synctest.Wait()
				require.LessOrEqual(t, bubbled(), before)
				require.Empty(t, in, "a request has one reply")
			})
		})
	}
}
