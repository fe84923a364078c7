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
	// Backoff of a release that a node has not settled:
	minReleaseDelay = 50 * time.Millisecond
	maxReleaseDelay = time.Second
	maxDoublings    = 5 // enough to exceed maxReleaseDelay

	// maxRepeats bounds the releases that wait to be repeated, except during Close. A dropped one leaves a key.
	maxRepeats = 1 << 16
)

// A Release takes a lease's claim off all nodes, including those that never answered. It repeats its command on each
// node until that node is settled: nothing can set the value there any more, or the keys have run out. It gives up a
// node early only if the node's pool is closed, for maxRepeats, or at the end of Close. With a minimal hold
// (Timing.MinHold), it keeps the keys for the rest of that time.
//
// It sends and takes the replies itself: the round only counts the votes.
type Release struct {
	lease    *Lease
	claim    claim.Claim
	round    quorum.Round
	rare     *rareRelease
	others   atomic.Uint64
	executed atomic.Uint64 // nodes that have executed it, although a command may still set the value
	open     atomic.Int32  // not settled, and not given up

	seat seat

	// By node. The sender and the receiver of the reply use it in turn, never at once.
	progress []progress

	shortens bool // for a minimal hold
	surplus  bool // it releases a surplus
	awaited  bool
	inTime   bool // a quorum had confirmed before the validity ended
	undoes   bool
	counted  bool // see use
	queued   bool // see process
}

// A rareRelease is what few releases need.
type rareRelease struct {
	turnover script.Turnover
	room     [1]script.Ticket
	filled   claim.Nodes   // see fillRest
	began    time.Duration // monotonic
}

// noRareRelease is shared, and never changes.
var noRareRelease rareRelease

// progress is the state of a release on one node.
type progress struct {
	form    form  // when last sent
	orderly bool  // every command that sets the value had been answered then
	drained bool  // in the node's drain
	lost    bool  // the node may have executed an earlier sending
	deleted bool  // a native command has found and deleted the value
	unvoted bool  // Unlock waits for the repetition's vote
	repeats uint8 // at most maxDoublings
}

// A form says how to send a release.
type form struct {
	as      quorum.Form
	quietly bool // without the queue, which the node denies
}

// next reports whether, and how, a release in form f that got err, or nil, must be sent again at once.
func next(f form, err error) (form, bool) {
	switch {
	case err == nil:
	case wire.IsNoScript(err) && f.as != quorum.InFull:
		f.as = quorum.InFull
		return f, true
	case quorum.IsForbidden(err) && !f.quietly:
		f.quietly = true
		return f, true
	}
	return f, false
}

// A Releasing says how to release a lease.
type Releasing struct {
	Caller context.Context //nolint:containedctx // of the call that waits for the round; nil if none does
	Enters []script.Ticket // by line: what enters its queue, zero for nothing; may be nil
	Undoes bool            // the attempt that made the lease, which has failed

	claim claim.Claim // nil means that of the lease
	nodes claim.Nodes // none means all
}

// Release sends the release of l to all nodes at once, after everything that was sent for l. l must have ended or never
// begun, unless how names another claim. It admits no waiter of this process: see Waiters.
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
		// It always is: WithMinHold excludes WithShared.
		_, rel.shortens = rel.claim.(claim.Shortener)
	}
	whole := how.claim == nil && how.nodes == 0
	if how.nodes == 0 {
		how.nodes = claim.FirstNodes(len(k.Set.Nodes))
	}
	if l.mayComeBack() {
		rel.counted = usedValues.release(l, whole, rel.awaited)
		if !rel.counted { // a later lease has the value
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
	// An earlier release of l must go on: a node may set a full TTL as late as now.
	l.writes.noteRenewal()
	k.unsettled.add(rel)
	encoding := script.Encoding{Command: &rel.round.Call().Command}
	defer encoding.Free()
	// An attempt that has failed sends the script at once: nobody waits for its release, and the process may end before a
	// script could follow.
	lines := rel.claim.Lines()
	_, mayBeNative := rel.claim.(*claim.Exclusive)
	mayBeNative = mayBeNative && rel.awaited && encoding.Command.MayBeNative()
	for i, n := range k.Set.Nodes {
		if !how.nodes.Has(i) {
			rel.nodeEnded(i, true)
			continue
		}
		as, command := form{n.ScriptForm(), n.DeniesQueues(lines) && !someLeave}, wire.Native(0)
		if mayBeNative && as == (form{}) {
			if command = n.Native(encoding.Command); command != 0 && endsSoon(how.Caller, 2*l.terms.Timing.NodeTimeout) {
				command, mayBeNative = 0, false
			}
		}
		switch {
		case command&wire.Tried != 0: // the script is behind it
			rel.send(i, as, encoding.As(command), command)
		case command != 0:
			rel.send(i, form{as: quorum.Native}, encoding.As(command), command)
		case as != (form{}):
			rel.send(i, as, nil, 0)
		default:
			rel.send(i, as, encoding.Args(), 0)
		}
	}
	return rel
}

// endsSoon reports whether the caller may be gone, and its process with it, before a script that tells waiters is sent.
func endsSoon(ctx context.Context, within time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) < within
}

// newRare also sends the fills of a minimal hold, before the release.
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

// process names this process if it had waiters at the start, or has left tickets in the queues.
func (rel *Release) process() script.Process {
	if rel.queued {
		return rel.lease.terms.Keeper.Process
	}
	return script.Process{}
}

// entering leaves out tickets of waiters that have given up.
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

// giveBack releases a surplus of l, even after l has been unlocked.
func (l *Lease) giveBack(won claim.Winner, nodes claim.Nodes) {
	l.Release(Releasing{claim: won.Surplus(), nodes: nodes})
}

// fillOutlived fills up the keys of a minimal hold after Unlock. The release settles what the fill leaves.
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

// LeaveQueuesOnRelease makes later releases of l take a ticket off the queues of all lines.
func (l *Lease) LeaveQueuesOnRelease(t script.Ticket) { l.writes.leaveQueuesOnRelease(t, allQueues) }

// StayInOneQueueOnRelease makes later releases of l take a ticket off the queues of all other lines.
func (l *Lease) StayInOneQueueOnRelease(t script.Ticket, line int) {
	l.writes.leaveQueuesOnRelease(t, line)
}

// Nobody returns a lease whose value no node ever has, for releases that only change the queues.
func (t *Terms) Nobody() *Lease {
	l := New(t, nobodysValue(t), clock.Now())
	l.value.shown = false
	return l
}

func nobodysValue(t *Terms) string { return "nobody:" + t.Keeper.Process.String() }

func nobodysClaim(t *Terms) claim.Claim { return t.Claim.With(nobodysValue(t), &claim.Room{}) }

// LeaveQueues takes off the queues what a release of l would. It is for Detach: the adopter does not know the tickets.
// While one is first, a node tells this process of a release, and not the next waiter.
func (l *Lease) LeaveQueues() {
	nobody := l.terms.Nobody()
	if nobody.writes.leaveAs(l.writes) {
		nobody.Release(Releasing{})
	}
}

// Leaver returns a lease whose release takes the ticket of a waiter that has won a permit off the queues. Otherwise the
// node would tell this process of the next free permit. Leaver returns nil for other claims.
func (l *Lease) Leaver(ticket script.Ticket) *Lease {
	if _, ok := l.Claim().(claim.Winner); !ok {
		return nil
	}
	l.LeaveQueuesOnRelease(ticket) // a late command may put it there again
	nobody := l.terms.Nobody()
	nobody.LeaveQueuesOnRelease(ticket)
	return nobody
}

// Wait waits for a quorum of nodes. There must be a Caller.
func (rel *Release) Wait(ctx context.Context) quorum.Result {
	if u := rel.use(); u != nil {
		defer usedValues.decided(u)
	}
	return rel.round.Wait(ctx, rel.lease.terms.Timing.limits())
}

// WasInTime reports whether a quorum had confirmed the release, which has a Caller, before the validity ended. That of
// an adopted lease does not count.
func (rel *Release) WasInTime() bool { return rel.inTime }

// noteDeleted notes where the release of a failed Unlock has found the value in time.
func (rel *Release) noteDeleted(nodes claim.Nodes) {
	if !rel.lease.WasValid(clock.Now()) {
		return
	}
	r := rel.lease.writes.locked()
	defer r.mu.Unlock()
	r.failedLocked().deleted |= nodes
}

// Others returns the lines for which a node has told of a waiter of another process.
func (rel *Release) Others() claim.Lines { return claim.Lines(rel.others.Load()) }

// Brief implements quorum.Operation.
func (rel *Release) Brief() quorum.Brief {
	return rel.lease.terms.brief(quorum.Unlock, rel.call(rel.rare.turnover))
}

func (rel *Release) call(t script.Turnover) claim.Call {
	if rest := rel.rest(); rest > 0 {
		return rel.claim.(claim.Shortener).Shorten(rest, rel.process(), t, rel.lease.fence())
	}
	return rel.claim.Release(rel.process(), t, rel.lease.fence())
}

// fence leaves the registers alone without Fencing, even if an adopted lease has a token: the client's user may not be
// permitted to use them.
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
		rel.inTime = rel.lease.WasValid(clock.Now())
	}
}

// send sends the release to node i, or makes it wait during Close. resp is the encoding of the form, perhaps as a native
// command, or nil.
func (rel *Release) send(i int, as form, resp []byte, command wire.Native) {
	s, k := &rel.progress[i], rel.lease.terms.Keeper
	s.form = as
	if k.IsClosed() && !s.drained {
		s.drained = true // first: another goroutine may send it after enter
		if !k.drains[i].enter(rel) {
			return
		}
	}
	drained := s.drained
	if !rel.transmit(i, resp, command) && drained {
		k.drains[i].leave(i)
	}
}

// use returns the use of a value that may come back, or nil.
func (rel *Release) use() *use {
	if rel.counted {
		return rel.lease.rare.use
	}
	return nil
}

// transmit reports true if a reply will come, or the drain keeps the release. WithOutstanding does not limit the
// request if the node may hold the value (Reserved).
func (rel *Release) transmit(i int, resp []byte, command wire.Native) bool {
	s, k, f := &rel.progress[i], rel.lease.terms.Keeper, rel.lease.writes.onNode(i)
	if resp == nil && s.form.as == quorum.Native { // it has waited
		s.form.as = k.Set.Nodes[i].ScriptForm()
	}
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
		Args: rel.args(s, resp != nil), RESP: resp, Native: command, Reserved: f.reached(),
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

func (rel *Release) args(s *progress, encoded bool) []any {
	var call claim.Call
	switch {
	case s.form.quietly:
		call = rel.call(script.Turnover{Quietly: true})
	case s.repeats > 0: // but no ticket enters again: the waiter may have left
		call = rel.call(rel.lease.writes.turnover(len(rel.claim.Lines()), nil))
	case rel.shortens && !encoded: // the rest may be shorter by now
		call = rel.call(rel.rare.turnover)
	case s.form.as != quorum.InFull:
		return rel.round.Call().Command.Args
	default:
		call = *rel.round.Call()
	}
	if s.form.as == quorum.InFull {
		return call.Command.InFull()
	}
	return call.Command.Args
}

// Receive implements wire.Receiver.
func (rel *Release) Receive(i int, reply wire.Reply) {
	k, sent := rel.lease.terms.Keeper, rel.progress[i]
	k.Set.Heard(i, &reply, &rel.round.Call().Command)
	if u := rel.use(); u != nil && u.adopted {
		u.replied(i, reply)
	} else if u != nil {
		u.heard(i, fateOf(reply))
	}
	rel.round.NoteLate(i, reply.Fate)
	untold := (sent.form.as == quorum.Native || reply.First != nil) && rel.readNative(i, sent.form, &reply)
	if reply.Err != nil && sent.form.as != quorum.InFull {
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
	if untold {
		rel.round.Resent(i)
		rel.send(i, form{as: k.Set.Nodes[i].ScriptForm()}, nil, 0)
		return
	}
	if as, again := next(sent.form, reply.Err); again && !(rel.progress[i].deleted && quorum.IsForbidden(reply.Err)) {
		if as.quietly && !sent.form.quietly {
			rel.lease.terms.deny(i, reply.Err, quorum.IsDenial(reply.Err))
		}
		rel.send(i, as, nil, 0)
		return
	}
	switch {
	case reply.Err == nil:
		rel.lease.terms.allows(i)
	case quorum.IsDenial(reply.Err): // although the release was quiet: see next
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
	case rel.progress[i].deleted && reply.Fate == wire.Answered: // the script only had to tell waiters
		v = wasOurs
		if wire.IsPermanent(reply.Err) {
			reply.Err = nil
		}
	case v.Answer.Found == claim.Foreign:
		v, reply.Err = v.Denies(), nil // it settles as much as another value
	case v.Choice == claim.Failed && reply.Err == nil:
		reply.Err = v.Err
	}
	if r := rel.lease.writes.rare.Load(); r != nil {
		if k := r.asked.Load(); k != nil {
			k.hear(i, v)
		}
	}
	settled := rel.settles(i, sent, &reply, v)
	rel.vote(i, v, &reply)
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

// wasOurs is the vote of a node that has found and deleted the value.
var wasOurs = claim.Vote{Choice: claim.Granted, Answer: claim.Answer{Found: claim.Mine}}

// readNative reads the answer to a native command as that of the script. untold reports that the script must follow.
func (rel *Release) readNative(i int, as form, reply *wire.Reply) (untold bool) {
	if reply.First == script.One {
		rel.progress[i].deleted = true
	}
	if as.as != quorum.Native || reply.Fate != wire.Answered {
		return false
	}
	value, done := rel.round.Call().Command.DoneBy(*reply)
	reply.Value, reply.Err = value, nil
	return !done
}

// vote counts node i's vote, unless only a repetition can tell it. If a connection broke, the node may have executed
// the release: Unlock waits for the repetition until the node deadline. If that finds our value, the lock was held
// until now. Anything else proves nothing: somebody may have locked since the first sending deleted our value.
func (rel *Release) vote(i int, v claim.Vote, reply *wire.Reply) {
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
		v.Choice = claim.Refused // it has answered
	}
	rel.round.NoteHealth(i, v, reply.Server)
}

func afterwards(v claim.Vote) string {
	switch {
	case v.Taken():
		return "another value is there now"
	case v.Answer.Found == claim.Foreign:
		return "a key of another type is there now"
	}
	return "the key is gone now"
}

func (rel *Release) giveUp(i int) {
	rel.endVote(i)
	rel.nodeEnded(i, false)
}

func (rel *Release) endVote(i int) {
	if s := &rel.progress[i]; s.unvoted {
		s.unvoted = false
		v := claim.Failure(rel.round.WaitsFor(i))
		if s.deleted {
			v = wasOurs
		}
		rel.round.Cast(i, &v, nil)
	}
}

// settles reports whether node i, whose reply reads as v, is done with the value: no command that sets it can have
// reached the node, or it has executed all of them before the release. One of these proves the latter:
//   - Every such command had been answered when the release was sent (orderly).
//   - Every such command is answered by now, and the pool is an ordered stream (Conn is not 0).
//   - There was only one such command, and the release found the value.
func (rel *Release) settles(i int, sent progress, reply *wire.Reply, v claim.Vote) bool {
	looked := reply.Fate == wire.Answered && reply.Err == nil
	if looked && sent.orderly {
		return true
	}
	f := rel.lease.writes.onNode(i)
	return !f.reached() || looked && (f.settled() && reply.Conn != 0 || v.Choice == claim.Granted && f.sent() == 1)
}

// nodeEnded notes, once for each node, that it is settled, or given up.
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

func (rel *Release) repeatLater(i int, err error) {
	s, t := &rel.progress[i], rel.lease.terms
	delay := min(minReleaseDelay<<s.repeats, maxReleaseDelay)
	if s.unvoted && s.repeats == 0 { // Unlock waits for the result
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

// later reports dropped if too many wait, or Close has ended.
func (rel *Release) later(i int, delay time.Duration) (dropped bool) {
	rel.lease.writes.keepTime() // each repetition asks whether the keys have run out
	again, limit := &alarm.Alarm{What: repetition{rel, i}}, maxRepeats
	if rel.lease.terms.Keeper.IsClosed() {
		limit = math.MaxInt
	}
	return !rel.lease.terms.Keeper.repeats.SetUnlessFull(again, time.Now().Add(delay), limit)
}

// A repetition is the alarm that repeats a release on a node.
type repetition struct {
	release *Release
	node    int
}

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
	rel.send(i, as, nil, 0)
}

// lasts returns for how much longer keys of the release may last, perhaps negative. Extensions do not renew a surplus.
func (rel *Release) lasts(now clock.Instant) time.Duration {
	if rel.surplus {
		return rel.lease.terms.Timing.lasts(rel.rare.began, now)
	}
	return rel.lease.terms.Timing.lasts(rel.lease.writes.lastRenewed(), now)
}

func (rel *Release) unconfirmed() claim.Nodes {
	return claim.FirstNodes(len(rel.progress)) &^ claim.Nodes(rel.executed.Load())
}

// isConfirmed reports whether no key is left on a quorum.
func (rel *Release) isConfirmed() bool {
	rule, missing := rel.round.Rule(), rel.unconfirmed()
	for i := range rel.progress {
		if !rel.lease.writes.onNode(i).reached() {
			missing = missing.Without(i)
		}
	}
	return rule.Quorum(rule.All() &^ missing)
}

// isAttempt reports whether an attempt has failed. An adopted lease has no Try.
func (rel *Release) isAttempt() bool { return rel.lease.Try > 0 && !rel.lease.Begun() }
