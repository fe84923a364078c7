package script

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file tests what the scripts of several names do, rule by rule. The names are a, b and c.

var abc = newLock("v", "a", "b", "c")

// entersAll runs the script that enters, and returns its parsed reply.
func (g ground) entersAll(m Lock, place Place, f Fence) Entered {
	g.Helper()
	reply := g.do(Enter(m, ttl, place, f).InFull()...)
	g.expires()
	e, err := ParseEnteredNames(reply)
	require.NoError(g, err)
	return e
}

// refuses runs a command, whose answer must be an error with this text.
func (g ground) refuses(c Command, text string) {
	g.Helper()
	require.ErrorContains(g, g.client.Do(g.Context(), c.InFull()...).Err(), text)
	g.expires()
}

// releases runs a release and reads the answer.
func (g ground) releases(c Command) Released {
	g.Helper()
	reply := g.do(c.InFull()...)
	g.expires()
	r, err := ParseReleasedNames(reply)
	require.NoError(g, err)
	return r
}

func TestMultiOfMaxNames(t *testing.T) {
	var names []string
	for i := range MaxNames {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	m := newLock("v", names...)
	onBoth(t, func(g ground) {
		place := Place{Ticket: aTicket(1, us), Alive: alive, Strict: true}
		assert.Equal(t, Entered{Register: 7, Stored: true}, g.entersAll(m, place, token(7)))
		g.runs(Mine, Extend(m, ttl, true))
		g.runs(Mine, Extend(m, ttl, false))
		all := Names(math.MaxUint64)
		g.do("set", "n63", "w", "px", ttl)
		assert.Equal(t, Names(1<<63), g.entersAll(m, noPlace, token(9)).By)
		assert.Equal(t, Released{Found: Other, Others: all >> 1}, g.releases(Release(m, noProcess, noTurn, token(8))))
	})
}

// A script reads 1 MiB in all. What is too long beside the other queues goes soon.
func TestMultiOfLongQueues(t *testing.T) {
	onBoth(t, func(g ground) {
		for _, key := range []string{"{a}:queue", "{b}:queue"} {
			g.do("set", key, strings.Repeat("x", 600_000), "px", 100*ttl)
		}
		place := Place{Ticket: aTicket(1, us), Alive: alive}
		g.refuses(Enter(newLock("v", "a", "b"), ttl, place, noFence), "the queue {b}:queue is a string that is too long")
		g.lasts("{b}:queue", 2*alive)
	})
}

// restricted returns a server on which waiters wait for a and b. run runs commands there as a user who has all
// permissions, except as the rules say.
func restricted(t *testing.T, rules string) (g ground, run func(c Command) (any, error)) {
	t.Helper()
	g = alone(t)
	g.line("{a}:queue", "they1")
	g.line("{b}:queue", "they1")
	args := []any{"acl", "setuser"}
	for rule := range strings.FieldsSeq("locker on nopass ~* &* +@all " + rules) {
		args = append(args, rule)
	}
	err := g.client.Do(t.Context(), args...).Err()
	if err != nil && strings.Contains(rules, "(") && g.client.Do(t.Context(), "pexpiretime", "x").Err() != nil {
		t.Skipf("this server has no selectors: %v", err) // it is older than Redis 7.0
	}
	require.NoError(t, err)
	conn := g.client.Conn()
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.AuthACL(t.Context(), "locker", "any").Err())
	return g, func(c Command) (any, error) { return conn.Do(t.Context(), c.InFull()...).Result() }
}

// hasAll checks what keys hold.
func (g ground) hasAll(want string, keys ...any) {
	g.Helper()
	assert.Equal(g, "["+want+"]", fmt.Sprint(g.do(append([]any{"mget"}, keys...)...)))
}

// A user may be allowed to set some keys only. Then an acquire fails, and no lock stays.
func TestEnterMultiThatFailsHalfWay(t *testing.T) {
	const none, all = "<nil> <nil> <nil>", "they1 us2, they1 us2, us2"
	for rules, c := range map[string]struct{ before, fences, lines string }{
		"-set -del (+set ~a ~b ~{*)":           {none, "7 7 7", all},
		"-set (+set ~a ~b ~{*)":                {"v <nil> <nil>", "7 7 7", all},
		"-set (+set ~? ~{?}:queue ~{a}:fence)": {none, "7 <nil> <nil>", all},
		"-set (+set ~? ~{?}:fence ~{a}:queue)": {none, none, "they1 us2, they1, "},
	} {
		t.Run(rules, func(t *testing.T) {
			g, run := restricted(t, rules)
			if c.before != none {
				g.do("set", "a", "v", "px", ttl)
			}
			_, err := run(Enter(abc, ttl, Place{Ticket: aTicket(2, us), Alive: alive}, token(7)))
			require.ErrorContains(t, err, "access")
			time.Sleep(5 * time.Millisecond) // the TTL of a lock that could not be deleted is 1 ms
			g.hasAll(c.before, "a", "b", "c")
			g.hasAll(c.fences, "{a}:fence", "{b}:fence", "{c}:fence")
			assert.Equal(t, c.lines, g.lined("{a}:queue")+", "+g.lined("{b}:queue")+", "+g.lined("{c}:queue"))
		})
	}
}

// A heal that fails half-way keeps the keys that it has set. That does no harm, because a heal is no grant.
func TestHealMultiThatFailsHalfWay(t *testing.T) {
	g, run := restricted(t, "-set (+set ~a)")
	g.do("set", "c", "v", "px", ttl/2)
	_, err := run(Extend(abc, ttl, true))
	require.ErrorContains(t, err, "access")
	g.hasAll("v <nil> v", "a", "b", "c")
	g.lasts("c", ttl/2)
}

// A user who may only read and delete the locks can release them. If the user may not delete them, the release
// makes them run out.
func TestReleaseMultiWithoutPermissions(t *testing.T) {
	turnover := Turnover{Alive: alive, Leave: leaving("they1"), Parts: []Part{{Enters: aTicket(2, us)}, {}, {}}}
	nobody := Released{Found: Mine}
	others, first := Released{Found: Mine, Others: 0b011}, Released{Found: Mine, First: 0b001}
	for rules, c := range map[string]struct {
		plain, full Released
		left        string // in the queue of a, after the full one
	}{
		"+@all":                     {others, first, "us2"},
		"-@all +get +del +eval":     {nobody, nobody, "they1"},
		"-del":                      {nobody, nobody, "they1"},
		"-time":                     {nobody, nobody, "they1"},
		"-publish":                  {others, first, "us2"},
		"-get (+get ~? ~{?}:fence)": {nobody, nobody, "they1"},
		"-set":                      {others, first, "they1"},
	} {
		t.Run(rules, func(t *testing.T) {
			g, run := restricted(t, rules)
			releases := func(command Command, want Released, left string) {
				g.do("flushall")
				g.line("{a}:queue", "they1")
				g.line("{b}:queue", "they1")
				g.entersAll(abc, noPlace, noFence)
				reply, err := run(command)
				if rules == "-del" {
					require.True(t, wire.IsDenied(err), "%v", err)
				} else {
					require.NoError(t, err)
					got, err := ParseReleasedNames(reply)
					require.NoError(t, err)
					assert.Equal(t, want, got, left)
				}
				time.Sleep(5 * time.Millisecond)
				g.hasAll("<nil> <nil> <nil>", "a", "b", "c")
				g.expires()
				g.lines("{a}:queue", left)
			}
			releases(Release(abc, noProcess, noTurn, noFence), c.plain, "they1")
			releases(Release(abc, ProcessOf(us), turnover, token(7)), c.full, c.left)
			releases(Release(abc, noProcess, quietly, token(7)), nobody, "they1")
		})
	}
}

// Deadlines are compared with the node's clock to the millisecond.
func TestMultiReadsTheClock(t *testing.T) {
	bubble(t, func(g ground, _ *embedded.Node) {
		time.Sleep(999 * time.Millisecond)
		now := time.Now().UnixMilli()
		wait := func(deadline int64) {
			for _, name := range abc.of.Lines() {
				g.do("set", QueueKey(name), record(ticket(1, they), deadline), "px", ttl)
			}
		}
		wait(now + 1)
		assert.Equal(g, Entered{Wait: 1, By: 0b111}, g.entersAll(abc, Place{Ticket: aTicket(2, us), Alive: alive, Strict: true}, noFence))
		g.has("{c}:queue", record(ticket(1, they), now+1)+record(ticket(2, us), now+alive))
		release := Release(abc, noProcess, noTurn, noFence)
		wait(now + 1)
		assert.Equal(g, Released{Others: 0b111}, g.releases(release))
		wait(now)
		g.runs(Missing, release, "nobody waits: a plain number")
		assert.Empty(g, g.do("keys", "*"))
	})
}
