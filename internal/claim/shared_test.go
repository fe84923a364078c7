package claim_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/claimtest"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
)

const ours = "2222222222222222" // a process

// A node runs calls.
type node struct {
	*testing.T
	client *redis.Client
}

func startNode(t *testing.T) node {
	t.Helper()
	nodes := embedded.Start(1)
	t.Cleanup(nodes.Close)
	c := nodes[0].Client()
	t.Cleanup(func() { _ = c.Close() })
	return node{t, c}
}

// says sends the command of c to the node, and returns what c reads from the reply.
func (n node) says(c claim.Call) claim.Answer {
	n.Helper()
	reply, err := n.client.Do(n.Context(), c.Command.InFull()...).Result()
	if err != nil {
		require.ErrorIs(n, err, redis.Nil)
	}
	a, err := c.Read(reply)
	require.NoError(n, err)
	return a
}

// finds checks what the node finds.
func (n node) finds(want claim.Found, c claim.Call, about ...any) {
	n.Helper()
	assert.Equal(n, want, n.says(c).Found, about...)
}

var (
	noFence   script.Fence
	noPlace   script.Place
	noProcess script.Process
	noTurn    script.Turnover
)

func slotsOf(list ...int) (slots script.Slots) {
	for _, slot := range list {
		slots = slots.With(slot)
	}
	return slots
}

func sharedTicket(number uint32) script.Ticket {
	return script.NewTicket(0, int64(number), script.ProcessOf(ours), number).Shared()
}

// The answers to readers that acquire say what a round needs to know.
func TestShared(t *testing.T) {
	n := startNode(t)
	ttl, fence := time.Minute, script.Fence{Token: 7, TTL: 1000}
	acquires := func(c claim.Claim, value string, f script.Fence) claim.Answer {
		return n.says(c.With(value, new(claim.Room)).Acquire(ttl, noPlace, f))
	}
	reads := claimtest.Shared("lock")
	assert.Equal(t, claim.Answer{Found: claim.Mine}, acquires(reads, "v", noFence), "a plain grant has no Detail")
	assert.True(t, acquires(reads, "v", noFence).Details().WasThere)
	a := acquires(reads, "w", fence)
	assert.Equal(t, claim.Mine, a.Found)
	assert.Equal(t, claim.Detail{Wait: claim.Never, Register: 7, Stored: true}, *a.Detail)
	require.NoError(t, n.client.FlushAll(t.Context()).Err())
	assert.Equal(t, claim.Mine, acquires(claimtest.Exclusive("lock"), "x", noFence).Found)
	a = acquires(reads, "v", noFence)
	assert.Equal(t, claim.Other, a.Found)
	assert.InDelta(t, ttl, a.Details().Wait, float64(5*time.Second))
	_, err := reads.Acquire(ttl, noPlace, noFence).Read(int64(-9))
	require.Error(t, err)
}

// A grant to a waiting reader has a Detail even without a fencing register, because a waiter needs the time of the
// answer.
func TestSharedGrantToAWaiterHasADetail(t *testing.T) {
	n := startNode(t)
	assert.NotNil(t, n.says(claimtest.Shared("lock").With("v", new(claim.Room)).Acquire(time.Minute, script.Place{Ticket: sharedTicket(1), Alive: 1000}, noFence)).Detail)
}

// The first Extend of a Downgraded is the downgrade. A node that it has not reached still finds the claim.
func TestDowngraded(t *testing.T) {
	writes, place := claimtest.Exclusive("lock"), script.Place{Ticket: script.NewTicket(0, 1, script.ProcessOf(ours), 1), Alive: 100_000}
	var room claim.Room
	x := writes.With("x", &room).(*claim.Exclusive)
	down := x.Downgraded(script.Downgrade{Process: script.ProcessOf(ours), Leave: []script.Ticket{place.Ticket}})
	assert.Equal(t, "x", down.Value())
	assert.Equal(t, "lock", down.Name())
	v := claimtest.Shared("lock").With("v", new(claim.Room))
	waits := script.Place{Ticket: sharedTicket(2), Alive: 100_000}

	n := startNode(t)
	n.finds(claim.Mine, x.Acquire(time.Minute, place, noFence))
	n.finds(claim.Other, v.Acquire(time.Minute, waits, noFence))
	n.finds(claim.Mine, down.Check())
	a := n.says(down.Extend(time.Minute, false))
	assert.Equal(t, claim.Answer{Found: claim.Mine, First: true}, a, "our reader may go on")
	assert.Equal(t, claim.Answer{Found: claim.Mine}, n.says(down.Extend(time.Minute, false)))
	n.finds(claim.Mine, v.Acquire(time.Minute, waits, noFence))
	n.finds(claim.Other, x.Check())
	n.finds(claim.Mine, down.Release(noProcess, noTurn, noFence))
	n.finds(claim.Mine, v.Check())

	n = startNode(t)
	n.finds(claim.Mine, x.Acquire(time.Minute, noPlace, noFence))
	n.finds(claim.Mine, down.Release(noProcess, quietly, noFence), "the downgrade has not arrived")
	n.finds(claim.Missing, down.Extend(time.Minute, false))
	n.finds(claim.Created, down.Extend(time.Minute, true))
}

// Only an exclusive lease passes, and only to another one of its name.
func TestPassesTo(t *testing.T) {
	exclusive, shared, b := claimtest.Exclusive("a"), claimtest.Shared("a"), claimtest.Exclusive("b")
	down := exclusive.Downgraded(script.Downgrade{})
	for _, c := range []struct {
		from, to claim.Claim
		passes   bool
	}{
		{exclusive, exclusive, true},
		{shared, shared, false},
		{exclusive, shared, false},
		{shared, exclusive, false},
		{exclusive, b, false},
		{down, shared, false},
		{down, down, false},
		{shared, down, false},
	} {
		assert.Equal(t, c.passes, c.from.PassesTo(c.to), "%T to %T", c.from, c.to)
	}
}

// A grant tells a user who may not read the queue that nobody has looked at it.
func TestSharedBlindGrant(t *testing.T) {
	a, err := claimtest.Shared("lock").Acquire(time.Minute, noPlace, noFence).Read(int64(-3))
	require.NoError(t, err)
	assert.Equal(t, claim.Mine, a.Found)
	assert.True(t, a.Details().Blind)
	assert.False(t, a.Details().WasThere)
}
