package quorum

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file shows what a tracer is told: of votes, and of nodes that are down.

// A tracer keeps what it is told, in order.
type tracer struct {
	traces bool
	told   []string
	votes  []Voted
}

func (t *tracer) TracesVotes() bool { return t.traces }

func (t *tracer) Voted(_ context.Context, v Voted, _ bool) { t.votes = append(t.votes, v) }

func (t *tracer) NodeDown(n *Node, omitted int, err error) {
	t.told = append(t.told, fmt.Sprintf("%d down, omitted %d: %v", n.Index, omitted, err))
}

func (t *tracer) NodeStillDown(n *Node, err error) {
	t.told = append(t.told, fmt.Sprintf("%d still down: %v", n.Index, err))
}

func (t *tracer) NodeUp(n *Node, down time.Duration) {
	t.told = append(t.told, fmt.Sprintf("%d up after %v", n.Index, down))
}

func (t *tracer) OneServer(a, b *Node, runID string) {
	t.told = append(t.told, fmt.Sprintf("%d and %d are %s", a.Index, b.Index, runID))
}

func (t *tracer) TwoServers(a, b *Node) {
	t.told = append(t.told, fmt.Sprintf("%d and %d are two", a.Index, b.Index))
}

// hears returns what t was told since.
func (t *tracer) hears() []string {
	told := t.told
	t.told = nil
	return told
}

// open is of a Redsync that has not been closed.
var open = &Set{}

// A ward is the health of node 3, and a tracer of it.
type ward struct {
	*Health
	*tracer
	node *Node
}

func newWard() ward { return ward{&Health{}, &tracer{}, &Node{Index: 3}} }

// sees lets the node fail with err, or else be up again, with a proof.
func (w ward) sees(err error, proof int32) {
	w.see(observation{of: open, to: w.tracer, node: w.node, err: err, proof: proof})
}

type told = []string

// A node that has lost its connection, and then answers that it does not count, is down for a new reason. It is not up in
// between.
func TestHealthTellsOfTheReasonThatFollowsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newWard()
		refused := observation{of: open, to: &tracer{}, node: h.node, err: refusal("READONLY"), proof: grants}
		h.sees(errBroken, answers)
		time.Sleep(healthPause / 2)
		h.sees(wire.ErrUnknownServer, counts)
		assert.Equal(t, told{"3 down, omitted 0: it broke", fmt.Sprint("3 still down: ", wire.ErrUnknownServer)}, h.hears())
		h.sees(errBroken, answers)
		h.sees(wire.ErrUnknownServer, counts)
		assert.Empty(t, h.hears(), "the greater reason lasts")
		h.see(refused)
		h.see(refused)
		assert.Equal(t, told{"3 still down: READONLY"}, h.hears(), "to the tracer that was told that it is down")
		h.sees(nil, grants)
		assert.Equal(t, told{"3 up after 500ms"}, h.hears())
		h.sees(errBroken, answers)
		h.sees(wire.ErrUnknownServer, counts)
		assert.Empty(t, h.hears(), "nobody was told that it is down")
		h.sees(nil, grants)
		assert.Empty(t, h.hears())
		time.Sleep(healthPause)
		h.sees(refusal("READONLY"), grants)
		for range 10 {
			time.Sleep(healthPause / 4)
			h.sees(errBroken, answers)
		}
		assert.Equal(t, told{"3 down, omitted 1: READONLY", "3 still down: it broke", "3 still down: it broke"}, h.hears(),
			"once in healthPause, and for the reason of now")
	})
}

// A Redsync has seen that the node refuses something, and is closed. The others hear that the node is up: they may never
// ask that of it.
func TestHealthAfterTheEndOfTheRedsyncThatSawTheNodeDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, seen := range map[string]observation{
			"no script":  {err: denied{}, proof: acquires, kind: scripts},
			"no acquire": {err: refusal("OOM"), proof: acquires},
		} {
			h, closed := newWard(), &Set{}
			seen.of, seen.to, seen.node = closed, h.tracer, h.node
			h.see(seen)
			up := observation{of: open, to: h.tracer, node: h.node, proof: grants, kind: plainCommands}
			h.see(up)
			require.Len(t, h.hears(), 1, name)
			closed.retired.Store(true)
			first, other := &tracer{}, &tracer{}
			time.Sleep(healthPause)
			h.see(observation{of: open, to: first, node: h.node, err: errBroken})
			time.Sleep(healthPause)
			h.see(observation{of: open, to: other, node: h.node, err: errBroken})
			h.see(up)
			assert.Equal(t, told{"3 still down: it broke", "3 still down: it broke", "3 up after 2s"}, first.hears(), "%s: one Redsync hears all", name)
			assert.Empty(t, other.hears(), name)
		}
	})
}

// A node that denies some names is down once in a long time. If it denies all, it is down at once.
func TestHealthOfANodeThatDeniesNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newWard()
		denies := func(name string) {
			h.see(observation{of: open, to: h.tracer, node: h.node, err: denied{}, proof: acquires, name: name})
		}
		grants := func(name string) {
			h.see(observation{of: open, to: h.tracer, node: h.node, proof: acquires, name: name})
		}
		never := 0
		for range 3 * maxDeniedNames {
			denies("other")
			grants("own")
			denies("other")
			time.Sleep(2 * healthPause)
			denies("other")
			denies(fmt.Sprint(never))
			never++
			time.Sleep(healthPause / 2)
			denies("other")
		}
		require.Len(t, h.hears(), 2, "down once, and up")
		for range 3 {
			grants("own")
			assert.Empty(t, h.hears())
			denies("own")
			time.Sleep(healthPause)
			denies("own")
			assert.Equal(t, told{"3 down, omitted 0: " + denied{}.Error()}, h.hears())
			grants("own")
			require.Len(t, h.hears(), 1)
		}
		time.Sleep(deniedPause)
		denies("other")
		require.Len(t, h.hears(), 1, "again")
	})
}

// What a node must do to be up again depends on all that it has failed to do, also after observers were told.
func TestHealthNeedsTheGreatestProof(t *testing.T) {
	h := newWard()
	for _, needs := range []int32{grants, acquires, grants} {
		h.sees(errBroken, needs)
	}
	require.Len(t, h.hears(), 1)
	h.sees(nil, answers)
	h.sees(nil, grants)
	assert.Empty(t, h.hears())
	h.sees(nil, acquires)
	require.Len(t, h.hears(), 1)
	h.sees(errBroken, answers)
	h.sees(nil, answers)
	assert.Equal(t, healthy, h.state.Load(), "the next fault begins anew")
}

// A refusal is one thing to a node without memory or permission, which may still prolong keys, and another to the rest.
func TestWhatAVoteProvesOfTheNode(t *testing.T) {
	acquire, extend, look := Brief{Op: Lock, Purpose: Granting}, Brief{Op: Extend, Purpose: Granting}, Brief{Op: Valid}
	assert.Equal(t, acquires, acquire.proof())
	assert.Equal(t, grants, extend.proof())
	assert.Equal(t, counts, look.proof())
	for _, c := range []struct {
		err                   error
		acquire, extend, look int32
	}{
		{errBroken, answers, answers, answers},
		{refusal("READONLY You can't write"), grants, grants, grants},
		{refusal("OOM command not allowed"), acquires, grants, grants},
		{denied{}, acquires, grants, answers},
	} {
		assert.Equal(t, []int32{c.acquire, c.extend, c.look},
			[]int32{acquire.missing(c.err), extend.missing(c.err), look.missing(c.err)}, "%v", c.err)
	}
}

// A refusal is the reply of a node that does not do what it is asked.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// denied is the reply of a node that does not let its user do something.
type denied struct{}

func (denied) Error() string { return "NOPERM this user has no permissions to access one of the keys" }
func (denied) RedisError()   {}

func TestWatchTellsWhatAVoteSaysOfTheNode(t *testing.T) {
	granted := claim.Vote{Choice: claim.Granted}
	for name, c := range map[string]struct {
		purpose Purpose
		vote    claim.Vote
		down    bool
	}{
		"granted":                     {Granting, granted, false},
		"refused":                     {Granting, claim.Vote{Choice: claim.Refused}, false},
		"failed":                      {Looking, claim.Failure(errBroken), true},
		"without the script":          {Granting, claim.Failure(lacksScript{}), false},
		"denied the lock":             {Granting, claim.Failure(denied{}), true},
		"denied the queue":            {Queueing, claim.Failure(denied{}), false},
		"denied a look":               {Looking, claim.Failure(denied{}), false},
		"the same server":             {Granting, claim.Failure(ErrDuplicate), false},
		"restarted":                   {Granting, claim.Failure(&restarted{}), true},
		"refused, with a reason":      {Granting, claim.Vote{Choice: claim.Refused, Err: errBroken}, false},
		"restarted, when it extends":  {Granting, claim.Failure(wire.ErrUnknownServer), true},
		"restarted, when it is asked": {Looking, claim.Failure(wire.ErrUnknownServer), true},
	} {
		t.Run(name, func(t *testing.T) {
			require.True(t, wire.IsDenied(denied{}))
			s, to := newScene(2), &tracer{}
			r := s.Start(t.Context(), &act{brief: Brief{Tracer: to, Purpose: c.purpose}}, false)
			r.NoteHealth(1, c.vote, nil)
			assert.Equal(t, c.down, len(to.hears()) == 1)

			refuses := c.purpose == Granting && wire.IsRefusal(c.vote.Err)
			r.NoteHealth(1, claim.Vote{Choice: claim.Refused}, nil)
			assert.Equal(t, c.down && !refuses, len(to.hears()) == 1, "up again with any answer")
			r.NoteHealth(1, granted, nil)
			assert.Equal(t, c.down && refuses, len(to.hears()) == 1, "with a grant that counts")
		})
	}
	s := newScene(1)
	s.Start(t.Context(), &act{}, false).NoteHealth(0, claim.Failure(errBroken), nil) // nobody listens

	for _, err := range []error{lacksScript{}, wire.OfScript(refusal("ERR unknown command 'EVALSHA'"))} {
		s, to := newScene(1), &tracer{}
		r := s.Start(t.Context(), &act{brief: Brief{Tracer: to, Op: Lock, Purpose: Granting}}, false)
		r.NoteHealth(0, claim.Failure(refusal("ERR unknown command 'EVAL'")), nil)
		require.Len(t, to.hears(), 1)
		r.NoteHealth(0, claim.Failure(err), nil)
		room := &claim.Keyed{}
		room.Init("lock")
		plain := room.Exclusive.With("value", &claim.Room{}).Acquire(time.Second, script.Place{}, script.Fence{})
		set := s.Start(t.Context(), &act{brief: Brief{Tracer: to, Op: Lock, Purpose: Granting, Call: plain}}, false)
		set.NoteHealth(0, granted, nil)
		assert.Empty(t, to.hears(), "%v: it has executed no script", err)
		r.NoteHealth(0, granted, nil)
		assert.Len(t, to.hears(), 1)
	}
}

// The reason of a node that has restarted changes when it does not answer after the guard.
func TestHealthOfANodeThatIsSilentAfterItsGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newWard()
		h.sees(&restarted{at: time.Now(), covers: 8 * sec, quarantine: 9 * sec}, counts)
		assert.Equal(t, told{"3 down, omitted 0: its server started 0s ago, and the restart guard (8s + 1s) ignores it for another 9s"}, h.hears())
		assert.Equal(t, 9*sec, h.longest(sec))
		time.Sleep(9*sec - 1)
		h.sees(errBroken, answers)
		require.Len(t, h.hears(), 1, "the guard is still the reason")
		time.Sleep(time.Nanosecond)
		h.sees(errBroken, answers)
		h.sees(errBroken, answers)
		assert.Equal(t, told{"3 still down: it broke"}, h.hears())
	})
}
