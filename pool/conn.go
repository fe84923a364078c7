package pool

import (
	"bufio"
	"errors"
	"fmt"
	"net"
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
)

// A conn is one connection of a stream, after its handshake: a goroutine that
// writes what is queued, and one that reads the replies and delivers them.
type conn struct {
	net      net.Conn
	stream   *stream
	number   uint64
	server   *Server       // who is at the other end, nil if it does not say
	timeout  time.Duration // for how long it may be silent while it owes replies
	lifetime time.Duration // after which it is retired; 0: never
	opened   time.Time
	cancel   func() // releases what the opening holds; may be nil

	watch *time.Timer   // calls checkSilence
	ended chan struct{} // closed when the last reply has been delivered

	// Under the stream's mu.
	written  []queued // taken by serve and not by read, in order
	inFlight int      // taken by serve, and not booked as delivered by read
	watching bool     // watch is running
	retired  bool     // takes nothing more, and ends when nothing is in flight
	dead     bool     // read has come to its end
	cause    error    // why it was closed from our side

	// Under the stream's mu, for silence.go.
	batchWithin   time.Duration // the least Within of batch
	writtenWithin time.Duration // that of written
	armed         time.Duration // for how long watch was set
	second        *second       // is being opened; nil while none is
	doubled       int           // how often the patience was doubled
	doubledAt     int64         // when it last was or was halved, as clock has it

	// Of read alone.
	batch     []queued // taken from written
	next      int      // the index in batch of the request that is answered next
	delivered int      // replies that have been delivered and not been booked

	// silent is since when, as clock has it, read has been waiting for a whole reply
	// that is owed; 0 while none is owed or those that have come are delivered.
	silent atomic.Int64
}

var errDone = errors.New("the connection is not needed any more")

// minLifetime lets a connection serve at all, whatever the user's client allows.
const minLifetime = time.Second

// serve carries requests until the connection has ended and every request that it
// took has its reply.
func (c *conn) serve() {
	c.watch = time.AfterFunc(c.timeout, c.checkSilence)
	c.watch.Stop()
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
}

// take waits for requests, books them as in flight and returns them, encoded. It
// gives the two slices in hand to the stream in exchange. An error means that the
// connection shall end.
func (c *conn) take(encoded []byte, requests []queued) ([]byte, []queued, error) {
	if cap(encoded) > keptBuffer {
		encoded, requests = nil, nil
	}
	clear(requests) // drop the references
	s := c.stream
	for {
		s.mu.Lock()
		work := len(s.queued) > 0 && !c.retired
		switch {
		case c.dead, c.inFlight == 0 && (c.retired || s.ending && !work):
			s.mu.Unlock()
			return nil, nil, errDone
		case work:
			idle := c.inFlight == 0
			if idle {
				c.batchWithin, c.writtenWithin = 0, 0
			}
			c.writtenWithin, s.within = sooner(c.writtenWithin, s.within), 0
			c.startWatch(idle)
			c.inFlight += len(s.queued)
			c.written = append(c.written, s.queued...)
			s.queued, requests = requests[:0], s.queued
			s.encoded, encoded = encoded[:0], s.encoded
			s.mu.Unlock()
			return encoded, requests, nil
		}
		s.mu.Unlock()
		<-s.wake
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
	if c.silent.Load() != 0 {
		c.silent.Store(0)
	}
	req := c.batch[c.next]
	c.next++
	r := Reply{Value: value, Fate: Answered, Conn: c.number, Server: req.pool.shown(c.server)}
	if err, refused := value.(refusal); refused {
		r.Value, r.Err = nil, err
		if outdated(err) && time.Since(c.opened) >= renewPause {
			c.retire()
		}
	}
	c.stream.owed.Add(-1)
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
	c.stream.mu.Lock()
	defer c.stream.mu.Unlock()
	c.batch, c.written, c.next = c.written, c.batch[:0], 0
	c.batchWithin, c.writtenWithin = c.writtenWithin, 0
	return len(c.batch) > 0
}

// retire lets the connection end when it owes nothing. What is queued waits for the
// next one.
func (c *conn) retire() {
	c.stream.mu.Lock()
	c.retired = true
	c.stream.mu.Unlock()
	c.stream.nudge()
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
	s := c.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.delivered > 0 {
		c.inFlight -= c.delivered
		c.delivered = 0
		s.quiet = time.Now()
		if c.inFlight > 0 {
			c.silent.Store(c.clock())
		}
		if c.second != nil {
			c.dropSecond()
		}
	}
	if c.inFlight == 0 && (c.retired || s.ending) {
		s.nudge()
	}
}

// abort makes read come to its end.
func (c *conn) abort(cause error) {
	c.stream.mu.Lock()
	if c.cause == nil {
		c.cause = cause
	}
	c.stream.mu.Unlock()
	_ = c.net.Close() // nothing is to be learnt from it
}

// end delivers that the fate of what is in flight is unknown.
func (c *conn) end(err error) {
	_ = c.net.Close()
	s := c.stream
	s.mu.Lock()
	c.dead = true
	if c.cause != nil {
		err = c.cause
	}
	lost := append(c.batch[c.next:], c.written...)
	if c.second != nil {
		c.second.cancel()
		c.second = nil
	}
	s.mu.Unlock()
	s.nudge()
	c.watch.Stop()
	if c.cancel != nil {
		c.cancel()
	}
	s.fail(lost, Reply{Err: fmt.Errorf("pool: connection lost: %w", err), Fate: Unknown, Conn: c.number})
	close(c.ended)
}
