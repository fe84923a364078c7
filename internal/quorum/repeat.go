package quorum

import (
	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file asks a node once more whose connection was lost before the answer: while a process was frozen, or its
// network gone, the other end may have closed all connections. The pool cannot send again, because the node may have
// executed the command. A round can, because its operation counts both commands, and so does the release.

// A repeated is a Round that receives the answer to the second command.
type repeated Round

// Receive takes a node's reply.
func (p *repeated) Receive(i int, reply wire.Reply) {
	r := (*Round)(p)
	r.mu.Lock()
	again := r.rare.again
	r.mu.Unlock()
	r.receive(i, &reply, again)
}

// noteLost must come before Cast, which may ask again.
func (r *Round) noteLost(i int) {
	if _, may := r.op.(Repeater); !may {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &r.Ballots[i]
	b.lost = !b.again
}

// lostLocked returns the nodes whose connections were lost, if only they or late nodes can save the round.
func (r *Round) lostLocked() (lost claim.Nodes) {
	for i := range r.Ballots {
		if b := &r.Ballots[i]; b.lost && b.choice == claim.Failed {
			lost = lost.With(i)
		}
	}
	rule, against := r.Rule(), r.count.Refused|r.count.Failed
	doubtful := r.missingLocked() & r.set.known.late.load()
	if lost != 0 && rule.Blocks(against|doubtful) && !rule.Blocks(against&^lost) {
		return lost
	}
	return 0
}

// Lost reports whether the round has failed because connections were lost, and has not asked again.
func (r *Round) Lost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lostLocked() != 0
}

// askAgainLocked asks these nodes again, each once, and takes their votes back.
func (r *Round) askAgainLocked() {
	lost := r.lostLocked()
	if lost == 0 || r.final || r.closed || r.expired {
		return
	}
	if g, ok := r.op.(Gate); ok && !g.Open() {
		return
	}
	c, may := r.op.(Repeater).Repeat()
	if !may {
		return
	}
	r.rareLocked().again = &c
	asked := false
	for i := range r.Ballots {
		if !lost.Has(i) {
			continue
		}
		b := &r.Ballots[i]
		b.lost, b.again = false, true
		b.sent = max(b.sent, r.set.Nodes[i].ScriptForm())
		if r.send(i, wire.Request{Args: r.commandLocked(i)}) != nil {
			continue // it stays failed
		}
		asked = true
		r.keepLocked(i, claim.Vote{})
		r.set.known.late.remove(i) // if it fails again, NoteLate adds it
	}
	if asked {
		r.recountLocked()
		r.proved = r.standingLocked()
	}
}
