// Package claimtest has the plainest rule of a quorum, and claims without a Mutex, for tests of the packages that only
// apply a rule.
package claimtest

import "github.com/seed14bd9ef4/redsync/internal/claim"

// A Majority is the rule by which more than half of that many nodes decide.
type Majority int

// All implements claim.Rule.
func (m Majority) All() claim.Nodes { return claim.FirstNodes(int(m)) }

// Quorum implements claim.Rule.
func (m Majority) Quorum(nodes claim.Nodes) bool { return 2*nodes.Len() > int(m) }

// Blocks implements claim.Rule.
func (m Majority) Blocks(nodes claim.Nodes) bool { return !m.Quorum(m.All() &^ nodes) }

// Counts implements claim.Rule.
func (Majority) Counts(a claim.Answer) claim.Choice {
	if a.Found == claim.Mine {
		return claim.Granted
	}
	return claim.Refused
}

// Standing implements claim.Rule.
func (m Majority) Standing(c claim.Count) claim.Standing {
	return claim.Standing{
		Won: m.Quorum(c.Granted), Blocked: m.Blocks(c.Refused | c.Failed), Rejected: m.Blocks(c.Refused),
		Explained: m.Quorum(c.Answered()) || m.Blocks(c.Failed),
	}
}

// Sets implements claim.Rule: there is one set.
func (Majority) Sets(int) claim.Sets { return 1 }
