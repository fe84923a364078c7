package wire

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// keptBuffer is the largest buffer that a connection reuses after writing it.
	keptBuffer = 512 << 10

	// renewPause is how long a connection serves before a refusal or new credentials replace it. Otherwise a node that
	// always answers NOAUTH or READONLY would cause endless reconnects.
	renewPause = time.Second

	// minLifetime applies if the user's ConnMaxLifetime is shorter.
	minLifetime = time.Second
)

// connections numbers the connections of all streams: Conn rises from one stream of a client to the next.
var connections atomic.Uint64

// A conn is one connection of a stream, after its greeting. One goroutine writes what is queued, another reads and
// delivers replies.
type conn struct {
	net      net.Conn
	queue    *queue
	number   uint64
	server   *Server       // nil if unknown
	lifetime time.Duration // after which it is retired; 0: never
	opened   time.Time     // when the attempt to open it began
	ready    time.Time
	cancel   func()        // ends the context that it was opened with
	asks     bool          // it has asked which server it reaches
	ended    chan struct{} // closed when the last reply has been delivered
	silence  silence
	follows  *followed // nil if the client is none of Sentinel
	heed     heed
	natives  Native // that its server should have

	// Guarded by the queue's mu.
	written   []queued // taken by serve, not yet by read, in order
	inFlight  int      // taken by serve, not yet counted as delivered by read
	retired   bool     // takes no more requests, and ends once nothing is in flight
	dead      bool     // read has ended
	cause     error    // why our side closed it
	successor *conn    // the connection that replaces this one

	// Only read uses these.
	moving    bool     // a notification to move has come
	moved     bool     // it replaces one that was told to move; set before it serves
	pushes    int      // since the last reply
	batch     []queued // taken from written
	next      int      // index in batch of the request to be answered next
	delivered int      // replies delivered, not yet subtracted from inFlight
	first     any      // the answer to the first of two commands
}

var errDone = errors.New("the connection is not needed any more")

// connect opens a connection for q, and calls sign at each sign of life. On an error no request has been written. The
// end of ctx closes the connection.
func connect(ctx context.Context, q *queue, sign func()) (*conn, error) {
	user, opt := q.user, q.user.Options()
	c := &conn{
		queue:  q,
		number: connections.Add(1), opened: time.Now(), lifetime: opt.ConnMaxLifetime,
		ended: make(chan struct{}), heed: heedOf(user),
	}
	c.silence.timeout = boundedTimeout(opt.ReadTimeout)
	dial := dialTimeout(opt)
	var asked *questions // more scripts may become known meanwhile
	first := !q.connected.Swap(true)
	question := func(h heed, mayKnow bool) *questions {
		identifies, loads := q.identified.Load(), q.loadsScripts()
		var known *loading
		address := addressKey(opt)
		if mayKnow && identifies && loads && address != "" {
			if l, is := loadedAt(address); is {
				known, loads = &l, false
			}
		}
		asks := newQuestions(h, identifies, loads)
		asks.address, asks.known = address, known
		return asks
	}
	ask := func(ctx context.Context, cn *redis.Conn, opened *ownConn) (err error) {
		if c.heed, err = c.heed.on(opened); err == nil {
			if asked == nil {
				asked = question(c.heed, first)
			}
			c.server, err = askServer(ctx, cn, asked, opened)
		}
		if err == nil && asked.known != nil && !asked.known.isOf(c.server) {
			opened.ahead = nil
			c.server, err = askServer(ctx, cn, question(c.heed, false), opened)
		}
		if err == nil && q.share != nil {
			err = q.share.learn(ctx, cmp.Or(opened.mode, asked.mode), cn.Do)
		}
		return err
	}
	if opt.Addr == ofSentinel {
		following, leave := context.WithCancelCause(ctx)
		c.follows = followClient(following, user, q.named.Load(), func() { leave(errMoved) })
		ctx = following
	}
	how := opening{dial: dial, whole: dial + maxReadTimeout, ask: ask, renewed: c.renew, sign: sign, heeds: c.heed.wanted}
	at := q.elsewhere.Load()
	if at != nil {
		how.at = *at
	}
	how.behind = func(greeted *ownConn) ([]byte, int) {
		heeded, _ := c.heed.on(greeted) // ask returns the error
		asked = question(heeded, first)
		return asked.encoded(), len(asked.commands)
	}
	how.dialed = func(net.Conn) { q.opening.Load().dialed() }
	how.heard = func() { q.opening.Load().heard() }
	var err error
	c.net, err = open(ctx, user, how)
	if ctx.Err() == nil { // later connections lead to the client's own address
		q.elsewhere.CompareAndSwap(at, nil)
	}
	if err == nil && c.follows != nil {
		err = c.follows.opened(c.net, c.server, c.leave)
	}
	if err != nil {
		if isCutOffAt(err, loadsScript) {
			now := time.Now()
			q.cutAtScripts.Store(&now)
		}
		return nil, moved(ctx, err)
	}
	c.asks, c.natives = asked.identifies(), asked.natives
	noteReached(user, c.net)
	return c, nil
}

const loadsScript = "SCRIPT LOAD"

func (q *queue) opener() opener[*conn] {
	return func(ctx context.Context, sign func()) (*conn, error) { return connect(ctx, q, sign) }
}

func (q *queue) search(pace time.Duration) *search[*conn] {
	return &search[*conn]{open: q.opener(), distance: &q.distance, pace: pace}
}

// serve carries requests until the connection has ended and each has its reply. It returns the successor.
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
			// A write that hangs needs no deadline: checkSilence closes a connection on which no reply arrives.
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

// take waits for requests, and counts them as in flight. The queue reuses its arguments. An error means that the
// connection must end.
func (c *conn) take(encoded []byte, requests []queued) ([]byte, []queued, error) {
	if cap(encoded) > keptBuffer {
		encoded, requests = nil, nil
	}
	clear(requests)
	q, looked := c.queue, false
	for {
		if c.follows != nil {
			c.follows.settle()
		}
		q.mu.Lock()
		work := len(q.requests) > 0 && !c.retired
		switch {
		case c.dead, c.inFlight == 0 && (c.retired || q.ending && !work):
			q.mu.Unlock()
			return nil, nil, errDone
		case work && !looked && c.inFlight == 0 && hasRested(q.quiet, time.Now()) && hasRested(c.ready, time.Now()):
			q.mu.Unlock()
			looked = true
			if err := c.checkRested(q.life); err != nil {
				return nil, nil, err
			}
			continue
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
		looked = false
		// Let goroutines that are about to send do so first: fewer writes carry more requests (bench/tried.md).
		runtime.Gosched()
	}
}

func (c *conn) read() {
	r := bufio.NewReaderSize(bookingReader{c}, readBuffer)
	for {
		value, err := readReply(r)
		if p, is := value.(push); is {
			err = c.notified(p)
		} else if err == nil {
			err = c.deliver(value)
		}
		if err != nil {
			c.end(err)
			return
		}
	}
}

func (c *conn) deliver(value any) error {
	if c.next == len(c.batch) && !c.takeWritten() {
		return errUnsolicited
	}
	c.silence.pause()
	c.pushes = 0
	req := c.batch[c.next]
	c.next++
	r := Reply{Value: value, Fate: Answered, Conn: c.number, Server: req.view.shown(c.server)}
	if err, refused := value.(refusal); refused {
		r.Value, r.Err = nil, c.explained(err)
		if c.outdated(err) && time.Since(c.opened) >= renewPause {
			c.retire()
		}
	}
	c.delivered++
	if req.native != 0 {
		c.queue.hearNative(req.native, r.Err)
	}
	switch req.of {
	case firstOfTwo:
		c.first = r.Value
		return nil
	case secondOfTwo:
		r.First, c.first = c.first, nil
	}
	c.queue.owed.Add(-1)
	req.to.Receive(req.tag, r)
	return nil
}

func (c *conn) explained(err refusal) error {
	if c.queue.share == nil {
		return err
	}
	return c.queue.share.heard(err)
}

func (c *conn) outdated(err refusal) bool {
	return beginsWith(err, "NOAUTH ", "READONLY ") || c.queue.share != nil && beginsWith(err, "MOVED ")
}

func (c *conn) takeWritten() bool {
	clear(c.batch)
	c.queue.mu.Lock()
	defer c.queue.mu.Unlock()
	c.batch, c.written, c.next = c.written, c.batch[:0], 0
	c.silence.nextBatch()
	return len(c.batch) > 0
}

// retire ends the connection once it owes nothing. Queued requests wait for the next one.
func (c *conn) retire() {
	c.queue.mu.Lock()
	c.retired = true
	c.queue.mu.Unlock()
	c.queue.nudge()
}

func (c *conn) leave() {
	c.retire()
	c.abort(errMoved)
}

// renew retires the connection after renewPause: credentials that always change would let none serve.
func (c *conn) renew() {
	if left := renewPause - time.Since(c.opened); left > 0 {
		time.AfterFunc(left, c.retire)
		return
	}
	c.retire()
}

// bookingReader calls book before each read from the network, so once for replies that arrived together.
type bookingReader struct{ *conn }

func (r bookingReader) Read(p []byte) (int, error) {
	r.book()
	return r.net.Read(p)
}

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

func (c *conn) checkSilence() {
	q := c.queue
	q.mu.Lock()
	giveUp, d := c.silence.check(c.inFlight > 0 && !c.dead, !q.openingSecond)
	timeout := c.silence.timeout
	if d != nil {
		var ctx context.Context
		ctx, d.cancel = context.WithCancel(q.life)
		q.openingSecond = true
		go c.replace(ctx, d, q.search(q.distance.pace(c.silence.minPace())))
	}
	q.mu.Unlock()
	if giveUp {
		c.abort(fmt.Errorf("no reply for %v: %w", timeout, os.ErrDeadlineExceeded))
	}
}

// replace searches for a second connection while c stays silent, and gives c up if it finds one. To spare a slow node,
// the next search begins when all tries of this one have ended.
func (c *conn) replace(ctx context.Context, d *second, s *search[*conn]) {
	next := s.run(ctx)
	if next != nil {
		next.cancel = d.cancel
		sleep(ctx, lastLook)
	}
	if c.succeeds(d, next) {
		c.abort(fmt.Errorf("%w: %w", errForgotten, os.ErrDeadlineExceeded))
		return
	}
	d.cancel()
	if next != nil {
		_ = next.net.Close()
	}
	s.wait()
	c.queue.mu.Lock()
	c.queue.openingSecond = false
	c.queue.mu.Unlock()
}

// succeeds makes next, if any, the successor of c if c has stayed silent.
func (c *conn) succeeds(d *second, next *conn) bool {
	q := c.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if !c.silence.outlasted(d, next != nil) || c.successor != nil {
		return false
	}
	q.openingSecond = false
	c.successor = next
	return true
}

func (c *conn) abort(cause error) {
	c.queue.mu.Lock()
	if c.cause == nil {
		c.cause = cause
	}
	c.queue.mu.Unlock()
	_ = c.net.Close()
}

// end closes the connection and delivers Fate Unknown for what it owes.
func (c *conn) end(err error) {
	_ = c.net.Close()
	q := c.queue
	q.mu.Lock()
	c.dead = true
	lost := append(c.batch[c.next:], c.written...)
	switch {
	case c.cause != nil:
		err = c.cause
	case len(lost) > 0:
		err = cutOffAt(commandName(lost[0].name), err)
	}
	if len(lost) > 0 && (isEnd(err) || errors.Is(err, os.ErrDeadlineExceeded)) {
		q.cutAtNativeLocked(lost[0].native)
	}
	err = fmt.Errorf("pool: connection lost: %w", err)
	if q.severed() {
		err = ErrClientClosed
	}
	c.silence.end()
	q.mu.Unlock()
	q.nudge()
	c.cancel()
	unknown := Reply{Err: err, Fate: Unknown, Conn: c.number}
	if len(lost) > 0 && lost[0].of == secondOfTwo {
		half := unknown
		half.First = c.first
		q.fail(lost[:1], half)
		lost = lost[1:]
	}
	q.fail(lost, unknown)
	close(c.ended)
}

// notified heeds a push.
//
// During maintenance (FAILING_OVER and others) a stream waits longer for replies, as go-redis does, but at most
// maxReadTimeout, and opens no second connection: the silence is announced. Unlike go-redis, it has its usual timeout
// on the connection that it moves to.
func (c *conn) notified(p push) error {
	if c.pushes++; c.pushes > maxPushes {
		return errUnsolicited
	}
	if to, after, is := moveOf(p); is {
		if !c.moving {
			c.moving = true
			go c.move(to, after)
		}
		return nil
	}
	if len(p) < 2 || !c.heed.wanted {
		return nil
	}
	switch p[0] {
	case maintnotifications.NotificationMigrating, maintnotifications.NotificationFailingOver,
		maintnotifications.NotificationSMigrating:
		c.relax(min(c.heed.relaxed, maxReadTimeout))
	case maintnotifications.NotificationSMigrated:
		c.queue.migrated()
		c.relax(0)
	case maintnotifications.NotificationMigrated, maintnotifications.NotificationFailedOver:
		c.relax(0)
	}
	return nil
}

func (c *conn) relax(timeout time.Duration) {
	c.queue.mu.Lock()
	defer c.queue.mu.Unlock()
	c.silence.relax(timeout)
}

var errAskedToMove = errors.New("the node has asked to move, and has not answered in time")

// move opens the connection that replaces c, after a time. If it cannot, c serves until the node ends it. If c has
// moved itself, it first serves for renewPause: a node may tell each connection to move.
func (c *conn) move(to string, after time.Duration) {
	q := c.queue
	if c.moved {
		after = max(after, renewPause-time.Since(c.opened))
	}
	for range moveTries {
		if !c.lasts(after) {
			return
		}
		start := time.Now()
		ctx, cancel := context.WithCancel(q.life)
		stop := c.cancelWith(cancel)
		q.elsewhere.Store(&to)
		next, err := connect(ctx, q, nil)
		stop()
		if err == nil {
			next.cancel, next.moved = cancel, true
			c.handOver(next, max(moveWait, time.Since(start)))
			return
		}
		cancel()
		after = movePause
	}
}

func (c *conn) lasts(wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-c.ended:
		return false
	case <-timer.C:
		return true
	}
}

// cancelWith calls cancel when c ends, unless stop is called before.
func (c *conn) cancelWith(cancel func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-c.ended:
			cancel()
		case <-done:
		}
	}()
	return func() { close(done) }
}

// handOver makes next the successor of c, and ends c once it owes nothing, or after wait if requests wait.
func (c *conn) handOver(next *conn, wait time.Duration) {
	q := c.queue
	q.mu.Lock()
	late := c.dead || c.successor != nil
	if !late {
		c.successor, c.retired = next, true
	}
	q.mu.Unlock()
	if late {
		next.cancel()
		_ = next.net.Close()
		return
	}
	q.nudge()
	for c.lasts(wait) {
		q.mu.Lock()
		waiting := len(q.requests) > 0
		q.mu.Unlock()
		if waiting {
			c.abort(errAskedToMove)
		}
	}
}

func (c *conn) checkRested(ctx context.Context) error {
	for range unreadLooks {
		err := glance(c.net)
		if err != errUnread { //nolint:errorlint // a sentinel
			return err
		}
		sleep(ctx, unreadPause)
	}
	return nil
}
