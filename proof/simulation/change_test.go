package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file changes the set of nodes while clients lock: processes of one kind take the place of processes of
// another.
//
// Processes of kind 0 have the first set. Processes of kind 1 have the first and the second set as joint sets.
// Processes of kind 2 have the second set, and so on.

// drawChange draws the sets of nodes. Each set shares any number of nodes with the one before it.
func (p *simPlan) drawChange(r *rand.Rand) {
	p.joined = oneIn(r, 2)
	if !p.joined && p.clocks == "wall" {
		p.clocks = "" // without lockEach, tokens rise only as far as the clients' clocks agree
	}
	changes, nodes := 1, 0
	if p.realm == changing && oneIn(r, 3) {
		changes = 2
	}
	p.sets = nil
	for i := range changes + 1 {
		var set []int
		if i > 0 {
			former := p.sets[i-1]
			for _, at := range r.Perm(len(former))[:r.IntN(len(former)+1)] {
				set = append(set, former[at])
			}
		}
		least := max(1, len(set))
		for size := least + r.IntN(simNodes+1-least); len(set) < size; nodes++ {
			set = append(set, nodes)
		}
		r.Shuffle(len(set), func(i, j int) { set[i], set[j] = set[j], set[i] })
		p.sets = append(p.sets, set)
	}
}

// dispensable returns node if it is in a set, and if every set that has it also has a quorum without it. Otherwise
// it returns -1.
func (p *simPlan) dispensable(node int) int {
	has := func(set []int) bool { return slices.Contains(set, node) }
	if !slices.ContainsFunc(p.sets, has) || slices.ContainsFunc(p.sets, func(set []int) bool { return has(set) && len(set) < 3 }) {
		return -1
	}
	return node
}

// nodesOf returns the set of a kind, or both sets if the kind is joint.
func (s *simulation) nodesOf(kind int) [][]int {
	return s.sets[kind/2 : (kind+1)/2+1]
}

func isJoint(kind int) bool { return kind%2 == 1 }

// deploy replaces all processes by processes of the next kind, kind after kind, until all of them use only the last
// set.
func (s *simulation) deploy(r *rand.Rand) {
	defer s.deployed.Store(true)
	for kind := 1; kind <= 2*(len(s.sets)-1); kind++ {
		if s.realm == unjoined && isJoint(kind) {
			continue
		}
		s.pause(r, 300*time.Millisecond)
		s.fault("all", fmt.Sprintf("processes have %v from now on", s.nodesOf(kind)), func() {})
		for _, i := range r.Perm(simProcesses) {
			s.pause(r, 100*time.Millisecond)
			s.replace(r, i, kind)
		}
		for s.runsBelow(kind) {
			time.Sleep(time.Millisecond)
		}
		s.fault("all", "the last process of the former kind has ended", func() {})
		if s.realm != hasty {
			time.Sleep(s.longest)
		}
		if isJoint(kind) {
			s.moveElders()
		}
		switch {
		case !isJoint(kind):
			s.retire(kind)
		case s.joined && s.realm == changing:
			s.lockEach(r)
		}
	}
}

// pause waits between two steps of a deployment.
func (s *simulation) pause(r *rand.Rand, most time.Duration) {
	if s.realm == hasty {
		most = 10 * time.Millisecond
	}
	time.Sleep(between(r, 0, most))
}

// replace starts a process of the given kind in the place of process i, and ends the old one.
func (s *simulation) replace(r *rand.Rand, i, kind int) {
	s.mu.Lock()
	p := s.process(i, kind)
	s.setAhead(r, p)
	old := s.processes[i]
	s.former = append(s.former, old)
	s.processes[i] = p
	s.mu.Unlock()
	if oneIn(r, 2) {
		s.pause(r, 50*time.Millisecond)
	}
	// Not while another process may use a value of the old one: Close would release that hold.
	if s.realm != hasty && oneIn(r, 2) && s.now() > time.Duration(s.givenUntil[i].Load()) {
		ctx, cancel := context.WithTimeout(s.Context(), 300*time.Millisecond)
		_ = old.Close(ctx) // nodes may be away
		cancel()
	}
	old.stop()
}

// runsBelow reports whether a process of an earlier kind still runs.
func (s *simulation) runsBelow(kind int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.former, func(p *process) bool { return p.kind < kind && !p.hasEnded() })
}

// lockEach lets a joint process lock each name with fencing, after the last process of the former kind has ended.
// That makes the tokens of every name rise through the change, whatever the clocks say.
func (s *simulation) lockEach(r *rand.Rand) {
	c := &simClient{player: player{simulation: s, name: "deployment", random: r}}
	for _, name := range s.names {
		for held := false; !held; {
			t := c.newTerm(s.current(0), 0)
			t.Mutex = t.process.NewMutex(name, s.inTurn(s.longest, redsync.WithTries(0), redsync.WithFencing())...)
			ctx, cancel := t.process.call(time.Second)
			t.note(history.Call, nil)
			if err := t.LockContext(ctx); err != nil {
				t.note(history.Refused, err)
			} else {
				t.note(history.Held, nil)
				t.unlock(ctx)
				held = true
			}
			cancel()
		}
	}
}

// retire removes the nodes that processes of this kind no longer use. In the background it waits until all messages
// have arrived and every lock and queue has expired. Then no key may be left on these nodes. retire notes the keys
// that are there, for the checks, and switches the nodes off.
func (s *simulation) retire(kind int) {
	var nodes []int
	for _, j := range s.sets[kind/2-1] {
		if !slices.Contains(s.sets[kind/2], j) {
			nodes = append(nodes, j)
			s.leaving[j].Store(true)
		}
	}
	s.retiring.Go(func() {
		runOut(max(s.longest, 2*script.AliveFor*time.Millisecond))
		for _, j := range nodes {
			s.log.Note(history.Event{At: s.now(), Kind: history.Fault, Where: node(j), What: retired, Node: j})
			s.lookAt(j)
			s.nodes[j].Kill()
		}
	})
}

// runOut waits until all messages have arrived, and every key that lasts so long has expired.
func runOut(lasts time.Duration) {
	const messages = 2 * time.Second
	time.Sleep(messages + lasts*10/9) // clocks of nodes may be slow
}

// retired marks a Fault event: from its time on, no key may be left on the node.
const retired = "retired"

// stop ends the process: from now on it sends nothing and receives nothing. What it has sent before still arrives.
// Its connections and calls end a nanosecond apart, so that a seed repeats itself.
func (p *process) stop() {
	p.mu.Lock()
	p.ended = true
	conns, calls := p.conns, p.calls
	p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		time.Sleep(time.Nanosecond)
	}
	p.mu.Lock()
	p.silent = true
	p.mu.Unlock()
	for _, cancel := range calls {
		cancel()
		time.Sleep(time.Nanosecond)
	}
	p.simulation.ends(fmt.Sprintf("process %d", p.slot), fmt.Sprintf("the process with %v", p.simulation.nodesOf(p.kind)))
}

// call returns the context of a call. The context ends after patience, or earlier if the process ends.
func (p *process) call(patience time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(p.simulation.Context(), patience)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		cancel()
	}
	p.calls = append(p.calls, cancel)
	return ctx, cancel
}

// hasEnded reports whether the process has been stopped and all its connections are closed. Until then its clients
// may still note events: for example, a client unlocks because its extension failed on a closed connection.
func (p *process) hasEnded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.silent
}
