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

// This file has the rules of a quorum, as pure functions.

// quorumOf returns how many of n nodes a decision needs: any two quorums share a node.
func quorumOf(n int) int { return n/2 + 1 }

// A majority decides in one set of nodes. A set without nodes needs none.
type majority struct{ nodes claim.Nodes }

func (m majority) quorum(nodes claim.Nodes) bool {
	return m.nodes == 0 || (nodes&m.nodes).Len() >= quorumOf(m.nodes.Len())
}

func (m majority) blocks(nodes claim.Nodes) bool { return !m.quorum(m.nodes &^ nodes) }

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

// These are for a set of one node: a count would say no more.
const (
	onlyFailed   = "the only node failed"
	onlyAnswered = "the only node answered"
	onlySilent   = "the only node has not answered"
)

// enough says how many nodes have answered and how many must. over: no more can.
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

func (m majority) answer(answered claim.Nodes) string {
	return fmt.Sprintf("%d of %d", (answered & m.nodes).Len(), m.nodes.Len())
}

func (m majority) spare(answered claim.Nodes) int {
	return max(0, (answered&m.nodes).Len()-quorumOf(m.nodes.Len()))
}

// A form says which nodes are a quorum: more than half of each of its sets. It has two while the nodes are changed, so
// that any quorum shares a node with every quorum of either set. A node in both counts in both. It implements
// claim.Rule.
type form struct{ before, after majority } // after has no nodes if there is one set

func formOf(n int) form { return form{before: majority{claim.FirstNodes(n)}} }

func (f form) All() claim.Nodes { return f.before.nodes | f.after.nodes }

func (f form) Quorum(nodes claim.Nodes) bool {
	return f.before.quorum(nodes) && f.after.quorum(nodes)
}

func (f form) Blocks(nodes claim.Nodes) bool { return !f.Quorum(f.All() &^ nodes) }

// Counts grants if the node has the claim. A key that this command has set again proves nothing about the time before.
func (form) Counts(a claim.Answer) claim.Choice {
	if a.Found == claim.Mine {
		return claim.Granted
	}
	return claim.Refused
}

func (f form) Standing(c claim.Count) claim.Standing {
	won := f.Quorum(c.Granted)
	if c.Refused|c.Failed == 0 { // usually
		return claim.Standing{Won: won, Explained: won}
	}
	return claim.Standing{
		Won:      won,
		Blocked:  f.Blocks(c.Refused | c.Failed),
		Rejected: f.Blocks(c.Refused),
		// Refusals are the reason if a quorum has answered, failures if they leave none.
		Explained: f.Quorum(c.Granted|c.Refused) || f.Blocks(c.Failed),
	}
}

func (f form) Sets(i int) (in claim.Sets) {
	if f.before.nodes.Has(i) {
		in |= 1
	}
	if f.after.nodes.Has(i) {
		in |= 2
	}
	return in
}

func (f form) isJoint() bool { return f.after.nodes != 0 }

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

func (f form) spare(answered claim.Nodes) int {
	if !f.isJoint() {
		return f.before.spare(answered)
	}
	return min(f.before.spare(answered), f.after.spare(answered))
}

var (
	// errWaiting is for a Lock that asked no node, because other waiters of this process were ahead.
	errWaiting = errors.New("redsync: others of this process wait for it")

	// errTooLate is for an attempt that has won, but whose validity had passed.
	errTooLate = &said{ErrNoQuorum, "too few nodes answered in time: the lock had expired before Lock could return it"}
)

// verdict returns what an attempt with the outcome o proves, nil if it has won. name and lines are of the Mutex, o may
// be of another call in its line.
func verdict(name string, lines []string, o lease.Outcome) error {
	if o.Told != nil && !o.IsUnopened() {
		return o.Told // observers were told this very error
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

func notAcquired(name string, lines []string, o lease.Outcome) error {
	f := &failure{nodes: errorsOf(o.Result)}
	if o.IsUnopened() {
		return f // the context is the reason
	}
	if !o.Heard() {
		f.causes = []error{noQuorum(o.Result)}
		return f
	}
	refused := o.Result.Taken | o.Result.Count.Refused
	f.causes = []error{ErrFailed, &ErrTaken{Nodes: indices(refused), Name: notFree(name, lines, o)}}
	return f
}

// notFree returns the name that was not free: the first of several, or if the attempt is another call's, one that both
// want.
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

// unconfirmed returns why a round about a held lock did not win: *ErrTaken if values of others leave no quorum, or
// ErrNoQuorum if failed nodes could have changed that. A cut round proves nothing.
func unconfirmed(name string, res quorum.Result) error {
	if res.Rule == nil {
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

func deniedBy(set *quorum.Set, votes []claim.Vote) error {
	res := quorum.Result{Set: set, Rule: set.Rule(), Votes: votes}
	for i, v := range votes {
		res.Count = res.Count.With(i, v.Choice)
	}
	return unconfirmed("", res)
}

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

// errForeign is for nodes that are up, but have keys of another type.
var errForeign = &said{ErrNoQuorum, "too few nodes answered in time"}

// For nodes that deny the name of the lock, or the operation: others may be allowed.
var (
	errNameDenied = &said{ErrNoQuorum, "too few nodes answered in time"}
	errDenied     = &said{ErrNoQuorum, "too few nodes answered in time"}
)

func lasting(rule claim.Rule, denying claim.Nodes) string {
	if rule.Blocks(denying) {
		return "; this will not pass by itself"
	}
	return ""
}

func indices(nodes claim.Nodes) []int {
	list := make([]int, 0, nodes.Len())
	for i := range claim.MaxNodes {
		if nodes.Has(i) {
			list = append(list, i)
		}
	}
	return list
}

func errorsOf(res quorum.Result) []error {
	errs := make([]error, 0, (res.Count.Refused | res.Count.Failed).Len())
	for i, v := range res.Votes {
		if v.Choice != claim.Granted && v.Choice != claim.Pending {
			errs = append(errs, explain(res.Set.Nodes[i], v))
		}
	}
	return errs
}

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

func nodeError(i int, address string, err error) *RedisError {
	if wire.IsWrongType(err) {
		is := script.WrongTypeIn(err.Error())
		err = &ErrWrongType{Key: is.Key, Type: is.Type, Node: i, Address: address, answer: err}
	}
	return &RedisError{Node: i, Address: address, Err: err}
}

// nodeMissing is one node's answer that it lacks the key, or one of several. It does not match ErrLockAlreadyExpired:
// one node proves nothing.
type nodeMissing struct {
	node    int
	address string
	part    bool // it does not say which
}

func (e *nodeMissing) Error() string {
	if e.part {
		return nodeName(e.node, e.address) + ": not all keys of the lock were there"
	}
	return nodeName(e.node, e.address) + ": no such key"
}

func duplicateError(a int, addressA string, b int, addressB string) error {
	if addressA == addressB {
		return &said{ErrDuplicateNode, fmt.Sprintf("nodes #%d and #%d are one server (%s)", a, b, addressA)}
	}
	return &said{ErrDuplicateNode, oneServer(a, addressA, b, addressB)}
}

const ifTwo = ". They have one run_id: if they are two servers, use pool.WithoutIdentity (in the command: --no-identity)"

func duplicateFound(d *quorum.Duplicate) error {
	a, b := d.A.Address(), d.B.Address()
	if a == b {
		return duplicateError(d.A.Index, a, d.B.Index, b)
	}
	return &said{ErrDuplicateNode, oneServer(d.A.Index, a, d.B.Index, b) + ifTwo}
}

func oneServer(a int, addressA string, b int, addressB string) string {
	return fmt.Sprintf("nodes #%d (%s) and #%d (%s) are one server", a, addressA, b, addressB)
}

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

// errAbandoned ends a hold that has not reached its caller.
var errAbandoned = errors.New("redsync: the call that acquired it has panicked")

// asLost returns the error of a hold that was lost by cause. missed is a last extension that was not confirmed.
func asLost(cause error, missed *quorum.Result) error {
	switch {
	case errors.Is(cause, ErrLockLost):
		return cause
	case missed != nil && cause == ErrLockAlreadyExpired: //nolint:errorlint // a sentinel
		return ranOut(cause, *missed)
	}
	return fail("", "", ErrLockLost, cause)
}

// ranOut returns the error of a hold whose time is up because nodes did not answer.
func ranOut(over error, res quorum.Result) error {
	nodes := errorsOf(res)
	if over == ErrLockAlreadyExpired && len(nodes) > 0 { //nolint:errorlint // a sentinel
		over = &said{over, "it has expired"} // otherwise errors of nodes replace this text
	}
	return fail("", "", ErrLockLost, over, &failure{nodes: nodes})
}

func lost(why error) error {
	return fail("", "", ErrLockLost, ErrLockAlreadyExpired, why)
}
