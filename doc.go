// Package redsync is a distributed lock on one Redis, or on N independent ones: Redlock, with the API of redsync v4.
//
//	rs, err := redsync.Open(ctx, []string{"localhost:6379"}) // or "a:6379", "b:6379", "c:6379"
//	...
//	defer rs.Close(ctx)
//	err = rs.Do(ctx, "orders:17", func(ctx context.Context) error {
//		return work(ctx) // for as long as it takes; ctx ends if the lock is lost
//	})
//
// With go-redis clients: redsync.New(pool.New(a), pool.New(b), pool.New(c)). The [documentation] has a whole program.
//
// # Which call
//
//   - Skip if taken: [Redsync.TryDo].
//   - Wait until ctx ends: [Redsync.Do] with [WithTries](0). By default Do gives up after about 4.7 s, before the lock
//     of a crashed holder expires (8 s, [WithExpiry]).
//   - Wait at most d: Do with [WithWait](d).
//   - Long work: Do extends the lock. If the work is no function: [Redsync.NewMutex], [WithWatchdog], [Mutex.Context].
//   - Many names, all or none: [Redsync.NewMultiMutex].
//   - Once per tick: TryDo with [WithMinHold] of half the time between two ticks.
//   - One leader: [Redsync.Lead].
//   - Unlock in another process: [Mutex.Value], [WithValue], [Mutex.Unlock].
//   - Shell: the command redsync run.
//
// If the lock is taken, TryDo returns no error, and Do and Lock one that matches [ErrFailed]. Before each step, ask
// [Mutex.Remaining].
//
// # What is guaranteed
//
//   - Exclusion: at most one holder of a name has Remaining() > 0. Readers count as one. Holders with WithPermits have
//     at most n permits together. The giver of an adopted lock ([WithSequencer], [WithValue]) has it, too, until
//     [Mutex.Detach].
//   - Time: a lock starts before its first request is sent, and counts the longer of monotonic and wall time. So it
//     ends for its holder before its keys expire. Nothing revives it.
//   - Loss: [Mutex.Lost] is closed soon after Until at the latest, even if no node can be reached.
//   - Results: true never comes with an error, and false never without one.
//   - Availability: a minority of nodes that are down costs no time, except in three waits. Without a majority an
//     attempt fails after the node deadline ([WithNodeTimeout], 0.4 s by default). See docs/safety.md.
//
// # What is assumed
//
//   - The nodes are independent primaries, and evict no keys.
//   - A node that restarts still has its keys (appendfsync always), or pool.WithRestartGuard is set. Otherwise a single
//     node that restarts empty lets in a second holder at once (docs/one-node.md).
//   - Clocks run at about the same rate, within [WithDriftFactor].
//   - Every client of a name follows the protocol, on the same nodes. To change the nodes use [NewJoint].
//
// # What is not guaranteed
//
// A process that pauses between a check and a step may make the step after its lock has ended. Only a fencing token
// prevents that ([WithFencing], docs/fencing.md). The restart guard does not notice FLUSHALL, eviction, a failover to a
// stale replica, or a step of a node's clock. See docs/objections.md.
//
// # After an error
//
// A failed Lock acquires nothing, and a failed Unlock ends the lock: the keys are released in the background, even if
// the context has ended. After [ErrExtendFailed] the lock is yours until the old Until. After [ErrLockLost] or
// [ErrLockAlreadyExpired] it is over. Nodes that are down are no error while a majority answers: see [WithLogger].
//
// # Rarely needed
//
// Readers ([WithShared]), permits ([WithPermits]), waiters in call order ([WithFair]), nested calls (docs/nesting.md).
// By hand: [Mutex.Extend], [Mutex.Valid], [Mutex.Detach]. To look: [Mutex.Inspect], [Mutex.Watch], [WithHooks]. To
// operate: [Mutex.ForceUnlock].
//
// # Compatibility
//
// This package is stable (docs/versions.md). Names and signatures are those of redsync v4, except for New. Processes
// with either exclude each other (docs/from-redsync-v4.md). Nodes are Redis 6.2, Valkey 7.2 or later.
//
// Sources: docs/objections.md; Lamport, CACM 17(8), 1974 (tickets); Burrows, OSDI 2006 (lock delay, Sequencer).
//
// [documentation]: https://github.com/seed14bd9ef4/redsync/blob/main/docs/README.md
package redsync
