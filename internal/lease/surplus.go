package lease

import (
	"sync"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// A surplus finds the nodes that may have granted a lease more than it has won, such as another permit. Each node
// decides by itself what it grants, and a quorum decides what is won. The rest goes back at once: nobody else could
// have it meanwhile.
type surplus struct {
	mu    sync.Mutex
	won   claim.Winner   // nil until the lease has won
	early []claim.Answer // by node, before that
	nodes claim.Nodes    // with an early answer
	twice claim.Nodes    // asked twice: each command may have been granted slots of its own
}

// heard takes the reply of node i to the acquire. If it may have granted a surplus, heard returns what the lease has
// won. other says that the node has granted something else for sure. Before the win, heard notes the answer for wins.
func (s *surplus) heard(i int, reply wire.Reply, answer claim.Answer) (won claim.Winner, other bool) {
	if reply.Fate == wire.NotSent || wire.IsNoScript(reply.Err) { // nothing was executed
		return nil, false
	}
	if reply.Err != nil {
		answer = claim.Answer{} // the script may have been executed, at least in part
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

// wins notes what the lease has won. It returns the nodes that may have granted a surplus, and those of them that have
// granted something else for sure.
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
