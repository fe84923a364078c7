package quorum

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows when an acquire ends because its votes are split, and which nodes are late.

// acquiring is an acquire, as far as a round knows.
func acquiring() *act { return &act{brief: Brief{Explain: true}} }

// split starts a, and answers after some time: two nodes grant, and two refuse.
func (s *scene) split(t *testing.T, a *act, after time.Duration) *Round {
	t.Helper()
	r := s.Start(t.Context(), a, false)
	time.AfterFunc(after, func() {
		for i, v := range []any{mine, mine, other, other} {
			s.answer(i, v)
		}
	})
	return r
}

func TestSplitAcquireWaitsForANodeThatIsNotLateByHowLongTheOthersTook(t *testing.T) {
	for _, c := range []struct{ took, want time.Duration }{
		{0, 20 * time.Millisecond},
		{time.Millisecond, 20 * time.Millisecond},
		{10 * time.Millisecond, 40 * time.Millisecond},
		{100 * time.Millisecond, 250 * time.Millisecond},
		{900 * time.Millisecond, 100 * time.Millisecond}, // its deadline comes first
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(5)
			res, took := within(t, s.split(t, acquiring(), c.took), second)
			assert.Equal(t, c.took+c.want, took)
			assert.True(t, res.Split)
			assert.True(t, res.Explained)
			assert.Equal(t, claim.Count{Granted: 0b00011, Refused: 0b01100, Failed: 0b10000}, res.Count)
			assert.Equal(t, claim.Nodes(0b01100), res.Taken)
			assert.ErrorIs(t, res.Votes[4].Err, errSplit)
			assert.Equal(t, claim.Nodes(0b10000), s.known.late.load())

			res, took = within(t, s.split(t, acquiring(), c.took), second)
			assert.Equal(t, c.took, took, "the node is known to be late")
			assert.True(t, res.Split)
		})
	}
}

// The silence of a node before the acquire counts. If several nodes are missing, the one that was heard last counts.
func TestSplitAcquireWaitsLessForANodeThatHasBeenSilent(t *testing.T) {
	const took = 10 * time.Millisecond // so its patience ends when the node has been silent for 50 ms
	for _, c := range []struct {
		silent []time.Duration // nodes 3 and 4
		want   time.Duration
	}{
		{[]time.Duration{0, 10 * time.Millisecond}, 40 * time.Millisecond},
		{[]time.Duration{10 * time.Millisecond, 40 * time.Millisecond}, 40 * time.Millisecond},
		{[]time.Duration{30 * time.Millisecond, 40 * time.Millisecond}, 20 * time.Millisecond},
		{[]time.Duration{50 * time.Millisecond, 60 * time.Millisecond}, 0},
		{[]time.Duration{5 * time.Second, 6 * time.Second}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(5)
			r := s.Start(t.Context(), acquiring(), false)
			time.AfterFunc(took, func() {
				for i, d := range c.silent {
					s.silent[3+i].set(time.Now().Add(-d))
				}
				for i, v := range []any{mine, mine, other} {
					s.answer(i, v)
				}
			})
			res, total := within(t, r, second)
			assert.Equal(t, took+c.want, total)
			assert.True(t, res.Split)
			assert.Equal(t, claim.Nodes(0b11000), s.known.late.load())
		})
	}
}

// A far node may owe the answer to an earlier request, too. When that answer comes, the node has not been silent all the
// time, and the acquire is as patient as if there had been no earlier request.
func TestAnswerToAnEarlierRequestProlongsThePatience(t *testing.T) {
	for _, c := range []struct{ answers, want time.Duration }{
		{0, 10 * time.Millisecond}, // it does not
		{5 * time.Millisecond, 20 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(5)
			s.silent[4].set(time.Now().Add(-10 * time.Millisecond))
			if c.answers != 0 {
				time.AfterFunc(c.answers, func() { s.silent[4].set(time.Now()) })
			}
			res, took := within(t, s.split(t, acquiring(), 0), second)
			assert.Equal(t, c.want, took)
			assert.True(t, res.Split)
		})
	}
}

// Where the third answer makes a split of two missing nodes, and the fourth comes at once, only the fifth counts.
func TestFurtherAnswerEndsThePatienceEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(5)
		s.silent[4].set(time.Now().Add(-time.Second))
		res, took := within(t, s.split(t, acquiring(), 10*time.Millisecond), second)
		assert.Equal(t, 10*time.Millisecond, took)
		assert.True(t, res.Split)
	})
}

// A caller may give up before the patience of its round ends. A node that answers after that end is late all the same.
func TestAnswerAfterThePatienceOfARoundThatWasGivenUpIsLate(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(5)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(5*time.Millisecond, cancel)
			s.split(t, acquiring(), 0).Wait(ctx, second) // its patience is 20 ms
			time.Sleep(10 * time.Millisecond)
			if late {
				time.Sleep(10 * time.Millisecond)
			}
			s.answer(4, other)
			assert.Equal(t, late, s.known.late.load().Has(4))
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
		{30 * time.Millisecond, false, 37500 * time.Microsecond},
		{maxFar, false, maxFar + maxFar/4},
		{maxFar + time.Nanosecond, true, 0},
		{2 * time.Second, true, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(5)
			start := func() *Round {
				r := s.Start(t.Context(), &timedAct{act{brief: Brief{Explain: true}}, clock.Now().Mono}, false)
				for i, v := range []any{mine, mine, other, other} {
					s.answer(i, v)
				}
				return r
			}
			began := time.Now()
			_, took := within(t, start(), second)
			assert.Equal(t, minPatience, took)
			assert.True(t, s.known.late.load().Has(4))
			time.Sleep(c.answers - time.Since(began))
			s.answer(4, other)
			assert.Equal(t, c.late, s.known.late.load().Has(4))
			_, took = within(t, start(), second)
			assert.Equal(t, c.waits, took)
		})
	}
}

func TestVoteInTimeDecidesASplitAcquire(t *testing.T) {
	for v, won := range map[any]bool{mine: true, other: false} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(5)
			r := s.split(t, acquiring(), 10*time.Millisecond)
			time.AfterFunc(49*time.Millisecond, func() { s.answer(4, v) })
			res, took := within(t, r, second)
			assert.Equal(t, 49*time.Millisecond, took)
			assert.Equal(t, won, res.Won)
			assert.False(t, res.Split)
			assert.Zero(t, s.known.late.load())
		})
	}
}

// Only an acquire ends early, only if something is in its way, only if a quorum has answered, and not if it is patient.
func TestOtherRoundsWaitForLateNodes(t *testing.T) {
	for name, c := range map[string]struct {
		brief Brief
		votes []any
	}{
		"no acquire":              {Brief{}, []any{mine, mine, other, other}},
		"a patient acquire":       {Brief{Explain: true, Patient: true}, []any{mine, mine, other, other}},
		"nothing is in its way":   {Brief{Explain: true}, []any{mine, mine}},
		"two answer and differ":   {Brief{Explain: true}, []any{mine, other}},
		"two answer, both refuse": {Brief{Explain: true}, []any{other, other}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(5)
				s.known.late.add(0b11111)
				r := s.Start(t.Context(), &act{brief: c.brief}, false)
				for i, v := range c.votes {
					s.answer(i, v)
				}
				res, took := within(t, r, second)
				assert.Equal(t, time.Second, took)
				assert.False(t, res.Split)
			})
		})
	}
}

// A split acquire without fail-fast ends early, too. One that is blocked waits no longer than a split one for the rest.
func TestFailedAcquireDoesNotKeepNodesForLateOnes(t *testing.T) {
	for name, c := range map[string]struct {
		votes []any
		want  time.Duration
	}{
		"split":   {[]any{mine, mine, other, other}, 20 * time.Millisecond},
		"blocked": {[]any{mine, other, other, other}, 20 * time.Millisecond},
		"won":     {[]any{mine, mine, mine, other}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(5)
				r := s.Start(t.Context(), acquiring(), true)
				for i, v := range c.votes {
					s.answer(i, v)
				}
				_, took := within(t, r, second)
				assert.Equal(t, c.want, took)
			})
		})
	}
}

// A node is late when a round has waited for it in vain, or its connection has failed, until it answers in time.
func TestNodeIsLateUntilItAnswersInTime(t *testing.T) {
	late := func(s *scene) bool { return s.known.late.load().Has(4) }
	wins := func(t *testing.T, s *scene) *Round {
		r := s.Start(t.Context(), acquiring(), false)
		for i := range 3 {
			s.answer(i, mine)
		}
		require.True(t, r.Wait(t.Context(), second).Won)
		return r
	}
	synctest.Test(t, func(t *testing.T) {
		s := newScene(5)
		wins(t, s)
		time.Sleep(time.Hour)
		s.answer(4, mine)
		assert.False(t, late(s), "no round needed it")

		s.Start(t.Context(), acquiring(), false).Wait(t.Context(), second)
		assert.Equal(t, claim.Nodes(0b11111), s.known.late.load(), "the deadline has missed all")

		wins(t, s)
		assert.Equal(t, claim.Nodes(0b11000), s.known.late.load(), "three have answered before the decision")
		time.Sleep(minPatience)
		s.answer(4, mine)
		assert.False(t, late(s), "it has answered soon after the decision")

		s.reply(4, pool.Reply{Err: errors.New("the connection broke")})
		assert.True(t, late(s))
		wins(t, s)
		time.Sleep(minPatience + time.Nanosecond)
		s.answer(4, mine)
		assert.True(t, late(s), "it has not answered soon after the decision")
		s.Start(t.Context(), acquiring(), false)
		s.answer(4, mine)
		assert.False(t, late(s))
	})
}

// A caller that gives up while its round is patient leaves nothing behind for the next round with the same timer.
func TestPatienceIsOfOneRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(5)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		s.split(t, acquiring(), 0).Wait(ctx, second)
		res, took := within(t, s.Start(t.Context(), acquiring(), false), second)
		assert.Equal(t, time.Second, took)
		assert.False(t, res.Split)
		assert.Equal(t, claim.Nodes(0b11111), s.known.late.load())
	})
}

// Only the patience of a split acquire depends on what a node has answered before. The deadline of a round does not move.
func TestAnswerToAnEarlierRequestMovesNoDeadline(t *testing.T) {
	for name, a := range map[string]*act{"an acquire": acquiring(), "another round": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(5)
				time.AfterFunc(second.Decide-time.Nanosecond, func() {
					for i := range s.silent {
						s.silent[i].set(time.Now())
					}
				})
				r := s.Start(t.Context(), a, false)
				s.answer(0, mine)
				s.answer(1, mine)
				_, took := within(t, r, second)
				assert.Equal(t, time.Second, took)
			})
		})
	}
}

// The votes may be split before the caller begins to wait. Its patience does not outlast its own deadline then either.
func TestPatienceThatBeganBeforeTheWaitEndsWithTheDeadline(t *testing.T) {
	for _, decide := range []time.Duration{minPatience / 2, 2 * minPatience} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(5)
			r := s.Start(t.Context(), acquiring(), false)
			for i, v := range []any{mine, mine, other, other} {
				s.answer(i, v)
			}
			_, took := within(t, r, Limits{Decide: decide, Node: decide})
			assert.Equal(t, min(decide, minPatience), took)
		})
	}
}

// A waitingAct keeps a blocked round open until all nodes have voted.
type waitingAct struct{ act }

func (*waitingAct) MayWait(_ claim.Rule, missing claim.Nodes) bool { return missing != 0 }

// An acquire that is blocked may wait for a node that can show which token is high enough, even if that node is late.
func TestBlockedAcquireThatWaitsIsNotSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(5)
		s.known.late.add(0b10000)
		r := s.Start(t.Context(), &waitingAct{act{brief: Brief{Explain: true}}}, false)
		s.answer(0, other)
		for i := 1; i < 4; i++ {
			s.reply(i, broken)
		}
		res, took := within(t, r, second)
		assert.Equal(t, time.Second, took)
		assert.False(t, res.Split)
	})
}
