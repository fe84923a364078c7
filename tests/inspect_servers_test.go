package redsync_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// Inspect on real servers: silent nodes, values of other libraries, and permissions.

// inspects returns what m.Inspect says, and checks which nodes are silent.
func inspects(t *testing.T, m *redsync.Mutex, silent ...int) (redsync.Status, error) {
	s, err := m.Inspect(t.Context())
	require.Len(t, s.Nodes, 5)
	for i, n := range s.Nodes {
		assert.Equal(t, slices.Contains(silent, i), n.Err != nil, "node %d: %v", i, n.Err)
		if n.Err != nil {
			var node *redsync.RedisError
			require.ErrorAs(t, n.Err, &node)
			assert.Equal(t, i, node.Node)
		}
	}
	return s, err
}

// inspectACL returns the rules that the page of permissions asks for in its row of Inspect: for the lock alone, and for all.
func inspectACL(t *testing.T) (alone, all []string) {
	row := regexp.MustCompile("(?m)^\\| \\[`Inspect`\\].*\\| `([^`]+)`; .* also `([^`]+)` \\|").FindStringSubmatch(read(t, "../docs/permissions.md"))
	require.NotNil(t, row)
	alone = append(strings.Fields(strings.ReplaceAll(row[1], "app:", "lock")), "+info", "+script|load") // they have rows of their own
	return alone, append(slices.Clone(alone), strings.ReplaceAll(row[2], "app:", "lock"))
}

// With the rules of the page, no node denies anything. Without the rule for queues, a node says who holds the lock and that
// it has denied the rest. Without one of the others, it says nothing.
func TestInspectWithTheRulesOfThePage(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	alone, all := inspectACL(t)
	servers := realredis.Start(t, 5)
	holding, permit := closed(t, realProcess(servers)), withPermits(2)
	holder := locked(t, holding.NewMutex("lock", withFencing, withOwner("worker-7@host"), withWatchdog))
	locked(t, holding.NewMutex("lock", permit, withWatchdog))
	ctx, cancel := context.WithCancel(t.Context())
	waiter, waited := closed(t, realProcess(servers)).NewMutex("lock", forever), make(chan error, 1)
	go func() { waited <- waiter.LockContext(ctx) }()
	awaitTickets(t, servers, 1)
	as := func(rules []string) *redsync.Redsync {
		for _, s := range servers {
			realredis.Must(t, s, "acl", "log", "reset")
		}
		return processAsOn(t, servers, func(int) []string { return rules })
	}
	inLog := func() (objects []any) {
		for _, s := range servers {
			for _, entry := range realredis.Must(t, s, "acl", "log").([]any) {
				if object := entry.(map[any]any)["object"]; object != "client" && object != "client|setinfo" { // go-redis tells its name
					objects = append(objects, object)
				}
			}
		}
		return objects
	}
	tells := func(s redsync.Status, err error, register uint64, denied bool) {
		require.NoError(t, err)
		require.Len(t, s.Holders, 1)
		assert.Equal(t, "worker-7@host", s.Holders[0].Owner)
		assert.Equal(t, register, s.Register)
		for _, n := range s.Nodes {
			assert.Equal(t, denied, n.Denied)
		}
	}

	rs := as(all)
	var s redsync.Status
	var err error
	require.Eventually(t, func() bool { // on a busy machine the waiter may renew its tickets too late
		s, err = inspects(t, rs.NewMutex("lock"))
		return err != nil || len(s.Waiters) == 1
	}, soon, 10*ms)
	tells(s, err, holder.Fence(), false)
	s, err = inspects(t, rs.NewMutex("lock", permit))
	require.NoError(t, err)
	assert.Len(t, s.Holders, 1)
	_, err = inspects(t, rs.NewMultiMutex([]string{"lock", "lock2"}))
	require.NoError(t, err)
	assert.Empty(t, inLog())

	rs = as(alone)
	s, err = inspects(t, rs.NewMutex("lock"))
	tells(s, err, 0, true)
	assert.Empty(t, s.Waiters)
	assert.Contains(t, inLog(), "{lock}:queue")
	_, err = inspects(t, rs.NewMutex("lock", permit), allNodes...)
	errorIs(t, err, redsync.ErrNoQuorum)

	for _, rule := range alone {
		if slices.Contains([]string{"+eval", "+info", "+script|load"}, rule) {
			continue // a server that knows the script does not need +eval
		}
		rules := slices.DeleteFunc(slices.Clone(all), func(r string) bool { return r == rule })
		_, err := inspects(t, as(rules).NewMutex("lock"), allNodes...)
		require.ErrorIs(t, err, redsync.ErrNoQuorum, "without %s", rule)
		require.Regexp(t, denies, err.Error())
	}
	cancel()
	require.Error(t, <-waited)
}
