package script_test

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/proto"
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

// line makes the queue of a name of these tickets. All of them are alive.
func (g ground) line(name string, tickets ...string) {
	g.Helper()
	now, err := g.client.Time(g.Context()).Result()
	require.NoError(g, err)
	text := ""
	for _, t := range tickets {
		text += record(t, now.UnixMilli()+60_000)
	}
	g.do("set", script.QueueKey(name), text, "px", 2*ttl)
}

// inLine returns the tickets in the queue of a name.
func (g ground) inLine(name string) (tickets []string) {
	g.Helper()
	text, _ := g.do("get", script.QueueKey(name)).(string)
	for r := range slices.Chunk([]byte(text), recordSize) {
		tickets = append(tickets, string(r[:49]))
	}
	return tickets
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

// The refusal names all names that keep the caller back. Its time is that of the first of them, even if
// another becomes free earlier.
func TestEnterMultiTellsTheNamesThatKeepItBack(t *testing.T) {
	onBoth(t, func(g ground) {
		place := script.Place{Ticket: aTicket(2, us), Alive: alive, Strict: true}
		g.do("set", "b", "w", "px", ttl)
		g.do("set", "c", "w", "px", ttl/4)
		e := g.entersMulti(abc, place, script.Fence{})
		assert.Equal(t, script.Names(0b110), e.By)
		assert.InDelta(t, ttl, e.Wait, 5000)

		g.line("a", ticket(1, they)) // its deadline is a minute away
		g.do("pexpire", "b", ttl/4)
		e = g.entersMulti(abc, place, script.Fence{})
		assert.Equal(t, script.Names(0b111), e.By)
		assert.InDelta(t, 60_000, e.Wait, 5000)

		g.do("del", "b")
		g.line("a", ticket(3, they)) // it comes later than the caller
		g.line("c", ticket(1, they))
		e = g.entersMulti(abc, place, script.Fence{})
		assert.Equal(t, script.Names(0b100), e.By)
		place.Strict = false
		e = g.entersMulti(abc, place, script.Fence{})
		assert.Equal(t, script.Names(0b100), e.By, "the key of c is still taken")
		assert.LessOrEqual(t, e.Wait, int64(ttl/4))
		g.do("del", "c")
		assert.Zero(t, g.entersMulti(abc, place, script.Fence{}).Wait)
		assert.Equal(t, []string{ticket(1, they), ticket(2, us)}, g.inLine("c"))
	})
}

func TestEnterMultiOfAKeyThatNeverEnds(t *testing.T) {
	onBoth(t, func(g ground) {
		g.do("set", "forever", "w")
		e := g.entersMulti(script.NewMulti([]string{"a", "forever"}).With("v"), script.Place{}, script.Fence{})
		assert.Equal(t, script.Entered{Wait: -1, By: 0b10}, e)
	})
}

// A key belongs to its holder to the end, even while its TTL is less than a millisecond and PTTL shows 0.
func TestEnterMultiLeavesTheLastMillisecondToTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := embedded.Start(1)
		defer nodes.Close()
		client := nodes[0].Client()
		defer func() { _ = client.Close() }()
		g := ground{T: t, client: client}
		g.do("set", "b", "w", "px", 1)
		time.Sleep(500 * time.Microsecond)
		assert.Equal(t, script.Entered{Wait: 1, By: 0b10}, g.entersMulti(abc, script.Place{}, script.Fence{}))
		time.Sleep(time.Millisecond)
		assert.Equal(t, script.Entered{}, g.entersMulti(abc, script.Place{}, script.Fence{}))
	})
}

func TestEnterMultiQueuesForAllNames(t *testing.T) {
	place := script.Place{Ticket: aTicket(2, us), Alive: alive}
	onBoth(t, func(g ground) {
		g.do("set", "b", "w", "px", ttl)
		for range 2 { // refused, then granted
			e := g.entersMulti(abc, place, script.Fence{})
			for _, name := range abc.Names() {
				assert.Equal(t, []string{ticket(2, us)}, g.inLine(name))
				assert.InDelta(t, 2*alive, g.do("pttl", script.QueueKey(name)), 5000)
			}
			g.do("del", "b")
			assert.Equal(t, e.Wait != 0, g.do("exists", "a") == int64(0))
		}
	})
}

// Without a fence, a key that has the caller's value counts as taken. With a fence, it counts as granted
// before.
func TestEnterMultiAgain(t *testing.T) {
	onBoth(t, func(g ground) {
		g.do("set", "b", "v", "px", ttl/2)
		assert.Equal(t, script.Names(0b10), g.entersMulti(abc, script.Place{}, script.Fence{}).By)
		assert.Equal(t, []any{nil, "v", nil}, g.values())
		assert.Equal(t, script.Entered{Register: 7, Stored: true, WasThere: true}, g.entersMulti(abc, script.Place{}, token(7)))
		assert.Equal(t, []any{"v", "v", "v"}, g.values())
		assert.InDelta(t, ttl/2, g.do("pttl", "b"), 5000, "it is not prolonged")
		assert.Equal(t, script.Entered{Register: 7, WasThere: true}, g.entersMulti(abc, script.Place{}, token(7)))
		// The queue of a name whose key has the caller's value does not keep the caller back. The queue of
		// another name does.
		g.line("a", ticket(1, they))
		place := script.Place{Ticket: aTicket(2, us), Alive: alive, Strict: true}
		assert.Equal(t, script.Entered{Register: 9, Stored: true, WasThere: true}, g.entersMulti(abc, place, token(9)))
		g.do("del", "a")
		e := g.entersMulti(abc, place, token(10))
		assert.Equal(t, script.Names(0b1), e.By)
		assert.InDelta(t, 60_000, e.Wait, 5000)
		assert.False(t, e.WasThere)
		assert.EqualValues(t, 9, e.Register)
	})
}

// If the token is greater than the highest register, it becomes the register of each name.
func TestEnterMultiRaisesTheRegisters(t *testing.T) {
	for name, c := range registers {
		for at, key := range abc.Names() {
			t.Run(fmt.Sprintf("%s, of %s", name, key), func(t *testing.T) {
				onEmbedded(t, func(g ground) {
					if c.register != "" {
						g.do("set", script.FenceKey(key), c.register, "px", ttl)
					}
					low := abc.Names()[(at+1)%3]
					g.do("set", script.FenceKey(low), "0", "px", ttl)
					e := g.entersMulti(abc, script.Place{}, token(c.token))
					assert.Equal(t, c.raised, e.Stored)
					want := []any{fmt.Sprint(c.token), fmt.Sprint(c.token), fmt.Sprint(c.token)}
					if !c.raised {
						assert.Equal(t, c.register, fmt.Sprint(e.Register))
						want = []any{nil, nil, nil}
						want[at], want[(at+1)%3] = c.register, "0"
					}
					assert.Equal(t, want, g.do("mget", "{a}:fence", "{b}:fence", "{c}:fence"))
					for i, value := range want {
						if value != nil {
							assert.InDelta(t, day, g.do("pttl", script.FenceKey(abc.Names()[i])), 5000)
						}
					}
				})
			})
		}
	}
}

// onEmbedded runs f on an embedded node, without messages.
func onEmbedded(t *testing.T, f func(g ground)) {
	t.Helper()
	nodes := embedded.Start(1)
	defer nodes.Close()
	c := nodes[0].Client()
	defer func() { _ = c.Close() }()
	f(ground{T: t, client: c})
}

func TestExtendHealAndValidMulti(t *testing.T) {
	longer, shorter := int64(2*ttl), int64(ttl/2)
	for name, c := range map[string]struct {
		keys                  [3]any
		extend, valid, heal   int64
		extended, healed      [3]int64 // TTLs
		healedKeys            [3]any
		firstTTL, remainingMs int64
	}{
		"all mine":                {[3]any{"v", "v", "v"}, 1, 1, 1, [3]int64{longer, ttl, ttl}, [3]int64{longer, ttl, ttl}, [3]any{"v", "v", "v"}, longer, shorter},
		"all mine, the first too": {[3]any{"v", "v", "v"}, 1, 1, 1, [3]int64{ttl, ttl, ttl}, [3]int64{ttl, ttl, ttl}, [3]any{"v", "v", "v"}, shorter, shorter},
		"the last missing":        {[3]any{"v", "v", nil}, 0, 0, 3, [3]int64{longer, shorter, -2}, [3]int64{longer, ttl, ttl}, [3]any{"v", "v", "v"}, longer, shorter},
		"the first missing":       {[3]any{nil, "v", "v"}, 0, 0, 3, [3]int64{-2, shorter, shorter}, [3]int64{ttl, ttl, ttl}, [3]any{"v", "v", "v"}, longer, shorter},
		"all missing":             {[3]any{nil, nil, nil}, 0, 0, 3, [3]int64{-2, -2, -2}, [3]int64{ttl, ttl, ttl}, [3]any{"v", "v", "v"}, longer, shorter},
		"one another's":           {[3]any{"v", "w", "v"}, 2, 2, 2, [3]int64{longer, shorter, shorter}, [3]int64{longer, shorter, shorter}, [3]any{"v", "w", "v"}, longer, shorter},
		"missing and another's":   {[3]any{nil, "v", "w"}, 2, 2, 2, [3]int64{-2, shorter, shorter}, [3]int64{-2, shorter, shorter}, [3]any{nil, "v", "w"}, longer, shorter},
		"another's and missing":   {[3]any{"w", "v", nil}, 2, 2, 2, [3]int64{longer, shorter, -2}, [3]int64{longer, shorter, -2}, [3]any{"w", "v", nil}, longer, shorter},
	} {
		t.Run(name, func(t *testing.T) {
			onEmbedded(t, func(g ground) {
				set := func() {
					g.do("flushall")
					for i, value := range c.keys {
						if value != nil {
							g.do("set", abc.Names()[i], value, "px", pickFirst(i, c.firstTTL, c.remainingMs))
						}
					}
				}
				lasts := func(want [3]int64) {
					t.Helper()
					for i, ms := range want {
						assert.InDelta(t, ms, g.do("pttl", abc.Names()[i]), 5000, i)
					}
				}
				set()
				assert.Equal(t, c.valid, g.run(script.ValidMulti(abc)))
				assert.Equal(t, c.extend, g.run(script.ExtendMulti(abc, ttl)))
				assert.Equal(t, c.keys[:], g.values())
				lasts(c.extended)
				set()
				assert.Equal(t, c.heal, g.run(script.HealMulti(abc, ttl)))
				assert.Equal(t, c.healedKeys[:], g.values())
				lasts(c.healed)
			})
		})
	}
}

func pickFirst(i int, first, rest int64) int64 {
	if i == 0 {
		return first
	}
	return rest
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
			g.line("a", ticket(1, us), ticket(2, they))
			g.line("b", ticket(1, they), ticket(2, us))
			g.line("c", ticket(1, they))
			turnover := script.Turnover{Alive: alive, Leave: []script.Ticket{aTicket(1, they)}, Parts: []script.Part{
				{Leave: []script.Ticket{aTicket(2, they)}},
				{Enters: aTicket(4, they)},
				{Enters: aTicket(9, us), Leave: []script.Ticket{aTicket(8, us)}},
			}}
			assert.Equal(t, script.Released{Found: script.Other, First: 0b011, Others: 0b010}, g.releases(script.ReleaseMulti(abc, script.ProcessOf(us), turnover, script.Fence{})))
			assert.Equal(t, []any{nil, nil, "w"}, g.values())
			assert.Equal(t, []string{ticket(1, us)}, g.inLine("a"))
			assert.Equal(t, []string{ticket(2, us), ticket(4, they)}, g.inLine("b"))
			assert.Equal(t, []string{ticket(9, us)}, g.inLine("c"))
			g.heardOf()
			assert.Equal(t, script.Released{Found: script.Other, Others: 0b011}, g.releases(script.ReleaseMulti(abc, script.ProcessOf(they), script.Turnover{}, script.Fence{})))
			g.heardOf(us+" a", us+" b")
		}
	})
}

// heardOf checks what has been published: to whom, and about which lock.
func (g ground) heardOf(want ...string) {
	g.Helper()
	g.do("publish", script.ProcessOf(us).Channel(), "end")
	assert.Equal(g, want, g.messages())
}

func TestReleaseMultiRaisesEachRegister(t *testing.T) {
	onBoth(t, func(g ground) {
		for _, release := range []script.Command{
			script.ReleaseMulti(abc, script.Process{}, script.Turnover{}, token(10)),
			script.ReleaseMulti(abc, script.Process{}, quietly, token(10)),
		} {
			g.do("flushall")
			g.do("set", "{a}:fence", "9", "px", ttl)
			g.do("set", "{b}:fence", "11", "px", ttl)
			assert.Equal(t, script.Released{}, g.releases(release))
			assert.Equal(t, []any{"10", "11", "10"}, g.do("mget", "{a}:fence", "{b}:fence", "{c}:fence"))
			assert.InDelta(t, day, g.do("pttl", "{a}:fence"), 5000)
			assert.InDelta(t, ttl, g.do("pttl", "{b}:fence"), 5000)
		}
	})
}

func TestQuietReleaseMultiTouchesNoQueue(t *testing.T) {
	onBoth(t, func(g ground) {
		g.line("a", ticket(1, they))
		for _, f := range []script.Fence{{}, token(7)} {
			require.Equal(t, script.Granted, g.entersMulti(abc, script.Place{}, f).Wait)
			assert.Equal(t, script.Released{Found: script.Mine}, g.releases(script.ReleaseMulti(abc, script.Process{}, quietly, f)))
			assert.Equal(t, []any{nil, nil, nil}, g.values())
		}
		assert.Equal(t, []string{ticket(1, they)}, g.inLine("a"))
		g.heardOf()
	})
}

// A lock that has become a list does not keep the others from being released. The release tells their waiters,
// too, and then answers with an error, as the release of one name does.
func TestReleaseMultiBesideALockOfAnotherType(t *testing.T) {
	onBoth(t, func(g ground) {
		g.do("mset", "a", "v", "c", "v")
		g.do("rpush", "b", "x")
		g.do("pexpire", "b", ttl)
		g.line("b", ticket(1, they))
		g.line("c", ticket(1, they))
		g.refuses(script.ReleaseMulti(abc, script.Process{}, script.Turnover{}, script.Fence{}), "WRONGTYPE")
		assert.Equal(t, []any{nil, nil, nil}, g.values())
		assert.Equal(t, "list", g.do("type", "b"))
		g.heardOf(they + " c")
		for _, c := range []script.Command{
			script.EnterMulti(abc, ttl, script.Place{Ticket: aTicket(2, us), Alive: alive}, token(7)),
			script.ExtendMulti(abc, ttl), script.HealMulti(abc, ttl), script.ValidMulti(abc),
		} {
			g.refuses(c, "WRONGTYPE")
		}
		assert.Equal(t, int64(3), g.do("exists", "b", "{b}:queue", "{c}:queue"))
		assert.Len(t, g.do("keys", "*"), 3)
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
		turnover := script.Turnover{Alive: alive}
		for i := range names {
			turnover.Parts = append(turnover.Parts, script.Part{Enters: aTicket(i+2, they), Leave: []script.Ticket{aTicket(1, they)}})
		}
		all := script.Names(math.MaxUint64)
		assert.Equal(t, script.Released{Found: script.Mine, First: all, Others: all}, g.releases(script.ReleaseMulti(m, script.ProcessOf(us), turnover, token(8))))
		for i, name := range names {
			assert.Equal(t, []string{ticket(1, us), ticket(i+2, they)}, g.inLine(name))
		}
		assert.Len(t, g.do("keys", "*"), 2*len(names))
		g.do("set", "n63", "w", "px", ttl)
		assert.Equal(t, script.Names(1<<63), g.entersMulti(m, script.Place{}, token(9)).By)
		assert.Equal(t, script.Released{Found: script.Other, Others: all >> 1}, g.releases(script.ReleaseMulti(m, script.Process{}, script.Turnover{}, script.Fence{})))
		g.do("flushall")
		g.entersMulti(m, script.Place{}, script.Fence{})
		assert.Equal(t, script.Released{Found: script.Mine}, g.releases(script.ReleaseMulti(m, script.Process{}, script.Turnover{}, script.Fence{})))
		assert.Empty(t, g.do("keys", "*"))
	})
}

// restricted returns a server on which waiters wait for a and b. run runs commands there as a user who has all
// permissions, except as the rules say.
func restricted(t *testing.T, rules ...any) (g ground, run func(c script.Command) (any, error)) {
	t.Helper()
	g = ground{T: t, client: realredis.Start(t, 1)[0].Client()}
	g.line("a", ticket(1, they))
	g.line("b", ticket(1, they))
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
		lines    [3]int // how many are in the queues
	}{
		"no lock":                               {[]any{"-set", "(+set ~{*)"}, false, []any{"7", "7", "7"}, [3]int{2, 2, 1}},
		"two of three locks":                    {[]any{"-set", "(+set ~a ~b ~{*)"}, false, []any{"7", "7", "7"}, [3]int{2, 2, 1}},
		"two of three locks, and not to delete": {[]any{"-set", "-del", "(+set ~a ~b ~{*)"}, false, []any{"7", "7", "7"}, [3]int{2, 2, 1}},
		"two of three locks, one was there":     {[]any{"-set", "(+set ~a ~b ~{*)"}, true, []any{"7", "7", "7"}, [3]int{2, 2, 1}},
		"one of three fences":                   {[]any{"-set", "(+set ~? ~{?}:queue ~{a}:fence)"}, false, []any{"7", nil, nil}, [3]int{2, 2, 1}},
		"one of three queues":                   {[]any{"-set", "(+set ~? ~{?}:fence ~{a}:queue)"}, false, []any{nil, nil, nil}, [3]int{2, 1, 0}},
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
			for i, name := range abc.Names() {
				assert.Len(t, g.inLine(name), c.lines[i], name)
			}
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

// A node without memory grants nothing, and queues nobody. It still releases locks.
func TestMultiWithoutMemory(t *testing.T) {
	g, _ := restricted(t)
	for _, place := range []script.Place{{}, {Ticket: aTicket(2, us), Alive: alive}} {
		for _, f := range []script.Fence{{}, token(7)} {
			g.do("config", "set", "maxmemory", 1)
			g.refuses(script.EnterMulti(abc, ttl, place, f), "OOM")
			g.refuses(script.HealMulti(abc, ttl), "OOM")
			assert.Len(t, g.do("keys", "*"), 2)
			assert.Len(t, g.inLine("a"), 1)
			g.do("config", "set", "maxmemory", 0)
			g.entersMulti(abc, script.Place{}, script.Fence{})
			g.do("config", "set", "maxmemory", 1)
			turnover := script.Turnover{Alive: alive, Parts: []script.Part{{}, {}, {Enters: aTicket(1, us)}}}
			assert.Equal(t, script.Released{Found: script.Mine, First: 0b100, Others: 0b011}, g.releases(script.ReleaseMulti(abc, script.ProcessOf(us), turnover, f)))
			assert.Equal(t, []any{nil, nil, nil}, g.values())
			g.do("config", "set", "maxmemory", 0)
			g.do("del", "{a}:fence", "{b}:fence", "{c}:fence", "{c}:queue")
		}
	}
}

// A user who may only read and delete the locks can release them. If the user may not delete them, the release
// makes them run out.
func TestReleaseMultiWithoutPermissions(t *testing.T) {
	turnover := script.Turnover{Alive: alive, Leave: []script.Ticket{aTicket(1, they)}, Parts: []script.Part{{Enters: aTicket(2, us)}, {}, {}}}
	plain := script.ReleaseMulti(abc, script.Process{}, script.Turnover{}, script.Fence{})
	full := script.ReleaseMulti(abc, script.ProcessOf(us), turnover, token(7))
	quiet := script.ReleaseMulti(abc, script.Process{}, quietly, token(7))
	nobody := script.Released{Found: script.Mine}
	others, first := script.Released{Found: script.Mine, Others: 0b011}, script.Released{Found: script.Mine, First: 0b001}
	for name, c := range map[string]struct {
		rules       []any
		fails       bool
		plain, full script.Released
		left        []string // in the queue of a, after the full one
	}{
		"all":                       {nil, false, others, first, []string{ticket(2, us)}},
		"only to get and delete":    {[]any{"-@all", "+get", "+del", "+eval"}, false, nobody, nobody, []string{ticket(1, they)}},
		"not to delete":             {[]any{"-del"}, true, nobody, nobody, []string{ticket(1, they)}},
		"to delete two of three":    {[]any{"-del", "(+del ~a ~b)"}, true, nobody, nobody, []string{ticket(1, they)}},
		"not to ask for the time":   {[]any{"-time"}, false, nobody, nobody, []string{ticket(1, they)}},
		"not to publish":            {[]any{"-publish"}, false, others, first, []string{ticket(2, us)}},
		"not to look at the queues": {[]any{"-get", "(+get ~? ~{?}:fence)"}, false, nobody, nobody, []string{ticket(1, they)}},
		"not to set":                {[]any{"-set"}, false, others, first, []string{ticket(1, they)}},
	} {
		t.Run(name, func(t *testing.T) {
			g, run := restricted(t, c.rules...)
			for form, r := range map[string]struct {
				command script.Command
				want    script.Released
			}{"plain": {plain, c.plain}, "in full": {full, c.full}, "quietly": {quiet, nobody}} {
				g.do("flushall")
				g.line("a", ticket(1, they))
				g.line("b", ticket(1, they))
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
					assert.Equal(t, c.left, g.inLine("a"))
				}
			}
		})
	}
}

// The scripts work for a user who may not call MGET, which only saves other commands.
func TestMultiWithoutTheCommandsThatSaveOthers(t *testing.T) {
	g, run := restricted(t, "-mget")
	for range 2 {
		reply, err := run(script.EnterMulti(abc, ttl, script.Place{}, script.Fence{}))
		require.NoError(t, err)
		entered, err := script.ParseEnteredMulti(reply)
		require.NoError(t, err)
		assert.Equal(t, script.Entered{}, entered)
		reply, err = run(script.ReleaseMulti(abc, script.Process{}, script.Turnover{}, script.Fence{}))
		require.NoError(t, err)
		released, err := script.ParseReleasedMulti(reply)
		require.NoError(t, err)
		assert.Equal(t, script.Mine, released.Found)
	}
	assert.Equal(t, []any{nil, nil, nil}, g.values())
}

// If a plain release may not delete the locks, it makes them run out.
func TestReleaseMultiPlainWithoutPermissionToDelete(t *testing.T) {
	g, run := restricted(t, "-del")
	g.do("del", "{a}:queue", "{b}:queue")
	g.entersMulti(abc, script.Place{}, script.Fence{})
	_, err := run(script.ReleaseMulti(abc, script.Process{}, script.Turnover{}, script.Fence{}))
	require.True(t, pool.IsDenied(err), "%v", err)
	time.Sleep(5 * time.Millisecond)
	assert.Empty(t, g.do("keys", "*"))
}

// The scripts execute no more Redis commands than these.
func TestMultiExecutesNoNeedlessCommands(t *testing.T) {
	set := func(g ground) { g.entersMulti(abc, script.Place{}, script.Fence{}) }
	plain := script.ReleaseMulti(abc, script.Process{}, script.Turnover{}, script.Fence{})
	executes(t, map[string]execution{
		"enter":            {nil, script.EnterMulti(abc, ttl, script.Place{}, script.Fence{}), int64(0), map[string]int{"set": 3}},
		"enter, queued":    {nil, script.EnterMulti(abc, ttl, script.Place{Ticket: aTicket(1, us), Alive: alive}, script.Fence{}), []any{int64(0), "0", int64(0), []any{}}, map[string]int{"get": 6, "pttl": 3, "set": 6, "strlen": 6, "time": 1}},
		"enter, fenced":    {nil, script.EnterMulti(abc, ttl, script.Place{}, token(7)), []any{int64(0), "7", int64(1), []any{}}, map[string]int{"get": 6, "set": 6, "strlen": 6}},
		"extend":           {set, script.ExtendMulti(abc, 2*ttl), int64(1), map[string]int{"get": 3, "pexpire": 3, "pttl": 3, "strlen": 3}},
		"release":          {set, plain, int64(1), map[string]int{"del": 1, "mget": 1, "strlen": 6}},
		"release, missing": {nil, plain, int64(0), map[string]int{"get": 6, "strlen": 10}},
		"release, quietly": {set, script.ReleaseMulti(abc, script.Process{}, quietly, script.Fence{}), int64(1), map[string]int{"del": 1, "mget": 1, "strlen": 3}},
		"release, waited for": {func(g ground) { set(g); g.line("a", ticket(1, they)) }, plain, []any{int64(1), []any{}, []any{int64(1)}}, map[string]int{
			"del": 1, "get": 3, "mget": 1, "publish": 1, "strlen": 7, "time": 1,
		}},
	})
}

// An execution is a command on a node that before has prepared. It has the expected reply, and how often the
// script executes which Redis commands.
type execution struct {
	before  func(g ground)
	command script.Command
	reply   any
	want    map[string]int
}

// executes checks the reply to commands and what they execute, each on a server of its own.
func executes(t *testing.T, commands map[string]execution) {
	t.Helper()
	for name, c := range commands {
		t.Run(name, func(t *testing.T) {
			g := ground{T: t, client: realredis.Start(t, 1)[0].Client()}
			if c.before != nil {
				c.before(g)
			}
			g.do("config", "resetstat")
			assert.Equal(t, c.reply, g.do(c.command.InFull()...))
			got := map[string]int{}
			for _, m := range calls.FindAllStringSubmatch(g.do("info", "commandstats").(string), -1) {
				got[m[1]], _ = strconv.Atoi(m[2])
			}
			delete(got, "eval")
			delete(got, "config|resetstat")
			delete(got, "config")
			assert.Equal(t, c.want, got)
		})
	}
}

var calls = regexp.MustCompile(`cmdstat_(\S+):calls=(\d+)`)

// Deadlines are compared with the node's clock to the millisecond.
func TestMultiReadsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := embedded.Start(1)
		defer nodes.Close()
		client := nodes[0].Client()
		defer func() { _ = client.Close() }()
		g := ground{T: t, client: client}
		time.Sleep(999 * time.Millisecond)
		now := time.Now().UnixMilli()
		wait := func(deadline int64) {
			for _, name := range abc.Names() {
				g.do("set", script.QueueKey(name), record(ticket(1, they), deadline), "px", ttl)
			}
		}
		place := script.Place{Ticket: aTicket(2, us), Alive: alive, Strict: true}
		wait(now + 1)
		assert.Equal(t, script.Entered{Wait: 1, By: 0b111}, g.entersMulti(abc, place, script.Fence{}))
		assert.Equal(t, record(ticket(1, they), now+1)+record(ticket(2, us), now+alive), g.do("get", "{c}:queue"))
		release := script.ReleaseMulti(abc, script.Process{}, script.Turnover{}, script.Fence{})
		wait(now + 1)
		assert.Equal(t, script.Released{Others: 0b111}, g.releases(release))
		wait(now)
		assert.Equal(t, script.Missing, g.run(release), "nobody waits: a plain number")
		assert.Empty(t, g.do("keys", "*"))
		enters := script.Turnover{Alive: alive, Parts: []script.Part{{Enters: aTicket(2, us)}, {}, {}}}
		assert.Equal(t, script.Released{Others: 0b001}, g.releases(script.ReleaseMulti(abc, script.Process{}, enters, script.Fence{})))
		assert.Equal(t, record(ticket(2, us), now+alive), g.do("get", "{a}:queue"))
	})
}

func TestParseEnteredMulti(t *testing.T) {
	parses(t, script.ParseEnteredMulti, map[string]parsed{
		"granted":                   {[]any{int64(0), "0", int64(0), []any{}}, script.Entered{}, false},
		"granted without a queue":   {int64(0), script.Entered{}, false},
		"a number":                  {int64(1), script.Entered{}, true},
		"refused for ever":          {[]any{int64(-1), "0", int64(0), []any{int64(64)}}, script.Entered{Wait: -1, By: 1 << 63}, false},
		"refused by a text":         {[]any{int64(12), "0", int64(0), []any{"1"}}, script.Entered{}, true},
		"refused for a text":        {[]any{"12", "0", int64(0), []any{int64(1)}}, script.Entered{}, true},
		"stored":                    {[]any{int64(0), "7", int64(1), []any{}}, script.Entered{Register: 7, Stored: true}, false},
		"there":                     {[]any{int64(0), "7", int64(2), []any{}}, script.Entered{Register: 7, WasThere: true}, false},
		"taken":                     {[]any{int64(9), "7", int64(0), []any{int64(3), int64(1)}}, script.Entered{Wait: 9, Register: 7, By: 0b101}, false},
		"taken by none":             {[]any{int64(9), "7", int64(0), []any{}}, script.Entered{}, true},
		"taken by one too many":     {[]any{int64(9), "7", int64(0), []any{int64(65)}}, script.Entered{}, true},
		"granted, but not by all":   {[]any{int64(0), "7", int64(1), []any{int64(1)}}, script.Entered{}, true},
		"taken by an index":         {[]any{int64(9), "7", int64(0), int64(3)}, script.Entered{}, true},
		"granted, and no index":     {[]any{int64(0), "7", int64(1), nil}, script.Entered{}, true},
		"a register of letters":     {[]any{int64(0), "abc", int64(1), []any{}}, script.Entered{}, true},
		"nothing done":              {[]any{int64(0), "7", nil, []any{}}, script.Entered{}, true},
		"the answer of one name":    {[]any{int64(0), "7", int64(1)}, script.Entered{}, true},
		"too long":                  {[]any{int64(0), "7", int64(1), int64(0), []any{}}, script.Entered{}, true},
		"too short":                 {[]any{int64(9)}, script.Entered{}, true},
		"a text":                    {"7", script.Entered{}, true},
		"nothing":                   {nil, script.Entered{}, true},
		"the least negative number": {[]any{int64(9), "0", int64(0), []any{int64(math.MinInt64)}}, script.Entered{}, true},
	})
}

func TestParseReleasedMulti(t *testing.T) {
	none := []any{}
	for name, c := range map[string]struct {
		reply any
		want  script.Released
		odd   bool
	}{
		"mine":               {int64(1), script.Released{Found: script.Mine}, false},
		"missing":            {int64(0), script.Released{}, false},
		"another's":          {int64(2), script.Released{Found: script.Other}, false},
		"no such number":     {int64(3), script.Released{}, true},
		"negative":           {int64(-1), script.Released{}, true},
		"names":              {[]any{int64(2), []any{int64(1), int64(64)}, []any{int64(2)}}, script.Released{Found: script.Other, First: 1 | 1<<63, Others: 2}, false},
		"no names":           {[]any{int64(1), none, none}, script.Released{Found: script.Mine}, false},
		"the name 0":         {[]any{int64(1), []any{int64(0)}, none}, script.Released{}, true},
		"the name 65":        {[]any{int64(1), none, []any{int64(65)}}, script.Released{}, true},
		"a text for a name":  {[]any{int64(1), none, []any{"1"}}, script.Released{}, true},
		"a text for names":   {[]any{int64(1), "1", none}, script.Released{}, true},
		"nothing for names":  {[]any{int64(1), none, nil}, script.Released{}, true},
		"a text for found":   {[]any{"1", none, none}, script.Released{}, true},
		"found no such":      {[]any{int64(3), none, none}, script.Released{}, true},
		"too short":          {[]any{int64(1), none}, script.Released{}, true},
		"too long":           {[]any{int64(1), none, none, none}, script.Released{}, true},
		"a text":             {"1", script.Released{}, true},
		"nothing":            {nil, script.Released{}, true},
		"an array in itself": {[]any{[]any{int64(1)}, none, none}, script.Released{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := script.ParseReleasedMulti(c.reply)
			assert.Equal(t, c.want, got)
			assert.Equal(t, c.odd, err != nil, "%v", err)
		})
	}
}

// sends checks a command of a script: its keys and arguments, how many keys it says there are, and its
// encoding. It also checks that the long form differs only in the script.
func sends(t *testing.T, c script.Command, keys, args []string) {
	t.Helper()
	var texts []string
	for _, arg := range c.Args {
		texts = append(texts, fmt.Sprint(arg))
	}
	assert.Equal(t, strconv.Itoa(len(keys)), texts[2])
	assert.Equal(t, keys, texts[3:3+len(keys)])
	assert.Equal(t, args, texts[3+len(keys):])
	assert.Equal(t, c.Args[2:], c.InFull()[2:])
	assert.NotContains(t, c.InFull()[1], "-- include")
	c.WithRESP(func(resp []byte) {
		read, err := proto.ReadStrings(string(resp))
		require.NoError(t, err)
		assert.Equal(t, texts, read)
	})
}

// A command touches the keys of its names and no others, says how many there are, and its long form differs
// in the script alone.
func TestMultiCommands(t *testing.T) {
	names := []string{"a{b}c", "{b}", "b"}
	m := script.NewMulti(names)
	require.Equal(t, names, m.Names())
	require.Empty(t, m.Value())
	other := m.With("v")
	require.Equal(t, "v", other.Value())
	require.Empty(t, m.Value())
	require.Equal(t, names, other.Names())
	locks := []string{"a{b}c", "{b}", "b"}
	queues := []string{"{b}:a{b}c:queue", "{b}:{b}:queue", "{b}:queue"}
	fences := []string{"{b}:a{b}c:fence", "{b}:{b}:fence", "{b}:fence"}
	queued := script.Place{Ticket: aTicket(1, us), Alive: alive, Strict: true}
	empty := script.Turnover{Alive: alive, Parts: make([]script.Part, 3)}
	for name, c := range map[string]struct {
		command script.Command
		keys    []string
		args    []string
	}{
		"enter":                    {script.EnterMulti(other, ttl, script.Place{}, script.Fence{}), locks, []string{"v", "60000", "", "0", "0"}},
		"enter, queued":            {script.EnterMulti(other, ttl, queued, script.Fence{}), slices.Concat(locks, queues), []string{"v", "60000", ticket(1, us), "60000", "1"}},
		"enter, fenced":            {script.EnterMulti(other, ttl, script.Place{}, token(7)), slices.Concat(locks, fences), []string{"v", "60000", "", "0", "0", "7", strconv.Itoa(day)}},
		"enter, queued and fenced": {script.EnterMulti(other, ttl, queued, token(7)), slices.Concat(locks, queues, fences), []string{"v", "60000", ticket(1, us), "60000", "1", "7", strconv.Itoa(day)}},
		"extend":                   {script.ExtendMulti(other, ttl), locks, []string{"v", "60000"}},
		"heal":                     {script.HealMulti(other, ttl), locks, []string{"v", "60000"}},
		"valid":                    {script.ValidMulti(other), locks, []string{"v"}},
		"release":                  {script.ReleaseMulti(other, script.Process{}, script.Turnover{}, script.Fence{}), slices.Concat(locks, queues), []string{"v"}},
		"release, no changes":      {script.ReleaseMulti(other, script.Process{}, empty, script.Fence{}), slices.Concat(locks, queues), []string{"v"}},
		"release, by a process":    {script.ReleaseMulti(other, script.ProcessOf(us), empty, script.Fence{}), slices.Concat(locks, queues), []string{"v", us, "", "0"}},
		"release, fenced":          {script.ReleaseMulti(other, script.Process{}, script.Turnover{}, token(7)), slices.Concat(locks, queues, fences), []string{"v", "", "7", strconv.Itoa(day)}},
		"release, one leaves all":  {script.ReleaseMulti(other, script.Process{}, script.Turnover{Leave: []script.Ticket{aTicket(1, us)}}, script.Fence{}), slices.Concat(locks, queues), []string{"v", "", "", "0", "0", "1", ticket(1, us)}},
		"release, parts": {script.ReleaseMulti(other, script.Process{}, script.Turnover{Alive: alive, Parts: []script.Part{{}, {Enters: aTicket(1, us)}, {Leave: []script.Ticket{aTicket(2, us)}}}}, script.Fence{}), slices.Concat(locks, queues), []string{
			"v", "", "", "0", "60000", "0", "", "0", ticket(1, us), "0", "", "1", ticket(2, us),
		}},
		"quietly":         {script.ReleaseMulti(other, script.Process{}, quietly, script.Fence{}), locks, []string{"v", "-", "", "0"}},
		"quietly, fenced": {script.ReleaseMulti(other, script.Process{}, quietly, token(7)), slices.Concat(locks, fences), []string{"v", "-", "7", strconv.Itoa(day)}},
	} {
		t.Run(name, func(t *testing.T) {
			sends(t, c.command, c.keys, c.args)
		})
	}
}
