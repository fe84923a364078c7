package lease

import (
	"sync"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// A surplus finds the nodes that may have granted a lease more than it has won, such as another permit, because each
// decides by itself. That goes back at once, or nobody else could have it.
type surplus struct {
	mu    sync.Mutex
	won   claim.Winner
	early []claim.Answer // by node, before won
	nodes claim.Nodes    // with an early answer
	twice claim.Nodes    // each command may have been granted something
}

// heard takes the reply of node i to the acquire. It returns what the lease has won, if the node may have granted a
// surplus, and whether that is something else for sure. Before the win it notes the answer.
func (s *surplus) heard(i int, reply *wire.Reply, answer claim.Answer) (won claim.Winner, other bool) {
	if reply.Fate == wire.NotSent || wire.IsNoScript(reply.Err) { // nothing was executed
		return nil, false
	}
	if reply.Err != nil {
		answer = claim.Answer{} // perhaps executed in part
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

// wins notes what the lease has won. It returns the nodes that may have granted a surplus, and the others: those that
// have granted something else for sure.
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
	clear(s.early)
	return nodes, others
}
