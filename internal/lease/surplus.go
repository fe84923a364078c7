package lease

import (
	"sync"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
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

	special special // room for that of the acquire
}

// newSurplus returns the surplus of a lease that acquires c on n nodes, or nil if all nodes grant c itself or
// nothing.
func newSurplus(c claim.Claim, n int) *surplus {
	if _, ok := c.(claim.Tallier); !ok {
		return nil
	}
	s, early, _ := claim.WithRoom[surplus, claim.Answer, struct{}](n)
	s.early = early
	return s
}

// heard takes the reply of node i to the acquire of l. If l has won already and the node may have granted a
// surplus, heard gives it back there. Otherwise wins looks at the answer when l wins. If l never wins, its
// release gives back everything.
func (s *surplus) heard(l *Lease, i int, reply pool.Reply, answer claim.Answer) {
	if reply.Fate == pool.NotSent || pool.IsNoScript(reply.Err) { // nothing was executed
		return
	}
	if reply.Err != nil {
		answer = claim.Answer{} // the node may have executed the script, at least in part
	}
	s.mu.Lock()
	won := s.won
	if won == nil {
		s.early[i] = answer
		s.nodes = s.nodes.With(i)
	}
	s.mu.Unlock()
	if won != nil && won.IsSurplus(answer) {
		l.giveBack(won, claim.Nodes(0).With(i))
		if answer.Found == claim.Mine {
			l.refusedBy(i) // it has granted something else
		}
	}
}

// wins notes what l has won, and gives back the surplus of the nodes that have answered.
func (s *surplus) wins(l *Lease, won claim.Winner) {
	var nodes claim.Nodes
	s.mu.Lock()
	s.won = won
	for i, answer := range s.early {
		if s.nodes.Has(i) && won.IsSurplus(answer) {
			nodes = nodes.With(i)
			if answer.Found == claim.Mine {
				l.refusedBy(i) // it has granted something else
			}
		}
	}
	clear(s.early) // nobody needs them any more
	s.mu.Unlock()
	if nodes != 0 {
		l.giveBack(won, nodes)
	}
}

// giveBack releases the surplus of l on some nodes. It goes on even after l has been unlocked.
func (l *Lease) giveBack(won claim.Winner, nodes claim.Nodes) {
	l.Release(Releasing{claim: won.Surplus(), nodes: nodes})
}

// Leaver returns a lease whose release takes the ticket of a waiter that has won l off the queues. It returns
// nil if the ticket may stay there until l is released, because nobody else can hold the claim meanwhile.
//
// While l has a permit, others can have the other permits. If the ticket stayed at the head of a queue, the
// node would wake this process when the next permit is free, and the next waiter would not learn of it.
func (l *Lease) Leaver(ticket script.Ticket) *Lease {
	if _, ok := l.Claim().(claim.Winner); !ok {
		return nil
	}
	l.LeaveQueuesOnRelease(ticket) // a late command may put it there again
	nobody := Nobody(l.terms)
	nobody.LeaveQueuesOnRelease(ticket)
	return nobody
}
