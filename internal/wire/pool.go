// Package wire is one node of a Redsync: an ordered stream of requests, each answered exactly once. It knows nothing
// about locks. [New] makes a Pool from a go-redis client, and [Func] from a function. Package pool shows both to users,
// and has the options.
//
// A [Pool] may have optional methods: see abilities.go. README.md has what is easy to get wrong.
package wire

import (
	"fmt"
	"time"
)

// A Pool sends requests to one node.
//
// An implementation must keep these promises; package wiretest checks them.
//
//   - Send returns without waiting for the network.
//   - A request that Send accepted gets exactly one Reply. One that Send refused gets none.
//   - The node executes a request at most once: nothing below Send resends it.
//   - Before the node gave a reply with a Conn other than 0, it had executed every Answered request that the same Pool
//     accepted earlier.
//   - All methods may be called from many goroutines at once.
type Pool interface {
	// Send queues req behind everything sent before it. On an error the request is never executed: ErrClosed, an
	// *OutstandingError, or why the pool can never send.
	Send(req Request) error

	// CloseIdle ends connections and background work once no reply is outstanding. The next Send starts them again.
	// Subscriptions stay.
	CloseIdle()

	// Close refuses every later Send with ErrClosed, ends subscriptions at once, and otherwise does what CloseIdle does.
	// It does not wait, nor close the user's client. A second Close does nothing.
	Close() error

	// String names the node, for messages.
	String() string
}

// A Request is one command on its way to a node.
type Request struct {
	// Args is the whole command: "set", key, value, ... Elements are of type string, int or int64. A Pool only reads Args: all
	// nodes of a round share them. Commands that block or change their connection (BLPOP, SUBSCRIBE, MULTI, SELECT, ...)
	// must not be sent.
	Args []any

	// RESP is Args as encoded by AppendCommand, or nil. It is encoded once for many nodes. A Pool reads RESP only until
	// Send returns. Code that changes Args must clear RESP.
	RESP []byte

	// Native says that RESP is this command, in place of Args: see Natives. With Look or Tried, another one stands behind it.
	Native Native

	// Reserved marks a request that Send accepts beyond the limit of pool.WithOutstanding, such as the release of a
	// key. At most 32,768 requests of any kind may be outstanding.
	Reserved bool

	// Within is how soon the sender wants the reply; 0 means no preference. If the connection is silent for longer, a
	// stream tries another one. The request does not end.
	Within time.Duration

	// To receives the reply, together with Tag.
	To  Receiver
	Tag int

	asking bool // ASKING precedes it: the slot has not moved to this node yet
}

// A Receiver takes replies. A pool calls Receive from its own goroutines, one reply at a time, in the order of Send
// unless Conn is 0. Receive must not block; it may call Send.
type Receiver interface {
	Receive(tag int, reply Reply)
}

// A Reply is the outcome of a request.
type Reply struct {
	// Value is what the node answered: nil, string, int64 or []any. A stream accepts up to 16 MiB.
	Value any

	// Err is a redis.Error if the node answered with an error. Otherwise it says why there is no answer.
	Err error

	Fate Fate

	// First is the answer to the first command of a request of two (Look, Tried), whatever the Fate of the second; nil if
	// refused.
	First any

	// Resent says that the client has sent the request more than once: an earlier one may be executed after this answer.
	Resent bool

	// Conn is the number of the connection that the reply came on, 0 if the pool cannot promise the node's order of
	// execution. A new connection, and so a restarted node, has a higher one, also across the Pools of one client. Conn
	// never falls from one reply to the next.
	Conn uint64

	// Server is the process that answered, nil if that is not known: the node was not asked, or refuses INFO, or the
	// pool has pool.WithoutIdentity and no restart guard.
	Server *Server
}

// Fate says whether a node executed a request. The zero value is Unknown.
type Fate uint8

const (
	// Unknown: the connection failed. The node may have executed the request, may still do so, or may never have seen
	// it.
	Unknown Fate = iota
	// NotSent: no byte of the request was sent, and the node never executes it.
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

// An OutstandingError is the error of Send when a node owes Limit replies: it is frozen, unreachable or too slow.
type OutstandingError struct {
	Limit int
}

// Error includes the limit.
func (e *OutstandingError) Error() string {
	return fmt.Sprintf("pool: not sent: %d replies are outstanding, the limit", e.Limit)
}

// A Subscriber is a Pool that can also listen to what clients PUBLISH on the node. Pools of New implement it.
//
// A message published without a connection is lost, and only another call of Subscribed tells of that. So code that
// waits for a message also needs a timer.
type Subscriber interface {
	// Subscribe listens to channel until the Subscription or the Pool is closed, or the node refuses. It does not wait for
	// the node, and may call the Listener before it returns. It uses one goroutine and one connection, and needs the
	// permissions +subscribe &channel.
	//
	// An error means that nothing was started: ErrClosed, an empty channel, a nil Listener, or why the Pool can never
	// send.
	Subscribe(channel string, to Listener) (*Subscription, error)
}

// A Listener receives the messages of a Subscription and the changes of its state. Its methods are called one at a
// time. They must not block: the node closes the connection of a client that reads too slowly. They may call methods of
// the Pool, but not Close of the Subscription.
//
// The calls follow the pattern
//
//	{ Unsubscribed | Subscribed { Message } Unsubscribed } [ Refused ]
//
// which Close may end at any point. A client used directly reconnects by itself, so Subscribed may come twice in a row.
type Listener interface {
	// Subscribed: the node has confirmed the subscription, at first or after a reconnect. Messages published from now
	// on are delivered while the connection lasts.
	Subscribed()

	// Message is called with the payload of each message, in the order of publication, at most once.
	Message(payload string)

	// Unsubscribed: the connection was lost, or could not be opened and confirmed within 5 s; err says why. Each failed
	// attempt calls it. The pause before the next attempt doubles from 50 ms to 1 s, and up to half of it is added at
	// random. It starts over after a connection of at least a second. It is half a minute if HangsUp(err).
	//
	// A PING is sent after every 2 s of silence, and a connection on which nothing arrives for 5 s is given up: 3 to 5 s
	// after the node falls silent.
	Unsubscribed(err error)

	// Refused: the node does not let the client's user SUBSCRIBE to the channel; err wraps its answer, a redis.Error. Or
	// err is ErrClientClosed. The Subscription has ended. Temporary errors (LOADING, BUSY, ...) and errors of the greeting
	// go to Unsubscribed.
	Refused(err error)
}
