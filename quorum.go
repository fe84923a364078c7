package redsync

import (
	"fmt"
	"slices"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file has the rules of a quorum: how an answer counts, what votes prove, and which errors
// votes become. It is pure: no I/O, no time. internal/quorum asks the nodes and obeys these rules.

// quorumOf returns how many of n nodes a decision needs: more than half, so that any two quorums share a node.
func quorumOf(n int) int { return n/2 + 1 }

// A majority is the rule of one set of independent nodes: more than half of them decide.
type majority struct{ nodes claim.Nodes }

// majorityOf returns the rule of n nodes.
func majorityOf(n int) majority { return majority{claim.FirstNodes(n)} }

// All implements claim.Rule.
func (m majority) All() claim.Nodes { return m.nodes }

// Quorum implements claim.Rule.
func (m majority) Quorum(nodes claim.Nodes) bool {
	return (nodes & m.nodes).Len() >= quorumOf(m.nodes.Len())
}

// Blocks implements claim.Rule.
func (m majority) Blocks(nodes claim.Nodes) bool { return !m.Quorum(m.nodes &^ nodes) }

// Standing implements claim.Rule.
func (m majority) Standing(c claim.Count) claim.Standing { return standing(m, c) }

// Counts implements claim.Rule.
func (majority) Counts(a claim.Answer) claim.Choice { return choice(a) }

// tooFew says why so many answers decide nothing. It is for errors.
func (m majority) tooFew(c claim.Count) string {
	n := m.nodes.Len()
	switch {
	case m.Blocks(c.Failed):
		return fmt.Sprintf("%d of %d nodes failed, %d needed", (c.Failed & m.nodes).Len(), n, quorumOf(n))
	case !m.Quorum(c.Answered()):
		return m.enough(c.Answered())
	}
	return fmt.Sprintf("%d of %d nodes answered, which decides nothing", (c.Answered() & m.nodes).Len(), n)
}

// enough says how many nodes of m have answered, and how many answers m needs. It is for errors.
func (m majority) enough(answered claim.Nodes) string {
	return fmt.Sprintf("%s nodes answered, %d needed", m.answer(answered), quorumOf(m.nodes.Len()))
}

// answer says how many of m's nodes have answered. It is for errors and the log.
func (m majority) answer(answered claim.Nodes) string {
	return fmt.Sprintf("%d of %d", (answered & m.nodes).Len(), m.nodes.Len())
}

// spare returns how many of these nodes may fail until m has no quorum.
func (m majority) spare(answered claim.Nodes) int {
	return max(0, (answered&m.nodes).Len()-quorumOf(m.nodes.Len()))
}

// A joint is the rule of two sets of nodes, the one before a change and the one after it: a decision needs
// more than half of each. A node that is in both sets counts in both. So every quorum of a joint rule
// shares a node with every quorum of the set before, and with every quorum of the set after.
type joint struct{ before, after majority }

// All implements claim.Rule.
func (j joint) All() claim.Nodes { return j.before.nodes | j.after.nodes }

// Quorum implements claim.Rule.
func (j joint) Quorum(nodes claim.Nodes) bool { return j.before.Quorum(nodes) && j.after.Quorum(nodes) }

// Blocks implements claim.Rule.
func (j joint) Blocks(nodes claim.Nodes) bool { return j.before.Blocks(nodes) || j.after.Blocks(nodes) }

// Standing implements claim.Rule.
func (j joint) Standing(c claim.Count) claim.Standing { return standing(j, c) }

// Counts implements claim.Rule.
func (joint) Counts(a claim.Answer) claim.Choice { return choice(a) }

// Sets implements claim.JointRule.
func (j joint) Sets(i int) (in claim.Sets) {
	if j.before.nodes.Has(i) {
		in |= 1
	}
	if j.after.nodes.Has(i) {
		in |= 2
	}
	return in
}

// AsOne implements claim.JointRule.
func (j joint) AsOne(a, b int) claim.JointRule {
	return joint{j.before.asOne(a, b), j.after.asOne(a, b)}
}

// tooFew names the set that has no quorum, or both.
func (j joint) tooFew(c claim.Count) string {
	before, after := "before: "+j.before.tooFew(c), "after: "+j.after.tooFew(c)
	switch lacksBefore, lacksAfter := j.before.Blocks(c.Failed), j.after.Blocks(c.Failed); {
	case lacksBefore && !lacksAfter:
		return before
	case lacksAfter && !lacksBefore:
		return after
	}
	return before + "; " + after
}

func (j joint) enough(answered claim.Nodes) string {
	return "before: " + j.before.enough(answered) + "; after: " + j.after.enough(answered)
}

func (j joint) answer(answered claim.Nodes) string {
	return "before: " + j.before.answer(answered) + "; after: " + j.after.answer(answered)
}

func (j joint) spare(answered claim.Nodes) int {
	return min(j.before.spare(answered), j.after.spare(answered))
}

// A countRule is a rule that counts nodes for people. Every rule of this package is one.
type countRule interface {
	claim.Rule
	tooFew(c claim.Count) string
	enough(answered claim.Nodes) string
	answer(answered claim.Nodes) string
	spare(answered claim.Nodes) int
}

// asOne returns m with node a in the place of node b, if m has b.
func (m majority) asOne(a, b int) majority {
	if !m.nodes.Has(b) {
		return m
	}
	return majority{m.nodes.Without(b).With(a)}
}

// choice returns how an answer counts under every rule: a node grants if it has the claim. It does not grant if
// this very command has set a missing key again (claim.Created), because that key proves nothing about the time
// before the command.
func choice(a claim.Answer) claim.Choice {
	if a.Found == claim.Mine {
		return claim.Granted
	}
	return claim.Refused
}

// standing returns what votes prove under any rule r. It has a type parameter because a rule that becomes a claim.Rule for
// each vote would cost an allocation each time.
func standing[R claim.Rule](r R, c claim.Count) claim.Standing {
	return claim.Standing{
		Won:      r.Quorum(c.Granted),
		Blocked:  r.Blocks(c.Refused | c.Failed),
		Rejected: r.Blocks(c.Refused),
		// If a quorum has answered, refusals are the reason. If so many nodes have failed that no
		// quorum can answer, the failures are the reason.
		Explained: r.Quorum(c.Granted|c.Refused) || r.Blocks(c.Failed),
	}
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
	return &RedisError{Node: n.Index, Address: n.Address(), Err: v.Err}
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
	name = o.Lines[o.KeptBackBy()]
	if !slices.Contains(lines, name) {
		name = lines[max(0, slices.IndexFunc(lines, func(own string) bool { return slices.Contains(o.Lines, own) }))]
	}
	return name
}

// noQuorum returns ErrNoQuorum with the count of the nodes.
func noQuorum(res quorum.Result) error {
	text := res.Rule.(countRule).tooFew(res.Count)
	var denying claim.Nodes
	for i, v := range res.Votes {
		if v.Choice == claim.Failed && pool.IsPermanent(v.Err) {
			denying = denying.With(i)
		}
	}
	if res.Rule.Blocks(denying) {
		text += "; this will not pass by itself"
	}
	return &said{ErrNoQuorum, text}
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
