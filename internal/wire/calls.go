package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// This file sends requests by calls of a function: the client's own method with pool.ViaClient, or the user's with
// Func. A call may never return.

const (
	// maxCalls bounds the calls under way. While calls end in time there is one.
	maxCalls = 4

	// slowCall is how long the next request waits for a slow call.
	slowCall = 200 * time.Millisecond

	// longestCall is when the context of a call ends. A little later its request is Unknown.
	longestCall = maxReadTimeout

	// longestWait is how long a request waits for its call, unless it has a Within.
	longestWait = 3 * time.Second
)

// calls is a queue of requests that calls of a function send, one by one or in batches.
type calls struct {
	cfg   *Config
	each  func(ctx context.Context, req *Request) Reply
	batch func(batch []waiting)           // used if each is nil
	then  func(req *Request, reply Reply) // called after delivery; may be nil

	delivering sync.Mutex // a Receiver gets one reply at a time

	mu      sync.Mutex // guards what follows
	queue   []waiting
	owed    int
	heard   time.Time // when the node answered last
	closed  bool
	severed bool // the user has closed the client
	under   int  // goroutines in run
	stuck   int  // how many execute a call that has taken too long
	prompt  bool // one executes a call that is not slow, or looks for the next
}

type waiting struct {
	Request
	since time.Time
}

func (c *calls) CloseIdle() {}

// Link takes a connection for open for a while after an answer.
func (c *calls) Link() Link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Link{Open: !c.heard.IsZero() && time.Since(c.heard) < idleTimeout}
}

func (c *calls) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

// MetBefore reports true, because the pool never learns which server answers.
func (c *calls) MetBefore() bool { return true }

func (c *calls) Send(req Request) error {
	if err := c.cfg.usable(&req); err != nil {
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
	if err := admit(c.owed, c.cfg.Outstanding, req.Reserved); err != nil {
		return err
	}
	c.owed++
	req.RESP = nil
	c.queue = append(c.queue, waiting{req, time.Now()})
	c.serve()
	return nil
}

// serve starts a goroutine if the queue needs one. The caller holds mu.
func (c *calls) serve() {
	if len(c.queue) > 0 && !c.prompt && c.under < maxCalls {
		c.prompt = true
		c.under++
		go c.run()
	}
}

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
			prompt = false
			c.execute(batch[0], &prompt)
		}
	}
}

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

type call struct {
	*calls
	req *Request

	// mu of calls guards these.
	slow, ended, told bool // told: its request has got a reply
	watch             *time.Timer
}

// execute sends a request. It sets prompt to false if another goroutine has taken over.
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

// look runs when the call is slow, so that others stop waiting for it, and when it has taken too long.
func (c *call) look() {
	c.mu.Lock()
	switch {
	case c.ended:
		c.mu.Unlock()
	case !c.slow:
		c.slow, c.prompt = true, false
		c.watch.Reset(longestCall) // later than a call that ends with its context
		c.serve()
		c.mu.Unlock()
	default:
		c.told = true
		var left []waiting
		if c.stuck++; c.stuck == maxCalls { // nobody will serve the queue
			left, c.queue = c.queue, nil
		}
		c.mu.Unlock()
		for i := range left {
			c.deliver(&left[i].Request, Reply{Err: errStuck, Fate: NotSent})
		}
		c.deliver(c.req, Reply{Err: noAnswer("", errNoEnd), Fate: Unknown})
	}
}

// end returns false if the goroutine is to end.
func (c *call) end(reply *Reply) (goesOn bool) {
	c.watch.Stop()
	c.mu.Lock()
	c.ended = true
	told := c.told
	if told {
		c.stuck--
	}
	goesOn = !c.slow // else the end of run serves the queue
	c.mu.Unlock()
	if !told {
		c.deliver(c.req, *reply)
	}
	return goesOn
}

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
