package lease

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/clocktest"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

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
func storesToken(req wire.Request) *wire.Reply {
	if _, args := split(req); len(args) == 7 { // an acquire with a token
		return answered([]any{script.Granted, args[5], int64(1)})
	}
	return answered(script.Mine)
}

// answersFenced returns a node that grants everything, but answers acquires with a token by what reply says.
func answersFenced(reply func() []any) *scripted.Node {
	return on(func(req wire.Request) (*wire.Reply, error) {
		r := storesToken(req)
		if _, args := split(req); len(args) == 7 {
			r.Value = reply()
		}
		return r, nil
	})
}

// tries makes an attempt with a token, and takes it back.
func tries(t *testing.T, start clock.Instant, nodes ...wire.Pool) Outcome {
	t.Helper()
	terms := newTerms(t, nodes...)
	terms.Fencing = true
	l, o := Acquire(t.Context(), terms, start, 1, script.Place{}, nil)
	l.End(errCause)
	l.Release(Releasing{})
	return o
}

// A reachable node is a fake node with a restart guard that tells whether its connection is open.
type reachable struct {
	*scripted.Node
	open bool
}

func (reachable) RestartGuard() time.Duration { return time.Minute }
func (r reachable) Link() wire.Link           { return wire.Link{Open: r.open} }

// Under a restart guard an acquire with a token first opens connections, with a ping to each node. A dead node has no connection, but
// only the first acquire sends pings because of it.
func TestFencedAcquiresUnderAGuardPingForADeadNodeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pools := []wire.Pool{reachable{on(broken), false}}
		for range 4 {
			pools = append(pools, reachable{on(func(req wire.Request) (*wire.Reply, error) {
				reply := answered("PONG")
				if req.Args[0] != "ping" {
					reply = storesToken(req)
				}
				reply.Server = &wire.Server{RunID: fmt.Sprint(req.Tag), At: time.Now(), New: true}
				return reply, nil
			}), true})
		}
		terms := newTerms(t, pools...)
		terms.Fencing = true
		for range 3 {
			l := begun(t, terms)
			unlock(l)
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
		var late atomic.Pointer[wire.Request]
		answers := func(req wire.Request) (*wire.Reply, error) { return storesToken(req), nil }
		terms := newTerms(t, on(answers), on(answers), on(func(req wire.Request) (*wire.Reply, error) {
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
		unlock(first)

		var goroutines sync.WaitGroup
		goroutines.Go(func() { late.Load().To.Receive(2, *storesToken(*late.Load())) })
		goroutines.Go(func() { assert.Equal(t, before, early[1].Vote.Answer.Details()) })
		second := begun(t, terms)
		goroutines.Wait()
		synctest.Wait()

		assert.Equal(t, before, *detail)
		of := map[bool]int{} // whether a vote is for the first lease
		for _, vote := range told.locks() {
			of[vote.Vote.Answer.Detail == detail]++
		}
		assert.Equal(t, map[bool]int{true: 3, false: 3}, of)
		assert.Equal(t, token, first.Token())
		require.ErrorIs(t, first.NotHeld(clock.Now()), errNotHeld)
		assert.Greater(t, second.Token(), token)
		unlock(second)
		synctest.Wait()
		assert.Zero(t, terms.Keeper.unsettled.count())
	})
}

// A clock that was never set stands before 1970. The tokens go up all the same, from 1.
func TestFirstTokensOfAClockThatWasNeverSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clocktest.StepWall(t).Step(time.Until(time.Unix(-1, 0)))
		terms := newTerms(t, on(func(req wire.Request) (*wire.Reply, error) {
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
			acquires := 0
			node := answersFenced(func() []any {
				acquires++
				return []any{script.Granted, strconv.FormatUint(micros(start)-below, 10), int64(0)}
			})
			assert.Equal(t, NotWon, tries(t, start, node).Kind)
			assert.Equal(t, 1, acquires)
		})
	}
}

// A node grants, but its register does not let the grant count. Two others refuse. The attempt has been granted something
// all the same, so its votes were split.
func TestGrantThatDoesNotCountSplitsTheVotes(t *testing.T) {
	for touched, first := range map[bool]int64{true: script.Granted, false: -1} {
		synctest.Test(t, func(t *testing.T) {
			answers := func(wait int64, register string) *scripted.Node {
				return answersFenced(func() []any { return []any{wait, register, int64(0)} })
			}
			o := tries(t, clock.Now(), answers(first, strconv.FormatUint(endOfTokens, 10)), answers(-1, "0"), answers(-1, "0"))
			assert.Zero(t, o.Result.Count.Granted)
			assert.Equal(t, touched, o.Touched)
			assert.Equal(t, touched, o.IsSplit())
		})
	}
}
