package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// A Round is one command on its way to all nodes, and their votes. It is decided once no vote can change its answer.
// Every operation runs as a round.
type Round struct {
	set   *Set
	op    Operation
	brief Brief
	timer *roundTimer   // nil if nobody waits
	all   chan struct{} // closed when every node has voted; or nil

	// mu guards what follows. After Decided the caller may read expired, final and hastened without it.
	mu       sync.Mutex
	rare     *rare         // plain until needed
	inTime   time.Duration // monotonic time after which an answer is late; or 0
	closed   bool          // later votes do not count
	expired  bool          // the deadline has ended the round
	final    bool          // see isFinal
	hastened bool          // the deadline was brought forward
	proved   claim.Standing
	count    claim.Count
	Ballots  []Ballot // by node
}

// A rare is what few rounds need.
type rare struct {
	tally claim.Tally // or nil
	errs  []error     // by node: of the vote, or what WaitFor has noted
	again *claim.Call // see askAgainLocked
	trace trace       // or zero
}

// plain is the rare of rounds that need none. It never changes.
var plain rare

func (r *Round) rareLocked() *rare {
	if r.rare == &plain {
		r.rare = &rare{}
	}
	return r.rare
}

// A Ballot is what a round keeps for one node. It is small, because every round has several.
type Ballot struct {
	detail *claim.Detail
	by     *wire.Server // that voted, if known
	choice claim.Choice
	found  claim.Found
	sent   Form  // last
	alone  bool  // it was sent the command of the Fallback
	lost   bool  // its connection was lost
	again  bool  // and the command sent again
	more   int16 // extra sendings under way
}

// A Form says how a command is sent.
type Form uint8

// A script goes out by its SHA1, unless a Form says otherwise.
const (
	BySHA  Form = iota
	Resent      // so, after a native command
	InFull      // with its source, which the node lacks
	Native      // a native command in its place
)

// Resent says that a script follows a native command to node i, so that a far node has time to answer twice.
func (r *Round) Resent(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Ballots[i].sent = Resent
}

// keepLocked drops what the answer says of the queue: only releases need that, and they read it themselves.
func (r *Round) keepLocked(i int, v claim.Vote) {
	b := &r.Ballots[i]
	b.choice, b.found, b.detail = v.Choice, v.Answer.Found, v.Answer.Detail
	if v.Err != nil || r.rare.errs != nil {
		r.keepErrLocked(i, v.Err)
	}
}

func (r *Round) keepErrLocked(i int, err error) {
	if r.rare.errs == nil {
		r.rareLocked().errs = make([]error, len(r.Ballots))
	}
	r.rare.errs[i] = err
}

func (r *Round) voteLocked(i int) claim.Vote {
	b := &r.Ballots[i]
	v := claim.Vote{Choice: b.choice, Answer: claim.Answer{Found: b.found, Detail: b.detail}}
	if r.rare.errs != nil {
		v.Err = r.rare.errs[i]
	}
	return v
}

// A Decider is told, at most once, when the answer of a round for which no caller waits cannot change any more.
// Round.mu is held: Decided must not block, nor use the round.
type Decider interface{ Decided() }

// NoCall is the context of a round that is part of no call.
var NoCall = context.Background()

// Start sends op's command to all nodes. Only the tracer uses ctx.
func (s *Set) Start(ctx context.Context, op Operation, waitAll bool) *Round {
	r, ballots, _ := claim.WithRoom[Round, Ballot, struct{}](len(s.Nodes))
	r.Ballots = ballots
	r.Prepare(ctx, s, op, waitAll, true)
	r.Send()
	return r
}

// Prepare makes r take votes for op. r is zero, except that Ballots may be a zero Ballot for each node. waits says that
// a caller will wait. Only the tracer uses ctx; nil is NoCall.
func (r *Round) Prepare(ctx context.Context, s *Set, op Operation, waitAll, waits bool) {
	r.set, r.op, r.brief, r.rare = s, op, op.Brief(), &plain
	if waits {
		r.timer = s.timers.get()
	}
	if r.brief.Tallies {
		r.rareLocked().tally = op.(claim.Tallier).Tally(r.Rule())
	}
	if r.brief.Tracer != nil && r.brief.Tracer.TracesVotes() {
		r.rareLocked().trace = trace{cmp.Or(ctx, NoCall), time.Now(), claim.FirstNodes(len(s.Nodes))}
	}
	if r.Ballots == nil {
		r.Ballots = make([]Ballot, len(s.Nodes))
	}
	if waitAll {
		r.all = make(chan struct{})
	}
}

// Call returns the command of the round. It must not be changed.
func (r *Round) Call() *claim.Call { return &r.brief.Call }

// Rule returns the rule by which the votes decide.
func (r *Round) Rule() claim.Rule { return r.set.rule }

// Send sends the command to all nodes.
func (r *Round) Send() {
	fallback := r.fallback()
	encoding := script.Encoding{Command: &r.brief.Call.Command}
	defer encoding.Free()
	mayBeNative := encoding.Command.MayBeNative()
	for i, n := range r.set.Nodes {
		req := wire.Request{Args: r.brief.Call.Command.Args}
		command := wire.Native(0)
		if mayBeNative {
			command = n.Native(encoding.Command)
		}
		switch b := &r.Ballots[i]; {
		case fallback != nil && fallback.Lacks(i):
			b.alone, b.sent = true, n.ScriptForm()
			req.Args = r.commandLocked(i)
		case command != 0:
			b.sent = Native
			req.Native, req.RESP = command, encoding.As(command)
		case n.LacksSHA():
			b.sent = InFull
			req.Args = r.commandLocked(i)
		default:
			req.RESP = encoding.Args()
		}
		if err := r.send(i, req); err != nil {
			r.Refuse(i, err)
		}
	}
}

func (r *Round) fallback() Fallback {
	if f, ok := r.op.(Fallback); ok && f.CanDoWithout() {
		return f
	}
	return nil
}

func (r *Round) callLocked(i int) claim.Call {
	switch b := &r.Ballots[i]; {
	case b.alone:
		return r.fallback().Without()
	case b.again:
		return *r.rare.again
	}
	return r.brief.Call
}

func (r *Round) commandLocked(i int) []any {
	c := r.callLocked(i)
	if r.Ballots[i].sent == InFull {
		return c.Command.InFull()
	}
	return c.Command.Args
}

func (r *Round) send(i int, req wire.Request) error {
	record, records := r.op.(Recorder)
	if records {
		record.Sending(i)
	}
	req.Within, req.Tag, req.To = r.brief.Within, i, r
	if r.Ballots[i].again {
		req.To = (*repeated)(r)
	}
	err := r.set.Nodes[i].Send(req)
	if err != nil && records {
		record.Unsent(i)
	}
	return err
}

// Receive takes a node's reply.
func (r *Round) Receive(i int, reply wire.Reply) { r.receive(i, &reply, &r.brief.Call) }

func (r *Round) receive(i int, reply *wire.Reply, sent *claim.Call) {
	r.set.Heard(i, reply, &sent.Command)
	r.NoteLate(i, reply.Fate)
	untold := sent.Command.MayBeNative() && r.readNative(i, reply)
	if reply.Err != nil && wire.IsUnknown(reply.Err) && r.isBySHA(i) {
		reply.Err = r.set.Nodes[i].NoteScript(reply.Err)
	}
	v := r.op.Judge(i, *reply, r.set.Read(&sent.Command, sent.Read, reply.Value, reply.Err))
	another, mayGrant, refusal := false, false, error(nil)
	switch {
	case reply.Err == nil:
	case untold:
		another, refusal = r.resend(i, false)
	case wire.IsNoScript(reply.Err):
		another, refusal = r.resend(i, true)
	case IsForbidden(reply.Err):
		another, mayGrant, refusal = r.sendAlone(i)
	}
	if another {
		return
	}
	if refusal != nil {
		v.Err = refusal
	}
	if reply.Fate == wire.Unknown && v.Choice == claim.Failed && !wire.IsSilence(reply.Err) {
		r.noteLost(i)
	}
	r.Cast(i, &v, reply.Server)
	if !mayGrant && v.Choice != claim.Pending {
		r.NoteHealth(i, v, reply.Server)
	}
}

// Read returns how a reply or a failure counts by itself. read is that of the claim.Call. A key of another type is a
// failure: it says nothing of a rival.
func (s *Set) Read(c *script.Command, read func(any) (claim.Answer, error), reply any, failure error) claim.Vote {
	if failure != nil {
		v := claim.Failure(failure)
		if wire.IsWrongType(failure) && !IsNoQueue(failure) {
			v.Answer.Found = claim.Foreign
		}
		return v
	}
	answer, err := read(reply)
	if err != nil {
		return claim.Failure(c.Conceal(err))
	}
	return claim.Vote{Choice: s.rule.Counts(answer), Answer: answer}
}

func (r *Round) isBySHA(i int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Ballots[i].sent != InFull && r.callLocked(i).Command.IsScript()
}

// readNative reads the answer to a native command as that of the script. untold reports that only the script tells what
// there is; then reply.Err says so.
func (r *Round) readNative(i int, reply *wire.Reply) (untold bool) {
	r.mu.Lock()
	was := r.Ballots[i].sent
	if was == Native {
		r.Ballots[i].sent = BySHA
	}
	r.mu.Unlock()
	if was != Native || reply.Fate != wire.Answered {
		return false
	}
	value, done := r.brief.Call.Command.DoneBy(*reply)
	if reply.Value = value; !done {
		reply.Value, reply.Err = nil, errUntold
	}
	return !done
}

// errUntold is the error of a native command that has not done what it should.
var errUntold error = untold{}

type untold struct{}

func (untold) Error() string { return "it was too late to ask the node why it has refused" }

// NotCounted implements NotCounted.
func (untold) NotCounted() {}

// resend sends the script to node i, once, in full if it lacks it, and only while r.mu keeps the vote open: after a
// release of the value nothing may set it.
func (r *Round) resend(i int, lacks bool) (sent bool, refusal error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g, ok := r.op.(Gate); r.closed || lacks && r.Ballots[i].sent == InFull || ok && !g.Open() {
		return false, nil
	}
	r.Ballots[i].sent = max(Resent, r.set.Nodes[i].ScriptForm())
	if lacks {
		r.Ballots[i].sent = InFull
	}
	refusal = r.send(i, wire.Request{Args: r.commandLocked(i)})
	return refusal == nil, refusal
}

// IsForbidden reports whether the client cannot use a key beside the lock's own: its user lacks the permission, the
// node lacks the command, a cluster keeps that key elsewhere, or IsNoQueue.
func IsForbidden(err error) bool {
	return err != nil && (IsDenial(err) || wire.IsCrossSlot(err) || IsNoQueue(err))
}

// IsNoQueue reports whether a key of another type, or one that is too long, is in the place of the queue (see
// read.lua).
func IsNoQueue(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "WRONGTYPE the queue ") || strings.Contains(err.Error(), "ERR the queue "))
}

// sendAlone sends the command of the Fallback to node i, as resend does. If it is too late, mayGrant reports that the
// node might have granted.
func (r *Round) sendAlone(i int) (sent, mayGrant bool, refusal error) {
	if r.fallback() == nil {
		return false, false, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Ballots[i].alone {
		return false, false, nil
	}
	if g, ok := r.op.(Gate); r.closed || ok && !g.Open() {
		return false, true, nil
	}
	r.Ballots[i].alone = true
	r.Ballots[i].sent = r.set.Nodes[i].ScriptForm()
	refusal = r.send(i, wire.Request{Args: r.commandLocked(i)})
	return refusal == nil, false, refusal
}

// Again sends the command of an undecided round again to nodes that have not answered, or have failed. A failure is a
// vote only when no other sending is under way. There must be no Tally, which takes no vote back.
func (r *Round) Again() {
	refusals := r.sendAgain()
	for i, err := range refusals {
		if err != nil {
			r.Refuse(i, err)
		}
	}
}

// sendAgain returns, by node, the refusals that are votes.
func (r *Round) sendAgain() (refusals []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g, ok := r.op.(Gate); r.closed || r.final || ok && !g.Open() {
		return nil
	}
	refusals = make([]error, len(r.Ballots))
	for i := range r.Ballots {
		b := &r.Ballots[i]
		unanswered := b.choice == claim.Pending
		if !unanswered && b.choice != claim.Failed {
			continue
		}
		r.keepLocked(i, claim.Vote{})
		r.count.Failed = r.count.Failed.Without(i)
		switch err := r.send(i, wire.Request{Args: r.commandLocked(i)}); {
		case unanswered && err == nil:
			b.more++
		case !unanswered:
			refusals[i] = err
		}
	}
	r.proved = r.standingLocked()
	return refusals
}

// Cast counts node i's vote, sets *v to what counts, and traces it. by is the server process that gave it, or nil.
// missed reports that it came too late to a round that is not won, and is no refusal.
func (r *Round) Cast(i int, v *claim.Vote, by *wire.Server) (missed bool) {
	r.mu.Lock()
	late, missed := r.addLocked(i, v, by)
	r.mu.Unlock()
	if v.Choice != claim.Pending { // otherwise it is asked again
		r.tellTracer(i, v, late, false)
	}
	return missed
}

// Refuse counts the refusal of node i's pool to send. Observers are told on another goroutine.
func (r *Round) Refuse(i int, err error) {
	v := claim.Failure(err)
	r.mu.Lock()
	late, _ := r.addLocked(i, &v, nil)
	r.mu.Unlock()
	r.tellTracer(i, &v, late, true)
	r.NoteHealth(i, v, nil)
}

// A trace is what a round keeps for a tracer of votes.
type trace struct {
	ctx    context.Context //nolint:containedctx // of the call that the round is part of
	start  time.Time
	untold claim.Nodes
}

func (r *Round) tellTracer(i int, v *claim.Vote, late, later bool) {
	if r.brief.Tracer == nil || r.set.retired.Load() {
		return
	}
	if t := r.takeTrace(i); t.ctx != nil {
		vote := Voted{r.brief.Op, r.set.Nodes[i], *v, late, t.start, time.Since(t.start)}
		r.brief.Tracer.Voted(t.ctx, vote, later)
	}
}

// takeTrace returns the trace for node i's first answer. After the last one r drops it: a release of hours must not
// keep its caller's context in memory.
func (r *Round) takeTrace(i int) (t trace) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.rare
	if !x.trace.untold.Has(i) {
		return t
	}
	t = x.trace
	if x.trace.untold = t.untold.Without(i); x.trace.untold == 0 {
		x.trace = trace{}
	}
	return t
}

// NoteHealth notes what node i's vote says of its health. by is the server process that gave it, or nil.
func (r *Round) NoteHealth(i int, v claim.Vote, by *wire.Server) {
	if r.brief.Tracer == nil || r.set.retired.Load() || v.Err == errTakenBack { //nolint:errorlint // a sentinel
		return
	}
	r.set.TellServers(r.brief.Tracer)
	n := r.set.Nodes[i]
	s := observation{of: r.set, to: r.brief.Tracer, node: n, proof: counts}
	if v.Choice == claim.Granted {
		s.proof = r.brief.proof()
	}
	if v.Choice == claim.Failed {
		s.err = v.Err
		switch {
		case wire.IsNoScript(s.err), wire.IsWrongType(s.err), hasAnswered(s.err): // it answers
			s.err = nil
		case IsForbidden(s.err) && r.brief.Purpose != Granting:
			return // it may still grant
		case errors.As(s.err, new(*wire.OutstandingError)):
			return // nothing was sent: earlier requests show its health
		}
		s.proof = r.brief.missing(s.err)
	}
	if s.err == nil && !wire.IsNoScript(v.Err) && r.set.known.health[i].isDown() || IsDenial(s.err) && !IsNameDenied(s.err) {
		s.kind = r.kind(i)
	}
	switch denies := r.deniesName(s.err); {
	case denies && !r.isWon():
		return // if others grant, decideLocked tells it
	case denies, s.err == nil && s.proof == acquires:
		s.name = r.brief.Call.Command.Key()
	}
	r.see(s, by)
}

// deniesName reports whether err denies the name of the lock. If too few nodes grant it, that says nothing of them.
func (r *Round) deniesName(err error) bool {
	return (r.brief.Op == Lock || r.brief.Op == Extend) && r.brief.Purpose == Granting && IsNameDenied(err)
}

func (r *Round) kind(i int) int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kindLocked(i)
}

func (r *Round) kindLocked(i int) int32 {
	switch {
	case r.Ballots[i].alone:
		return 0
	case r.callLocked(i).Command.IsScript():
		return scripts
	}
	return plainCommands
}

// see notes an observation. During its restart guard a node that is down stays down.
func (r *Round) see(s observation, by *wire.Server) {
	n, h := s.node, &r.set.known.health[s.node.Index]
	if n.IsGuarded() && (isDistrust(s.err) || s.err == nil && h.isDown()) {
		switch {
		case by != nil: // the guard may have ended since, or be longer for other locks
			if s.err = n.DistrustNow(by, h.longest(r.quarantine(n))); s.err != nil {
				s.proof = counts
			}
		case s.err == nil:
			return
		}
	}
	h.see(s)
}

func (r *Round) quarantine(n *Node) time.Duration {
	if g, ok := r.op.(Guarded); ok {
		return g.Quarantine(n)
	}
	return 0
}

// A NotCounted is the error of a node that works, although its vote does not count.
type NotCounted interface {
	error
	NotCounted()
}

func hasAnswered(err error) bool {
	_, not := err.(NotCounted)                                                 //nolint:errorlint // it is not wrapped
	return not || err == ErrDuplicate || err == ErrFilled || err == ErrDoubted //nolint:errorlint // sentinels
}

// ErrDuplicate is the error of a vote that does not count, because its server may have voted as another node.
var ErrDuplicate = errors.New("it is the same server as another node")

// ErrFilled is the error of a node that has the key only since the lock was acquired.
var ErrFilled = errors.New("its key was set after the lock was acquired, and does not count")

// ErrDoubted is the error of a node whose grant a late command of another lock may undo.
var ErrDoubted = errors.New("it may still run a command of an earlier lock with the same value (WithGenValueFunc), and does not count")

// addLocked is Cast without the tracer. The deciding vote closes the round, unless it waits for all nodes. late reports
// that the vote does not count.
func (r *Round) addLocked(i int, v *claim.Vote, by *wire.Server) (late, missed bool) {
	b := &r.Ballots[i]
	if r.closed || b.choice != claim.Pending {
		if r.hastened {
			r.noteTooLateLocked(i)
		}
		return true, !r.final || !r.proved.Won && b.choice != claim.Refused
	}
	if v.Choice == claim.Failed && b.more > 0 { // another reply may be better
		b.more--
		return false, false
	}
	r.onceLocked(i, v, by)
	r.keepLocked(i, *v)
	b.by = by
	r.count = r.count.With(i, v.Choice)
	if r.rare.tally != nil {
		r.rare.tally.Add(i, *v)
	}
	r.proved = r.standingLocked()
	if v.Choice != claim.Granted {
		r.askAgainLocked()
		if b.choice == claim.Pending {
			*v = claim.Vote{}
			return false, false
		}
	}
	switch {
	case r.final:
	case r.isFinal(r.proved):
		r.finishLocked()
	case r.proved.Blocked && r.brief.Disproves:
		r.hastenLocked()
	case r.brief.Explain && !r.brief.Patient && r.isSplitLocked():
		r.splitLocked()
	}
	if r.all != nil && r.missingLocked() == 0 {
		close(r.all)
	}
	return false, false
}

// onceLocked lets a server vote once in a set. If it has granted at one address, a refusal at another one is no other
// value.
func (r *Round) onceLocked(i int, v *claim.Vote, by *wire.Server) {
	if barred := claim.Nodes(r.set.identity.barred.Load()); barred != 0 {
		r.barLocked(barred)
		if barred.Has(i) && v.Choice != claim.Failed {
			*v = v.Fails(ErrDuplicate)
		}
	}
	if !isKnown(by) || v.Choice == claim.Failed || v.Choice == claim.Refused && !v.Taken() {
		return
	}
	for others := r.count.Answered(); others != 0; others &= others - 1 {
		other := bits.TrailingZeros64(uint64(others))
		b := &r.Ballots[other]
		switch {
		case b.by == nil || b.by.RunID != by.RunID || !r.set.apart(i, other):
		case b.choice == claim.Granted:
			*v = v.Fails(ErrDuplicate)
			return
		case r.voteLocked(other).Taken() && v.Choice == claim.Granted:
			r.keepLocked(other, r.voteLocked(other).Fails(ErrDuplicate))
			r.recountLocked()
		}
	}
}

// barLocked takes back votes of servers that turned out to have an address in another set. It changes no decision.
func (r *Round) barLocked(barred claim.Nodes) {
	if barred &= r.count.Answered(); barred == 0 || r.final {
		return
	}
	for i := range r.Ballots {
		if barred.Has(i) {
			r.keepLocked(i, r.voteLocked(i).Fails(ErrDuplicate))
		}
	}
	r.recountLocked()
}

func (r *Round) recountLocked() {
	if r.rare.tally != nil {
		r.rare.tally = r.op.(claim.Tallier).Tally(r.Rule())
	}
	r.count = claim.Count{}
	for i := range r.Ballots {
		v := r.voteLocked(i)
		if v.Choice == claim.Pending {
			continue
		}
		r.count = r.count.With(i, v.Choice)
		if r.rare.tally != nil {
			r.rare.tally.Add(i, v)
		}
	}
}

// WaitFor notes that node i's vote is still to come, and its error if it does not.
func (r *Round) WaitFor(i int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Ballots[i].choice == claim.Pending {
		r.keepErrLocked(i, err)
	}
}

// WaitsFor returns the error of WaitFor.
func (r *Round) WaitsFor(i int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.voteLocked(i).Err
}

func (r *Round) standingLocked() claim.Standing {
	if r.rare.tally != nil {
		return r.rare.tally.Standing()
	}
	return r.Rule().Standing(r.count)
}

// isFinal reports whether the answer can be given after votes that prove s. A blocked acquire must also say why. Dead
// nodes may fail before live nodes refuse, so it waits for these, at most for the node deadline. It undoes its grants,
// so that is safe.
func (r *Round) isFinal(s claim.Standing) bool {
	if s.Won || !s.Blocked {
		return s.Won
	}
	if r.brief.Explain && !s.Explained || r.brief.Disproves && r.mayBeDisprovedLocked() {
		return false
	}
	w, waits := r.op.(Waiter)
	return !waits || !w.MayWait(r.Rule(), r.missingLocked())
}

// mayBeDisprovedLocked reports whether missing nodes that are not late could prove a loss. A dead node fails before
// others refuse, and the holder should not learn of its loss only at the end of its validity.
func (r *Round) mayBeDisprovedLocked() bool {
	var against claim.Nodes
	for i := range r.Ballots {
		if v := r.voteLocked(i); v.Choice == claim.Refused && (v.InTheWay() || !r.brief.Heals) {
			against = against.With(i)
		}
	}
	awaited := r.missingLocked() &^ r.set.known.late.load()
	return !r.Rule().Blocks(against) && r.Rule().Blocks(against|awaited)
}

func (r *Round) finishLocked() {
	r.final, r.closed = true, r.all == nil
	r.stopClockLocked()
	r.decideLocked()
}

// IsFinal reports whether the answer can be given.
func (r *Round) IsFinal() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.final
}

func (r *Round) isWon() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.proved.Won
}

// decideLocked makes a won round take effect, and wakes the caller that waits. Round.mu is held: it must keep the order
// of mutexes (see package lease).
func (r *Round) decideLocked() {
	if w, ok := r.op.(Winner); ok && r.proved.Won {
		w.OnWon()
	}
	if r.proved.Won && r.brief.Tracer != nil && !r.set.retired.Load() {
		for i, err := range r.rare.errs {
			if r.Ballots[i].choice == claim.Failed && r.deniesName(err) {
				s := observation{of: r.set, to: r.brief.Tracer, node: r.set.Nodes[i], err: err, proof: r.brief.missing(err), name: r.brief.Call.Command.Key()}
				r.set.known.health[i].see(s)
			}
		}
	}
	if r.timer != nil {
		r.timer.Decided()
	} else if d, ok := r.op.(Decider); ok {
		d.Decided()
	}
}

func (r *Round) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.final || r.expired || r.postponeLocked() || r.awaitOpeningLocked() {
		return
	}
	if _, began := r.timer.limitsOfRound(); !r.hastened {
		r.noteOpeningLocked(inWords(began))
	}
	r.set.known.late.add(r.missingLocked())
	switch {
	case r.proved.Blocked && r.brief.Disproves: // the loss is not proved in time
		r.expired = true
		r.finishLocked()
	case r.inTime != 0:
		r.giveUpLocked()
	default:
		r.expired, r.closed = true, true
		r.decideLocked()
	}
}

// Close ends the vote, and nothing more is sent.
func (r *Round) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// Why a node that was waited for has no vote.
var (
	ErrNoAnswer = errors.New("no answer")
	errInTime   = errors.New("no answer in time")
	errSplit    = errors.New("no answer in time, and the other nodes were split")
)

// NoAnswerWithin returns the error of nodes that did not answer in time.
func NoAnswerWithin(within time.Duration) error {
	return fmt.Errorf("%w within %v", ErrNoAnswer, within)
}

// Wait returns the result once the round is decided. With waitAll it also waits until every node has voted or the node
// deadline has passed. It gives up after l.Decide, when ctx is done, when l.Over is closed, or if the votes are split
// (see split.go). Then nodes without a vote have failed, unless ctx has ended the round. Wait is called once, and only
// if Prepare was told so.
func (r *Round) Wait(ctx context.Context, l Limits) Result {
	var start time.Time // only for linger
	if r.all != nil {
		start = time.Now()
	}
	t, done := r.timer, ctx.Done()
	t.start(r, l)
	if done == nil && l.Over == nil { // a select costs more
		<-t.decided
	} else {
		select {
		case <-t.decided:
		case <-done:
			t.stop()
			r.noteOpening(0)
			return r.cut(ctx)
		case <-l.Over:
			t.stop()
			r.noteOpening(l.Decide)
			return r.Result(NoAnswerWithin(l.Decide))
		}
	}
	r.set.timers.put(t)
	switch {
	case r.expired && r.final:
		return r.Result(errInTime)
	case r.expired && r.hastened:
		return r.Result(errSplit)
	case r.expired:
		return r.Result(NoAnswerWithin(l.Decide))
	case r.all == nil:
		return r.Result(nil)
	}
	return r.Result(r.linger(ctx, start, l))
}

// Waited is the cause of the end of a context that bounds how long a call waits for a lock.
type Waited struct{ For time.Duration }

func (w Waited) Error() string { return fmt.Sprintf("no lock within %v", w.For) }

// HasWaited reports whether ctx has ended with Waited.
func HasWaited(ctx context.Context) bool {
	_, is := context.Cause(ctx).(Waited) //nolint:errorlint // nobody wraps it
	return is
}

// cut returns the result of a round that ctx has ended. With Waited, nodes without a vote have failed: the caller is
// told no error of ctx.
func (r *Round) cut(ctx context.Context) Result {
	w, is := context.Cause(ctx).(Waited) //nolint:errorlint // nobody wraps it
	if !is {
		return r.Result(nil)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	undecided := !r.final
	res := r.resultLocked(fmt.Errorf("%w before the %v of WithWait were over", ErrNoAnswer, w.For), false)
	res.Cut = undecided
	return res
}

// linger waits for the other votes, until the node deadline. It returns the error of nodes without one, nil if nobody
// waited so long. A failed acquire, which keeps others from nodes, does not wait for late ones.
func (r *Round) linger(ctx context.Context, start time.Time, l Limits) error {
	took := time.Since(start)
	wait, silent := max(l.Node-took, r.connecting(l, took)), NoAnswerWithin(l.Node)
	if patience := r.set.known.late.patience(took); r.brief.Explain && !r.isWon() && patience < wait {
		wait, silent = patience, nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-r.all:
		return nil
	case <-timer.C:
		if silent != nil {
			r.noteOpening(l.Node)
		}
		return silent
	case <-ctx.Done():
	case <-l.Over:
	}
	return nil
}

// A Result is how a round has ended.
type Result struct {
	claim.Standing
	Split bool // given up early: see split.go
	Cut   bool // ended undecided by the caller's context
	Set   *Set // nil without a round
	Rule  claim.Rule
	Tally claim.Tally  // nil if votes are counted plainly
	Count claim.Count  // nodes waited for in vain have failed
	Taken claim.Nodes  // where another value is in the way; none if won
	Votes []claim.Vote // by node, Pending if not asked or waited for; nil if won
}

// Result closes the vote, and returns how the round has ended. silent is the error of nodes without a vote or an error
// of WaitFor. If it is nil, they have not failed.
func (r *Round) Result(silent error) Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return r.resultLocked(silent, false)
}

// SoFar is Result, but leaves the vote open.
func (r *Round) SoFar(silent error) Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resultLocked(silent, false)
}

// Votes returns the votes, also if the round was won, and leaves the vote open.
func (r *Round) Votes(silent error) []claim.Vote {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resultLocked(silent, true).Votes
}

func (r *Round) resultLocked(silent error, votes bool) Result {
	res := Result{Standing: r.proved, Set: r.set, Rule: r.Rule(), Tally: r.rare.tally, Count: r.count, Split: r.expired && r.hastened && !r.final}
	if res.Won && !votes {
		return res
	}
	undecided := !r.final
	res.Cut = undecided && silent == nil
	res.Votes = make([]claim.Vote, len(r.Ballots))
	for i := range r.Ballots {
		v := r.voteLocked(i)
		if v.Choice == claim.Pending {
			if v.Err == nil {
				v.Err = silent
			}
			if v.Err != nil {
				v.Choice = claim.Failed
			}
			if v.Err != nil && (undecided || r.expired) {
				res.Count = res.Count.With(i, claim.Failed)
			}
		}
		if v.Choice != claim.Granted && v.Taken() {
			res.Taken = res.Taken.With(i)
		}
		res.Votes[i] = v
	}
	if undecided && r.rare.tally == nil {
		res.Standing = r.Rule().Standing(res.Count)
	}
	if t, ok := r.rare.tally.(claim.LateTally); ok { // others have what the caller needed
		res.Taken |= t.Astray()
	}
	return res
}

// Ends returns how long it takes at most until a quorum is free of what is in the way. It reports false if too few
// nodes have said.
func (res Result) Ends(now clock.Instant) (left time.Duration, ok bool) {
	free := res.Rule.All() &^ res.Taken
	for i, v := range res.Votes {
		if d := v.Answer.Details(); res.Taken.Has(i) && d.Wait != claim.Never && d.At != 0 {
			free = free.With(i)
			left = max(left, d.At+d.Wait-now.Mono)
		}
	}
	return left, res.Taken != 0 && res.Rule.Quorum(free)
}

// NotFree reports whether something is in the way, and enough nodes for a quorum may be up.
func (res Result) NotFree() bool {
	return res.Taken != 0 && !res.Rule.Blocks(res.Count.Failed)
}

// IsTaken reports whether something else is in the way of every quorum.
func (res Result) IsTaken() bool { return res.Rule != nil && res.Rule.Blocks(res.Taken) }

// InTheWay returns the nodes on which another value or type of key is in the way.
func (res Result) InTheWay() (nodes claim.Nodes) {
	for i, v := range res.Votes {
		if v.InTheWay() {
			nodes = nodes.With(i)
		}
	}
	return nodes
}

var errTakenBack = errors.New("Close came before anything was sent")

// Recall takes back unsent requests: those of s's rounds, and those for which which returns true.
func (s *Set) Recall(which func(to wire.Receiver, i int) bool) {
	for _, n := range s.Nodes {
		if p, ok := n.Pool.(wire.Recalling); ok {
			p.Recall(func(to wire.Receiver, tag int) bool {
				r, is := to.(*Round)
				if twice, was := to.(*repeated); was {
					r, is = (*Round)(twice), true
				}
				return is && r.set == s || !is && which(to, tag)
			}, errTakenBack)
		}
	}
}
