package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/testkit/badreply"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file makes things go wrong in a simulation.

// fault notes that a fault begins, and calls f, which makes it happen.
func (s *simulation) fault(where, what string, f func()) {
	s.log.Note(history.Event{At: s.now(), Kind: history.Fault, Where: where, What: what})
	f()
}

// ends notes that a fault has ended.
func (s *simulation) ends(where, what string) {
	s.log.Note(history.Event{At: s.now(), Kind: history.Fault, Where: where, What: what, Ends: true})
}

// cut cuts the connections of a node.
func (s *simulation) cut(i int) { s.fault(node(i), "disconnected", s.nodes[i].Disconnect) }

// disturb causes one fault after another, and ends each of them, until the time is over. At most two
// nodes are away at a time, with two exceptions: nodes whose votes do not count because of the restart
// guard, and a lawless realm.
func (s *simulation) disturb(r *rand.Rand) {
	for {
		time.Sleep(between(r, 0, 2*s.rest))
		if s.over() {
			return
		}
		if s.class[native] && oneIn(r, 4) {
			s.changeCommands(r)
			continue
		}
		switch kind := r.IntN(12); {
		case s.realm == lawless && kind < 3:
			s.breakLaw(r)
		case s.realm == guarded && kind == 0 && oneIn(r, 3):
			s.restart(r, true, s.some(r, len(s.nodes))...)
		case kind < 5:
			two := s.some(r, 1+r.IntN(2))
			if s.off >= 0 {
				two = two[:1]
			}
			s.away(r, two)
		case kind == 5:
			s.separate(r)
		case kind == 6 && oneIn(r, 4) && s.realm != tidy: // Close leaves keys on nodes that are away
			s.closeOne(r)
		case kind == 7 && s.class[greetings]:
			s.refuse(r)
		case kind == 8 && s.class[babble]:
			s.babble(r)
		case kind == 9 && s.class[silence]:
			s.forget(s.some(r, 1+r.IntN(len(s.nodes))))
		default:
			s.disturbCommands(r)
		}
	}
}

// closeAll closes and opens one process after another, until the time is over.
func (s *simulation) closeAll(r *rand.Rand) {
	for !s.over() {
		time.Sleep(between(r, 0, s.least/2))
		s.closeOne(r)
	}
}

func (s *simulation) closeOne(r *rand.Rand) {
	i := r.IntN(simProcesses)
	s.fault(fmt.Sprintf("process %d", i), "closed and opened", func() { s.reopen(i) })
}

// all returns all nodes.
func (s *simulation) all() (nodes []int) {
	for i := range s.nodes {
		nodes = append(nodes, i)
	}
	return nodes
}

// some returns n of the nodes that processes use, or all of them if there are fewer.
func (s *simulation) some(r *rand.Rand, n int) []int {
	nodes := slices.DeleteFunc(s.all(), func(i int) bool { return s.leaving[i].Load() })
	r.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	return nodes[:min(n, len(nodes))]
}

// away makes nodes unreachable for a while: it kills, disconnects or freezes them.
func (s *simulation) away(r *rand.Rand, nodes []int) {
	if oneIn(r, 3) {
		s.restart(r, s.realm == guarded && oneIn(r, 2), nodes...)
		return
	}
	s.fails(nodes...)
	for _, i := range nodes {
		if oneIn(r, 3) {
			s.cut(i)
			continue
		}
		s.fault(node(i), "frozen", s.nodes[i].Freeze)
	}
	time.Sleep(between(r, 0, 500*time.Millisecond))
	for _, i := range nodes {
		s.nodes[i].ThawInTurn()
		s.serves(i)
		s.ends(node(i), "frozen")
		moment(r)
	}
}

// restart kills nodes and starts them again, without their data if empty is set.
func (s *simulation) restart(r *rand.Rand, empty bool, nodes ...int) {
	s.fails(nodes...)
	for _, i := range nodes {
		s.fault(node(i), "killed", s.nodes[i].Kill)
		moment(r)
	}
	time.Sleep(between(r, 0, 200*time.Millisecond))
	for _, i := range nodes {
		if s.class[native] && oneIn(r, 3) {
			s.changeVersion(r, i)
		}
		s.nodes[i].Restart(empty)
		s.serves(i)
		s.restarted[i].Store(int64(s.now()))
		s.ends(node(i), fmt.Sprintf("killed, empty %v", empty))
		moment(r)
	}
}

// separate delays the messages between a process and some nodes. Then these nodes may lose their
// connections, and messages on new connections overtake the delayed ones.
func (s *simulation) separate(r *rand.Rand) {
	i, lasts := r.IntN(simProcesses), between(r, 0, 300*time.Millisecond)
	some := s.some(r, 1+r.IntN(len(s.nodes)))
	s.failsToward(strconv.Itoa(i), 2*lasts, some...) // the second time for what waits in front of nodes then
	s.fault(fmt.Sprintf("process %d", i), fmt.Sprintf("cut off for %v", lasts), func() {
		for _, j := range some {
			s.ways[i][j].heldFrom.Store(int64(s.now()))
			s.ways[i][j].heldUntil.Store(int64(s.now() + lasts))
		}
	})
	if oneIn(r, 2) {
		return
	}
	time.Sleep(between(r, 0, lasts+1))
	for _, j := range some {
		s.cut(j)
		moment(r)
	}
}

// refuse makes nodes drop their connections and refuse new ones for a while: the password is wrong,
// SELECT fails, or the client's OnConnect fails. The default user and database 0 stay open, so a
// client that ignores the refusal sets keys there: see lookForStrays.
func (s *simulation) refuse(r *rand.Rand) {
	kind, some := r.IntN(3), s.some(r, 1+r.IntN(len(s.nodes)))
	s.fails(some...)
	for _, i := range some {
		switch kind {
		case 0:
			s.fault(node(i), "password changed", func() { s.nodes[i].SetUser(simUser, "changed") })
		case 1:
			times := 1 + r.IntN(30)
			s.fault(node(i), fmt.Sprintf("refuses SELECT %d times", times), func() {
				s.nodes[i].On("select", times, embedded.Fault{Err: "NOPERM this user has no permissions to run the 'select' command"})
			})
		default:
			s.fault(node(i), "not ready", func() { s.unready[i].Store(true) })
		}
		s.cut(i)
		moment(r)
	}
	time.Sleep(between(r, 0, 500*time.Millisecond))
	for _, i := range some {
		s.welcome(i)
		s.serves(i)
		s.failsFor(spent, i) // it may still refuse SELECT
		s.ends(node(i), "refuses who connects")
		moment(r)
	}
}

// welcome makes a node accept new connections again. It does not end refusals of SELECT.
func (s *simulation) welcome(i int) {
	s.nodes[i].SetUser(simUser, simPassword)
	s.unready[i].Store(false)
}

// babble makes a node send nonsense, on new connections or on existing ones.
func (s *simulation) babble(r *rand.Rand) {
	i, bursts := s.some(r, 1)[0], make([]badreply.Outburst, 1+r.IntN(4))
	s.failsFor(2*spent, i) // some nonsense is noticed only when an answer does not come in time
	for k := range bursts {
		bursts[k] = badreply.Draw(r)
		s.fault(node(i), bursts[k].String(), func() { s.nodes[i].Babble(bursts[k]) })
	}
	if oneIn(r, 2) {
		s.cut(i)
	}
}

// forget makes all connections of some nodes fall silent at once.
func (s *simulation) forget(nodes []int) {
	s.failsFor(2*spent, nodes...) // a process notices when an answer does not come in time
	for _, i := range nodes {
		s.fault(node(i), "connections are forgotten", s.nodes[i].Forget)
	}
}

// turnOff turns a host off at the start, for as long as the plan says.
func (s *simulation) turnOff() {
	if s.off < 0 {
		return
	}
	s.fault(node(s.off), "off", s.nodes[s.off].TurnOff)
	s.fails(s.off)
	if s.offFor > 0 {
		time.AfterFunc(s.offFor, func() {
			s.nodes[s.off].Heal()
			s.serve(time.Second, true, "", []int{s.off}) // dials may still hang
			s.ends(node(s.off), "off")
		})
	}
}

// disturbCommands makes a node lose, delay, repeat or refuse some of its next commands, or lose replies or messages.
func (s *simulation) disturbCommands(r *rand.Rand) {
	i, command := s.some(r, 1)[0], []string{"set", "evalsha"}[r.IntN(2)]
	if s.fair || s.fencing {
		command = "evalsha"
	}
	if s.class[native] && !oneIn(r, 4) {
		command = []string{nativeDeletes[s.version[i]], "exists", "set", "msetex"}[r.IntN(4)]
	}
	times, d := 1+r.IntN(3), between(r, 1, 60*time.Millisecond)
	n := s.nodes[i]
	s.failsFor(spent, i)
	on := func(what string, f embedded.Fault) {
		s.fault(node(i), fmt.Sprintf("%s for the next %d %s", what, times, command), func() { n.On(command, times, f) })
	}
	switch kind := r.IntN(6); {
	case kind == 0:
		on("loses the reply", embedded.Fault{LoseReply: true})
	case kind == 1:
		on("loses the command", embedded.Fault{LoseCommand: true})
	case kind == 2:
		on("adds a delay", embedded.Fault{Delay: d})
	case kind == 3 && s.realm != tidy:
		on("executes twice", embedded.Fault{Again: 4 * d})
	case kind == 4 && command == "evalsha":
		on("answers NOSCRIPT", embedded.Fault{Err: "NOSCRIPT No matching script"})
	default:
		s.fault(node(i), "loses messages", func() { n.LoseMessages(times) })
	}
}

// breakLaw makes a majority of the nodes forget what they have granted, at once or too early.
func (s *simulation) breakLaw(r *rand.Rand) {
	most := s.some(r, 3+r.IntN(3))
	if oneIn(r, 2) {
		s.restart(r, true, most...)
		return
	}
	for _, i := range most {
		by := between(r, s.expiry/2, 2*s.expiry)
		s.fault(node(i), fmt.Sprintf("clock set forward by %v", by), func() { s.nodes[i].SetClock(by, 1) })
	}
}

// heal ends all faults. Only a host that was switched off for the rest of the run stays off. If the class
// of the run has silence, heal makes all connections silent once more. Even then the locks must become free in time.
func (s *simulation) heal() {
	for i, n := range s.nodes {
		if i != s.off || s.offFor > 0 {
			n.Heal()
		}
	}
	if s.class[silence] {
		s.forget(s.all())
	}
	if s.class[dials] {
		time.AfterFunc(5*time.Second, s.nodes[s.off].Heal)
	}
	s.calm.Store(true)
	s.ends("all", "everything")
}

// moment waits for up to a millisecond, so that no two faults are at once.
func moment(r *rand.Rand) { time.Sleep(between(r, 0, time.Millisecond)) }

func node(i int) string { return fmt.Sprintf("node %d", i) }
