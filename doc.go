// Package redsync is a distributed lock on N independent Redis nodes: Redlock, with the API of redsync v4.
//
//	rs, err := redsync.Open(ctx, []string{"a:6379", "b:6379", "c:6379", "d:6379", "e:6379"})
//	...
//	defer rs.Close(ctx)
//	err = rs.Do(ctx, "orders:17", func(ctx context.Context) error {
//		return work(ctx) // for as long as it takes; ctx ends if the lock is lost
//	})
//
// For go-redis clients that you already have, pass pool.New(client) for each to [New].
//
// There are three ways to hold a lock for long ([workers]):
//
//   - [Redsync.Do] locks, calls a function, extends the lock meanwhile, and unlocks. Start here. [Redsync.TryDo]
//     does so only if the lock is free, and says whether it has called the function. [Mutex.Do] and [Mutex.TryDo]
//     do the same with a Mutex.
//   - [WithWatchdog] extends a lock from Lock to Unlock. Your code must work with the context of [Mutex.Context],
//     or watch [Mutex.Lost].
//   - [Mutex.Extend], called about every third of the expiry, keeps a lock while work makes progress.
//
// In all three, [Mutex.Remaining] says how long the holder may still rely on the lock. It sends nothing, so
// call it before each step that needs the lock. [Mutex.Valid] asks the nodes.
//
// [Redsync.NewMultiMutex] locks several names, all of them or none ([several names]). With [WithShared] many
// readers hold a lock at once, but never together with a writer ([readers]). [WithPermits] lets at most n
// holders work at once ([permits]). A Do inside the function of a Do on the same name joins its hold: a
// reentrant lock, whose owner is the context ([nesting]). [Redsync.Lead] makes one process of many the leader
// ([leaders]). [WithMinHold] keeps a lock after Unlock, so that a scheduled job runs once per tick ([cron]).
//
// # What is guaranteed
//
//   - Exclusion: at any time, at most one hold of a name has Remaining() > 0. All shared holds ([WithShared]) of
//     a name count together as one. With [WithPermits], the holds that have Remaining() > 0 have at most n
//     permits together. If one Mutex gives its hold to another one ([WithSequencer], [WithValue]), both have it
//     until the giver calls [Mutex.Detach].
//   - Time: a hold is counted from before its winning attempt sends the first byte. It ends at Until, before its
//     keys can expire. The monotonic clock and the wall clock both measure it, and the longer time counts. Extend
//     and the watchdog never revive a hold that has ended.
//   - Loss: a holder learns of the end of its hold by its own clocks. Lost is closed at Until, or later if a timer
//     is late ([Mutex.Lost]).
//   - Values: once your code has read a value ([Mutex.Value], [Mutex.Sequencer]), no later hold gets it.
//     Unlock may pass an unread value, with the lock, to the next waiter of the same process ([WithHandOver]).
//   - Results: true is never returned with an error, and false never without one.
//   - Availability: each operation returns as soon as a quorum (N/2 + 1 nodes) has granted it, or as soon as no
//     quorum can grant it any more.
//     Nodes that are down or frozen cost no time while a quorum answers, except for the [three waits] of Lock.
//     Otherwise they cost each attempt at most the node deadline ([WithNodeTimeout]).
//
// # What is assumed
//
//   - The nodes are independent primaries: no two are one server or replicas of each other.
//   - No node evicts keys (maxmemory-policy noeviction).
//   - Clocks run at about the same rate, within [WithDriftFactor]. They need not agree on the time.
//   - A node that restarts still has its keys (appendfsync always), or pool.WithRestartGuard is set.
//   - Every client that uses a name follows the protocol, on the same nodes. [NewJoint] is for changing the nodes
//     ([replacing]).
//
// # What is not guaranteed
//
//   - A holder that is paused between a check and a step may make the step after its lock has ended. No lock
//     with an expiry can prevent that. The remedy is a [fencing] token: [WithFencing] gives each hold a number,
//     greater than those of earlier holds, and the resource refuses a number lower than one it has seen.
//   - The restart guard does not notice FLUSHALL, eviction, a failover to a stale replica, or a step of a node's
//     clock. [objections] lists what can go wrong, with a test of each.
//
// # Waiting
//
// Releasing a lock wakes the next waiter. By default an attempt may overtake waiters of other processes, as with a
// sync.Mutex; [WithFair] serves waiters in call order, and [WithPriority] lets some wait at the front. Messages
// can be lost and holders can die. So the first waiter of a process also makes attempts without a message: after
// each retry delay, at least every half second, and when the holder's keys expire. See [design].
//
// # What a failure leaves behind
//
// A Lock that fails acquires nothing, and a hold that the Mutex already had goes on. Keys that the attempt may have
// set are released in the background, repeatedly until each node confirms, even if the context has ended. Unlock
// repeats its release in the same way. Keys on a node that stays out of reach, or of a process that dies, vanish
// with their expiry.
//
// After [ErrExtendFailed] the lock is held until the old Until. After [ErrLockAlreadyExpired] the lock is
// over. After Unlock the Mutex is not held, whatever Unlock returned. Unlock returns true only in three
// cases: a quorum has deleted the value (or keeps it as [WithMinHold] says), Unlock has handed the lock to
// the next waiter of the process, or other readers of the process share the hold. [Redsync.Close] releases
// every lock that is still held.
//
// A minority of nodes that are down breaks no lock, so no call returns an error for it. [WithLogger] logs these nodes.
//
// # Compatibility
//
// Names and signatures are those of redsync v4, except for New, which takes this module's pools ([moving]). A
// lock is one key on each node, set by SET name value NX PX milliseconds. While readers hold a name, the value
// of the key is a text that lists them. Other clients take it for the value of another holder. Processes with
// redsync v4 and processes with this package exclude each other. Nodes are Redis 6.2, Valkey 7.2 or later.
//
// Sources: "Distributed Locks with Redis" (redis.io); Kleppmann, "How to do distributed locking", 2016; Sanfilippo,
// "Is Redlock safe?", 2016; Lamport, CACM 17(8), 1974 (tickets); Burrows, "The Chubby lock service", 2006 (lock
// delay).
//
// [workers]: https://github.com/seed14bd9ef4/redsync/blob/main/docs/workers.md
// [several names]: https://github.com/seed14bd9ef4/redsync/blob/main/docs/several-names.md
// [readers]: https://github.com/seed14bd9ef4/redsync/blob/main/docs/readers.md
// [permits]: https://github.com/seed14bd9ef4/redsync/blob/main/docs/permits.md
// [nesting]: https://github.com/seed14bd9ef4/redsync/blob/main/docs/nesting.md
// [leaders]: https://github.com/seed14bd9ef4/redsync/blob/main/docs/leaders.md
// [cron]: https://github.com/seed14bd9ef4/redsync/blob/main/docs/cron.md
// [fencing]: https://github.com/seed14bd9ef4/redsync/blob/main/docs/fencing.md
// [three waits]: https://github.com/seed14bd9ef4/redsync/blob/main/docs/safety.md#the-three-waits-of-lock
// [objections]: https://github.com/seed14bd9ef4/redsync/blob/main/docs/objections.md
// [design]: https://github.com/seed14bd9ef4/redsync/blob/main/docs/design.md
// [replacing]: https://github.com/seed14bd9ef4/redsync/blob/main/docs/replacing-nodes.md
// [moving]: https://github.com/seed14bd9ef4/redsync/blob/main/docs/from-redsync-v4.md
package redsync
