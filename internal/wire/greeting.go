package wire

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// greet makes go-redis greet the node at the other end of conn, and then calls ask.
//
// Results of go-redis's commands do not prove that the greeting succeeded: v9.23.0 reported success for commands that
// it never sent (Pipelined). A call of OnConnect does, because it comes last, and only if nothing has failed. There the
// pool asks its questions and takes the connection back. The command that made go-redis connect is never sent.
//
// After that go-redis leaves the connection alone: ownOptions disables its background work, and it checks only
// connections that have returned to its pool.
func greet(ctx context.Context, opt *redis.Options, conn *ownConn, how *opening) (err error) {
	through := conn.Conn
	for _, sign := range []func(){how.sign, how.heard} {
		if sign != nil {
			through = signingConn{through, sign}
		}
	}
	lent := newLentConn(through, conn)
	lent.timeout = opt.ReadTimeout
	if how.behind != nil && opt.OnConnect == nil { // it may log in first, or leave a MULTI open
		lent.behind = how.behind
		conn.ahead = lent.takeAnswers
	}
	greeted, used := false, false
	onConnect := opt.OnConnect
	var failed error // kept here, because go-redis would unwrap it
	opt.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
		if onConnect != nil {
			failed = onConnect(ctx, cn)
		}
		if failed == nil && how.ask != nil {
			failed = how.ask(ctx, cn, conn)
		}
		if failed == nil {
			failed = lent.takeBack()
		}
		greeted = failed == nil
		return cmp.Or(failed, errTakenBack)
	}
	opt.Dialer = func(context.Context, string, string) (net.Conn, error) {
		if used {
			return nil, errLost
		}
		used = true
		return lent, nil
	}
	defer recovered(&err)
	client := redis.NewClient(opt)
	defer func() { _ = client.Close() }()
	err = client.Ping(ctx).Err()
	switch {
	case greeted:
		conn.ahead = nil // it would keep lent, and what was written
		return nil
	case failed != nil && isEnd(failed) && refusalIn(lent.refused).ends:
		return lent.explained(failed)
	case failed != nil:
		return cutOffAt(lent.unanswered(), failed)
	case err == nil:
		return errors.New("go-redis has not greeted the node")
	}
	return lent.explained(err)
}

var (
	errTakenBack = errors.New("pool: the connection has been taken back")
	errLost      = errors.New("a connection is opened once")
)

// A lentConn lends a connection to go-redis until the pool takes it back. go-redis reads only replies that the pool's
// decoder has read before: it allocates what a peer announces, and recurses as deep as arrays nest, so three malformed
// lines could end the process.
type lentConn struct {
	net.Conn
	of    *ownConn // that is greeted
	state atomic.Int32

	// Only the reading goroutine uses these.
	replies *bufio.Reader // fills arrived as it reads
	arrived bytes.Buffer  // bytes not yet passed to go-redis
	heard   bool
	whole   int   // length of a complete reply in arrived
	broken  error // the error that ended reading
	refused error // the last reply, if it was an error
	replied int
	written commandNames

	// What is written behind the greeting: see opening.
	behind  func(*ownConn) (encoded []byte, commands int) // nil if there is nothing to write
	timeout time.Duration
	before  int // go-redis's replies that come before the answers
	owed    int
	answers []any
	at      time.Time // of the first answer
}

const (
	lent = iota
	takenBack
	closed
)

const greetingBuffer = 4 << 10

// maxGreeting bounds the memory for one reply of the greeting.
const maxGreeting = 1 << 20

func newLentConn(conn net.Conn, of *ownConn) *lentConn {
	c := &lentConn{Conn: conn, of: of}
	c.replies = bufio.NewReaderSize(arrivals{c}, greetingBuffer)
	return c
}

// arrivals reads for the decoder, and keeps a copy of every byte.
type arrivals struct{ *lentConn }

func (a arrivals) Read(p []byte) (int, error) {
	n, err := a.Conn.Read(p)
	a.arrived.Write(p[:n])
	a.heard = a.heard || n > 0
	return n, err
}

// takeBack ends the lending. It fails if go-redis has closed the connection, or the node has sent too much. A push, or
// a part of one, stays for the next reader.
func (c *lentConn) takeBack() error {
	switch {
	case !c.state.CompareAndSwap(lent, takenBack):
		return net.ErrClosed
	case c.arrived.Len() > 0 && c.arrived.Bytes()[0] != '>':
		return errUnsolicited
	}
	c.of.early = append(c.of.early, c.arrived.Bytes()...)
	return c.Conn.SetDeadline(time.Time{})
}

func (c *lentConn) Close() error {
	if c.state.CompareAndSwap(lent, closed) {
		return c.Conn.Close()
	}
	return nil
}

func (c *lentConn) Read(p []byte) (int, error) {
	if c.state.Load() != lent {
		return 0, net.ErrClosed
	}
	if c.whole == 0 {
		if err := c.readReply(); err != nil {
			return 0, err
		}
	}
	n, _ := c.arrived.Read(p[:min(len(p), c.whole)])
	c.whole -= n
	return n, nil
}

func (c *lentConn) readReply() error {
	if c.broken != nil {
		return c.broken
	}
	value, err := c.replyForGoRedis()
	if err != nil {
		c.broken = err
		return err
	}
	c.before--
	c.refused = nil
	if refused, ok := value.(refusal); ok {
		c.refused = refused
	}
	if c.replied++; c.replied == 1 {
		c.of.refusedHello, c.of.mode = c.refused != nil, modeIn(value)
	}
	c.whole = c.arrived.Len() - c.replies.Buffered()
	return nil
}

func (c *lentConn) replyForGoRedis() (any, error) {
	for {
		if c.before <= 0 && c.owed > 0 {
			if err := c.takeAnswer(); err != nil {
				return nil, err
			}
			continue
		}
		value, err := c.replyOrPush()
		if _, is := value.(push); err != nil || !is {
			return value, err
		}
		if err := c.keepPush(); err != nil {
			return nil, err
		}
	}
}

func (c *lentConn) keepPush() error {
	if c.of.early = append(c.of.early, c.drop()...); len(c.of.early) > maxGreeting {
		return errMalformed
	}
	return nil
}

func (c *lentConn) drop() []byte { return c.arrived.Next(c.arrived.Len() - c.replies.Buffered()) }

func (c *lentConn) takeAnswer() error {
	value, err := c.replyOrPush()
	if err != nil {
		return err
	}
	if _, is := value.(push); is {
		return c.keepPush()
	}
	c.drop()
	c.replied++
	if len(c.answers) == 0 {
		c.at = time.Now()
	}
	c.answers = append(c.answers, value)
	c.owed--
	return nil
}

// takeAnswers waits for the answers to what was written behind the greeting.
func (c *lentConn) takeAnswers(ctx context.Context) ([]any, time.Time, error) {
	deadline := time.Now().Add(c.timeout)
	if end, ok := ctx.Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	if err := c.SetReadDeadline(deadline); err != nil {
		return nil, c.at, err
	}
	for c.owed > 0 {
		if c.broken == nil {
			c.broken = c.takeAnswer()
		}
		if c.broken != nil {
			return nil, c.at, c.broken
		}
	}
	return c.answers, c.at, nil
}

func (c *lentConn) replyOrPush() (any, error) {
	d := decoder{Reader: c.replies, left: maxGreeting}
	return d.value(0)
}

// explained adds the last error reply of the node to err. A node with too many clients sends one unasked and closes the
// connection during the greeting.
func (c *lentConn) explained(err error) error {
	if c.refused == nil || isAnswer(err) {
		err = plainHint(err, c.arrived.Bytes(), c.heard)
		if c.heard {
			err = cutOffAt(c.unanswered(), err)
		}
		return err
	}
	if !refusalIn(c.refused).ends {
		err = cutOffAt(c.unanswered(), err)
	}
	return fmt.Errorf("%w (the node has answered: %w)", err, c.refused)
}

func (c *lentConn) unanswered() string {
	if c.replied < len(c.written.names) {
		return c.written.names[c.replied]
	}
	return ""
}

func (c *lentConn) Write(p []byte) (int, error) {
	if c.state.Load() != lent {
		return 0, net.ErrClosed
	}
	n := len(p)
	if c.behind != nil && bytes.HasPrefix(p, setInfo) {
		c.before = bytes.Count(p, setInfo)
		var encoded []byte
		encoded, c.owed = c.behind(c.of)
		c.behind = nil
		p = slices.Concat(p, encoded)
	}
	c.written.write(p)
	written, err := c.Conn.Write(p)
	return min(written, n), err
}

// setInfo begins the commands in which go-redis tells its name. They are the last write before OnConnect, and their
// answers do not matter.
var setInfo = []byte("*4\r\n$6\r\nclient\r\n$7\r\nsetinfo\r\n")

func (c *lentConn) SetDeadline(t time.Time) error {
	if c.state.Load() != lent {
		return net.ErrClosed
	}
	return c.Conn.SetDeadline(t)
}

func (c *lentConn) SetReadDeadline(t time.Time) error {
	if c.state.Load() != lent {
		return net.ErrClosed
	}
	return c.Conn.SetReadDeadline(t)
}

func (c *lentConn) SetWriteDeadline(t time.Time) error {
	if c.state.Load() != lent {
		return net.ErrClosed
	}
	return c.Conn.SetWriteDeadline(t)
}
