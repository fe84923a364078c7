package redsync

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/queue"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file has the rules of a quorum: how an answer counts, what votes prove, and which errors
// votes become. It is pure: no I/O, no time. internal/quorum asks the nodes and obeys these rules.

// quorumOf returns how many of n nodes a decision needs: more than half, so that any two quorums share a node.
func quorumOf(n int) int { return n/2 + 1 }

// A majority decides in one set of independent nodes: more than half of them. A set without nodes needs none.
type majority struct{ nodes claim.Nodes }

func (m majority) quorum(nodes claim.Nodes) bool {
	return m.nodes == 0 || (nodes&m.nodes).Len() >= quorumOf(m.nodes.Len())
}

func (m majority) blocks(nodes claim.Nodes) bool { return !m.quorum(m.nodes &^ nodes) }

// tooFew says why so many answers decide nothing. It is for errors.
func (m majority) tooFew(c claim.Count) string {
	n := m.nodes.Len()
	switch {
	case m.blocks(c.Failed) && n == 1:
		return onlyFailed
	case m.blocks(c.Failed):
		return fmt.Sprintf("%d of %d nodes failed, %d needed", (c.Failed & m.nodes).Len(), n, quorumOf(n))
	case !m.quorum(c.Answered()):
		return m.enough(c.Answered(), false)
	case n == 1:
		return onlyAnswered + ", which decides nothing"
	}
	return fmt.Sprintf("%d of %d nodes answered, which decides nothing", (c.Answered() & m.nodes).Len(), n)
}

// These are what texts say of a set of one node. A count would say no more.
const (
	onlyFailed   = "the only node failed"
	onlyAnswered = "the only node answered"
	onlySilent   = "the only node has not answered"
)

// enough says how many nodes of m have answered, and how many answers m needs. over means that the others have failed,
// and may no longer answer. It is for errors.
func (m majority) enough(answered claim.Nodes, over bool) string {
	switch n := m.nodes.Len(); {
	case n != 1:
		return fmt.Sprintf("%s nodes answered, %d needed", m.answer(answered), quorumOf(n))
	case m.quorum(answered):
		return onlyAnswered
	case over:
		return onlyFailed
	}
	return onlySilent
}

// answer says how many of m's nodes have answered. It is for errors and the log.
func (m majority) answer(answered claim.Nodes) string {
	return fmt.Sprintf("%d of %d", (answered & m.nodes).Len(), m.nodes.Len())
}

// spare returns how many of these nodes may fail until m has no quorum.
func (m majority) spare(answered claim.Nodes) int {
	return max(0, (answered&m.nodes).Len()-quorumOf(m.nodes.Len()))
}

// asOne returns m with node a in the place of node b, if m has b.
func (m majority) asOne(a, b int) majority {
	if !m.nodes.Has(b) {
		return m
	}
	return majority{m.nodes.Without(b).With(a)}
}

// A form says which nodes are a quorum: more than half of each of its sets. Usually it has one set. While the nodes are
// changed it has two, the one before the change and the one after it, and a node that is in both counts in both. So every
// quorum of the two shares a node with every quorum of the set before, and with every quorum of the set after.
type form struct{ before, after majority } // after has no nodes if there is one set

// formOf returns the form of one set of n nodes.
func formOf(n int) form { return form{before: majority{claim.FirstNodes(n)}} }

// All implements claim.Rule.
func (f form) All() claim.Nodes { return f.before.nodes | f.after.nodes }

// Quorum implements claim.Rule.
func (f form) Quorum(nodes claim.Nodes) bool {
	return f.before.quorum(nodes) && f.after.quorum(nodes)
}

// Blocks implements claim.Rule.
func (f form) Blocks(nodes claim.Nodes) bool { return !f.Quorum(f.All() &^ nodes) }

// Counts implements claim.Rule. A node grants if it has the claim. It does not grant if this very command has set a
// missing key again (claim.Created), because that key proves nothing about the time before the command.
func (form) Counts(a claim.Answer) claim.Choice {
	if a.Found == claim.Mine {
		return claim.Granted
	}
	return claim.Refused
}

// Standing implements claim.Rule.
func (f form) Standing(c claim.Count) claim.Standing {
	return claim.Standing{
		Won:      f.Quorum(c.Granted),
		Blocked:  f.Blocks(c.Refused | c.Failed),
		Rejected: f.Blocks(c.Refused),
		// If a quorum has answered, refusals are the reason. If so many nodes have failed that no
		// quorum can answer, the failures are the reason.
		Explained: f.Quorum(c.Granted|c.Refused) || f.Blocks(c.Failed),
	}
}

// Sets implements claim.Rule.
func (f form) Sets(i int) (in claim.Sets) {
	if f.before.nodes.Has(i) {
		in |= 1
	}
	if f.after.nodes.Has(i) {
		in |= 2
	}
	return in
}

// AsOne implements claim.Rule.
func (f form) AsOne(a, b int) claim.Rule { return form{f.before.asOne(a, b), f.after.asOne(a, b)} }

// isJoint reports whether f has two sets.
func (f form) isJoint() bool { return f.after.nodes != 0 }

// tooFew says why so many answers decide nothing: it names the set that has no quorum, or both.
func (f form) tooFew(c claim.Count) string {
	if !f.isJoint() {
		return f.before.tooFew(c)
	}
	switch lacksBefore, lacksAfter := f.before.blocks(c.Failed), f.after.blocks(c.Failed); {
	case lacksBefore && !lacksAfter:
		return "before: " + f.before.tooFew(c)
	case lacksAfter && !lacksBefore:
		return "after: " + f.after.tooFew(c)
	}
	return f.each(func(m majority) string { return m.tooFew(c) })
}

// each returns what say says of each set.
func (f form) each(say func(majority) string) string {
	if !f.isJoint() {
		return say(f.before)
	}
	return "before: " + say(f.before) + "; after: " + say(f.after)
}

func (f form) enough(answered claim.Nodes, over bool) string {
	return f.each(func(m majority) string { return m.enough(answered, over) })
}

func (f form) answer(answered claim.Nodes) string {
	return f.each(func(m majority) string { return m.answer(answered) })
}

// spare returns how many of these nodes may fail until f has no quorum.
func (f form) spare(answered claim.Nodes) int {
	if !f.isJoint() {
		return f.before.spare(answered)
	}
	return min(f.before.spare(answered), f.after.spare(answered))
}

var (
	// errWaiting is the reason of a Lock that asked no node, because other waiters of this process were ahead of it.
	errWaiting = errors.New("redsync: others of this process wait for it")

	// errTooLate is the reason of a Lock whose attempt has won, but whose validity had passed.
	errTooLate = &said{ErrNoQuorum, "too few nodes answered in time: the lock had expired before Lock could return it"}
)

// verdict returns what an attempt with the outcome o proves about the lock of a Mutex, nil if it has won or was not made.
// name and lines are those of the Mutex: o may be of another call in the same line.
func verdict(name string, lines []string, o lease.Outcome) error {
	if o.Told != nil && !o.IsUnopened() {
		return o.Told // the very error that observers were told, not a new one with the same text
	}
	switch o.Kind {
	case lease.Waiting:
		return fail("", "", ErrFailed, errWaiting)
	case lease.NotWon:
		return notAcquired(name, lines, o)
	case lease.Late:
		return &said{errTooLate, fmt.Sprintf("too few nodes answered in time: the lock would have been valid for %v", o.Validity)}
	case lease.Duplicates:
		return duplicateFound(o.Duplicate)
	case lease.Unusable:
		return o.Err
	case lease.NotAsked, lease.Won:
	}
	return nil
}

// notAcquired returns why an attempt did not win: contention if a quorum has answered, otherwise ErrNoQuorum. The errors
// of the nodes come with either. For name and lines see verdict.
func notAcquired(name string, lines []string, o lease.Outcome) error {
	f := &failure{nodes: errorsOf(o.Result)}
	if o.IsUnopened() {
		return f // the caller's context is the reason
	}
	if !o.Heard() {
		f.causes = []error{noQuorum(o.Result)}
		return f
	}
	refused := o.Result.Taken | o.Result.Count.Refused
	f.causes = []error{ErrFailed, &ErrTaken{Nodes: indices(refused), Name: notFree(name, lines, o)}}
	return f
}

// notFree returns the name of a lock that was not acquired. Of several names, which are the lines, it returns the first
// that was not free, or one that both calls want if another call has made the attempt.
func notFree(name string, lines []string, o lease.Outcome) string {
	if len(lines) == 1 {
		return name
	}
	name = o.Lines[queue.KeptBackBy(o)]
	if !slices.Contains(lines, name) {
		name = lines[max(0, slices.IndexFunc(lines, func(own string) bool { return slices.Contains(o.Lines, own) }))]
	}
	return name
}

// unconfirmed returns why a round about a lock that is held did not win: *ErrTaken if so many nodes hold another value
// that no quorum is left, or ErrNoQuorum if the nodes that have failed could have changed that. The errors of the nodes
// come with either. A round that its context has cut proves nothing.
func unconfirmed(name string, res quorum.Result) error {
	if res.Rule == nil { // there was no round
		return nil
	}
	f := &failure{nodes: errorsOf(res)}
	switch {
	case res.IsTaken():
		f.causes = []error{&ErrTaken{Nodes: indices(res.Taken), Name: name}}
	case !res.Won && !res.Rejected && !res.Cut:
		f.causes = []error{noQuorum(res)}
	}
	return fail("", "", f)
}

// deniedBy returns the error of a campaign that the nodes deny: ErrNoQuorum, and one error for each of them.
func deniedBy(set *quorum.Set, votes []claim.Vote) error {
	res := quorum.Result{Set: set, Rule: set.Rule(), Votes: votes}
	for i, v := range votes {
		res.Count = res.Count.With(i, v.Choice)
	}
	return unconfirmed("", res)
}

// noQuorum returns ErrNoQuorum with the count of the nodes.
func noQuorum(res quorum.Result) error {
	text := res.Rule.(form).tooFew(res.Count)
	why := ErrNoQuorum
	failing := func(so func(error) bool) (nodes claim.Nodes) {
		for i, v := range res.Votes {
			if v.Choice == claim.Failed && so(v.Err) {
				nodes = nodes.With(i)
			}
		}
		return nodes
	}
	permanent := failing(pool.IsPermanent)
	text += lasting(res.Rule, permanent)
	switch {
	case res.Rule.Blocks(failing(wire.IsWrongType)):
		why = errForeign
	case res.Rule.Blocks(failing(quorum.IsNameDenied)):
		why = errNameDenied
	case res.Rule.Blocks(failing(quorum.IsDenial)):
		why = errDenied
	}
	return &said{why, text}
}

// errForeign is the ErrNoQuorum of an operation to which keys of another type leave no quorum. The nodes are up.
var errForeign = &said{ErrNoQuorum, "too few nodes answered in time"}

// These are the ErrNoQuorum of an operation to which answers leave no quorum. errNameDenied: so many nodes deny the name of
// the lock. errDenied: so many deny the operation. Other locks, or other operations, may be allowed.
var (
	errNameDenied = &said{ErrNoQuorum, "too few nodes answered in time"}
	errDenied     = &said{ErrNoQuorum, "too few nodes answered in time"}
)

// lasting returns what to add to the text of an error if the nodes that deny access leave no quorum.
func lasting(rule claim.Rule, denying claim.Nodes) string {
	if rule.Blocks(denying) {
		return "; this will not pass by itself"
	}
	return ""
}

// indices returns the indices of nodes, in ascending order.
func indices(nodes claim.Nodes) []int {
	list := make([]int, 0, nodes.Len())
	for i := range claim.MaxNodes {
		if nodes.Has(i) {
			list = append(list, i)
		}
	}
	return list
}

// errorsOf returns one error for each node that refused or failed. A node that nobody waited for has none.
func errorsOf(res quorum.Result) []error {
	errs := make([]error, 0, (res.Count.Refused | res.Count.Failed).Len())
	for i, v := range res.Votes {
		if v.Choice != claim.Granted && v.Choice != claim.Pending {
			errs = append(errs, explain(res.Set.Nodes[i], v))
		}
	}
	return errs
}

// explain returns why n's vote is not a grant, nil if it is one.
func explain(n *quorum.Node, v claim.Vote) error {
	switch {
	case v.Choice == claim.Granted:
		return nil
	case v.Taken():
		return &ErrNodeTaken{Node: n.Index, Address: n.Address()}
	case v.Err == nil:
		part := v.Answer.Found == claim.PartMissing || v.Answer.Found == claim.PartCreated
		return &nodeMissing{node: n.Index, address: n.Address(), part: part}
	}
	return nodeError(n.Index, n.Address(), v.Err)
}

// nodeError returns the error of node i, which has failed because of err.
func nodeError(i int, address string, err error) *RedisError {
	if wire.IsWrongType(err) {
		is := script.WrongTypeIn(err.Error())
		err = &ErrWrongType{Key: is.Key, Type: is.Type, Node: i, Address: address, answer: err}
	}
	return &RedisError{Node: i, Address: address, Err: err}
}

// nodeMissing is one node's answer that it holds no such key, or that it does not hold all keys of a lock on
// several names. It does not match ErrLockAlreadyExpired, because one node proves nothing.
type nodeMissing struct {
	node    int
	address string
	part    bool // of a lock on several names; the node does not say which of its keys are missing
}

func (e *nodeMissing) Error() string {
	if e.part {
		return nodeName(e.node, e.address) + ": not all keys of the lock were there"
	}
	return nodeName(e.node, e.address) + ": no such key"
}

// duplicateError returns ErrDuplicateNode with the two nodes that are one server.
func duplicateError(a int, addressA string, b int, addressB string) error {
	if addressA == addressB {
		return &said{ErrDuplicateNode, fmt.Sprintf("nodes #%d and #%d are one server (%s)", a, b, addressA)}
	}
	return &said{ErrDuplicateNode, oneServer(a, addressA, b, addressB)}
}

// ifTwo is what to do if two nodes have one run_id, but are two servers.
const ifTwo = ". They have one run_id: if they are two servers, use pool.WithoutIdentity (in the command: --no-identity)"

// duplicateFound returns ErrDuplicateNode with the two nodes whose answers have shown that they are one server.
func duplicateFound(d *quorum.Duplicate) error {
	a, b := d.A.Address(), d.B.Address()
	if a == b {
		return duplicateError(d.A.Index, a, d.B.Index, b)
	}
	return &said{ErrDuplicateNode, oneServer(d.A.Index, a, d.B.Index, b) + ifTwo}
}

// oneServer says that two nodes are one server.
func oneServer(a int, addressA string, b int, addressB string) string {
	return fmt.Sprintf("nodes #%d (%s) and #%d (%s) are one server", a, addressA, b, addressB)
}

// ends are the errors for the ends of a lease.
var ends = lease.Errors{
	NotHeld:  ErrNotHeld,
	Expired:  ErrLockAlreadyExpired,
	MaxHold:  fail("", "", ErrLockAlreadyExpired, ErrMaxHold),
	Spent:    fail("", "", ErrExtendFailed, ErrMaxHold),
	Closed:   ErrClosed,
	Failed:   errAbandoned,
	Lost:     asLost,
	Rejected: func(name string, res quorum.Result) error { return lost(unconfirmed(name, res)) },
	Forced:   func() error { return lost(ErrForced) },
	Severed:  func(res quorum.Result) error { return fail("", "", ErrLockLost, &failure{nodes: errorsOf(res)}) },
}

// errAbandoned ends a hold that has not reached its caller, because a function of the user's has panicked.
var errAbandoned = errors.New("redsync: the call that acquired it has panicked")

// asLost returns the error of a hold that was lost because of cause. missed is the last extension by the watchdog that
// was not confirmed, nil if there is none.
func asLost(cause error, missed *quorum.Result) error {
	switch {
	case errors.Is(cause, ErrLockLost):
		return cause
	case missed != nil && cause == ErrLockAlreadyExpired: //nolint:errorlint // a sentinel
		return ranOut(cause, *missed)
	}
	return fail("", "", ErrLockLost, cause)
}

// ranOut returns the error of a hold whose time is up because nodes did not answer: over says that its time is up, and
// res has what they said.
func ranOut(over error, res quorum.Result) error {
	nodes := errorsOf(res)
	if over == ErrLockAlreadyExpired && len(nodes) > 0 { //nolint:errorlint // a sentinel
		over = &said{over, "it has expired"} // errors of nodes would otherwise replace this text
	}
	return fail("", "", ErrLockLost, over, &failure{nodes: nodes})
}

// lost returns the error of a hold that was found to be over.
func lost(why error) error {
	return fail("", "", ErrLockLost, ErrLockAlreadyExpired, why)
}
