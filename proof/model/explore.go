package model

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// This file implements the explorer. It visits every state that a small system can reach, in the
// order of distance from the start, so the first violation has a shortest trace.

// A Kind says what makes a step happen.
type Kind uint8

// The kinds of steps.
const (
	Work   Kind = iota // happens soon by itself: a message is executed, a client continues
	Timer              // happens when a time has passed
	Choice             // may happen or not: a failure, or an action of a user
)

// A Step is something that happens. In its text {c} stands for the name of the client and {n} for the
// number of the node, counted from 1.
type Step struct {
	Text   string
	Kind   Kind
	Client int
	Node   int
}

// A System is a state machine and its required properties. S is a type without pointers.
type System[S comparable] struct {
	Start   S
	Clients []string // names, for traces
	Next    func(s S, do func(Step, S))

	// Same maps states that differ only in the naming of nodes or clients to one representative;
	// nil means no such symmetry. It must commute with Next, and equivalent states must have the
	// same properties.
	Same func(S) S

	// Wrong says what is wrong in a state, "" if nothing is.
	Wrong func(S) string

	// A system rests in a state if no step of Work leaves it. Rest says why the system must not rest
	// in s, "" if it may. A nil Rest allows rest in every state.
	Rest func(s S) string

	// Spins forbids endless work: a cycle that consists of steps of Work only.
	Spins bool

	// From every state, some state that Goal accepts must be reachable. A nil Goal demands nothing.
	Goal func(S) bool

	Show func(S) string
}

// A Result is the outcome of an exploration.
type Result struct {
	States, Steps int
	Complete      bool   // every reachable state was visited
	Violation     string // "" if there was none
	Trace         []Line // the steps to the violation
	Way           []int  // the same steps: which one of those that Next offers it is, in each state
}

// A Line is one step of a trace and the state after it.
type Line struct{ Step, State string }

// Length returns the number of steps.
func (r Result) Length() int { return max(len(r.Trace)-1, 0) }

func (r Result) String() string {
	var b strings.Builder
	outcome := "complete, no violation"
	switch {
	case r.Violation != "":
		outcome = fmt.Sprintf("%s, after %d steps", r.Violation, r.Length())
	case !r.Complete:
		outcome = "INCOMPLETE, no violation so far"
	}
	fmt.Fprintf(&b, "%d states, %d steps: %s", r.States, r.Steps, outcome)
	for i, l := range r.Trace {
		fmt.Fprintf(&b, "\n%4d. %-58s %s", i, l.Step, l.State)
	}
	return b.String()
}

// A Search says how to look for a violation.
type Search struct {
	Most int   // how many states to find
	Way  []int // of a Result: the violation is expected at its end, so nothing else is searched if it is there
}

// Find looks for a violation at the end of a way, if there is one, and otherwise in all states.
func Find[S comparable](sys System[S], how Search) Result {
	if len(how.Way) > 0 {
		if r := follow(sys, how); r.Violation != "" {
			return r
		}
	}
	return Explore(sys, how.Most)
}

// follow goes a way, and returns the violation at its end. It visits no other states, unless a goal may be out of reach
// there: then it visits what can be reached from the end.
func follow[S comparable](sys System[S], how Search) Result {
	x := &explorer[S]{System: sys}
	s, states, kinds := sys.Start, []S{x.canonical(sys.Start)}, []Kind{}
	lines := []Line{{"start", sys.Show(s)}}
	for _, choice := range how.Way {
		var steps []Step
		var then []S
		sys.Next(s, func(step Step, to S) { steps, then = append(steps, step), append(then, to) })
		if choice >= len(steps) {
			return Result{}
		}
		s = then[choice]
		states, kinds = append(states, x.canonical(s)), append(kinds, steps[choice].Kind)
		lines = append(lines, Line{x.text(steps[choice]), sys.Show(s)})
	}
	last := states[len(states)-1]
	return Result{States: len(states), Violation: x.wrongAt(last, states, kinds, how.Most), Trace: lines, Way: how.Way}
}

// wrongAt returns what is wrong with the last of states, "" if nothing is. kinds are those of the steps between states.
func (x *explorer[S]) wrongAt(last S, states []S, kinds []Kind, most int) string {
	if x.Wrong != nil {
		if why := x.Wrong(last); why != "" {
			return why
		}
	}
	rests := true
	x.Next(last, func(step Step, _ S) { rests = rests && step.Kind != Work })
	if rests && x.Rest != nil {
		if why := x.Rest(last); why != "" {
			return why
		}
	}
	since := kinds[slices.Index(states, last):] // the steps since the system was in this state before
	if x.Spins && len(since) > 0 && !slices.ContainsFunc(since, func(k Kind) bool { return k != Work }) {
		return spinning
	}
	if x.Goal != nil && x.isOutOfReach(last, most) {
		return unreachable
	}
	return ""
}

// isOutOfReach reports whether no state that can be reached from s is the goal.
func (x *explorer[S]) isOutOfReach(s S, most int) bool {
	r := Explore(System[S]{Start: s, Next: x.Next, Same: x.Same, Show: x.Show, Wrong: func(s S) string {
		if x.Goal(s) {
			return "reached"
		}
		return ""
	}}, most)
	return r.Complete && r.Violation == ""
}

// What is wrong although no single state is.
const (
	spinning    = "endless work: the last state has been there before"
	unreachable = "the goal is out of reach"
)

// Explore visits the states of a system. It ends early when it has found more than limit states.
func Explore[S comparable](sys System[S], limit int) Result {
	x := &explorer[S]{System: sys, seed: maphash.MakeSeed(), table: make([]int32, 1<<10)}
	x.add(x.canonical(sys.Start), -1)
	for i := 0; i < len(x.states); i++ {
		if len(x.states) > limit {
			return x.result(false, "", nil)
		}
		if why := x.visit(short(i)); why != "" {
			return x.result(false, why, x.path(short(i)))
		}
	}
	if path := x.circle(); x.Spins && path != nil {
		return x.result(true, spinning, path)
	}
	if stuck := x.stuck(); stuck >= 0 {
		return x.result(true, unreachable, x.path(stuck))
	}
	return x.result(true, "", nil)
}

// An explorer holds the states found so far, in the order in which they were found.
type explorer[S comparable] struct {
	System[S]
	states []S
	from   []int32 // by state: the state from which it was first reached
	steps  int

	seed  maphash.Seed
	table []int32 // hash table with linear probing; an entry is the index of a state + 1

	// The steps from state i are edges[ends[i-1]:ends[i]]. They are kept only if a property needs
	// them.
	edges []edge
	ends  []int
}

// An edge is a step to a state.
type edge struct {
	to   int32
	kind Kind
}

// short returns an index as an int32, which needs half the memory. Memory cannot hold 2^31 states
// anyway.
func short(i int) int32 {
	return int32(i) //nolint:gosec // see above
}

func (x *explorer[S]) canonical(s S) S {
	if x.Same == nil {
		return s
	}
	return x.Same(s)
}

// add returns the index of the canonical state s, and adds it if it is new. from is the state
// from which it was reached.
func (x *explorer[S]) add(s S, from int32) int32 {
	at := x.place(s)
	if i := x.table[at]; i != 0 {
		return i - 1
	}
	x.states, x.from = append(x.states, s), append(x.from, from)
	x.table[at] = short(len(x.states))
	if 2*len(x.states) > len(x.table) {
		x.grow()
	}
	return short(len(x.states) - 1)
}

// place returns the index in the table where s is, or would be.
func (x *explorer[S]) place(s S) uint64 {
	mask := uint64(len(x.table) - 1) //nolint:gosec // a table is not empty
	at := maphash.Comparable(x.seed, s) & mask
	for x.table[at] != 0 && x.states[x.table[at]-1] != s {
		at = (at + 1) & mask
	}
	return at
}

func (x *explorer[S]) grow() {
	x.table = make([]int32, 2*len(x.table))
	for i, s := range x.states {
		x.table[x.place(s)] = short(i + 1)
	}
}

// visit adds the states that follow state i, and returns the violation in state i, "" for none.
func (x *explorer[S]) visit(i int32) string {
	s := x.states[i]
	if x.Wrong != nil {
		if why := x.Wrong(s); why != "" {
			return why
		}
	}
	graph, rests := x.Spins || x.Goal != nil, true
	x.Next(s, func(step Step, to S) {
		x.steps++
		rests = rests && step.Kind != Work
		j := x.add(x.canonical(to), i)
		if graph {
			x.edges = append(x.edges, edge{j, step.Kind})
		}
	})
	if graph {
		x.ends = append(x.ends, len(x.edges))
	}
	if rests && x.Rest != nil {
		return x.Rest(s)
	}
	return ""
}

func (x *explorer[S]) edgesOf(i int32) []edge {
	first := 0
	if i > 0 {
		first = x.ends[i-1]
	}
	return x.edges[first:x.ends[i]]
}

// path returns the states on the way to state i, in order.
func (x *explorer[S]) path(i int32) (path []int32) {
	for ; i >= 0; i = x.from[i] {
		path = append([]int32{i}, path...)
	}
	return path
}

// circle returns a path that leads to a cycle of Work and goes around it once, nil if there is no such
// cycle. It searches depth first: a state met again on the current path closes a cycle.
func (x *explorer[S]) circle() []int32 {
	if !x.Spins {
		return nil
	}
	const onTheWay, done = 1, 2
	marks, next := make([]uint8, len(x.states)), make([]int32, len(x.states))
	for root := range x.states {
		if marks[root] != 0 {
			continue
		}
		way := []int32{short(root)}
		marks[root] = onTheWay
		for len(way) > 0 {
			i := way[len(way)-1]
			edges := x.edgesOf(i)
			if int(next[i]) == len(edges) {
				marks[i], way = done, way[:len(way)-1]
				continue
			}
			e := edges[next[i]]
			next[i]++
			switch {
			case e.kind != Work:
			case marks[e.to] == onTheWay:
				for way[0] != e.to {
					way = way[1:]
				}
				return append(append(x.path(e.to), way[1:]...), e.to)
			case marks[e.to] == 0:
				marks[e.to], way = onTheWay, append(way, e.to)
			}
		}
	}
	return nil
}

// stuck returns the first state from which the goal cannot be reached, -1 if there is none.
func (x *explorer[S]) stuck() int32 {
	if x.Goal == nil {
		return -1
	}
	back, ends := x.reversed()
	reaches := make([]bool, len(x.states))
	var todo []int32
	reach := func(i int32) {
		if !reaches[i] {
			reaches[i], todo = true, append(todo, i)
		}
	}
	for i, s := range x.states {
		if x.Goal(s) {
			reach(short(i))
		}
	}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, j := range back[ends[i]:ends[i+1]] {
			reach(j)
		}
	}
	for i, ok := range reaches {
		if !ok {
			return short(i)
		}
	}
	return -1
}

// reversed returns the reversed edges: the predecessors of state i are back[ends[i]:ends[i+1]].
func (x *explorer[S]) reversed() (back []int32, ends []int) {
	ends = make([]int, len(x.states)+2)
	for _, e := range x.edges {
		ends[e.to+2]++
	}
	for i := 2; i < len(ends); i++ {
		ends[i] += ends[i-1]
	}
	back = make([]int32, len(x.edges))
	for i := range x.states {
		for _, e := range x.edgesOf(short(i)) {
			back[ends[e.to+1]] = short(i)
			ends[e.to+1]++
		}
	}
	return back, ends
}

func (x *explorer[S]) result(complete bool, violation string, path []int32) Result {
	r := Result{States: len(x.states), Steps: x.steps, Complete: complete, Violation: violation}
	if path != nil {
		r.Trace, r.Way = x.trace(path)
	}
	return r
}

// trace repeats the steps along path, from Start and without applying Same. Clients and nodes then keep
// their names throughout the trace, although path contains only representatives.
func (x *explorer[S]) trace(path []int32) (lines []Line, way []int) {
	s := x.Start
	lines = []Line{{"start", x.Show(s)}}
	for _, i := range path[1:] {
		found, n := false, 0
		var then S
		x.Next(s, func(step Step, to S) {
			if !found && x.canonical(to) == x.states[i] {
				found, then = true, to
				lines, way = append(lines, Line{Step: x.text(step)}), append(way, n)
			}
			n++
		})
		s = then
		lines[len(lines)-1].State = x.Show(s)
	}
	return lines, way
}

func (x *explorer[S]) text(s Step) string {
	client := ""
	if s.Client < len(x.Clients) {
		client = x.Clients[s.Client]
	}
	return strings.NewReplacer("{c}", client, "{n}", fmt.Sprint(s.Node+1)).Replace(s.Text)
}
