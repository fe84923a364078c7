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
// # Which call
//
//   - Skip if taken: [Redsync.TryDo].
//   - Wait until ctx ends: [Redsync.Do] with [WithTries](0). By default Do gives up after about 4.7 s, before the lock of a
//     crashed holder expires (8 s, [WithExpiry]).
//   - Wait at most d: Do(ctx, name, fn, [WithWait](d)).
//   - Long work: Do extends the lock. If the work is no function: [Redsync.NewMutex], [WithWatchdog], [Mutex.Context].
//   - Many names, all or none: [Redsync.NewMultiMutex].
//   - Once per tick: TryDo with [WithMinHold] of half the time between two ticks.
//   - One leader: [Redsync.Lead].
//   - Unlock in another process: [Mutex.Value], [WithValue], [Mutex.Unlock].
//   - Shell: the command redsync run.
//
// Taken? TryDo says so without an error, Do and Lock by one that matches [ErrFailed]. Before each step, ask [Mutex.Remaining]
// for the time that is left.
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
//     only node that restarts empty lets in a second holder at once (docs/one-node.md).
//   - Clocks run at about the same rate, within [WithDriftFactor].
//   - Every client of a name follows the protocol, on the same nodes. [NewJoint] is for changing the nodes.
//
// # What is not guaranteed
//
// A process that is paused between a check and a step may make the step after its lock has ended. No lock with an expiry
// can prevent that, but a fencing token can ([WithFencing], docs/fencing.md). The restart guard does not notice FLUSHALL,
// eviction, a failover to a stale replica, or a step of a node's clock. docs/objections.md lists what else can go wrong,
// with a test of each.
//
// # After an error
//
// A Lock that fails acquires nothing. Keys that it may have set are released in the background, until each node
// confirms, even if the context has ended. Unlock releases in the same way. After [ErrExtendFailed] the lock is yours
// until the old Until. After [ErrLockLost] or [ErrLockAlreadyExpired] it is over. After Unlock it is not yours,
// whatever Unlock returned. Nodes that are down are no error while a majority answers: [WithLogger] tells of them.
//
// # Rarely needed
//
// Readers ([WithShared]), permits ([WithPermits]), tokens ([WithFencing]), waiters in call order ([WithFair]: else a new
// caller may overtake). By hand: [Mutex.Extend], [Mutex.Valid], [Mutex.Detach]. To look: [Mutex.Inspect], [Mutex.Watch],
// [WithHooks]. To operate: [Mutex.ForceUnlock], [NewJoint]. Only for programs from redsync v4: [WithShufflePools],
// [WithTimeoutFactor]. A Do inside a Do on the same name uses its lock (docs/nesting.md).
//
// # Compatibility
//
// This package is stable (docs/versions.md). Names and signatures are those of redsync v4, except for New, which takes this
// module's pools. Processes with redsync v4 and with this package exclude each other (docs/from-redsync-v4.md). Nodes are
// Redis 6.2, Valkey 7.2 or later.
//
// Sources: docs/objections.md; Lamport, CACM 17(8), 1974 (tickets); Burrows, OSDI 2006 (lock delay, Sequencer).
//
// [documentation]: https://github.com/seed14bd9ef4/redsync/blob/main/docs/README.md
package redsync
