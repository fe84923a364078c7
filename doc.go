// Package redsync is a distributed lock on one Redis, or on N independent ones: Redlock, with the API of redsync v4.
//
//	rs, err := redsync.Open(ctx, []string{"localhost:6379"}) // or "a:6379", "b:6379", "c:6379"
//	...
//	defer rs.Close(ctx)
//	err = rs.Do(ctx, "orders:17", func(ctx context.Context) error {
//		return work(ctx) // for as long as it takes; ctx ends if the lock is lost
//	})
//
// If you have go-redis clients already: redsync.New(pool.New(a), pool.New(b), pool.New(c)). The [documentation] has a
// whole program for production.
//
// There are three ways to keep a lock for long (docs/workers.md):
//
//   - [Redsync.Do] locks, calls a function, extends the lock meanwhile, and unlocks. Start here. [Redsync.TryDo] does so
//     only if the lock is free.
//   - [WithWatchdog] extends a lock from Lock to Unlock. Work with the context of [Mutex.Context], or watch [Mutex.Lost].
//   - [Mutex.Extend], called about every third of the expiry, keeps a lock while work makes progress.
//
// [Mutex.Remaining] says for how long you may still rely on the lock. It sends nothing: call it before each step.
// [Mutex.Valid] asks the nodes.
//
// Other kinds of locks: several names at once ([Redsync.NewMultiMutex]), readers ([WithShared]), at most n holders
// ([WithPermits]), one leader ([Redsync.Lead]), one job per tick ([WithMinHold]). Do within Do, on the same name and with
// the context of the outer function, uses the same lock (docs/nesting.md).
//
// # What is guaranteed
//
//   - Exclusion: at most one holder of a name has Remaining() > 0. All readers of a name count as one holder. Holders with
//     WithPermits have at most n permits together. If a Mutex adopts a lock ([WithSequencer], [WithValue]), the giver has
//     it, too, until it calls [Mutex.Detach].
//   - Time: the clock of a lock starts before its first request is sent, and counts the longer of monotonic and wall time.
//     So it ends for its holder before its keys expire on the nodes. Nothing revives it.
//   - Loss: [Mutex.Lost] is closed when the lock has ended without Unlock, soon after Until at the latest, even if no
//     node can be reached.
//   - Values: a value that your code has read ([Mutex.Value]) is never used again: it can serve as an id of this lock.
//   - Results: true never comes with an error, and false never without one.
//   - Availability: each call returns as soon as the answers decide it. If no majority answers, an attempt fails after
//     the node deadline ([WithNodeTimeout], 0.4 s by default). If a majority answers, the others cost no time, except
//     in three waits (docs/safety.md).
//
// # What is assumed
//
//   - The nodes are independent primaries, and evict no keys.
//   - A node that restarts still has its keys (appendfsync always), or pool.WithRestartGuard is set. Without both, an
//     only node that restarts empty lets in a second holder at once, before the first is told. With a guard of 8 s,
//     nobody locks for 9.1 s (docs/one-node.md).
//   - Clocks run at about the same rate, within [WithDriftFactor].
//   - Every client of a name follows the protocol, on the same nodes. [NewJoint] is for changing the nodes.
//
// # What is not guaranteed
//
// A process that is paused between a check and a step may make the step after its lock has ended. No lock with an expiry
// can prevent that. The remedy is a fencing token ([WithFencing], docs/fencing.md): the resource refuses a number that is lower than one
// it has seen. The restart guard does not notice FLUSHALL, eviction, a failover to a stale replica, or a step of a node's
// clock. docs/objections.md lists what else can go wrong, with a test of each.
//
// # Waiting
//
// Unlock wakes the next waiter. By default a new caller may overtake waiters of other processes; [WithFair] serves them
// in call order. Since messages can be lost, the first waiter of each process also looks by itself, at least every half
// second. By default Lock gives up after about 4.7 s ([WithTries]), but the lock of a crashed holder lasts for up to 8
// s.
//
// # After an error
//
// A Lock that fails acquires nothing. Keys that it may have set are released in the background, until each node
// confirms, even if the context has ended. Unlock releases in the same way. After [ErrExtendFailed] the lock is yours
// until the old Until. After [ErrLockLost] or [ErrLockAlreadyExpired] it is over. After Unlock it is not yours,
// whatever Unlock returned. Nodes that are down are no error while a majority answers: [WithLogger] tells of them.
//
// # Compatibility
//
// This package is stable (docs/versions.md). Names and signatures are those of redsync v4, except that New takes this
// module's pools. A lock is one key on each node, set by SET name value NX PX milliseconds. Processes with redsync v4 and
// with this package exclude each other. Nodes are Redis 6.2, Valkey 7.2 or later.
//
// Sources: "Distributed Locks with Redis" (redis.io); Kleppmann, "How to do distributed locking", 2016; Sanfilippo, "Is
// Redlock safe?", 2016; Lamport, CACM 17(8), 1974 (tickets); Burrows, "The Chubby lock service", 2006 (lock delay).
//
// [documentation]: https://github.com/seed14bd9ef4/redsync/blob/main/docs/README.md
package redsync
