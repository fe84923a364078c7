package lease

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// usedValues remembers the values that may come back: those that users' functions have made, and those of adopted leases.
// The whole process shares it, because several Redsyncs may work on the same nodes.
var usedValues valueLog

// A valueLog lets a value come back on its name, although nodes cannot tell the commands of two leases with one value apart.
// Only deleting the key of the later lease breaks a lock. So a new lease may use the value under these rules:
//
//  1. No other lease of the process relies on keys with the value. A lease does while it is being acquired or is held. It
//     also does while its keys stay on purpose: for a minimal hold, for a lock delay, or for the receiver of Detach. As
//     long as there is such a lease, a new attempt finds the lock taken. It sends nothing, so it rolls nothing back.
//  2. Once the new lease has begun, the earlier ones are superseded. A release of theirs that is under way goes on, so that
//     it leaves no key. A release that begins later changes the queues alone, because the release of the new lease
//     deletes what the earlier ones have left. The release of an adopted lease is not repeated any more: it may not even
//     know whether there was a key.
//     The outcome of an Unlock that is under way is what its release finds. So a new lease whose commands may overtake that
//     release, on connections of its own, waits for the outcome first.
//  3. A node counts for the new lease only if no command of an earlier one can still come there. The node has answered the
//     command, or the command was never sent. A release must have ended, because it may be sent again. On one ordered
//     connection it is enough that the node has answered before it answers the acquire. Any other node is doubted: no
//     grant, extension or check of the new lease counts there. A doubted node never counts again for that lease. So the
//     late command may come at any time.
//
// A reply may be lost with its connection. Then rule 3 doubts the node, but not for ever. The doubt ends when
//
//   - another server process answers for the node: the connections of the earlier process ended with it, or
//   - the node answers a command that was sent deliveredWithin after the loss. The pool has closed the connection before it
//     reports the loss, so only the kernel and the network still have bytes of it. They deliver them within that time, or
//     never. They may have reached a server that was frozen then. A server that answers on a later connection has run what
//     it had received on the earlier one before it reads the next command.
//
// So a doubt ends with the first attempt that the node answers deliveredWithin after the loss, and no value is locked out
// for good. The expiry of the keys bounds none of this: a release that comes late deletes whatever has its value.
//
// Leases of other processes are out of sight: two processes must not have one value for one name.
type valueLog struct {
	mu    sync.Mutex // guards what follows; it comes before sharing.mu
	uses  map[usedValue][]*use
	count int // of uses, by value
	sweep int // the count at which uses that are over are looked for
}

// A usedValue is a value on one line of its claim.
type usedValue struct{ line, value string }

const (
	// deliveredWithin is for how long bytes of a closed connection may be on their way. Linux sends them again for 102 s
	// (tcp_orphan_retries).
	deliveredWithin = 2 * time.Minute

	// forgetsAfter is when a loss is forgotten even if the node has not answered since. It bounds the memory.
	forgetsAfter = time.Hour

	leastSweep = 1 << 10
	mostUses   = 1 << 17 // beyond that, losses are forgotten after deliveredWithin
)

// A use is what one lease does with a value that may come back.
type use struct {
	set     *quorum.Set
	keys    []usedValue
	before  atomic.Pointer[[]earlier] // the uses for which nodes were doubted when this one began; nil once it is over
	doubted atomic.Uint64             // the claim.Nodes that do not count
	renewed atomic.Int64              // the monotonic time at which a node can last have set the TTL of a key
	nodes   []nodeUse
	adopted bool

	unordered atomic.Bool // a pool has not promised the order of execution

	// Guarded by valueLog.mu:
	lease      *Lease        // nil once nothing of it matters but the losses
	released   bool          // or its adoption has failed
	superseded bool          // no release of it begins any more
	unlocking  chan struct{} // closed when its Unlock has its outcome; nil if none is under way
	releases   int           // how many are under way, if it is adopted; each may be sent, or sent again
}

// An earlier is a use for which nodes were doubted when a later one began.
type earlier struct {
	*use
	on claim.Nodes // the doubted ones
}

// A nodeUse is what one lease does on one node.
type nodeUse struct {
	open atomic.Int64         // how many of its commands have no reply yet, and how many of its releases have not ended
	lost atomic.Pointer[loss] // the last reply that was lost; nil if none was
}

// A loss is when a reply was lost, and which server process owed it ("" if that is not known).
type loss struct {
	at     time.Duration
	server string
}

// sending, and then replied or ended, count a command to node i. u may be nil.

func (u *use) sending(i int) {
	if u != nil {
		u.nodes[i].open.Add(1)
	}
}

func (u *use) ended(i int, fate wire.Fate) {
	if u == nil {
		return
	}
	u.heard(i, fate) // first, or the node would look free of doubt in between
	if fate != wire.NotSent {
		u.renewed.Store(int64(clock.Now().Mono))
	}
	u.nodes[i].open.Add(-1)
}

// replied notes the reply to a command to node i.
func (u *use) replied(i int, reply wire.Reply) {
	if u == nil {
		return
	}
	if reply.Fate == wire.Answered && reply.Conn == 0 {
		u.unordered.Store(true)
	}
	u.ended(i, fateOf(reply))
}

// fateOf returns Unknown if the client has sent a request more than once: an earlier sending may still be executed. Otherwise
// it returns the fate of the reply.
func fateOf(reply wire.Reply) wire.Fate {
	if reply.Resent && reply.Fate == wire.Answered {
		return wire.Unknown
	}
	return reply.Fate
}

// heard notes what became of a command to node i. Other commands may follow before ended, such as a release again.
func (u *use) heard(i int, fate wire.Fate) {
	if fate == wire.Unknown {
		u.nodes[i].lost.Store(&loss{clock.Now().Mono, u.set.RunID(i)})
	}
}

// isDoubted reports whether node i does not count.
func (u *use) isDoubted(i int) bool { return claim.Nodes(u.doubted.Load()).Has(i) }

// heardInOrder notes that node i has answered the acquire on an ordered connection. All that was sent there before has been
// executed before.
func (u *use) heardInOrder(i int) {
	if !u.isDoubted(i) {
		return
	}
	before := u.before.Load()
	if before == nil {
		return
	}
	for _, b := range *before {
		if b.on.Has(i) && !b.isQuietOn(u.set, i) {
			return
		}
	}
	u.doubted.And(^uint64(claim.Nodes(0).With(i)))
}

// isQuietOn reports whether no command of u can come to node i after what was sent there last on the connection of u.
func (u *use) isQuietOn(set *quorum.Set, i int) bool {
	return u.set == set && u.nodes[i].open.Load() == 0 && u.nodes[i].lost.Load() == nil
}

// isOpen reports whether a command of u has no reply yet.
func (u *use) isOpen() bool {
	for i := range u.nodes {
		if u.nodes[i].open.Load() > 0 {
			return true
		}
	}
	return false
}

// takesLocked reports whether the keys of u must stay: see rule 1.
func (u *use) takesLocked(now clock.Instant) bool {
	l := u.lease
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	over, t := l.notHeldLocked(now) != nil, &l.terms.Timing
	switch {
	case l.state == Dropped:
		return false
	case !over:
		return !u.released
	case l.outlived:
		return l.outlivesLocked(now)
	case u.released:
		return false
	case l.state == Over && l.rareEnd.cause == nil, t.TTL > t.Expiry, t.MinHold > 0: // detached, or the keys outlive the lease
		return u.isOpen() || u.keysLast(now)
	}
	return false
}

// outlivesLocked reports whether the release of l, which Unlock has ended, may have kept its keys for the rest of a minimal hold.
func (l *Lease) outlivesLocked(now clock.Instant) bool {
	t := &l.terms.Timing
	return l.outlived && sum(t.MinHold, t.Drift.Of(t.MinHold)) > now.Mono-l.First.Mono
}

// keysLast reports whether a key that u has set may still be there, if all of its commands have ended. u must have its lease.
func (u *use) keysLast(now clock.Instant) bool {
	return u.lease.terms.Timing.lasts(time.Duration(u.renewed.Load()), now) >= 0
}

// An inquiry is what nodes have answered to a question that was sent for nothing else.
type inquiry struct {
	sent  time.Duration
	heard claim.Nodes
}

// doubts returns the nodes of set to which a command of u may still come. asks reports whether an inquiry may change that.
func (u *use) doubts(set *quorum.Set, q *inquiry, now time.Duration) (nodes claim.Nodes, asks bool) {
	for i := range set.Nodes {
		for j := range u.nodes {
			n := &u.nodes[j]
			open, lost := n.open.Load() > 0, n.lost.Load()
			if !open && lost == nil || !set.MayBeOne(i, u.set, j) {
				continue
			}
			if lost != nil && u.set == set && i == j && lost.isOver(set.RunID(i), q, i) {
				n.lost.CompareAndSwap(lost, nil)
				lost = nil
			}
			if open || lost != nil && !lost.isOver(set.RunID(i), q, i) {
				nodes = nodes.With(i)
			}
			asks = asks || lost != nil && now-lost.at >= deliveredWithin || u.set != set && (open || set.RunID(i) == "")
		}
	}
	return nodes, asks
}

// isOver reports whether the command that belongs to the reply cannot come any more: server answers for node i now, and q is
// the last inquiry.
func (l *loss) isOver(server string, q *inquiry, i int) bool {
	return l.server != "" && server != "" && server != l.server || q.heard.Has(i) && q.sent-l.at >= deliveredWithin
}

// meets reports whether u has a node that may be one of set, and whether an inquiry may change that.
func (u *use) meets(set *quorum.Set) (meets, asks bool) {
	if u.set == set {
		return true, false
	}
	for i := range set.Nodes {
		for j := range u.nodes {
			meets = meets || set.MayBeOne(i, u.set, j)
		}
		asks = asks || set.RunID(i) == ""
	}
	return meets, meets && asks
}

// mayUse reports whether l may use its value, which a user's function has made. It asks the nodes first if what they answer
// can make more of them count, or can show that another lease with the value is on other nodes.
func (l *Lease) mayUse(ctx context.Context, limits quorum.Limits) bool {
	q, inquires := &inquiry{}, true
	for {
		free, asks, unlocking := usedValues.begin(l, q, inquires)
		switch {
		case unlocking != nil:
			select {
			case <-unlocking:
			case <-ctx.Done():
				return false
			}
		case asks:
			q, inquires = l.inquire(ctx, limits), false
		default:
			return free
		}
		l.First = clock.Now() // nothing has been sent for the lock yet
		l.validity.Start = l.First
	}
}

// inquire asks all nodes.
func (l *Lease) inquire(ctx context.Context, limits quorum.Limits) *inquiry {
	q := &inquiry{sent: clock.Now().Mono}
	round := l.terms.Keeper.Set.Start(ctx, quorum.Ping{}, true)
	round.Wait(ctx, limits)
	for i, v := range round.Votes(nil) {
		if v.Choice == claim.Granted {
			q.heard = q.heard.With(i)
		}
	}
	return q
}

// begin notes that l begins to use its value, unless another lease has it. inquires says that the caller can make an inquiry:
// if that is useful, begin changes nothing, and reports asks. It also changes nothing, and returns unlocking, if the outcome
// of an Unlock must come first.
func (v *valueLog) begin(l *Lease, q *inquiry, inquires bool) (free, asks bool, unlocking <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now, set := clock.Now(), l.terms.Keeper.Set
	own, before := newUse(l), []earlier(nil)
	for pass := range 2 { // the first one changes nothing
		for _, key := range own.keys {
			for _, u := range v.uses[key] {
				meets, foreign := u.meets(set)
				switch {
				case !meets:
				case pass == 0:
					taken := u.takesLocked(now)
					_, stale := u.doubts(set, q, now.Mono)
					if asks = taken && foreign || !taken && stale; asks && inquires {
						return false, true, nil
					} else if taken {
						return false, false, nil
					} else if u.unlocking != nil && (u.set != set || u.unordered.Load()) {
						return false, false, u.unlocking
					}
				default:
					u.superseded = true
					if nodes, _ := u.doubts(set, q, now.Mono); nodes != 0 {
						own.doubted.Or(uint64(nodes))
						before = append(before, earlier{u, nodes})
					}
				}
			}
			if pass == 1 {
				v.pruneLocked(key, now)
			}
		}
	}
	own.before.Store(&before)
	v.addLocked(own, now)
	return true, false, nil
}

func newUse(l *Lease) *use {
	u := &use{set: l.terms.Keeper.Set, lease: l, nodes: make([]nodeUse, len(l.writes.nodes)), adopted: l.Try == 0}
	c := l.Claim()
	for _, line := range c.Lines() {
		u.keys = append(u.keys, usedValue{line, c.Value()})
	}
	return u
}

// addLocked makes u the use of its lease's value.
func (v *valueLog) addLocked(u *use, now clock.Instant) {
	if u.lease.rare == &noRareLease {
		u.lease.rare = &rareLease{}
	}
	u.lease.rare.use = u
	if v.uses == nil {
		v.uses, v.sweep = map[usedValue][]*use{}, leastSweep
	}
	for _, key := range u.keys {
		v.uses[key] = append(v.uses[key], u)
		v.count++
	}
	if v.count < v.sweep {
		return
	}
	for key := range v.uses {
		v.pruneLocked(key, now)
	}
	v.sweep = max(leastSweep, 2*v.count)
}

// pruneLocked forgets the uses of key that are over.
func (v *valueLog) pruneLocked(key usedValue, now clock.Instant) {
	all := v.uses[key]
	kept := all[:0]
	for _, u := range all {
		if !v.endLocked(u, now) {
			kept = append(kept, u)
		}
	}
	clear(all[len(kept):])
	v.count -= len(all) - len(kept)
	if len(kept) == 0 {
		delete(v.uses, key)
		return
	}
	v.uses[key] = kept
}

// endLocked reports whether u is over, and lets go of what only a use that goes on needs.
func (v *valueLog) endLocked(u *use, now clock.Instant) bool {
	if u.isOpen() || u.releases > 0 && !u.superseded || u.lease != nil && !u.isDoneLocked(now) {
		return false
	}
	u.superseded, u.lease = true, nil
	u.before.Store(nil)
	after := forgetsAfter
	if v.count > mostUses {
		after = deliveredWithin
	}
	for i := range u.nodes {
		if lost := u.nodes[i].lost.Load(); lost != nil && now.Mono-lost.at < after {
			return false
		}
	}
	return true
}

// isDoneLocked reports whether the lease of u has been released, or its keys must have run out. It does not change the lease,
// which may be that of another test, with a clock of its own.
func (u *use) isDoneLocked(now clock.Instant) bool {
	u.lease.mu.Lock()
	defer u.lease.mu.Unlock()
	return u.superseded || u.released && !u.lease.outlivesLocked(now) || !u.keysLast(now)
}

// settled forgets u if it is over. Each release of it calls settled at its end.
func (v *valueLog) settled(u *use) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if u.adopted {
		u.releases--
	}
	now := clock.Now()
	for _, key := range u.keys {
		v.pruneLocked(key, now)
	}
}

// ForgetValues forgets all uses. It is for tests.
func ForgetValues() {
	usedValues.mu.Lock()
	defer usedValues.mu.Unlock()
	usedValues.uses, usedValues.count = nil, 0
}

// mayComeBack reports whether the value of l may come back on its name: a user's function has made it, or l was adopted.
func (l *Lease) mayComeBack() bool {
	if l.rare.use != nil || l.Try > 0 || l.writes != &l.ownWrites { // handed over
		return l.rare.use != nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.value.shown
}

// join makes l, which is adopted, one of the leases that use its value. It supersedes none.
func (v *valueLog) join(l *Lease) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.joinLocked(l)
}

func (v *valueLog) joinLocked(l *Lease) *use {
	if l.rare.use == nil {
		v.addLocked(newUse(l), clock.Now())
	}
	return l.rare.use
}

// leave notes that l, which join has added, was not adopted after all.
func (v *valueLog) leave(l *Lease) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l.rare.use.released = true
}

// release notes that a release of l begins, and reports true, unless a later lease has the value. whole says that nothing is
// left of l after the release, awaited that a caller will call decided.
func (v *valueLog) release(l *Lease, whole, awaited bool) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	u := v.joinLocked(l)
	if u.superseded {
		return false
	}
	u.released = u.released || whole
	if awaited && u.unlocking == nil {
		u.unlocking = make(chan struct{})
	}
	if u.adopted {
		u.releases++
		return true
	}
	for i := range u.nodes {
		u.sending(i) // until the release has ended there
	}
	return true
}

// decided notes that the Unlock of u has its outcome.
func (v *valueLog) decided(u *use) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if u.unlocking != nil {
		close(u.unlocking)
		u.unlocking = nil
	}
}

// sendsRelease notes that a release of u, which is adopted, is sent to node i. It reports false if u is superseded.
func (v *valueLog) sendsRelease(u *use, i int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !u.superseded {
		u.sending(i)
	}
	return !u.superseded
}

// takenHere returns the outcome of an attempt whose value another lease of this process has: every node has refused, and none
// was asked.
func (t *Terms) takenHere() Outcome {
	set := t.Keeper.Set
	res := quorum.Result{Set: set, Rule: set.Rule(), Votes: make([]claim.Vote, len(set.Nodes))}
	for i := range res.Votes {
		if res.Rule.All().Has(i) {
			res.Votes[i] = claim.Vote{Choice: claim.Refused, Answer: claim.Answer{Found: claim.Other}}
			res.Count, res.Taken = res.Count.With(i, claim.Refused), res.Taken.With(i)
		}
	}
	res.Standing = res.Rule.Standing(res.Count)
	return Outcome{Kind: NotWon, Result: res, Lines: t.Claim.Lines()}
}
