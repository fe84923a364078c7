package wire

import (
	"bufio"
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// openTimeout bounds dial, greeting and confirmation.
	openTimeout = 5 * time.Second

	// A PING is sent when nothing has arrived for pingAfter, and the connection is given up when nothing has for
	// maxSilence.
	pingAfter  = 2 * time.Second
	maxSilence = maxReadTimeout
)

// A dialer sends SUBSCRIBE on a new connection. at is the address that a notification named, or "". The end of ctx
// closes it: after an error the caller ends ctx.
type dialer = func(ctx context.Context, channel, at string) (wire, error)

// A wire is a connection that listens to a channel.
type wire interface {
	// receive returns a redis.Error if the node answered with an error.
	receive(timeout time.Duration) (news, error)

	ping()

	Close() error
}

// news is a message, the confirmation of a channel, or neither.
type news struct {
	message    bool
	text       string
	subscribed string
}

// An ownWire is a connection owned by the pool, for a subscription.
type ownWire struct {
	net.Conn
	replies *bufio.Reader
	owed    atomic.Int32 // answers that the node owes
	channel string
	pushes  int // since the last reply
	skip    int // answers before the first that counts

	confirmed bool            // the node has answered SUBSCRIBE
	life      context.Context //nolint:containedctx // of the connection
	moved     atomic.Pointer[movedError]
	timer     *time.Timer // ends a connection that moves later
}

// dialWire sends SUBSCRIBE on a new connection, and in the same write asks for notifications of maintenance.
func dialWire(ctx context.Context, user *redis.Client, channel, at string) (*ownWire, error) {
	ctx, end := context.WithCancel(ctx)
	heed := heedOf(user)
	how := opening{dial: openTimeout, whole: openTimeout, renewed: end, at: at, heeds: heed.wanted}
	conn, err := open(ctx, user, how)
	if err != nil {
		return nil, err
	}
	w := &ownWire{Conn: conn, replies: bufio.NewReaderSize(conn, readBuffer), channel: channel, life: ctx}
	var begin []byte
	if heed, _ = heed.on(conn); heed.wanted {
		begin, _ = AppendCommand(nil, heed.args())
		w.skip = 1
	}
	if err := w.send(begin, "subscribe", channel); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *ownWire) send(begin []byte, args ...any) error {
	b, err := AppendCommand(begin, args)
	if err == nil {
		w.owed.Add(1)
		_ = w.SetWriteDeadline(time.Now().Add(maxSilence)) // if it fails, so does Write
		_, err = w.Write(b)
	}
	return err
}

func (w *ownWire) ping() { _ = w.send(nil, "ping") } // the reader sees the error too

func (w *ownWire) receive(timeout time.Duration) (news, error) {
	err := w.SetReadDeadline(time.Now().Add(timeout))
	var reply any
	if err == nil {
		reply, err = w.next()
	}
	if err != nil {
		if to := w.moved.Load(); to != nil {
			err = to
		}
		return news{}, moved(w.life, cutOffAt(w.unanswered(), err))
	}
	if text, is := message(reply); is {
		return news{message: true, text: text}, nil
	}
	if w.owed.Add(-1) < 0 {
		return news{}, errUnsolicited
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
			w.confirmed = true
			return news{subscribed: channel}, nil
		}
		if len(reply) == 2 && reply[0] == "pong" { // RESP 2 adds an empty text
			return news{}, nil
		}
	}
	return news{}, errUnsolicited
}

func (w *ownWire) unanswered() string {
	switch {
	case !w.confirmed:
		return "SUBSCRIBE"
	case w.owed.Load() > 0:
		return "PING"
	}
	return ""
}

// next also returns pushes of the subscription.
func (w *ownWire) next() (any, error) {
	for {
		reply, err := readReply(w.replies)
		p, pushed := reply.(push)
		switch {
		case err != nil:
			return nil, err
		case !pushed && w.skip > 0:
			w.skip--
		case !pushed:
			w.pushes = 0
			return reply, nil
		case len(p) == 3 && (p[0] == "message" || p[0] == "subscribe") && p[1] == w.channel:
			return []any(p), nil
		default:
			if err := w.notified(p); err != nil {
				return nil, err
			}
		}
	}
}

func confirmation(reply []any) (channel string, is bool) {
	if len(reply) != 3 || reply[0] != "subscribe" {
		return "", false
	}
	_, counts := reply[2].(int64)
	channel, is = reply[1].(string)
	return channel, is && counts
}

func message(reply any) (payload string, is bool) {
	m, _ := reply.([]any)
	if len(m) != 3 || m[0] != "message" {
		return "", false
	}
	payload, is = m[2].(string)
	return payload, is
}

// A pubSubWire is a subscription of a client that does not reveal its nodes. The context ended keeps go-redis from
// reconnecting unseen.
type pubSubWire struct{ *redis.PubSub }

// dialPubSub sends PING, because go-redis hides why Subscribe cannot connect.
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

// receive turns panics of go-redis on malformed replies into errors.
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

// ended is the context of every call on a pubSubWire: go-redis looks at it only before it dials again.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// notified heeds a push. A subscription opens its new connection after the old one has ended.
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

func (w *ownWire) move(to string) {
	w.moved.CompareAndSwap(nil, &movedError{to})
	_ = w.Close()
}
