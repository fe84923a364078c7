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
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file shows one round: what is sent, what counts, and how it ends.

var second = Limits{Decide: sec, Node: sec}

func TestRoundIsDecidedByTheVoteThatDecides(t *testing.T) {
	inScene(t, 5, func(s *scene) {
		a := &act{}
		r := s.start(a)
		assert.Equal(s, 5, s.count())
		s.plays("4+ 0- 1+")
		assert.False(s, r.IsFinal())
		s.plays("1+") // a second answer of a node is no second vote
		assert.False(s, r.IsFinal())
		s.plays("2+")
		assert.True(s, r.IsFinal())
		s.plays("3o") // too late to count
		res, took := s.within(r)
		assert.Zero(s, took)
		assert.Equal(s, claim.Standing{Won: true, Explained: true}, res.Standing)
		assert.Equal(s, claim.Count{Granted: 0b10110, Refused: 0b00001}, res.Count)
		assert.Nil(s, res.Votes)
		assert.Same(s, s.Set, res.Set)
		assert.Equal(s, []string{"sending", "sending", "sending", "sending", "sending", "won"}, a.told)
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
			"at its deadline": {false, second, sec, "no answer within 1s"},
			"by its caller":   {true, second, 0, ""},
			"by the end":      {false, Limits{Decide: sec, Over: over}, 0, "no answer within 1s"},
		} {
			ctx := t.Context()
			if c.canceled {
				ctx = canceled
			}
			s := newScene(3)
			r := s.Start(t.Context(), &act{}, false)
			s.plays("1o")
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
			s.plays("0+") // too late
			s.plays("2+")
			assert.Equal(t, claim.Nodes(0), r.SoFar(nil).Count.Granted, name)
		}
	})
}

func TestRoundThatIsBlockedTellsTakenFromSilent(t *testing.T) {
	inScene(t, 3, func(s *scene) {
		r := s.start(&act{})
		s.plays("0o 2o")
		res, took := s.within(r)
		assert.Zero(s, took)
		assert.True(s, res.IsTaken())
		assert.Equal(s, claim.Standing{Blocked: true, Rejected: true, Explained: true}, res.Standing)
		assert.Equal(s, claim.Count{Refused: 0b101}, res.Count, "it was decided: the silent one does not matter")
		assert.Equal(s, claim.Vote{}, res.Votes[1], "nobody waits for it any more")
		assert.False(s, res.Cut)
	})
}

// An acquire waits until it is clear why it is blocked. Other operations do not.
func TestRoundExplainsWhereItIsAskedTo(t *testing.T) {
	for _, explains := range []bool{false, true} {
		inScene(t, 5, func(s *scene) {
			a := &act{brief: Brief{Explain: explains}}
			r := s.start(a)
			s.reply(0, wire.Reply{Err: errBroken})
			s.reply(1, wire.Reply{Err: errBroken})
			s.plays("2o")
			assert.Equal(s, !explains, r.IsFinal(), "two have failed, and two are silent")
			s.plays("3o")
			assert.Equal(s, !explains, r.IsFinal())
			s.plays("4+")
			assert.True(s, r.IsFinal(), "a quorum has answered")
			res, _ := s.within(r)
			assert.Equal(s, explains, res.Count.Answered().Len() == 3)
		})
		inScene(t, 5, func(s *scene) {
			r := s.start(&act{brief: Brief{Explain: explains}})
			for i := range 3 {
				assert.False(s, r.IsFinal())
				s.reply(i, wire.Reply{Err: errBroken})
			}
			assert.True(s, r.IsFinal(), "none of the others can help")
			s.within(r)
		})
	}
}

// A round that waits for all, and is decided, does not do so for longer than its caller does.
func TestDecidedRoundThatWaitsForAllEndsWithItsCaller(t *testing.T) {
	for name, end := range map[string]func(cancel func(), over chan struct{}){
		"its context ends": func(cancel func(), _ chan struct{}) { cancel() },
		"the hold ends":    func(_ func(), over chan struct{}) { close(over) },
		"its deadline":     func(func(), chan struct{}) {},
	} {
		inScene(t, 3, func(s *scene) {
			r := s.Start(s.Context(), &act{}, true)
			s.plays("1o 2o")
			ctx, cancel := context.WithCancel(s.Context())
			defer cancel()
			over := make(chan struct{})
			time.AfterFunc(ms, func() { end(cancel, over) })
			start := time.Now()
			res := r.Wait(ctx, Limits{Decide: time.Hour, Node: sec, Over: over})
			assert.False(s, res.Cut, "it was decided before")
			if name == "its deadline" {
				assert.Equal(s, sec, time.Since(start))
				require.EqualError(s, res.Votes[0].Err, "no answer within 1s")
				assert.Equal(s, claim.Count{Refused: 0b110}, res.Count, "the silent one has decided nothing")
				return
			}
			assert.Equal(s, ms, time.Since(start), name)
			assert.Equal(s, claim.Vote{}, res.Votes[0])
		})
	}
}

// If a pool refuses to send, that is the node's vote, and nothing is under way to the node.
func TestRoundCountsAPoolThatRefusesToSend(t *testing.T) {
	inScene(t, 3, func(s *scene) {
		a := &act{}
		s.refuse = []error{errBroken, nil, errBroken}
		res, took := s.within(s.start(a))
		assert.Zero(s, took)
		assert.Equal(s, claim.Count{Failed: 0b101}, res.Count)
		assert.Equal(s, claim.Failure(errBroken), res.Votes[2])
		assert.Equal(s, []string{"sending", "unsent", "sending", "sending", "unsent"}, a.told)
	})
}

func TestRoundCountsWhatItsOperationJudges(t *testing.T) {
	inScene(t, 3, func(s *scene) {
		var judged []int
		r := s.Start(s.Context(), &act{judges: func(i int, v claim.Vote) claim.Vote {
			judged = append(judged, i)
			if i == 1 {
				return claim.Failure(errBroken)
			}
			return v
		}}, false)
		s.plays("0+ 1+ 2+ 2+") // the last is judged although it comes after the decision
		res, _ := s.within(r)
		assert.Equal(s, claim.Count{Granted: 0b101, Failed: 0b010}, res.Count)
		assert.Equal(s, []int{0, 1, 2, 2}, judged)
	})
}

func TestRoundWaitsForAVoteThatIsStillToCome(t *testing.T) {
	inScene(t, 3, func(s *scene) {
		r := s.start(&act{})
		r.WaitFor(0, errBroken)
		require.ErrorIs(s, r.WaitsFor(0), errBroken)
		require.NoError(s, r.WaitsFor(1))
		res := r.SoFar(ErrNoAnswer)
		assert.Equal(s, claim.Failure(errBroken), res.Votes[0], "if it does not come")
		assert.Equal(s, claim.Failure(ErrNoAnswer), res.Votes[1])
		assert.Equal(s, claim.Count{Failed: 0b111}, res.Count)
		s.plays("0+")
		r.WaitFor(0, errBroken) // it has come
		s.plays("1+")
		res, _ = s.within(r)
		assert.True(s, res.Won)
		require.NoError(s, r.WaitsFor(0))
	})
}

// A winner acts once, before anybody is told of the decision.
func TestRoundLetsAWinnerActBeforeAnybodyIsTold(t *testing.T) {
	for votes, want := range map[string][]string{"0+ 1+ 2+": {"won", "decided"}, "0o 1o 2o": {"decided"}} {
		inScene(t, 3, func(s *scene) {
			a := &act{}
			s.sent(a)
			a.told = nil
			s.plays(votes)
			assert.Equal(s, want, a.told)
		})
	}
}

func TestRoundObeysTheTallyOfItsClaim(t *testing.T) {
	inScene(t, 3, func(s *scene) {
		tally := &tallyOf{wins: 2}
		r := s.start(&act{tally: tally})
		s.plays("0+ 1+")
		assert.False(s, r.IsFinal(), "a quorum is not what counts")
		s.plays("2+")
		res, _ := s.within(r)
		assert.True(s, res.Won)
		assert.Same(s, tally, res.Tally)
		assert.Equal(s, []int{0, 1, 2}, tally.added)

		tally = &tallyOf{wins: 2}
		r = s.start(&act{tally: tally})
		s.plays("2o")
		res, _ = s.within(r)
		assert.Equal(s, claim.Standing{Blocked: true}, res.Standing)
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
	inScene(t, 3, func(s *scene) {
		server := run("a")
		a := &tallied{act: act{tally: &tallyOf{}}}
		r := s.Start(s.Context(), a, true)
		for i, value := range []any{other, mine} {
			s.by(server, i, value)
		}
		last := a.made[len(a.made)-1]
		assert.Equal(s, []int{0, 1}, last.added)
		assert.Equal(s, []claim.Choice{claim.Failed, claim.Granted}, last.choices)
		assert.Equal(s, claim.Count{Failed: nodes(0), Granted: nodes(1)}, r.SoFar(nil).Count)
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
		inScene(t, n, func(s *scene) {
			r := s.Start(s.Context(), &act{}, true)
			for i := n - 1; i >= 0; i-- {
				assert.Equal(s, n-1-i > n/2, r.IsFinal(), "node %d of %d", i, n)
				s.answer(i, mine)
			}
			res, took := s.within(r)
			assert.Equal(s, claim.Count{Granted: claim.FirstNodes(n)}, res.Count)
			assert.Zero(s, took)
		})
	}
}

// A part is a pool of a node that serves only some of the names.
type part struct{ wire.Pool }

func (part) Partial() error { return errBroken }

func TestPingFailsAtANodeOfOnlySomeNames(t *testing.T) {
	whole, granted := Ping{Whole: []*Node{{Pool: part{}}}}, claim.Vote{Choice: claim.Granted}
	assert.Equal(t, claim.Failure(errBroken), whole.Judge(0, wire.Reply{}, granted))
	assert.Equal(t, granted, Ping{}.Judge(0, wire.Reply{}, granted))
}
