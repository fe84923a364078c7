package script_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file tests how a key is shortened, on a real server and on an embedded one. TestLockScriptsDoWhatTheReferenceSays and
// TestPermitScriptsDoWhatTheReferenceSays compare it with a reference.

// shortens runs the script that shortens the TTL of the lock to rest, and returns the reply.
func (g ground) shortens(value string, rest int64) int64 {
	g.Helper()
	return g.run(script.Shorten(script.NewLock("lock", value), rest, script.ProcessOf(us), script.Turnover{}, script.Fence{}))
}

// A key with the value lasts for the rest, but never longer than before. So a command may come late, or twice. No other key
// is touched.
func TestShortenNeverProlongs(t *testing.T) {
	onBoth(t, func(g ground) {
		g.do("set", "lock", "v", "px", ttl)
		for _, c := range []struct{ rest, left int64 }{{50_000, 50_000}, {40_000, 40_000}, {50_000, 40_000}, {ttl, 40_000}, {1 << 50, 40_000}, {30_000, 30_000}} {
			assert.Equal(t, script.Mine, g.shortens("v", c.rest))
			assert.InDelta(t, c.left, g.do("pttl", "lock"), 9000)
		}
		assert.Equal(t, script.Other, g.shortens("w", 1))
		assert.Equal(t, "v", g.do("get", "lock"))
		assert.InDelta(t, 30_000, g.do("pttl", "lock"), 9000)
		g.do("persist", "lock")
		assert.Equal(t, script.Mine, g.shortens("v", 20_000), "a key that would never end")
		assert.InDelta(t, 20_000, g.do("pttl", "lock"), 9000)
		g.do("del", "lock")
		assert.Equal(t, script.Missing, g.shortens("v", 1000))
		assert.Empty(t, g.do("keys", "*"))
	})
}

// A rest of less than 1 ms, or one that is no whole number in digits, is an error. The key then stays as it
// is.
func TestShortenToNothing(t *testing.T) {
	onBoth(t, func(g ground) {
		g.do("set", "lock", "v", "px", ttl)
		for _, rest := range []int64{0, -1, -1 << 62} {
			g.refuses(script.Shorten(script.NewLock("lock", "v"), rest, script.Process{}, script.Turnover{}, script.Fence{}), "less than 1 ms")
		}
		for _, rest := range []any{"", "x", "nan", "1.5", "1e3", "0x10"} {
			args := script.Shorten(script.NewLock("lock", "v"), 1, script.Process{}, script.Turnover{}, script.Fence{}).InFull()
			args[6] = rest
			require.Error(t, g.client.Do(t.Context(), args...).Err(), "%v", rest)
		}
		assert.InDelta(t, ttl, g.do("pttl", "lock"), 9000)
	})
}

// A user who may do no more than read and shorten the locks still shortens them. Without that permission the keys stay as
// they are.
func TestShortenWithoutPermissions(t *testing.T) {
	full := script.ShortenMulti(abc, 1000, script.ProcessOf(us), script.Turnover{Alive: alive, Leave: []script.Ticket{aTicket(1, they)}}, token(7))
	quiet := script.ShortenMulti(abc, 1000, script.Process{}, quietly, token(7))
	for name, c := range map[string]struct {
		rules []any
		fails bool
		left  []int64
	}{
		"only to get and shorten":   {[]any{"-@all", "+get", "+pttl", "+pexpire", "+eval"}, false, []int64{1000, 1000, 1000}},
		"not to ask for the TTL":    {[]any{"-pttl"}, true, []int64{ttl, ttl, ttl}},
		"not to shorten":            {[]any{"-pexpire"}, true, []int64{ttl, ttl, ttl}},
		"to shorten two of three":   {[]any{"-pexpire", "(+pexpire ~a ~c)"}, true, []int64{1000, ttl, 1000}},
		"not to look at the queues": {[]any{"-get", "(+get ~? ~{?}:fence)"}, false, []int64{1000, 1000, 1000}},
	} {
		t.Run(name, func(t *testing.T) {
			g, run := restricted(t, c.rules...)
			for form, command := range map[string]script.Command{"in full": full, "quietly": quiet} {
				g.entersMulti(abc, script.Place{}, script.Fence{})
				_, err := run(command)
				assert.Equal(t, c.fails, err != nil, "%s: %v", form, err)
				for i, key := range []string{"a", "b", "c"} {
					assert.InDelta(t, c.left[i], g.do("pttl", key), float64(c.left[i])*0.9, "%s: %s", form, key)
				}
				g.expires()
				g.do("del", "a", "b", "c")
			}
		})
	}
}
