package wire

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

// Func returns a Pool that sends each command by a call of do: see pool.Func.
func Func(do func(ctx context.Context, args ...any) (any, error), cfg Config) Pool {
	cfg.Outstanding = cmp.Or(cfg.Outstanding, defaultOutstanding)
	p := &funcPool{Config: cfg}
	p.cfg = &p.Config
	switch {
	case do == nil:
		p.Wrong = errors.New("pool: Func needs a function")
	case p.Guard > 0:
		p.Wrong = errors.New("pool: WithRestartGuard excludes Func: a function does not tell when a connection is opened")
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

type funcPool struct {
	Config
	calls
}

func (p *funcPool) String() string { return cmp.Or(p.Name, "function") }

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

// codes begin errors of nodes.
var codes = []string{
	"ASK", "BUSY", "CLUSTERDOWN", "CROSSSLOT", "DENIED", "ERR", "EXECABORT", "LOADING", "MASTERDOWN", "MISCONF", "MOVED",
	"NOAUTH", "NOPERM", "NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN", "UNKILLABLE", "WRONGPASS", "WRONGTYPE",
}

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
