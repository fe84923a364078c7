package pool

import (
	"bufio"
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// openTimeout bounds the way from the dial to the node's confirmation.
	openTimeout = 5 * time.Second

	// A connection on which nothing has come for pingAfter is asked for a sign of
	// life, and given up when nothing has come for maxSilence. A node may be away
	// for 3 s at any time, and one that is gone is noticed after 3 to 5 s.
	pingAfter  = 2 * time.Second
	maxSilence = maxReadTimeout
)

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
