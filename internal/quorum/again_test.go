package quorum

import (
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/puppet"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows a round whose command is sent again.

// sentTo returns how many requests each node was sent.
func (s *scene) sentTo() (n []int) {
	for _, p := range s.puppets {
		n = append(n, len(p.Sent()))
	}
	return n
}

// broken is the reply of a node whose connection broke.
var broken = pool.Reply{Err: errBroken, Fate: pool.Unknown, Conn: 1}

func TestRoundIsSentAgainToNodesThatAreSilentOrHaveFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(5)
		r := &Round{}
		r.Prepare(t.Context(), s.Set, &act{}, false, false)
		r.Send()
		s.answer(0, mine)
		s.answer(1, missing)
		s.reply(2, broken)
		r.Again()
		assert.Equal(t, []int{1, 1, 2, 2, 2}, s.sentTo(), "not to those that have answered")
		assert.Equal(t, claim.Count{Granted: 0b1, Refused: 0b10}, r.count, "the failure is open again")
		s.answer(2, mine)
		assert.False(t, r.IsFinal())
		s.answer(3, mine)
		assert.True(t, r.IsFinal())
		res := r.Result(ErrNoAnswer)
		assert.True(t, res.Won)
		r.Again()
		assert.Equal(t, []int{1, 1, 2, 2, 2}, s.sentTo(), "it is decided")
	})
}

func TestFailureOfOneSendingIsNoVoteWhileAnotherIsUnderWay(t *testing.T) {
	for name, last := range map[string]any{"it grants": mine, "it refuses": missing, "it fails": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(1)
				r := &Round{}
				r.Prepare(t.Context(), s.Set, &act{}, false, false)
				r.Send()
				r.Again()
				r.Again()
				assert.Equal(t, []int{3}, s.sentTo())
				s.reply(0, broken)
				s.reply(0, broken)
				assert.False(t, r.IsFinal(), "one is under way")
				if last == nil {
					s.reply(0, broken)
				} else {
					s.answer(0, last)
				}
				assert.True(t, r.IsFinal())
				res := r.Result(ErrNoAnswer)
				assert.Equal(t, last == mine, res.Won)
				assert.Equal(t, last == missing, res.Rejected)
				s.answer(0, mine)
				assert.Equal(t, res, r.Result(ErrNoAnswer), "what comes later does not count")
			})
		})
	}
}

func TestFirstAnswerCountsHoweverOftenItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(3)
		r := &Round{}
		r.Prepare(t.Context(), s.Set, &act{}, false, false)
		r.Send()
		r.Again()
		for range 2 { // one answer for each sending
			s.answer(0, mine)
		}
		assert.False(t, r.IsFinal(), "one node is one vote")
		s.answer(1, missing)
		s.answer(1, mine)
		assert.False(t, r.IsFinal(), "it has refused")
		s.answer(2, mine)
		assert.True(t, r.Result(ErrNoAnswer).Won)
	})
}

func TestRoundIsNotSentAgainOnceItIsClosedOrItsGateIs(t *testing.T) {
	for name, end := range map[string]func(r *Round, a *act){
		"closed":          func(r *Round, _ *act) { r.Close() },
		"its gate closed": func(_ *Round, a *act) { a.over = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, a := newScene(3), &act{}
				r := &Round{}
				r.Prepare(t.Context(), s.Set, a, false, false)
				r.Send()
				end(r, a)
				r.Again()
				assert.Equal(t, []int{1, 1, 1}, s.sentTo())
			})
		})
	}
}

func TestPoolThatRefusesToSendAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := newScene(3), &act{}
		r := &Round{}
		r.Prepare(t.Context(), s.Set, a, false, false)
		r.Send()
		s.reply(0, broken)
		s.refuse[0], s.refuse[1] = errBroken, errBroken
		r.Again()
		assert.Equal(t, claim.Count{Failed: 0b1}, r.count, "only node 0 has nothing under way")
		s.answer(1, mine)
		s.answer(2, mine)
		assert.True(t, r.Result(ErrNoAnswer).Won)
		assert.Equal(t, []string{"sending", "sending", "sending", "sending", "unsent", "sending", "unsent", "sending", "won", "decided"}, a.told)
	})
}

// A server that is a node of both joint sets is asked at one of them, also when the round is sent again.
func TestJointRoundIsSentAgainOnceToEachServer(t *testing.T) {
	s, server := newJointScene(), &pool.Server{RunID: "a"}
	s.NoteServer(0, server)
	s.NoteServer(3, server)
	r := &Round{}
	r.Prepare(t.Context(), s.Set, &act{}, false, false)
	r.Send()
	assert.Equal(t, []int{1, 1, 1, 0, 1}, s.sentTo())
	r.Again()
	assert.Equal(t, []int{2, 2, 2, 0, 2}, s.sentTo())
}

// A node that lacked the script is sent it in full again.
func TestRoundIsSentAgainInFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(1)
		r := &Round{}
		r.Prepare(t.Context(), s.Set, &act{}, false, false)
		r.Send()
		s.reply(0, pool.Reply{Err: lacksScript{}, Fate: pool.Answered, Conn: 1})
		r.Again()
		var commands []any
		for _, req := range s.puppets[0].Sent() {
			commands = append(commands, req.Args[0])
		}
		assert.Equal(t, []any{"evalsha", "eval", "eval"}, commands)
	})
}

// A repeating is an act whose command may be sent twice. Each time that it is asked, it makes another command, as an acquire does
// whose token has changed meanwhile. It knows the answer only to a command that one of the nodes was sent.
type repeating struct {
	*act
	nodes []*puppet.Puppet
	made  *int
}

func (p repeating) Repeat() (claim.Call, bool) {
	*p.made++
	c, number := p.Brief().Call, *p.made
	read := c.Read
	c.Command.Args = append(slices.Clip(c.Command.Args), number)
	c.Read = func(reply any) (claim.Answer, error) {
		for _, n := range p.nodes {
			sent := n.Sent()
			if args := sent[len(sent)-1].Args; args[len(args)-1] == number {
				return read(reply)
			}
		}
		return claim.Answer{}, errors.New("it was not sent")
	}
	return c, true
}

func TestRoundThatWouldFailAsksOnceMoreWhereAConnectionWasLost(t *testing.T) {
	silence := pool.Reply{Err: os.ErrDeadlineExceeded, Fate: pool.Unknown, Conn: 1}
	for name, c := range map[string]struct {
		play func(s *scene, r *Round, a *act)
		sent []int
		won  bool
	}{
		"others are enough": {func(s *scene, _ *Round, _ *act) { s.reply(0, broken); s.answer(1, mine); s.answer(2, mine) }, []int{1, 1, 1}, true},
		"two of three": {func(s *scene, _ *Round, _ *act) {
			s.reply(0, broken)
			s.reply(1, broken)
			s.answer(0, mine)
			s.answer(1, mine)
		}, []int{2, 2, 1}, true},
		"only once": {func(s *scene, _ *Round, _ *act) {
			s.reply(0, broken)
			s.reply(1, broken)
			s.reply(0, broken)
			s.reply(1, broken)
		}, []int{2, 2, 1}, false},
		"one is late": {func(s *scene, _ *Round, _ *act) {
			s.known.late.add(0b100)
			s.reply(0, broken)
			s.answer(0, mine)
			s.answer(1, mine)
		}, []int{2, 1, 1}, true},
		"one has refused": {func(s *scene, _ *Round, _ *act) {
			s.answer(2, missing)
			s.reply(0, broken)
			s.answer(0, mine)
			s.answer(1, mine)
		}, []int{2, 1, 1}, true},
		"two have refused": {func(s *scene, _ *Round, _ *act) { s.answer(1, missing); s.reply(0, broken); s.answer(2, missing) }, []int{2, 1, 1}, false},
		"refused before":   {func(s *scene, _ *Round, _ *act) { s.answer(1, missing); s.answer(2, missing); s.reply(0, broken) }, []int{1, 1, 1}, false},
		"silent nodes":     {func(s *scene, _ *Round, _ *act) { s.reply(0, silence); s.reply(1, silence) }, []int{1, 1, 1}, false},
		"closed":           {func(s *scene, r *Round, _ *act) { r.Close(); s.reply(0, broken); s.reply(1, broken) }, []int{1, 1, 1}, false},
		"its gate closed":  {func(s *scene, _ *Round, a *act) { a.over = true; s.reply(0, broken); s.reply(1, broken) }, []int{1, 1, 1}, false},
		"a pool refuses": {func(s *scene, _ *Round, _ *act) {
			s.reply(0, broken)
			s.refuse[0] = errBroken
			s.reply(1, broken)
			s.answer(1, mine)
			s.answer(2, mine)
		}, []int{2, 2, 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			to := &tracer{traces: true}
			s, a, r := newScene(3), &act{brief: Brief{Tracer: to}}, &Round{}
			r.Prepare(t.Context(), s.Set, repeating{a, s.puppets, new(int)}, false, false)
			r.Send()
			c.play(s, r, a)
			assert.Equal(t, c.sent, s.sentTo())
			assert.Equal(t, c.won, r.Result(nil).Won)
			var told claim.Nodes
			for _, v := range to.votes {
				assert.NotEqual(t, claim.Pending, v.Vote.Choice, "node %d has been asked again", v.Node.Index)
				told = told.With(v.Node.Index)
			}
			assert.Zero(t, r.count.Answered()&^told, "a tracer hears of each vote")
		})
	}
}
