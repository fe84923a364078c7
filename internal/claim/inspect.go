package claim

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/script"
)

// Inspect implements Claim.
func (e *Exclusive) Inspect(alone bool) Call {
	return Call{e.Keys.Inspect(alone), readReport(len(e.Lines()))}
}

// Inspect implements Claim.
func (s *Shared) Inspect(alone bool) Call { return (*Exclusive)(s).Inspect(alone) }

// Inspect implements Claim.
func (s *semaphore) Inspect(alone bool) Call {
	return Call{s.Semaphore.Inspect(alone), readReport(s.Permits())}
}

func readReport(keys int) func(reply any) (Answer, error) {
	return func(reply any) (Answer, error) {
		report, err := script.ParseReport(reply, keys)
		if err != nil {
			return Answer{}, err
		}
		return Answer{Found: Mine, Detail: &Detail{Wait: Never, Own: report}}, nil
	}
}

// ReportIn returns what a node has of a lock, nil if it has not said so.
func ReportIn(v Vote) *script.Report {
	if v.Choice != Granted {
		return nil
	}
	report, _ := v.Answer.Details().Own.(*script.Report)
	return report
}

// A Sighting is what the nodes together say of a lock. A value holds a key if a quorum has it there. Clients may know
// only one of two sets, so with a quorum of one the lock is not certainly free.
//
// Many goroutines may read a Sighting once the round is over.
type Sighting struct {
	rule    Rule
	sets    [2]Nodes // the second may be empty
	voted   Nodes
	heard   Nodes // those that have said what they have
	values  map[place]*seen
	tickets map[place]Nodes
}

// A place is a value at a key, or a ticket in a queue.
type place struct {
	text  string
	index int // of the key or of the queue
}

// A seen is what nodes have at a place.
type seen struct {
	nodes  Nodes
	shared bool // some node has it as a reader's
	ttls   []nodeTTL
}

type nodeTTL struct {
	node int
	ttl  time.Duration
}

// NewSighting returns a Sighting without votes.
func NewSighting(rule Rule) *Sighting {
	s := &Sighting{rule: rule, values: make(map[place]*seen), tickets: make(map[place]Nodes)}
	for i := range MaxNodes {
		for set := range s.sets {
			if rule.All().Has(i) && rule.Sets(i)&(1<<set) != 0 {
				s.sets[set] = s.sets[set].With(i)
			}
		}
	}
	return s
}

// Add implements Tally.
func (s *Sighting) Add(i int, v Vote) {
	s.voted = s.voted.With(i)
	report := ReportIn(v)
	if report == nil {
		return
	}
	s.heard = s.heard.With(i)
	for _, h := range report.Holds {
		s.addHeld(i, h)
	}
	for queue, tickets := range report.Tickets {
		for _, ticket := range tickets {
			p := place{ticket, queue}
			s.tickets[p] = s.tickets[p].With(i)
		}
	}
}

func (s *Sighting) addHeld(i int, h script.Held) {
	p := place{h.Value, h.At}
	v := s.values[p]
	if v == nil {
		v = &seen{}
		s.values[p] = v
	}
	if !v.nodes.Has(i) { // a node that says a value twice lies
		v.nodes, v.shared = v.nodes.With(i), v.shared || h.Shared
		v.ttls = append(v.ttls, nodeTTL{i, h.TTL})
	}
}

// Standing implements Tally. The round is won when it is certain which values hold keys.
func (s *Sighting) Standing() Standing {
	won, all := s.isCertain(), s.rule.All()&^s.voted == 0
	return Standing{Won: won, Blocked: !won && all, Explained: won || all}
}

func (s *Sighting) silent() Nodes { return s.rule.All() &^ s.heard }

// mayHold reports whether a value of these nodes may have a quorum of a set, with the silent nodes.
func (s *Sighting) mayHold(nodes Nodes) bool {
	nodes |= s.silent()
	return slices.ContainsFunc(s.sets[:], func(set Nodes) bool { return 2*(nodes&set).Len() > set.Len() })
}

func (s *Sighting) isCertain() bool {
	for _, v := range s.values {
		if !s.rule.Quorum(v.nodes) && s.mayHold(v.nodes) {
			return false
		}
	}
	return !s.mayHold(0) // there may be values that nobody has told of
}

// IsFree reports whether certainly none of these keys is held.
func (s *Sighting) IsFree(keys ...int) bool {
	for p, v := range s.values {
		if slices.Contains(keys, p.index) && s.mayHold(v.nodes) {
			return false
		}
	}
	return !s.mayHold(0)
}

// IsHeld reports whether one of these keys is held.
func (s *Sighting) IsHeld(keys ...int) bool {
	for p, v := range s.values {
		if slices.Contains(keys, p.index) && s.rule.Quorum(v.nodes) {
			return true
		}
	}
	return false
}

// A Holding is a value and the keys that it holds.
type Holding struct {
	Value  string
	Keys   []int         // ascending
	TTL    time.Duration // how long a quorum still has the value at each of the keys
	Shared bool
}

// Holdings returns the values that hold keys, the longest TTL first.
func (s *Sighting) Holdings() []Holding {
	var all holdings
	for p, v := range s.values {
		if s.rule.Quorum(v.nodes) {
			all.add(script.Held{At: p.index, Value: p.text, TTL: s.ttl(v), Shared: v.shared})
		}
	}
	return all.sorted()
}

// HoldingsIn returns the values that one node has, the longest TTL first.
func HoldingsIn(r *script.Report) []Holding {
	var all holdings
	for _, h := range r.Holds {
		all.add(h)
	}
	return all.sorted()
}

// holdings collects Holdings.
type holdings struct {
	all     []Holding
	indexOf map[string]int // in all, of a value
}

func (h *holdings) add(at script.Held) {
	if h.indexOf == nil {
		h.indexOf = make(map[string]int)
	}
	i, known := h.indexOf[at.Value]
	if !known {
		i = len(h.all)
		h.indexOf[at.Value] = i
		h.all = append(h.all, Holding{Value: at.Value, TTL: script.Endless})
	}
	one := &h.all[i]
	one.Keys, one.TTL, one.Shared = append(one.Keys, at.At), min(one.TTL, at.TTL), one.Shared || at.Shared
}

func (h *holdings) sorted() []Holding {
	for _, one := range h.all {
		slices.Sort(one.Keys)
	}
	slices.SortFunc(h.all, func(a, b Holding) int { return cmp.Or(cmp.Compare(b.TTL, a.TTL), cmp.Compare(a.Value, b.Value)) })
	return h.all
}

// ttl returns for how long a quorum still has v.
func (s *Sighting) ttl(v *seen) time.Duration {
	sorted := slices.SortedFunc(slices.Values(v.ttls), func(a, b nodeTTL) int { return cmp.Compare(b.ttl, a.ttl) })
	var nodes Nodes
	for _, t := range sorted {
		if nodes = nodes.With(t.node); s.rule.Quorum(nodes) {
			return t.ttl
		}
	}
	return 0
}

// Waiting returns the tickets that a quorum has in one of these queues, in order, each once.
func (s *Sighting) Waiting(queues ...int) (tickets []string) {
	for p, nodes := range s.tickets {
		if slices.Contains(queues, p.index) && s.rule.Quorum(nodes) {
			tickets = append(tickets, p.text)
		}
	}
	slices.Sort(tickets)
	return slices.Compact(tickets)
}
