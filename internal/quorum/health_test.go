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
	"github.com/seed14bd9ef4/redsync/internal/puppet"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows what a tracer is told: of votes, and of nodes that are down.

// A tracer keeps what it is told, in order.
type tracer struct {
	traces bool
	told   []string
	votes  []Voted // without their Start
	starts []time.Time
	ctxs   []context.Context
	later  []bool
}

func (t *tracer) TracesVotes() bool { return t.traces }

func (t *tracer) Voted(ctx context.Context, v Voted, later bool) {
	t.starts, t.ctxs = append(t.starts, v.Start), append(t.ctxs, ctx)
	v.Start = time.Time{}
	t.votes, t.later = append(t.votes, v), append(t.later, later)
}

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

// A key identifies a value in a context.
type key struct{}

// hears returns what t was told since.
func (t *tracer) hears() []string {
	told := t.told
	t.told = nil
	return told
}

// open is of a Redsync that has not been closed.
var open = &Set{}

func TestHealthTellsOfAChangeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, to, n := &Health{}, &tracer{}, &Node{Index: 3}
		up, down := observation{of: open, to: to, node: n}, observation{of: open, to: to, node: n, err: errBroken}
		h.see(up)
		assert.Empty(t, to.hears())
		h.see(down)
		h.see(down)
		assert.Equal(t, []string{"3 down, omitted 0: it broke"}, to.hears())
		time.Sleep(healthPause)
		h.see(up)
		h.see(up)
		assert.Equal(t, []string{"3 up after 1s"}, to.hears())
		h.see(down)
		assert.Equal(t, []string{"3 down, omitted 0: it broke"}, to.hears(), "the pause is over")
	})
}

func TestHealthTellsOfANodeOncePerPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, to, n := &Health{}, &tracer{}, &Node{Index: 3}
		up, down := observation{of: open, to: to, node: n}, observation{of: open, to: to, node: n, err: errBroken}
		h.see(down)
		h.see(up)
		assert.Equal(t, []string{"3 down, omitted 0: it broke", "3 up after 0s"}, to.hears())
		for range 4 { // it comes and goes
			time.Sleep(healthPause / 10)
			h.see(down)
			h.see(up)
		}
		assert.Empty(t, to.hears())
		time.Sleep(healthPause / 10)
		h.see(down)
		time.Sleep(healthPause/2 - 1)
		h.see(down)
		assert.Empty(t, to.hears(), "a nanosecond before the pause ends")
		time.Sleep(time.Nanosecond)
		h.see(down)
		assert.Equal(t, []string{"3 down, omitted 4: it broke"}, to.hears())
		time.Sleep(time.Minute)
		h.see(up)
		assert.Equal(t, []string{"3 up after 1m0.5s"}, to.hears(), "since it went down, not since that was told")
	})
}

// A node that answers, but whose grants do not count, is up again with any answer of a server that counts.
func TestHealthOfADistrustedNodeComesBackWithAnAnswerThatCounts(t *testing.T) {
	h, to, n := &Health{}, &tracer{}, &Node{Index: 3}
	h.see(observation{of: open, to: to, node: n, err: errUnknownServer, proof: counts})
	require.Len(t, to.hears(), 1)
	h.see(observation{of: open, to: to, node: n, proof: counts})
	assert.Len(t, to.hears(), 1)

	h = &Health{}
	h.see(observation{of: open, to: to, node: n, err: errBroken})
	h.see(observation{of: open, to: to, node: n})
	assert.Len(t, to.hears(), 2, "if a node did not answer, any answer brings it back")
}

// A node that has lost its connection, and then answers that it does not count, is down for a new reason. It is not up in
// between.
func TestHealthTellsOfTheReasonThatFollowsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, to, n := &Health{}, &tracer{}, &Node{Index: 3}
		distrusted := observation{of: open, to: to, node: n, err: errUnknownServer, proof: counts}
		refused := observation{of: open, to: &tracer{}, node: n, err: refusal("READONLY"), proof: grants}
		h.see(observation{of: open, to: to, node: n, err: errBroken})
		time.Sleep(healthPause / 2)
		h.see(distrusted)
		assert.Equal(t, []string{"3 down, omitted 0: it broke", fmt.Sprint("3 still down: ", errUnknownServer)}, to.hears())
		h.see(observation{of: open, to: to, node: n, err: errBroken})
		h.see(distrusted)
		assert.Empty(t, to.hears(), "the greater reason lasts")
		h.see(refused)
		h.see(refused)
		assert.Equal(t, []string{"3 still down: READONLY"}, to.hears(), "to the tracer that was told that it is down")
		h.see(observation{of: open, to: to, node: n, proof: grants})
		assert.Equal(t, []string{"3 up after 500ms"}, to.hears())
		h.see(observation{of: open, to: to, node: n, err: errBroken})
		h.see(distrusted)
		assert.Empty(t, to.hears(), "nobody was told that it is down")
		h.see(observation{of: open, to: to, node: n, proof: grants})
		assert.Empty(t, to.hears())
	})
}

// The reason of a node that has restarted changes when it restarts again, when a lock asks for a longer guard, and when
// it does not answer after the guard.
func TestHealthOfANodeThatHasRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, to, n := &Health{}, &tracer{}, &Node{Index: 3}
		young := func(age, quarantine time.Duration) {
			e := &restarted{at: time.Now(), age: age, covers: 8 * time.Second, quarantine: quarantine}
			h.see(observation{of: open, to: to, node: n, err: e, proof: counts})
		}
		broken := observation{of: open, to: to, node: n, err: errBroken}
		young(time.Second, 9*time.Second)
		assert.Equal(t, []string{"3 down, omitted 0: its server started 1s ago, and the restart guard (8s + 1s) ignores it for another 8s"}, to.hears())
		time.Sleep(3 * time.Second)
		young(3*time.Second, 9*time.Second) // the uptime is in whole seconds
		h.see(broken)
		assert.Empty(t, to.hears())
		young(0, 9*time.Second)
		assert.Equal(t, []string{"3 still down: its server started 0s ago, and the restart guard (8s + 1s) ignores it for another 9s"}, to.hears())
		assert.Equal(t, 9*time.Second, h.longest(time.Second))
		assert.Equal(t, time.Minute, h.longest(time.Minute))
		young(0, 20*time.Second)
		assert.Equal(t, []string{"3 still down: its server started 0s ago, and the restart guard (8s + 12s) ignores it for another 20s"}, to.hears())
		young(0, 9*time.Second)
		assert.Empty(t, to.hears())
		assert.Equal(t, 20*time.Second, h.longest(9*time.Second))
		time.Sleep(20*time.Second - 1)
		h.see(broken)
		assert.Empty(t, to.hears())
		time.Sleep(time.Nanosecond)
		h.see(broken)
		h.see(broken)
		assert.Equal(t, []string{"3 still down: it broke"}, to.hears())
		h.see(observation{of: open, to: to, node: n, proof: counts})
		assert.Equal(t, []string{"3 up after 23s"}, to.hears())
		assert.Equal(t, time.Second, h.longest(time.Second))
		time.Sleep(healthPause)
		h.see(broken)
		assert.Equal(t, time.Second, h.longest(time.Second), "the guard of the last time")
	})
}

// A guardedAct is an act of a lock under a restart guard.
type guardedAct struct{ *act }

func (guardedAct) Quarantine(n *Node) time.Duration { return n.Quarantine(percent{}, 0) }

// A fencedAct is one whose guard is longer by a minute.
type fencedAct struct{ *act }

func (fencedAct) Quarantine(n *Node) time.Duration { return n.Quarantine(percent{}, time.Minute) }

// A node that answers while its guard makes it not count stays down, or is so for a new reason. After the guard any answer
// shows that it is up.
func TestNodeUnderItsGuardIsNotUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quarantine = 2012 * time.Millisecond
		silent := &puppet.Puppet{Answer: func(pool.Request) (*pool.Reply, error) { return nil, nil }}
		s, to := setOf(guarded{silent, time.Second}), &tracer{}
		r := s.Start(t.Context(), guardedAct{&act{brief: Brief{Tracer: to}}}, false)
		server, unknown := &pool.Server{RunID: "a", At: time.Now()}, (*pool.Server)(nil)
		refused, granted := claim.Vote{Choice: claim.Refused}, claim.Vote{Choice: claim.Granted}
		r.NoteHealth(0, refused, server)
		assert.Empty(t, to.hears(), "it has not failed")
		r.NoteHealth(0, claim.Failure(errBroken), nil)
		to.hears()
		r.NoteHealth(0, refused, unknown)
		assert.Empty(t, to.hears())
		r.NoteHealth(0, refused, server)
		r.NoteHealth(0, granted, server)
		assert.Equal(t, []string{"0 still down: its server started 0s ago, and the restart guard (1s + 1.012s) ignores it for another 2.012s"}, to.hears())
		late := claim.Failure(s.Nodes[0].Distrust(server, time.Now(), percent{}, 0))
		time.Sleep(quarantine - 1)
		r.NoteHealth(0, refused, server)
		assert.Empty(t, to.hears())
		time.Sleep(time.Nanosecond)
		r.NoteHealth(0, refused, server)
		assert.Equal(t, []string{"0 up after 2.012s"}, to.hears())
		r.NoteHealth(0, late, server)
		assert.Empty(t, to.hears(), "what is sent from now on counts")

		// Another lock, with fencing, asks for a longer guard. The node is up when that has ended.
		server = &pool.Server{RunID: "b", At: time.Now()}
		fenced := s.Start(t.Context(), fencedAct{&act{brief: Brief{Tracer: to}}}, false)
		fenced.NoteHealth(0, claim.Failure(s.Nodes[0].Distrust(server, time.Now(), percent{}, time.Minute)), server)
		assert.Len(t, to.hears(), 1)
		time.Sleep(quarantine + time.Minute - 1)
		r.NoteHealth(0, granted, server)
		assert.Empty(t, to.hears())
		time.Sleep(time.Nanosecond)
		r.NoteHealth(0, granted, server)
		assert.Equal(t, []string{"0 up after 1m2.012s"}, to.hears())
	})
}

// What a node must do to be up again depends on all that it has failed to do, also after observers were told.
func TestHealthNeedsTheGreatestProof(t *testing.T) {
	h, to, n := &Health{}, &tracer{}, &Node{Index: 3}
	for _, needs := range []int32{grants, acquires, grants} {
		h.see(observation{of: open, to: to, node: n, err: errBroken, proof: needs})
	}
	require.Len(t, to.hears(), 1)
	h.see(observation{of: open, to: to, node: n})
	h.see(observation{of: open, to: to, node: n, proof: grants})
	assert.Empty(t, to.hears())
	h.see(observation{of: open, to: to, node: n, proof: acquires})
	require.Len(t, to.hears(), 1)
	h.see(observation{of: open, to: to, node: n, err: errBroken})
	h.see(observation{of: open, to: to, node: n})
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
		"restarted, when it extends":  {Granting, claim.Failure(errUnknownServer), true},
		"restarted, when it is asked": {Looking, claim.Failure(errUnknownServer), true},
	} {
		t.Run(name, func(t *testing.T) {
			require.True(t, pool.IsDenied(denied{}))
			s, to := newScene(2), &tracer{}
			r := s.Start(t.Context(), &act{brief: Brief{Tracer: to, Purpose: c.purpose}}, false)
			r.NoteHealth(1, c.vote, nil)
			assert.Equal(t, c.down, len(to.hears()) == 1)

			refuses := c.purpose == Granting && pool.IsRefusal(c.vote.Err)
			r.NoteHealth(1, claim.Vote{Choice: claim.Refused}, nil)
			assert.Equal(t, c.down && !refuses, len(to.hears()) == 1, "up again with any answer")
			r.NoteHealth(1, granted, nil)
			assert.Equal(t, c.down && refuses, len(to.hears()) == 1, "with a grant that counts")
		})
	}
	s := newScene(1)
	s.Start(t.Context(), &act{}, false).NoteHealth(0, claim.Failure(errBroken), nil) // nobody listens
}

func TestTracerHearsTheFirstAnswerOfEachNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, to := newScene(3), &tracer{traces: true}
		s.refuse[2] = errBroken
		ctx, start := context.WithValue(t.Context(), key{}, "the call"), time.Now()
		r := s.Start(ctx, &act{brief: Brief{Op: Extend, Tracer: to}}, false)
		require.Len(t, to.votes, 1)
		assert.Equal(t, Voted{Op: Extend, Node: s.Nodes[2], Vote: claim.Failure(errBroken)}, to.votes[0])
		assert.Equal(t, []bool{true}, to.later, "its caller has other nodes to ask")
		time.Sleep(time.Millisecond)
		s.answer(0, missing)
		s.answer(0, mine)
		time.Sleep(time.Millisecond)
		require.True(t, r.IsFinal())
		s.answer(1, mine)
		s.answer(1, mine)
		require.Len(t, to.votes, 3)
		assert.Equal(t, Voted{
			Op: Extend, Node: s.Nodes[0], Took: time.Millisecond,
			Vote: claim.Vote{Choice: claim.Refused, Answer: claim.Answer{Found: claim.Missing}},
		}, to.votes[1])
		assert.Equal(t, Voted{
			Op: Extend, Node: s.Nodes[1], Took: 2 * time.Millisecond, Late: true,
			Vote: claim.Vote{Choice: claim.Granted, Answer: claim.Answer{Found: claim.Mine}},
		}, to.votes[2])
		assert.Equal(t, []bool{true, false, false}, to.later)
		assert.Equal(t, []time.Time{start, start, start}, to.starts)
		assert.Equal(t, []context.Context{ctx, ctx, ctx}, to.ctxs)

		to.traces, to.votes = false, nil
		s.refuse[2] = nil
		s.Start(t.Context(), &act{brief: Brief{Op: Extend, Tracer: to}}, false)
		s.answer(0, mine)
		assert.Empty(t, to.votes, "it does nothing with them")
	})
}

// A node that stands for another one tells of both: they are one server. Other nodes tell of themselves.
func TestAnswerOfANodeThatStandsForAnotherShowsThatBothAreUp(t *testing.T) {
	s, to := newJointScene(), &tracer{}
	r := s.Start(t.Context(), &act{brief: Brief{Tracer: to}}, false)
	for i := range s.Nodes {
		r.NoteHealth(i, claim.Failure(errBroken), nil)
	}
	require.Len(t, to.hears(), 5)
	for _, i := range []int{0, 3} {
		s.NoteServer(i, &pool.Server{RunID: "a"})
	}
	s.TellServers(to)
	to.hears()
	up := claim.Vote{Choice: claim.Refused}
	r.NoteHealth(0, up, nil)
	assert.Len(t, to.hears(), 2, "nodes 0 and 3")
	r.NoteHealth(1, up, nil)
	assert.Len(t, to.hears(), 1)
	r.NoteHealth(3, up, nil)
	assert.Empty(t, to.hears(), "it was up before")
	r.NoteHealth(0, claim.Failure(errBroken), nil)
	assert.Empty(t, to.hears(), "too soon after the last time")
	r.NoteHealth(3, up, nil)
	assert.Equal(t, healthy, s.known.health[3].state.Load(), "only answers are of both")
}
