package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/alarm"
	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

const (
	// Backoff of a release that a node has not settled.
	minReleaseDelay = 50 * time.Millisecond
	maxReleaseDelay = time.Second
	maxDoublings    = 5 // of minReleaseDelay: enough to exceed maxReleaseDelay

	// maxRepeats bounds the releases that wait to be repeated, on all nodes together. A release that is
	// dropped leaves a key on one node for at most its TTL. While Close is under way there is no bound: Close promises
	// to repeat the release of every lock that was held.
	maxRepeats = 1 << 16
)

// A Release takes a lease's claim off all nodes, including those that never answered. It repeats its command
// on each node until that node is settled: until nothing can set the value there any more, or the keys have
// run out. It gives up a node early only if the node's pool is closed, if too many releases wait to be
// repeated (maxRepeats), or at the end of Close. It depends on no caller's context.
//
// With a minimal hold (Timing.MinHold), the Release of a lease that was held keeps the keys for the rest of that time,
// and takes the claim off only when no rest is left. The rest is computed anew for each repetition.
//
// A Release does not let its round send: it sends, repeats and takes the replies itself, and gives the round
// only the votes. The round tells it when a quorum has confirmed. A Release is no quorum.Recorder, because
// its command sets no value.
type Release struct {
	lease    *Lease
	claim    claim.Claim
	round    quorum.Round
	rare     *rareRelease  // noRareRelease for most; fixed once the release is sent
	others   atomic.Uint64 // the claim.Lines of Others
	executed atomic.Uint64 // the claim.Nodes that have executed it, although a command that sets the value may still come
	open     atomic.Int32  // how many nodes have not settled it, and are not given up

	seat seat // in unsettled

	// By node. The sender to the node and the receiver of its reply use it in turn, never at once.
	progress []progress

	shortens bool // the claim is a claim.Shortener, and its keys may have to stay for a rest
	surplus  bool // it releases a surplus of the lease
	awaited  bool // a caller waits for the round
	inTime   bool // a quorum had confirmed before the validity ended; set before the waiting caller is signalled
	undoes   bool // see Releasing
	counted  bool // in the use of a value that may come back
	queued   bool // at the start a waiter of this process waited, or had left a ticket in the queues: see process
}

// A rareRelease is what few releases need. It does not change once the release is sent.
type rareRelease struct {
	turnover script.Turnover
	room     [1]script.Ticket // for turnover.Leave
	filled   claim.Nodes      // where the release sends a fill ahead: see fillRest
	began    time.Duration    // the monotonic time at which it was made; only set with surplus
}

// noRareRelease is that of all releases that need none: nobody enters or leaves the queues with them. It never changes.
var noRareRelease rareRelease

// progress is the state of a release on one node.
type progress struct {
	form    form  // in which it was last sent
	orderly bool  // when it was last sent, every command that sets the value had been answered
	drained bool  // it has a place in the node's drain, or waits for one
	lost    bool  // an earlier sending got no reply: the node may have executed it
	unvoted bool  // Unlock waits for the repetition, which gives the node's vote
	repeats uint8 // how often it has been repeated, at most maxDoublings; sets the next delay
}

// A form says how to send the release to a node.
type form struct {
	inFull  bool // with the source of the script, which the node does not have
	quietly bool // without the queue, to which the node denies access
	again   bool // as a repetition
}

// next takes the reply to a release that was sent in form f. It reports whether the release must be sent
// again at once, and in which form.
func next(f form, reply wire.Reply) (form, bool) {
	switch {
	case reply.Err == nil:
	case wire.IsNoScript(reply.Err) && !f.inFull:
		f.inFull = true
		return f, true
	case quorum.IsForbidden(reply.Err) && !f.quietly:
		f.quietly = true
		return f, true
	}
	return f, false
}

// A Releasing says how to release a lease.
type Releasing struct {
	Caller context.Context //nolint:containedctx // of the call that waits for the round; nil if none waits
	Enters []script.Ticket // by line: what enters its queue with the release, zero for nothing; nil if nothing enters any
	Undoes bool            // the release undoes the attempt that made the lease, which has failed

	claim claim.Claim // what is released; nil means the claim of the lease
	nodes claim.Nodes // where it is released; none means on all nodes
}

// Release sends the release of l to all nodes at once, after everything that was sent for l. If two nodes are
// known to be one server, one of them gets it later or not at all: see sendBehind. l must have ended or never
// begun, unless how names another claim, such as a surplus. Release admits no waiter of this process: see
// Waiters.
func (l *Lease) Release(how Releasing) *Release {
	k := l.terms.Keeper
	rel, progress, ballots := claim.WithRoom[Release, progress, quorum.Ballot](len(k.Set.Nodes))
	rel.lease, rel.claim, rel.awaited, rel.undoes = l, l.Claim(), how.Caller != nil, how.Undoes
	rel.progress, rel.round.Ballots = progress, ballots
	rel.open.Store(int32(len(progress))) //nolint:gosec // few
	switch {
	case how.claim != nil:
		rel.claim, rel.surplus = how.claim, true
	case l.terms.Timing.MinHold > 0 && l.Begun():
		// Every claim of a lease with a MinHold is one: WithMinHold excludes WithShared.
		_, rel.shortens = rel.claim.(claim.Shortener)
	}
	whole := how.claim == nil && how.nodes == 0
	if how.nodes == 0 {
		how.nodes = claim.FirstNodes(len(k.Set.Nodes))
	}
	if l.mayComeBack() {
		rel.counted = usedValues.release(l, whole, rel.awaited)
		if !rel.counted { // a later lease has the value: the release changes the queues alone
			rel.claim, rel.shortens = nobodysClaim(l.terms), false
			if how.claim != nil {
				how.nodes = 0
			}
		}
	}
	someLeave := l.writes.someLeave()
	rel.queued = someLeave || k.Waiters.Any()
	rel.rare = &noRareRelease
	if rel.surplus || rel.shortens || someLeave || len(how.Enters) > 0 {
		rel.rare = rel.newRare(how)
	}
	rel.round.Prepare(how.Caller, k.Set, rel, rel.awaited && l.terms.WaitAll, rel.awaited)
	// An earlier release of l may still be repeated. It must go on until every key of l has run out. A node may have
	// given such a key its full TTL as late as now.
	l.writes.noteRenewal()
	k.unsettled.add(rel)
	rel.round.Call().Command.WithRESP(func(resp []byte) {
		for i, n := range k.Set.Nodes {
			switch {
			case !how.nodes.Has(i):
				rel.nodeEnded(i, true)
				continue
			case !rel.round.Asks(i):
				rel.sendBehind(i)
				continue
			}
			if as := (form{inFull: n.LacksSHA(), quietly: n.DeniesQueues(rel.claim.Lines()) && !someLeave}); as != (form{}) {
				rel.send(i, as, nil)
				continue
			}
			rel.send(i, form{}, resp)
		}
	})
	return rel
}

// newRare returns the rareRelease of a release that needs one. With a minimal hold, it sends the fills: the release follows
// on each of their nodes.
func (rel *Release) newRare(how Releasing) *rareRelease {
	x := &rareRelease{}
	if rel.surplus {
		x.began = clock.Now().Mono
	}
	if rel.shortens {
		x.filled = rel.lease.fillRest(how.nodes)
	}
	lines := len(rel.claim.Lines())
	x.turnover = entering(rel.lease.writes.turnover(lines, x.room[:0]), how.Enters)
	return x
}

// process returns what identifies the waiters of this process to the nodes. It returns zero if no waiter of
// this process was in line when the release was made, and none has left a ticket in the queues.
func (rel *Release) process() script.Process {
	if rel.queued {
		return rel.lease.terms.Keeper.Process
	}
	return script.Process{}
}

// entering returns t with tickets that enter the queues, by line. It leaves out those of waiters that have given up meanwhile.
func entering(t script.Turnover, tickets []script.Ticket) script.Turnover {
	t.Alive = script.AliveFor
	for line, ticket := range tickets {
		switch {
		case ticket.IsZero(), slices.Contains(t.Leave, ticket):
		case len(tickets) == 1:
			t.Enters = ticket
		default:
			if t.Parts == nil {
				t.Parts = make([]script.Part, len(tickets))
			}
			t.Parts[line].Enters = ticket
		}
	}
	return t
}

// giveBack releases the surplus of l on some nodes. It goes on even after l has been unlocked.
func (l *Lease) giveBack(won claim.Winner, nodes claim.Nodes) {
	l.Release(Releasing{claim: won.Surplus(), nodes: nodes})
}

// fillOutlived fills up the keys of a minimal hold that Unlock has ended. A release follows to the same nodes, and
// settles what the fill leaves there.
func (l *Lease) fillOutlived() {
	l.mu.Lock()
	outlived := l.outlived
	l.mu.Unlock()
	if !outlived || l.terms.Timing.rest(l.First, clock.Now()) == 0 {
		return
	}
	if lacks := l.writes.lacks(); lacks != 0 {
		l.Release(Releasing{nodes: lacks})
	}
}

// LeaveQueuesOnRelease makes every later release of l take a ticket off the queues of all lines.
func (l *Lease) LeaveQueuesOnRelease(t script.Ticket) { l.writes.leaveQueuesOnRelease(t, allQueues) }

// StayInOneQueueOnRelease makes every later release of l take a ticket off the queues of all lines but one.
func (l *Lease) StayInOneQueueOnRelease(t script.Ticket, line int) {
	l.writes.leaveQueuesOnRelease(t, line)
}

// Nobody returns a lease whose value no node ever has. Its releases only change the queues.
func (t *Terms) Nobody() *Lease {
	l := New(t, nobodysValue(t), clock.Now())
	l.value.shown = false
	return l
}

func nobodysValue(t *Terms) string { return "nobody:" + t.Keeper.Process.String() }

func nobodysClaim(t *Terms) claim.Claim { return t.Claim.With(nobodysValue(t), &claim.Room{}) }

// LeaveQueues removes from the queues the tickets that a release of l would remove. It is for Detach: the
// Mutex that adopts the hold does not know the tickets, so its release leaves them there. While such a ticket
// is the first in a queue, the node tells this process of a release instead of the next waiter.
func (l *Lease) LeaveQueues() {
	nobody := l.terms.Nobody()
	if nobody.writes.leaveAs(l.writes) {
		nobody.Release(Releasing{})
	}
}

// Leaver returns a lease whose release takes the ticket of a waiter that has won l off the queues. It returns
// nil if the ticket may stay there until l is released, because nobody else can hold the claim meanwhile.
//
// While l has a permit, others can have the other permits. If the ticket stayed at the head of a queue, the
// node would wake this process when the next permit is free, and the next waiter would not learn of it.
func (l *Lease) Leaver(ticket script.Ticket) *Lease {
	if _, ok := l.Claim().(claim.Winner); !ok {
		return nil
	}
	l.LeaveQueuesOnRelease(ticket) // a late command may put it there again
	nobody := l.terms.Nobody()
	nobody.LeaveQueuesOnRelease(ticket)
	return nobody
}

// Wait waits for a quorum of nodes. It is for a release with a Caller.
func (rel *Release) Wait(ctx context.Context) quorum.Result {
	if u := rel.use(); u != nil {
		defer usedValues.decided(u)
	}
	return rel.round.Wait(ctx, rel.lease.terms.Timing.limits())
}

// WasInTime reports whether a quorum had confirmed the release, which has a Caller, before the validity ended. The
// validity of a lease that has not begun, such as an adopted one, cannot have ended.
func (rel *Release) WasInTime() bool { return rel.inTime }

// noteDeleted notes nodes on which the release of an Unlock that has failed has found the value, unless the validity has
// ended.
func (rel *Release) noteDeleted(nodes claim.Nodes) {
	if rel.lease.Begun() && !rel.lease.WasValid(clock.Now()) {
		return
	}
	r := rel.lease.writes.needRare()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failedLocked().deleted |= nodes
}

// Others returns the lines for which a node has told of a waiter of another process by now.
func (rel *Release) Others() claim.Lines { return claim.Lines(rel.others.Load()) }

// Brief implements quorum.Operation.
func (rel *Release) Brief() quorum.Brief {
	return rel.lease.terms.brief(quorum.Unlock, rel.call(rel.rare.turnover))
}

// call returns the command to send now, which lets the tickets of t enter and leave the queues. A release has the same
// replies in all its forms.
func (rel *Release) call(t script.Turnover) claim.Call {
	if rest := rel.rest(); rest > 0 {
		return rel.claim.(claim.Shortener).Shorten(rest, rel.process(), t, rel.lease.fence())
	}
	return rel.claim.Release(rel.process(), t, rel.lease.fence())
}

// fence returns the Fence with which l is released. An adopted lease may have a token without Fencing. Then
// its release does not touch the registers, because the client's user may not be permitted to use them.
func (l *Lease) fence() script.Fence {
	if !l.terms.Fencing {
		return script.Fence{}
	}
	token := l.Token()
	if s := l.rare; s.fence.Token == token {
		return s.fence
	}
	return fence(token)
}

// rest returns for how much longer the keys must stay.
func (rel *Release) rest() time.Duration {
	if !rel.shortens {
		return 0
	}
	return rel.lease.terms.Timing.rest(rel.lease.First, clock.Now())
}

// Judge implements quorum.Operation.
func (rel *Release) Judge(_ int, _ wire.Reply, v claim.Vote) claim.Vote { return v }

// Quarantine implements quorum.Guarded.
func (rel *Release) Quarantine(n *quorum.Node) time.Duration { return rel.lease.terms.quarantine(n) }

// OnWon implements quorum.Winner.
func (rel *Release) OnWon() {
	if rel.awaited {
		rel.inTime = !rel.lease.Begun() || rel.lease.WasValid(clock.Now())
	}
}

// send sends the release to node i in a form. resp is the encoding of that form, nil if there is none.
// While the Keeper is closing, the release may have to wait for others.
func (rel *Release) send(i int, as form, resp []byte) {
	s, k := &rel.progress[i], rel.lease.terms.Keeper
	s.form = as
	if k.IsClosed() && !s.drained {
		s.drained = true // before enter: after it another goroutine may send the release
		if !k.drains[i].enter(rel) {
			return
		}
	}
	drained := s.drained
	if !rel.transmit(i, resp) && drained {
		k.drains[i].leave(i)
	}
}

// sendBehind releases node i, which the round does not ask because another node is the same server. The other
// node's release gives the server's vote. Before that was known, commands that set the value may have gone to node
// i, too, and may still be on their way. Then a release must follow them to node i. It is sent a little later, so
// that the release that gives the vote comes first. Otherwise nothing is sent to node i.
func (rel *Release) sendBehind(i int) {
	if !rel.lease.writes.onNode(i).reached() {
		rel.nodeEnded(i, true)
		return
	}
	if rel.later(i, minReleaseDelay) {
		rel.giveUp(i)
	}
}

// use returns the use of the value that rel releases, nil if that never comes back.
func (rel *Release) use() *use {
	if rel.counted {
		return rel.lease.rare.use
	}
	return nil
}

// transmit sends the release to node i now. It reports true if the pool accepts the release: then a reply
// will come. It also reports true if the pool refuses the release but the drain keeps it, to try again later.
// If the node may hold the value, the request is Reserved: WithOutstanding does not limit it then.
func (rel *Release) transmit(i int, resp []byte) bool {
	s, k, f := &rel.progress[i], rel.lease.terms.Keeper, rel.lease.writes.onNode(i)
	s.orderly = f.settled()
	use := rel.use()
	if use != nil && !use.adopted {
		use = nil
	}
	if use != nil && !usedValues.sendsRelease(use, i) {
		s.drained, s.unvoted = false, false
		rel.round.Refuse(i, quorum.ErrDoubted)
		rel.nodeEnded(i, true)
		return false
	}
	err := k.Set.Nodes[i].Send(wire.Request{
		Args: rel.args(s.form, resp != nil), RESP: resp, Reserved: f.reached(),
		Within: rel.lease.terms.Timing.NodeTimeout, To: rel, Tag: i,
	})
	if err == nil {
		return true
	}
	if use != nil {
		use.ended(i, wire.NotSent)
	}
	if s.drained && k.drains[i].putBack(rel, err) {
		return true
	}
	s.drained, s.unvoted = false, false
	rel.round.Refuse(i, err)
	if r := rel.lease.writes.rare.Load(); r != nil {
		if k := r.asked.Load(); k != nil {
			k.hear(i, claim.Failure(err))
		}
	}
	switch {
	case !f.reached():
		rel.nodeEnded(i, true)
	case errors.Is(err, wire.ErrClosed):
		rel.giveUp(i)
	default:
		rel.repeatLater(i, err)
	}
	return false
}

// args returns the command in a form. encoded says that the bytes to send are those that the round has
// encoded. Then args must return the round's command.
func (rel *Release) args(as form, encoded bool) []any {
	var call claim.Call
	switch {
	case as.quietly:
		call = rel.call(script.Turnover{Quietly: true})
	case as.again: // it enters no ticket again: the waiter may have left since
		call = rel.call(rel.lease.writes.turnover(len(rel.claim.Lines()), nil))
	case rel.shortens && !encoded: // the rest may be shorter than when the round began
		call = rel.call(rel.rare.turnover)
	case !as.inFull:
		return rel.round.Call().Command.Args
	default:
		call = *rel.round.Call()
	}
	if as.inFull {
		return call.Command.InFull()
	}
	return call.Command.Args
}

// Receive takes a node's reply.
func (rel *Release) Receive(i int, reply wire.Reply) {
	k, sent := rel.lease.terms.Keeper, rel.progress[i]
	reply = k.Set.Heard(i, reply, &rel.round.Call().Command)
	if u := rel.use(); u != nil && u.adopted {
		u.replied(i, reply)
	} else if u != nil {
		u.heard(i, fateOf(reply))
	}
	rel.round.NoteLate(i, reply)
	if reply.Err != nil && !sent.form.inFull {
		reply.Err = k.Set.Nodes[i].NoteScript(reply.Err)
	}
	switch {
	case reply.Fate != wire.Answered:
		k.unreached.Or(1 << i)
	case k.unreached.Load() != 0:
		k.answered(i)
	}
	if sent.drained {
		defer k.drains[i].leave(i)
		rel.progress[i].drained = false
	}
	if as, again := next(sent.form, reply); again {
		if as.quietly && !sent.form.quietly {
			rel.lease.terms.deny(i, reply.Err, quorum.IsDenial(reply.Err))
		}
		rel.send(i, as, nil)
		return
	}
	switch {
	case reply.Err == nil:
		rel.lease.terms.allows(i)
	case sent.form.quietly && quorum.IsDenial(reply.Err):
		k.Set.Nodes[i].Denies(rel.lease.terms.Claim.Name())
	}
	v := k.Set.Read(&rel.round.Call().Command, rel.round.Call().Read, reply.Value, reply.Err)
	if others := v.Answer.OthersIn(); others != 0 {
		rel.others.Or(uint64(others))
	}
	if first := v.Answer.FirstIn(); first != 0 {
		var undoes Turn
		if rel.undoes {
			undoes = rel.lease.rare.turn
		}
		rel.lease.terms.wake(rel.claim, i, first, undoes)
	}
	switch {
	case v.Answer.Found == claim.Foreign:
		v, reply.Err = v.Denies(), nil // it settles as much as another value does
	case v.Choice == claim.Failed && reply.Err == nil:
		reply.Err = v.Err // an odd answer settles nothing
	}
	if r := rel.lease.writes.rare.Load(); r != nil {
		if k := r.asked.Load(); k != nil {
			k.hear(i, v)
		}
	}
	settled := rel.settles(i, sent, reply, v)
	rel.vote(i, v, reply)
	if settled {
		rel.endVote(i)
		rel.nodeEnded(i, true)
		return
	}
	if reply.Err == nil && reply.Fate == wire.Answered {
		rel.executed.Or(1 << i)
		if k.IsClosed() {
			k.unsettled.progressed(rel)
		}
	}
	rel.repeatLater(i, reply.Err)
}

// vote counts node i's vote, unless only a repetition of the release can tell it.
//
// If a connection broke, the node may or may not have executed the release. The caller of Unlock
// then waits for the repetition, until the node deadline. If the repetition finds our value, the lock was
// held until now. If it finds no value, or another one, that proves nothing: the first sending may have
// deleted our value, and somebody else may have acquired the lock since.
func (rel *Release) vote(i int, v claim.Vote, reply wire.Reply) {
	s := &rel.progress[i]
	switch {
	case v.Choice == claim.Failed && reply.Fate == wire.Unknown && rel.awaited:
		s.lost, s.unvoted = true, true
		rel.round.WaitFor(i, v.Err)
		rel.round.NoteHealth(i, v, nil)
		return
	case v.Choice == claim.Failed && reply.Fate == wire.Unknown:
		s.lost = true
	case v.Choice == claim.Granted && rel.rare.filled.Has(i): // a moment before
		v = claim.Vote{Choice: claim.Refused, Answer: claim.Answer{Found: claim.Missing}}
	case v.Choice == claim.Refused && s.lost:
		v = v.Fails(fmt.Errorf("the reply to the release was lost, and %s", afterwards(v)))
	}
	s.unvoted = false
	found := v.Choice == claim.Granted
	if rel.round.Cast(i, &v, reply.Server) && found && rel.awaited {
		rel.noteDeleted(claim.Nodes(0).With(i))
	}
	if reply.Err == nil && reply.Fate == wire.Answered {
		v.Choice = claim.Refused // for the node's health: it has answered
	}
	rel.round.NoteHealth(i, v, reply.Server)
}

// afterwards says what a repetition has found instead of our value. Neither finding shows whether the first
// sending deleted our value.
func afterwards(v claim.Vote) string {
	switch {
	case v.Taken():
		return "another value is there now"
	case v.Answer.Found == claim.Foreign:
		return "a key of another type is there now"
	}
	return "the key is gone now"
}

// giveUp notes that nothing more is sent to node i, which has not settled the release.
func (rel *Release) giveUp(i int) {
	rel.endVote(i)
	rel.nodeEnded(i, false)
}

// endVote gives the vote of node i if a repetition was to give it.
func (rel *Release) endVote(i int) {
	if s := &rel.progress[i]; s.unvoted {
		s.unvoted = false
		v := claim.Failure(rel.round.WaitsFor(i))
		rel.round.Cast(i, &v, nil)
	}
}

// settles reports whether reply, which reads as v, shows that node i is done with the value. The node is
// done if no command that sets the value can have reached it, or if it executed every such command before the
// release. One of these proves the latter:
//
//   - Every such command had been answered when the release was sent (orderly).
//   - Every such command is answered by now, and the pool is an ordered stream (Conn is not 0).
//   - There was only one such command, and the release found the value. The node executes a command at most
//     once, so the command has been executed. If the release finds no value, that proves nothing.
func (rel *Release) settles(i int, sent progress, reply wire.Reply, v claim.Vote) bool {
	looked := reply.Fate == wire.Answered && reply.Err == nil
	if looked && sent.orderly {
		return true
	}
	f := rel.lease.writes.onNode(i)
	return !f.reached() || looked && (f.settled() && reply.Conn != 0 || v.Choice == claim.Granted && f.sent() == 1)
}

// nodeEnded notes that nothing more is sent to node i: it has settled the release, or, if settled is false, the release
// gives it up. It is called once for each node.
func (rel *Release) nodeEnded(i int, settled bool) {
	k := rel.lease.terms.Keeper
	if settled {
		rel.executed.Or(1 << i) // before the release ends
	}
	if u := rel.use(); u != nil && !u.adopted {
		u.nodes[i].open.Add(-1)
	}
	last := rel.open.Add(-1) == 0
	if k.IsClosed() {
		k.lastSettled.Store(int64(clock.Now().Mono))
		k.unsettled.progressed(rel)
	}
	if last {
		k.unsettled.remove(rel)
		if u := rel.use(); u != nil {
			usedValues.settled(u)
		}
	}
}

// repeatLater schedules the next sending to node i, which has not settled the release.
func (rel *Release) repeatLater(i int, err error) {
	s, t := &rel.progress[i], rel.lease.terms
	delay := min(minReleaseDelay<<s.repeats, maxReleaseDelay)
	if s.unvoted && s.repeats == 0 { // the caller of Unlock waits for the result
		delay = min(delay, t.Timing.NodeTimeout/4)
	}
	s.repeats = min(s.repeats+1, maxDoublings)
	dropped, closed := rel.later(i, delay), t.Keeper.IsClosed()
	if closed {
		t.Keeper.unsettled.failed(i, err)
	}
	if t.Events != nil && !(closed && dropped) { // Close tells at its end what was given up
		t.Events.Unconfirmed(t.Keeper.Set.Nodes[i], t.Keeper.unsettled.count(), dropped, err)
	}
	if dropped {
		rel.giveUp(i)
	}
}

// later schedules a sending to node i. It reports dropped if too many wait to be sent, or if Close has ended.
func (rel *Release) later(i int, delay time.Duration) (dropped bool) {
	rel.lease.writes.keepTime() // each repetition first uses the kept time to check whether the keys have run out
	again, limit := &alarm.Alarm{What: repetition{rel, i}}, maxRepeats
	if rel.lease.terms.Keeper.IsClosed() {
		limit = math.MaxInt
	}
	return !rel.lease.terms.Keeper.repeats.SetUnlessFull(again, time.Now().Add(delay), limit)
}

// A repetition is the alarm for sending a release to one node again.
type repetition struct {
	release *Release
	node    int
}

// Fire implements alarm.Firer. At the end of Close the release gives up.
func (r repetition) Fire(closing bool) {
	if closing {
		r.release.giveUp(r.node)
		return
	}
	r.release.repeat(r.node)
}

func (rel *Release) repeat(i int) {
	if rel.lasts(clock.Now()) < 0 {
		rel.giveUp(i)
		return
	}
	as := rel.progress[i].form
	as.again = true
	rel.send(i, as, nil)
}

// lasts returns for how much longer a key that the release deletes may last by the nodes' clocks. It is negative if all must
// have run out.
//
// Extensions of a lease renew what it has won, and not its surplus. So the release of a surplus ends although
// the lease may be held for much longer.
func (rel *Release) lasts(now clock.Instant) time.Duration {
	if rel.surplus {
		return rel.lease.terms.Timing.lasts(rel.rare.began, now)
	}
	return rel.lease.terms.Timing.lasts(rel.lease.writes.lastRenewed(), now)
}

// unconfirmed returns the nodes that have not executed the release.
func (rel *Release) unconfirmed() claim.Nodes {
	return claim.FirstNodes(len(rel.progress)) &^ claim.Nodes(rel.executed.Load())
}

// isConfirmed reports whether a quorum has executed the release: no key is left there. A node that no command has reached has no key. So a release that only changes the
// queues is confirmed from the start.
func (rel *Release) isConfirmed() bool {
	rule, missing := rel.round.Rule(), rel.unconfirmed()
	for i := range rel.progress {
		if !rel.lease.writes.onNode(i).reached() {
			missing = missing.Without(i)
		}
	}
	return rule.Quorum(rule.All() &^ missing)
}

// isAttempt reports whether the release is of what a failed attempt may have left. A lease that is adopted for a single Unlock was never held either, and has no Try.
func (rel *Release) isAttempt() bool { return rel.lease.Try > 0 && !rel.lease.Begun() }
