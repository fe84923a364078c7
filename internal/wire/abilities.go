package wire

import "time"

// Each ability of a Pool is optional: the pools of New have those that their clients allow.

type (
	// Failing is a Pool that may never be able to send. Then a Redsync fails at once.
	Failing interface {
		// Err returns why the Pool cannot send, or nil.
		Err() error
	}

	// Guarded is a Pool that may have a restart guard: see pool.WithRestartGuard.
	Guarded interface {
		// RestartGuard returns the maxExpiry of the guard, 0 without one.
		RestartGuard() time.Duration
	}

	// Located is a Pool that knows to which node it leads.
	Located interface {
		// Destination returns a comparable value for the node. Equal ones in a Redsync are an error. In both sets of a
		// NewJoint they count once, unless their Keyspaces differ.
		Destination() any
	}

	// Listed is a Pool whose String may differ from its entry in an address list.
	Listed interface {
		// Listed returns that entry. NewJoint compares the entries of its two sets.
		Listed() string
	}

	// Keyed is a Pool of a server with several databases.
	Keyed interface {
		// Keyspace returns a comparable value for the Pool's database, nil if not known. NewJoint needs it when one
		// server is in both sets.
		Keyspace() any
	}

	// Spread is a Pool that may keep keys on several servers, such as that of a Redis Cluster.
	Spread interface {
		// Together reports whether two keys always lie on one server. A lock on several names needs this.
		Together(a, b string) bool
	}

	// Partial is a Pool that may lead to a server with only some of the keys, as in a Redis Cluster.
	Partial interface {
		// Partial returns why not every key can be used, nil if that is not known. For Open and Ping the node has
		// failed.
		Partial() error
	}

	// Met is a Pool that knows whether this process has locked by its client before.
	Met interface {
		// MetBefore returns false on the first call for a client in this process, then true. After false, or without
		// Met, the first Lock of a Redsync waits until it knows the server. So a Pool that never knows returns true.
		MetBefore() bool
	}

	// Shared is a Pool whose client other Pools may use, too. Redsyncs on the same clients, in the same order, share
	// subscriptions and queues of waiters.
	Shared interface {
		// Client returns a comparable value for the client, or nil.
		Client() any

		// Sibling returns another Pool of the client, with the same options: closing one ends no subscription that
		// others share.
		Sibling() Pool
	}

	// Closable is a Pool whose client the user may close.
	Closable interface {
		// ClientClosed reports whether the user has closed the client. It sends nothing and does not block. A Redsync
		// without a quorum of other nodes loses its locks.
		ClientClosed() bool
	}

	// Waiting is a Pool that knows how long its node has been silent.
	Waiting interface {
		// Silent returns for how long the Pool has waited for an owed reply or a connection. A Redsync waits less for a
		// node that has long been silent.
		Silent() time.Duration
	}

	// Linked is a Pool that opens a connection before it sends requests. The node deadline begins when it is open.
	Linked interface {
		// Link describes the connection or its opening.
		Link() Link
	}

	// Recalling is a Pool that can take requests back. Without it, a Close waits for requests that wait for a
	// connection.
	Recalling interface {
		// Recall delivers NotSent and why, with Conn 0, for each request that waits for a connection and for which
		// which returns true. The calling goroutine delivers them, perhaps beside another reply. which must neither
		// block nor use the Pool.
		Recall(which func(to Receiver, tag int) bool, why error)
	}

	// Modern is a Pool whose node may have commands that stand for scripts.
	Modern interface {
		// Natives returns those that a request may use now, and those that the connection is known to allow. If a node
		// refuses one all the same, its sender sends Args.
		Natives() (may, proved Native)
	}

	// Limited is a Pool with a limit of outstanding replies: see pool.WithOutstanding.
	Limited interface {
		// IsBehind reports whether the node answers but owes a large part of the limit: a watchdog then waits while its lock
		// has time.
		IsBehind() bool
	}
)
