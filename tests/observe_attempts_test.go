package redsync_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file shows the events of attempts and of votes.

func TestObserveAttempt(t *testing.T) {
	taken := func(err error) bool { return errors.As(err, new(*redsync.ErrTaken)) }
	failed := func(err error) bool { return !taken(err) && errors.As(err, new(*redsync.RedisError)) }
	late := func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }
	acquired := func(err error) bool { return err == nil }
	for name, c := range map[string]struct {
		taken, down, frozen []int // nodes; the others take longer by their number
		want                observe.Attempt
		err                 func(error) bool
	}{
		"the third grant decides":    {want: observe.Attempt{Took: 20 * ms, Granted: 3}, err: acquired},
		"the third refusal decides":  {taken: allNodes, want: observe.Attempt{Took: 20 * ms, Refused: 3}, err: taken},
		"two nodes are down":         {down: []int{0, 1}, want: observe.Attempt{Took: 40 * ms, Granted: 3, Failed: 2}, err: acquired},
		"three nodes are down":       {down: []int{0, 1, 2}, want: observe.Attempt{Failed: 3}, err: failed},
		"taken where a node is down": {down: []int{0}, taken: []int{1, 2, 3}, want: observe.Attempt{Took: 30 * ms, Refused: 3, Failed: 1}, err: taken},
		"given up undecided":         {frozen: []int{0, 2, 4}, want: observe.Attempt{Took: patience, Granted: 2, Failed: 3}, err: failed},
		"ended by the context":       {frozen: []int{0, 1, 2, 4}, want: observe.Attempt{Took: 300 * ms, Granted: 1}, err: late}, // the others have not failed
	} {
		observingAs(t, name, func(f field, r *redsynctest.Recorder) {
			f.splits(c.taken...)
			f.kill(c.down...)
			f.freeze(c.frozen...)
			f.delays("set")
			ctx := f.Context()
			if c.want.Took == 300*ms {
				ctx = limited(f, c.want.Took)
			}
			locked := f.NewMutex("lock").TryLockContext(ctx)
			got, err := only[observe.Attempt](f, r)
			c.want.Name, c.want.Mode, c.want.Try = "lock", observe.Plain, 1
			assert.Equal(f, c.want, got)
			assert.True(f, c.err(err), "%v", err)
			assert.Equal(f, locked == nil, err == nil)
		})
	}
}

func TestObserveAttemptsAndAcquiredOverSeveralTries(t *testing.T) {
	observing(t, func(f field, r *redsynctest.Recorder) {
		f.anothers()
		time.AfterFunc(2500*ms, func() { f.lose(allNodes...) })
		f.locks(withRetryDelay(400 * ms))
		attempts, errs := of[observe.Attempt](r)
		require.Len(f, attempts, 9)
		for i, a := range attempts {
			assert.Equal(t, max(i, 1), a.Try) // the first try is two attempts: a plain one, and one that queues
			assert.Equal(t, i == 8, errs[i] == nil)
		}
		acquired, _ := only[observe.Acquired](f, r)
		assert.Equal(t, observe.Acquired{
			Name: "lock", Mode: observe.Plain, Took: 2800 * ms, Waited: 2800 * ms, Tries: 8, Left: validity,
			Call: acquired.Call,
		}, acquired)
	})
}

func TestObserveVotesTellsEveryNodeOnceAndWhetherItCounts(t *testing.T) {
	observing(t, func(f field, r *redsynctest.Recorder) {
		m := f.NewMutex("lock")
		for _, op := range []string{"Lock", "Extend", "Valid", "Unlock"} {
			forget(r)
			if op == "Lock" {
				f.delays("set")
				locked(f, m)
			} else {
				f.delays("evalsha")
				f.confirms(operations(m)[op]())
			}
			time.Sleep(sec)
			votes, errs := of[observe.Vote](r)
			require.Len(f, votes, 5, op)
			for i, v := range votes {
				assert.Equal(t, observe.Vote{
					Name: "lock", Mode: observe.Plain, Node: i, Op: strings.ToLower(op), Took: time.Duration(i) * 10 * ms, Late: i > 2,
				}, v)
				assert.NoError(t, errs[i])
			}
		}
	})
}

func TestObserveVotesOfNodesThatDoNotGrant(t *testing.T) {
	observing(t, func(f field, r *redsynctest.Recorder) {
		f.splits(0)
		f.kill(1)
		f.nodes[2].On("set", 1, embedded.Fault{Err: "ERR no"})
		f.freeze(3)
		erred(f, f.tries())
		time.Sleep(20 * sec)
		votes, errs := of[observe.Vote](r)
		got := map[int]error{}
		for i, v := range votes {
			if v.Op == "lock" {
				assert.NotContains(t, got, v.Node)
				got[v.Node] = errs[i]
				assert.Equal(t, v.Node == 3, v.Late)
				assert.Equal(t, v.Node == 3, v.Took == 5*sec) // the longest that a connection is trusted
			}
		}
		require.Len(f, got, 5)
		require.ErrorAs(f, got[0], new(*redsync.ErrNodeTaken))
		for _, i := range []int{1, 2, 3} {
			var failed *redsync.RedisError
			require.ErrorAs(f, got[i], &failed)
			assert.Equal(t, i, failed.Node)
		}
		says(t, got[2], "ERR no")
		assert.NoError(t, got[4])
	})
}
