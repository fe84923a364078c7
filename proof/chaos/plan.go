package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

const (
	nodeCount = 5
	quorum    = nodeCount/2 + 1

	// maxOut is how many nodes may be out of action at a time within the contract: the others are
	// a quorum.
	maxOut = nodeCount - quorum
)

// A kind is a kind of fault.
type kind string

// Faults of nodes.
const (
	freeze         kind = "freeze"                     // SIGSTOP
	restartKept    kind = "restart with data"          // SIGKILL
	restartEmpty   kind = "restart without data"       // SIGKILL; needs the guard
	restartFlushed kind = "restart, and FLUSHALL"      // FLUSHALL while the guard excludes the node
	cutRequests    kind = "cut, requests"              // nothing passes to the node
	cutReplies     kind = "cut, replies"               // nothing passes from the node
	cutBoth        kind = "cut"                        //
	slowRequests   kind = "slow requests"              //
	slowReplies    kind = "slow replies"               //
	loseReplies    kind = "lost replies"               // at the end the connections break
	reset          kind = "reset"                      // breaks all connections, once
	clientKill     kind = "CLIENT KILL"                // once
	password       kind = "password changed"           // followed by CLIENT KILL
	noSelect       kind = "SELECT refused"             // followed by CLIENT KILL
	babble         kind = "nonsense"                   // in place of replies and messages
	scriptFlush    kind = "SCRIPT FLUSH"               // once
	outOfMemory    kind = "out of memory"              // the node refuses writes
	clockRate      kind = "clock rate"                 // wrong by less than the drift
	clockBack      kind = "clock set back"             // permanently
	clockForward   kind = "clocks of a majority ahead" // permanently; breaks the contract
	hostOff        kind = "host off"                   // from the start: dials hang
	flapping       kind = "flapping"                   // silent or refusing, and well, again and again
	failingDials   kind = "failing dials"              // the connections break, and dials fail or hang
	breaking       kind = "connections cut"            // again and again, some without notice
	crash          kind = "keys of a crashed client"   // on one node, once
	readOnly       kind = "READONLY"                   // the node is a replica, and refuses writes
	noReplicas     kind = "NOREPLICAS"                 // the node refuses writes, because it has too few replicas
	misconf        kind = "MISCONF"                    // the node refuses writes, because it could not save its data
	wrongAddress   kind = "wrong address"              // the connections break, and new ones lead to another node
	farRegisters   kind = "far registers"              // no client can have written these fencing registers
	otherType      kind = "keys of another type"       // at queues of a majority, where locks need none
	forgetting     kind = "one node forgets"           // in each duel one node restarts without data
	flushAll       kind = "FLUSHALL everywhere"        // breaks the contract
	restartMost    kind = "majority restarts empty"    // breaks the contract without a guard
	restartMany    kind = "majority restarts with data"
)

// Faults of client processes.
const (
	partition kind = "partition"      // from some nodes, in both directions
	stopped   kind = "stopped client" // SIGSTOP
	forgotten kind = "silence"        // on open connections of one process or of all processes; new ones work
)

// A fault is something that happens to nodes or a process at the time At and lasts for the time
// For. At counts from the start of the traffic.
type fault struct {
	At      time.Duration `json:"at"`
	For     time.Duration `json:"for,omitempty"` // 0: the fault does not last
	Kind    kind          `json:"kind"`
	Nodes   []int         `json:"nodes,omitempty"`
	Process int           `json:"process,omitempty"` // from 1; 0: no process
	By      time.Duration `json:"by,omitempty"`      // a delay, or the step of a clock
	Rate    float64       `json:"rate,omitempty"`    // of a clock
	Seed    uint64        `json:"seed,omitempty"`    // of nonsense, of registers, and of faults that repeat

	untold bool // the judge does not hear of it; for tests

	// out is how long the nodes are out of action, including exclusion by the guard.
	out time.Duration
}

func (f fault) String() string {
	text := string(f.Kind)
	if f.By != 0 {
		text += fmt.Sprintf(" by %v", f.By)
	}
	if f.Rate != 0 {
		text += fmt.Sprintf(" %+.2f %%", 100*(f.Rate-1))
	}
	if f.For != 0 {
		text += fmt.Sprintf(" for %v", f.For)
	}
	return text + ": " + strings.Join(f.where(), ", ")
}

// where returns the names of the targets of f, which are also the labels of their rows in the report.
func (f fault) where() (rows []string) {
	if f.Process != 0 {
		rows = append(rows, processRow(f.Process))
	}
	for _, i := range f.Nodes {
		rows = append(rows, nodeRow(i))
	}
	return rows
}

func nodeRow(i int) string    { return fmt.Sprintf("node %d", i) }
func processRow(i int) string { return fmt.Sprintf("process %d", i) }

// exclusive reports whether the targets of f must have no other exclusive fault at the same time.
func (f fault) exclusive() bool { return f.Kind != forgotten }

// fakesTime reports whether f needs libfaketime.
func (f fault) fakesTime() bool {
	return f.Kind == clockRate || f.Kind == clockBack || f.Kind == clockForward
}

// A recipe says how the planner draws faults of one kind.
type recipe struct {
	kind   kind
	weight int // relative frequency
	least  time.Duration
	most   time.Duration // least and most are the bounds of the duration; 0: no duration
	out    bool          // the node is out of action during the fault
	after  time.Duration // how long the target stays busy afterwards; if out is set, also out of action

	restarts bool // the guard excludes the node; the planner allows one such node at a time
	vary     func(r *rand.Rand, f *fault)
}

const (
	ms = time.Millisecond

	// settling is how long a node may take to recover after the end of a fault.
	settling = 500 * ms
	// maxSetBack is the largest step by which a clock is set back.
	maxSetBack = time.Second
	// maxRate is the largest error of a clock's rate: less than the drift factor, 1 %.
	maxRate = 0.008
)

// recipes returns the faults under which the library must keep the contract. quarantine is how long
// the guard excludes a node after a restart.
func recipes(quarantine time.Duration) []recipe {
	by := func(least, most time.Duration) func(*rand.Rand, *fault) {
		return func(r *rand.Rand, f *fault) { f.By = between(r, least, most) }
	}
	return []recipe{
		{kind: freeze, weight: 8, least: 50 * ms, most: 3000 * ms, out: true, after: settling},
		{kind: restartKept, weight: 1, least: 50 * ms, most: 1500 * ms, out: true, after: quarantine, restarts: true},
		{kind: restartEmpty, weight: 1, least: 50 * ms, most: 1500 * ms, out: true, after: quarantine, restarts: true},
		{kind: restartFlushed, weight: 1, least: 50 * ms, most: 1500 * ms, out: true, after: quarantine, restarts: true},
		{kind: cutRequests, weight: 5, least: 50 * ms, most: 3000 * ms, out: true, after: settling},
		{kind: cutReplies, weight: 5, least: 50 * ms, most: 3000 * ms, out: true, after: settling},
		{kind: cutBoth, weight: 5, least: 50 * ms, most: 7000 * ms, out: true, after: settling},
		{kind: slowRequests, weight: 4, least: 200 * ms, most: 3000 * ms, out: true, after: settling, vary: by(5*ms, 300*ms)},
		{kind: slowReplies, weight: 4, least: 200 * ms, most: 3000 * ms, out: true, after: settling, vary: by(5*ms, 300*ms)},
		{kind: loseReplies, weight: 5, least: 20 * ms, most: 1000 * ms, out: true, after: settling},
		{kind: reset, weight: 5},
		{kind: clientKill, weight: 4},
		{kind: password, weight: 3, least: 50 * ms, most: 2000 * ms, out: true, after: settling},
		{kind: noSelect, weight: 3, least: 50 * ms, most: 2000 * ms, out: true, after: settling},
		{kind: babble, weight: 6, least: 20 * ms, most: 1000 * ms, out: true, after: settling, vary: func(r *rand.Rand, f *fault) {
			f.Seed = r.Uint64()
		}},
		{kind: scriptFlush, weight: 4},
		{kind: outOfMemory, weight: 4, least: 200 * ms, most: 2000 * ms, out: true, after: settling},
		{kind: clockRate, weight: 4, least: 2000 * ms, most: 8000 * ms, vary: func(r *rand.Rand, f *fault) {
			f.Rate = 1 + maxRate*(2*r.Float64()-1)
		}},
		{kind: clockBack, weight: 2, out: true, after: maxSetBack + settling, vary: func(r *rand.Rand, f *fault) {
			f.By = -between(r, 50*ms, maxSetBack)
		}},
		{kind: partition, weight: 5, least: 100 * ms, most: 4000 * ms},
		{kind: stopped, weight: 6, least: 50 * ms, most: 3500 * ms},
		{kind: forgotten, weight: 3},
	}
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return (least + time.Duration(r.Int64N(int64(most-least)+1))).Round(ms)
}

const (
	// lull is how long the traffic runs without faults at its start and at its end.
	lull = time.Second
	// minGap and maxGap bound the time from one fault to the next.
	minGap = 100 * ms
	maxGap = 900 * ms
)

// planContract draws faults within the contract for a run. length is the length of the traffic. At any
// time at most maxOut nodes are out of action, and at most one process is stopped or cut off.
func planContract(seed uint64, length, quarantine time.Duration) (plan []fault) {
	p := planner{r: rand.New(rand.NewPCG(seed, 1)), end: length - lull, recipes: recipes(quarantine)}
	if f, ok := p.hostOff(quarantine); ok {
		plan = append(plan, f)
	}
	for at := lull; at <= p.end; at += between(p.r, minGap, maxGap) {
		if p.r.IntN(bareQuorums) == 0 {
			plan = append(plan, p.bareQuorum(at, quarantine)...)
			continue
		}
		plan = append(plan, p.draw(at)...)
	}
	slices.SortStableFunc(plan, func(a, b fault) int { return cmp.Compare(a.At, b.At) })
	return plan
}

// On average one plan in hostsOff has a host that is off from the start.
const hostsOff = 3

// hostOff decides whether a host is off, and which one. The host stays off for at least half of the time
// until p.end. The guard then excludes the node until its server has been up for long enough.
func (p *planner) hostOff(quarantine time.Duration) (f fault, ok bool) {
	if p.r.IntN(hostsOff) != 0 {
		return f, false
	}
	i := p.r.IntN(nodeCount)
	f = fault{Kind: hostOff, Nodes: []int{i}, For: between(p.r, p.end/2, p.end)}
	f.out = max(f.For, quarantine) + settling
	p.nodes[i] = busy{until: f.out, out: f.out}
	return f, true
}

// offFromTheStart returns the node whose host is off at the start of the plan, or -1.
func offFromTheStart(plan []fault) int {
	if i := slices.IndexFunc(plan, func(f fault) bool { return f.Kind == hostOff }); i >= 0 {
		return plan[i].Nodes[0]
	}
	return -1
}

// A planner holds the state of planning.
type planner struct {
	r         *rand.Rand
	recipes   []recipe
	end       time.Duration // when all faults must be healed
	nodes     [nodeCount]busy
	processes [processCount]busy
}

// busy says until when a node or process is busy.
type busy struct {
	until       time.Duration // the planner does not choose it again before then
	out         time.Duration // out of action until then
	quarantined time.Duration // excluded by the guard until then
}

// draw draws a fault that begins at the given time. It returns nil if a target is not free for the fault,
// or if the fault would last beyond p.end.
func (p *planner) draw(at time.Duration) []fault {
	total := 0
	for _, c := range p.recipes {
		total += c.weight
	}
	n := p.r.IntN(total)
	i := slices.IndexFunc(p.recipes, func(c recipe) bool { n -= c.weight; return n < 0 })
	c := p.recipes[i]
	f := fault{At: at, Kind: c.kind}
	if c.most > 0 {
		most := between(p.r, c.least, c.most)
		f.For = between(p.r, c.least, most) // drawing twice makes short faults more likely
	}
	if c.vary != nil {
		c.vary(p.r, &f)
	}
	var free bool
	switch c.kind {
	case forgotten:
		free = p.aimAtAll(&f)
	case partition, stopped:
		free = p.aimAtProcess(&f)
	default:
		free = p.aimAtNode(&f, c)
	}
	if !free || at+f.For > p.end {
		return nil
	}
	if f.exclusive() {
		p.take(&f, c)
	}
	return []fault{f}
}

// On average one draw in bareQuorums is a bareQuorum.
const bareQuorums = 12

// bareQuorum makes two nodes refuse every lock for a while, so that each new lock has its keys on the
// other three nodes only. Then it restarts one of these three. If that node loses its keys, three nodes
// are without a lock's key. They are a quorum, and only the guard keeps them from admitting a second
// holder.
func (p *planner) bareQuorum(at, quarantine time.Duration) []fault {
	victims := p.r.Perm(nodeCount)[:maxOut+1]
	refusing, down := between(p.r, 700*ms, 1500*ms), between(p.r, 20*ms, 100*ms)
	restart := fault{
		At: at + refusing + 50*ms, For: down, Nodes: victims[maxOut:], out: down + quarantine,
		Kind: []kind{restartKept, restartEmpty, restartEmpty, restartFlushed}[p.r.IntN(4)],
	}
	for _, b := range p.nodes {
		if b.out > at || b.quarantined > at {
			return nil
		}
	}
	for _, i := range victims {
		if p.nodes[i].until > at {
			return nil
		}
	}
	if restart.At+restart.For > p.end {
		return nil
	}
	plan := []fault{restart}
	for _, i := range victims[:maxOut] {
		plan = append(plan, fault{At: at, For: refusing, Kind: outOfMemory, Nodes: []int{i}, out: refusing})
		p.nodes[i] = busy{until: at + refusing, out: at + refusing}
	}
	end := restart.At + restart.out
	p.nodes[victims[maxOut]] = busy{until: end, out: end, quarantined: end}
	return plan
}

// aimAtProcess chooses the process of f, and the nodes if f is a partition. It reports whether no process is busy.
func (p *planner) aimAtProcess(f *fault) bool {
	i := p.r.IntN(processCount)
	f.Process = i + 1
	if f.Kind == partition {
		f.Nodes = p.r.Perm(nodeCount)[:1+p.r.IntN(nodeCount)]
		slices.Sort(f.Nodes)
	}
	return !slices.ContainsFunc(p.processes[:], func(b busy) bool { return b.until > f.At })
}

// aimAtAll chooses all nodes, and one process or all.
func (p *planner) aimAtAll(f *fault) bool {
	f.Process = p.r.IntN(processCount + 1)
	for i := range nodeCount {
		f.Nodes = append(f.Nodes, i)
	}
	return true
}

// aimAtNode chooses the node, and reports whether the fault is possible there now.
func (p *planner) aimAtNode(f *fault, c recipe) bool {
	i := p.r.IntN(nodeCount)
	f.Nodes = []int{i}
	out, quarantined := 0, false
	for _, b := range p.nodes {
		if b.out > f.At {
			out++
		}
		quarantined = quarantined || b.quarantined > f.At
	}
	return p.nodes[i].until <= f.At && (!c.out || out < maxOut) && (!c.restarts || !quarantined)
}

// take makes the target of f busy until f is over. c is the recipe of f.
func (p *planner) take(f *fault, c recipe) {
	end := f.At + f.For + c.after
	if f.Process != 0 {
		p.processes[f.Process-1].until = end
		return
	}
	b := &p.nodes[f.Nodes[0]]
	b.until = end
	if c.restarts {
		b.quarantined = end
	}
	if c.out {
		b.out, f.out = end, end-f.At
	}
}

// planRepeated repeats the fault f. Each time it hits several nodes at once, chosen at random. victims is how many.
func planRepeated(seed uint64, length, every time.Duration, victims int, f fault) (plan []fault) {
	r := rand.New(rand.NewPCG(seed, 2))
	for at := every; at <= length-lull; at += every + between(r, 0, every/4) {
		one := f
		one.At = at
		one.Nodes = r.Perm(nodeCount)[:victims]
		slices.Sort(one.Nodes)
		plan = append(plan, one)
	}
	return plan
}

// planBrief draws short faults, each of one node. nodes is the number of nodes to choose from.
func planBrief(seed uint64, length time.Duration, nodes int) (plan []fault) {
	r := rand.New(rand.NewPCG(seed, 5))
	lasting := []kind{freeze, cutBoth, cutRequests, cutReplies, loseReplies}
	once := []kind{reset, clientKill, scriptFlush}
	for at := lull; at <= length-lull; at += settling + between(r, 0, settling) {
		f := fault{At: at, Nodes: []int{r.IntN(nodes)}}
		if i := r.IntN(len(lasting) + len(once)); i < len(lasting) {
			f.Kind, f.For = lasting[i], between(r, 50*ms, 400*ms)
		} else {
			f.Kind = once[i-len(lasting)]
		}
		plan = append(plan, f)
		at += f.For
	}
	return plan
}

// badNode are the faults of the scene bad-node.
var badNode = append([]kind{
	freeze, cutBoth, slowRequests, slowReplies, flapping, failingDials, breaking, wrongAddress, farRegisters, otherType,
}, refusals...)

// refusals are the faults in which a node answers, but refuses to write.
var refusals = []kind{outOfMemory, readOnly, noReplicas, misconf}

// planBadNode makes one node bad at a time, in one way after another. In one case out of three a crashed client leaves
// keys on another node meanwhile. The queues of another type are on a majority.
func planBadNode(seed uint64, length time.Duration) (plan []fault) {
	r := rand.New(rand.NewPCG(seed, 6))
	var order []int
	for at := lull; ; at += between(r, minGap, maxGap) {
		if len(order) == 0 {
			order = r.Perm(len(badNode))
		}
		nodes := r.Perm(nodeCount)
		f := fault{At: at, Kind: badNode[order[0]], For: between(r, 4000*ms, 6000*ms), Nodes: nodes[:1], Seed: r.Uint64()}
		crashes := r.IntN(3) == 0
		switch f.Kind {
		case slowRequests, slowReplies:
			f.By = between(r, 300*ms, 2000*ms)
		case wrongAddress:
			f.Process = r.IntN(processCount + 1)
		case otherType:
			f.Nodes, crashes = nodes[:quorum], false
			slices.Sort(f.Nodes)
		}
		leaves := fault{At: at + between(r, 0, 500*ms), Kind: crash, Nodes: nodes[1:2]}
		if at += f.For; at > length-lull {
			return plan
		}
		plan, order = append(plan, f), order[1:]
		if crashes {
			plan = append(plan, leaves)
		}
	}
}

// withoutFakeTime returns the faults that do not need libfaketime. left is the number of the other faults.
func withoutFakeTime(plan []fault) (rest []fault, left int) {
	rest = slices.DeleteFunc(slices.Clone(plan), fault.fakesTime)
	return rest, len(plan) - len(rest)
}
