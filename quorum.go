package redsync

import (
	"fmt"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
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

// enough says how many nodes of m have answered, and how many answers m needs. It is for errors.
func (m majority) enough(answered claim.Nodes) string {
	n := m.nodes.Len()
	return fmt.Sprintf("%d of %d nodes answered, %d needed", (answered & m.nodes).Len(), n, quorumOf(n))
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

func (j joint) enough(answered claim.Nodes) string {
	return "before: " + j.before.enough(answered) + "; after: " + j.after.enough(answered)
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

// standing returns what votes prove under any rule r.
func standing(r claim.Rule, c claim.Count) claim.Standing {
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
		return &ErrNodeTaken{Node: n.Index, Address: n.Address}
	case v.Err == nil:
		part := v.Answer.Found == claim.PartMissing || v.Answer.Found == claim.PartCreated
		return &nodeMissing{node: n.Index, address: n.Address, part: part}
	}
	return &RedisError{Node: n.Index, Address: n.Address, Err: v.Err}
}

// errorsOf returns one error for each node that was asked and did not grant.
func errorsOf(res quorum.Result) (errs []error) {
	for i, v := range res.Votes {
		if v.Choice != claim.Granted && v.Choice != claim.Pending {
			errs = append(errs, explain(res.Set.Nodes[i], v))
		}
	}
	return errs
}

// notGranted returns why a round did not grant: *ErrTaken if so many nodes hold another value that no
// quorum is left, otherwise an error for each node that did not grant.
func notGranted(res quorum.Result) error {
	if res.IsTaken() {
		return &ErrTaken{Nodes: indices(res.Taken)}
	}
	return nodeErrors(errorsOf(res))
}

// notAcquired returns why an acquire did not win. It returns *ErrTaken if a node holds another value and the
// nodes that failed leave a quorum; the errors of the failed nodes come with it. Otherwise it returns
// one error for each node that did not grant.
func notAcquired(res quorum.Result) error {
	if !res.NotFree() {
		return nodeErrors(errorsOf(res))
	}
	of := &errorsOfNodes{}
	for i, v := range res.Votes {
		if v.Choice == claim.Granted || v.Choice == claim.Pending || v.Err == quorum.ErrNotAwaited { //nolint:errorlint // a sentinel that nobody wraps
			continue
		}
		err := explain(res.Set.Nodes[i], v)
		of.all = append(of.all, err)
		if v.Err != nil { // the nodes that refused are in ErrTaken
			of.told = append(of.told, err)
		}
	}
	taken := &ErrTaken{Nodes: indices(res.Taken)}
	if len(of.told) == 0 {
		return taken
	}
	return because(taken, of)
}

// indices returns the indices of nodes, in ascending order.
func indices(nodes claim.Nodes) (list []int) {
	for i := range claim.MaxNodes {
		if nodes.Has(i) {
			list = append(list, i)
		}
	}
	return list
}
