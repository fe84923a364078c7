package wire

import "time"

// This file names what a Pool may also do. Each ability is optional: the pools of New have those that their clients allow.
// [Subscriber] is another one.

type (
	// Failing is a Pool that may be unable to send anything, ever. Then a Redsync fails at once.
	Failing interface {
		// Err returns why the Pool cannot send, nil if it can.
		Err() error
	}

	// Guarded is a Pool that may have a restart guard: see pool.WithRestartGuard.
	Guarded interface {
		// RestartGuard returns the length of the guard, 0 if there is none. The node counts only if its server started
		// long enough ago.
		RestartGuard() time.Duration
	}

	// Located is a Pool that knows to which node it leads.
	Located interface {
		// Destination returns a comparable value that stands for the node. Two Pools with equal destinations lead to
		// one node, so a Redsync refuses them. NewJoint accepts one in each set, and counts them once unless their
		// Keyspaces differ.
		Destination() any
	}

	// Listed is a Pool whose String may differ from the node's entry in an address list.
	Listed interface {
		// Listed returns that entry. NewJoint compares the entries of its two sets.
		Listed() string
	}

	// Keyed is a Pool of a server with several databases.
	Keyed interface {
		// Keyspace returns a comparable value that stands for the Pool's database, nil if not known. Two Pools of one
		// server whose keyspaces are equal have the same keys. NewJoint needs it when one server is in both of its
		// sets, with different clients.
		Keyspace() any
	}

	// Spread is a Pool that may keep keys on several servers, such as that of a Redis Cluster.
	Spread interface {
		// Together reports whether two keys always lie on one server. A lock on several names needs this.
		Together(a, b string) bool
	}

	// Partial is a Pool that may lead to a server that has only some of the keys, such as a node of a Redis Cluster.
	Partial interface {
		// Partial returns why not every key can be used, nil if that is not known. It is asked when the server has
		// answered a PING. Open and Ping then take the node for one that has failed.
		Partial() error
	}

	// Met is a Pool that knows whether this process has used its client before.
	Met interface {
		// MetBefore returns false on the first call for a client in this process, then true. A Pool that never knows
		// which server answers always returns true. After false, or if the Pool is no Met, the first Lock of a Redsync
		// waits until it knows which server the node is.
		MetBefore() bool
	}

	// Shared is a Pool whose client other Pools may use, too. Redsyncs on the same clients, in the same order, appear
	// to the nodes as one process: they share the queue of waiters for each lock, and the subscriptions.
	Shared interface {
		// Client returns a comparable value that stands for the client, nil if there is none.
		Client() any

		// Sibling returns another Pool of the client, with the same options. Closing one does not affect the other. So
		// a user who closes a Pool ends no subscription that others share.
		Sibling() Pool
	}

	// Closable is a Pool whose client the user may close.
	Closable interface {
		// ClientClosed reports whether the user has closed the client. It sends nothing, and does not block. If the
		// client is closed and the other nodes are no quorum, a Redsync loses its locks.
		ClientClosed() bool
	}

	// Waiting is a Pool that knows for how long the node has been silent.
	Waiting interface {
		// Silent returns for how long the Pool has waited for a sign of life of the node (an owed reply or a
		// connection), 0 if it waits for nothing. A Redsync gives up early on a node that earlier requests have waited
		// for in vain.
		Silent() time.Duration
	}

	// Linked is a Pool that opens a connection before it sends requests. A Redsync then gives the opening a deadline of its
	// own: the node deadline begins when a request can be written. Without it, the node deadline covers both.
	Linked interface {
		// Link tells whether a connection is open. If it is being opened, Link tells since when, and what is waited for.
		Link() Link
	}

	// Recalling is a Pool that can take requests back. Without it, a Close while a connection is being opened waits for the
	// requests that wait for the connection.
	Recalling interface {
		// Recall delivers NotSent and why to the receiver of each request that waits for a connection to be opened, and of
		// which no byte was sent, if which returns true for it. The Conn of these replies is 0. They come from the goroutine that calls, perhaps while another reply is
		// delivered. which must not block, and not use the Pool.
		Recall(which func(to Receiver, tag int) bool, why error)
	}

	// Limited is a Pool with a limit of outstanding replies: see pool.WithOutstanding.
	Limited interface {
		// IsBehind reports whether the node answers, but owes a large part of the limit. Then a watchdog waits while
		// its lock has time left.
		IsBehind() bool
	}
)
