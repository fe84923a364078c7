package pool

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/internal/jitter"
)

const (
	// openTimeout bounds the way from the dial to the node's confirmation.
	openTimeout = 5 * time.Second

	// A connection on which nothing has come for pingAfter is asked for a sign of
	// life, and given up when nothing has come for maxSilence. A node may be away
	// for 3 s at any time, and one that is gone is noticed after 3 to 5 s.
	pingAfter  = 2 * time.Second
	maxSilence = maxReadTimeout

	// The pauses between attempts double from firstPause to lastPause, and are
	// lengthened by up to a half at random, lest all subscribers of a node that
	// comes back come back at once.
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// A Subscriber is a Pool that can also listen to what clients PUBLISH on the node.
// It is found by type assertion; pools of New have it.
//
// Delivery is that of Redis, at most once: what is published while no connection
// stands reaches nobody, and nothing tells that it was missed, except that
// Subscribed is called again. Whoever waits for a message has another reason to
// look in any case, such as a timer.
type Subscriber interface {
	// Subscribe listens to channel until the Subscription is closed, or the node
	// refuses, or the Pool is closed. It does not wait for the node: what becomes
	// of it is told to the Listener, whose methods may be called before Subscribe
	// returns.
	//
	// Each Subscription is one goroutine and one connection, also for a channel
	// that the Pool listens to already. The node's user needs SUBSCRIBE and the
	// channel (+subscribe &channel); PING is used, and need not be allowed.
	//
	// An error means that nothing was started, and the Listener is never called:
	// ErrClosed, an empty channel, a nil Listener, or why the Pool can never send.
	Subscribe(channel string, to Listener) (Subscription, error)
}

// A Listener is told what becomes of a Subscription. Its methods are called one at
// a time, from a goroutine of the Subscription. They must not block: while one
// runs nothing else is delivered, and the node ends the connection of a client
// that lets too much pile up.
//
// What is called follows
//
//	{ Unsubscribed | Subscribed { Message } Unsubscribed } [ Refused ]
//
// and ends anywhere when the Subscription is closed; Subscribed may come twice in
// a row where a client of the user's own has changed its connection. A method may
// call Close, and methods of the Pool.
type Listener interface {
	// Subscribed: the node has confirmed. What is published on it from now on is
	// delivered, as long as the connection stands. It is called again after every
	// reconnect: what was published between was missed.
	Subscribed()

	// Message is called with the payload of each message, in the order in which
	// the node published them. A message is delivered at most once.
	Message(payload string)

	// Unsubscribed: the connection is lost, or could not be made or was not
	// confirmed within 5 s; err says why. It is called after every attempt that
	// fails, and the next one follows after 50 ms, doubling to 1 s, and up to half
	// as much more at random, without end. The pauses begin anew with a connection
	// that was good for a second.
	//
	// A lost connection whose end the node or its system tells is noticed at once.
	// A silent one (a frozen node, a cut network) is when nothing has come for 5 s:
	// the node is asked for a sign of life every 2 s, so that it is noticed 3 to
	// 5 s after it falls silent. Messages may have been missed that long without
	// notice.
	Unsubscribed(err error)

	// Refused: the node does not let its user SUBSCRIBE to the channel (NOPERM,
	// NOAUTH, ...); err is its answer, a redis.Error. It is called at most once,
	// nothing is called or tried after it, and the connection is closed. Errors
	// that pass (LOADING, BUSY, ...), and those of the greeting (a wrong password,
	// which may be changed), are Unsubscribed.
	Refused(err error)
}

// A Subscription is what Subscribe has started.
type Subscription interface {
	// Close ends the Subscription. It does not wait for the node. When it returns
	// no method of the Listener is running and none is called any more. To that
	// end it waits for a method that is running, so do not hold a lock that the
	// methods take. Called from a method of a Listener, of this Subscription or of
	// another, it does not wait: that method goes on, and one of another
	// Subscription may. The Pool's Close ends the Subscription without waiting
	// either.
	//
	// The connection is closed and the goroutine ends at once, or when a dial ends
	// that is under way and does not heed its context, as go-redis's with TLS. With
	// clients other than a *redis.Client an attempt to connect is under way until
	// their own timeouts end it.
	//
	// A second Close does what the first did. After Refused it has nothing to end.
	Close()
}

var (
	_ Subscriber = (*streamPool)(nil)
	_ Subscriber = (*routedPool)(nil)
	_ Subscriber = (*batchPool)(nil)
)

// Subscribe implements Subscriber.
func (p *streamPool) Subscribe(channel string, to Listener) (Subscription, error) {
	return p.subs.start(&p.config, channel, to, p.dialChannel)
}

// Subscribe implements Subscriber.
func (p *routedPool) Subscribe(channel string, to Listener) (Subscription, error) {
	return p.subs.start(&p.config, channel, to, p.dialChannel)
}

// Subscribe implements Subscriber.
func (p *batchPool) Subscribe(channel string, to Listener) (Subscription, error) {
	return p.subs.start(&p.config, channel, to, p.dialChannel)
}

// A dialer opens a connection and sends SUBSCRIBE on it. The end of ctx closes it.
type dialer = func(ctx context.Context, channel string) (wire, error)

// A wire is a connection that listens to a channel.
type wire interface {
	// receive returns what comes next, within timeout. An answer of the node that is an
	// error is a redis.Error.
	receive(timeout time.Duration) (news, error)

	// ping asks the node for a sign of life.
	ping()

	Close() error
}

// news is what has come: a message, the confirmation of a channel, or neither.
type news struct {
	message    bool
	text       string // of the message
	subscribed string // the channel that is confirmed
}

// dialChannel is the dialer of a *redis.Client.
func (p *streamPool) dialChannel(ctx context.Context, channel string) (wire, error) {
	return dialWire(ctx, p.client.Options(), channel)
}

// dialChannel is the dialer of a cluster and of a ring, which know the node to listen to.
func (p *routedPool) dialChannel(ctx context.Context, channel string) (w wire, err error) {
	defer recovered(&err)
	node, err := p.route(ctx, channel)
	if err != nil {
		return nil, err
	}
	return dialWire(ctx, node.Options(), channel)
}

// dialChannel is the dialer of other clients.
func (p *batchPool) dialChannel(ctx context.Context, channel string) (w wire, err error) {
	defer recovered(&err)
	return dialPubSub(ctx, p.client, channel)
}

// An ownWire is a connection of the pool's own.
type ownWire struct {
	net.Conn
	replies *bufio.Reader
	owed    atomic.Int32 // answers
}

// dialWire opens a connection to the node of a user's client, and sends SUBSCRIBE.
func dialWire(ctx context.Context, user *redis.Options, channel string) (wire, error) {
	ctx, end := context.WithCancel(ctx)
	conn, err := open(ctx, user, opening{dial: openTimeout, whole: openTimeout, renewed: end})
	if err != nil {
		end()
		return nil, err
	}
	w := &ownWire{Conn: conn, replies: bufio.NewReaderSize(conn, readBuffer)}
	if err := w.send("subscribe", channel); err != nil {
		end()
		return nil, err
	}
	return w, nil
}

// send writes a command.
func (w *ownWire) send(args ...any) error {
	b, err := AppendCommand(nil, args)
	if err == nil {
		err = w.SetWriteDeadline(time.Now().Add(maxSilence))
	}
	if err == nil {
		w.owed.Add(1)
		_, err = w.Write(b)
	}
	return err
}

func (w *ownWire) ping() { _ = w.send("ping") } // an error is the reader's too

func (w *ownWire) receive(timeout time.Duration) (news, error) {
	if err := w.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return news{}, err
	}
	reply, err := readReply(w.replies)
	if err != nil {
		return news{}, err
	}
	if text, is := message(reply); is {
		return news{message: true, text: text}, nil
	}
	if w.owed.Add(-1) < 0 {
		return news{}, errUnasked
	}
	switch reply := reply.(type) {
	case refusal:
		return news{}, reply
	case string:
		if reply == "PONG" {
			return news{}, nil
		}
	case []any:
		if channel, is := confirmation(reply); is {
			return news{subscribed: channel}, nil
		}
		if len(reply) > 0 && reply[0] == "pong" {
			return news{}, nil
		}
	}
	return news{}, errUnasked
}

// confirmation returns the channel of a reply that confirms SUBSCRIBE.
func confirmation(reply []any) (channel string, is bool) {
	if len(reply) != 3 || reply[0] != "subscribe" {
		return "", false
	}
	_, counts := reply[2].(int64)
	channel, is = reply[1].(string)
	return channel, is && counts
}

// message returns the payload of a reply that is a message.
func message(reply any) (payload string, is bool) {
	m, _ := reply.([]any)
	if len(m) != 3 || m[0] != "message" {
		return "", false
	}
	payload, is = m[2].(string)
	return payload, is
}

// A pubSubWire is a connection of a client that says nothing of its nodes. go-redis
// reconnects behind the back of who reads, which it must not.
type pubSubWire struct{ *redis.PubSub }

// dialPubSub subscribes as client does. What it returns has swallowed why it has no
// connection; PING tells, after one more attempt to connect.
func dialPubSub(ctx context.Context, client redis.UniversalClient, channel string) (wire, error) {
	opening, done := context.WithTimeout(ctx, openTimeout)
	defer done()
	ps := client.Subscribe(opening, channel)
	if err := ps.Ping(opening); err != nil {
		_ = ps.Close()
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = ps.Close() })
	return pubSubWire{ps}, nil
}

func (w pubSubWire) ping() { _ = w.Ping(ended) }

// receive makes errors of the panics that go-redis has for what no Redis sends.
func (w pubSubWire) receive(timeout time.Duration) (n news, err error) {
	defer recovered(&err)
	msg, err := w.ReceiveTimeout(ended, timeout)
	if err != nil {
		return news{}, shortened(err)
	}
	switch msg := msg.(type) {
	case *redis.Message:
		return news{message: true, text: msg.Payload}, nil
	case *redis.Subscription:
		if msg.Kind == "subscribe" {
			n.subscribed = msg.Channel
		}
	}
	return n, nil
}

// ended is the context of everything that is done on a pubSubWire: it is not looked at,
// except where go-redis dials to replace a lost connection, which fails then.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// subscriptions are those of a Pool that have not ended.
type subscriptions struct {
	mu     sync.Mutex
	closed bool
	open   map[*subscription]struct{}
}

func (ss *subscriptions) start(cfg *config, channel string, to Listener, dial dialer) (Subscription, error) {
	switch {
	case cfg.err != nil:
		return nil, cfg.err
	case channel == "":
		return nil, errors.New("pool: Subscribe needs a channel")
	case to == nil:
		return nil, errors.New("pool: Subscribe needs a Listener")
	}
	ctx, end := context.WithCancel(context.Background())
	s := &subscription{channel: channel, to: to, dial: dial, end: end, telling: make(chan struct{}, 1)}
	if !ss.add(s) {
		end()
		return nil, ErrClosed
	}
	go func() {
		defer ss.remove(s)
		defer end()
		s.run(ctx)
	}()
	return s, nil
}

// add notes s, unless the Pool is closed.
func (ss *subscriptions) add(s *subscription) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.closed {
		return false
	}
	if ss.open == nil {
		ss.open = make(map[*subscription]struct{})
	}
	ss.open[s] = struct{}{}
	return true
}

func (ss *subscriptions) remove(s *subscription) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.open, s)
}

// close ends all subscriptions, now and later.
func (ss *subscriptions) close() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.closed = true
	for s := range ss.open {
		s.stop()
	}
}

// subscription is a Subscription of a Pool of New.
type subscription struct {
	channel string
	to      Listener
	dial    dialer
	end     context.CancelFunc // of the context of run

	closed atomic.Bool // nothing more is told

	// telling holds a token while a method of the Listener runs. It is a lock, but
	// waiting for it is idleness to testing/synctest.
	telling chan struct{}
}

func (s *subscription) stop() {
	s.closed.Store(true)
	s.end()
}

func (s *subscription) Close() {
	s.stop()
	// Whoever tells from here on finds closed set, and does not. The method that
	// runs now is waited for, unless that is what calls us, or one of another
	// Listener does: two that close each other's subscription would wait for ever.
	select {
	case s.telling <- struct{}{}:
	default:
		if inListener() {
			return
		}
		s.telling <- struct{}{}
	}
	<-s.telling
}

// tell calls a method of the Listener, unless s is closed.
func (s *subscription) tell(method func()) {
	s.telling <- struct{}{}
	defer func() { <-s.telling }()
	if !s.closed.Load() {
		listener(method)
	}
}

// listener is on the stack of every method of a Listener: inListener looks for it.
//
//go:noinline
func listener(method func()) { method() }

var listenerEntry = reflect.ValueOf(listener).Pointer()

// inListener reports whether its caller was called by a method of a Listener.
func inListener() bool {
	pcs := make([]uintptr, 64)
	n := runtime.Callers(1, pcs)
	for ; n == len(pcs); n = runtime.Callers(1, pcs) {
		pcs = make([]uintptr, 2*len(pcs))
	}
	for frames := runtime.CallersFrames(pcs[:n]); ; {
		frame, more := frames.Next()
		if frame.Entry == listenerEntry {
			return true
		}
		if !more {
			return false
		}
	}
}

// run keeps s subscribed until ctx ends or the node refuses.
func (s *subscription) run(ctx context.Context) {
	pause := firstPause
	for {
		lasted, err := s.listen(ctx)
		var refused *refusedError
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &refused):
			s.tell(func() { s.to.Refused(err) })
			return
		}
		s.tell(func() { s.to.Unsubscribed(err) })
		if lasted >= lastPause {
			pause = firstPause
		}
		if !sleep(ctx, pause+jitter.N(pause/2)) {
			return
		}
		pause = min(2*pause, lastPause)
	}
}

// sleep reports whether d has passed before the end of ctx.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// listen delivers what comes on one connection until it ends or ctx does. It
// returns why, and for how long it was subscribed.
func (s *subscription) listen(ctx context.Context) (lasted time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := time.Now()
	w, err := s.dial(ctx, s.channel)
	if err != nil {
		return 0, fmt.Errorf("pool: not subscribed: %w", err)
	}
	defer func() { _ = w.Close() }()
	if err := s.confirm(w, time.Until(start.Add(openTimeout))); err != nil {
		return 0, err
	}
	start = time.Now()
	s.tell(s.to.Subscribed)
	err = s.deliver(w)
	return time.Since(start), fmt.Errorf("pool: connection lost: %w", err)
}

// confirm waits for the answer to SUBSCRIBE, which is the first on its connection.
func (s *subscription) confirm(w wire, timeout time.Duration) error {
	h, err := w.receive(max(timeout, 1)) // 0 would be no timeout
	switch {
	case isAnswer(err) && !passes(err):
		return &refusedError{s.channel, err}
	case err != nil:
		return fmt.Errorf("pool: SUBSCRIBE not confirmed: %w", err)
	case h.subscribed != s.channel:
		return fmt.Errorf("pool: SUBSCRIBE not confirmed: %w", errUnasked)
	}
	return nil
}

// deliver tells the Listener what comes until the connection is lost. A read that
// times out may have read a part of a message: it is the end of the connection,
// and PING is sent while another read waits.
func (s *subscription) deliver(w wire) error {
	ping := time.AfterFunc(pingAfter, w.ping)
	defer ping.Stop()
	for {
		h, err := w.receive(maxSilence)
		if err != nil && !isAnswer(err) { // a PING that is not allowed is answered all the same
			return err
		}
		ping.Reset(pingAfter)
		switch {
		case h.message:
			s.tell(func() { s.to.Message(h.text) })
		case h.subscribed != "":
			s.tell(s.to.Subscribed)
		}
	}
}

// passing are the beginnings of errors that a node gives for a time only.
var passing = []string{
	"LOADING ", "BUSY ", "TRYAGAIN ", "CLUSTERDOWN ", "MASTERDOWN ", "READONLY ", "OOM ",
	"max number of clients reached", // behind an ERR, which HasErrorPrefix skips
}

func passes(err error) bool {
	return slices.ContainsFunc(passing, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// A refusedError is the error of Refused.
type refusedError struct {
	channel string
	answer  error
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("pool: subscribing to %q is refused: %v", cut(e.channel), e.answer)
}

func (e *refusedError) Unwrap() error { return e.answer }
