// Package redsync is a distributed lock on N independent Redis nodes: Redlock,
// with the API of redsync v4.
//
//	rs, err := redsync.Open(ctx, []string{"a:6379", "b:6379", "c:6379", "d:6379", "e:6379"})
//	...
//	defer rs.Close(ctx)
//	err = rs.Do(ctx, "orders:17", func(ctx context.Context) error {
//		return work(ctx) // for as long as it takes; ctx ends if the lock is lost
//	})
//
// To use go-redis clients that you already have, pass pool.New(client) for each to
// [New].
//
// # Three ways to hold a lock for long
//
//   - [Redsync.Do] is for work that is a function with a context: it locks,
//     extends, ends the context when the lock is lost, and unlocks. Start here.
//   - [WithWatchdog] is for a lock that outlives a function: it extends itself
//     from Lock to Unlock. When the lock is lost, [Mutex.Lost] is closed and
//     [Mutex.Err] says why. Your code must watch that channel.
//   - [Mutex.Extend], called about every third of the expiry, is for work that should
//     keep the lock only while it makes progress. Lost and Err report a loss here, too.
//
// The second and the third way use a [Mutex] (the third leaves out the option):
//
//	mutex := rs.NewMutex("orders:17", redsync.WithWatchdog())
//	if err := mutex.LockContext(ctx); err != nil {
//		return err // not held
//	}
//	defer mutex.Unlock()
//
// In all three, [Mutex.Remaining] says how long the holder may still rely on the lock. It sends
// nothing, so call it before each step that needs the lock. [Mutex.Valid] asks the nodes.
// [WithMaxHold] bounds how long a worker that hangs keeps others out.
//
// # What is guaranteed
//
// While the assumptions below hold:
//
//   - At most one hold of a name has Remaining() > 0 at any time. (A Mutex that has
//     adopted a value by [WithValue] shares the hold with the Mutex that the value came
//     from. It has the hold alone if the value came from [Mutex.Detach], which ends the
//     hold of the Mutex that gives the value away.)
//   - A value belongs to one hold. Once your code has read the value, Unlock does not
//     hand the lock over inside the process, and no later Lock of the Mutex releases that value.
//   - A hold starts before the first byte of the attempt that won is sent, and ends
//     before its keys can expire, by drift at least. Both clocks of the machine count,
//     the monotonic and the wall clock: neither a suspension of the machine nor a
//     wall clock that is set back makes a hold last longer.
//   - Extend and the watchdog prolong a hold that has not ended. They never revive one
//     that has.
//   - A holder learns of the end of its hold by its own clocks, whether or not it
//     reaches a node: Lost is closed at Until, or as much later as a timer is late.
//     Nobody else can acquire the lock before Until.
//   - A method that returns a bool and an error returns true if and only if the error is nil.
//   - Every operation decides as soon as the answer is certain: when a quorum (N/2 + 1
//     nodes) has granted it, or when no quorum can grant it any more. Nodes that are down
//     or frozen cost no time while a quorum answers. Otherwise they cost at most the node
//     deadline, and in Extend at most the rest of the validity.
//   - In three cases Lock waits longer, at most for the node deadline (0.4 s by
//     default). The first Lock on a client in this process learns whether two nodes
//     are one server; it uses at most half of the time that its context has left.
//     A Lock that cannot win waits until it knows whether the lock is taken or nodes
//     are down. A Lock after ErrDuplicateNode first asks the nodes whether two of them
//     are still one server.
//
// # What is assumed
//
//   - The nodes are independent primaries: no two are the same server or
//     replicas of each other.
//   - No node evicts keys: maxmemory-policy noeviction.
//   - Clocks run at about the same rate, within [WithDriftFactor]. They need not
//     agree on the time.
//   - A node that restarts still has its keys (appendfsync always), or pool.WithRestartGuard
//     is set: then the node's votes do not count until the longest-lived key has expired.
//   - Every client that uses a name follows the protocol.
//
// # What is not guaranteed
//
//   - A holder that is paused (garbage collection, swapping, a stopped process)
//     between a check and a step may make the step after the lock has ended. No
//     lock with an expiry can prevent that. The remedy is a fencing token that
//     the resource checks: see Fencing.
//   - Without pool.WithRestartGuard, a quorum may grant a lock that is still held if it
//     includes nodes that restarted without their keys. The guard does not notice
//     FLUSHALL, eviction, a failover to a stale replica, or a step of a node's clock.
//   - By default waiting is not fair: see Waiting.
//
// # Waiting
//
// Releasing a lock wakes the next waiter. Each node keeps a queue of the processes that wait.
// When the lock is released there, the node tells the first process in its queue. The waiters of
// one process (of all Redsyncs on the same go-redis clients, in the same order) stand in a line
// for each lock. Only the first waiter in the line talks to the nodes, so a thousand waiting
// goroutines cost the nodes no more than one, and cost their own process little. Unlock may hand
// the lock to the next waiter of the same Redsync without telling the nodes ([WithHandOver]).
//
// By default the first attempt of a Lock may overtake waiters, as with a sync.Mutex. It never
// overtakes waiters of its own process. Right after its own process has released the lock, it does
// not overtake waiters of other processes either. [WithFair] serves waiters in call order.
// [WithPriority] serves waiters with a higher priority first.
//
// A wake-up can be lost, a holder or a waiter can die, and programs with other
// libraries wake nobody. So the first in line also tries in three other cases: when the lock's
// keys run out, every half second, and after every retry delay. The shortest delay of all
// waiters in the line counts. WithTries counts only the retry delays of its own Lock. If fewer
// nodes than a quorum answer a waiter's attempt, waiters with a longer node deadline try before that
// waiter. So while a quorum of nodes answers, a waiter takes a free lock within a retry delay.
// In fair mode it can take a second, because a crashed process keeps its place that long.
//
// A node's ACL may deny SUBSCRIBE, or the key {name}:queue. Then that node does not wake waiters,
// and they rely on their retry delays; see observe.WakeUpDenied.
//
// # Fencing
//
// With [WithFencing] each hold has a token, [Mutex.Fence]: a number that no other hold has.
// If one Lock of a name returned before another was called, the second has the greater token.
// Both are true even if two holders had the lock at once, and whatever the clocks of the
// clients say. The holder sends the token along with what it writes, and the resource refuses
// a token lower than one it has seen. Package fencing does that for values in Redis, rows in
// databases and data in a process. [Mutex.Sequencer] is for a server that asks the nodes
// instead.
//
// A token costs the nodes a script in place of SET: with 128 callers they spend 2.9 times the
// CPU time, and a program acquires 0.43 times as many locks per second (bench/README.md). A Lock
// takes one or two more round trips if the last token came from a client whose clock is ahead by
// more than the time since that token. So use tokens where a late write would do
// harm and the resource can check a number. Do not use them where the lock only saves work from
// being done twice. [WithFencing] says what bounds the promise.
//
// # What a failure leaves behind
//
// A Lock that fails, or whose context ends, acquires nothing. A hold that the Mutex had
// before goes on. Keys that the attempt has set, or may have set, are
// released in the background, whatever happens to the context. The release, like that of an
// Unlock, is sent again until each node has confirmed it. Keys that cannot be released,
// because the node is out of reach or the process ends, vanish with their expiry.
//
// After an Extend that failed with [ErrExtendFailed] the lock is held until the
// old Until. The watchdog tries again, unless [ErrMaxHold] comes with the error. After
// [ErrLockAlreadyExpired] the lock is over: Until has passed, or the nodes have proved it.
// Extend and Valid return it with [ErrLockLost] if the nodes have proved that a hold is over,
// or if Until passed during the Extend. After Unlock the Mutex is not held, whatever Unlock
// returned.
//
// If a connection breaks during Unlock, the release is sent again, and Unlock waits for
// that reply, at most for the node deadline. It returns true only if a quorum of nodes says that
// they deleted the value, or if it has handed the lock over. [Redsync.Close] releases every lock
// that is still held, however many there are. It gives up once no node has confirmed a release for
// the length of a node deadline.
//
// # Nodes that are down
//
// A minority of nodes that are down breaks no lock, so no call returns an error for it.
// [WithLogger] writes a line when a node goes down, with its address and the cause, and another
// when it is up again. Observers get observe.NodeDown and observe.NodeUp. Both come from the traffic
// of locks alone: an idle Redsync sends nothing, so it does not notice that a node is down.
//
// # Compatibility
//
// Names and signatures are those of redsync v4, except for New, which takes this
// module's pools. A lock is one key on each node, set by SET name value NX PX
// milliseconds: the format of redsync and of other implementations of Redlock.
// Processes that use redsync v4 and processes that use this package exclude each
// other, on the same nodes and names. The format does not change within a major version.
//
// Redis 6.2, Valkey 7.2 and later serve as nodes. Lock acquires with a plain SET, unless it waits or
// takes a fencing token: then it sends a script, as Unlock, Extend and Valid do.
//
// # Sources
//
//   - "Distributed Locks with Redis",
//     https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
//   - Martin Kleppmann, "How to do distributed locking",
//     https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
//   - Salvatore Sanfilippo, "Is Redlock safe?", http://antirez.com/news/101
//   - Leslie Lamport, "A New Solution of Dijkstra's Concurrent Programming Problem",
//     CACM 17(8), 1974, for tickets as the order of waiters
//   - Mike Burrows, "The Chubby lock service", OSDI 2006, for the lock delay
package redsync
