package quorum

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows one round: what is sent, what counts, and how it ends.

var second = Limits{Decide: time.Second, Node: time.Second}

func TestRoundIsDecidedByTheVoteThatDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := newScene(5), &act{}
		r := s.Start(t.Context(), a, false)
		assert.Equal(t, 5, s.count())
		s.answer(4, mine)
		s.answer(0, missing)
		s.answer(1, mine)
		assert.False(t, r.IsFinal())
		s.answer(1, mine) // a second answer of a node is no second vote
		assert.False(t, r.IsFinal())
		s.answer(2, mine)
		assert.True(t, r.IsFinal())
		s.answer(3, other) // too late to count
		res, took := within(t, r, second)
		assert.Zero(t, took)
		assert.Equal(t, claim.Standing{Won: true, Explained: true}, res.Standing)
		assert.Equal(t, claim.Count{Granted: 0b10110, Refused: 0b00001}, res.Count)
		assert.Nil(t, res.Votes)
		assert.Same(t, s.Set, res.Set)
		assert.Equal(t, []string{"sending", "sending", "sending", "sending", "sending", "won"}, a.told)
	})
}

func TestRoundGivenUpSaysWhichNodesAreSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("I have changed my mind")
		canceled, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		over := make(chan struct{})
		close(over)
		for name, c := range map[string]struct {
			canceled bool
			limits   Limits
			took     time.Duration
			text     string // "" if the silent nodes have not failed
		}{
			"at its deadline": {false, second, time.Second, "no answer within 1s"},
			"by its caller":   {true, second, 0, ""},
			"by the end":      {false, Limits{Decide: time.Second, Over: over}, 0, "no answer within 1s"},
		} {
			ctx := t.Context()
			if c.canceled {
				ctx = canceled
			}
			s := newScene(3)
			r := s.Start(t.Context(), &act{}, false)
			s.answer(1, other)
			start := time.Now()
			res := r.Wait(ctx, c.limits)
			assert.Equal(t, c.took, time.Since(start), name)
			assert.Equal(t, c.text == "", res.Cut, name)
			assert.Equal(t, claim.Nodes(0b010), res.Taken, name)
			assert.False(t, res.IsTaken(), name)
			if c.text == "" {
				assert.Equal(t, claim.Standing{}, res.Standing, name)
				assert.Equal(t, claim.Count{Refused: 0b010}, res.Count, name)
				assert.Equal(t, []claim.Vote{{}, res.Votes[1], {}}, res.Votes, name)
			} else {
				assert.Equal(t, claim.Standing{Blocked: true, Explained: true}, res.Standing, name)
				assert.Equal(t, claim.Count{Refused: 0b010, Failed: 0b101}, res.Count, name)
				for _, i := range []int{0, 2} {
					assert.Equal(t, claim.Failed, res.Votes[i].Choice, name)
					require.EqualError(t, res.Votes[i].Err, c.text, name)
					require.ErrorIs(t, res.Votes[i].Err, ErrNoAnswer, name)
				}
			}
			s.answer(0, mine) // too late
			s.answer(2, mine)
			assert.Equal(t, claim.Nodes(0), r.SoFar(nil).Count.Granted, name)
		}
	})
}

func TestRoundThatIsBlockedTellsTakenFromSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(3)
		r := s.Start(t.Context(), &act{}, false)
		s.answer(0, other)
		s.answer(2, other)
		res, took := within(t, r, second)
		assert.Zero(t, took)
		assert.True(t, res.IsTaken())
		assert.Equal(t, claim.Standing{Blocked: true, Rejected: true, Explained: true}, res.Standing)
		assert.Equal(t, claim.Count{Refused: 0b101}, res.Count, "it was decided: the silent one does not matter")
		assert.Equal(t, claim.Vote{}, res.Votes[1], "nobody waits for it any more")
		assert.False(t, res.Cut)
	})
}

// An acquire waits until it is clear why it is blocked. Other operations do not.
func TestRoundExplainsWhereItIsAskedTo(t *testing.T) {
	for _, explains := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, a := newScene(5), &act{brief: Brief{Explain: explains}}
			r := s.Start(t.Context(), a, false)
			s.reply(0, pool.Reply{Err: errBroken})
			s.reply(1, pool.Reply{Err: errBroken})
			s.answer(2, other)
			assert.Equal(t, !explains, r.IsFinal(), "two have failed, and two are silent")
			s.answer(3, other)
			assert.Equal(t, !explains, r.IsFinal())
			s.answer(4, mine)
			assert.True(t, r.IsFinal(), "a quorum has answered")
			res, _ := within(t, r, second)
			assert.Equal(t, explains, res.Count.Answered().Len() == 3)
		})
		synctest.Test(t, func(t *testing.T) {
			s := newScene(5)
			r := s.Start(t.Context(), &act{brief: Brief{Explain: explains}}, false)
			for i := range 3 {
				assert.False(t, r.IsFinal())
				s.reply(i, pool.Reply{Err: errBroken})
			}
			assert.True(t, r.IsFinal(), "none of the others can help")
			within(t, r, second)
		})
	}
}

func TestRoundThatWaitsForAllHearsAllUntilTheNodeDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := Limits{Decide: time.Hour, Node: time.Second}
		s := newScene(3)
		r := s.Start(t.Context(), &act{}, true)
		time.AfterFunc(100*time.Millisecond, func() { s.answer(0, mine) })
		time.AfterFunc(200*time.Millisecond, func() { s.answer(1, mine) })
		time.AfterFunc(300*time.Millisecond, func() { s.answer(2, other) })
		res, took := within(t, r, limits)
		assert.Equal(t, 300*time.Millisecond, took)
		assert.Equal(t, claim.Count{Granted: 0b011, Refused: 0b100}, res.Count)

		r = s.Start(t.Context(), &act{}, true)
		s.answer(1, other)
		s.answer(2, other)
		res, took = within(t, r, limits)
		assert.Equal(t, time.Second, took)
		require.EqualError(t, res.Votes[0].Err, "no answer within 1s")

		for _, end := range []func(cancel context.CancelCauseFunc, over chan struct{}){
			func(cancel context.CancelCauseFunc, _ chan struct{}) { cancel(errBroken) },
			func(_ context.CancelCauseFunc, over chan struct{}) { close(over) },
		} {
			r = s.Start(t.Context(), &act{}, true)
			s.answer(1, other)
			s.answer(2, other)
			ctx, cancel := context.WithCancelCause(t.Context())
			over := make(chan struct{})
			time.AfterFunc(time.Millisecond, func() { end(cancel, over) })
			start := time.Now()
			res = r.Wait(ctx, Limits{Decide: time.Hour, Node: time.Second, Over: over})
			assert.Equal(t, time.Millisecond, time.Since(start))
			assert.Equal(t, claim.Vote{}, res.Votes[0])
			assert.False(t, res.Cut, "it was decided before")
			cancel(nil)
		}
	})
}

// If a pool refuses to send, that is the node's vote, and nothing is under way to the node.
func TestRoundCountsAPoolThatRefusesToSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := newScene(3), &act{}
		s.refuse = []error{errBroken, nil, errBroken}
		res, took := within(t, s.Start(t.Context(), a, false), second)
		assert.Zero(t, took)
		assert.Equal(t, claim.Count{Failed: 0b101}, res.Count)
		assert.Equal(t, claim.Failure(errBroken), res.Votes[2])
		assert.Equal(t, []string{"sending", "unsent", "sending", "sending", "unsent"}, a.told)
	})
}

func TestRoundSendsAScriptInFullOnceWhileItIsOpen(t *testing.T) {
	noScript := pool.Reply{Err: lacksScript{}, Fate: pool.Answered}
	for name, c := range map[string]struct {
		before func(s *scene, a *act, r *Round)
		sent   int // to node 0
		want   claim.Choice
	}{
		"open":         {func(*scene, *act, *Round) {}, 2, claim.Pending},
		"decided":      {func(s *scene, _ *act, _ *Round) { s.answer(1, mine); s.answer(2, mine) }, 1, claim.Pending},
		"closed":       {func(_ *scene, _ *act, r *Round) { r.Close() }, 1, claim.Pending},
		"gate closed":  {func(_ *scene, a *act, _ *Round) { a.over = true }, 1, claim.Failed},
		"pool refuses": {func(s *scene, _ *act, _ *Round) { s.refuse[0] = errBroken }, 2, claim.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, a := newScene(3), &act{}
				r := s.Start(t.Context(), a, false)
				c.before(s, a, r)
				s.reply(0, noScript)
				sent := s.puppets[0].Sent()
				require.Len(t, sent, c.sent)
				if c.sent == 2 {
					assert.Equal(t, "evalsha", sent[0].Args[0])
					assert.Equal(t, "eval", sent[1].Args[0])
				}
				v := r.voteLocked(0)
				assert.Equal(t, c.want, v.Choice)
				switch name {
				case "pool refuses":
					require.ErrorIs(t, v.Err, errBroken, "that is why")
				case "open":
					s.reply(0, noScript)
					require.Len(t, s.puppets[0].Sent(), 2, "once")
					assert.Equal(t, claim.Failed, r.Ballots[0].choice)
				}
			})
		})
	}
}

// Two nodes that are one server have one vote, whichever of them votes first.
func TestRoundCountsOneServerOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(3)
		r := s.Start(t.Context(), &act{}, false)
		twin := func() *pool.Server { return &pool.Server{RunID: "twin"} }
		s.reply(2, pool.Reply{Value: mine, Server: twin()})
		s.reply(0, pool.Reply{Value: mine, Server: twin()})
		assert.False(t, r.IsFinal())
		s.reply(1, pool.Reply{Value: missing, Server: &pool.Server{RunID: "other"}})
		res, _ := within(t, r, second)
		assert.Equal(t, claim.Count{Granted: 0b100, Refused: 0b010, Failed: 0b001}, res.Count)
		assert.Equal(t, claim.Vote{Answer: claim.Answer{Found: claim.Mine}}.Fails(ErrDuplicate), res.Votes[0])
		assert.Nil(t, s.Duplicate(), "two servers are a quorum")
	})
}

// A server grants if it has granted at one address. Its refusal at another one is no other value.
func TestRoundTakesARefusalBesideAGrantForNoOtherValue(t *testing.T) {
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(5)
			r := s.Start(t.Context(), &act{brief: Brief{Explain: true}}, false)
			for _, i := range order {
				value := mine
				if i == 1 {
					value = other
				}
				s.reply(i, pool.Reply{Value: value, Fate: pool.Answered, Conn: 1, Server: &pool.Server{RunID: "twin"}})
			}
			res := r.SoFar(nil)
			assert.Equal(t, nodes(0), res.Count.Granted)
			assert.Zero(t, res.Count.Refused)
			assert.Zero(t, res.Taken)
			s.reply(2, pool.Reply{Value: other, Fate: pool.Answered, Conn: 1, Server: &pool.Server{RunID: "b"}})
			assert.Equal(t, nodes(2), r.SoFar(nil).Taken)
			r.Close()
		})
	}
}

func TestReadOfAReplyIsAVoteByItself(t *testing.T) {
	s, call := newScene(3), (&act{}).Brief().Call
	v := s.Read(call.Read, mine, nil)
	assert.Equal(t, claim.Vote{Choice: claim.Granted, Answer: claim.Answer{Found: claim.Mine}}, v)
	assert.Equal(t, claim.Refused, s.Read(call.Read, other, nil).Choice)
	v = s.Read(call.Read, "OK", nil)
	assert.Equal(t, claim.Failed, v.Choice)
	require.ErrorContains(t, v.Err, "odd answer")
	assert.Equal(t, claim.Failure(errBroken), s.Read(call.Read, mine, errBroken))
}

func TestRoundCountsWhatItsOperationJudges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(3)
		var judged []int
		r := s.Start(t.Context(), &act{judges: func(i int, v claim.Vote) claim.Vote {
			judged = append(judged, i)
			if i == 1 {
				return claim.Failure(errBroken)
			}
			return v
		}}, false)
		for i := range 3 {
			s.answer(i, mine)
		}
		s.answer(2, mine) // judged although it comes after the decision
		res, _ := within(t, r, second)
		assert.Equal(t, claim.Count{Granted: 0b101, Failed: 0b010}, res.Count)
		assert.Equal(t, []int{0, 1, 2, 2}, judged)
	})
}

func TestRoundWaitsForAVoteThatIsStillToCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(3)
		r := s.Start(t.Context(), &act{}, false)
		r.WaitFor(0, errBroken)
		require.ErrorIs(t, r.WaitsFor(0), errBroken)
		require.NoError(t, r.WaitsFor(1))
		res := r.SoFar(ErrNoAnswer)
		assert.Equal(t, claim.Failure(errBroken), res.Votes[0], "if it does not come")
		assert.Equal(t, claim.Failure(ErrNoAnswer), res.Votes[1])
		assert.Equal(t, claim.Count{Failed: 0b111}, res.Count)
		s.answer(0, mine)
		r.WaitFor(0, errBroken) // it has come
		s.answer(1, mine)
		res, _ = within(t, r, second)
		assert.True(t, res.Won)
		require.NoError(t, r.WaitsFor(0))
	})
}

// A winner acts once, before anybody is told of the decision.
func TestRoundLetsAWinnerActBeforeAnybodyIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, wins := range []bool{true, false} {
			s, a := newScene(3), &act{}
			r := &Round{}
			r.Prepare(t.Context(), s.Set, a, false, false)
			r.Send()
			a.told = nil
			answer := mine
			if !wins {
				answer = other
			}
			for i := range 3 {
				s.answer(i, answer)
			}
			want := []string{"decided"}
			if wins {
				want = []string{"won", "decided"}
			}
			assert.Equal(t, want, a.told)
		}
	})
}

func TestRoundObeysTheTallyOfItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(3)
		tally := &tallyOf{wins: 2}
		r := s.Start(t.Context(), &act{tally: tally}, false)
		s.answer(0, mine)
		s.answer(1, mine)
		assert.False(t, r.IsFinal(), "a quorum is not what counts")
		s.answer(2, mine)
		res, _ := within(t, r, second)
		assert.True(t, res.Won)
		assert.Same(t, tally, res.Tally)
		assert.Equal(t, []int{0, 1, 2}, tally.added)

		tally = &tallyOf{wins: 2}
		r = s.Start(t.Context(), &act{tally: tally}, false)
		s.answer(2, other)
		res, _ = within(t, r, second)
		assert.Equal(t, claim.Standing{Blocked: true}, res.Standing)
	})
}

// A tallyOf is won by the vote of one node.
type tallyOf struct {
	wins     int
	added    []int
	choices  []claim.Choice
	standing claim.Standing
}

func (t *tallyOf) Add(i int, v claim.Vote) {
	t.added, t.choices = append(t.added, i), append(t.choices, v.Choice)
	if i == t.wins {
		t.standing = claim.Standing{Won: v.Choice == claim.Granted, Blocked: v.Choice != claim.Granted}
	}
}
func (t *tallyOf) Standing() claim.Standing { return t.standing }

// A server has refused at one address and grants at another one: it has granted, and its refusal counts no more, in a tally
// either.
func TestTallyForgetsTheRefusalOfAServerThatGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, server := newScene(3), &pool.Server{RunID: "a"}
		a := &tallied{act: act{tally: &tallyOf{}}}
		r := s.Start(t.Context(), a, true)
		for i, value := range []any{other, mine} {
			s.reply(i, pool.Reply{Value: value, Fate: pool.Answered, Conn: 1, Server: server})
		}
		last := a.made[len(a.made)-1]
		assert.Equal(t, []int{0, 1}, last.added)
		assert.Equal(t, []claim.Choice{claim.Failed, claim.Granted}, last.choices)
		assert.Equal(t, claim.Count{Failed: nodes(0), Granted: nodes(1)}, r.SoFar(nil).Count)
		r.Close()
	})
}

// A tallied is an act with a fresh tally each time.
type tallied struct {
	act
	made []*tallyOf
}

func (a *tallied) Tally(claim.Rule) claim.Tally {
	a.made = append(a.made, &tallyOf{wins: -1})
	return a.made[len(a.made)-1]
}

// A round has room for the ballots of a usual number of nodes. It must work for other numbers, too.
func TestRoundOfAnyNumberOfNodes(t *testing.T) {
	for _, n := range []int{1, claim.UsualNodes, claim.UsualNodes + 1, 9, 10, 63, 64} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(n)
				r := s.Start(t.Context(), &act{}, true)
				for i := n - 1; i >= 0; i-- {
					assert.Equal(t, n-1-i > n/2, r.IsFinal(), "node %d", i)
					s.answer(i, mine)
				}
				res, took := within(t, r, second)
				assert.True(t, res.Won)
				assert.Equal(t, claim.Count{Granted: claim.FirstNodes(n)}, res.Count)
				assert.Zero(t, took)
			})
		})
	}
}
