package pool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// idleTimeout is how long a stream waits for work before it ends. Reopening
	// costs a few round trips; programs that never call Close rely on the end.
	idleTimeout = 30 * time.Second

	// While busy requests or more are unanswered, further ones are gathered and
	// handed to the driver together: when fewer are unanswered, when gatherMost
	// have come, or after gatherTime. With 128 callers on loopback that saves
	// client and servers a fifth of their CPU time (bench/README.md); on a network
	// it delays a request by gatherTime at most.
	busy       = 2
	gatherMost = 32
	gatherTime = 30 * time.Microsecond
)

// streamPool sends through the stream of its client, and starts one where none
// is running.
type streamPool struct {
	config
	client *redis.Client // the user's: its options are read, nothing else
	closed atomic.Bool
	last   atomic.Pointer[stream]
	subs   subscriptions

	// Of shown, which says who may use them.
	first  string  // the RunID of the first process met
	met    *Server // what marked is a copy of
	marked *Server
}

func (p *streamPool) String() string { return p.client.Options().Addr }

func (p *streamPool) Send(req Request) error {
	if err := p.usable(req); err != nil {
		return err
	}
	cmd := &command{args: req.Args, to: req.To, tag: req.Tag, pool: p}
	for {
		if p.closed.Load() {
			return ErrClosed
		}
		s, err := p.running()
		if err != nil {
			return err
		}
		err = s.submit(cmd, req.Reserved, p.outstanding)
		if err == errStopped { //nolint:errorlint // a sentinel of this file
			continue // it stopped between the two calls; the next is a new one
		}
		if p.closed.Load() {
			p.CloseIdle() // Close came meanwhile and may not have seen s
		}
		return err
	}
}

// streams holds the running stream of every client, so that a program that
// makes its pools anew for every request still has one connection to a node.
var streams struct {
	sync.Mutex
	running map[*redis.Client]*stream
}

// running returns the stream of p's client, started if need be.
func (p *streamPool) running() (*stream, error) {
	if s := p.last.Load(); s != nil && !s.stopped.Load() {
		return s, nil
	}
	streams.Lock()
	defer streams.Unlock()
	s := streams.running[p.client]
	if s == nil || s.stopped.Load() {
		var err error
		if s, err = startStream(p.client); err != nil {
			return nil, err
		}
		if streams.running == nil {
			streams.running = make(map[*redis.Client]*stream)
		}
		streams.running[p.client] = s
	}
	p.last.Store(s)
	return s, nil
}

func (p *streamPool) CloseIdle() {
	if s := p.last.Load(); s != nil {
		s.finish()
	}
}

func (p *streamPool) Close() error {
	p.closed.Store(true)
	p.subs.close()
	p.CloseIdle()
	return nil
}

// stream is one ordered full-duplex connection and the goroutine that collects
// its replies. It lives from the first request to the end of a quiet spell.
type stream struct {
	user   *redis.Client
	client *redis.Client // our own
	pipe   *redis.AutoPipeliner
	dials  *dials

	mu      sync.Mutex
	sent    []future    // submitted and not yet taken by collect, in order
	waiting []*command  // gathered, behind those
	stopped atomic.Bool // set under mu
	ending  bool        // stop at the next quiet moment

	gather  *time.Timer // calls flush
	started bool        // gather is running

	// owed counts the requests whose reply has not come. It rises under mu.
	// gathered counts those of them that wait.
	owed, gathered atomic.Int64

	// asking is 1 while an INFO of the stream's own is among the owed.
	asking atomic.Int64

	// wake holds a token when collect may have something to do.
	wake chan struct{}
}

// command is a request on the stream. It is a redis.Cmd without arguments of its
// own, which saves an allocation for each: a stream asks for them by Args, and
// routes nothing by them.
type command struct {
	redis.Cmd
	args []any
	to   Receiver
	tag  int
	pool *streamPool // whose request it is; nil for the stream's own
}

// Args returns the whole command.
func (c *command) Args() []any { return c.args }

// Name returns the command's name in lower case, by which go-redis knows those
// that are not for a stream.
func (c *command) Name() string {
	name, _ := c.args[0].(string)
	return strings.ToLower(name)
}

// FullName returns the command's name: none that is sent has a second word.
func (c *command) FullName() string { return c.Name() }

// String describes the command, for go-redis's log.
func (c *command) String() string {
	return strings.TrimSuffix(fmt.Sprintln(c.args...), "\n")
}

// NoRetry holds on every path of go-redis that would send a command again.
func (c *command) NoRetry() bool { return true }

// Clone keeps all of this on the copy.
func (c *command) Clone() redis.Cmder {
	return &command{args: c.args, to: c.to, tag: c.tag, pool: c.pool}
}

type future struct {
	redis.AutoFuture
	cmd *command
}

var errStopped = errors.New("pool: stream stopped")

// startStream opens nothing yet: the first request dials.
func startStream(user *redis.Client) (*stream, error) {
	s := &stream{user: user, dials: &dials{}, wake: make(chan struct{}, 1)}
	s.client = redis.NewClient(streamOptions(user.Options(), s.dials))
	var err error
	// A full-duplex stream writes a request as soon as it comes and reads
	// replies meanwhile. Under load it waits up to MaxFlushDelay for more.
	s.pipe, err = s.client.AsyncAutoPipelineWithOptions(&redis.AutoPipelineOptions{
		FullDuplex:    true,
		MaxBatchSize:  512,
		MaxFlushDelay: 100 * time.Microsecond,
	})
	if err != nil {
		_ = s.client.Close()
		return nil, err
	}
	s.gather = time.AfterFunc(gatherTime, s.flush)
	s.gather.Stop()
	go s.collect()
	return s, nil
}

// submit hands cmd to the driver, at once or gathered with others. The driver's
// queue and ours are appended to under one lock: collect waits for replies in the
// order of the wire.
func (s *stream) submit(cmd *command, reserved bool, limit int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped.Load() {
		return errStopped
	}
	if err := admit(int(s.owed.Load()-s.asking.Load()), limit, reserved); err != nil {
		return err
	}
	unanswered := s.owed.Add(1) - s.gathered.Add(1)
	s.waiting = append(s.waiting, cmd)
	switch {
	case len(s.waiting) == 1 && unanswered < busy, len(s.waiting) >= gatherMost:
		s.flushLocked()
	case !s.started:
		s.started = true
		s.gather.Reset(gatherTime)
	}
	return nil
}

// flush hands what has been gathered to the driver.
func (s *stream) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = false
	s.flushLocked()
}

func (s *stream) flushLocked() {
	if len(s.waiting) == 0 {
		return
	}
	if len(s.sent) == 0 {
		s.nudge()
	}
	for _, cmd := range s.waiting {
		s.sent = append(s.sent, future{s.pipe.Submit(context.Background(), cmd), cmd})
	}
	clear(s.waiting)
	s.waiting = s.waiting[:0]
	s.gathered.Store(0)
}

// answered books a reply, and flushes when that leaves few unanswered.
func (s *stream) answered() {
	owed := s.owed.Add(-1)
	if gathered := s.gathered.Load(); gathered > 0 && owed-gathered < busy {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.flushLocked()
	}
}

func (s *stream) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// finish makes the stream end once nothing is outstanding.
func (s *stream) finish() {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	s.nudge()
}

// collect delivers replies in order until the stream ends.
func (s *stream) collect() {
	idle := time.NewTimer(idleTimeout)
	defer idle.Stop()
	var batch []future
	for {
		batch = s.take(batch)
		for _, f := range batch {
			_ = f.Wait() // the error is the command's, read below
			s.answered()
			s.deliver(f.cmd)
		}
		if s.ended() {
			break
		}
		if len(batch) > 0 {
			continue
		}
		idle.Reset(idleTimeout)
		select {
		case <-s.wake:
		case <-idle.C:
			s.finish()
		}
	}
	_ = s.pipe.Close()
	_ = s.client.Close()
}

// deliver hands the outcome of cmd to who waits for it.
func (s *stream) deliver(cmd *command) {
	r := replyOf(&cmd.Cmd, s.dials.newest.Load())
	if r.Fate == Answered && cmd.pool != nil {
		r.Server = s.server(cmd.pool, r.Err)
	}
	cmd.to.Receive(cmd.tag, r)
}

// take swaps the requests sent so far for the empty slice in hand.
func (s *stream) take(batch []future) []future {
	clear(batch) // drop the references to what was delivered
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.sent
	s.sent = batch[:0]
	return taken
}

// ended stops s if it shall end and nothing is outstanding. Collect, its only
// caller, has delivered every reply that has come.
func (s *stream) ended() bool {
	s.mu.Lock()
	end := s.ending && s.owed.Load() == 0
	if end {
		s.stopped.Store(true)
	}
	s.mu.Unlock()
	if end {
		streams.Lock()
		if streams.running[s.user] == s {
			delete(streams.running, s.user)
		}
		streams.Unlock()
	}
	return end
}
