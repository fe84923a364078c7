package redsync_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tests nodes that do not let a candidate's Redis user lock. Lead ends only if the other nodes are not a
// quorum.

// denials are answers of nodes that deny a request for good.
var denials = []string{
	"NOPERM this user has no permissions to run the 'evalsha' command",
	"NOAUTH Authentication required.",
	"WRONGPASS invalid username-password pair or user is disabled.",
	"WRONGTYPE the fencing register {lock}:fence is a list",
}

// denies makes nodes answer scripts with an error, until they heal.
func (f field) denies(answer string, nodes ...int) {
	for _, i := range nodes {
		f.nodes[i].On("evalsha", 1<<20, embedded.Fault{Err: answer})
	}
}

// deniedBy returns the nodes that err names, and checks that each of them denies.
func deniedBy(t *testing.T, err error) (nodes []int) {
	errorIs(t, err, redsync.ErrNoQuorum)
	for _, e := range joinedNodes(err) {
		var node *redsync.RedisError
		require.ErrorAs(t, e, &node)
		assert.True(t, pool.IsPermanent(node.Err), "%v", node.Err)
		nodes = append(nodes, node.Node)
	}
	return nodes
}

func TestLeadEndsIfTheNodesDenyIt(t *testing.T) {
	for i, c := range []struct{ deny, down, frozen []int }{
		{deny: allNodes}, {deny: []int{1, 2, 3}}, {deny: []int{0, 1, 2}, down: []int{3, 4}}, {deny: []int{2, 3, 4}, frozen: []int{0, 1}},
	} {
		inEachMode(t, play, func(f field, mode opts) {
			rs := f.another()
			f.denies(denials[i], c.deny...)
			f.kill(c.down...)
			f.freeze(c.frozen...)
			start := time.Now()
			err := rs.Lead(f.Context(), "lock", nothing, mode...)
			require.ErrorContains(f, err, denials[i])
			named := deniedBy(f.T, err)
			assert.GreaterOrEqual(f, len(named), 3)
			assert.Subset(f, c.deny, named)
			assert.Less(f, time.Since(start), 3*sec)
		})
	}
}

// Candidates go on while a quorum might still grant them the lock.
func TestLeadGoesOnWhileAQuorumMayBePossible(t *testing.T) {
	inEachMode(t, play, func(f field, mode opts) {
		f.denies(denials[0], 0, 1)
		f.kill(2, 3)
		rs := f.process()
		f.closes(rs)
		time.AfterFunc(10*sec, func() { f.restart(2, 3) })
		start := time.Now()
		errorIs(f, rs.Lead(f.Context(), "lock", failing, mode...), errWork)
		assert.InDelta(f, 11.5, time.Since(start).Seconds(), 1.5)
	})
}

// The permissions of the user may change while it campaigns, and while it leads.
func TestLeadEndsWhenItsPermissionsDo(t *testing.T) {
	inEachMode(t, play, func(f field, mode opts) {
		led, campaigned := make(chan error, 1), make(chan error, 1)
		for _, done := range []chan error{led, campaigned} {
			rs := f.another()
			go func() {
				done <- rs.Lead(f.Context(), "lock", func(ctx context.Context) error {
					<-ctx.Done()
					return errWork
				}, mode...)
			}()
			synctest.Wait()
		}
		sleep(10 * sec)
		start := time.Now()
		f.denies(denials[0], 0, 1, 2)
		assert.Equal(f, []int{0, 1, 2}, deniedBy(f.T, <-campaigned))
		assert.Less(f, time.Since(start), sec)
		err := <-led
		assert.Equal(f, []int{0, 1, 2}, deniedBy(f.T, err))
		require.NotErrorIs(f, err, errWork)
		assert.Less(f, time.Since(start), guard+sec)
		for _, n := range f.nodes {
			n.Heal()
		}
		sleep(guard)
	})
}

// A Redis user that may not use the queues waits by its timers, and cannot lead in fair mode. A user that may not use
// the register of the tokens cannot lead at all.
func TestLeadOnServersThatDenyTheUserSomething(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	servers := realredis.Start(t, 3)
	leads := func(rules []string, options ...redsync.Option) error {
		empties(t, servers)
		ctx := limited(t, minute)
		err := make(chan error, 2)
		for range 2 {
			rs := processAs(t, servers, rules)
			go func() { err <- rs.Lead(ctx, "lock", nothing, options...) }()
		}
		return errors.Join(<-err, <-err)
	}
	fenced := append(slices.Clone(plainACL), "~{lock}:fence", "+time")
	require.NoError(t, leads(append(slices.Clone(smallestACL), "~{lock}:fence")))
	require.NoError(t, leads(fenced), "without the queues")
	var clients []*redis.Client
	for _, s := range servers {
		client := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "nobody", Password: "wrong"})
		t.Cleanup(func() { _ = client.Close() })
		clients = append(clients, client)
	}
	stranger := on(clients).Lead(t.Context(), "lock", nothing)
	require.ErrorContains(t, stranger, "WRONGPASS")
	for name, err := range map[string]error{
		"a fair queue": leads(fenced, withFair), "the register": leads(smallestACL),
		"the commands": leads([]string{"~lock", "+get"}), "the password": stranger,
	} {
		assert.GreaterOrEqual(t, len(deniedBy(t, err)), 2, name)
	}
}

// A Lock ends by its tries or its context. It goes on while nodes deny it the lock, and gets it when they allow it.
func TestALockGoesOnWhileNodesDenyIt(t *testing.T) {
	playMet(t, func(f field) {
		f.denies(denials[0], majority...)
		for _, n := range f.nodes[:3] {
			n.On("set", 1<<20, embedded.Fault{Err: denials[0]})
		}
		w := f.calls(f.Redsync, forever)
		sleep(10 * sec)
		require.False(f, w.isDone())
		for _, n := range f.nodes {
			n.Heal()
		}
		f.within(w, sec)
		f.unlock(w.Mutex)
	})
}
