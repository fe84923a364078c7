package lease

import (
	"context"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/clock/clocktest"
	"github.com/seed14bd9ef4/redsync/internal/nonsense"
	"github.com/seed14bd9ef4/redsync/internal/puppet"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
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
		c := check{l, l.Claim(), false}
		v := c.Judge(0, reply, read(c.Brief().Call))
		require.Equal(t, want, v.Choice, "%v", value)
		checkVote(t, v)

		// An acquire.
		l.special = &special{}
		a := (*acquire)(l)
		if fences {
			a.special.fence = fence(7)
		}
		if queues {
			a.special.place.Ticket = script.TicketOf("ticket")
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
		case drawn.IsNumber() && n == 0: // it says nothing of the token
		case drawn.IsNumber():
			want = claim.Refused
		case drawn.IsTriple() && register.MatchString(text):
			token, _ := new(big.Int).SetString(text, 10)
			stored := done&1 != 0
			switch {
			case !token.IsUint64():
			case parts[0] == int64(0) && fences && (stored && token.Uint64() != 7 || !stored && token.Uint64() < 7): // a lie
			case parts[0] == int64(0) && (done&2 == 0 || sentBefore) && (stored || !fences):
				want = claim.Granted
			default:
				want = claim.Refused
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

// voters is a diary that keeps the votes, too.
type voters struct {
	diary
	counting sync.Mutex // guards votes
	votes    []quorum.Voted
}

func (*voters) TracesVotes() bool { return true }

func (v *voters) Voted(_ context.Context, vote quorum.Voted, _ bool) {
	v.counting.Lock()
	defer v.counting.Unlock()
	v.votes = append(v.votes, vote)
}

// locks returns the votes for acquires, in the order in which they came.
func (v *voters) locks() (votes []quorum.Voted) {
	v.counting.Lock()
	defer v.counting.Unlock()
	for _, vote := range v.votes {
		if vote.Op == quorum.Lock {
			votes = append(votes, vote)
		}
	}
	return votes
}

// storesToken is the answer of a node that grants everything, and whose register is below each token.
func storesToken(req pool.Request) *pool.Reply {
	if _, args := split(req); len(args) == 7 { // an acquire with a token
		return &pool.Reply{Value: []any{script.Granted, args[5], int64(1)}, Fate: pool.Answered, Conn: 1}
	}
	return &pool.Reply{Value: script.Mine, Fate: pool.Answered, Conn: 1}
}

// A reachable node is a puppet with a restart guard that tells whether its connection is open.
type reachable struct {
	*puppet.Puppet
	open bool
}

func (reachable) RestartGuard() time.Duration { return time.Minute }
func (r reachable) Link() pool.Link           { return pool.Link{Open: r.open} }

// Under a restart guard an acquire with a token first opens connections, with a ping to each node. A dead node has no connection, but
// only the first acquire sends pings because of it.
func TestFencedAcquiresUnderAGuardPingForADeadNodeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pools := []pool.Pool{reachable{on(broken), false}}
		for range 4 {
			pools = append(pools, reachable{on(func(req pool.Request) (*pool.Reply, error) {
				reply := &pool.Reply{Value: "PONG", Fate: pool.Answered, Conn: 1}
				if req.Args[0] != "ping" {
					reply = storesToken(req)
				}
				reply.Server = &pool.Server{RunID: fmt.Sprint(req.Tag), At: time.Now(), New: true}
				return reply, nil
			}), true})
		}
		terms := newTerms(timingOf(8*time.Second), pools...)
		terms.Fencing = true
		for range 3 {
			l := begun(t, terms)
			l.End(nil)
			l.Release(Releasing{})
			synctest.Wait()
			for i, p := range pools {
				assert.Equal(t, 1, p.(reachable).Count("ping"), "node %d", i)
			}
		}
	})
}

// A node answers an acquire late: after the lease was won and released, and while its successor is acquired. Its answer
// has the Detail of the other answers to that acquire, which observers may still read.
func TestLateFencedGrantOfALeaseThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late atomic.Pointer[pool.Request]
		answers := func(req pool.Request) (*pool.Reply, error) { return storesToken(req), nil }
		terms := newTerms(timingOf(8*time.Second), on(answers), on(answers), on(func(req pool.Request) (*pool.Reply, error) {
			if late.CompareAndSwap(nil, &req) {
				return nil, nil
			}
			return answers(req)
		}))
		told := &voters{}
		terms.Fencing, terms.Events = true, told

		first := begun(t, terms)
		token, early := first.Token(), told.locks()
		require.Len(t, early, 2)
		detail := early[0].Vote.Answer.Detail
		require.Same(t, detail, early[1].Vote.Answer.Detail)
		before := *detail
		first.End(nil)
		first.Release(Releasing{})

		var goroutines sync.WaitGroup
		goroutines.Go(func() { late.Load().To.Receive(2, *storesToken(*late.Load())) })
		goroutines.Go(func() { assert.Equal(t, before, early[1].Vote.Answer.Details()) })
		second := begun(t, terms)
		goroutines.Wait()
		synctest.Wait()

		assert.Equal(t, before, *detail)
		var ofFirst, ofSecond []quorum.Voted
		for _, vote := range told.locks() {
			if vote.Vote.Answer.Detail == detail {
				ofFirst = append(ofFirst, vote)
			} else {
				ofSecond = append(ofSecond, vote)
			}
		}
		require.Len(t, ofFirst, 3)
		assert.True(t, ofFirst[2].Late)
		assert.Equal(t, 2, ofFirst[2].Node.Index)
		assert.Len(t, ofSecond, 3)
		assert.Equal(t, token, first.Token())
		require.ErrorIs(t, first.NotHeld(clock.Now()), errNotHeld)
		assert.Greater(t, second.Token(), token)
		require.NoError(t, second.NotHeld(clock.Now()))
		second.End(nil)
		second.Release(Releasing{})
		synctest.Wait()
		assert.Zero(t, terms.Keeper.unsettled.count())
	})
}

// A clock that was never set stands before 1970. The tokens go up all the same, from 1.
func TestFirstTokensOfAClockThatWasNeverSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clocktest.StepWall(t).Step(time.Until(time.Unix(-1, 0)))
		terms := newTerms(timingOf(8*time.Second), on(func(req pool.Request) (*pool.Reply, error) {
			return storesToken(req), nil
		}))
		terms.Fencing = true
		for token := range uint64(3) {
			l := begun(t, terms)
			assert.Equal(t, 1+token, l.Token())
			l.End(nil)
		}
	})
}

// A node answers that it has not stored the token, although its register is lower. The attempt does not propose a lower
// token then, nor the same one again.
func TestNoAnswerLowersTheProposal(t *testing.T) {
	for _, below := range []uint64{1, 1000} {
		synctest.Test(t, func(t *testing.T) {
			start := clock.Now()
			node := on(func(req pool.Request) (*pool.Reply, error) {
				reply := storesToken(req)
				if _, args := split(req); len(args) == 7 {
					reply.Value = []any{script.Granted, strconv.FormatUint(micros(start)-below, 10), int64(0)}
				}
				return reply, nil
			})
			terms := newTerms(timingOf(8*time.Second), node)
			terms.Fencing = true
			l, o := Acquire(t.Context(), terms, start, 1, script.Place{}, nil)
			assert.Equal(t, NotWon, o.Kind)
			assert.Equal(t, 1, node.Count("evalsha"))
			l.End(errCause)
			l.Release(Releasing{})
			require.NoError(t, closes(t.Context(), terms.Keeper))
		})
	}
}

// A node grants, but its register does not let the grant count. Two others refuse. The attempt has been granted something
// all the same, so its votes were split.
func TestGrantThatDoesNotCountSplitsTheVotes(t *testing.T) {
	for touched, first := range map[bool]int64{true: script.Granted, false: -1} {
		synctest.Test(t, func(t *testing.T) {
			answers := func(wait int64, register string) *puppet.Puppet {
				return on(func(req pool.Request) (*pool.Reply, error) {
					reply := storesToken(req)
					if _, args := split(req); len(args) == 7 {
						reply.Value = []any{wait, register, int64(0)}
					}
					return reply, nil
				})
			}
			terms := newTerms(timingOf(8*time.Second), answers(first, strconv.FormatUint(endOfTokens, 10)), answers(-1, "0"), answers(-1, "0"))
			terms.Fencing = true
			l, o := Acquire(t.Context(), terms, clock.Now(), 1, script.Place{}, nil)
			assert.Zero(t, o.Result.Count.Granted)
			assert.Equal(t, touched, o.Touched)
			assert.Equal(t, touched, o.IsSplit())
			l.End(errCause)
			l.Release(Releasing{})
			require.NoError(t, closes(t.Context(), terms.Keeper))
		})
	}
}
