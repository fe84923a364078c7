package queue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/jitter"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/testkit/claimtest"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file has what more than one file of tests uses.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// percent is the rule by which clocks differ by 1 % and 2 ms.
type percent struct{}

func (percent) Of(d time.Duration) time.Duration { return d/100 + 2*ms }

// ends are the errors of leases that have ended.
var ends = lease.Errors{
	NotHeld: errors.New("not held"), Expired: errors.New("expired"), MaxHold: errors.New("max hold"),
	Spent: errors.New("spent"), Closed: errors.New("closed"), Failed: errors.New("failed"),
	Lost:     func(cause error, _ *quorum.Result) error { return fmt.Errorf("lost: %w", cause) },
	Rejected: func(string, quorum.Result) error { return errors.New("rejected") },
}

// timing is the timing that the defaults of the library give.
var timing = lease.Timing{
	Expiry: 8 * sec, TTL: 8 * sec, Validity: 8*sec - 82*ms,
	NodeTimeout: 400 * ms, Drift: percent{},
}

// A house is one process whose nodes are fakes, with the terms of its locks.
type house struct {
	*testing.T
	*Group
	keeper lease.Keeper
	fakes  []*scripted.Node
	answer func(node int, req wire.Request) (*wire.Reply, error) // scripted.Yes, unless it is replaced
	claim  claim.Claim
	values int
	calls  []*call        // all that have stood in a line
	leases []*lease.Lease // all that it was given
}

// inHouse plays a test in a bubble, with a process of n nodes. At its end all calls leave their lines, and all locks are
// released.
func inHouse(t *testing.T, n int, play func(h *house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, n)
		play(h)
		for _, c := range h.calls {
			if c.state != gone {
				h.leaves(c)
			}
			if c.handedOff != nil {
				h.leases = append(h.leases, c.handedOff)
			}
		}
		assert.Zero(t, h.lines.count.Load())
		for _, l := range h.leases {
			if l.End(nil) {
				h.ReleaseAndAdmit(l)
			}
		}
		require.True(t, h.keeper.BeginClose())
		require.NoError(t, h.keeper.Close(context.WithoutCancel(t.Context()), sec, func() {}).Reason, "nothing is left to be released")
	})
}

func newHouse(t *testing.T, nodes int) *house {
	t.Helper()
	h := &house{T: t, claim: claimtest.Exclusive("lock")}
	h.answer = func(_ int, req wire.Request) (*wire.Reply, error) { return scripted.Yes(req) }
	var pools []wire.Pool
	for i := range nodes {
		p := &scripted.Node{Answer: func(req wire.Request) (*wire.Reply, error) { return h.answer(i, req) }}
		h.fakes, pools = append(h.fakes, p), append(pools, p)
	}
	h.Group = GroupOf(pools, claimtest.Majority(nodes))
	h.Join()
	h.keeper.Set = quorum.NewSet(pools, h.Known, claimtest.Majority(nodes))
	h.keeper.Errors, h.keeper.Tokens = &ends, &h.Tokens
	h.keeper.Process, h.keeper.Waiters = h.Process, h.Group
	h.keeper.Init()
	return h
}

// terms returns terms of locks that try again every hour, and may be handed over.
func (h *house) terms() *lease.Terms {
	return &lease.Terms{
		Keeper: &h.keeper, Claim: h.claim, Policy: &lease.Policy{
			Timing: timing, Passes: true, Delay: hourly, Mean: time.Hour,
			Value: func() (string, error) {
				h.values++
				return fmt.Sprintf("value-%d", h.values), nil
			},
		},
	}
}

func hourly(int) time.Duration { return time.Hour }

// holds returns a lease with the terms t that holds the lock.
func (h *house) holds(t *lease.Terms) *lease.Lease {
	h.Helper()
	l, failure := h.Lock(h.Context(), t, clock.Now(), 1, &Wait{})
	require.Nil(h, failure)
	require.NoError(h, l.Begin())
	h.leases = append(h.leases, l)
	return l
}

// unlocks does with l what Unlock does, and reports whether it was handed over.
func (h *house) unlocks(l *lease.Lease) (handedOver bool) {
	h.Helper()
	require.NoError(h, l.EndHeld(clock.Now()))
	l.End(nil)
	if h.HandOver(l) {
		return true
	}
	rel := h.ReleaseAwaited(h.Context(), l)
	require.True(h, rel.Wait(h.Context()).Won)
	h.Unlocked(l, rel)
	return false
}

// waits returns a call that stands in its line, after a first attempt with the outcome why.
func (h *house) waits(t *lease.Terms, why lease.Outcome) *call {
	h.Helper()
	c := newCall(h.Group, t, clock.Now())
	require.True(h, c.join(0, why))
	h.calls = append(h.calls, c)
	return c
}

// fresh returns a lease of an attempt of c.
func (c *call) fresh(value string) *lease.Lease { return lease.New(c.terms, value, clock.Now()) }

// wins lets the attempt u of c win l, while c stays in its line.
func (c *call) wins(u *turn, l *lease.Lease) { c.end(u, l, lease.Outcome{Kind: lease.Won}) }

// asks begins an attempt of c that enters the queues.
func (h *house) asks(c *call) *turn {
	h.Helper()
	u := c.begin(true, false)
	require.NotNil(h, u)
	return u
}

// leaves lets c leave its line.
func (h *house) leaves(c *call) { h.lines.leave(&c.waiter, nil) }

// wakes tells of a wake-up about a name by node 0.
func (h *house) wakes(name string) { h.lines.wake(name, 0, true, nil) }

// isWoken reports whether c has been woken.
func (c *call) isWoken() bool { return !c.agenda.graceEnd.IsZero() }

// fails lets the attempt u of c fail with an outcome.
func (u *turn) fails(c *call, o lease.Outcome) {
	u.rollBack(c.fresh("v"), o, false)
	c.end(u, nil, o)
}

// refused is an attempt that found something else in the way on all nodes.
func (h *house) refused() lease.Outcome {
	all := h.keeper.Set.Rule().All()
	o := lease.Outcome{Kind: lease.NotWon, Result: quorum.Result{Set: h.keeper.Set, Rule: h.keeper.Set.Rule(), Taken: all}}
	o.Result.Count.Refused = all
	for range h.fakes {
		o.Result.Votes = append(o.Result.Votes, claim.Vote{
			Choice: claim.Refused, Answer: claim.Answer{Found: claim.Other},
		})
	}
	return o
}

// silent is an attempt that no node answered.
func (h *house) silent() lease.Outcome {
	o := lease.Outcome{Kind: lease.NotWon, Result: quorum.Result{Set: h.keeper.Set, Rule: h.keeper.Set.Rule()}}
	o.Result.Count.Failed = h.keeper.Set.Rule().All()
	for range h.fakes {
		o.Result.Votes = append(o.Result.Votes, claim.Failure(quorum.ErrNoAnswer))
	}
	return o
}

// withoutJitter makes each random time the longest that it can be.
func withoutJitter(t *testing.T) {
	t.Helper()
	former := jitter.Source
	jitter.Source = func(d time.Duration) time.Duration { return d - 1 }
	t.Cleanup(func() { jitter.Source = former })
}
