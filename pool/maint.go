package pool

import (
	"cmp"
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// This file heeds notifications of maintenance, as Redis Enterprise and cloud services push them: the endpoint moves, a
// failover begins. go-redis heeds them on its own connections, so a connection of the pool asks for them, too, if the
// user's client does (Protocol 3, and a MaintNotificationsConfig whose Mode is not disabled; both are defaults).
//
// The connection then greets with HELLO 3, as the user's client does. The node is asked in a round trip that is made
// anyway, so a node without notifications costs nothing but an error reply. If the user's own client has met such a node,
// it has stopped asking, and the pool stops with it.

const (
	// A new connection is tried so often, and so long after a failure. go-redis tries as often, and pauses longer. The old
	// connection serves meanwhile.
	moveTries = 3
	movePause = 500 * time.Millisecond

	// moveWait is how long requests wait for the old connection to answer what it owes, at least, once the new connection
	// is there. The wait is longer if opening the new one took longer.
	moveWait = 100 * time.Millisecond

	// maxPushes bounds how many pushes may come without a reply between them. No node sends so many.
	maxPushes = 1000

	// latestMove bounds the time after which a node may ask to move.
	latestMove = time.Hour
)

// A heed says which notifications a user's client heeds.
type heed struct {
	wanted   bool
	must     bool          // a node without notifications is of no use to the client
	endpoint string        // the type of the addresses that a node names
	relaxed  time.Duration // the read timeout during maintenance
}

func heedOf(user *redis.Client) heed {
	if user.Options().Protocol != 3 || user.GetMaintNotificationsManager() == nil {
		return heed{}
	}
	// go-redis changes the Mode while it connects. WithTimeout returns a copy of the options, made under the mutex.
	config := user.WithTimeout(0).Options().MaintNotificationsConfig
	if !config.IsEnabled() {
		return heed{}
	}
	return heed{
		wanted: true, must: config.Mode == maintnotifications.ModeEnabled,
		endpoint: cmp.Or(config.EndpointType.String(), "none"), relaxed: config.RelaxedTimeout,
	}
}

// command returns the command that asks for notifications.
func (h heed) command() []byte {
	b, _ := AppendCommand(nil, []any{"client", "maint_notifications", "on", "moving-endpoint-type", h.endpoint}) // strings
	return b
}

// moveOf returns what a MOVING says: to which address to move, "" for the address of the client, and after what time.
// Then the client's address leads elsewhere, so go-redis waits for half of the time that the node gives.
func moveOf(p push) (to string, after time.Duration, is bool) {
	if len(p) < 3 || p[0] != maintnotifications.NotificationMoving {
		return "", 0, false
	}
	_, numbered := p[1].(int64)
	seconds, timed := p[2].(int64)
	if !numbered || !timed || seconds < 0 || seconds > int64(latestMove/time.Second) {
		return "", 0, false
	}
	if len(p) > 3 && p[3] != nil {
		if to, is = p[3].(string); !is {
			return "", 0, false
		}
	}
	if to == "" || to == "<nil>" {
		return "", time.Duration(seconds/2) * time.Second, true
	}
	if _, _, err := net.SplitHostPort(to); err != nil {
		to = net.JoinHostPort(to, "6379")
	}
	return to, 0, true
}

// notified heeds a push.
//
// During maintenance (FAILING_OVER and others) go-redis waits longer for replies, so that it does not give up connections
// that will answer. A stream waits longer, too, but never more than maxReadTimeout, and it opens no second connection:
// the silence is announced, and the second one's greeting would prove nothing. The callers do not wait longer. To them a
// late reply is worth nothing, and each has a deadline of its own.
//
// Unlike go-redis, a stream has its usual timeout on the connection that it moves to.
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

// relax makes timeout the time after which c is given up if it is longer, and forbids second connections. 0 ends that.
func (c *conn) relax(timeout time.Duration) {
	c.queue.mu.Lock()
	defer c.queue.mu.Unlock()
	s := &c.silence
	usual := cmp.Or(s.usual, s.timeout)
	s.timeout, s.usual = usual, 0
	if timeout > 0 {
		s.timeout, s.usual = max(usual, timeout), usual
	}
	if s.watching {
		s.arm(s.lasts())
	}
}

var errMoved = errors.New("the node has asked to move, and has not answered in time")

// move opens the connection that replaces c, after a time, and tries again if it cannot. If it never can, c serves until
// the node ends it.
func (c *conn) move(to string, after time.Duration) {
	q := c.queue
	for range moveTries {
		if !c.lasts(after) {
			return
		}
		start := time.Now()
		ctx, cancel := context.WithCancel(q.life)
		stop := c.cancelWith(cancel)
		q.redirect(to)
		next, err := connect(ctx, q, c.user)
		stop()
		if err == nil {
			next.cancel = cancel
			c.handOver(next, max(moveWait, time.Since(start)))
			return
		}
		cancel()
		after = movePause
	}
}

// lasts waits, and reports whether c lasts for so long.
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

// handOver makes next the successor of c, and ends c once it owes nothing. While requests wait, it ends c after wait.
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
			c.abort(errMoved)
		}
	}
}

// redirect makes to the address of the next connection.
func (q *queue) redirect(to string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.elsewhere = to
}

// destination returns the address of the next connection, "" for the client's own.
func (q *queue) destination() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.elsewhere
}

// tried makes later connections lead to the client's own address, unless the attempt to connect to at was cancelled.
func (q *queue) tried(ctx context.Context, at string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.elsewhere == at && ctx.Err() == nil {
		q.elsewhere = ""
	}
}

// A movedError ends the connection of a subscription whose client goes elsewhere.
type movedError struct{ to string } // "" for the client's own address

func (e *movedError) Error() string { return "the node has asked to move" }

// notified heeds a push. A subscription opens its new connection after the old one has ended. A message that comes
// meanwhile is lost, as with any lost connection.
func (w *ownWire) notified(p push) error {
	if w.pushes++; w.pushes > maxPushes {
		return errUnsolicited
	}
	to, after, is := moveOf(p)
	switch {
	case !is || w.timer != nil:
	case after == 0:
		return &movedError{to}
	default:
		w.timer = time.AfterFunc(after, func() { w.move(to) })
	}
	return nil
}

// move ends the connection of a subscription.
func (w *ownWire) move(to string) {
	w.moved.CompareAndSwap(nil, &movedError{to})
	_ = w.Close()
}
