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

// usedValues serves the whole process: several Redsyncs may work on the same nodes.
var usedValues valueLog

// A valueLog lets a value come back on its name: one of a user's function, or of an adopted lease. Nodes cannot tell
// the commands of two leases with one value apart, so an early one could delete the key of the later lease. These rules
// prevent that:
//  1. No other lease of the process relies on keys with the value: none is being acquired or held, and none of its keys
//     stay for a minimal hold, a lock delay or the receiver of Detach. Otherwise an attempt finds the lock taken, and
//     sends nothing.
//  2. Once the new lease has begun, the earlier ones are superseded. A release of theirs that is under way goes on, so
//     that it leaves no key. A later one changes the queues alone, because the release of the new lease deletes what is
//     left. The release of an adopted lease is not repeated any more: there may have been no key. A new lease whose
//     commands may overtake the release of an Unlock waits for it, because the release tells the outcome.
//  3. A node counts for the new lease only if no command of an earlier one can still come there: each was answered or
//     never sent, and the releases have ended. On one ordered connection it is enough that the node has answered before
//     it answers the acquire. Any other node is doubted: no grant, extension or check of the new lease ever counts
//     there.
//
// If a reply is lost with its connection, rule 3 doubts the node until
//   - another server process answers for it: the connections of the earlier process have ended, or
//   - the node answers a command that was sent deliveredWithin after the loss. The kernel and the network deliver the
//     bytes of the closed connection within that time, or never. A frozen server runs what it has received before it
//     reads the next command.
//
// The expiry of the keys bounds none of this: a late release deletes whatever has its value. Leases of other processes
// are out of sight: two processes must not have one value for one name.
type valueLog struct {
	mu    sync.Mutex // guards what follows; before sharing.mu
	uses  map[usedValue][]*use
	count int // of uses
	sweep int // the count at which to look for uses that are over
}

type usedValue struct{ line, value string }

const (
	// deliveredWithin bounds how long bytes of a closed connection are on their way. Linux sends them for 102 s
	// (tcp_orphan_retries).
	deliveredWithin = 2 * time.Minute

	// forgetsAfter is when a loss is forgotten, to bound the memory.
	forgetsAfter = time.Hour

	leastSweep = 1 << 10
	mostUses   = 1 << 17 // then losses are forgotten after deliveredWithin
)

// A use is what one lease does with a value that may come back.
type use struct {
	set     *quorum.Set
	keys    []usedValue
	before  atomic.Pointer[[]earlier] // on whose account nodes were doubted at the beginning; nil once it is over
	doubted atomic.Uint64             // nodes that do not count
	renewed atomic.Int64              // monotonic: when a node can last have set a TTL
	nodes   []nodeUse
	adopted bool

	unordered atomic.Bool // a pool has not promised the order of execution

	// Guarded by valueLog.mu:
	lease      *Lease        // nil once only the losses matter
	released   bool          // or its adoption has failed
	superseded bool          // no release of it begins any more
	unlocking  chan struct{} // closed when its Unlock has its outcome
	releases   int           // under way, if it is adopted; each may be sent again
}

// An earlier is a use that casts doubt on nodes of a later one.
type earlier struct {
	*use
	on claim.Nodes
}

type nodeUse struct {
	open atomic.Int64         // commands without a reply, and releases that have not ended
	lost atomic.Pointer[loss] // the last one
}

// A loss is when a reply was lost, and the server process that owed it, if known.
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
	u.heard(i, fate) // first, or the node would look free of doubt
	if fate != wire.NotSent {
		u.renewed.Store(int64(clock.Now().Mono))
	}
	u.nodes[i].open.Add(-1)
}

func (u *use) replied(i int, reply wire.Reply) {
	if u == nil {
		return
	}
	if reply.Fate == wire.Answered && reply.Conn == 0 {
		u.unordered.Store(true)
	}
	u.ended(i, fateOf(reply))
}

// fateOf returns Unknown if a request was sent twice: the first sending may still be executed.
func fateOf(reply wire.Reply) wire.Fate {
	if reply.Resent && reply.Fate == wire.Answered {
		return wire.Unknown
	}
	return reply.Fate
}

func (u *use) heard(i int, fate wire.Fate) {
	if fate == wire.Unknown {
		u.nodes[i].lost.Store(&loss{clock.Now().Mono, u.set.RunID(i)})
	}
}

func (u *use) isDoubted(i int) bool { return claim.Nodes(u.doubted.Load()).Has(i) }

// heardInOrder notes that node i, on an ordered connection, has executed all that was sent there before the acquire.
func (u *use) heardInOrder(i int) {
	if !u.isDoubted(i) {
		return
	}
	for _, b := range *u.before.Load() {
		if b.on.Has(i) && !b.isQuietOn(u.set, i) {
			return
		}
	}
	u.doubted.And(^uint64(claim.Nodes(0).With(i)))
}

// isQuietOn reports whether no command of u can come to node i after those sent on the connection of u.
func (u *use) isQuietOn(set *quorum.Set, i int) bool {
	return u.set == set && u.nodes[i].open.Load() == 0 && u.nodes[i].lost.Load() == nil
}

func (u *use) isOpen() bool {
	for i := range u.nodes {
		if u.nodes[i].open.Load() > 0 {
			return true
		}
	}
	return false
}

// takesLocked reports whether keys of u must stay: see rule 1.
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
	case l.state == Over && l.rareEnd.cause == nil, t.TTL > t.Expiry, t.MinHold > 0: // detached, or the keys outlive it
		return u.isOpen() || u.keysLast(now)
	}
	return false
}

func (l *Lease) outlivesLocked(now clock.Instant) bool {
	t := &l.terms.Timing
	return l.outlived && sum(t.MinHold, t.Drift.Of(t.MinHold)) > now.Mono-l.First.Mono
}

// keysLast reports whether a key of u may still be there. u must have its lease.
func (u *use) keysLast(now clock.Instant) bool {
	return u.lease.terms.Timing.lasts(time.Duration(u.renewed.Load()), now) >= 0
}

// An inquiry is a question to all nodes, and who has answered.
type inquiry struct {
	sent  time.Duration
	heard claim.Nodes
}

// doubts returns where a command of u may still come, and whether an inquiry may change that.
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

// isOver reports whether the command cannot come any more. server answers for node i now.
func (l *loss) isOver(server string, q *inquiry, i int) bool {
	return l.server != "" && server != "" && server != l.server || q.heard.Has(i) && q.sent-l.at >= deliveredWithin
}

// meets reports whether u and set may have a common node, and whether an inquiry may change that.
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

// mayUse reports whether l may use its value. It asks the nodes first if answers may help.
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
		l.First = clock.Now()
		l.validity.Start = l.First
	}
}

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

// begin notes that l begins to use its value, unless another lease has it. It changes nothing if an inquiry would help
// (asks), or an Unlock comes first (unlocking).
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

// isDoneLocked must not change the lease, which may be that of another test, with a clock of its own.
func (u *use) isDoneLocked(now clock.Instant) bool {
	u.lease.mu.Lock()
	defer u.lease.mu.Unlock()
	return u.superseded || u.released && !u.lease.outlivesLocked(now) || !u.keysLast(now)
}

// settled is called at the end of each release of u.
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

func (l *Lease) mayComeBack() bool {
	if l.rare.use != nil || l.Try > 0 || l.writes != &l.ownWrites { // handed over
		return l.rare.use != nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.value.shown
}

// join makes l, which is adopted, use its value. It supersedes no other.
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

func (v *valueLog) leave(l *Lease) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l.rare.use.released = true
}

// release notes that a release of l begins. It reports false if a later lease has the value. whole says that nothing is
// left of l, awaited that the caller calls decided.
func (v *valueLog) release(l *Lease, whole, awaited bool) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	u := v.joinLocked(l)
	if u.superseded {
		return false
	}
	u.released = u.released || whole
	if awaited { // once for each use
		u.unlocking = make(chan struct{})
	}
	if u.adopted {
		u.releases++
		return true
	}
	for i := range u.nodes {
		u.sending(i) // until the release has ended
	}
	return true
}

func (v *valueLog) decided(u *use) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if u.unlocking != nil {
		close(u.unlocking)
		u.unlocking = nil
	}
}

func (v *valueLog) sendsRelease(u *use, i int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !u.superseded {
		u.sending(i)
	}
	return !u.superseded
}

// takenHere returns the outcome if another lease has the value: all nodes refuse unasked.
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
