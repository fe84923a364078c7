// Package wire is one node of a Redsync: an ordered stream of requests, each answered exactly once. It knows nothing about
// locks. [New] makes a Pool from a go-redis client, and [Func] from a function. Package pool is what users see of both: it
// has the options, and an alias of [Pool], so that redsync.New takes pools of this package and no others.
//
// A [Pool] may have optional methods. Their interfaces are [Failing], [Located], [Subscriber] and others: a Redsync looks for
// each of them. Package wiretest tests the contract. README.md shows the layers, and says what is easy to get wrong.
package wire

import (
	"fmt"
	"time"
)

// A Pool sends requests to one node.
//
// An implementation must keep these promises; package wiretest checks them.
//
//   - Send returns without waiting for the network, however the node behaves.
//   - The Reply of a request that Send accepted is delivered exactly once. A request that Send
//     refused gets no Reply.
//   - The node executes a request at most once: nothing below Send resends it.
//   - Before the node gave a reply with a Conn other than 0, it had executed every Answered request
//     that the same Pool accepted earlier.
//   - All methods may be called from many goroutines at once.
//
// A Pool may also have the methods of [Failing], [Guarded], [Located], [Keyed], [Listed], [Spread], [Partial], [Met], [Shared],
// [Closable], [Waiting], [Linked], [Recalling], [Limited] and [Subscriber]. A pool of New has those that its client allows.
//
// A Pool that does not know which server process answers leaves Reply.Server nil.
type Pool interface {
	// Send queues req behind everything sent before it. An error means that the request was
	// refused, will never be executed and gets no reply: ErrClosed, an *OutstandingError when the
	// node already owes too many replies, or why the pool can never send.
	Send(req Request) error

	// CloseIdle ends connections and background work as soon as no reply is
	// outstanding. The next Send starts them again. Subscriptions stay.
	CloseIdle()

	// Close refuses every later Send with ErrClosed and ends connections and background work as
	// soon as no reply is outstanding. If the Pool is a Subscriber, Close ends its subscriptions
	// at once. Close does not wait, and never closes a client that the user made. A second Close
	// does nothing.
	Close() error

	// String names the node, for messages.
	String() string
}

// A Request is one command on its way to a node.
type Request struct {
	// Args is the whole command, its name first: "set", key, value, ... Elements are strings or
	// integers; a Pool need not accept other types. A Pool only reads Args, so that all nodes of
	// a round can share one slice. Keys are at the positions where Redis expects them. Commands
	// that block or change their connection (BLPOP, SUBSCRIBE, MULTI, SELECT, CLIENT, ...) must
	// not be sent through a Pool.
	Args []any

	// RESP is Args as encoded by AppendCommand, or nil. A sender may set it to encode a command
	// for many nodes only once. A Pool only reads RESP, and only until Send returns. Code that
	// passes a request on with other Args must clear RESP.
	RESP []byte

	// Reserved marks a request that Send must accept beyond the limit of pool.WithOutstanding, such as
	// the release of a key that this pool has set. At most 32,768 requests of any kind may be
	// outstanding.
	Reserved bool

	// Within is how soon the sender wants the reply; 0 means no preference. The request does not
	// end after that time. When a connection is silent for longer than the requests on it want, a
	// stream tries to reach the node on another one, and resolves its name anew for each try.
	Within time.Duration

	// To receives the reply, together with Tag.
	To  Receiver
	Tag int

	asking bool // ASKING precedes it: the slot has not moved to this node yet
}

// A Receiver takes replies. A pool calls Receive from its own goroutines, one reply at a time, in
// the order in which the requests were sent. Replies whose Conn is 0 may arrive in another order.
// Receive must not block; it may call Send.
type Receiver interface {
	Receive(tag int, reply Reply)
}

// A Reply is the outcome of a request.
type Reply struct {
	// Value is what the node answered: nil, string, int64 or []any. A stream accepts replies of
	// up to 16 MiB.
	Value any

	// Err is a redis.Error when the node answered with an error (Fate is Answered). Otherwise it
	// says why there is no answer.
	Err error

	Fate Fate

	// Resent says that the client has sent the request more than once. So the node may execute an earlier sending after
	// this answer.
	Resent bool

	// Conn is the number of the connection that the reply came on. Each new connection has a higher
	// number, also across the Pools of one client. Conn is never lower than in an earlier reply. A
	// restarted node answers on a connection opened after the restart. So its Conn is higher than
	// in any reply delivered before the restart. Conn is 0 when the pool cannot promise the node's
	// order of execution.
	Conn uint64

	// Server is the process that answered. It is nil if the Fate is not Answered, if the node
	// refuses INFO or answers it incompletely, if the pool does not ask, and with
	// pool.WithoutIdentity.
	Server *Server
}

// Fate says whether a node executed a request. The zero value is Unknown.
type Fate uint8

const (
	// Unknown: the connection failed. The node may have executed the request,
	// may still do so, or may never have seen it.
	Unknown Fate = iota
	// NotSent: no byte of the request was sent. The node never executes it.
	NotSent
	// Answered: the node executed or rejected the request.
	Answered
)

// String returns the name of the fate.
func (f Fate) String() string {
	switch f {
	case NotSent:
		return "not sent"
	case Answered:
		return "answered"
	default:
		return "unknown"
	}
}

// An OutstandingError is the error of Send when a node already owes Limit replies: it is frozen,
// unreachable, or slower than its callers.
type OutstandingError struct {
	Limit int
}

// Error includes the limit.
func (e *OutstandingError) Error() string {
	return fmt.Sprintf("pool: not sent: %d replies are outstanding, the limit", e.Limit)
}

// A Subscriber is a Pool that can also listen to what clients PUBLISH on the node. A type
// assertion finds it. Pools of New implement it.
//
// Redis delivers a message at most once. A message published while there is no connection is
// lost, and the only sign of that is another call of Subscribed. Code that waits for a message
// therefore needs a second way to make progress, such as a timer.
type Subscriber interface {
	// Subscribe listens to channel until the Subscription is closed, or the node refuses, or the
	// Pool is closed. It does not wait for the node. It reports progress to the Listener, whose
	// methods may be called before Subscribe returns.
	//
	// Each Subscription uses one goroutine and one connection, even for a channel that the Pool
	// already listens to. The client's user needs permission for SUBSCRIBE and the channel
	// (+subscribe &channel). The Subscription also sends PING, which needs no permission.
	//
	// An error means that nothing was started, and the Listener is never called:
	// ErrClosed, an empty channel, a nil Listener, or why the Pool can never send.
	Subscribe(channel string, to Listener) (Subscription, error)
}

// A Listener receives the messages of a Subscription and the changes of its state. Its methods
// are called one at a time, from a goroutine of the Subscription. They must not block: nothing
// else is delivered while one runs, and the node closes the connection of a client that reads too
// slowly.
//
// The calls follow the pattern
//
//	{ Unsubscribed | Subscribed { Message } Unsubscribed } [ Refused ]
//
// which Close may end at any point. With a client that the pool uses directly, Subscribed may
// come twice in a row, because that client reconnects by itself. A method may call Close, and
// methods of the Pool.
type Listener interface {
	// Subscribed: the node has confirmed the subscription. Messages published from now on are
	// delivered while the connection lasts. It is called again after every reconnect. Messages
	// published in between are lost.
	Subscribed()

	// Message is called with the payload of each message, in the order in which
	// the node published them. A message is delivered at most once.
	Message(payload string)

	// Unsubscribed: the connection was lost, or could not be opened and confirmed within 5 s; err
	// says why. It is called after every failed attempt. The Subscription keeps trying until Close
	// or Refused. The pause before the next attempt doubles from 50 ms to 1 s, and up to half of it
	// is added at random. The pauses start over after a connection that lasted at least a second. A pause is half a minute
	// if HangsUp(err).
	//
	// If the node or its operating system closes the connection, that is noticed at once. A silent
	// connection (a frozen node, a cut network) is given up when nothing has arrived for 5 s.
	// Because a PING is sent after every 2 s of silence, that happens 3 to 5 s after the node falls
	// silent. Messages published meanwhile may be lost.
	Unsubscribed(err error)

	// Refused: the node does not let the client's user SUBSCRIBE to the channel (NOPERM, NOAUTH,
	// ...); err wraps its answer, a redis.Error. Or the user has closed the client, and err is
	// ErrClientClosed. Refused is called at most once, and last: the Subscription has ended.
	// Temporary errors (LOADING, BUSY, ...) and errors of the greeting (a wrong password, which may
	// be changed) are reported to Unsubscribed.
	Refused(err error)
}

// A Subscription is what Subscribe has started. It listens to one channel.
type Subscription interface {
	// Close ends the Subscription. It does not wait for the node. When it returns, no method of the
	// Listener is running, and none will be called. To guarantee that, Close waits for a running
	// method, so do not hold a mutex that the methods lock. A call from a method of any Listener
	// does not wait. After it, a method of this Subscription's Listener may still be running. The
	// Pool's Close does not wait for a running method either.
	//
	// The connection is closed and the goroutine ends at once. A dial under way may delay that if
	// it ignores its context, as go-redis's dial with TLS does. With a client that the pool uses
	// directly, an attempt to connect ends only with the client's own timeouts.
	//
	// A second Close waits in the same way. After Refused there is nothing to end.
	Close()
}
