package pool

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// idleTimeout is how long a stream waits for work before it ends. Reopening
	// costs a few round trips; programs that never call Close rely on the end.
	idleTimeout = 30 * time.Second

	// After redialTries failures in a row to connect to a node it is left alone for
	// redialPause each time: what is sent meanwhile fails at once, with the same
	// error.
	redialTries = 4
	redialPause = 100 * time.Millisecond
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
	if err := p.usable(&req); err != nil {
		return err
	}
	for !p.closed.Load() {
		s := p.last.Load()
		if s == nil {
			if s = p.running(); s == nil {
				break
			}
		}
		err := s.submit(&req, p)
		if err != errStopped { //nolint:errorlint // a sentinel of this file
			return err
		}
		p.last.CompareAndSwap(s, nil) // s was quiet for long, or is to end: go on with another one
	}
	return ErrClosed
}

// streams holds the running stream of every client, so that a program that
// makes its pools anew for every request still has one connection to a node.
var streams struct {
	sync.Mutex
	running map[*redis.Client]*stream
}

// running returns the stream of p's client, started if need be; nil once p is closed, so
// that Close ends every stream that p has used.
func (p *streamPool) running() *stream {
	streams.Lock()
	defer streams.Unlock()
	if p.closed.Load() {
		return nil
	}
	s := streams.running[p.client]
	if s == nil || s.stopped.Load() {
		s = startStream(p.client)
		if streams.running == nil {
			streams.running = make(map[*redis.Client]*stream)
		}
		streams.running[p.client] = s
	}
	p.last.Store(s)
	return s
}

func (p *streamPool) CloseIdle() {
	if s := p.last.Load(); s != nil {
		s.finish()
	}
}

func (p *streamPool) Close() error {
	streams.Lock()
	p.closed.Store(true)
	streams.Unlock()
	p.subs.close()
	p.CloseIdle()
	return nil
}

// A stream is an ordered sequence of requests, and the connections that carry
// them: one at a time, opened when there is something to send. It lives from the
// first request to the end of a quiet spell.
//
// A request waits in queued until the connection takes it. From then on a byte of
// it may have left, and its fate is that of the connection: answered, or Unknown.
// What is still in queued when a connection ends has not been sent, and goes out
// on the next one, or is NotSent when there is none to be had. So a request is
// written at most once.
type stream struct {
	user *redis.Client

	mu      sync.Mutex
	queued  []queued      // taken by no connection yet, in order
	encoded []byte        // these as RESP
	within  time.Duration // the least Within of these
	stopped atomic.Bool
	ending  bool        // stop at the next quiet moment
	next    *conn       // has been opened beside the connection in use, and goes on after it
	opening bool        // such a one is being opened
	quiet   time.Time   // when replies were delivered last
	idle    *time.Timer // calls checkIdle

	// owed counts the requests whose reply is not being delivered yet. It rises
	// under mu.
	owed atomic.Int64

	// wake holds a token when run may have something to do.
	wake chan struct{}
}

// queued is a request without its command.
type queued struct {
	to   Receiver
	tag  int
	pool *streamPool // whose request it is
}

var errStopped = errors.New("pool: stream stopped")

// startStream opens nothing yet: the first request does.
func startStream(user *redis.Client) *stream {
	s := &stream{user: user, wake: make(chan struct{}, 1)}
	s.idle = time.AfterFunc(idleTimeout, s.checkIdle)
	go s.run()
	return s
}

// submit puts a request of p behind the others.
func (s *stream) submit(req *Request, p *streamPool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped.Load() {
		return errStopped
	}
	if err := admit(int(s.owed.Load()), p.outstanding, req.Reserved); err != nil {
		return err
	}
	before := len(s.queued)
	if req.asking {
		s.encoded = append(s.encoded, "*1\r\n$6\r\nASKING\r\n"...)
		s.queued = append(s.queued, queued{ignored{}, 0, p})
		s.owed.Add(1)
	}
	if err := s.encode(req); err != nil {
		return err
	}
	s.owed.Add(1)
	s.within = sooner(s.within, req.Within)
	s.queued = append(s.queued, queued{req.To, req.Tag, p})
	if before == 0 {
		s.nudge()
	}
	return nil
}

// ignored is the Receiver of the answers to ASKING.
type ignored struct{}

func (ignored) Receive(int, Reply) {}

func (s *stream) encode(req *Request) (err error) {
	if len(req.RESP) > 0 {
		s.encoded = append(s.encoded, req.RESP...)
		return nil
	}
	s.encoded, err = AppendCommand(s.encoded, req.Args)
	return err
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

// checkIdle ends a stream that has been quiet for long enough.
func (s *stream) checkIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if wait := idleTimeout - time.Since(s.quiet); wait > 0 {
		s.idle.Reset(wait)
		return
	}
	s.ending = true
	s.nudge()
}

// run connects while there is something to send, until the stream ends. All
// replies are delivered by run or by the connection that it waits for: in order.
func (s *stream) run() {
	defer s.abandoned()
	var failed error // the last connect
	var failures int // in a row
	var retry time.Time
	for {
		if c := s.takeNext(); c != nil {
			failures = 0
			c.serve()
			continue
		}
		if !s.awaitWork() {
			return
		}
		if failures < redialTries || !time.Now().Before(retry) {
			var c *conn
			if c, failed = s.connect(context.Background()); failed == nil {
				failures = 0
				c.serve()
				continue
			}
			failures++
			retry = time.Now().Add(redialPause)
		}
		s.refuse(failed)
	}
}

// abandoned refuses what is queued where run has not come to its end: a Dialer of the
// user's has ended the goroutine. The next request starts another stream.
func (s *stream) abandoned() {
	s.mu.Lock()
	ended := s.stopped.Swap(true)
	s.mu.Unlock()
	if !ended {
		s.stop()
		s.refuse(errAbandoned)
	}
}

var errAbandoned = errors.New("pool: the goroutine that connects has been ended")

// takeNext returns the connection that was opened beside the last one to go on in its
// place, nil if there is none.
func (s *stream) takeNext() *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.next
	s.next = nil
	return c
}

// awaitWork returns true when there is something to send, and false when the
// stream has stopped.
func (s *stream) awaitWork() bool {
	for {
		s.mu.Lock()
		work, stop := len(s.queued) > 0, s.ending
		if !work && stop {
			s.stopped.Store(true)
		}
		s.mu.Unlock()
		switch {
		case work:
			return true
		case stop:
			s.stop()
			return false
		}
		<-s.wake
	}
}

// stop forgets the stream.
func (s *stream) stop() {
	s.idle.Stop()
	streams.Lock()
	defer streams.Unlock()
	if streams.running[s.user] == s {
		delete(streams.running, s.user)
	}
}

// refuse delivers that nothing of what is queued has been sent. No connection has
// yet begun with a higher number than these replies have.
func (s *stream) refuse(err error) {
	s.mu.Lock()
	refused := s.queued
	s.queued, s.encoded, s.within = nil, nil, 0
	s.mu.Unlock()
	s.fail(refused, Reply{Err: err, Fate: NotSent, Conn: connections.Load()})
}

// fail delivers the same reply to requests that got no answer.
func (s *stream) fail(requests []queued, r Reply) {
	for _, req := range requests {
		s.owed.Add(-1)
		req.to.Receive(req.tag, r)
	}
	s.mu.Lock()
	s.quiet = time.Now()
	s.mu.Unlock()
}
