package main

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

func TestEveryContenderRunsWithItsOptions(t *testing.T) {
	addrs := startNodes(t, nodes)
	for _, c := range slices.Concat(contenders, variants) {
		require.NotNil(t, c.settings, c.name)
		lib, err := c.start(t.Context(), addrs, patientExpiry)
		require.NoError(t, err)
		require.NoError(t, lib.Close())
	}
}

// bare is a contender whose library drops every option on the way to its locks.
func bare(c contender) contender {
	open := c.open
	c.open = func(addrs []string, ttl time.Duration) (library, error) {
		lib, err := open(addrs, ttl)
		switch l := lib.(type) {
		case *redsyncLibrary:
			l.options = nil
		case *oursLibrary:
			*l = *dialOurs(addrs, ttl)
		case *watchedLibrary:
			l.rs = dialOurs(addrs, ttl).rs
		case rueidislockLibrary, *redislockLibrary, *floorLibrary:
			return open(addrs, ttl/4)
		}
		return lib, err
	}
	return c
}

func TestAContenderThatDropsItsOptionsDoesNotStart(t *testing.T) {
	addrs := startNodes(t, nodes)
	for _, c := range slices.Concat(contenders, variants) {
		if c.name == ours {
			continue // it has no options but its expiry
		}
		_, err := bare(c).start(t.Context(), addrs, patientExpiry)
		require.ErrorContains(t, err, c.name)
		require.ErrorContains(t, err, "want", c.name)
	}
}

func TestFieldTextRefusesWhatIsNoSetting(t *testing.T) {
	holder := &struct{ a struct{ b string } }{}
	for path, want := range map[string]string{"none": "has no field none", "a.b.c": "has no field a.b.c", "a.b": "is a string"} {
		_, err := fieldText(holder, path)
		require.ErrorContains(t, err, want)
	}
	_, err := fieldText(nil, "a")
	require.ErrorContains(t, err, "has no field a")
}

// TestFailFastReturnsWhileANodeIsFrozen is the scene in which the option must show: Lock with it returns
// while the Lock without it, called before, still waits for the frozen node.
func TestFailFastReturnsWhileANodeIsFrozen(t *testing.T) {
	servers := realredis.Start(t, nodes)
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.Addr()
	}
	open := func(name string) library {
		lib, err := named(name)[0].start(t.Context(), addrs, patientExpiry)
		require.NoError(t, err)
		t.Cleanup(func() { _ = lib.Close() })
		return lib
	}
	slow, fast := open(defaults), []library{open(failFast), open(onRueidis), open(ours)}
	servers[0].Freeze()
	waited := make(chan error, 1)
	go func() {
		_, err := slow.Lock(t.Context(), freshKey())
		waited <- err
	}()
	for _, lib := range fast {
		_, err := lib.Lock(t.Context(), freshKey())
		require.NoError(t, err)
	}
	select {
	case <-waited:
		t.Error("a Lock that should wait for the frozen node returned before those that should not wait")
	default:
	}
	servers[0].Thaw()
	require.NoError(t, <-waited)
}

// TestVariantsShowTheirOption looks at what the option of each variant does on the nodes.
func TestVariantsShowTheirOption(t *testing.T) {
	addrs := startNodes(t, nodes)
	look := dial(addrs)
	t.Cleanup(func() { require.NoError(t, look.Close()) })
	open := func(name string) *redsync.Redsync {
		lib, err := named(name)[0].start(t.Context(), addrs, patientExpiry)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, lib.Close()) })
		if w, ok := lib.(*watchedLibrary); ok {
			return w.rs
		}
		return lib.(*oursLibrary).rs
	}

	// With WithFair even the first attempt is a script, which asks the queue. Without it, it is a SET.
	require.Zero(t, scriptsOfALock(t, look, open(ours)))
	require.Positive(t, scriptsOfALock(t, look, open(oursFair)))

	m := open(oursFenced).NewMutex(freshKey())
	require.NoError(t, m.LockContext(t.Context()))
	require.Positive(t, m.Fence())
	require.NoError(t, unlock(t.Context(), m))

	// With WithHandOver(false), Unlock releases the lock on the nodes even if the same process waits for
	// it. By default Unlock hands it over, but only if it is young, which takes more than one try on a
	// slow machine.
	plain, apart := open(ours), open(oursApart)
	handed := false
	for range 50 {
		handed = handed || handsOver(t, look, plain)
		if handed {
			break
		}
	}
	require.True(t, handed)
	require.False(t, handsOver(t, look, apart))
}

// scriptsOfALock returns how many scripts the first node has run for a Lock.
func scriptsOfALock(t *testing.T, look clients, rs *redsync.Redsync) int64 {
	t.Helper()
	count := func() int64 {
		text, err := look[0].Info(t.Context(), "commandstats").Result()
		require.NoError(t, err)
		calls := parseCommandStats(text)
		return calls["evalsha"] + calls["eval"]
	}
	before := count()
	m := rs.NewMutex(freshKey(), redsync.WithFailFast(false)) // every node has answered
	require.NoError(t, m.LockContext(t.Context()))
	after := count()
	require.NoError(t, unlock(t.Context(), m))
	return after - before
}

// handsOver tells whether a waiter of the same process gets the lock with the value that it had.
func handsOver(t *testing.T, look clients, rs *redsync.Redsync) bool {
	t.Helper()
	key := freshKey()
	first, second := rs.NewMutex(key, redsync.WithFailFast(false)), rs.NewMutex(key)
	require.NoError(t, first.LockContext(t.Context()))
	before := stored(t, look[0], key)
	done := make(chan error, 1)
	go func() { done <- second.LockContext(t.Context()) }()
	require.Eventually(t, func() bool { // the waiter has a place in the queue
		n, err := look[0].Exists(t.Context(), "{"+key+"}:queue").Result()
		return err == nil && n == 1
	}, 30*time.Second, time.Millisecond)
	require.NoError(t, unlock(t.Context(), first))
	require.NoError(t, <-done)
	after := stored(t, look[0], key)
	require.NoError(t, unlock(t.Context(), second))
	return before == after
}

func stored(t *testing.T, node *redis.Client, key string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	value, err := node.Get(ctx, key).Result()
	require.NoError(t, err)
	return value
}
