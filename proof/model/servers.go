package model

import (
	"fmt"
	"math/bits"
	"strings"
)

// This file models addresses that lead to the same server. Locks are as in lock.go, but a client reaches the servers
// through addresses, each client by a map of its own. A client of joint sets has the addresses of both. An address in
// both sets is one address, with one client: two clients may lead elsewhere by the same text.

const maxServers, maxAddr = 4, 5

type srvState struct {
	value, left [maxServers]uint8
	attempts    [3]srvAttempt
}

type srvAttempt struct {
	phase    lockPhase
	age      uint8
	left     uint8
	extended uint8
	votes    [maxAddr]vote
	got      uint8 // the addresses by which the acquire was granted, as bits
}

// A serverMap is what a client sees: the server of each address, and its sets of addresses, as bits.
type serverMap struct {
	to   []int
	sets []uint
}

func oneSet(to ...int) serverMap { return serverMap{to, []uint{1<<len(to) - 1}} }

type serverBounds struct {
	name    string
	maps    []serverMap // by client
	ttl     uint8
	extends uint8
	size    Size
}

// Each field of serverFlaws weakens a rule: see serverRules.
type serverFlaws struct {
	perAddress bool // a server counts once for each address: its identity is unknown
	refused    bool // an extension counts addresses at which the acquire was refused, too
	distinct   bool // the quorum is computed from the distinct servers
	anySet     bool // a server counts in each set that has one of its addresses
	text       bool // addresses of the sets are one if their texts are: here those of after are those of before
}

type servers struct {
	serverBounds
	serverFlaws
}

var (
	threeMaps    = []serverMap{oneSet(0, 0, 2), oneSet(0, 1, 2), oneSet(0, 1, 1)}
	serverTwins  = serverBounds{name: "each client sees other duplicates", maps: threeMaps, ttl: 2}
	serverExtend = serverBounds{name: "each client sees other duplicates, extensions", maps: threeMaps, ttl: 2, extends: 1, size: Medium}
	serverMoved  = serverBounds{name: "a doubled server is another client's single one, extensions", maps: []serverMap{oneSet(0, 0, 2), oneSet(1, 1, 2), oneSet(2, 1, 2)}, ttl: 2, extends: 1, size: Medium}
	serverOne    = serverBounds{name: "a client sees one server only", maps: []serverMap{oneSet(0, 0, 0), oneSet(0, 1, 2)}, ttl: 2}
	serverTwo    = serverBounds{name: "two clients, one sees a duplicate, extensions", maps: []serverMap{oneSet(0, 0, 2), oneSet(0, 1, 2)}, ttl: 2, extends: 1}
	serverJoint  = serverBounds{name: "joint sets, an address leads to the other set", maps: []serverMap{
		{[]int{0, 1, 2, 2}, []uint{0b0111, 0b1011}}, {[]int{0, 1, 3}, []uint{0b111}},
	}, ttl: 2, extends: 1}
	serverBoth = serverBounds{name: "joint sets, a server of both at two addresses", maps: []serverMap{
		{[]int{0, 1, 2, 0, 3}, []uint{0b00111, 0b11010}}, {[]int{0, 1, 3}, []uint{0b111}},
	}, ttl: 2}
	serverTexts = serverBounds{name: "joint sets, two servers at addresses of one text", maps: []serverMap{
		{[]int{0, 1, 2, 3}, []uint{0b0111, 0b1011}}, {[]int{0, 1, 3}, []uint{0b111}},
	}, ttl: 2}
	serverUnknown = serverBounds{name: "identities are unknown, extensions", maps: threeMaps, ttl: 2, extends: 1, size: Large}
)

var serverRules = []struct {
	name, rule string
	bounds     serverBounds
	flaws      serverFlaws
}{
	{"the quorum of the distinct servers", "a quorum is counted from all addresses, not from the distinct servers", serverOne, serverFlaws{distinct: true}},
	{"an extension counts where the acquire was refused", "an address whose acquire was refused confirms no extension", serverTwo, serverFlaws{perAddress: true, refused: true}},
	{"a server counts in both of joint sets", "a server with two addresses counts only in the sets that have both", serverJoint, serverFlaws{anySet: true}},
	{"a node of joint sets is known by its text", "a node is in both sets only if both have one client, or one address that go-redis dials", serverTexts, serverFlaws{text: true}},
}

func serverCases() (cases []Case) {
	for _, b := range []serverBounds{serverTwins, serverExtend, serverMoved, serverOne, serverTwo, serverJoint, serverBoth, serverTexts} {
		cases = append(cases, Case{Model: "servers", Name: b.name, Size: b.size, Explore: servers{b, serverFlaws{}}.explore})
	}
	unknown := servers{serverUnknown, serverFlaws{perAddress: true}} // what an acquire was refused does not count
	return append(cases, Case{Model: "servers", Name: unknown.name, Size: unknown.size, Explore: unknown.explore})
}

func serverMutations() (cases []Case) {
	for _, r := range serverRules {
		cases = append(cases, Case{Model: "servers", Name: r.name, Rule: r.rule, Section: "5 one server at two addresses", Size: r.bounds.size, Explore: servers{r.bounds, r.flaws}.explore})
	}
	return cases
}

func (v servers) explore(how Search) Result {
	return Find(System[srvState]{Clients: []string{"A", "B", "C"}, Next: v.next, Wrong: func(s srvState) string {
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
	}, Show: func(s srvState) string {
		var b strings.Builder
		for i := range s.value {
			fmt.Fprintf(&b, "%c%d ", "-ABC"[s.value[i]], s.left[i])
		}
		for i, a := range s.attempts {
			if a.left > 0 {
				fmt.Fprintf(&b, " %c has %d", 'A'+i, a.left)
			}
		}
		return b.String()
	}}, how)
}

// wins reports whether the votes of client i are a quorum of each of its sets.
func (v servers) wins(s *srvState, i int) bool {
	m := v.maps[i]
	for _, set := range m.sets {
		if v.text {
			set = m.sets[0]
		}
		var all, granted uint // servers
		addresses, votes := 0, 0
		for a, server := range m.to {
			if set>>a&1 == 0 {
				continue
			}
			addresses++
			all |= 1 << server
			if s.attempts[i].votes[a] == yes && (v.anySet || m.inAll(server, set)) {
				granted |= 1 << server
				votes++
			}
		}
		q := addresses/2 + 1
		if v.distinct {
			q = bits.OnesCount(all)/2 + 1
		}
		if !v.perAddress {
			votes = bits.OnesCount(granted)
		}
		if votes < q {
			return false
		}
	}
	return true
}

// inAll reports whether all addresses of a server are in a set.
func (m serverMap) inAll(server int, set uint) bool {
	for a, to := range m.to {
		if to == server && set>>a&1 == 0 {
			return false
		}
	}
	return true
}

func (v servers) next(s srvState, do func(Step, srvState)) {
	for i := range v.maps {
		a := &s.attempts[i]
		clear := func(s *srvState) { s.attempts[i].votes = [maxAddr]vote{} }
		switch a.phase {
		case idle:
			t := s
			t.attempts[i].phase = asking
			do(Step{"{c} sends its acquire", Choice, i, 0}, t)
			continue
		case asking, extending:
			if v.wins(&s, i) {
				t := s
				l := &t.attempts[i]
				l.left = max(l.left, v.ttl-l.age)
				if l.phase == asking && v.perAddress && !v.refused {
					for addr, w := range l.votes {
						if w == yes {
							l.got |= 1 << addr
						}
					}
				}
				l.phase, l.age = held, 0
				clear(&t)
				do(Step{"{c} HOLDS the lock, or its extension is confirmed", Work, i, 0}, t)
			}
			t := s
			l := &t.attempts[i]
			if l.phase = held; a.phase == asking {
				*l = srvAttempt{phase: over}
			}
			l.age = 0
			clear(&t)
			do(Step{"{c} gives up", Choice, i, 0}, t)
		case held:
			t := s
			t.attempts[i] = srvAttempt{phase: over}
			do(Step{"{c} unlocks", Choice, i, 0}, t)
			if a.extended < v.extends {
				t := s
				t.attempts[i].phase = extending
				t.attempts[i].extended++
				do(Step{"{c} sends an extension", Choice, i, 0}, t)
			}
		}
		for addr, srv := range v.maps[i].to {
			t := s
			granted := t.value[srv] == 0
			if granted {
				t.value[srv], t.left[srv] = mark(i), v.ttl
			}
			if w := &t.attempts[i].votes[addr]; a.phase == asking && *w == pending {
				if *w = no; granted {
					*w = yes
				}
			}
			if t != s {
				do(Step{fmt.Sprintf("server %d executes {c}'s acquire, by address %d", srv+1, addr+1), Work, i, 0}, t)
			}
			if a.extended > 0 {
				t := s
				own := t.value[srv] == mark(i)
				if own {
					t.left[srv] = max(t.left[srv], v.ttl)
				}
				if w := &t.attempts[i].votes[addr]; a.phase == extending && *w == pending {
					if *w = no; own && (v.refused || !v.perAddress || a.got>>addr&1 == 1) {
						*w = yes
					}
				}
				if t != s {
					do(Step{fmt.Sprintf("server %d executes {c}'s extension, by address %d", srv+1, addr+1), Work, i, 0}, t)
				}
			}
			if a.phase == over && s.value[srv] == mark(i) {
				t := s
				t.value[srv], t.left[srv] = 0, 0
				do(Step{fmt.Sprintf("server %d executes {c}'s release", srv+1), Work, i, 0}, t)
			}
		}
	}
	for n := range s.value {
		if s.left[n] = max(s.left[n], 1) - 1; s.left[n] == 0 {
			s.value[n] = 0
		}
	}
	for i := range s.attempts {
		a := &s.attempts[i]
		a.left = max(a.left, 1) - 1
		if a.phase == asking || a.phase == extending {
			a.age = min(a.age+1, v.ttl)
		}
		if a.phase == asking && a.age == v.ttl || (a.phase == held || a.phase == extending) && a.left == 0 {
			*a = srvAttempt{phase: over, extended: a.extended}
		}
	}
	do(Step{Text: "a tick passes", Kind: Timer}, s)
}
