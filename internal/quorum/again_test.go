package quorum

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file shows a round whose command is sent again.

// sentTo returns how many requests each node was sent.
func (s *scene) sentTo() (n []int) {
	for _, p := range s.fakes {
		n = append(n, len(p.Sent()))
	}
	return n
}

// broken is the reply of a node whose connection broke.
var broken = wire.Reply{Err: errBroken, Fate: wire.Unknown, Conn: 1}

func TestRoundIsSentAgainToNodesThatAreSilentOrHaveFailed(t *testing.T) {
	inScene(t, 5, func(s *scene) {
		r := s.sent(&act{})
		s.plays("0+ 1- 2x")
		r.Again()
		assert.Equal(s, []int{1, 1, 2, 2, 2}, s.sentTo(), "not to those that have answered")
		assert.Equal(s, claim.Count{Granted: 0b1, Refused: 0b10}, r.count, "the failure is open again")
		s.plays("2+")
		assert.False(s, r.IsFinal())
		s.plays("3+")
		assert.True(s, r.IsFinal())
		res := r.Result(ErrNoAnswer)
		assert.True(s, res.Won)
		r.Again()
		assert.Equal(s, []int{1, 1, 2, 2, 2}, s.sentTo(), "it is decided")
	})
}

func TestFailureOfOneSendingIsNoVoteWhileAnotherIsUnderWay(t *testing.T) {
	for _, last := range []string{"0+", "0-", "0x"} {
		inScene(t, 1, func(s *scene) {
			s.Log(last)
			r := s.sent(&act{})
			r.Again()
			r.Again()
			assert.Equal(s, []int{3}, s.sentTo())
			s.plays("0x 0x")
			assert.False(s, r.IsFinal(), "one is under way")
			s.plays(last)
			assert.True(s, r.IsFinal())
			res := r.Result(ErrNoAnswer)
			assert.Equal(s, last == "0+", res.Won)
			assert.Equal(s, last == "0-", res.Rejected)
			s.plays("0+")
			assert.Equal(s, res, r.Result(ErrNoAnswer), "what comes later does not count")
		})
	}
}

func TestFirstAnswerCountsHoweverOftenItWasSent(t *testing.T) {
	inScene(t, 3, func(s *scene) {
		r := s.sent(&act{})
		r.Again()
		for range 2 { // one answer for each sending
			s.plays("0+")
		}
		assert.False(s, r.IsFinal(), "one node is one vote")
		s.plays("1- 1+")
		assert.False(s, r.IsFinal(), "it has refused")
		s.plays("2+")
		assert.True(s, r.Result(ErrNoAnswer).Won)
	})
}

func TestRoundIsNotSentAgainOnceItIsClosedOrItsGateIs(t *testing.T) {
	for name, end := range map[string]func(r *Round, a *act){
		"closed":          func(r *Round, _ *act) { r.Close() },
		"its gate closed": func(_ *Round, a *act) { a.over = true },
	} {
		inScene(t, 3, func(s *scene) {
			s.Log(name)
			a := &act{}
			r := s.sent(a)
			end(r, a)
			r.Again()
			assert.Equal(s, []int{1, 1, 1}, s.sentTo())
		})
	}
}

func TestPoolThatRefusesToSendAgain(t *testing.T) {
	inScene(t, 3, func(s *scene) {
		a := &act{}
		r := s.sent(a)
		s.plays("0x")
		s.refuse[0], s.refuse[1] = errBroken, errBroken
		r.Again()
		assert.Equal(s, claim.Count{Failed: 0b1}, r.count, "only node 0 has nothing under way")
		s.plays("1+ 2+")
		assert.True(s, r.Result(ErrNoAnswer).Won)
		assert.Equal(s, []string{"sending", "sending", "sending", "sending", "unsent", "sending", "unsent", "sending", "won", "decided"}, a.told)
	})
}

// A node that lacked the script is sent it in full again.
func TestRoundIsSentAgainInFull(t *testing.T) {
	inScene(t, 1, func(s *scene) {
		r := s.sent(&act{})
		s.reply(0, wire.Reply{Err: lacksScript{}, Fate: wire.Answered, Conn: 1})
		r.Again()
		var commands []any
		for _, req := range s.fakes[0].Sent() {
			commands = append(commands, req.Args[0])
		}
		assert.Equal(s, []any{"evalsha", "eval", "eval"}, commands)
	})
}

// A twofold is an act that repeats another command.
type twofold struct {
	*act
	again claim.Call
}

func (t twofold) Repeat() (claim.Call, bool) { return t.again, true }

// A repetition is a script in full if the node does not have EVALSHA, whether that is known before or is the answer.
func TestRepetitionIsSentInFull(t *testing.T) {
	lacksSHA := refusal("ERR unknown command 'EVALSHA'")
	script := (&act{}).Brief().Call
	for want, known := range map[string]bool{"[ping eval]": true, "[ping evalsha eval]": false, "[evalsha eval]": true, "[evalsha evalsha eval]": false} {
		s, first, r := newScene(1), claim.Ping(), &Round{}
		if strings.HasPrefix(want, "[evalsha") {
			first = script
		}
		r.Prepare(t.Context(), s.Set, twofold{&act{brief: Brief{Call: first}}, script}, false, false)
		r.Send()
		if known {
			_ = s.Nodes[0].NoteScript(lacksSHA)
		}
		s.plays("0x")
		if !known {
			s.reply(0, wire.Reply{Err: lacksSHA, Fate: wire.Answered, Conn: 1})
		}
		var commands []any
		for _, req := range s.fakes[0].Sent() {
			commands = append(commands, req.Args[0])
		}
		assert.Equal(t, want, fmt.Sprint(commands))
		s.plays("0+")
		assert.True(t, r.Result(nil).Won, want)
	}
}

// A repeating is an act whose command may be sent twice. Each time that it is asked, it makes another command, as an acquire does
// whose token has changed meanwhile. It knows the answer only to a command that one of the nodes was sent.
type repeating struct {
	*act
	nodes []*scripted.Node
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

// Each play is what becomes of a round: see plays. In addition, ! is that a pool refuses, and l that a node was late before.
// "closed" and "gate" are about the round.
func TestRoundThatWouldFailAsksOnceMoreWhereAConnectionWasLost(t *testing.T) {
	for play, want := range map[string]string{
		"0x 1+ 2+":       "[1 1 1] true", // the others are enough
		"0x 1x 0+ 1+":    "[2 2 1] true",
		"0x 1x 0x 1x":    "[2 2 1] false", // only once
		"2l 0x 0+ 1+":    "[2 1 1] true",
		"2- 0x 0+ 1+":    "[2 1 1] true",
		"1- 0x 2-":       "[2 1 1] false",
		"0x 1- 0+ 2+":    "[2 1 1] true",
		"1- 2- 0x":       "[1 1 1] false",
		"0~ 1~":          "[1 1 1] false",
		"closed 0x 1x":   "[1 1 1] false",
		"gate 0x 1x":     "[1 1 1] false",
		"0x 0! 1x 1+ 2+": "[2 2 1] true",
	} {
		to := &tracer{traces: true}
		s, a, r := newScene(3), &act{brief: Brief{Tracer: to}}, &Round{}
		r.Prepare(t.Context(), s.Set, repeating{a, s.fakes, new(int)}, false, false)
		r.Send()
		for step := range strings.FieldsSeq(play) {
			i := int(step[0] - '0')
			switch step[1:] {
			case "!":
				s.refuse[i] = errBroken
			case "l":
				s.known.late.add(nodes(i))
			case "losed":
				r.Close()
			case "ate":
				a.over = true
			default:
				s.plays(step)
			}
		}
		assert.Equal(t, want, fmt.Sprint(s.sentTo(), r.Result(nil).Won), play)
		var told claim.Nodes
		for _, v := range to.votes {
			assert.NotEqual(t, claim.Pending, v.Vote.Choice, "%s: node %d has been asked again", play, v.Node.Index)
			told = told.With(v.Node.Index)
		}
		assert.Zero(t, r.count.Answered()&^told, "%s: a tracer hears of each vote", play)
	}
}
