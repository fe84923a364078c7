package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file sends requests by calls of a function: the client's own method with ViaClient, or the user's with Func. Such a
// call may take as long as it likes, or never return.

const (
	// maxCalls is how many calls of one Pool may be under way. As long as calls end in time there is one.
	maxCalls = 4

	// slowCall is how long a call may take until the next request no longer waits for it.
	slowCall = 200 * time.Millisecond

	// longestCall is how long a call may take until its context ends. A little later its request counts as unanswered.
	longestCall = maxReadTimeout

	// longestWait is how long a request waits for its call, unless its sender wants the reply earlier.
	longestWait = 3 * time.Second
)

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

// calls is a queue of requests, each of which is sent by a call of a function.
type calls struct {
	config
	each  func(ctx context.Context, req *Request) Reply // sends a request, and waits for its reply
	batch func(batch []waiting)                         // sends requests, and delivers the replies; used if each is nil
	then  func(req *Request, reply Reply)               // called after a reply is delivered; may be nil

	delivering sync.Mutex // a Receiver gets one reply at a time

	mu      sync.Mutex // guards what follows
	queue   []waiting
	owed    int
	heard   time.Time // when the node has answered last
	closed  bool
	severed bool // the user has closed the client: no call can succeed any more
	under   int  // how many goroutines are in run
	stuck   int  // how many of them execute a call that has taken too long
	prompt  bool // one of them executes a call that is not slow, or looks for the next one
}

// A waiting request is in the queue since a certain time.
type waiting struct {
	Request
	since time.Time
}

// CloseIdle has nothing to do: connections are not the pool's, and run ends by itself.
func (c *calls) CloseIdle() {}

// Link implements Linked. A connection is taken for open for a while after an answer.
func (c *calls) Link() Link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Link{Open: !c.heard.IsZero() && time.Since(c.heard) < idleTimeout}
}

func (c *calls) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

func (c *calls) Send(req Request) error {
	if err := c.usable(&req); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrClosed
	case c.severed:
		return ErrClientClosed
	case c.stuck == maxCalls:
		return errStuck
	}
	if err := admit(c.owed, c.outstanding, req.Reserved); err != nil {
		return err
	}
	c.owed++
	req.RESP = nil
	c.queue = append(c.queue, waiting{req, time.Now()})
	c.serve()
	return nil
}

// serve starts a goroutine for what is queued, unless one will come to it, or there are enough. Its caller holds mu.
func (c *calls) serve() {
	if len(c.queue) > 0 && !c.prompt && c.under < maxCalls {
		c.prompt = true
		c.under++
		go c.run()
	}
}

// run executes what is queued, until nothing is left or another goroutine does.
func (c *calls) run() {
	prompt := true // this goroutine is the one that makes c prompt
	defer func() { // also if the function ends its goroutine
		c.mu.Lock()
		defer c.mu.Unlock()
		c.under--
		c.prompt = c.prompt && !prompt
		c.serve()
	}()
	for prompt {
		batch := c.take()
		switch {
		case batch == nil:
			return
		case c.each == nil:
			c.batch(batch)
		default:
			prompt = false // c.execute says it again
			c.execute(batch[0], &prompt)
		}
	}
}

// take returns what is sent next, nil if nothing is queued.
func (c *calls) take() []waiting {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.queue), maxBatch)
	if n == 0 {
		c.queue = nil
		return nil
	}
	if c.each != nil {
		n = 1
	}
	batch := slices.Clone(c.queue[:n])
	clear(c.queue[:n]) // they hold Receivers
	c.queue = c.queue[n:]
	return batch
}

// A call is one that is under way.
type call struct {
	*calls
	req *Request

	// mu of calls guards these.
	slow, ended, told bool // told: its request has got a reply
	watch             *time.Timer
}

// execute sends a request and delivers the reply. It sets prompt to false if another goroutine has taken over.
func (c *calls) execute(next waiting, prompt *bool) {
	if waited := time.Since(next.since); waited > cmp.Or(next.Within, longestWait) {
		*prompt = true
		c.deliver(&next.Request, Reply{Err: fmt.Errorf("%w: %v", errWaited, waited), Fate: NotSent})
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), longestCall)
	defer cancel()
	this := &call{calls: c, req: &next.Request}
	reply := Reply{Err: noAnswer("", errEnded), Fate: Unknown} // if the function ends its goroutine
	defer func() { *prompt = this.end(&reply) }()
	c.mu.Lock() // watch is set before it is used
	this.watch = time.AfterFunc(slowCall, this.look)
	c.mu.Unlock()
	reply = c.guarded(ctx, this.req)
}

var (
	errEnded  = errors.New("pool: the call has ended its goroutine")
	errNoEnd  = errors.New("pool: the call has not returned within 5.2s")
	errStuck  = errors.New("pool: not sent: none of 4 calls has returned")
	errWaited = errors.New("pool: not sent: it has waited too long behind other calls")
	errNoType = errors.New("the call has returned a value of a type that no node answers with")
)

// guarded calls each, and turns a panic into an error.
func (c *calls) guarded(ctx context.Context, req *Request) (reply Reply) {
	var err error
	defer func() {
		if err != nil {
			reply = Reply{Err: noAnswer("pool: the call has panicked: ", err), Fate: Unknown}
		}
	}()
	defer recovered(&err)
	return c.each(ctx, req)
}

// look is called when the call is slow, so that others do not wait for it, and when it has taken too long.
func (c *call) look() {
	c.mu.Lock()
	switch {
	case c.ended:
		c.mu.Unlock()
	case !c.slow:
		c.slow, c.prompt = true, false
		c.watch.Reset(longestCall) // a call that ends with its context returns before
		c.serve()
		c.mu.Unlock()
	default:
		c.told = true
		var left []waiting
		if c.stuck++; c.stuck == maxCalls { // nobody will come to what is queued
			left, c.queue = c.queue, nil
		}
		c.mu.Unlock()
		for i := range left {
			c.deliver(&left[i].Request, Reply{Err: errStuck, Fate: NotSent})
		}
		c.deliver(c.req, Reply{Err: noAnswer("", errNoEnd), Fate: Unknown})
	}
}

// end delivers the reply of the call, unless that is done. It returns false if the caller is to end.
func (c *call) end(reply *Reply) (goesOn bool) {
	c.watch.Stop()
	c.mu.Lock()
	c.ended = true
	told := c.told
	if told {
		c.stuck--
	}
	if goesOn = !c.slow; c.slow && !c.prompt {
		c.prompt, goesOn = true, true
	}
	c.mu.Unlock()
	if !told {
		c.deliver(c.req, *reply)
	}
	return goesOn
}

// deliver gives the sender of a request its reply.
func (c *calls) deliver(req *Request, reply Reply) {
	closed := reply.Err == ErrClientClosed //nolint:errorlint // set by each
	c.mu.Lock()
	c.owed--
	c.severed = c.severed || closed
	if reply.Fate == Answered {
		c.heard = time.Now()
	}
	c.mu.Unlock()
	c.delivering.Lock()
	req.To.Receive(req.Tag, reply)
	c.delivering.Unlock()
	if c.then != nil {
		c.then(req, reply)
	}
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
