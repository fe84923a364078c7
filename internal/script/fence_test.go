package script_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file tests what enter and release do with the fencing register of a lock, on one node.

const (
	day   = 24 * 60 * 60 * 1000 // milliseconds
	fence = "{lock}:fence"
)

func token(n uint64) script.Fence { return script.Fence{Token: n, TTL: day} }

// enters runs the script that enters, with a fence and a ticket ("" for none), and returns its parsed reply.
func (g ground) enters(value, ticket string, strict bool, f script.Fence) script.Entered {
	g.Helper()
	place := script.Place{Alive: alive, Strict: strict}
	if ticket != "" {
		place.Ticket = script.TicketOf(ticket)
	}
	reply := g.do(script.Enter(script.NewLock("lock", value), ttl, place, f).InFull()...)
	g.expires()
	entered, err := script.ParseEntered(reply)
	require.NoError(g, err)
	return entered
}

// register sets the register to n, for a minute, unless n is "".
func (g ground) register(n string) {
	if n != "" {
		g.do("set", fence, n, "px", ttl)
	}
}

// isAt checks that the register is at n, and lasts for a day from now.
func (g ground) isAt(n string) {
	g.Helper()
	assert.Equal(g, n, g.do("get", fence))
	assert.InDelta(g, day, g.do("pttl", fence), 5000)
}

// registers are cases for both enter and release: which token raises which register.
var registers = map[string]struct {
	register string
	token    uint64
	raised   bool
}{
	"none":                           {"", 7, true},
	"none, the least token":          {"", 1, true},
	"lower":                          {"6", 7, true},
	"equal":                          {"7", 7, false},
	"higher":                         {"8", 7, false},
	"shorter, though later as text":  {"9", 10, true},
	"longer, though earlier as text": {"10", 9, false},
	"much longer":                    {"1763000000000000", 999, false},
	"beyond 2^53, by one":            {"9007199254740992", 9007199254740993, true},
	"beyond 2^53, equal":             {"9007199254740993", 9007199254740993, false},
	"beyond 2^53, below by one":      {"9007199254740993", 9007199254740992, false},
	"the last but one":               {"18446744073709551614", math.MaxUint64, true},
	"the last":                       {"18446744073709551615", math.MaxUint64, false},
	"the last, one less":             {"18446744073709551615", math.MaxUint64 - 1, false},
	"the first of its length":        {"99999", 100000, true},
	"the same but for the end":       {"123456789012345", 123456789012346, true},
}

func TestEnterRaisesTheRegister(t *testing.T) {
	for name, c := range registers {
		for place, ticket := range map[string]string{"without a ticket": "", "with a ticket": ticket(1, us)} {
			for _, wasThere := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, there before %v", name, place, wasThere), func(t *testing.T) {
					onBoth(t, func(g ground) {
						g.register(c.register)
						if wasThere {
							g.do("set", "lock", "v", "px", 5000)
						}
						want := script.Entered{Wait: script.Granted, Stored: c.raised, WasThere: wasThere}
						left := c.register
						if c.raised {
							left = fmt.Sprint(c.token)
						}
						_, err := fmt.Sscan(left, &want.Register)
						require.NoError(t, err)
						assert.Equal(t, want, g.enters("v", ticket, true, token(c.token)))
						g.isAt(left)
						assert.Equal(t, "v", g.do("get", "lock"))
						if wasThere {
							assert.LessOrEqual(t, g.do("pttl", "lock"), int64(5000), "it is not prolonged")
						} else {
							assert.InDelta(t, ttl, g.do("pttl", "lock"), 5000)
						}
						if ticket == "" {
							g.queue()
						} else {
							g.queue(ticket)
						}
						assert.Empty(t, g.do("keys", "*:fence:*"))
					})
				})
			}
		}
	}
}

// If enter does not grant the lock, it returns the register, but does not change it.
func TestEnterLeavesTheRegisterOfALockThatItDoesNotGet(t *testing.T) {
	others := func(g ground) { g.do("set", "lock", "w", "px", 60_000) }
	for name, c := range map[string]struct {
		before      func(g ground)
		ticket      string
		register    string
		least, most int64
	}{
		"taken":                        {others, "", "5", 50_000, 60_000},
		"taken, no register":           {others, "", "", 50_000, 60_000},
		"taken, a higher register":     {others, "", "12", 50_000, 60_000},
		"taken, with a ticket":         {others, ticket(1, us), "5", 50_000, 60_000},
		"taken, a ticket, no register": {others, ticket(1, us), "", 50_000, 60_000},
		"behind another process":       {func(g ground) { g.waits(ticket(1, they), 50_000) }, ticket(2, us), "5", 40_000, 50_000},
		"behind another, no register":  {func(g ground) { g.waits(ticket(1, they), 50_000) }, ticket(2, us), "", 40_000, 50_000},
		"behind another, a higher one": {func(g ground) { g.waits(ticket(1, they), 50_000) }, ticket(2, us), "12", 40_000, 50_000},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(g ground) {
				c.before(g)
				g.register(c.register)
				e := g.enters("v", c.ticket, true, token(7))
				assert.GreaterOrEqual(t, e.Wait, c.least)
				assert.LessOrEqual(t, e.Wait, c.most)
				assert.False(t, e.Stored)
				assert.False(t, e.WasThere)
				if c.register == "" {
					assert.Zero(t, e.Register)
					assert.Nil(t, g.do("get", fence))
					return
				}
				assert.Equal(t, c.register, fmt.Sprint(e.Register))
				assert.Equal(t, c.register, g.do("get", fence))
				assert.LessOrEqual(t, g.do("pttl", fence), int64(ttl), "only a use keeps it")
			})
		})
	}
}

func TestEnterWhereTheLockNeverEndsTellsTheRegister(t *testing.T) {
	onBoth(t, func(g ground) {
		g.do("set", "forever", "w")
		g.do("set", "{forever}:fence", "5", "px", ttl)
		reply := g.do(script.Enter(script.NewLock("forever", "v"), ttl, script.Place{}, token(7)).InFull()...)
		assert.Equal(t, []any{int64(-1), "5", int64(0)}, reply)
	})
}

// With a fence, a lock that has the caller's value already is granted, even if another process is the first in
// the queue.
func TestEnterAgainPassesTheQueue(t *testing.T) {
	onBoth(t, func(g ground) {
		mine := ticket(5, us)
		require.True(t, g.enters("v", mine, true, token(7)).Stored)
		g.waits(ticket(1, they), 60_000)
		assert.Equal(t, script.Entered{Register: 9, Stored: true, WasThere: true}, g.enters("v", mine, true, token(9)))
		assert.Equal(t, script.Entered{Register: 9, WasThere: true}, g.enters("v", mine, true, token(9)))
		g.queue(ticket(1, they), mine)
		g.isAt("9")
	})
}

// Without a fence, enter neither returns the register nor changes it.
func TestEnterWithoutAFenceLeavesTheRegister(t *testing.T) {
	onBoth(t, func(g ground) {
		g.register("5")
		for _, ticket := range []string{"", ticket(1, us)} {
			g.do("del", "lock")
			assert.Equal(t, script.Entered{}, g.enters("v", ticket, false, script.Fence{}))
			assert.Equal(t, "5", g.do("get", fence))
			assert.LessOrEqual(t, g.do("pttl", fence), int64(ttl))
			// Without a fence, a lock that has the caller's value counts as taken.
			assert.Positive(t, g.enters("v", ticket, false, script.Fence{}).Wait)
		}
	})
}

func TestReleaseRaisesTheRegister(t *testing.T) {
	lock := script.NewLock("lock", "v")
	forms := map[string]func(f script.Fence) script.Command{
		"in full": func(f script.Fence) script.Command {
			return script.Release(lock, script.ProcessOf(us), script.Turnover{}, f)
		},
		"a ticket leaves": func(f script.Fence) script.Command {
			return script.Release(lock, script.ProcessOf(us), script.Turnover{Leave: []script.Ticket{aTicket(1, us)}}, f)
		},
		"a ticket enters": func(f script.Fence) script.Command {
			return script.Release(lock, script.ProcessOf(us), script.Turnover{Enters: aTicket(9, us), Alive: alive, Leave: []script.Ticket{aTicket(1, us)}}, f)
		},
		"quietly": func(f script.Fence) script.Command { return script.Release(lock, script.Process{}, quietly, f) },
	}
	for name, c := range registers {
		for form, release := range forms {
			t.Run(name+", "+form, func(t *testing.T) {
				onBoth(t, func(g ground) {
					for value, want := range map[string]int64{"v": script.Mine, "": script.Missing, "w": script.Other} {
						g.do("flushall")
						g.register(c.register)
						g.waits(ticket(1, us), 60_000)
						if value != "" {
							g.do("set", "lock", value, "px", ttl)
						}
						found := g.run(release(token(c.token))) &^ (script.Woke | script.First | script.Others)
						assert.Equal(t, want, found)
						if c.raised {
							g.isAt(fmt.Sprint(c.token))
						} else {
							assert.Equal(t, c.register, g.do("get", fence))
						}
						if value == "w" {
							assert.Equal(t, "w", g.do("get", "lock"))
						} else {
							assert.Nil(t, g.do("get", "lock"))
						}
						switch form {
						case "a ticket leaves":
							g.queue()
						case "a ticket enters":
							g.queue(ticket(9, us))
						default:
							g.queue(ticket(1, us))
						}
					}
				})
			})
		}
	}
}

// A release with a fence also tells the next waiter.
func TestReleaseWithAFenceWakes(t *testing.T) {
	onBoth(t, func(g ground) {
		g.do("set", "lock", "v", "px", ttl)
		g.waits(ticket(2, they), 60_000)
		release := script.Release(script.NewLock("lock", "v"), script.ProcessOf(us), script.Turnover{Leave: []script.Ticket{aTicket(1, us)}}, token(7))
		assert.Equal(t, script.Mine+script.Woke, g.run(release))
		g.heard(they)
		g.isAt("7")
	})
}

// If the register is of another type, an acquire fails before it has done anything. A release still releases.
func TestFenceBesideAKeyOfAnotherType(t *testing.T) {
	onBoth(t, func(g ground) {
		g.do("rpush", fence, "x")
		g.do("pexpire", fence, ttl)
		_, err := g.client.Do(t.Context(), script.Enter(script.NewLock("lock", "v"), ttl, script.Place{}, token(7)).InFull()...).Result()
		require.ErrorContains(t, err, "WRONGTYPE the fencing register "+fence+" is a list")
		assert.Nil(t, g.do("get", "lock"))
		for _, release := range []script.Command{
			script.Release(script.NewLock("lock", "v"), script.ProcessOf(us), script.Turnover{}, token(7)),
			script.Release(script.NewLock("lock", "v"), script.Process{}, quietly, token(7)),
		} {
			g.do("set", "lock", "v", "px", ttl)
			assert.Equal(t, script.Mine, g.run(release))
			assert.Nil(t, g.do("get", "lock"))
			assert.Equal(t, "list", g.do("type", fence))
		}
	})
}

func TestParseEntered(t *testing.T) {
	parses(t, script.ParseEntered, map[string]parsed{
		"granted":                 {int64(0), script.Entered{}, false},
		"refused":                 {int64(12), script.Entered{Wait: 12}, false},
		"refused for ever":        {int64(-1), script.Entered{Wait: -1}, false},
		"stored":                  {[]any{int64(0), "7", int64(1)}, script.Entered{Register: 7, Stored: true}, false},
		"there":                   {[]any{int64(0), "7", int64(2)}, script.Entered{Register: 7, WasThere: true}, false},
		"both":                    {[]any{int64(0), "18446744073709551615", int64(3)}, script.Entered{Register: math.MaxUint64, Stored: true, WasThere: true}, false},
		"taken":                   {[]any{int64(9), "0", int64(0)}, script.Entered{Wait: 9}, false},
		"a register beyond all":   {[]any{int64(0), "18446744073709551616", int64(0)}, script.Entered{}, true},
		"a register of letters":   {[]any{int64(0), "abc", int64(0)}, script.Entered{}, true},
		"a negative register":     {[]any{int64(0), "-1", int64(0)}, script.Entered{}, true},
		"an empty register":       {[]any{int64(0), "", int64(0)}, script.Entered{}, true},
		"a register in no string": {[]any{int64(0), int64(7), int64(0)}, script.Entered{}, true},
		"no wait":                 {[]any{nil, "7", int64(0)}, script.Entered{}, true},
		"nothing done":            {[]any{int64(0), "7", nil}, script.Entered{}, true},
		"too short":               {[]any{int64(0), "7"}, script.Entered{}, true},
		"too long":                {[]any{int64(0), "7", int64(1), int64(1)}, script.Entered{}, true},
		"a text":                  {"7", script.Entered{}, true},
		"nothing":                 {nil, script.Entered{}, true},
	})
}

// A parsed is a reply to an acquire, and what it says. odd means that it must be read as an error.
type parsed struct {
	reply any
	want  script.Entered
	odd   bool
}

// parses checks what parse makes of replies, and that the error for an odd reply describes the reply.
func parses(t *testing.T, parse func(reply any) (script.Entered, error), replies map[string]parsed) {
	t.Helper()
	for name, c := range replies {
		t.Run(name, func(t *testing.T) {
			got, err := parse(c.reply)
			assert.Equal(t, c.want, got)
			assert.Equal(t, c.odd, err != nil, "%v", err)
			if c.odd {
				assert.ErrorContains(t, err, script.Describe(c.reply))
			}
		})
	}
}

// The scripts find the register by its place: it is the last key.
func TestFenceIsTheLastKey(t *testing.T) {
	lock := script.NewLock("a{b}c", "v")
	for name, c := range map[string]struct {
		command script.Command
		keys    []any
	}{
		"enter":                {script.Enter(lock, ttl, script.Place{}, token(7)), []any{"a{b}c", "{b}:a{b}c:fence"}},
		"enter, with a ticket": {script.Enter(lock, ttl, script.Place{Ticket: script.TicketOf("t")}, token(7)), []any{"a{b}c", "{b}:a{b}c:queue", "{b}:a{b}c:fence"}},
		"enter, no fence":      {script.Enter(lock, ttl, script.Place{}, script.Fence{}), []any{"a{b}c"}},
		"release":              {script.Release(lock, script.ProcessOf(us), script.Turnover{}, token(7)), []any{"a{b}c", "{b}:a{b}c:queue", "{b}:a{b}c:fence"}},
		"release, no fence":    {script.Release(lock, script.ProcessOf(us), script.Turnover{}, script.Fence{}), []any{"a{b}c", "{b}:a{b}c:queue"}},
		"quietly":              {script.Release(lock, script.Process{}, quietly, token(7)), []any{"a{b}c", "{b}:a{b}c:fence"}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, len(c.keys), c.command.Args[2])
			assert.Equal(t, c.keys, c.command.Args[3:3+len(c.keys)])
		})
	}
}
