package lease

import (
	"sync"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A surplus knows what nodes may have granted to a lease beyond the claim that it has won. Each node decides by itself
// what it grants, and the lease wins what a quorum has granted. What the others have granted it gives back at once,
// also what they grant later: nobody else can have it, although nobody uses it.
type surplus struct {
	mu    sync.Mutex
	won   claim.Winner   // nil until the lease has won
	early []claim.Answer // by node, while won is nil
	nodes claim.Nodes    // the nodes with an early answer
}

// newSurplus returns the surplus of a lease that acquires c on n nodes. It returns nil if there can be none.
func newSurplus(c claim.Claim, n int) *surplus {
	if _, ok := c.(claim.Tallier); !ok {
		return nil
	}
	return &surplus{early: make([]claim.Answer, n)}
}

// heard notes the reply of node i to the acquire of l. If l has won already, and the node may have granted something
// beyond that, heard gives it back there.
func (s *surplus) heard(l *Lease, i int, reply pool.Reply, answer claim.Answer) {
	if reply.Fate == pool.NotSent || pool.IsNoScript(reply.Err) { // nothing was executed
		return
	}
	if reply.Err != nil {
		answer = claim.Answer{} // the script may have been executed, at least in part
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
	}
}

// wins notes what l has won, and gives back what nodes have granted beyond that.
func (s *surplus) wins(l *Lease, won claim.Winner) {
	var nodes claim.Nodes
	s.mu.Lock()
	s.won = won
	for i, answer := range s.early {
		if s.nodes.Has(i) && won.IsSurplus(answer) {
			nodes = nodes.With(i)
		}
	}
	s.mu.Unlock()
	if nodes != 0 {
		l.giveBack(won, nodes)
	}
}

// giveBack releases what nodes may have granted to l beyond what l has won.
func (l *Lease) giveBack(won claim.Winner, nodes claim.Nodes) {
	l.Release(Releasing{claim: won.Surplus(), nodes: nodes})
}

// Leaver returns a lease whose release takes a ticket off the queues, if others can have a lease of the claim beside l.
// It returns nil if that ticket stays until l is released. l has won, and was acquired by the waiter with the ticket.
//
// Such a ticket must not stay at the head until l is released: a node would tell its process again when the next permit
// is free, and the next waiter would not learn of it.
func (l *Lease) Leaver(ticket script.Ticket) *Lease {
	if _, ok := l.Claim().(claim.Winner); !ok {
		return nil
	}
	l.LeaveQueuesOnRelease(ticket) // a node may put it there later
	nobody := Nobody(l.terms)
	nobody.LeaveQueuesOnRelease(ticket)
	return nobody
}
