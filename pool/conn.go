package pool

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// keptBuffer bounds what a connection keeps of a buffer that has been written.
	keptBuffer = 512 << 10

	// renewPause is how old a connection must be to be exchanged for what the node
	// answers: the next one may be answered the same.
	renewPause = time.Second

	// minLifetime lets a connection serve at all, whatever the user's client allows.
	minLifetime = time.Second
)

// connections counts what all streams begin to open, so that a client's next
// stream goes on where its last one ended.
var connections atomic.Uint64

// A conn is one connection of a stream, after its handshake: a goroutine that
// writes what is queued, and one that reads the replies and delivers them.
type conn struct {
	net      net.Conn
	queue    *queue        // of the stream
	user     *redis.Client // whose node it leads to
	number   uint64
	server   *Server       // who is at the other end, nil if it does not say
	lifetime time.Duration // after which it is retired; 0: never
	opened   time.Time
	cancel   func()        // releases what the opening holds; may be nil
	ended    chan struct{} // closed when the last reply has been delivered
	silence  silence       // says when a second one is to be opened, or this one given up

	// Under the queue's mu.
	written   []queued // taken by serve and not by read, in order
	inFlight  int      // taken by serve, and not booked as delivered by read
	retired   bool     // takes nothing more, and ends when nothing is in flight
	dead      bool     // read has come to its end
	cause     error    // why it was closed from our side
	successor *conn    // has been opened beside this one, and goes on in its place

	// Of read alone.
	batch     []queued // taken from written
	next      int      // the index in batch of the request that is answered next
	delivered int      // replies that have been delivered and not been booked
}

var (
	errDone      = errors.New("the connection is not needed any more")
	errForgotten = errors.New("no reply while a second connection was opened")
)

// connect opens a connection for what is queued. An error means that no request was
// written on it. The end of ctx closes it.
func connect(ctx context.Context, q *queue, user *redis.Client) (*conn, error) {
	opt := user.Options()
	c := &conn{
		queue: q, user: user,
		number: connections.Add(1), opened: time.Now(), lifetime: opt.ConnMaxLifetime,
		ended: make(chan struct{}),
	}
	c.silence.timeout = boundedTimeout(opt.ReadTimeout)
	dial := opt.DialTimeout
	if dial <= 0 {
		dial = defaultDialTimeout
	}
	ask := func(ctx context.Context, cn *redis.Conn) (err error) {
		c.server, err = askServer(ctx, cn)
		return err
	}
	var err error
	c.net, err = open(ctx, opt, opening{dial: dial, whole: dial + maxReadTimeout, ask: ask, renewed: c.renew})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// serve carries requests until the connection has ended and every request that it
// took has its reply. It returns the connection that goes on in its place, nil if there
// is none.
func (c *conn) serve() *conn {
	c.silence.start(c.checkSilence)
	if c.lifetime > 0 {
		defer time.AfterFunc(max(c.lifetime, minLifetime), c.retire).Stop()
	}
	go c.read()
	var encoded []byte
	var requests []queued
	for {
		var err error
		if encoded, requests, err = c.take(encoded, requests); err == nil {
			// A write that hangs needs no deadline: replies are owed meanwhile, and
			// checkSilence closes a connection on which none comes.
			_, err = c.net.Write(encoded)
		}
		if err != nil {
			c.abort(err)
			break
		}
	}
	<-c.ended
	return c.successor
}

// take waits for requests, books them as in flight and returns them, encoded. It
// gives the two slices in hand to the queue in exchange. An error means that the
// connection shall end.
func (c *conn) take(encoded []byte, requests []queued) ([]byte, []queued, error) {
	if cap(encoded) > keptBuffer {
		encoded, requests = nil, nil
	}
	clear(requests) // drop the references
	q := c.queue
	for {
		q.mu.Lock()
		work := len(q.requests) > 0 && !c.retired
		switch {
		case c.dead, c.inFlight == 0 && (c.retired || q.ending && !work):
			q.mu.Unlock()
			return nil, nil, errDone
		case work:
			c.silence.taken(q.within, c.inFlight == 0)
			q.within = 0
			c.inFlight += len(q.requests)
			c.written = append(c.written, q.requests...)
			q.requests, requests = requests[:0], q.requests
			q.encoded, encoded = encoded[:0], q.encoded
			q.mu.Unlock()
			return encoded, requests, nil
		}
		q.mu.Unlock()
		<-q.wake
		// Let those who are about to send do so, that fewer writes carry more
		// (bench/README.md). It takes no time when nobody is.
		runtime.Gosched()
	}
}

// read delivers replies until the connection ends.
func (c *conn) read() {
	r := bufio.NewReaderSize(bookingReader{c}, readBuffer)
	for {
		value, err := readReply(r)
		if err == nil {
			err = c.deliver(value)
		}
		if err != nil {
			c.end(err)
			return
		}
	}
}

// deliver hands the answer to the oldest request to who waits for it.
func (c *conn) deliver(value any) error {
	if c.next == len(c.batch) && !c.takeWritten() {
		return errUnasked
	}
	c.silence.pause()
	req := c.batch[c.next]
	c.next++
	r := Reply{Value: value, Fate: Answered, Conn: c.number, Server: req.view.shown(c.server)}
	if err, refused := value.(refusal); refused {
		r.Value, r.Err = nil, err
		if outdated(err) && time.Since(c.opened) >= renewPause {
			c.retire()
		}
	}
	c.queue.owed.Add(-1)
	req.to.Receive(req.tag, r)
	c.delivered++
	return nil
}

// outdated reports whether a node's answer says that a new connection may do better:
// one with the credentials of the day, or to the server that the address leads to
// by now.
func outdated(err refusal) bool {
	return redis.HasErrorPrefix(err, "NOAUTH ") || redis.HasErrorPrefix(err, "READONLY ")
}

// takeWritten makes the requests that have been written meanwhile the batch.
func (c *conn) takeWritten() bool {
	clear(c.batch) // drop the references to what has been delivered
	c.queue.mu.Lock()
	defer c.queue.mu.Unlock()
	c.batch, c.written, c.next = c.written, c.batch[:0], 0
	c.silence.nextBatch()
	return len(c.batch) > 0
}

// retire lets the connection end when it owes nothing. What is queued waits for the
// next one.
func (c *conn) retire() {
	c.queue.mu.Lock()
	c.retired = true
	c.queue.mu.Unlock()
	c.queue.nudge()
}

// renew exchanges the connection for one with the credentials of the day. It lets it
// serve for a while first, lest credentials that never settle leave no connection that
// serves.
func (c *conn) renew() {
	if left := renewPause - time.Since(c.opened); left > 0 {
		time.AfterFunc(left, c.retire)
		return
	}
	c.retire()
}

// bookingReader is what the buffer of read is filled from. It books what has been
// delivered and watches the silence once for all replies that come together.
type bookingReader struct{ *conn }

func (r bookingReader) Read(p []byte) (int, error) {
	r.book()
	return r.net.Read(p)
}

// book books the replies that have been delivered. The silence begins with the
// last of them, or with the next request when none is owed.
func (c *conn) book() {
	q := c.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.delivered > 0 {
		c.inFlight -= c.delivered
		c.delivered = 0
		q.quiet = time.Now()
		c.silence.broken(c.inFlight > 0)
	}
	if c.inFlight == 0 && (c.retired || q.ending) {
		q.nudge()
	}
}

// checkSilence opens a second connection when this one owes a reply and has been silent for
// longer than its patience, and gives it up after its timeout.
func (c *conn) checkSilence() {
	q := c.queue
	q.mu.Lock()
	giveUp, d := c.silence.check(c.inFlight > 0 && !c.dead, !q.openingSecond)
	if d != nil {
		var ctx context.Context
		ctx, d.cancel = context.WithCancel(context.Background())
		q.openingSecond = true
		go c.replace(ctx, d)
	}
	q.mu.Unlock()
	if giveUp {
		c.abort(fmt.Errorf("no reply for %v: %w", c.silence.timeout, os.ErrDeadlineExceeded))
	}
}

// replace opens a second connection. It serves in the place of c if c has been silent all
// the while: then c is given up, and the stream goes on with the second once the fates of
// all that c owes are delivered. Else the second is closed.
func (c *conn) replace(ctx context.Context, d *second) {
	next, err := connect(ctx, c.queue, c.user)
	if err == nil {
		next.cancel = d.cancel
		look, done := context.WithTimeout(ctx, lastLook)
		<-look.Done()
		done()
	}
	if c.succeeds(d, next) {
		c.abort(fmt.Errorf("%w: %w", errForgotten, os.ErrDeadlineExceeded))
		return
	}
	d.cancel()
	if next != nil {
		_ = next.net.Close()
	}
}

// succeeds makes next, nil if it could not be opened, the successor of c, and reports
// whether it did.
func (c *conn) succeeds(d *second, next *conn) bool {
	q := c.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.openingSecond = false
	if !c.silence.outlasted(d, next != nil) {
		return false
	}
	c.successor = next
	return true
}

// abort makes read come to its end.
func (c *conn) abort(cause error) {
	c.queue.mu.Lock()
	if c.cause == nil {
		c.cause = cause
	}
	c.queue.mu.Unlock()
	_ = c.net.Close() // nothing is to be learnt from it
}

// end delivers that the fate of what is in flight is unknown.
func (c *conn) end(err error) {
	_ = c.net.Close()
	q := c.queue
	q.mu.Lock()
	c.dead = true
	if c.cause != nil {
		err = c.cause
	}
	lost := append(c.batch[c.next:], c.written...)
	c.silence.end()
	q.mu.Unlock()
	q.nudge()
	if c.cancel != nil {
		c.cancel()
	}
	q.fail(lost, Reply{Err: fmt.Errorf("pool: connection lost: %w", err), Fate: Unknown, Conn: c.number})
	close(c.ended)
}
