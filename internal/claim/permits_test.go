package claim_test

import (
	"cmp"
	"slices"
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
	a := n.says(c.Acquire(time.Minute, place, script.Fence{}))
	entered, _ := a.Details().Own.(*script.EnteredPermits)
	return c, *cmp.Or(entered, &script.EnteredPermits{}), a
}

func release(c claim.Claim) claim.Call {
	return c.Release(script.ProcessOf(ours), script.Turnover{}, script.Fence{})
}

func TestPermitsAreOfOneLine(t *testing.T) {
	p := claim.NewPermits("lock", 3, 2)
	assert.Equal(t, "lock", p.Name())
	assert.Empty(t, p.Value())
	assert.Equal(t, 3, p.Permits())
	v := p.With("v", nil)
	assert.Equal(t, "v", v.Value())
	for _, c := range []claim.Claim{v, v.(*claim.Permits).Of(script.Slots{}.With(1))} {
		assert.Equal(t, "lock", c.Name())
		assert.Equal(t, []string{script.SlotQueueKey("lock")}, c.Lines())
		assert.False(t, c.Shares())
		assert.False(t, c.HoldsAlone())
		assert.False(t, c.PassesTo(c))
	}
	w := v.(*claim.Permits).Of(script.Slots{}.With(1).With(2)).With("w", nil).(*claim.Permit)
	assert.Equal(t, "w", w.Value())
	assert.Equal(t, script.Slots{}.With(1).With(2), w.Slots())
}

// A lease passes only to a waiter for as many permits of the same semaphore: another waiter would have too few, or keep the
// rest from others.
func TestWhoseWaitersAPermitPassesTo(t *testing.T) {
	w := claim.NewPermits("lock", 3, 2).With("v", nil).(*claim.Permits).Of(script.Slots{}.With(1).With(2))
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
	c, entered, _ := n.acquires(claim.NewPermits("lock", 3, 2), "v", script.Place{})
	v := c.Of(entered.Slots)
	givesOne := func() {
		slot := slices.Collect(v.Slots().All())[0]
		n.says(claim.Call{Command: script.ReleaseSlot(c.Semaphore, c.Lock(slot, "v"), script.Process{}, quietly), Read: release(c).Read})
	}
	givesOne()
	assert.Equal(t, claim.PartMissing, n.says(v.Check()).Found)
	assert.Equal(t, claim.PartMissing, n.says(v.Extend(time.Minute, false)).Found)
	assert.Equal(t, claim.PartCreated, n.says(v.Extend(time.Minute, true)).Found)
	givesOne()
	assert.Equal(t, claim.PartMissing, n.says(release(v)).Found, "the claim was not there as a whole")
	assert.Equal(t, claim.PartMissing, n.says(release(v)).Found)
}

// Until a claim has won, it does not know its slots. So no node is found to have it, and it cannot be
// extended.
func TestPermitsThatAreNotWonCannotBeExtended(t *testing.T) {
	n := startNode(t)
	for weight := 1; weight <= 2; weight++ {
		c, _, a := n.acquires(claim.NewPermits("lock", 3, weight), "v", script.Place{})
		assert.Equal(t, claim.Mine, a.Found)
		for _, call := range []claim.Call{c.Check(), c.Extend(time.Minute, false), c.Extend(time.Minute, true)} {
			assert.Equal(t, claim.PartMissing, n.says(call).Found)
		}
		assert.Equal(t, claim.Mine, n.says(release(c)).Found, "nothing was set beside what it was granted")
		assert.Equal(t, claim.Missing, n.says(release(c)).Found)
		n.says(c.Acquire(time.Minute, script.Place{}, script.Fence{}))
		assert.Equal(t, claim.Mine, n.says(c.Release(script.Process{}, quietly, script.Fence{})).Found)
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
			_, others, a := n.acquires(p, "w", script.Place{})
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
			call := surplus.Release(script.Process{}, script.Turnover{Quietly: true}, script.Fence{})
			if !quietly {
				call = surplus.Release(script.ProcessOf(ours), script.Turnover{Leave: []script.Ticket{ticket}}, script.Fence{})
			}
			for range 2 {
				a := n.says(call)
				assert.Equal(t, claim.Answer{Found: a.Found}, a)
			}
			assert.Equal(t, claim.Mine, n.says(v.Check()).Found, "the slots that it has won stay")
			assert.Equal(t, claim.Mine, n.says(p.With("w", nil).(*claim.Permits).Of(others.Slots).Check()).Found)
			for slot := range astray.Slots.All() {
				assert.Equal(t, claim.Missing, n.says(c.Of(script.Slots{}.With(slot)).Check()).Found)
			}
			queue := n.client.Exists(t.Context(), c.Queue()).Val()
			assert.Equal(t, quietly, queue == 1, "the ticket has left")
		}
	}
}

func TestIsSurplus(t *testing.T) {
	one, two := script.Slots{}.With(1), script.Slots{}.With(2)
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
	all := claim.NewPermits("lock", 2, 2).Of(script.Slots{}.With(0).With(1))
	assert.False(t, all.IsSurplus(claim.Answer{}), "it has all permits that there are")
}

// An odd answer is no vote.
func TestPermitsReadNoOddAnswer(t *testing.T) {
	c := claim.NewPermits("lock", 3, 1).With("v", nil)
	for _, reply := range []any{int64(3), int64(-1), "OK", nil, []any{int64(1), int64(0), []any{}, []any{}}} {
		_, err := c.Acquire(time.Minute, script.Place{}, script.Fence{}).Read(reply)
		require.Error(t, err, "%v", reply)
	}
}
