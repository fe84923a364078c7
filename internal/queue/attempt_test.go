package queue

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/testkit/claimtest"
)

// This file shows what a waiter learns from an attempt that has failed.

// A guarded is why the grants of a node count only from then on after noon.
type guarded struct{ from time.Duration }

func (guarded) Error() string           { return "it has restarted" }
func (g guarded) CountsFrom() time.Time { return in(g.from) }

// voteOf returns the vote of a node. A time is for how long it has refused, and when its answer came if that was not noon.
func voteOf(text string) claim.Vote {
	granted := claim.Answer{Found: claim.Mine}
	switch text {
	case "failed":
		return claim.Failure(quorum.ErrNoAnswer)
	case "granted":
		return claim.Vote{Choice: claim.Granted, Answer: granted}
	case "low": // its register
		granted.Detail = &claim.Detail{Register: 7}
		return claim.Vote{Choice: claim.Refused, Answer: granted, Err: ends.Failed}
	case "forgetful":
		return claim.Vote{Choice: claim.Failed, Answer: granted, Err: ends.Failed}
	case "guarded":
		return claim.Vote{Choice: claim.Failed, Answer: granted, Err: guarded{time.Minute}}
	}
	d := &claim.Detail{Wait: claim.Never}
	if text != "never" {
		wait, at, _ := strings.Cut(text, "@")
		d.Wait, _ = time.ParseDuration(wait)
		d.At, _ = time.ParseDuration(at)
	}
	return claim.Vote{Choice: claim.Refused, Answer: claim.Answer{Found: claim.Other, Detail: d}}
}

func TestRunsOutWhenAQuorumMayBeFree(t *testing.T) {
	withoutJitter(t)
	const later = ms + runOutJitter - 1 // how much later than the nodes say
	at0 := clock.Instant{Wall: noon}
	for name, c := range map[string]struct {
		votes string
		want  time.Duration // 0: it is not known
	}{
		"of no nodes":                           {"", 0},
		"of one node":                           {"1s", sec},
		"of one node that says nothing":         {"never", 0},
		"the second of three":                   {"3s 1s 2s", 2 * sec},
		"the third of five":                     {"5ms 4ms 3ms 2ms 1ms", 3 * ms},
		"two never do":                          {"never 1s never", 0},
		"one has failed":                        {"failed 1s 2s", 2 * sec},
		"two have failed":                       {"failed 1s failed", 0},
		"one is rolled back":                    {"granted 1s 2s", sec},
		"one is rolled back, two never do":      {"granted never never", 0},
		"one with a low token":                  {"low 1s never", sec},
		"all are free":                          {"granted low never", 0},
		"one has forgotten, and is rolled back": {"forgetful 1s 2s", sec},
		"the guards of two end":                 {"guarded guarded never", time.Minute},
		"counted from each answer":              {"150ms@-100ms 90ms@-50ms 1s", 50 * ms},
		"it was so before the attempt ended":    {"150ms@-400ms 90ms@-300ms 1s", 0},
		"at once":                               {"0s 0s 1s", 0},
	} {
		o := lease.Outcome{Kind: lease.NotWon}
		for vote := range strings.FieldsSeq(c.votes) {
			o.Result.Votes = append(o.Result.Votes, voteOf(vote))
		}
		o.Result.Rule = claimtest.Majority(len(o.Result.Votes))
		want := time.Time{}
		if c.want != 0 {
			want = in(c.want + later)
		}
		assert.Equal(t, want, runsOut(o, at0), name)
	}
	res := voted(voteOf("3s@1s"), voteOf("1s@1s"), voteOf("failed")).Result
	res.Taken = 0b11
	left, known := res.Ends(at0)
	assert.True(t, known)
	assert.Equal(t, 4*sec, left, "for an error")
	assert.Zero(t, runsOut(lease.Outcome{Kind: lease.Unusable}, at0), "no node was asked")
	assert.Zero(t, runsOut(lease.Outcome{Kind: lease.Late, Result: quorum.Result{Rule: claimtest.Majority(1)}}, at0), "it was won")
}

// A denial is an error that a node answers.
type denial string

func (d denial) Error() string { return string(d) }
func (denial) RedisError()     {}

var _ redis.Error = denial("")

// voted returns an outcome with these votes, of three nodes.
func voted(votes ...claim.Vote) lease.Outcome {
	rule := claimtest.Majority(3)
	return lease.Outcome{Kind: lease.NotWon, Result: quorum.Result{Rule: rule, Votes: votes}}
}

func TestDenialsAddUp(t *testing.T) {
	synctest.Test(t, denialsAddUp)
}

func denialsAddUp(t *testing.T) {
	t.Helper()
	denied := claim.Failure(denial("NOPERM no"))
	down := claim.Failure(denial("LOADING"))
	unheard := claim.Vote{}
	taken := claim.Vote{Choice: claim.Refused}

	var d denials
	assert.False(t, d.note(lease.Outcome{Kind: lease.Waiting}, false, true), "no node was asked")
	assert.False(t, d.note(voted(denied, down, unheard), false, true))
	assert.True(t, d.note(voted(unheard, denied, down), false, true), "of two attempts")
	assert.Equal(t, []claim.Vote{denied, denied, {}}, d.votes)

	assert.True(t, d.note(voted(down, down, unheard), false, true), "they have broken the connection, perhaps")
	assert.False(t, d.note(voted(taken, unheard, unheard), false, true), "node 0 lets the user lock by now")
	time.Sleep(denialLasts)
	assert.True(t, d.note(voted(denied, down, unheard), false, true), "node 1 denied it not too long ago")
	time.Sleep(time.Nanosecond)
	assert.False(t, d.note(voted(denied, down, unheard), false, true), "node 1 may, too")
	assert.False(t, d.note(voted(denied, denied, denied), true, true), "perhaps they deny only the queues")
	noauth := claim.Failure(denial("NOAUTH no"))
	assert.True(t, d.note(voted(noauth, noauth, unheard), true, true), "that is not about queues")

	for _, ends := range []bool{false, true} { // an answer too late for its attempt
		w := &waiter{terms: &lease.Terms{Policy: &lease.Policy{EndsIfDenied: ends}}}
		(&turn{group: &Group{}, waiter: w}).Barred(1, denied.Err)
		assert.Equal(t, ends, w.denials.nodes.Has(1))
	}

	late := voted()
	late.Result.Won = true
	assert.False(t, d.note(late, false, true), "a quorum has granted")
	assert.False(t, d.note(voted(denied, unheard, unheard), false, true))
}
