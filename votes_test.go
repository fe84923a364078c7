package redsync

import (
	"math/big"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/badreply"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// An answer is a grant only if it is exactly the answer that grants, and a refusal only if it is exactly the answer
// that refuses. Any other answer is an error of the node. Each command has a reader of its own: the answer that grants
// a plain SET means nothing for a script.
func FuzzVotes(f *testing.F) {
	for _, v := range badreply.Values() {
		f.Add(v.Shape, v.N, v.Done, v.Text, v.How)
	}
	register := regexp.MustCompile(`^[0-9]+$`)
	var reply wire.Reply
	node := &scripted.Node{Answer: func(wire.Request) (*wire.Reply, error) { return &reply, nil }}
	rs := New(node)
	set := rs.core.keeper.Set
	terms := map[bool]*lease.Terms{
		false: &rs.NewMutex("lock").terms,
		true:  &rs.NewMutex("lock", WithFencing()).terms,
	}
	f.Fuzz(func(t *testing.T, shape uint8, n, done int64, text string, how uint8) {
		drawn := badreply.Value{Shape: shape, N: n, Done: done, Text: text}
		value := drawn.Reply()
		reply = wire.Reply{Value: value, Fate: wire.Answered, Conn: 1}
		fences, queues := how&1 != 0, how&2 != 0
		c := terms[fences].Claim.With("v", &claim.Room{})

		// A script that looks for a value: what it found, and flags.
		want := claim.Failed
		if found, ok := value.(int64); ok && found >= 0 && found < 32 {
			want = []claim.Choice{claim.Refused, claim.Granted, claim.Refused, claim.Refused}[found%4]
		}
		call := c.Check()
		v := set.Read(&call.Command, call.Read, reply.Value, reply.Err)
		require.Equal(t, want, v.Choice, value)
		checkVote(t, set.Nodes[0], v)

		// An acquire, by its answer alone: whether the lock is the caller's.
		var place script.Place
		if queues {
			place.Ticket = script.TicketOf("ticket")
		}
		var fence script.Fence
		if fences {
			fence.Token = 7
		}
		want = claim.Failed
		won := false // whether an attempt wins that gets this answer to every command
		parts, _ := value.([]any)
		switch {
		case !fences && !queues && value == nil:
			want = claim.Refused
		case !fences && !queues && value == any("OK"):
			want, won = claim.Granted, true
		case !fences && !queues: // odd for a SET
		case drawn.IsNumber() && n == 0 && fences: // it says nothing about the token
		case drawn.IsNumber() && n == 0:
			want, won = claim.Granted, true
		case drawn.IsNumber():
			want = claim.Refused
		case drawn.IsTriple() && register.MatchString(text):
			token, _ := new(big.Int).SetString(text, 10)
			switch stored := done&1 != 0; {
			case !token.IsUint64():
			case parts[0] != int64(0):
				want = claim.Refused
			case !fences:
				want, won = claim.Granted, done&2 == 0
			case stored && token.Uint64() == fence.Token, !stored && token.Uint64() >= fence.Token:
				want = claim.Granted // not for the token that the attempt proposes
			}
		}
		call = c.Acquire(terms[fences].Timing.TTL, place, fence)
		v = set.Read(&call.Command, call.Read, reply.Value, reply.Err)
		require.Equal(t, want, v.Choice, value)
		checkVote(t, set.Nodes[0], v)

		// The same as an attempt judges it.
		l, o := lease.Acquire(t.Context(), terms[fences], clock.Now(), 1, place, nil)
		require.NotNil(t, l)
		require.Equal(t, won, o.Kind == lease.Won, value)
		require.Equal(t, !won, o.Kind == lease.NotWon)
		for _, v := range o.Result.Votes {
			require.True(t, (want == claim.Failed) == (v.Choice == claim.Failed) || fences && want == claim.Granted)
			checkVote(t, set.Nodes[0], v)
		}
	})
}

func checkVote(t *testing.T, n *quorum.Node, v claim.Vote) {
	err := explain(n, v)
	require.Equal(t, v.Choice == claim.Granted, err == nil)
	if v.Choice == claim.Failed {
		var node *RedisError
		require.ErrorAs(t, err, &node)
	}
}
