package redsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file is one round: a command goes to all nodes at once, their votes come
// in, and as soon as the answer cannot change it is the answer. Every
// operation of every primitive is a round.

// A choice is what a vote comes to.
type choice uint8

const (
	pending choice = iota // no answer yet
	granted               // yes
	refused               // the node answered no
	failed                // an error, or no answer within the deadline
)

// A vote is one node's part in a round.
type vote struct {
	choice choice
	answer claim.Answer // what the node said; zero where it said nothing
	err    error        // why it is no grant, where that is not in the answer
}

// failure returns the vote of a node that has failed for err.
func failure(err error) vote { return vote{choice: failed, err: err} }

// read returns the vote that a reply to call is by itself.
func read(call claim.Call, reply pool.Reply) vote {
	if reply.Err != nil {
		return failure(reply.Err)
	}
	answer, err := call.Read(reply.Value)
	switch {
	case err != nil:
		return failure(err)
	case answer.Found == claim.Mine:
		return vote{choice: granted, answer: answer}
	}
	return vote{choice: refused, answer: answer}
}

// A tally counts the votes of n nodes. It is pure: no I/O, no time.
type tally struct {
	n                        int
	granted, refused, failed int
}

// quorumOf returns how many of n nodes a decision needs: any two quorums share
// a node.
func quorumOf(n int) int { return n/2 + 1 }

func (t *tally) add(v choice) {
	switch v {
	case granted:
		t.granted++
	case refused:
		t.refused++
	case failed:
		t.failed++
	}
}

// blocks reports whether k nodes that do not grant leave no quorum.
func (t tally) blocks(k int) bool { return k > t.n-quorumOf(t.n) }

// won reports whether a quorum granted.
func (t tally) won() bool { return t.granted >= quorumOf(t.n) }

// blocked reports whether a quorum can no longer grant.
func (t tally) blocked() bool { return t.blocks(t.refused + t.failed) }

// refuted reports whether the nodes prove that no quorum can say yes, whatever
// those say that did not answer.
func (t tally) refuted() bool { return t.blocks(t.refused) }

// decided reports whether the answer cannot change.
func (t tally) decided() bool { return t.won() || t.blocked() }

// explained reports whether it is clear why a round is blocked: a quorum has
// answered, so that refusals are to blame, or so many have failed that none can.
func (t tally) explained() bool {
	return t.granted+t.refused >= quorumOf(t.n) || t.blocks(t.failed)
}

func (t tally) complete() bool { return t.granted+t.refused+t.failed == t.n }

// An operation gives a round its meaning: what is sent, and what the nodes'
// replies say.
type operation interface {
	// brief returns what a round of the operation needs to know. It is called as each round
	// starts.
	brief() brief

	// judge returns what node i's reply counts as, which is v by itself. It is called for
	// every reply, also for those that come after the decision, from the goroutine of the
	// node's pool.
	judge(i int, reply pool.Reply, v vote) vote
}

// A brief is what a round knows of its operation.
type brief struct {
	call     claim.Call
	within   time.Duration // how long the operation waits for one node; 0 if that is not said
	explain  bool          // a round that is blocked waits until it is clear why: see isDecidedLocked
	witness  *witness      // told of every vote; nil without an observer
	watching *observers    // told of nodes that are down; nil without an observer
	purpose  purpose       // of call, in regard to the health of a node
}

// What only some operations do is an interface of its own, which a round finds by an assertion.

// A recorder keeps what commands may have left on the nodes. sending notes that a command
// is about to go to node i; unsent takes that back, because the pool refused it.
type recorder interface {
	sending(i int)
	unsent(i int)
}

// A gate closes while the round is open: once it does not stand, nothing more is sent.
type gate interface{ stands() bool }

// A winner acts at the moment when a quorum has granted, before anybody else is told. The
// round is locked.
type winner interface{ onWon() }

// A round is one command on its way to all nodes, and their votes.
type round struct {
	core    *core
	op      operation
	brief   brief         // of op
	then    decider       // told of the decision: a *sleeper, where somebody waits
	waitAll bool          // after the decision, wait for the other nodes (WithFailFast(false))
	all     chan struct{} // closed when every node has voted, with waitAll

	// mu protects what follows. Who has been told of the decision may read expired
	// without it.
	mu      sync.Mutex
	closed  bool // later votes do not count
	expired bool // the deadline came before the decision
	tally   tally
	votes   []ballot
	spare   [usualNodes]ballot // room for votes
}

// usualNodes is the number of nodes that most have. What is kept by node has room for
// so many beside it, which saves an allocation.
const usualNodes = 5

// A decider goes on when the answer of a round cannot change, or at its deadline.
// notifyDecided is called once, with the round locked: it must not block, nor use the
// round.
type decider interface{ notifyDecided() }

// nobody is the decider of a round that is not awaited.
type nobody struct{}

func (nobody) notifyDecided() {}

// A ballot is what a round keeps of a node's vote.
type ballot struct {
	by     *pool.Server // who voted, if known
	err    error        // as in vote; of a vote that is still to come, see waitFor
	choice choice
	found  claim.Found
	full   bool // the script was sent in full
	heard  bool // the node's answer has come, in time or not
}

// prepare makes r, which is zero, take the votes of c's nodes.
func (r *round) prepare(c *core, waitAll bool, then decider) {
	r.core, r.waitAll, r.then = c, waitAll, then
	r.tally.n = len(c.nodes)
	r.votes = room(r.spare[:], len(c.nodes))
	if waitAll {
		r.all = make(chan struct{})
	}
}

// room returns n zero elements: of spare, which is zero, if it has as many.
func room[T any](spare []T, n int) []T {
	if n <= len(spare) {
		return spare[:n]
	}
	return make([]T, n)
}

// startRound sends op's command to all nodes. It does not wait: Send never does.
func startRound(c *core, op operation, waitAll bool) *round {
	r := &round{}
	r.prepare(c, waitAll, c.sleepers.get(r))
	r.start(op)
	return r
}

func (r *round) start(op operation) {
	r.op, r.brief = op, op.brief()
	r.brief.call.Command.WithRESP(func(resp []byte) {
		for i := range r.core.nodes {
			if err := r.send(i, r.brief.call.Command.Args, resp); err != nil {
				r.refuse(i, err)
			}
		}
	})
}

func (r *round) send(i int, args []any, resp []byte) error {
	record, records := r.op.(recorder)
	if records {
		record.sending(i)
	}
	err := r.core.nodes[i].Send(pool.Request{Args: args, RESP: resp, Within: r.brief.within, To: r, Tag: i})
	if err != nil && records {
		record.unsent(i)
	}
	return err
}

// Receive takes a node's reply.
func (r *round) Receive(i int, reply pool.Reply) {
	r.core.meet(i, reply.Server)
	v := r.op.judge(i, reply, read(r.brief.call, reply))
	if pool.IsNoScript(reply.Err) {
		sent, refusal := r.resend(i)
		if sent {
			return
		}
		if refusal != nil {
			v.err = refusal
		}
	}
	r.vote(i, v, reply.Server)
}

// resend sends the script in full to node i, which does not have it and ran
// nothing: once, and only while the vote is open. After that the value may have
// been released, and nothing that can set it may follow. r.mu is held while
// sending, because closing the vote takes it.
func (r *round) resend(i int) (sent bool, refusal error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g, ok := r.op.(gate); r.closed || r.votes[i].full || ok && !g.stands() {
		return false, nil
	}
	r.votes[i].full = true
	refusal = r.send(i, r.brief.call.Command.InFull(), nil)
	return refusal == nil, refusal
}

// vote counts node i's vote, which a server process gave, if one did and it is
// known, and lets the observer see it.
func (r *round) vote(i int, v vote, by *pool.Server) {
	r.watch(i, r.cast(i, v, by))
}

// cast is vote for what says nothing of the node at this moment. It returns the vote as it
// counts.
func (r *round) cast(i int, v vote, by *pool.Server) vote {
	first, late, v := r.count(i, v, by)
	if r.brief.witness != nil && first {
		r.brief.witness.saw(i, late, r.core.nodes[i].explain(v))
	}
	return v
}

// refuse counts that the pool of node i refused to send. The observer sees it later: this
// is the goroutine of a caller, which must go on to the other nodes whatever an observer
// does.
func (r *round) refuse(i int, err error) {
	first, late, v := r.count(i, failure(err), nil)
	if w := r.brief.witness; w != nil && first {
		r.core.notices.Add(w.to, func() { w.saw(i, late, r.core.nodes[i].explain(v)) })
	}
	r.watch(i, v)
}

// count counts node i's vote. The one that decides closes the vote, unless the
// others are to be heard as well. It reports whether it is the node's first
// answer, whether it came too late to count, and what it counts as.
func (r *round) count(i int, v vote, by *pool.Server) (first, late bool, as vote) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &r.votes[i]
	first, b.heard = !b.heard, true
	if r.closed || b.choice != pending {
		return first, true, v
	}
	before := r.isDecidedLocked()
	if v.choice == granted && r.hasGrantedLocked(by) {
		v = failure(ErrDuplicateNode)
	}
	b.choice, b.found, b.err, b.by = v.choice, v.answer.Found, v.err, by
	r.tally.add(v.choice)
	if !before && r.isDecidedLocked() {
		r.closed = !r.waitAll
		r.decideLocked()
	}
	if r.waitAll && r.tally.complete() {
		close(r.all)
	}
	return first, false, v
}

// waitFor notes that node i's vote is still to come, and err, which stands for it if it
// does not come in time.
func (r *round) waitFor(i int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := &r.votes[i]; b.choice == pending {
		b.err = err
	}
}

// waitsFor returns what waitFor has noted of node i.
func (r *round) waitsFor(i int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.votes[i].err
}

// hasGrantedLocked reports whether a server has granted already, as another node.
func (r *round) hasGrantedLocked(by *pool.Server) bool {
	for _, b := range r.votes {
		if b.choice == granted && sameServer(b.by, by) {
			return true
		}
	}
	return false
}

// decideLocked makes a won round take effect, and tells that the round is decided, or that
// its deadline has come.
func (r *round) decideLocked() {
	if w, ok := r.op.(winner); ok && r.tally.won() {
		w.onWon()
	}
	r.then.notifyDecided()
}

// isDecidedLocked reports whether the answer can be given. An acquire
// also says why it is blocked: a taken lock is something else than nodes that are
// down, and dead nodes fail faster than live ones refuse. It waits for the reason
// while fewer than a quorum have answered, at most for the node deadline. What it
// does then does not depend on the reason, so safety does not either.
func (r *round) isDecidedLocked() bool {
	return r.tally.decided() && (r.tally.won() || !r.brief.explain || r.tally.explained())
}

// Why a node has no vote.
var (
	errNoAnswer   = errors.New("no answer")
	errNotAwaited = errors.New("no answer before the others had decided")
	errAbandoned  = errors.New("the hold ended meanwhile")
)

// An unheard is why a node has no vote in a round whose caller gave it up. It matches why.
// Its text does not say that: the operation does, once.
type unheard struct{ why error }

func (*unheard) Error() string   { return errNoAnswer.Error() }
func (e *unheard) Unwrap() error { return e.why }

// bounds say how long a round may take.
type bounds struct {
	decide time.Duration   // until it is given up undecided
	node   time.Duration   // the node deadline
	over   <-chan struct{} // gives it up when it is closed; may be nil
}

// wait returns the result once the round is decided and, with waitAll, every
// node has voted or its deadline has passed; or once it is given up: after
// b.decide, when ctx is done, or when b.over is closed. In a round that is given
// up the nodes that have not voted have failed. It is called once, where then is a
// *sleeper.
//
// It does not watch core.closing: one channel in the select of every round is one
// lock for all. Close ends each hold, which closes b.over; a round without b.over
// runs to its deadline.
func (r *round) wait(ctx context.Context, b bounds) result {
	var start time.Time // for linger alone: the clock is not free
	if r.waitAll {
		start = time.Now()
	}
	s := r.then.(*sleeper)
	s.start(b.decide)
	select {
	case <-s.decided:
		r.core.sleepers.put(s)
		if r.expired {
			return r.result(fmt.Errorf("%w within %v", errNoAnswer, b.decide))
		}
		return r.result(r.linger(ctx, start, b))
	case <-ctx.Done():
		s.stop()
		return r.result(&unheard{context.Cause(ctx)})
	case <-b.over:
		s.stop()
		return r.result(errAbandoned)
	}
}

// A sleeper is what it takes to wait for a round. It is used again, and its timer is left
// alone for as long as it fires early enough: most rounds end long before their deadline.
type sleeper struct {
	decided chan struct{} // has room for one: the round is decided, or its deadline has come

	mu       sync.Mutex
	round    *round    // nil while it is not used
	deadline time.Time // of the round; zero until it is waited for
	timer    *time.Timer
	fires    time.Time // when timer does; zero when it is not running
}

func (s *sleeper) notifyDecided() { s.decided <- struct{}{} }

// start sets the deadline of the round.
func (s *sleeper) start(after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = time.Now().Add(after)
	if s.fires.IsZero() || s.deadline.Before(s.fires) {
		s.armLocked(after)
	}
}

func (s *sleeper) armLocked(after time.Duration) {
	s.fires = s.deadline
	if s.timer == nil {
		s.timer = time.AfterFunc(after, s.fire)
		return
	}
	s.timer.Reset(after)
}

// stop ends the life of a sleeper that may be told of its round still. Its timer would keep the
// round until a deadline that may be hours away.
func (s *sleeper) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer.Stop()
	s.round = nil
}

// fire gives up the round if its deadline has come.
func (s *sleeper) fire() {
	if r := s.due(); r != nil {
		r.expire()
	}
}

// due returns the round if its deadline has come. Else the timer goes on.
func (s *sleeper) due() *round {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fires = time.Time{}
	if s.round == nil || s.deadline.IsZero() {
		return nil
	}
	if left := time.Until(s.deadline); left > 0 {
		s.armLocked(left)
		return nil
	}
	return s.round
}

// sleepers are those that can be used again.
type sleepers struct{ sync.Pool }

// get returns a sleeper for r.
func (ss *sleepers) get(r *round) *sleeper {
	s, ok := ss.Get().(*sleeper)
	if !ok {
		s = &sleeper{decided: make(chan struct{}, 1)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.round, s.deadline = r, time.Time{}
	return s
}

// put takes back a sleeper that has been told of its round, which tells it nothing more.
func (ss *sleepers) put(s *sleeper) {
	s.mu.Lock()
	s.round = nil
	s.mu.Unlock()
	ss.Put(s)
}

// expire gives up the round at its deadline.
func (r *round) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isDecidedLocked() {
		r.expired = true
		r.closed = true
		r.decideLocked()
	}
}

// isDecided reports whether the answer can be given.
func (r *round) isDecided() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isDecidedLocked()
}

// close lets no later vote count, and nothing more be sent for the round.
func (r *round) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// linger waits for the votes that the decision did not need, until the node
// deadline, and returns why one may be missing.
func (r *round) linger(ctx context.Context, start time.Time, b bounds) error {
	if !r.waitAll {
		return errNotAwaited
	}
	timer := time.NewTimer(b.node - time.Since(start))
	defer timer.Stop()
	select {
	case <-r.all:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w within %v", errNoAnswer, b.node)
	case <-ctx.Done():
		return &unheard{context.Cause(ctx)}
	case <-b.over:
		return errAbandoned
	}
}

// A result is what a round came to.
type result struct {
	tally tally
	taken []int   // nodes that hold another value; nil if it is won
	errs  []error // one per node that did not grant; nil if it is won
}

// result closes the vote. In an undecided round the nodes without a vote have
// failed; silent says why there is none.
func (r *round) result(silent error) result {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return r.resultLocked(silent)
}

// soFar returns what result would, and leaves the vote open.
func (r *round) soFar(silent error) result {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resultLocked(silent)
}

func (r *round) resultLocked(silent error) result {
	res := result{tally: r.tally}
	if r.tally.won() {
		return res // nobody asks about the others
	}
	undecided := !r.isDecidedLocked()
	for i, b := range r.votes {
		v := vote{choice: b.choice, answer: claim.Answer{Found: b.found}, err: b.err}
		switch {
		case b.choice == granted:
			continue
		case b.choice == pending:
			if undecided {
				res.tally.add(failed)
			}
			v = failure(cmp.Or(b.err, silent)) // see waitFor
		}
		if v.taken() {
			res.taken = append(res.taken, i)
		}
		res.errs = append(res.errs, r.core.nodes[i].explain(v))
	}
	return res
}

// err returns why the round did not grant: *ErrTaken when the nodes prove that
// another value holds the lock, else an entry for each node.
func (res result) err() error {
	if res.tally.blocks(len(res.taken)) {
		return &ErrTaken{Nodes: res.taken}
	}
	return nodeErrors(res.errs)
}

// notAcquired returns why an acquire did not win, which is explained: *ErrTaken
// when a quorum of nodes is there but not free, with the errors of those that
// failed beside it; else an entry for each node.
func (res result) notAcquired() error {
	if len(res.taken) == 0 || res.tally.blocks(res.tally.failed) {
		return nodeErrors(res.errs)
	}
	of := &errorsOfNodes{}
	for _, err := range res.errs {
		if errors.Is(err, errNotAwaited) {
			continue
		}
		of.all = append(of.all, err)
		if node := (*RedisError)(nil); errors.As(err, &node) { // the others are in ErrTaken
			of.told = append(of.told, err)
		}
	}
	if len(of.told) == 0 {
		return &ErrTaken{Nodes: res.taken}
	}
	return because(&ErrTaken{Nodes: res.taken}, of)
}
