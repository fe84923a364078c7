package lease

import (
	"math/big"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/nonsense"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// FuzzVotes shows how any answer of a node counts. It is a grant or a refusal only if the command answers a
// grant or a refusal with exactly that. Any other answer is an error of the node. Each command has a reader of
// its own: the answer with which a plain SET grants says nothing to the reader of a script. FuzzVotes of the
// root shows how an answer counts by itself, and the errors of votes.
func FuzzVotes(f *testing.F) {
	for _, v := range nonsense.Values() {
		f.Add(v.Shape, v.N, v.Done, v.Text, v.How)
	}
	register := regexp.MustCompile(`^[0-9]+$`)
	f.Fuzz(func(t *testing.T, shape uint8, n, done int64, text string, how uint8) {
		drawn := nonsense.Value{Shape: shape, N: n, Done: done, Text: text}
		value := drawn.Reply()
		reply := pool.Reply{Value: value, Fate: pool.Answered, Conn: 1}
		fences, queues, sentBefore := how&1 != 0, how&2 != 0, how&4 != 0

		terms := newTerms(timingOf(8*time.Second), nil)
		terms.Fencing = fences
		l := New(terms, "v", at(0, 0))
		read := func(call claim.Call) claim.Vote { return terms.Keeper.Set.Read(call.Read, reply.Value, reply.Err) }

		// A script that looks for a value: what it found, and flags.
		want := claim.Failed
		if found, ok := value.(int64); ok && found >= 0 && found < 32 {
			want = []claim.Choice{claim.Refused, claim.Granted, claim.Refused, claim.Refused}[found%4]
		}
		c := check{l, l.Claim()}
		v := c.Judge(0, reply, read(c.Brief().Call))
		require.Equal(t, want, v.Choice, "%v", value)
		checkVote(t, v)

		// An acquire.
		a := &acquire{lease: l, special: &special{}}
		if fences {
			a.fence = fence(7)
		}
		if queues {
			a.place.Ticket = script.TicketOf("ticket")
		}
		a.Sending(0)
		if sentBefore {
			a.Sending(0)
		}
		want = claim.Failed
		parts, _ := value.([]any)
		switch {
		case !fences && !queues && value == nil:
			want = claim.Refused
		case !fences && !queues && value == any("OK"):
			want = claim.Granted
		case !fences && !queues: // odd for a SET
		case drawn.IsNumber() && n == 0 && !fences:
			want = claim.Granted
		case drawn.IsNumber(): // it refuses, or says nothing of the token
			want = claim.Refused
		case drawn.IsTriple() && register.MatchString(text):
			if token, _ := new(big.Int).SetString(text, 10); token.IsUint64() {
				want = claim.Refused
				if parts[0] == int64(0) && (done&2 == 0 || sentBefore) && (done&1 != 0 || !fences) {
					want = claim.Granted
				}
			}
		}
		v = a.Judge(0, reply, read(a.Brief().Call))
		require.Equal(t, want, v.Choice, "%v", value)
		checkVote(t, v)
	})
}

// checkVote checks that a vote that is no grant says why, unless its answer does.
func checkVote(t *testing.T, v claim.Vote) {
	t.Helper()
	switch v.Choice {
	case claim.Granted:
		require.NoError(t, v.Err)
		require.Equal(t, claim.Mine, v.Answer.Found)
	case claim.Failed:
		require.Error(t, v.Err)
		require.False(t, v.Taken())
	case claim.Refused:
		require.True(t, v.Err != nil || v.Answer.Found != claim.Mine)
	case claim.Pending:
		require.Fail(t, "no vote")
	}
}
