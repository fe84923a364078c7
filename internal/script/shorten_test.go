package script

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// This file tests how a key is shortened, on a real server and on an embedded one. TestLockScriptsDoWhatTheReferenceSays and
// TestPermitScriptsDoWhatTheReferenceSays compare it with a reference.

// A rest of less than 1 ms, or one that is no whole number in digits, is an error. The key then stays as it
// is.
func TestShortenToNothing(t *testing.T) {
	onBoth(t, func(g ground) {
		g.do("set", "lock", "v", "px", ttl)
		for _, rest := range []int64{0, -1, -1 << 62} {
			g.refuses(Shorten(lockV, rest, noProcess, noTurn, noFence), "less than 1 ms")
		}
		for _, rest := range []any{"", "x", "nan", "1.5", "1e3", "0x10"} {
			args := Shorten(lockV, 1, noProcess, noTurn, noFence).InFull()
			args[6] = rest
			require.Error(t, g.client.Do(t.Context(), args...).Err(), "%v", rest)
		}
		g.lasts("lock", ttl)
	})
}

// A user who may do no more than read and shorten the locks still shortens them. Without that permission the keys stay as
// they are.
func TestShortenWithoutPermissions(t *testing.T) {
	for rules, shortened := range map[string]string{
		"-@all +get +pttl +pexpire +eval": "a b c",
		"-pttl":                           "",
		"-pexpire":                        "",
		"-pexpire (+pexpire ~a ~c)":       "a c",
		"-get (+get ~? ~{?}:fence)":       "a b c",
	} {
		t.Run(rules, func(t *testing.T) {
			g, run := restricted(t, rules)
			for _, command := range []Command{
				Shorten(abc, 1000, ProcessOf(us), Turnover{Alive: alive, Leave: leaving("they1")}, token(7)),
				Shorten(abc, 1000, noProcess, quietly, token(7)),
			} {
				g.entersAll(abc, noPlace, noFence)
				_, err := run(command)
				assert.Equal(t, shortened == "a b c", err == nil, "%v", err)
				for _, key := range abc.of.Lines() {
					assert.Equal(t, strings.Contains(shortened, key), g.do("pttl", key).(int64) <= 1000, key)
				}
				g.expires()
				g.do("del", "a", "b", "c")
			}
		})
	}
}
