package redsync_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file tests locks whose key, or a key beside it, is somebody's data.

// data makes a key of each type that no lock has.
var data = map[string]func(c *redis.Client, key string) error{
	"list": func(c *redis.Client, key string) error { return c.RPush(context.Background(), key, "x").Err() },
	"hash": func(c *redis.Client, key string) error { return c.HSet(context.Background(), key, "f", "x").Err() },
	"set":  func(c *redis.Client, key string) error { return c.SAdd(context.Background(), key, "x").Err() },
	"zset": func(c *redis.Client, key string) error {
		return c.ZAdd(context.Background(), key, redis.Z{Member: "x"}).Err()
	},
	"stream": func(c *redis.Client, key string) error {
		return c.XAdd(context.Background(), &redis.XAddArgs{Stream: key, Values: []string{"f", "x"}}).Err()
	},
}

// needed are the keys that locks of each mode need.
var needed = map[string]struct {
	key  string
	kind lockKind
	mode opts
}{
	"plain":                 {"a", lockKinds[0], nil},
	"WithMinHold":           {"a", lockKinds[0], opts{withMinHold(ms)}},
	"WithFencing":           {"a", lockKinds[0], opts{withFencing}},
	"WithFencing, register": {"{a}:fence", lockKinds[0], opts{withFencing}},
	"WithFair":              {"a", lockKinds[0], opts{withFair}},
	"WithFair, queue":       {"{a}:queue", lockKinds[0], opts{withFair}},
	"several names":         {"b", lockKinds[1], nil},
	"several names, fenced": {"{b}:fence", lockKinds[1], opts{withFencing}},
	"readers":               {"a", lockKinds[2], nil},
	"permits":               {permitKey, lockKinds[3], nil},
	"permits, fair":         {"{a}:slots", lockKinds[3], opts{withFair}},
	"a name of 300 bytes":   {strings.Repeat("a", 300), lockKind{}, nil},
}

// isForeign checks that err names a key of another type, and does not say that the lock is taken.
func isForeign(tb testing.TB, err error, key, is string) {
	tb.Helper()
	var wrong *redsync.ErrWrongType
	require.ErrorAs(tb, err, &wrong)
	if len(key) > 200 {
		key = key[:200] + "..."
	}
	assert.Equal(tb, key, wrong.Key)
	assert.Equal(tb, is, wrong.Type)
	assert.NotEmpty(tb, wrong.Address)
	says(tb, err, key+" is a "+is)
	assert.NotErrorIs(tb, err, redsync.ErrFailed)
	taken := (*redsync.ErrTaken)(nil)
	assert.False(tb, errors.As(err, &taken), "%v", err)
}

// Every call fails at once. Nothing is repeated, no node is down, and Close has nothing to wait for.
func TestACallNamesTheKeyOfAnotherTypeThatItNeeds(t *testing.T) {
	testlength.FromGate(t)
	for name, c := range needed {
		playAs(t, name, func(f field) {
			r := &redsynctest.Recorder{}
			options := append(opts{recordsTo(r), withRetryDelay(minute)}, c.mode...)
			rs := f.another()
			mutex := func() *redsync.Mutex {
				if c.kind.given == nil {
					return rs.NewMutex(c.key, options...)
				}
				return c.kind.lock(rs, options...)
			}
			for is, put := range data {
				if is != "hash" && name != "plain" {
					continue
				}
				for _, n := range f.nodes[:3] {
					noError(f, put(n.Client(), c.key))
				}
				began := time.Now()
				m := mutex()
				isForeign(f, m.TryLock(), c.key, is)
				isForeign(f, m.Lock(), c.key, is)
				isForeign(f, m.Do(f.Context(), nothing), c.key, is)
				ran, err := m.TryDo(f.Context(), nothing)
				assert.False(f, ran)
				isForeign(f, err, c.key, is)
				if c.kind.column == "plain lock" {
					isForeign(f, rs.Lead(f.Context(), "a", nothing, options...), c.key, is)
				}
				if c.kind.given == nil || !strings.Contains(c.key, "}:") || c.key == permitKey {
					_, err := m.Inspect(f.Context())
					isForeign(f, err, c.key, is)
				}
				assert.Less(f, time.Since(began), 100*ms)
				for _, n := range f.nodes[1:3] {
					n.Between(func(m *miniredis.Miniredis) { m.Del(c.key) })
				}
				noError(f, m.Lock()) // the others are a quorum
				f.unlock(m)
				time.Sleep(10 * sec) // the release has raised the registers, and what WithMinHold keeps is gone
				for _, n := range f.nodes {
					n.Between(func(m *miniredis.Miniredis) { m.Del(c.key) })
				}
			}
			before := commands(f.nodes)
			time.Sleep(20 * sec)
			assert.Equal(f, before, commands(f.nodes))
			assert.Empty(f, redsynctest.Events[observe.NodeDown](r))
			assert.Empty(f, redsynctest.Events[observe.ReleaseUnconfirmed](r))
			began := time.Now()
			shut(f, rs)
			assert.Zero(f, time.Since(began))
		})
	}
}

// commands returns how many commands of locks the nodes have got.
func commands(nodes embedded.Nodes) (n int) {
	for _, node := range nodes {
		n += node.Commands("set") + node.Commands("evalsha") + node.Commands("eval")
	}
	return n
}

// A lock whose key becomes somebody's data is lost: it may be free again as soon as that is deleted.
func TestALockWhoseKeyIsReplacedByAnotherTypeIsLost(t *testing.T) {
	testlength.FromGate(t)
	for name, c := range needed {
		if c.kind.given == nil || strings.HasSuffix(c.key, ":fence") || strings.Contains(c.key, ":queue") || strings.HasSuffix(c.key, ":slots") {
			continue
		}
		for operation, call := range map[string]func(m *redsync.Mutex) (bool, error){
			"Extend": (*redsync.Mutex).Extend, "Valid": (*redsync.Mutex).Valid, "Unlock": (*redsync.Mutex).Unlock,
		} {
			playAs(t, name+", "+operation, func(f field) {
				m := locked(f, c.kind.lock(f.Redsync, append(opts{lasting}, c.mode...)...))
				time.Sleep(3 * sec) // one with WithOwner listens
				for _, n := range f.nodes {
					n.Between(func(m *miniredis.Miniredis) { m.Del(c.key) })
					noError(f, data["hash"](n.Client(), c.key))
				}
				ok, err := call(m)
				assert.False(f, ok)
				isForeign(f, err, c.key, "hash")
				errorIs(f, err, redsync.ErrLockAlreadyExpired)
				_, _ = m.Unlock()
				synctest.Wait()
				before := commands(f.nodes)
				time.Sleep(2 * minute)
				assert.Equal(f, before, commands(f.nodes)) // nothing is repeated
			})
		}
	}
}

// Servers answer as the embedded nodes do. A string of another program is in the way as a lock is: nothing tells them
// apart. It costs no more than a lock either.
func TestServersWithAKeyOfAnotherType(t *testing.T) {
	servers := realredis.Start(t, 1)
	client, rs := servers[0].Client(), realProcess(servers)
	confirmed(t, locked(t, rs.NewMutex("meet")).Unlock)
	for name, c := range needed {
		if c.kind.given == nil {
			continue
		}
		for is, put := range data {
			noError(t, put(client, c.key))
			isForeign(t, c.kind.lock(rs, c.mode...).TryLock(), c.key, is)
			isForeign(t, c.kind.lock(rs, c.mode...).Lock(), c.key, is)
			require.NoError(t, client.Del(t.Context(), c.key).Err(), name)
		}
	}
	noError(t, client.Set(t.Context(), "a", "data", 0).Err())
	ran, err := rs.TryDo(t.Context(), "a", nothing)
	assert.False(t, ran)
	noError(t, err)
	noError(t, rs.Close(limited(t, 10*sec))) // nothing is left
}
