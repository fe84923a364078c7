package script

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
)

// A key of another type is left alone. A command that cannot do without the key says so in words. A release does without a
// queue and a register, and an acquire without a ticket does without a queue.
func TestKeysOfAnotherType(t *testing.T) {
	onBoth(t, func(g ground) {
		failed := map[string][]string{}
		list := func(key string) { g.do("del", key); g.do("rpush", key, "x"); g.do("pexpire", key, ttl) }
		g.meets(anyKey, list, func(what string, reply any) {
			command, key, _ := strings.Cut(what, ", at ")
			assert.Equal(g, "list", g.do("type", key), what)
			if err, fails := reply.(error); fails {
				failed[key] = append(failed[key], command)
				assert.Regexp(g, inWords, err.Error(), what)
			} else if strings.HasPrefix(what, "release") && strings.HasPrefix(key, "{lock}:") && !strings.Contains(key, ":slot") {
				assert.NotEqual(g, "v", g.client.Get(g.Context(), "lock").Val(), what)
			}
			g.expires()
		})
		got := map[string]string{}
		for key, commands := range failed {
			slices.Sort(commands)
			got[key] = strings.Join(commands, "; ")
		}
		assert.Equal(g, map[string]string{
			"lock":          "downgrade; downgrade, blind; enter; enter names; enter shared; enter shared, blind; enter shared, plain; enter, no ticket; extend; extend names; extend shared; heal; heal names; heal shared; inspect; inspect names; inspect, the key alone; release; release names; release names, parts; release names, plain; release names, quietly; release shared; release shared, plain; release shared, quiet; release, plain; release, quietly; shorten; shorten names; shorten, quietly; valid; valid names; valid shared",
			"other":         "enter names; extend names; heal names; inspect names; release names; release names, parts; release names, plain; release names, quietly; shorten names; valid names",
			"{lock}:fence":  "enter; enter names; enter shared; enter shared, blind; enter, no ticket",
			"{other}:fence": "enter names",
			"{lock}:queue":  "enter; enter names; enter shared; inspect; inspect names",
			"{other}:queue": "enter names; inspect names",
			"{lock}:slots":  "enter permits; inspect permits",
			"{lock}:slot:0": "inspect permits; release permit; release permit, plain; shorten permit; shorten permits; shorten permits, quiet",
			"{lock}:slot:1": "inspect permits; shorten permits; shorten permits, quiet",
			"{lock}:slot:2": "inspect permits; shorten permits; shorten permits, quiet",
		}, got)
	})
}

// A key belongs to its holder to the end, even while its TTL is less than a millisecond and PTTL shows 0.
func TestEnterLeavesTheLastMillisecondToTheOther(t *testing.T) {
	bubble(t, func(g ground, _ *embedded.Node) {
		m := newLock("v", "a", "lock")
		for _, f := range []Fence{{}, token(7)} {
			for _, place := range []Place{{}, {Ticket: aTicket(1, us), Alive: alive}, {Ticket: aTicket(1, us), Alive: alive, Strict: true}} {
				for _, c := range []Command{Enter(lockV, ttl, place, f), EnterShared(lockV, ttl, place, f), Enter(m, ttl, place, f)} {
					g.do("set", "lock", "w", "px", 1)
					time.Sleep(500 * time.Microsecond)
					require.Equal(g, int64(0), g.do("pttl", "lock"))
					reply := g.do(c.InFull()...)
					if list, ok := reply.([]any); ok {
						reply = list[0]
					}
					assert.Equal(g, int64(1), reply)
					g.has("lock", "w")
					time.Sleep(time.Millisecond)
				}
			}
		}
	})
}
