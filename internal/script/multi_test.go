package script_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tests what the scripts of several names do, rule by rule. The names are a, b and c.

var abc = script.NewMulti([]string{"a", "b", "c"}).With("v")

// entersMulti runs the script that enters, and returns its parsed reply.
func (g ground) entersMulti(m script.Multi, place script.Place, f script.Fence) script.Entered {
	g.Helper()
	reply := g.do(script.EnterMulti(m, ttl, place, f).InFull()...)
	g.expires()
	e, err := script.ParseEnteredMulti(reply)
	require.NoError(g, err)
	return e
}

// refuses runs a command, whose answer must be an error with this text.
func (g ground) refuses(c script.Command, text string) {
	g.Helper()
	require.ErrorContains(g, g.client.Do(g.Context(), c.InFull()...).Err(), text)
	g.expires()
}

// releases runs a release and reads the answer.
func (g ground) releases(c script.Command) script.Released {
	g.Helper()
	reply := g.do(c.InFull()...)
	g.expires()
	r, err := script.ParseReleasedMulti(reply)
	require.NoError(g, err)
	return r
}

// values returns the values of the locks, in order.
func (g ground) values() []any {
	g.Helper()
	return g.do("mget", "a", "b", "c").([]any)
}

func TestEnterMultiSetsAllKeysOrNone(t *testing.T) {
	onBoth(t, func(g ground) {
		require.Equal(t, script.Entered{}, g.entersMulti(abc, script.Place{}, script.Fence{}))
		assert.Equal(t, []any{"v", "v", "v"}, g.values())
		for _, name := range abc.Names() {
			assert.InDelta(t, ttl, g.do("pttl", name), 5000)
		}
		assert.Len(t, g.do("keys", "*"), 3)

		for by, name := range abc.Names() {
			g.do("flushall")
			g.do("set", name, "w", "px", ttl/2)
			e := g.entersMulti(abc, script.Place{}, script.Fence{})
			assert.Equal(t, script.Names(1)<<by, e.By)
			assert.InDelta(t, ttl/2, e.Wait, 5000)
			assert.Equal(t, "w", g.do("get", name))
			assert.Len(t, g.do("keys", "*"), 1)
		}
	})
}

// A release tells the first waiter of each name that is free, and its answer is about each name.
func TestReleaseMultiAnswersForEachName(t *testing.T) {
	onBoth(t, func(g ground) {
		for _, value := range []any{"v", nil} { // whether or not it deletes a
			g.do("flushall")
			if value != nil {
				g.do("set", "a", value, "px", ttl)
			}
			g.do("set", "c", "w", "px", ttl)
			g.line("{a}:queue", "us1 they2")
			g.line("{b}:queue", "they1 us2")
			g.line("{c}:queue", "they1")
			turnover := script.Turnover{Alive: alive, Leave: leaving("they1"), Parts: []script.Part{
				{Leave: leaving("they2")},
				{Enters: aTicket(4, they)},
				{Enters: aTicket(9, us), Leave: leaving("us8")},
			}}
			assert.Equal(t, script.Released{Found: script.Other, First: 0b011, Others: 0b010}, g.releases(script.ReleaseMulti(abc, script.ProcessOf(us), turnover, script.Fence{})))
			assert.Equal(t, []any{nil, nil, "w"}, g.values())
			assert.Equal(t, "us1, us2 they4, us9", g.lined("{a}:queue")+", "+g.lined("{b}:queue")+", "+g.lined("{c}:queue"))
			assert.Empty(t, g.told())
			assert.Equal(t, script.Released{Found: script.Other, Others: 0b011}, g.releases(script.ReleaseMulti(abc, script.ProcessOf(they), script.Turnover{}, script.Fence{})))
			assert.Equal(t, "us:a us:b", g.told())
		}
	})
}

func TestMultiOfMaxNames(t *testing.T) {
	var names []string
	for i := range script.MaxNames {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	m := script.NewMulti(names).With("v")
	onBoth(t, func(g ground) {
		place := script.Place{Ticket: aTicket(1, us), Alive: alive, Strict: true}
		assert.Equal(t, script.Entered{Register: 7, Stored: true}, g.entersMulti(m, place, token(7)))
		assert.Equal(t, script.Mine, g.run(script.HealMulti(m, ttl)))
		assert.Equal(t, script.Mine, g.run(script.ExtendMulti(m, ttl)))
		all := script.Names(math.MaxUint64)
		g.do("set", "n63", "w", "px", ttl)
		assert.Equal(t, script.Names(1<<63), g.entersMulti(m, script.Place{}, token(9)).By)
		assert.Equal(t, script.Released{Found: script.Other, Others: all >> 1}, g.releases(script.ReleaseMulti(m, script.Process{}, script.Turnover{}, token(8))))
	})
}

// restricted returns a server on which waiters wait for a and b. run runs commands there as a user who has all
// permissions, except as the rules say.
func restricted(t *testing.T, rules ...any) (g ground, run func(c script.Command) (any, error)) {
	t.Helper()
	g = ground{T: t, client: realredis.Start(t, 1)[0].Client()}
	g.line("{a}:queue", "they1")
	g.line("{b}:queue", "they1")
	err := g.client.Do(t.Context(), append([]any{"acl", "setuser", "locker", "on", "nopass", "~*", "&*", "+@all"}, rules...)...).Err()
	if err != nil && strings.Contains(fmt.Sprint(rules...), "(") && g.client.Do(t.Context(), "pexpiretime", "x").Err() != nil {
		t.Skipf("this server has no selectors: %v", err) // it is older than Redis 7.0
	}
	require.NoError(t, err)
	conn := g.client.Conn()
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.AuthACL(t.Context(), "locker", "any").Err())
	return g, func(c script.Command) (any, error) { return conn.Do(t.Context(), c.InFull()...).Result() }
}

// A user may be allowed to set some keys only. Then an acquire fails, and no lock stays.
func TestEnterMultiThatFailsHalfWay(t *testing.T) {
	place := script.Place{Ticket: aTicket(2, us), Alive: alive}
	for name, c := range map[string]struct {
		rules    []any
		wasThere bool
		fences   []any
		lines    string // the queues
	}{
		"two of three locks, and not to delete": {[]any{"-set", "-del", "(+set ~a ~b ~{*)"}, false, []any{"7", "7", "7"}, "they1 us2, they1 us2, us2"},
		"two of three locks, one was there":     {[]any{"-set", "(+set ~a ~b ~{*)"}, true, []any{"7", "7", "7"}, "they1 us2, they1 us2, us2"},
		"one of three fences":                   {[]any{"-set", "(+set ~? ~{?}:queue ~{a}:fence)"}, false, []any{"7", nil, nil}, "they1 us2, they1 us2, us2"},
		"one of three queues":                   {[]any{"-set", "(+set ~? ~{?}:fence ~{a}:queue)"}, false, []any{nil, nil, nil}, "they1 us2, they1, "},
	} {
		t.Run(name, func(t *testing.T) {
			g, run := restricted(t, c.rules...)
			want := []any{nil, nil, nil}
			if c.wasThere {
				g.do("set", "a", "v", "px", ttl)
				want[0] = "v"
			}
			_, err := run(script.EnterMulti(abc, ttl, place, token(7)))
			require.ErrorContains(t, err, "access")
			if slices.Contains(c.rules, any("-del")) {
				time.Sleep(5 * time.Millisecond) // the TTL of a lock that could not be deleted is 1 ms
			}
			assert.Equal(t, want, g.values())
			assert.Equal(t, c.fences, g.do("mget", "{a}:fence", "{b}:fence", "{c}:fence"))
			assert.Equal(t, c.lines, g.lined("{a}:queue")+", "+g.lined("{b}:queue")+", "+g.lined("{c}:queue"))
		})
	}
}

// A heal that fails half-way keeps the keys that it has set. That does no harm, because a heal is no grant.
func TestHealMultiThatFailsHalfWay(t *testing.T) {
	g, run := restricted(t, "-set", "(+set ~a)")
	g.do("set", "c", "v", "px", ttl/2)
	_, err := run(script.HealMulti(abc, ttl))
	require.ErrorContains(t, err, "access")
	assert.Equal(t, []any{"v", nil, "v"}, g.values())
	assert.InDelta(t, ttl/2, g.do("pttl", "c"), 5000)
}

// A user who may only read and delete the locks can release them. If the user may not delete them, the release
// makes them run out.
func TestReleaseMultiWithoutPermissions(t *testing.T) {
	turnover := script.Turnover{Alive: alive, Leave: leaving("they1"), Parts: []script.Part{{Enters: aTicket(2, us)}, {}, {}}}
	plain := script.ReleaseMulti(abc, script.Process{}, script.Turnover{}, script.Fence{})
	full := script.ReleaseMulti(abc, script.ProcessOf(us), turnover, token(7))
	quiet := script.ReleaseMulti(abc, script.Process{}, quietly, token(7))
	nobody := script.Released{Found: script.Mine}
	others, first := script.Released{Found: script.Mine, Others: 0b011}, script.Released{Found: script.Mine, First: 0b001}
	for name, c := range map[string]struct {
		rules       []any
		fails       bool
		plain, full script.Released
		left        string // in the queue of a, after the full one
	}{
		"all":                       {nil, false, others, first, "us2"},
		"only to get and delete":    {[]any{"-@all", "+get", "+del", "+eval"}, false, nobody, nobody, "they1"},
		"not to delete":             {[]any{"-del"}, true, nobody, nobody, "they1"},
		"not to ask for the time":   {[]any{"-time"}, false, nobody, nobody, "they1"},
		"not to publish":            {[]any{"-publish"}, false, others, first, "us2"},
		"not to look at the queues": {[]any{"-get", "(+get ~? ~{?}:fence)"}, false, nobody, nobody, "they1"},
		"not to set":                {[]any{"-set"}, false, others, first, "they1"},
	} {
		t.Run(name, func(t *testing.T) {
			g, run := restricted(t, c.rules...)
			for form, r := range map[string]struct {
				command script.Command
				want    script.Released
			}{"plain": {plain, c.plain}, "in full": {full, c.full}, "quietly": {quiet, nobody}} {
				g.do("flushall")
				g.line("{a}:queue", "they1")
				g.line("{b}:queue", "they1")
				g.entersMulti(abc, script.Place{}, script.Fence{})
				reply, err := run(r.command)
				if c.fails {
					require.True(t, pool.IsDenied(err), "%s: %v", form, err)
				} else {
					require.NoError(t, err, form)
					got, err := script.ParseReleasedMulti(reply)
					require.NoError(t, err, form)
					assert.Equal(t, r.want, got, form)
				}
				time.Sleep(5 * time.Millisecond)
				assert.Equal(t, []any{nil, nil, nil}, g.values(), form)
				g.expires()
				if form == "in full" {
					assert.Equal(t, c.left, g.lined("{a}:queue"))
				}
			}
		})
	}
}

// Deadlines are compared with the node's clock to the millisecond.
func TestMultiReadsTheClock(t *testing.T) {
	bubble(t, func(t *testing.T, _ *embedded.Node, client *redis.Client) {
		g := ground{T: t, client: client}
		time.Sleep(999 * time.Millisecond)
		now := time.Now().UnixMilli()
		wait := func(deadline int64) {
			for _, name := range abc.Names() {
				g.do("set", script.QueueKey(name), record(ticket(1, they), deadline), "px", ttl)
			}
		}
		wait(now + 1)
		assert.Equal(t, script.Entered{Wait: 1, By: 0b111}, g.entersMulti(abc, script.Place{Ticket: aTicket(2, us), Alive: alive, Strict: true}, script.Fence{}))
		assert.Equal(t, record(ticket(1, they), now+1)+record(ticket(2, us), now+alive), g.do("get", "{c}:queue"))
		release := script.ReleaseMulti(abc, script.Process{}, script.Turnover{}, script.Fence{})
		wait(now + 1)
		assert.Equal(t, script.Released{Others: 0b111}, g.releases(release))
		wait(now)
		assert.Equal(t, script.Missing, g.run(release), "nobody waits: a plain number")
		assert.Empty(t, g.do("keys", "*"))
	})
}
