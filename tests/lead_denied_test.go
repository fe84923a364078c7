package redsync_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
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
	t.Helper()
	require.ErrorIs(t, err, redsync.ErrNoQuorum)
	var all *multierror.Error
	require.ErrorAs(t, err, &all)
	for _, e := range all.Errors {
		var node *redsync.RedisError
		require.ErrorAs(t, e, &node)
		assert.True(t, pool.IsPermanent(node.Err), "%v", node.Err)
		nodes = append(nodes, node.Node)
	}
	return nodes
}

func TestLeadEndsIfTheNodesDenyIt(t *testing.T) {
	for i, c := range []struct {
		name string
		deny []int
		rest func(f field) // the faults of the other nodes
	}{
		{"all", []int{0, 1, 2, 3, 4}, func(field) {}},
		{"three", []int{1, 2, 3}, func(field) {}},
		{"three, and two are down", []int{0, 1, 2}, func(f field) { f.kill(3, 4) }},
		{"three, and two frozen", []int{2, 3, 4}, func(f field) { f.freeze(0, 1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inEachMode(t, play, func(f field, mode opts) {
				rs := f.another()
				f.denies(denials[i], c.deny...)
				c.rest(f)
				start := time.Now()
				err := rs.Lead(f.Context(), "lock", nothing, mode...)
				require.ErrorContains(f, err, denials[i])
				named := deniedBy(f.T, err)
				assert.GreaterOrEqual(f, len(named), 3)
				assert.Subset(f, c.deny, named)
				assert.Less(f, time.Since(start), 3*time.Second)
			})
		})
	}
}

// Candidates go on while a quorum might still grant them the lock.
func TestLeadGoesOnWhileAQuorumMayBePossible(t *testing.T) {
	inEachMode(t, play, func(f field, mode opts) {
		f.denies(denials[0], 0, 1)
		f.kill(2, 3)
		rs, ctx := f.process(), f.Context()
		f.closes(rs)
		done := make(chan error, 1)
		go func() { done <- rs.Lead(ctx, "lock", func(context.Context) error { return errWork }, mode...) }()
		time.Sleep(10 * time.Second)
		require.Empty(f, done)
		f.restart(2, 3)
		time.Sleep(3 * time.Second)
		require.ErrorIs(f, <-done, errWork)
	})
}

// The permissions of the user may change while it campaigns, and while it leads.
func TestLeadEndsWhenItsPermissionsDo(t *testing.T) {
	inEachMode(t, play, func(f field, mode opts) {
		leader, candidate, ctx := f.another(), f.another(), f.Context()
		serve := func(ctx context.Context) error {
			<-ctx.Done()
			return errWork
		}
		led, campaigned := make(chan error, 1), make(chan error, 1)
		go func() { led <- leader.Lead(ctx, "lock", serve, mode...) }()
		synctest.Wait()
		go func() { campaigned <- candidate.Lead(ctx, "lock", serve, mode...) }()
		time.Sleep(10 * time.Second)
		start := time.Now()
		f.denies(denials[0], 0, 1, 2)
		err := <-campaigned
		assert.Equal(f, []int{0, 1, 2}, deniedBy(f.T, err))
		assert.Less(f, time.Since(start), time.Second)
		err = <-led
		assert.Equal(f, []int{0, 1, 2}, deniedBy(f.T, err))
		require.NotErrorIs(f, err, errWork)
		assert.Less(f, time.Since(start), guard+time.Second)
		for _, n := range f.nodes {
			n.Heal()
		}
		time.Sleep(guard)
	})
}

// A Redis user that may not use the queues waits by its timers, and cannot lead in fair mode. A user that may not use
// the register of the tokens cannot lead at all.
func TestLeadOnServersThatDenyTheUserSomething(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 3)
	leads := func(rules []string, options ...redsync.Option) error {
		empties(t, servers)
		ctx := limited(t, time.Minute)
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
	for name, err := range map[string]error{
		"a fair queue": leads(fenced, withFair),
		"the register": leads(smallestACL),
		"the commands": leads([]string{"~lock", "+get"}),
	} {
		assert.GreaterOrEqual(t, len(deniedBy(t, err)), 2, name)
	}

	var pools []pool.Pool
	for _, s := range servers {
		client := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "nobody", Password: "wrong"})
		t.Cleanup(func() { _ = client.Close() })
		pools = append(pools, pool.New(client))
	}
	stranger := redsync.New(pools...)
	t.Cleanup(func() { _ = stranger.Close(context.Background()) })
	err := stranger.Lead(t.Context(), "lock", nothing)
	assert.GreaterOrEqual(t, len(deniedBy(t, err)), 2)
	require.ErrorContains(t, err, "WRONGPASS")
}

// A Lock ends by its tries or its context. It goes on while nodes deny it the lock, and gets it when they allow it.
func TestALockGoesOnWhileNodesDenyIt(t *testing.T) {
	playMet(t, func(f field) {
		for _, n := range f.nodes[:3] {
			for _, command := range []string{"set", "evalsha"} {
				n.On(command, 1<<20, embedded.Fault{Err: "NOPERM this user has no permissions to run the command"})
			}
		}
		w := f.calls(f.Redsync, forever)
		time.Sleep(10 * time.Second)
		require.False(f, w.isDone())
		for _, n := range f.nodes[:3] {
			n.Heal()
		}
		f.within(w, time.Second)
		f.unlock(w.Mutex)
	})
}
