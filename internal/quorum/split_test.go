package quorum

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file shows when an acquire ends because its votes are split, and which nodes are late.

// acquiring is an acquire, as far as a round knows.
func acquiring() *act { return &act{brief: Brief{Explain: true}} }

// split starts a, and answers after some time: two nodes grant, and two refuse.
func (s *scene) split(a *act, after time.Duration) *Round {
	r := s.start(a)
	time.AfterFunc(after, func() { s.plays("0+ 1+ 2o 3o") })
	return r
}

func TestSplitAcquireWaitsForANodeThatIsNotLateByHowLongTheOthersTook(t *testing.T) {
	for _, c := range []struct{ took, want time.Duration }{
		{0, 20 * ms},
		{ms, 20 * ms},
		{10 * ms, 40 * ms},
		{100 * ms, 250 * ms},
		{900 * ms, 100 * ms}, // its deadline comes first
	} {
		inScene(t, 5, func(s *scene) {
			res := s.ends(s.split(acquiring(), c.took), c.took+c.want, true)
			assert.True(s, res.Explained)
			assert.Equal(s, claim.Count{Granted: 0b00011, Refused: 0b01100, Failed: 0b10000}, res.Count)
			assert.Equal(s, claim.Nodes(0b01100), res.Taken)
			assert.ErrorIs(s, res.Votes[4].Err, errSplit)
			s.areLate(0b10000)

			s.ends(s.split(acquiring(), c.took), c.took, true) // the node is known to be late
		})
	}
}

// The silence of a node before the acquire counts. If several nodes are missing, the one that was heard last counts.
func TestSplitAcquireWaitsLessForANodeThatHasBeenSilent(t *testing.T) {
	const took = 10 * ms // so its patience ends when the node has been silent for 50 ms
	for _, c := range []struct {
		silent []time.Duration // nodes 3 and 4
		want   time.Duration
	}{
		{[]time.Duration{0, 10 * ms}, 40 * ms},
		{[]time.Duration{10 * ms, 40 * ms}, 40 * ms},
		{[]time.Duration{30 * ms, 40 * ms}, 20 * ms},
		{[]time.Duration{50 * ms, 60 * ms}, 0},
		{[]time.Duration{5 * sec, 6 * sec}, 0},
	} {
		inScene(t, 5, func(s *scene) {
			r := s.start(acquiring())
			time.AfterFunc(took, func() {
				for i, d := range c.silent {
					s.silent[3+i].set(time.Now().Add(-d))
				}
				s.plays("0+ 1+ 2o")
			})
			res, total := s.within(r)
			assert.Equal(s, took+c.want, total)
			assert.True(s, res.Split)
			s.areLate(0b11000)
		})
	}
}

// A far node may owe the answer to an earlier request, too. When that answer comes, the node has not been silent all the
// time, and the acquire is as patient as if there had been no earlier request.
func TestAnswerToAnEarlierRequestProlongsThePatience(t *testing.T) {
	for _, c := range []struct{ answers, want time.Duration }{
		{0, 10 * ms}, // it does not
		{5 * ms, 20 * ms},
	} {
		inScene(t, 5, func(s *scene) {
			s.silent[4].set(time.Now().Add(-10 * ms))
			if c.answers != 0 {
				time.AfterFunc(c.answers, func() { s.silent[4].set(time.Now()) })
			}
			s.ends(s.split(acquiring(), 0), c.want, true)
		})
	}
}

// Where the third answer makes a split of two missing nodes, and the fourth comes at once, only the fifth counts.
func TestFurtherAnswerEndsThePatienceEarlier(t *testing.T) {
	inScene(t, 5, func(s *scene) {
		s.silent[4].set(time.Now().Add(-sec))
		s.ends(s.split(acquiring(), 10*ms), 10*ms, true)
	})
}

// A caller may give up before the patience of its round ends. A node that answers after that end is late all the same.
func TestAnswerAfterThePatienceOfARoundThatWasGivenUpIsLate(t *testing.T) {
	for _, late := range []bool{false, true} {
		inScene(t, 5, func(s *scene) {
			ctx, cancel := context.WithCancel(s.Context())
			time.AfterFunc(5*ms, cancel)
			s.split(acquiring(), 0).Wait(ctx, second) // its patience is 20 ms
			time.Sleep(10 * ms)
			if late {
				time.Sleep(10 * ms)
			}
			s.plays("4o")
			assert.Equal(s, late, s.known.late.load().Has(4))
		})
	}
}

// A timedAct knows when it began.
type timedAct struct {
	act
	began time.Duration
}

func (a *timedAct) Began() time.Duration { return a.began }

// A node that has answered within maxFar, although after the patience, is merely far. Later acquires wait for it.
func TestFarNodeIsWaitedFor(t *testing.T) {
	for _, c := range []struct {
		answers time.Duration // after the acquire has begun
		late    bool
		waits   time.Duration // of the next acquire
	}{
		{30 * ms, false, 37500 * time.Microsecond},
		{maxFar, false, maxFar + maxFar/4},
		{maxFar + time.Nanosecond, true, 0},
		{2 * sec, true, 0},
	} {
		inScene(t, 5, func(s *scene) {
			start := func() *Round {
				r := s.start(&timedAct{act{brief: Brief{Explain: true}}, clock.Now().Mono})
				s.plays("0+ 1+ 2o 3o")
				return r
			}
			began := time.Now()
			_, took := within(s.T, start(), second)
			assert.Equal(s, minPatience, took)
			assert.True(s, s.known.late.load().Has(4))
			time.Sleep(c.answers - time.Since(began))
			s.plays("4o")
			assert.Equal(s, c.late, s.known.late.load().Has(4))
			_, took = within(s.T, start(), second)
			assert.Equal(s, c.waits, took)
		})
	}
}

func TestVoteInTimeDecidesASplitAcquire(t *testing.T) {
	for vote, won := range map[string]bool{"4+": true, "4o": false} {
		inScene(t, 5, func(s *scene) {
			r := s.split(acquiring(), 10*ms)
			time.AfterFunc(49*ms, func() { s.plays(vote) })
			res, took := s.within(r)
			assert.Equal(s, 49*ms, took)
			assert.Equal(s, won, res.Won)
			assert.False(s, res.Split)
			s.areLate(0)
		})
	}
}

// Only an acquire ends early, only if something is in its way, only if a quorum has answered, and not if it is patient.
func TestOtherRoundsWaitForLateNodes(t *testing.T) {
	for name, c := range map[string]struct {
		brief Brief
		votes string
	}{
		"no acquire":              {Brief{}, "0+ 1+ 2o 3o"},
		"a patient acquire":       {Brief{Explain: true, Patient: true}, "0+ 1+ 2o 3o"},
		"nothing is in its way":   {Brief{Explain: true}, "0+ 1+"},
		"two answer and differ":   {Brief{Explain: true}, "0+ 1o"},
		"two answer, both refuse": {Brief{Explain: true}, "0o 1o"},
	} {
		inScene(t, 5, func(s *scene) {
			s.Log(name)
			s.known.late.add(0b11111)
			r := s.start(&act{brief: c.brief})
			s.plays(c.votes)
			s.ends(r, sec, false)
		})
	}
}

// A split acquire without fail-fast ends early, too. One that is blocked waits no longer than a split one for the rest.
func TestFailedAcquireDoesNotKeepNodesForLateOnes(t *testing.T) {
	for name, c := range map[string]struct {
		votes string
		want  time.Duration
	}{
		"split":   {"0+ 1+ 2o 3o", 20 * ms},
		"blocked": {"0+ 1o 2o 3o", 20 * ms},
		"won":     {"0+ 1+ 2+ 3o", sec},
	} {
		inScene(t, 5, func(s *scene) {
			s.Log(name)
			r := s.Start(s.Context(), acquiring(), true)
			s.plays(c.votes)
			_, took := s.within(r)
			assert.Equal(s, c.want, took)
		})
	}
}

// A node is late when a round has waited for it in vain, or its connection has failed, until it answers in time.
func TestNodeIsLateUntilItAnswersInTime(t *testing.T) {
	late := func(s *scene) bool { return s.known.late.load().Has(4) }
	wins := func(s *scene) *Round {
		r := s.start(acquiring())
		s.plays("0+ 1+ 2+")
		require.True(s, r.Wait(s.Context(), second).Won)
		return r
	}
	inScene(t, 5, func(s *scene) {
		wins(s)
		time.Sleep(time.Hour)
		s.plays("4+")
		assert.False(s, late(s), "no round needed it")

		s.start(acquiring()).Wait(s.Context(), second)
		s.areLate(0b11111) // the deadline has missed all

		wins(s)
		s.areLate(0b11000) // three have answered before the decision
		time.Sleep(minPatience)
		s.plays("4+")
		assert.False(s, late(s), "it has answered soon after the decision")

		s.reply(4, wire.Reply{Err: errors.New("the connection broke")})
		assert.True(s, late(s))
		wins(s)
		time.Sleep(minPatience + time.Nanosecond)
		s.plays("4+")
		assert.True(s, late(s), "it has not answered soon after the decision")
		s.start(acquiring())
		s.plays("4+")
		assert.False(s, late(s))
	})
}

// A caller that gives up while its round is patient leaves nothing behind for the next round with the same timer.
func TestPatienceIsOfOneRound(t *testing.T) {
	inScene(t, 5, func(s *scene) {
		ctx, cancel := context.WithCancel(s.Context())
		time.AfterFunc(ms, cancel)
		s.split(acquiring(), 0).Wait(ctx, second)
		s.ends(s.start(acquiring()), sec, false)
		s.areLate(0b11111)
	})
}

// Only the patience of a split acquire depends on what a node has answered before. The deadline of a round does not move.
func TestAnswerToAnEarlierRequestMovesNoDeadline(t *testing.T) {
	for name, a := range map[string]*act{"an acquire": acquiring(), "another round": {}} {
		inScene(t, 5, func(s *scene) {
			s.Log(name)
			time.AfterFunc(second.Decide-time.Nanosecond, func() {
				for i := range s.silent {
					s.silent[i].set(time.Now())
				}
			})
			r := s.start(a)
			s.plays("0+ 1+")
			_, took := s.within(r)
			assert.Equal(s, sec, took)
		})
	}
}

// The votes may be split before the caller begins to wait. Its patience does not outlast its own deadline then either.
func TestPatienceThatBeganBeforeTheWaitEndsWithTheDeadline(t *testing.T) {
	for _, decide := range []time.Duration{minPatience / 2, 2 * minPatience} {
		inScene(t, 5, func(s *scene) {
			r := s.start(acquiring())
			s.plays("0+ 1+ 2o 3o")
			_, took := within(s.T, r, Limits{Decide: decide, Node: decide})
			assert.Equal(s, min(decide, minPatience), took)
		})
	}
}

// A waitingAct keeps a blocked round open until all nodes have voted.
type waitingAct struct{ act }

func (*waitingAct) MayWait(_ claim.Rule, missing claim.Nodes) bool { return missing != 0 }

// An acquire that is blocked may wait for a node that can show which token is high enough, even if that node is late.
func TestBlockedAcquireThatWaitsIsNotSplit(t *testing.T) {
	inScene(t, 5, func(s *scene) {
		s.known.late.add(0b10000)
		r := s.start(&waitingAct{act{brief: Brief{Explain: true}}})
		s.plays("0o")
		for i := 1; i < 4; i++ {
			s.reply(i, broken)
		}
		s.ends(r, sec, false)
	})
}
