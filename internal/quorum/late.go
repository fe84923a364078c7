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
//
// A node may be farther away than that. If it has answered within maxFar all the same, it is not late, and acquires wait for
// it a little longer than its answer took.
const (
	patienceFactor = 4
	minPatience    = 20 * time.Millisecond
	maxPatience    = 250 * time.Millisecond
	maxFar         = 100 * time.Millisecond
)

// patience returns how long an acquire waits for late nodes after a quorum has taken that long to answer.
func (l *lateNodes) patience(took time.Duration) time.Duration {
	far := time.Duration(l.far.Load())
	return min(max(patienceFactor*took, far+far/4-took, minPatience), maxPatience)
}

// lateNodes are the nodes for which a round has waited in vain, or whose connection has failed. A node is late until it
// answers a round in time: before the decision, or soon after it.
type lateNodes struct {
	nodes atomic.Uint64
	far   atomic.Int64 // the longest time that a node has taken which is not late, but answered after an acquire's patience
}

func (l *lateNodes) load() claim.Nodes     { return claim.Nodes(l.nodes.Load()) }
func (l *lateNodes) add(nodes claim.Nodes) { l.nodes.Or(uint64(nodes)) }

// answered notes that node i has answered that long after the acquire began, when nobody waited for it any more.
func (l *lateNodes) answered(i int, took time.Duration) {
	if took > maxFar {
		l.add(claim.Nodes(0).With(i))
		return
	}
	for far := l.far.Load(); int64(took) > far && !l.far.CompareAndSwap(far, int64(took)); far = l.far.Load() {
	}
	l.remove(i)
}

func (l *lateNodes) remove(i int) { l.nodes.And(^uint64(claim.Nodes(0).With(i))) }
