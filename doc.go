// Package redsync is a distributed lock on N independent Redis nodes: Redlock,
// with the API of redsync v4.
//
//	rs, err := redsync.Open(ctx, []string{"a:6379", "b:6379", "c:6379", "d:6379", "e:6379"})
//	...
//	defer rs.Close(ctx)
//	mutex := rs.NewMutex("orders:17")
//	if err := mutex.LockContext(ctx); err != nil {
//		return err // not held
//	}
//	defer mutex.Unlock()
//
// Before each step that needs the lock, [Mutex.Remaining] says how long it may
// still be relied upon, without traffic. Work that outlasts the expiry calls
// [Mutex.Extend], about every third of it. [New] takes pools of clients that
// exist already, in place of Open's addresses.
//
// # What is guaranteed
//
// While the assumptions below hold:
//
//   - At most one hold of a name has Remaining() > 0 at any time. (A Mutex that
//     adopted a hold by [WithValue], and the one that gave it away, share it.)
//   - A hold starts before the first byte of the attempt that won is sent, and
//     ends drift earlier than its keys can. Both clocks of the machine count,
//     the monotonic and the wall clock: neither a suspension of the machine nor a
//     wall clock that is set back makes a hold last longer.
//   - Extend prolongs a hold that has not ended; it brings none back.
//   - true is never returned with an error, false never without one.
//   - Every operation decides once a quorum, N/2 + 1 nodes, has made the answer
//     certain. Nodes that are down or frozen cost no time while a quorum of the
//     others answers, and no more than the node deadline otherwise (Extend: the
//     rest of the validity).
//
// # What is assumed
//
//   - The nodes are independent primaries: no two are the same server or
//     replicas of each other.
//   - No node evicts keys: maxmemory-policy noeviction.
//   - Clocks run at about the same rate, within [WithDriftFactor]. They need not
//     agree on the time.
//   - A node that restarts still has its keys (appendfsync always), or stays out
//     for longer than the longest expiry in use: see to that by a delayed
//     restart.
//   - Everybody who uses a name follows the protocol.
//
// # What is not guaranteed
//
//   - A holder that is paused (garbage collection, swapping, a stopped process)
//     between a check and a step may make the step after the lock has ended. No
//     lock with an expiry can prevent that. The remedy is a fencing token that
//     the resource checks; this package does not have one yet.
//   - A quorum that includes a node restarted without its keys may grant a lock
//     that is still held.
//   - Waiting is not fair, and an unlock wakes nobody: Lock polls.
//
// # What a failure leaves behind
//
// A Lock that fails, or whose context ends, acquires nothing; what the Mutex held
// before, it still holds. Keys that the attempt has set,
// or may have set, are released in the background, whatever happens to the
// context, and repeatedly until each node has settled it; the same goes for
// Unlock. Keys that cannot be released, because the node is out of reach or the
// process ends, vanish with their expiry.
//
// After an Extend that failed with [ErrExtendFailed] the lock is held until the
// old Until. After [ErrLockAlreadyExpired] it is over: Until has passed.
// [ErrLockLost] comes with it when Until passed while an Extend was under way, or
// when the nodes proved to an Extend or a Valid that no quorum holds the lock;
// later calls return both as well, until Unlock or the next successful Lock.
// After Unlock the Mutex is not held, whatever was returned.
//
// # Compatibility
//
// Names and signatures are those of redsync v4, except for New, which takes this
// module's pools. A lock is one key on each node,
// set by SET name value NX PX milliseconds: the format of redsync and of other
// implementations of Redlock. Processes that use redsync v4 and processes that
// use this package exclude each other, on the same nodes and names. The format
// stays within a major version.
//
// Redis 6.2, Valkey 7.2 and later serve as nodes. Lock needs SET alone; Unlock,
// Extend and Valid are scripts.
//
// # Sources
//
//   - "Distributed Locks with Redis",
//     https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
//   - Martin Kleppmann, "How to do distributed locking",
//     https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
//   - Salvatore Sanfilippo, "Is Redlock safe?", http://antirez.com/news/101
package redsync
