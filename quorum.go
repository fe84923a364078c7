package redsync

import (
	"fmt"
	"slices"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/queue"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
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

// deniedBy returns the error of a campaign that the nodes deny: ErrNoQuorum, and one error for each of them.
func deniedBy(set *quorum.Set, votes []claim.Vote) error {
	res := quorum.Result{Set: set, Rule: set.Rule(), Votes: votes}
	for i, v := range votes {
		res.Count = res.Count.With(i, v.Choice)
	}
	return unconfirmed("", res)
}
