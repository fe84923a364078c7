package pool

import "time"

// This file names what a Pool may also do. It is for those who write a Pool of their own: each ability is optional, and
// the pools of New have those that their clients allow. [Subscriber] is another one.

type (
	// Failing is a Pool that may be unable to send anything, ever. Then a Redsync fails at once.
	Failing interface {
		// Err returns why the Pool cannot send, nil if it can.
		Err() error
	}

	// Guarded is a Pool that may have a restart guard: see WithRestartGuard.
	Guarded interface {
		// RestartGuard returns the length of the guard, 0 if there is none. The node counts only if its server started
		// long enough ago.
		RestartGuard() time.Duration
	}

	// Located is a Pool that knows to which node it leads.
	Located interface {
		// Destination returns a comparable value that stands for the node. Two Pools with equal destinations lead to
		// one node: a Redsync refuses them, and NewJoint counts them once if one is in each set and their Keyspaces do not
		// differ.
		Destination() any
	}

	// Listed is a Pool that stands in a list of nodes under another name than its String.
	Listed interface {
		// Listed returns what stands for the node in a list of addresses. NewJoint compares it.
		Listed() string
	}

	// Keyed is a Pool of a server with several databases.
	Keyed interface {
		// Keyspace returns a comparable value that stands for the database, nil if that is not known. Two Pools of one server
		// whose keyspaces are equal have the same keys. NewJoint needs it for a server that is in both sets, with
		// different clients.
		Keyspace() any
	}

	// Spread is a Pool that may keep keys on several servers, such as that of a Redis Cluster.
	Spread interface {
		// Together reports whether two keys always lie on one server. The names of a lock on several names must.
		Together(a, b string) bool
	}

	// Met is a Pool that knows whether this process has used its client before.
	Met interface {
		// MetBefore reports whether it has been called before in this process, for the same client, or whether the
		// Pool never knows which server answers. If it returns false, or if the Pool is no Met, the first Lock of a Redsync
		// waits until it knows which server the node is.
		MetBefore() bool
	}

	// Shared is a Pool of a client that other Pools may have, too. Redsyncs on the same clients, in the same order, appear to
	// the nodes as one process: they share the queue of waiters for each lock, and the subscriptions.
	Shared interface {
		// Client returns a comparable value that stands for the client, nil if there is none.
		Client() any

		// Sibling returns another Pool of the client, with the same options. Closing one does not affect the other, so
		// that a user who closes a Pool ends no subscription that others share.
		Sibling() Pool
	}

	// Closable is a Pool whose client the user may close.
	Closable interface {
		// ClientClosed reports whether the user has closed the client. It sends nothing, and does not block. If it is
		// closed and the other nodes are no quorum, the locks of a Redsync are lost.
		ClientClosed() bool
	}

	// Waiting is a Pool that knows for how long the node has been silent.
	Waiting interface {
		// Silent returns for how long the Pool has waited for a sign of life of the node (a reply that is owed, or a
		// connection), 0 if it waits for nothing. A Redsync gives up early on a node that others have waited for in vain.
		Silent() time.Duration
	}

	// Limited is a Pool with a limit of outstanding replies: see WithOutstanding.
	Limited interface {
		// IsBehind reports whether the node answers, but owes many of the replies that it may owe. Meanwhile watchdogs
		// whose locks have time left wait.
		IsBehind() bool
	}
)
