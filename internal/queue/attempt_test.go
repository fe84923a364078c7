package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/claim/claimtest"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
)

// This file shows what a waiter learns from an attempt that has failed.

// inTheWay is the vote of a node on which something else has the lock for the time d.
func inTheWay(d time.Duration) claim.Vote {
	return claim.Vote{Choice: claim.Refused, Answer: claim.Answer{Found: claim.Other, Detail: &claim.Detail{Wait: d}}}
}

// at0 is noon, on both clocks.
var at0 = clock.Instant{Wall: noon}

// cameAt is the vote of a node that refuses for the time wait, by an answer that came at the time at.
func cameAt(at, wait time.Duration) claim.Vote {
	v := inTheWay(wait)
	v.Answer.Detail.At = at
	return v
}

// A guarded is why the grants of a node count only from then on after noon.
type guarded struct{ from time.Duration }

func (guarded) Error() string           { return "it has restarted" }
func (g guarded) CountsFrom() time.Time { return in(g.from) }

type votes []claim.Vote

func TestRunsOutWhenAQuorumMayBeFree(t *testing.T) {
	withoutJitter(t)
	const later = time.Millisecond + runOutJitter - 1 // how much later than the nodes say
	never, failed := inTheWay(claim.Never), claim.Failure(quorum.ErrNoAnswer)
	granted := claim.Vote{Choice: claim.Granted, Answer: claim.Answer{Found: claim.Mine}}
	lowRegister := claim.Vote{Choice: claim.Refused, Answer: claim.Answer{Found: claim.Mine, Detail: &claim.Detail{Register: 7}}, Err: ends.Failed}
	forgetful := claim.Vote{Choice: claim.Failed, Answer: claim.Answer{Found: claim.Mine}, Err: ends.Failed}
	ignored := claim.Vote{Choice: claim.Failed, Answer: claim.Answer{Found: claim.Mine}, Err: guarded{time.Minute}}
	for name, c := range map[string]struct {
		votes votes
		want  time.Duration // 0: it is not known
	}{
		"of no nodes":                           {nil, 0},
		"of one node":                           {votes{inTheWay(time.Second)}, time.Second + later},
		"of one node that says nothing":         {votes{never}, 0},
		"the second of three":                   {votes{inTheWay(3 * time.Second), inTheWay(time.Second), inTheWay(2 * time.Second)}, 2*time.Second + later},
		"the third of five":                     {votes{inTheWay(5 * ms), inTheWay(4 * ms), inTheWay(3 * ms), inTheWay(2 * ms), inTheWay(ms)}, 3*ms + later},
		"two never do":                          {votes{never, inTheWay(time.Second), never}, 0},
		"one has failed":                        {votes{failed, inTheWay(time.Second), inTheWay(2 * time.Second)}, 2*time.Second + later},
		"two have failed":                       {votes{failed, inTheWay(time.Second), failed}, 0},
		"one is rolled back":                    {votes{granted, inTheWay(time.Second), inTheWay(2 * time.Second)}, time.Second + later},
		"one is rolled back, two never do":      {votes{granted, never, never}, 0},
		"one with a low token":                  {votes{lowRegister, inTheWay(time.Second), never}, time.Second + later},
		"all are free":                          {votes{granted, lowRegister, never}, 0},
		"one has forgotten, and is rolled back": {votes{forgetful, inTheWay(time.Second), inTheWay(2 * time.Second)}, time.Second + later},
		"the guards of two end":                 {votes{ignored, ignored, never}, time.Minute + later},
		"counted from each answer":              {votes{cameAt(-100*ms, 150*ms), cameAt(-50*ms, 90*ms), inTheWay(time.Second)}, 50*ms + later},
		"it was so before the attempt ended":    {votes{cameAt(-400*ms, 150*ms), cameAt(-300*ms, 90*ms), inTheWay(time.Second)}, 0},
		"at once":                               {votes{inTheWay(0), inTheWay(0), inTheWay(time.Second)}, 0},
	} {
		o := lease.Outcome{Kind: lease.NotWon, Result: quorum.Result{Rule: claimtest.Majority(len(c.votes)), Votes: c.votes}}
		want := time.Time{}
		if c.want != 0 {
			want = in(c.want)
		}
		assert.Equal(t, want, runsOut(o, at0), name)
	}
	assert.Zero(t, runsOut(lease.Outcome{Kind: lease.Unusable}, at0), "no node was asked")
	assert.Zero(t, runsOut(lease.Outcome{Kind: lease.Late, Result: quorum.Result{Rule: claimtest.Majority(1)}}, at0), "it was won")
}
