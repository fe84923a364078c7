package claim

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file shows what votes for permits prove, in all orders in which they can come.

// majorities is the rule by which more than half of each of some sets of nodes decide.
type majorities []Nodes

func (m majorities) All() (all Nodes) {
	for _, set := range m {
		all |= set
	}
	return all
}

func (m majorities) Quorum(nodes Nodes) bool {
	for _, set := range m {
		if (nodes & set).Len() <= set.Len()/2 {
			return false
		}
	}
	return true
}

func (m majorities) Blocks(nodes Nodes) bool { return !m.Quorum(m.All() &^ nodes) }
func (majorities) Sets(int) Sets             { panic("no tally asks") }

func (majorities) Counts(a Answer) Choice {
	if a.Found == Mine {
		return Granted
	}
	return Refused
}

func (m majorities) Standing(c Count) Standing {
	return Standing{
		Won: m.Quorum(c.Granted), Blocked: m.Blocks(c.Refused | c.Failed), Rejected: m.Blocks(c.Refused),
		Explained: m.Quorum(c.Answered()) || m.Blocks(c.Failed),
	}
}

func slotsOf(list ...int) (slots script.Slots) {
	for _, slot := range list {
		slots = slots.With(slot)
	}
	return slots
}

// grants returns the vote of a node that grants slots, and on which others are free.
func grants(slots script.Slots, free ...int) Vote {
	own := script.EnteredPermits{Granted: true, Slots: slots, Free: slots.Or(slotsOf(free...))}
	return Vote{Choice: Granted, Answer: Answer{Found: Mine, Detail: &Detail{Wait: Never, Own: &own}}}
}

// refuses returns the vote of a node that refuses, and on which some slots are free.
func refuses(free ...int) Vote {
	own := script.EnteredPermits{Wait: -1, Free: slotsOf(free...)}
	return Vote{Choice: Refused, Answer: Answer{Found: Other, Detail: &Detail{Wait: Never, Own: &own}}}
}

// newTally returns the tally of an attempt that wants some of n permits.
func newTally(r Rule, n, weight int) *permitTally {
	return NewPermits("lock", n, weight).With("v", nil).(*Permits).Tally(r).(*permitTally)
}

// A vote is how a node can vote in a walk.
type vote struct {
	slots  script.Slots // that it grants; none if it does not
	failed bool
}

func (v vote) cast() Vote {
	switch {
	case v.failed:
		return Vote{Choice: Failed}
	case v.slots == script.Slots{}:
		return refuses()
	}
	return grants(v.slots)
}

// A ballotBox is the votes of a walk, by node. The reference knows nothing else.
type ballotBox struct {
	rule  majorities
	votes map[int]vote
}

// standing returns what the votes prove: it looks at each set of slots that a quorum could grant.
func (b ballotBox) standing() (s Standing, winner script.Slots) {
	open, failed := b.rule.All(), Nodes(0)
	grants := map[script.Slots]Nodes{{}: 0} // no slots: stands for slots that nobody has granted so far
	for i, v := range b.votes {
		open = open.Without(i)
		switch {
		case v.failed:
			failed = failed.With(i)
		case v.slots != script.Slots{}:
			grants[v.slots] = grants[v.slots].With(i)
		}
	}
	s.Blocked, s.Rejected = true, true
	for slots, nodes := range grants {
		if b.rule.Quorum(nodes) {
			s.Won, winner = true, slots
		}
		s.Blocked = s.Blocked && !b.rule.Quorum(nodes|open)
		s.Rejected = s.Rejected && !b.rule.Quorum(nodes|open|failed)
	}
	return s, winner
}

// TestPermitTallyInAllOrders walks through all votes in all orders of the nodes.
func TestPermitTallyInAllOrders(t *testing.T) {
	a, b, c := vote{slots: slotsOf(0)}, vote{slots: slotsOf(1)}, vote{slots: slotsOf(2)}
	refused, failed := vote{}, vote{failed: true}
	type walk struct {
		rule  majorities
		votes []vote
	}
	walks := []walk{
		{majorities{0b1}, []vote{a, b, refused, failed}},
		{majorities{0b11}, []vote{a, b, refused, failed}},
		{majorities{0b111}, []vote{a, b, c, refused, failed}},
		{majorities{0b1111}, []vote{a, b, refused, failed}},
		{majorities{0b011, 0b110}, []vote{a, b, c, refused, failed}},
		{majorities{0b001, 0b111}, []vote{a, b, c, refused, failed}},
		{majorities{0b0111, 0b1110}, []vote{a, b, refused, failed}},
	}
	if testlength.InGate(0, 0, 1, 1) > 0 {
		walks = append(walks, walk{majorities{0b11111}, []vote{a, b, refused, failed}}, walk{majorities{0b00111, 0b11100}, []vote{a, b, refused}})
	}
	if testlength.Of(0, 0, 1) > 0 {
		walks = append(walks, walk{majorities{0b11111}, []vote{a, b, c, refused, failed}}, walk{majorities{0b00111, 0b11110}, []vote{a, b, c, refused, failed}})
	}
	for _, w := range walks {
		var order []int
		var votes []vote
		box := ballotBox{w.rule, map[int]vote{}}
		var try func()
		try = func() {
			for i := range w.rule.All().Len() {
				if _, voted := box.votes[i]; voted {
					continue
				}
				for _, v := range w.votes {
					order, votes, box.votes[i] = append(order, i), append(votes, v), v
					checkVotes(t, box, order, votes)
					try()
					order, votes = order[:len(order)-1], votes[:len(votes)-1]
					delete(box.votes, i)
				}
			}
		}
		try()
		if t.Failed() {
			return
		}
	}
}

// checkVotes compares the tally of votes with the reference.
func checkVotes(t *testing.T, box ballotBox, order []int, votes []vote) {
	t.Helper()
	tally := newTally(box.rule, 3, 1)
	var before, is Standing
	var count Count
	for at, i := range order {
		before = is
		cast := votes[at].cast()
		count = count.With(i, cast.Choice)
		tally.Add(i, cast)
		is = tally.Standing()
	}
	want, winner := box.standing()
	want.Explained = box.rule.Standing(count).Explained
	if is != want || is.Won && is.Blocked {
		t.Fatalf("%v vote %+v: %+v, want %+v", order, votes, is, want)
	}
	if before.Won && !is.Won || before.Blocked && !is.Blocked || before.Rejected && !is.Rejected || before.Explained && !is.Explained {
		t.Fatalf("%v vote %+v: %+v, after %+v", order, votes, is, before)
	}
	if len(order) == box.rule.All().Len() && !is.Decided() {
		t.Fatalf("%v vote %+v: nothing is decided", order, votes)
	}
	astray := tally.Astray()
	if is.Won {
		won := tally.Won()
		others := Nodes(0)
		for i, v := range box.votes {
			if v.slots != winner && v.slots != (script.Slots{}) {
				others = others.With(i)
			}
		}
		if won.(*Permit).Slots() != winner || astray != others {
			t.Fatalf("%v vote %+v: won %v, want %v; astray are %b, want %b", order, votes, won.(*Permit).Slots(), winner, astray, others)
		}
		for i := range order {
			if surplus := won.IsSurplus(votes[i].cast().Answer); surplus != (votes[i].failed || astray.Has(order[i])) {
				t.Fatalf("%v vote %+v: surplus on %d: %v", order, votes, order[i], surplus)
			}
		}
		return
	}
	largest := 0
	for _, v := range votes {
		n := 0
		for _, other := range votes {
			if other.slots == v.slots && v.slots != (script.Slots{}) {
				n++
			}
		}
		largest = max(largest, n)
	}
	if astray&^count.Granted != 0 || astray.Len() != count.Granted.Len()-largest {
		t.Fatalf("%v vote %+v: astray are %b", order, votes, astray)
	}
}

// With several sets, the nodes that have granted what is won may be fewer than the nodes that have granted
// something else.
func TestPermitTallyOfJointSetsMayBeWonByTheFewer(t *testing.T) {
	tally := newTally(majorities{0b0011111, 0b1111100}, 3, 1)
	for _, i := range []int{0, 1, 5, 6} {
		tally.Add(i, grants(slotsOf(1)))
	}
	for _, i := range []int{2, 3, 4} {
		assert.False(t, tally.Standing().Decided())
		tally.Add(i, grants(slotsOf(2)))
	}
	assert.True(t, tally.Standing().Won)
	assert.Equal(t, slotsOf(2), tally.Won().(*Permit).Slots())
	assert.Equal(t, Nodes(0b1100011), tally.Astray())
	assert.Equal(t, 2, tally.permits.With("w", nil).(*Permits).asks.Order.First, "it begins with the slot that the won attempt had")
}

// If the value was on the node before, its answer counts as a grant only if the value has as many slots as the
// lease wants.
func TestPermitTallyDoesNotCountAPartOfTheSlots(t *testing.T) {
	p := NewPermits("lock", 3, 2).With("v", nil).(*Permits)
	p.asks.Order.First = 0
	for reply, want := range map[string]Found{"a part": Other, "all": Mine} {
		there := []any{int64(0)}
		if reply == "all" {
			there = []any{int64(0), int64(2)}
		}
		a, err := p.read([]any{int64(2), int64(0), there, []any{}})
		require.NoError(t, err)
		assert.Equal(t, want, a.Found, reply)
		assert.True(t, a.Details().WasThere)
		assert.True(t, p.Of(slotsOf(1, 2)).IsSurplus(a), "it is to be given back")
	}
}

// freeTogetherOf is a reference of freeTogether: it looks at all quorums.
func freeTogetherOf(r Rule, free map[int]script.Slots, among Nodes, weight int) (sets []script.Slots) {
	for nodes := range r.All() + 1 {
		if nodes&^among != 0 || !r.Quorum(nodes) {
			continue
		}
		together := slotsOf(0, 1, 2, 3)
		for i := range MaxNodes {
			if nodes.Has(i) {
				together = together.And(free[i])
			}
		}
		if together.Len() >= weight {
			sets = append(sets, together)
		}
	}
	return sets
}

// TestNextAttemptBeginsWithSlotsThatAreFreeTogether compares what an attempt learns of free slots with a reference: the next attempt
// begins with slots that are free together on a quorum, if there are any. It is made at once only if the nodes
// of this quorum have granted.
func TestNextAttemptBeginsWithSlotsThatAreFreeTogether(t *testing.T) {
	for seed := range testlength.Of(1000, 5000, 500_000) {
		r := rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // it is to be repeatable
		rule := []majorities{{0b1}, {0b111}, {0b11111}, {0b111, 0b11100}, {0b11, 0b110}}[r.IntN(5)]
		weight := 1 + r.IntN(3)
		tally := newTally(rule, 4, weight)
		free := map[int]script.Slots{}
		for _, i := range r.Perm(rule.All().Len()) {
			set := script.Slots{}
			for slot := range 4 {
				if r.IntN(3) > 0 {
					set = set.With(slot)
				}
			}
			v := Vote{Choice: Failed}
			switch {
			case set.Len() >= weight && r.IntN(4) > 0:
				var some script.Slots
				for slot := range set.All() {
					if some.Len() < weight {
						some = some.With(slot)
					}
				}
				v = grants(some)
				if r.IntN(3) > 0 {
					v.Answer.Detail.Own = &script.EnteredPermits{Granted: true, Slots: some, Free: set}
				} else {
					set = some // it does not say which others are free
				}
			case r.IntN(4) > 0:
				v = refuses()
				v.Answer.Detail.Own = &script.EnteredPermits{Wait: -1, Free: set}
			default:
				set = script.Slots{}
			}
			free[i] = set
			tally.Add(i, v)
			s := tally.Standing()
			if !s.Decided() {
				continue
			}
			if s.Won {
				break
			}
			about := fmt.Sprintf("seed %d: free %v, %+v", seed, free, tally.count)
			next := tally.permits.With("w", nil).(*Permits).asks
			assert.Equal(t, weight, next.Wants)
			if sets := freeTogetherOf(rule, free, tally.count.Answered(), weight); len(sets) > 0 {
				require.Contains(t, sets, next.Order.Front, about)
			} else {
				require.Zero(t, next.Order.Front, about)
			}
			require.Equal(t, len(freeTogetherOf(rule, free, tally.count.Granted, weight)) > 0, tally.MayWinAtOnce(), about)
		}
	}
}

// With 64 nodes the search for slots that are free together is cut off soon, even if there are none.
func TestFreeTogetherIsBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0)) //nolint:gosec // it is to be repeatable
	tally := newTally(majorities{FirstNodes(MaxNodes)}, script.MaxPermits, 4)
	for i := range MaxNodes {
		var free script.Slots
		for slot := range script.MaxPermits {
			if r.IntN(2) == 0 { // six nodes have four slots in common, 33 nodes have none
				free = free.With(slot)
			}
		}
		v := refuses()
		v.Answer.Detail.Own = &script.EnteredPermits{Wait: -1, Free: free}
		tally.Add(i, v)
	}
	assert.Zero(t, tally.permits.With("w", nil).(*Permits).asks.Order.Front)
}

// A round that is explained may be given up before it is decided, because its votes are split. The next attempt asks for
// slots that are free together all the same.
func TestTallyThatIsGivenUpSaysWhatTheNextAttemptAsksFor(t *testing.T) {
	p := NewPermits("lock", 2, 1).With("v", nil).(*Permits)
	tally := p.Tally(majorities{FirstNodes(5)}).(*permitTally)
	for i, v := range []Vote{grants(slotsOf(1)), grants(slotsOf(1)), grants(slotsOf(0), 1), grants(slotsOf(0), 1)} {
		tally.Add(i, v)
	}
	require.False(t, tally.Standing().Decided())
	require.True(t, tally.MayWinAtOnce())
	assert.Equal(t, slotsOf(1), p.With("w", nil).(*Permits).asks.Order.Front)
}

// The next attempt begins with the permits that this one has won, so that nodes on which others hold stray permits grant
// the same ones again.
func TestNextAttemptBeginsWithTheSlotsThatThisOneHasWon(t *testing.T) {
	p := NewPermits("lock", 5, 2).With("v", nil).(*Permits)
	tally := p.Tally(majorities{FirstNodes(3)})
	for i := range 2 {
		tally.Add(i, grants(slotsOf(2, 3)))
	}
	require.True(t, tally.Standing().Won)
	assert.Equal(t, script.Order{First: 2}, p.With("w", nil).(*Permits).asks.Order)
}
