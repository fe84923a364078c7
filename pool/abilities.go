package pool

import "time"

// This file names what a Pool may also do. It is for those who write a Pool of their own: each ability is optional, and
// the pools of New have those that their clients allow. [Subscriber] is another one.

type (
	// Failing is a Pool that may be unable to send anything, ever.
	Failing interface {
		// Err returns why, nil if the Pool can send.
		Err() error
	}

	// Guarded is a Pool that may have a restart guard: see WithRestartGuard.
	Guarded interface {
		// RestartGuard returns the length of the guard, 0 if there is none.
		RestartGuard() time.Duration
	}

	// Located is a Pool that knows to which node it leads.
	Located interface {
		// Destination returns a comparable value that stands for the node. Two Pools with equal destinations lead to
		// one node.
		Destination() any
	}

	// Listed is a Pool that stands in a list of nodes under another name than its String.
	Listed interface {
		// Listed returns what stands for the node in a list of addresses.
		Listed() string
	}

	// Keyed is a Pool of a server with several databases.
	Keyed interface {
		// Keyspace returns a comparable value that stands for the database. Two Pools of one server whose keyspaces are
		// equal have the same keys.
		Keyspace() any
	}

	// Spread is a Pool that may keep keys on several servers, such as that of a Redis Cluster.
	Spread interface {
		// Together reports whether two keys always lie on one server.
		Together(a, b string) bool
	}

	// Met is a Pool that knows whether this process has used its client before.
	Met interface {
		// MetBefore reports whether it has been called before in this process, for the same client, or whether the
		// Pool never knows which server answers.
		MetBefore() bool
	}

	// Shared is a Pool of a client that other Pools may have, too.
	Shared interface {
		// Client returns a comparable value that stands for the client, nil if there is none.
		Client() any

		// Sibling returns another Pool of the client, with the same options. Closing one does not affect the other.
		Sibling() Pool
	}

	// Closable is a Pool whose client the user may close.
	Closable interface {
		// ClientClosed reports whether the user has closed the client. It sends nothing.
		ClientClosed() bool
	}

	// Waiting is a Pool that knows for how long the node has been silent.
	Waiting interface {
		// Silent returns for how long the Pool has waited for a sign of life of the node, 0 if it waits for nothing.
		Silent() time.Duration
	}

	// Limited is a Pool with a limit of outstanding replies: see WithOutstanding.
	Limited interface {
		// IsBehind reports whether the node owes many of the replies that it may owe, and answers.
		IsBehind() bool
	}
)
