package wire

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// idleTimeout is how long a stream waits for work before it ends. Programs that never call Close rely on it.
	idleTimeout = 30 * time.Second

	// After redialTries failures in a row, the stream waits for redialPause before each attempt to connect. Requests sent
	// meanwhile fail with the last error.
	redialTries = 4
	redialPause = 100 * time.Millisecond
)

// streamPool sends through the stream of its client, and starts one if none is running.
type streamPool struct {
	clientPool
	client *redis.Client // of the node, that of the user or one of its own; only its options are read
	view   serverView
	closed atomic.Bool
	last   atomic.Pointer[stream]
}

func newStreamPool(cfg Config, client *redis.Client, owner redis.UniversalClient) *streamPool {
	p := &streamPool{clientPool: clientPool{Config: cfg, owner: owner}, client: client}
	p.dial, p.view.cfg = p.dialChannel, &p.Config
	return p
}

func (p *streamPool) Send(req Request) error {
	if err := p.usable(&req); err != nil {
		return err
	}
	for !p.closed.Load() {
		s := p.last.Load()
		if s == nil {
			var err error
			if s, err = p.running(); err != nil {
				return err
			}
		}
		err := s.submit(&req, p.Outstanding, &p.view)
		if err != errStopped { //nolint:errorlint // a sentinel of this package
			return err
		}
		p.last.CompareAndSwap(s, nil) // s has ended: continue with another one
	}
	return ErrClosed
}

// streams holds the running stream of every client: all its pools share one connection.
var streams struct {
	sync.Mutex // guards running, and is held while a streamPool sets closed
	running    map[*redis.Client]*stream
}

// running returns the stream of p's client, and starts one if need be. It fails once p is closed: a Send beside Close
// must not start a stream that stays.
func (p *streamPool) running() (*stream, error) {
	streams.Lock()
	defer streams.Unlock()
	if p.closed.Load() {
		return nil, ErrClosed
	}
	s := streams.running[p.client]
	if s == nil || s.stopped.Load() {
		if isClosed(p.owner) {
			return nil, ErrClientClosed
		}
		p.warnOfHooks(p.owner, p.client, cmp.Or(p.Name, addressOf(p.client)), func(line func()) { go line() }) // a handler of the log may block
		s = startStream(p.client, p.owner)
		if streams.running == nil {
			streams.running = make(map[*redis.Client]*stream)
		}
		streams.running[p.client] = s
	}
	if !p.Anonymous {
		s.named.Store(true)
	}
	if (!p.Anonymous || p.Guard > 0) && !s.identified.Swap(true) {
		s.identify(s.conn.Load())
	}
	p.last.Store(s)
	return s, nil
}

func (p *streamPool) CloseIdle() {
	if s := p.last.Load(); s != nil {
		s.finish()
	}
}

func (p *streamPool) Silent() time.Duration {
	if s := p.last.Load(); s != nil {
		return s.silent()
	}
	return 0
}

// behindSilence is how long a silent node may count as behind, before it counts as not answering.
const behindSilence = 500 * time.Millisecond

func (p *streamPool) IsBehind() bool {
	s := p.last.Load()
	return s != nil && s.owed.Load() >= int64(max(p.Outstanding/4, 1)) && s.silent() < behindSilence
}

func (p *streamPool) isIdle() bool {
	s := p.last.Load()
	return s == nil || s.stopped.Load()
}

func (p *streamPool) Close() error {
	streams.Lock()
	p.closed.Store(true)
	streams.Unlock()
	p.subs.close()
	p.CloseIdle()
	return nil
}

// Partial retires the connection, so that the next one asks again: a Cluster may change.
func (p *streamPool) Partial() error {
	s := p.last.Load()
	if s == nil || s.share == nil {
		return nil
	}
	why := s.share.Partial()
	if c := s.conn.Load(); why != nil && c != nil && time.Since(c.opened) >= renewPause {
		c.retire()
	}
	return why
}

func (p *streamPool) dialChannel(ctx context.Context, channel, at string) (wire, error) {
	if p.client.Options().Addr == ofSentinel {
		return dialFollowing(ctx, p.client, channel)
	}
	return dialWire(ctx, p.client, channel, at)
}

func (p *streamPool) Sibling() Pool { return newStreamPool(p.Config, p.client, p.owner) }

func (p *streamPool) MetBefore() bool { return p.Wrong == nil && !met.put(p.client, struct{}{}) }

// A stream is an ordered sequence of requests and the connections that carry them, one at a time. It lives until it has
// been idle for idleTimeout, CloseIdle or Close ends it, or the user has closed the client.
type stream struct {
	queue
	owner redis.UniversalClient
	end   context.CancelCauseFunc
	idle  *time.Timer

	conn atomic.Pointer[conn]
}

func (s *stream) silent() time.Duration {
	if c := s.conn.Load(); c != nil {
		return c.silence.lasts()
	}
	if p := s.opening.Load(); p != nil {
		return time.Since(p.since)
	}
	return 0
}

func startStream(user *redis.Client, owner redis.UniversalClient) *stream {
	s := &stream{queue: queue{wake: make(chan struct{}, 1), quiet: time.Now(), user: user}, owner: owner}
	s.life, s.end = context.WithCancelCause(context.Background())
	s.migrated = func() { reload(owner) }
	if owner == redis.UniversalClient(user) {
		s.share = &share{}
	}
	s.idle = time.AfterFunc(idleTimeout, s.look)
	s.idle.Reset(lookPause) // look, which also resets the timer, begins after idle is set
	go s.run()
	return s
}

func (s *stream) look() {
	if isClosed(s.owner) {
		s.sever(ErrClientClosed)
		return
	}
	if isDropped(s.owner, s.user) { // the client does not use the node any more
		s.sever(errDropped)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped.Load() {
		return
	}
	if wait := idleTimeout - time.Since(s.quiet); wait > 0 {
		s.idle.Reset(min(wait, lookPause))
		return
	}
	s.ending = true
	s.nudge()
}

// sever ends the stream at once, dials and all requests included.
func (s *stream) sever(why error) {
	s.end(why)
	s.finish()
	if c := s.conn.Load(); c != nil {
		c.abort(why)
	}
}

// run connects while there is something to send. Only run or the connection that it waits for delivers replies, so they
// stay in order.
func (s *stream) run() {
	var failed error // of the last connect
	var failures int // in a row
	var retry time.Time
	for s.awaitWork() {
		if failures < redialTries || !time.Now().Before(retry) {
			s.opening.Store(&progress{since: time.Now()})
			var c *conn
			c, failed = s.connect()
			if failed == nil {
				failures = 0
				for c != nil {
					c.ready = time.Now()
					s.beginNatives(c.natives)
					s.conn.Store(c)
					s.identify(c)
					s.opening.Store(nil)
					c = c.serve()
				}
				s.conn.Store(nil)
				continue
			}
			failures++
			retry = time.Now().Add(redialPause)
		}
		s.refuse(failed)
		s.opening.Store(nil) // a request is told why before nothing seems to be opened any more
	}
}

// identify retires c if a pool wants to know which server answers, and c has not asked. It is called after each change
// of identified and of conn, because both may change at once.
func (s *stream) identify(c *conn) {
	if c != nil && !c.asks && s.identified.Load() {
		c.retire()
	}
}

// connect opens a connection. While the node gives no sign of life, it searches for another beside the first.
func (s *stream) connect() (*conn, error) {
	if isClosed(s.owner) {
		s.sever(ErrClientClosed)
		return nil, ErrClientClosed
	}
	loads, pace := s.loadsScripts(), maxPace
	if s.distance.Load() > 0 {
		pace = s.distance.pace(minPace)
	}
	first := s.opener().begin(s.life)
	for !first.outlive(pace) {
		if c := s.searchBeside(first, pace); c != nil {
			return c, nil
		}
	}
	if first.err == nil {
		if s.distance.Load() == 0 || first.longest < pace { // else it was a stall
			s.distance.learn(first.longest)
		}
		first.opened.cancel = first.cancel
		return first.opened, nil
	}
	first.cancel()
	switch {
	case s.severed():
		return nil, ErrClientClosed
	case loads && isCutOffAt(first.err, loadsScript):
		return s.connect() // which loads no script
	case errors.Is(first.err, errMoved):
		return s.connect() // to the node that the client uses now
	}
	return nil, first.err
}

// searchBeside searches while first gives no sign of life. It may return nil.
func (s *stream) searchBeside(first *try[*conn], pace time.Duration) *conn {
	ctx, stop := context.WithCancel(s.life)
	found := make(chan *conn, 1)
	select {
	case <-first.given: // before it fell silent
	default:
	}
	go func() { found <- s.search(pace).run(ctx) }()
	select {
	case <-first.done:
	case <-first.given:
	case c := <-found:
		if c != nil {
			first.cancel()
			c.cancel = stop
			return c
		}
		<-first.done // the user has closed the client
	}
	stop() // closes what the search finds now
	return nil
}

func (s *stream) awaitWork() bool {
	for {
		s.mu.Lock()
		work, stop := len(s.requests) > 0, s.ending
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

func (s *stream) stop() {
	s.end(nil)
	s.idle.Stop()
	streams.Lock()
	defer streams.Unlock()
	if streams.running[s.user] == s {
		delete(streams.running, s.user)
	}
}

// refuse delivers NotSent to every queued request, with the highest Conn given out: no later one is lower.
func (s *stream) refuse(err error) {
	s.mu.Lock()
	refused := s.requests
	s.requests, s.encoded, s.within = nil, nil, 0
	s.mu.Unlock()
	s.fail(refused, Reply{Err: err, Fate: NotSent, Conn: connections.Load()})
}

func (p *streamPool) Link() (l Link) {
	if s := p.last.Load(); s != nil {
		l = s.link()
		l.Distance = time.Duration(s.distance.Load())
	}
	l.Limit = dialTimeout(p.client.Options())
	return l
}

func (s *stream) link() Link {
	if c := s.conn.Load(); c != nil {
		return Link{Open: true, Since: c.ready}
	}
	if p := s.opening.Load(); p != nil {
		return p.link()
	}
	return Link{}
}
