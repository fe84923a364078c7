package lease

import (
	"sync"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// A surplus finds the nodes that may have granted a lease more than it has won, such as another permit. Each
// node decides by itself what it grants, and the lease wins what a quorum has granted. It gives back at once
// what the other nodes have granted, or grant later. Otherwise nobody else could have it, although nobody
// uses it.
type surplus struct {
	mu    sync.Mutex
	won   claim.Winner   // nil until the lease has won
	early []claim.Answer // by node: the answers that came before
	nodes claim.Nodes    // the nodes with an early answer
	twice claim.Nodes    // those of them that were asked twice: each command may have been granted slots of its own
}

// heard takes the reply of node i to the acquire. If the lease has won already and the node may have granted a surplus,
// heard returns what has been won: the surplus must be given back there. other says that the node has granted something
// else for sure. Before the lease wins, heard only notes the answer, for wins. If it never wins, its release gives back
// everything.
func (s *surplus) heard(i int, reply wire.Reply, answer claim.Answer) (won claim.Winner, other bool) {
	if reply.Fate == wire.NotSent || wire.IsNoScript(reply.Err) { // nothing was executed
		return nil, false
	}
	if reply.Err != nil {
		answer = claim.Answer{} // the node may have executed the script, at least in part
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.won == nil {
		if s.nodes.Has(i) {
			s.twice = s.twice.With(i)
		}
		s.early[i] = answer
		s.nodes = s.nodes.With(i)
		return nil, false
	}
	if !s.won.IsSurplus(answer) {
		return nil, false
	}
	return s.won, answer.Found == claim.Mine
}

// wins notes what the lease has won. It returns the nodes that have answered and may have granted a surplus, and those
// of them that have granted something else for sure.
func (s *surplus) wins(won claim.Winner) (nodes, others claim.Nodes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.won = won
	for i, answer := range s.early {
		more := won.IsSurplus(answer)
		if s.nodes.Has(i) && (more || s.twice.Has(i) && won.IsSurplus(claim.Answer{})) {
			nodes = nodes.With(i)
			if more && answer.Found == claim.Mine {
				others = others.With(i)
			}
		}
	}
	clear(s.early) // nobody needs them any more
	return nodes, others
}
