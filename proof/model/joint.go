package model

// This file models a change of the set of nodes, from an old set (before) to a new set (after). A process that was
// deployed with the old set needs a quorum of the old set. A process with the new set needs a quorum of the new set. A
// process with the joint set needs a quorum of each. A deployment is complete when every process of the former kind
// has ended.
//
// Time and messages are as in lock.go: each node may execute a message at any time and any number of times. A
// process that ends releases nothing. Its hold still counts until the keys expire, because the minimal hold of a job
// and a lock delay rely on that.

const (
	jointNodes    = 4
	jointAttempts = 3 // the largest number of attempts
	jointTTL      = 2
)

// A jointSet is a set of nodes: bit n stands for node n. The sets share two nodes, and each has one of its own.
type jointSet uint8

const (
	before jointSet = 1<<0 | 1<<1 | 1<<2
	after  jointSet = 1<<0 | 1<<1 | 1<<3
)

// quorumIn reports whether votes have a quorum of s: two of its three nodes.
func (s jointSet) quorumIn(votes jointSet) bool {
	count := 0
	for n := range jointNodes {
		if s&votes>>n&1 != 0 {
			count++
		}
	}
	return count >= 2
}

// A deployment says which kinds of processes run.
type deployment uint8

const (
	oldAlone deployment = iota
	oldAndJoint
	jointAlone
	jointAndNew
	newAlone
)

// deployments says how each deployment begins.
var deployments = [...]string{
	"", "joint processes start", "the last old process ends", "new processes start", "the last joint process ends",
}

// A kind is the set that a process was deployed with.
type kind uint8

const (
	oldKind kind = iota
	jointKind
	newKind
)

// runs reports whether processes of a kind may run.
func (d deployment) runs(k kind) bool {
	switch k {
	case oldKind:
		return d <= oldAndJoint
	case jointKind:
		return d >= oldAndJoint && d <= jointAndNew
	default:
		return d >= jointAndNew
	}
}

// asks returns the nodes that a process of a kind asks.
func (k kind) asks() jointSet { return [...]jointSet{before, before | after, after}[k] }

// A jointState is the state of the nodes, the attempts and the deployment.
type jointState struct {
	nodes    [jointNodes]jointNode
	attempts [jointAttempts]jointAttempt
	deployed deployment
	waited   uint8 // ticks since the last process of the former kind ended, up to the TTL
}

type jointNode struct {
	value uint8 // of the key; 0: no key
	left  uint8 // ticks until the key expires
	votes [jointAttempts]vote
}

type jointAttempt struct {
	phase lockPhase
	kind  kind
	age   uint8 // ticks since the round began
	left  uint8 // ticks of validity left
	ended bool  // its process has ended: it sends no release
}

// Each field of jointFlaws weakens a rule: see jointRules.
type jointFlaws struct {
	together    bool // old and new run at once, without the joint set between them
	forgotten   bool // the next deployment does not wait for keys of processes that have ended
	beforeAlone bool // a joint process needs only a quorum of the old set
	afterAlone  bool // a joint process needs only a quorum of the new set
}

// jointBounds say what may happen.
type jointBounds struct {
	name     string
	attempts int
	from, to deployment // the first deployment and the last
	kinds    []kind     // of each attempt; nil: any
	size     Size
}

type joint struct {
	jointBounds
	jointFlaws
}

// The bounds in which the rules are explored.
var (
	jointWhole  = jointBounds{name: "from old to new, two clients", attempts: 2, to: newAlone, size: Large}
	jointFirst  = jointBounds{name: "two old clients and a joint one", attempts: 3, from: oldAndJoint, to: oldAndJoint, kinds: []kind{oldKind, oldKind, jointKind}, size: Large}
	jointSecond = jointBounds{name: "two joint clients and a new one", attempts: 3, from: jointAndNew, to: jointAndNew, kinds: []kind{jointKind, jointKind, newKind}, size: Large}
)

var jointRules = []struct {
	name, rule string
	bounds     jointBounds
	flaws      jointFlaws
}{
	{"old and new together", "old and new processes never run at the same time: between them, every process has the joint set", jointWhole.between(oldAlone, newAlone), jointFlaws{together: true}},
	{"the dead's keys forgotten", "after the last process of a kind has ended, the next deployment waits for the longest TTL", jointWhole.sized(Medium), jointFlaws{forgotten: true}},
	{"a joint process asks before alone", "a joint process needs a quorum of both sets, also where only joint and new processes run", jointWhole.between(jointAndNew, jointAndNew), jointFlaws{beforeAlone: true}},
	{"a joint process asks after alone", "a joint process needs a quorum of both sets, also where only old and joint processes run", jointWhole.between(oldAndJoint, oldAndJoint), jointFlaws{afterAlone: true}},
}

func (b jointBounds) sized(size Size) jointBounds {
	b.size = size
	return b
}

// between returns the bounds with another first and last deployment, for a mutation that takes little time.
func (b jointBounds) between(from, to deployment) jointBounds {
	b.from, b.to, b.size = from, to, Small
	return b
}

func jointCases() (cases []Case) {
	for _, b := range []jointBounds{jointWhole, jointFirst, jointSecond} {
		cases = append(cases, Case{Model: "joint", Name: b.name, Size: b.size, Explore: joint{b, jointFlaws{}}.explore})
	}
	return cases
}

func jointMutations() (cases []Case) {
	for _, r := range jointRules {
		cases = append(cases, Case{Model: "joint", Name: r.name, Rule: r.rule, Section: "H joint sets", Size: r.bounds.size, Explore: joint{r.bounds, r.flaws}.explore})
	}
	return cases
}

func (j joint) explore(how Search) Result {
	names := []string{"A", "B", "C"}
	return Find(System[jointState]{
		Start: jointState{deployed: j.from}, Clients: names, Next: j.next, Same: sameJoint, Wrong: wrongJoint,
		Show: func(s jointState) string { return s.show(names) },
	}, how)
}

// wrongJoint checks that there is at most one holder. The hold of a process that has ended still counts.
func wrongJoint(s jointState) string {
	holders := 0
	for _, a := range s.attempts {
		if a.left > 0 {
			holders++
		}
	}
	if holders > 1 {
		return "two holders"
	}
	return ""
}

func (j joint) next(s jointState, do func(Step, jointState)) {
	j.deploy(s, do)
	for i := range j.attempts {
		j.client(s, i, do)
		for n := range s.nodes {
			j.execute(s, i, n, do)
		}
	}
	j.tick(s, do)
}

// deploy adds the steps to the next deployment.
func (j joint) deploy(s jointState, do func(Step, jointState)) {
	if s.deployed == j.to {
		return
	}
	// When new processes start, the keys of the old processes, which have all ended, must have expired.
	starts := s.deployed == oldAlone || s.deployed == jointAlone
	if s.deployed == jointAlone && s.waited < jointTTL && !j.forgotten {
		return
	}
	s.deployed++
	if j.together && s.deployed == oldAndJoint {
		s.deployed = jointAndNew
	}
	if !starts {
		s.waited = 0
		for i := range s.attempts {
			if a := &s.attempts[i]; a.phase != idle && !s.deployed.runs(a.kind) {
				a.ended = true
				if a.phase == asking {
					s.over(i)
				}
			}
		}
	}
	do(Step{Text: deployments[s.deployed], Kind: Choice}, s)
}

func (joint) tick(s jointState, do func(Step, jointState)) {
	for n := range s.nodes {
		node := &s.nodes[n]
		node.left = max(node.left, 1) - 1
		if node.left == 0 {
			node.value = 0
		}
	}
	for i := range s.attempts {
		a := &s.attempts[i]
		a.left = max(a.left, 1) - 1
		switch {
		case a.phase == asking:
			if a.age++; a.age >= jointTTL { // a grant would now come too late
				s.over(i)
			}
		case a.phase == held && a.left == 0:
			s.over(i)
		}
	}
	s.waited = min(s.waited+1, jointTTL)
	do(Step{Text: "a tick passes", Kind: Timer}, s)
}

// client adds the steps of attempt i.
func (j joint) client(s jointState, i int, do func(Step, jointState)) {
	a := &s.attempts[i]
	switch {
	case a.phase == idle:
		for _, k := range [...]kind{oldKind, jointKind, newKind} {
			runs := s.deployed.runs(k) && (j.kinds == nil || j.kinds[i] == k)
			if j.together { // old and new run at once, as if an address were replaced in one process after another
				runs = k == oldKind || k == newKind && s.deployed >= jointAndNew
			}
			if runs {
				t := s
				t.attempts[i] = jointAttempt{phase: asking, kind: k}
				do(Step{"{c} sends its acquire, with the " + [...]string{"old", "joint", "new"}[k] + " set", Choice, i, 0}, t)
			}
		}
	case a.ended:
	case a.phase == asking:
		if j.wins(&s, i) {
			t := s
			t.attempts[i].phase, t.attempts[i].left, t.attempts[i].age = held, jointTTL-a.age, 0
			do(Step{"{c} HOLDS the lock", Work, i, 0}, t)
		}
		s.over(i)
		do(Step{"{c} gives up and sends its release", Choice, i, 0}, s)
	case a.phase == held:
		s.over(i)
		do(Step{"{c} unlocks and sends its release", Choice, i, 0}, s)
	}
}

// wins reports whether the grants for attempt i are enough for its kind.
func (j joint) wins(s *jointState, i int) bool {
	var votes jointSet
	for n := range s.nodes {
		if s.nodes[n].votes[i] == yes {
			votes |= 1 << n
		}
	}
	switch k := s.attempts[i].kind; {
	case k == oldKind || k == jointKind && j.beforeAlone:
		return before.quorumIn(votes)
	case k == newKind || k == jointKind && j.afterAlone:
		return after.quorumIn(votes)
	}
	return before.quorumIn(votes) && after.quorumIn(votes)
}

// over ends attempt i. Its messages remain on their way.
func (s *jointState) over(i int) {
	a := &s.attempts[i]
	*a = jointAttempt{phase: over, kind: a.kind, ended: a.ended}
	for n := range s.nodes {
		s.nodes[n].votes[i] = pending
	}
}

// execute adds the steps in which node n executes a message of attempt i.
func (joint) execute(s jointState, i, n int, do func(Step, jointState)) {
	a := s.attempts[i]
	if a.phase == idle || a.kind.asks()>>n&1 == 0 {
		return
	}
	t := s
	node := &t.nodes[n]
	granted := node.value == 0
	if granted {
		node.value, node.left = mark(i), jointTTL
	}
	if v := &node.votes[i]; a.phase == asking && *v == pending {
		*v = no
		if granted {
			*v = yes
		}
	}
	if t != s {
		do(Step{"node {n} executes {c}'s acquire", Work, i, n}, t)
	}
	if a.phase == over && !a.ended && s.nodes[n].value == mark(i) {
		s.nodes[n].value, s.nodes[n].left = 0, 0
		do(Step{"node {n} executes {c}'s release", Work, i, n}, s)
	}
}

// sameJoint sorts the two nodes that both sets have, because states that differ only in their order are equivalent.
func sameJoint(s jointState) jointState {
	key := func(n *jointNode) uint64 {
		return pack(n.value, n.left, uint8(n.votes[0]), uint8(n.votes[1]), uint8(n.votes[2]))
	}
	if key(&s.nodes[0]) > key(&s.nodes[1]) {
		s.nodes[0], s.nodes[1] = s.nodes[1], s.nodes[0]
	}
	return s
}

func (s *jointState) show(names []string) string {
	var v keysAndHolds
	for _, n := range s.nodes {
		v.key(names, n.value, n.left)
	}
	for i, a := range s.attempts {
		v.hold(names[i], a.left)
	}
	return v.String()
}
