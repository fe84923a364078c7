package quorum

import (
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
)

// This file tells which nodes are late, and how long an acquire waits for nodes that are not known to be.

// An acquire whose votes are split waits for nodes that are not known to be late: for patienceFactor times as long as a
// quorum took to answer, within these limits. So it does not give up on nodes that are merely as far away as others. A
// longer wait would delay everybody while each process learns by itself which node is late.
const (
	patienceFactor = 4
	minPatience    = 20 * time.Millisecond
	maxPatience    = 250 * time.Millisecond
)

// patience returns how long an acquire waits for late nodes after a quorum has taken that long to answer.
func patience(took time.Duration) time.Duration {
	return min(max(patienceFactor*took, minPatience), maxPatience)
}

// lateNodes are the nodes for which a round has waited in vain, or whose connection has failed. A node is late until it
// answers a round in time: before the decision, or soon after it.
type lateNodes struct{ nodes atomic.Uint64 }

func (l *lateNodes) load() claim.Nodes     { return claim.Nodes(l.nodes.Load()) }
func (l *lateNodes) add(nodes claim.Nodes) { l.nodes.Or(uint64(nodes)) }
func (l *lateNodes) remove(i int)          { l.nodes.And(^uint64(claim.Nodes(0).With(i))) }
