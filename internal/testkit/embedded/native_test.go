package embedded_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// fresh is what stands on a server before each command of natives: a text and a hash. See stands.
const fresh = "hash own=v+"

// What servers answer.
const (
	wrongType   = "WRONGTYPE Operation against a key holding the wrong kind of value"
	syntax      = "ERR syntax error"
	noInteger   = "ERR value is not an integer or out of range"
	msetExpire  = "ERR invalid expire time in 'msetex' command"
	delexArgs   = "ERR wrong number of arguments for 'delex' command"
	delexText   = "ERR Key should be of string type if conditions are specified"
	delifeqArgs = "ERR wrong number of arguments for 'delifeq' command"
	msetArgs    = "ERR wrong number of arguments for 'msetex' command"
	unknown     = "ERR unknown command"
)

// natives has commands, what Redis 8.6.3 answers, and what Valkey 9.1.2 does if that is something else. Behind =>
// is what stands there afterwards, if that is not fresh. EMPTY stands for an empty word.
var natives = []struct{ command, redis, valkey string }{
	{"DELEX own IFEQ v", "1 => hash", unknown},
	{"delex own ifeq v", "1 => hash", unknown},
	{"DELEX own IFEQ x", "0", unknown},
	{"DELEX none IFEQ v", "0", unknown},
	{"DELEX hash IFEQ v", delexText, unknown},
	{"DELEX hash WRONG v", delexText, unknown},
	{"DELEX own WRONG v", "ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE", unknown},
	{"DELEX none WRONG v", "0", unknown},
	{"DELEX own", "1 => hash", unknown},
	{"DELEX hash", "1 => own=v+", unknown},
	{"DELEX none", "0", unknown},
	{"DELEX own v", delexArgs, unknown},
	{"DELEX own IFEQ v more", delexArgs, unknown},
	{"DELEX", delexArgs, unknown},

	{"DELIFEQ own v", unknown, "1 => hash"},
	{"delifeq own v", unknown, "1 => hash"},
	{"DELIFEQ own x", unknown, "0"},
	{"DELIFEQ none v", unknown, "0"},
	{"DELIFEQ hash v", unknown, wrongType},
	{"DELIFEQ own", unknown, delifeqArgs},
	{"DELIFEQ own v more", unknown, delifeqArgs},

	{"MSETEX 2 a 1 b 2 NX PX 9000000", "1 => a=1+ b=2+ hash own=v+", ""},
	{"msetex 2 a 1 b 2 px 9000000 nx", "1 => a=1+ b=2+ hash own=v+", ""},
	{"MSETEX 2 a 1 own 2 NX PX 9000000", "0", ""},
	{"MSETEX 2 a 1 hash 2 NX PX 9000000", "0", ""},
	{"MSETEX 2 a 1 a 2 NX PX 9000000", "1 => a=2+ hash own=v+", ""},
	{"MSETEX 2 own w hash w XX PX 9000000", "1 => hash=w+ own=w+", ""},
	{"MSETEX 2 own w a 1 XX PX 9000000", "0", ""},
	{"MSETEX 2 own w a 1", "1 => a=1 hash own=w", ""},
	{"MSETEX 2 own w a 1 KEEPTTL", "1 => a=1 hash own=w+", ""},
	{"MSETEX 2 own w a 1 PX 9000000", "1 => a=1+ hash own=w+", ""},
	{"MSETEX 1 a 1 NX NX PX 9000000", "1 => a=1+ hash own=v+", ""},
	{"MSETEX 1 a 1 NX PX 9000000 PX 9000000", "1 => a=1+ hash own=v+", ""},
	{"MSETEX 1 a 1 NX XX", syntax, ""},
	{"MSETEX 1 a 1 b 2 NX", syntax, ""},
	{"MSETEX 2 a 1 NX PX 9000000", syntax, ""},
	{"MSETEX 2 a 1 NX", "ERR wrong number of key-value pairs", syntax},
	{"MSETEX 1073741824 a 1", "ERR wrong number of key-value pairs", syntax},
	{"MSETEX 1 a 1 NX PX", syntax, ""},
	{"MSETEX 1 a 1 NX GET", syntax, ""},
	{"MSETEX 1 a 1 PX 9000000 IFEQ v", syntax, ""},
	{"MSETEX 1 a 1 PX 9000000 KEEPTTL", syntax, ""},
	{"MSETEX 1 own 1 NX PX abc", noInteger, ""},
	{"MSETEX 1 own 1 NX PX EMPTY", noInteger, ""},
	{"MSETEX 1 own 1 NX PX 0", msetExpire, ""},
	{"MSETEX 1 own 1 NX PX 9223372036854775807", msetExpire, ""},
	{"MSETEX 0 a 1", "ERR invalid numkeys value", "ERR invalid numkeys value or out of range"},
	{"MSETEX abc a 1", "ERR invalid numkeys value", "ERR invalid numkeys value or out of range"},
	{"MSETEX 2147483648 a 1", "ERR invalid numkeys value", "ERR invalid numkeys value or out of range"},
	{"MSETEX 1 a", msetArgs, ""},
	{"MSETEX", msetArgs, ""},
}

// answered returns what a server answers to a command of natives, and what stands there afterwards. It forgets what an
// unknown command's error says behind the name of the command, which differs between servers.
func answered(t *testing.T, c *redis.Client, command string) string {
	t.Helper()
	do := func(words ...any) *redis.Cmd { return c.Do(context.Background(), words...) }
	require.NoError(t, do("FLUSHALL").Err())
	require.NoError(t, do("SET", "own", "v", "PX", 8_000_000).Err())
	require.NoError(t, do("HSET", "hash", "field", "v").Err())
	var words []any
	for word := range strings.FieldsSeq(command) {
		words = append(words, strings.TrimPrefix(word, "EMPTY"))
	}
	answer := do(words...)
	said := fmt.Sprint(answer.Val())
	if err := answer.Err(); err != nil {
		said = err.Error()
	}
	if strings.HasPrefix(said, unknown) {
		said = unknown
	}
	if now := stands(t, c); now != fresh {
		said += " => " + now
	}
	return said
}

// stands returns the keys of a server, with the texts that they hold. Those that have a TTL are marked with +.
func stands(t *testing.T, c *redis.Client) string {
	t.Helper()
	keys := c.Keys(context.Background(), "*").Val()
	slices.Sort(keys)
	for i, key := range keys {
		if c.Type(context.Background(), key).Val() == "string" {
			keys[i] += "=" + c.Get(context.Background(), key).Val()
		}
		if c.Persist(context.Background(), key).Val() {
			keys[i] += "+"
		}
	}
	return strings.Join(keys, " ")
}

// withProtocols runs f with clients of either protocol.
func withProtocols(f func(change func(*redis.Options))) {
	for _, protocol := range []int{2, 3} {
		f(func(o *redis.Options) { o.Protocol, o.MaxRetries = protocol, -1 })
	}
}

func TestNativeCommandsAnswerAsRecorded(t *testing.T) {
	on(t, 0, func(t *testing.T, n *embedded.Node, _ *redis.Client) {
		withProtocols(func(change func(*redis.Options)) {
			c := n.Client(change)
			defer func() { _ = c.Close() }()
			for _, row := range natives {
				n.SetVersion("Redis 8.6.3")
				assert.Equal(t, row.redis, answered(t, c, row.command), "Redis: %s", row.command)
				if row.valkey == "" {
					row.valkey = row.redis
				}
				n.SetVersion("Valkey 9.1.2")
				assert.Equal(t, row.valkey, answered(t, c, row.command), "Valkey: %s", row.command)
			}
		})
	})
}

// A node that plays the version of the server on PATH answers as the server does. .ci/servers plays this on newer ones.
func TestNativeCommandsAnswerAsOnServers(t *testing.T) {
	t.Parallel()
	s := realredis.Start(t, 1)[0]
	info := fmt.Sprint(realredis.Must(t, s, "info", "server"))
	names := regexp.MustCompile(`(?m)^(valkey|redict|redis)_version:(\S+)`).FindAllStringSubmatch(info, -1)
	is := slices.MaxFunc(names, func(a, b []string) int { // Valkey and Redict name Redis as well
		return strings.Compare(strings.TrimPrefix(a[1], "redis"), strings.TrimPrefix(b[1], "redis"))
	})
	n := embedded.Start(1)[0]
	t.Cleanup(embedded.Nodes{n}.Close)
	n.SetVersion(strings.ToUpper(is[1][:1]) + is[1][1:] + " " + is[2])
	withProtocols(func(change func(*redis.Options)) {
		real, played := *s.Client().Options(), n.Client(change)
		defer func() { _ = played.Close() }()
		change(&real)
		c := redis.NewClient(&real)
		defer func() { _ = c.Close() }()
		for _, row := range natives {
			assert.Equal(t, answered(t, c, row.command), answered(t, played, row.command), "%v: %s", is[0], row.command)
		}
		ours := played.Info(t.Context(), "server").Val()
		for _, line := range regexp.MustCompile(`(?m)^(\w+_version|server_name):.*$`).FindAllString(ours, -1) {
			assert.Contains(t, info, line+"\n")
		}
		assert.Contains(t, ours, is[0])
	})
}

// Commands come and go with the version, while a connection is open.
func TestNativeCommandsOfVersions(t *testing.T) {
	on(t, 0, func(t *testing.T, n *embedded.Node, c *redis.Client) {
		for name, want := range map[string][]string{
			"":             {unknown, unknown, unknown},
			"Redis 8.2.9":  {unknown, unknown, unknown},
			"Redis 8.4.0":  {"1", unknown, "1"},
			"Redis 10.0.0": {"1", unknown, "1"},
			"Valkey 8.1.0": {unknown, unknown, unknown},
			"Valkey 9.0.3": {unknown, "1", unknown},
			"Valkey 9.1.0": {unknown, "1", "1"},
		} {
			n.SetVersion(name)
			for i, command := range []string{"DELEX own IFEQ v", "DELIFEQ own v", "MSETEX 1 a 1"} {
				got, _, _ := strings.Cut(answered(t, c, command), " =>")
				assert.Equal(t, want[i], got, "%s: %s", name, command)
			}
			info := c.Info(t.Context(), "server").Val()
			assert.Equal(t, name != "", strings.Contains(info, "redis_version:"))
			assert.Contains(t, info, "\r\n"+strings.Replace(strings.ToLower(name), " ", "_version:", 1))
		}
	})
}

// A service can report a version and lack its commands, or deny them. Nodes count and fail these commands like others.
func TestNativeCommandsFailOnRequest(t *testing.T) {
	on(t, 0, func(t *testing.T, n *embedded.Node, c *redis.Client) {
		n.SetVersion("Redis 8.6.3")
		n.Lacks(embedded.Missing, "DELEX")
		n.Lacks(embedded.Denied, "MSETEX")
		assert.EqualError(t, c.Do(t.Context(), "DELEX", "own", "IFEQ", "v").Err(),
			"ERR unknown command 'DELEX', with args beginning with: 'own' 'IFEQ' 'v' ")
		assert.Equal(t, "NOPERM User default has no permissions to run the 'msetex' command", answered(t, c, "MSETEX 1 a 1"))
		n.Lacks(embedded.Has, "DELEX", "MSETEX")
		n.On("delex", 1, embedded.Fault{LoseReply: true})
		assert.ErrorContains(t, c.Do(t.Context(), "DELEX", "own").Err(), "EOF")
		assert.False(t, n.Exists("own"))
		assert.Equal(t, 2, n.Commands("delex"))
	})
}

// The TTLs of these commands follow the node's clock.
func TestNativeCommandsLastByTheNodesClock(t *testing.T) {
	on(t, 0, func(t *testing.T, n *embedded.Node, c *redis.Client) {
		n.SetVersion("Valkey 9.1.2")
		n.SetClock(0, 2)
		require.NoError(t, c.Do(t.Context(), "MSETEX", 2, "a", "v", "b", "v", "NX", "PX", 4000).Err())
		time.Sleep(2*time.Second - 1)
		assert.Equal(t, int64(1), c.Do(t.Context(), "DELIFEQ", "a", "v").Val())
		time.Sleep(time.Nanosecond)
		assert.Equal(t, int64(0), c.Do(t.Context(), "DELIFEQ", "b", "v").Val())
	})
}
