package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// This file makes a pool from a function of the user.

// Func returns a Pool that sends each command by a call of do, and no other way: whatever do reaches is the node. It is for
// what is no redis.UniversalClient, such as a connection of redigo, a redis.Pool of redsync v4 or a mock, and for a client
// that the program replaces while it runs:
//
//	p := pool.Func(func(ctx context.Context, args ...any) (any, error) {
//		return current().Do(ctx, args...).Result() // the client of the moment
//	}, pool.WithName("redis-1"))
//
// args is a whole command of the node, its name in lower case first: SET key value NX PX milliseconds, EVAL source, GET, PTTL
// or PUBLISH. Its elements are strings and integers; do may change args. Scripts come with
// their source, up to 6 kB. A do for which that is much sends EVALSHA first, as redis.NewScript(source).Run does.
//
// do returns what the node has answered:
//
//   - A string or []byte, an integer, a []any of these, or nil for a null. true and false stand for OK and a null, which are
//     the answers to SET with NX.
//   - An error that the node has answered with: a redis.Error of go-redis, or any error whose text, or that of an error that
//     it wraps, begins with a word of Redis such as ERR, NOSCRIPT or NOPERM. redis.Nil is a null.
//   - Any other error if it is not known what the node has done. A do that panics, or ends its goroutine, has the same effect.
//
// do must not send a command again of which it does not know whether the node has executed it. A SET with NX that a client
// has sent twice finds its own key, and the lock looks taken.
//
// do is called by one goroutine at a time. When a call takes longer than 200 ms, the next begins beside it, up to four.
// After 5 s its context ends, and then its request counts as unanswered, whether do returns or not. So a do that never returns
// takes at most four goroutines, and the votes of its node. Commands that wait longer than their sender are not sent.
//
// The Pool knows of the node only what do answers. It does not know which server that is (Reply.Server is nil, Reply.Conn is
// 0), so two Pools that lead to one server count twice: make sure that each leads to a server of its own. It is no
// Subscriber: waiters try again by their timers. It carries out one command in each round trip, and releases are repeated
// more often. WithRestartGuard is an error. WithName and WithOutstanding apply, and the other options change nothing.
func Func(do func(ctx context.Context, args ...any) (any, error), options ...Option) Pool {
	p := &funcPool{calls{config: configOf(options)}}
	switch {
	case do == nil:
		p.err = errors.New("pool: Func needs a function")
	case p.guard > 0:
		p.err = cmp.Or(p.err, errors.New("pool: WithRestartGuard excludes Func: a function does not tell when a connection is opened"))
	}
	p.each = func(ctx context.Context, req *Request) Reply {
		args := slices.Clone(req.Args) // other nodes share them
		if s := scriptOf(args); s != nil {
			args[0], args[1] = "eval", s.source
		}
		return replyOfFunc(do(ctx, args...))
	}
	return p
}

// A funcPool is a Pool of Func.
type funcPool struct{ calls }

func (p *funcPool) String() string { return cmp.Or(p.name, "function") }

// MetBefore reports true: see batchPool.
func (p *funcPool) MetBefore() bool { return true }

func (p *funcPool) Close() error {
	p.close()
	return nil
}

// replyOfFunc returns the reply that the results of a function of the user's stand for.
func replyOfFunc(value any, err error) Reply {
	if err == nil {
		if err, _ = value.(error); err == nil { // redigo returns some errors so
			plain, known := plainValue(value)
			if !known {
				return Reply{Err: noAnswer("pool: ", fmt.Errorf("%w: %T", errNoType, value)), Fate: Unknown}
			}
			return Reply{Value: plain, Fate: Answered}
		}
	}
	switch answer := answerIn(err); {
	case errors.Is(err, redis.Nil):
		return Reply{Fate: Answered}
	case answer != nil:
		return Reply{Err: shortened(answer), Fate: Answered}
	case errors.Is(err, redis.ErrClosed) || errors.Is(err, ErrClosed):
		err = errors.New(err.Error()) // of one client; the next call may use another
	}
	return Reply{Err: noAnswer("", err), Fate: Unknown}
}

// answerIn returns the error in err with which a node has answered, nil if there is none.
func answerIn(err error) error {
	if isAnswer(err) {
		return err
	}
	for ; err != nil; err = errors.Unwrap(err) {
		text := err.Error()
		if code, _, _ := strings.Cut(text, " "); slices.Contains(codes, code) {
			return refusal(text)
		}
	}
	return nil
}

// codes begin the errors with which nodes answer.
var codes = []string{
	"ASK", "BUSY", "CLUSTERDOWN", "CROSSSLOT", "DENIED", "ERR", "EXECABORT", "LOADING", "MASTERDOWN", "MISCONF", "MOVED",
	"NOAUTH", "NOPERM", "NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN", "UNKILLABLE", "WRONGPASS", "WRONGTYPE",
}

// plainValue returns a value as a node's answer has it, and whether there is one.
func plainValue(value any) (plain any, known bool) {
	switch v := value.(type) {
	case nil:
		return nil, true
	case bool:
		if v {
			return "OK", true
		}
		return nil, true
	case []byte:
		if v == nil {
			return nil, true
		}
		return string(v), true
	}
	v := reflect.ValueOf(value)
	switch {
	case v.Kind() == reflect.String:
		return v.String(), true
	case v.CanInt():
		return v.Int(), true
	case v.CanUint():
		return int64(v.Uint()), true //nolint:gosec // no node counts so far
	case v.Kind() != reflect.Slice:
		return nil, false
	}
	list := make([]any, v.Len())
	for i := range list {
		if list[i], known = plainValue(v.Index(i).Interface()); !known {
			return nil, false
		}
	}
	return list, true
}
