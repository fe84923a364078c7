// Package pool is a client's handle to one Redis node: an ordered stream of
// requests, each answered exactly once. It knows nothing of locks.
//
// [New] makes a Pool from a go-redis client. Anything else that keeps the
// contract of [Pool] serves as well; package pooltest is the test of it.
package pool

import (
	"errors"
	"fmt"
	"time"
)

// A Pool sends requests to one node.
//
// An implementation must keep these promises; package pooltest checks them.
//
//   - Send returns without waiting for the network, however the node behaves.
//   - A request that Send accepted has its Reply delivered exactly once; one
//     that Send refused has none.
//   - The node executes a request at most once: nothing below Send resends it.
//   - A reply with a Conn other than 0 was produced after the node had executed
//     every request that the same Pool accepted earlier and that was Answered.
//   - All methods may be called from many goroutines at once.
//
// A Pool may also have these methods, which a Redsync looks for:
//
//   - Err() error says why no Send can ever succeed; a Redsync then fails at once.
//   - RestartGuard() time.Duration says that the node counts only when its server
//     started long enough before, as WithRestartGuard has it; 0 asks for nothing.
//   - Destination() any says what the pool leads to, as a value that can be compared. A
//     Redsync refuses two pools whose destinations are equal.
//   - Subscribe of Subscriber listens to a channel. Pools of New have it.
//   - MetBefore() bool reports whether it has been called before, on any pool of the same
//     client in this process. If it returns false, the first Lock of a Redsync waits to
//     hear which server the node is. So it does for a pool without the method.
//   - Client() any returns a comparable value that stands for the client of the pool, or
//     nil for none. Sibling() Pool returns another pool of that client. Redsyncs on pools
//     of the same clients, in the same order, are one process to the nodes: they share a
//     line for each lock and the subscriptions, which are made through siblings.
//
// A pool of New for a *redis.Client, a Cluster or a Ring has MetBefore, Client and Sibling.
//
// A Pool that cannot tell which server process answers leaves Reply.Server nil.
type Pool interface {
	// Send puts req behind everything that was sent before it. An error means
	// that the request was refused, will never be executed and gets no reply:
	// ErrClosed, an *OutstandingError when the node already owes too many
	// replies, or why the pool can never send.
	Send(req Request) error

	// CloseIdle ends connections and background work as soon as no reply is
	// outstanding. The next Send starts them again. Subscriptions stay.
	CloseIdle()

	// Close refuses every later Send with ErrClosed and ends connections and
	// background work as soon as no reply is outstanding. A Subscriber's Close ends
	// its subscriptions at once. It does not wait and
	// never closes a client that the user made. A second Close does nothing.
	Close() error

	// String names the node, for messages.
	String() string
}

// A Request is one command on its way to a node.
type Request struct {
	// Args is the whole command, its name first: "set", key, value, ... Elements
	// are strings or integers; a Pool need not take others. It is only read, so
	// that all nodes of a round can share one slice; keys stand where Redis expects
	// them. Commands that block or change their connection (BLPOP, SUBSCRIBE, MULTI,
	// SELECT, CLIENT, ...) are not for a Pool.
	Args []any

	// RESP is Args as AppendCommand writes it, if the sender has it: what goes to many
	// nodes need be encoded but once. It is only read, and only until Send returns. Who
	// passes a request on with other Args leaves it out.
	RESP []byte

	// Reserved marks a request whose room an earlier one has paid for: a
	// release of something that this pool has sent. The limit of outstanding
	// requests does not refuse it; 32,768 outstanding requests of any kind do.
	Reserved bool

	// Within is how soon the sender wants the reply; 0 says nothing. The Pool keeps the
	// request for longer: when a connection is silent for longer than the requests that it
	// carries want, a stream looks whether the node can be reached on another one.
	Within time.Duration

	// To receives the reply, Tag is handed back with it.
	To  Receiver
	Tag int

	asking bool // the node is to answer although the slot has not moved to it yet
}

// A Receiver takes replies. A pool calls Receive from goroutines of its own, for one
// reply at a time, in the order in which its requests were sent. Replies whose Conn is 0
// may come in another order. Receive must not block; it may call Send.
type Receiver interface {
	Receive(tag int, reply Reply)
}

// A Reply tells what became of a request.
type Reply struct {
	// Value is what the node answered: nil, string, int64 or []any. A stream takes no
	// more than 16 MiB for a reply.
	Value any

	// Err is a redis.Error when the node answered with an error (Fate is
	// Answered), else why there is no answer.
	Err error

	Fate Fate

	// Conn is the number of the connection that the reply came on, and not lower
	// than that of any earlier reply. Numbers rise from one connection to the next,
	// also where another Pool of the same client goes on with the node: a reply from
	// a restarted node has a higher one than any reply delivered before the restart,
	// because it came on a connection that was opened after it. 0 when the pool
	// cannot promise the node's order of execution.
	Conn uint64

	// Server is the process that answered, nil unless the Fate is Answered and
	// the process known. It is unknown where the node refuses INFO or answers
	// oddly, where the pool does not ask, and WithoutIdentity.
	Server *Server
}

// Fate says whether a node executed a request. The zero value is Unknown.
type Fate uint8

const (
	// Unknown: the connection failed. The node may have executed the request,
	// may still do so, or may never have seen it.
	Unknown Fate = iota
	// NotSent: no byte of the request left. The node never executes it.
	NotSent
	// Answered: the node executed or rejected the request.
	Answered
)

// String returns the fate in words.
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

// ErrClosed is the error of Send and of Subscribe after Close.
var ErrClosed = errors.New("pool: closed")

// An OutstandingError is the error of Send when a node owes Limit replies
// already: it is frozen, cut off, or slower than its callers.
type OutstandingError struct {
	Limit int
}

// Error names the limit.
func (e *OutstandingError) Error() string {
	return fmt.Sprintf("pool: not sent: %d replies are outstanding, the limit", e.Limit)
}

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
