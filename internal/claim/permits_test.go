package claim_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// quietly is the turnover of a release that touches no queue.
var quietly = script.Turnover{Quietly: true}

// acquires asks the node for permits, and returns them.
func (n node) acquires(p *claim.Permits, value string, place script.Place) (*claim.Permits, script.EnteredPermits, claim.Answer) {
	n.Helper()
	c := p.With(value, nil).(*claim.Permits)
	a := n.says(c.Acquire(time.Minute, place, noFence))
	entered, _ := a.Details().Own.(*script.EnteredPermits)
	return c, *cmp.Or(entered, &script.EnteredPermits{}), a
}

func release(c claim.Claim) claim.Call {
	return c.Release(script.ProcessOf(ours), noTurn, noFence)
}

func TestPermitsAreOfOneLine(t *testing.T) {
	p := claim.NewPermits("lock", 3, 2)
	assert.Equal(t, "lock", p.Name())
	assert.Empty(t, p.Value())
	assert.Equal(t, 3, p.Permits())
	v := p.With("v", nil)
	assert.Equal(t, "v", v.Value())
	for _, c := range []claim.Claim{v, v.(*claim.Permits).Of(slotsOf(1))} {
		assert.Equal(t, "lock", c.Name())
		assert.Equal(t, []string{script.SlotQueueKey("lock")}, c.Lines())
		assert.False(t, c.Shares())
		assert.False(t, c.HoldsAlone())
		assert.False(t, c.PassesTo(c))
	}
	w := v.(*claim.Permits).Of(slotsOf(1, 2)).With("w", nil).(*claim.Permit)
	assert.Equal(t, "w", w.Value())
	assert.Equal(t, slotsOf(1, 2), w.Slots())
}

// A lease passes only to a waiter for as many permits of the same semaphore: another waiter would have too few, or keep the
// rest from others.
func TestWhoseWaitersAPermitPassesTo(t *testing.T) {
	w := claim.NewPermits("lock", 3, 2).With("v", nil).(*claim.Permits).Of(slotsOf(1, 2))
	for _, c := range []struct {
		waits  claim.Claim
		passes bool
	}{
		{claim.NewPermits("lock", 3, 2), true},
		{claim.NewPermits("other", 3, 2), false},
		{claim.NewPermits("lock", 4, 2), false},
		{claim.NewPermits("lock", 3, 1), false},
		{claim.NewPermits("lock", 3, 3), false},
		{w, false},
	} {
		assert.Equal(t, c.passes, w.PassesTo(c.waits), "%+v", c.waits)
	}
}

// A node that lacks one of several permits does not have the claim.
func TestPermitOfSeveralSlots(t *testing.T) {
	n := startNode(t)
	c, entered, _ := n.acquires(claim.NewPermits("lock", 3, 2), "v", noPlace)
	v := c.Of(entered.Slots)
	givesOne := func() {
		slot := c.Lock(c.Keys(slotsOf(v.Slots().First())), "v")
		n.says(claim.Call{Command: script.Release(slot, noProcess, quietly, noFence), Read: release(c).Read})
	}
	givesOne()
	n.finds(claim.PartMissing, v.Check())
	n.finds(claim.PartMissing, v.Extend(time.Minute, false))
	n.finds(claim.PartCreated, v.Extend(time.Minute, true))
	givesOne()
	n.finds(claim.PartMissing, release(v), "the claim was not there as a whole")
	n.finds(claim.PartMissing, release(v))
}

// Until a claim has won, it does not know its slots. So no node is found to have it, and it cannot be
// extended.
func TestPermitsThatAreNotWonCannotBeExtended(t *testing.T) {
	n := startNode(t)
	for weight := 1; weight <= 2; weight++ {
		c, _, a := n.acquires(claim.NewPermits("lock", 3, weight), "v", noPlace)
		assert.Equal(t, claim.Mine, a.Found)
		for _, call := range []claim.Call{c.Check(), c.Extend(time.Minute, false), c.Extend(time.Minute, true)} {
			n.finds(claim.PartMissing, call)
		}
		n.finds(claim.Mine, release(c), "nothing was set beside what it was granted")
		n.finds(claim.Missing, release(c))
		n.says(c.Acquire(time.Minute, noPlace, noFence))
		n.finds(claim.Mine, c.Release(noProcess, quietly, noFence))
	}
}

// A surplus gives back what the lease has beside the slots that it has won, and no slot of others.
func TestSurplus(t *testing.T) {
	ticket := script.NewTicket(0, 1, script.ProcessOf(ours), 1)
	for weight := 1; weight <= 2; weight++ {
		for _, quietly := range []bool{false, true} {
			n := startNode(t)
			p := claim.NewPermits("lock", 2+2*weight, weight)
			c, astray, _ := n.acquires(p, "v", script.Place{Ticket: ticket, Alive: 100_000})
			_, others, a := n.acquires(p, "w", noPlace)
			assert.Equal(t, claim.Mine, a.Found)
			var won script.Slots
			for slot := range p.AllBut(astray.Slots.Or(others.Slots)).All() {
				if won.Len() < weight {
					won = won.With(slot)
				}
			}
			v := c.Of(won)
			n.says(v.Extend(time.Minute, true))
			surplus := v.Surplus()
			assert.Equal(t, "v", surplus.Value())
			call := surplus.Release(noProcess, script.Turnover{Quietly: true}, noFence)
			if !quietly {
				call = surplus.Release(script.ProcessOf(ours), script.Turnover{Leave: []script.Ticket{ticket}}, noFence)
			}
			for range 2 {
				a := n.says(call)
				assert.Equal(t, claim.Answer{Found: a.Found}, a)
			}
			n.finds(claim.Mine, v.Check(), "the slots that it has won stay")
			n.finds(claim.Mine, p.With("w", nil).(*claim.Permits).Of(others.Slots).Check())
			for slot := range astray.Slots.All() {
				n.finds(claim.Missing, c.Of(slotsOf(slot)).Check())
			}
			queue := n.client.Exists(t.Context(), c.Queue()).Val()
			assert.Equal(t, quietly, queue == 1, "the ticket has left")
		}
	}
}

func TestIsSurplus(t *testing.T) {
	one, two := slotsOf(1), slotsOf(2)
	answer := func(e script.EnteredPermits) claim.Answer {
		return claim.Answer{Detail: &claim.Detail{Wait: claim.Never, Own: &e}}
	}
	won := claim.NewPermits("lock", 3, 1).Of(one)
	for name, c := range map[string]struct {
		claim.Answer
		want bool
	}{
		"no answer":            {claim.Answer{}, true},
		"the slots":            {answer(script.EnteredPermits{Granted: true, Slots: one}), false},
		"more":                 {answer(script.EnteredPermits{Granted: true, Slots: one.Or(two)}), true},
		"the slots were there": {answer(script.EnteredPermits{Granted: true, WasThere: true, Slots: one}), false},
		"others were there":    {answer(script.EnteredPermits{Granted: true, WasThere: true, Slots: two}), true},
		"refused":              {answer(script.EnteredPermits{Wait: 7, Free: one}), false},
	} {
		assert.Equal(t, c.want, won.IsSurplus(c.Answer), name)
	}
	all := claim.NewPermits("lock", 2, 2).Of(slotsOf(0, 1))
	assert.False(t, all.IsSurplus(claim.Answer{}), "it has all permits that there are")
}

// An odd answer is no vote.
func TestPermitsReadNoOddAnswer(t *testing.T) {
	c := claim.NewPermits("lock", 3, 1).With("v", nil)
	for _, reply := range []any{int64(3), int64(-1), "OK", nil, []any{int64(1), int64(0), []any{}, []any{}}} {
		_, err := c.Acquire(time.Minute, noPlace, noFence).Read(reply)
		require.Error(t, err, "%v", reply)
	}
}
