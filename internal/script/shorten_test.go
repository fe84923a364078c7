package script_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
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

// The first waiter is told if the key lasts shorter now, because it relies on what it was told before. It is also told
// if the queue changes, and otherwise not.
func TestShortenTellsTheFirstWaiter(t *testing.T) {
	onBoth(t, func(g ground) {
		g.do("set", "lock", "v", "px", ttl)
		g.waits(ticket(1, they), 60_000)
		g.waits(ticket(2, us), 60_000)
		assert.Equal(t, script.Mine+script.Woke, g.shortens("v", 50_000))
		g.heard(they)
		assert.Equal(t, script.Mine, g.shortens("v", 50_000))
		g.heard()
		assert.Equal(t, script.Other, g.shortens("w", 50_000))
		g.heard()
		leaves := script.Turnover{Alive: alive, Leave: []script.Ticket{aTicket(1, they)}}
		assert.Equal(t, script.Mine+script.First, g.run(script.Shorten(script.NewLock("lock", "v"), 50_000, script.ProcessOf(us), leaves, script.Fence{})))
		g.heard()
		g.queue(ticket(2, us))
		enters := script.Turnover{Alive: alive, Enters: aTicket(1, they)}
		assert.Equal(t, script.Mine+script.Woke, g.run(script.Shorten(script.NewLock("lock", "v"), 50_000, script.ProcessOf(us), enters, script.Fence{})))
		g.heard(they)
		g.queue(ticket(1, they), ticket(2, us))
		g.do("del", "lock")
		assert.Equal(t, script.Missing+script.Woke, g.shortens("v", 50_000), "the lock is free")
		g.heard(they)
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
		"all":                          {nil, false, []int64{1000, 1000, 1000}},
		"only to get and shorten":      {[]any{"-@all", "+get", "+pttl", "+pexpire", "+eval"}, false, []int64{1000, 1000, 1000}},
		"not to ask for the TTL":       {[]any{"-pttl"}, true, []int64{ttl, ttl, ttl}},
		"not to shorten":               {[]any{"-pexpire"}, true, []int64{ttl, ttl, ttl}},
		"to shorten two of three":      {[]any{"-pexpire", "(+pexpire ~a ~c)"}, true, []int64{1000, ttl, 1000}},
		"not to look at the queues":    {[]any{"-get", "(+get ~? ~{?}:fence)"}, false, []int64{1000, 1000, 1000}},
		"not to read one of the three": {[]any{"-get", "(+get ~b ~c)"}, true, []int64{ttl, 1000, 1000}},
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

// A key of another type keeps no other from being shortened.
func TestShortenBesideAKeyOfAnotherType(t *testing.T) {
	onBoth(t, func(g ground) {
		g.entersMulti(abc, script.Place{}, script.Fence{})
		g.do("del", "b")
		g.do("rpush", "b", "x")
		g.do("pexpire", "b", ttl)
		g.refuses(script.ShortenMulti(abc, 1000, script.Process{}, quietly, script.Fence{}), "WRONGTYPE")
		assert.LessOrEqual(t, g.do("pttl", "a"), int64(1000))
		assert.Equal(t, "x", g.do("lindex", "b", 0))
		assert.LessOrEqual(t, g.do("pttl", "c"), int64(1000))
	})
}

// The commands execute no more Redis commands than these.
func TestShortenExecutesNoNeedlessCommands(t *testing.T) {
	set := func(g ground) { g.do("set", "lock", "v", "px", ttl) }
	lock := script.NewLock("lock", "v")
	executes(t, map[string]execution{
		"shorter":  {set, script.Shorten(lock, 1000, script.Process{}, script.Turnover{}, script.Fence{}), int64(1), map[string]int{"get": 2, "pexpire": 1, "pttl": 1, "strlen": 2}},
		"as it is": {set, script.Shorten(lock, ttl, script.Process{}, script.Turnover{}, script.Fence{}), int64(1), map[string]int{"get": 1, "pttl": 1, "strlen": 1}},
		"quietly":  {set, script.Shorten(lock, 1000, script.Process{}, quietly, script.Fence{}), int64(1), map[string]int{"get": 1, "pexpire": 1, "pttl": 1, "strlen": 1}},
	})
}

// A command touches the keys of its locks and no others, and says what they are.
func TestShortenCommands(t *testing.T) {
	day := strconv.Itoa(day)
	lock, m := script.NewLock("lock", "v"), script.NewMulti([]string{"a", "b"}).With("v")
	locks, queues := []string{"a", "b"}, []string{"{a}:queue", "{b}:queue"}
	semaphore := script.NewSemaphore("s", 3)
	slotQueue := semaphore.Queue()
	for name, c := range map[string]struct {
		command script.Command
		keys    []string
		args    []string
	}{
		"lock":           {script.Shorten(lock, 9, script.Process{}, script.Turnover{}, script.Fence{}), []string{"lock", "{lock}:queue"}, []string{"v", "9", "1", "1", "", "", "0"}},
		"lock, in full":  {script.Shorten(lock, 9, script.ProcessOf(us), script.Turnover{Enters: aTicket(1, us), Alive: alive, Leave: []script.Ticket{aTicket(2, us)}}, token(7)), []string{"lock", "{lock}:queue", "{lock}:fence"}, []string{"v", "9", "1", "1", us, "7", day, "60000", "1", ticket(2, us), ticket(1, us), "0"}},
		"lock, quietly":  {script.Shorten(lock, 9, script.Process{}, quietly, token(7)), []string{"lock", "{lock}:fence"}, []string{"v", "9", "1", "0", "", "7", day}},
		"names":          {script.ShortenMulti(m, 9, script.Process{}, script.Turnover{}, script.Fence{}), slices.Concat(locks, queues), []string{"v", "9", "2", "2", "", "", "0"}},
		"names, parts":   {script.ShortenMulti(m, 9, script.Process{}, script.Turnover{Alive: alive, Parts: []script.Part{{}, {Enters: aTicket(1, us)}}}, script.Fence{}), slices.Concat(locks, queues), []string{"v", "9", "2", "2", "", "", "0", "60000", "0", "", "0", ticket(1, us), "0"}},
		"names, quietly": {script.ShortenMulti(m, 9, script.Process{}, quietly, script.Fence{}), locks, []string{"v", "9", "2", "0", "", "", "0"}},
		"slot":           {script.ShortenSlot(semaphore, semaphore.Lock(1, "v"), 9, script.ProcessOf(us), script.Turnover{}), []string{"{s}:slot:1", slotQueue}, []string{"v", "9", "1", "1", us, "", "0"}},
		"slots":          {script.ShortenSlots(semaphore, slots(0, 2), "v", 9, script.Process{}, script.Turnover{}), []string{"{s}:slot:0", "{s}:slot:2", slotQueue}, []string{"v", "9", "2", "1", "", "", "0"}},
		"slots, quietly": {script.ShortenSlots(semaphore, slots(0, 2), "v", 9, script.Process{}, quietly), []string{"{s}:slot:0", "{s}:slot:2"}, []string{"v", "9", "2", "0", "", "", "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			sends(t, c.command, c.keys, c.args)
		})
	}
}

// Each slot that has the value is shortened by itself, and none is prolonged. The reply is Missing if a slot
// is free, and Other if a slot has another value.
func TestShortenSlotsProlongsNone(t *testing.T) {
	g := ground{T: t, client: realredis.Start(t, 1)[0].Client()}
	g.do("set", slot(0), "v", "px", ttl)
	g.do("set", slot(2), "v", "px", 1000)
	lock := script.NewSemaphore("lock", 3)
	assert.Equal(t, script.Mine, g.run(script.ShortenSlots(lock, slots(0, 2), "v", 500_000, script.Process{}, script.Turnover{})))
	assert.Equal(t, script.Mine, g.run(script.ShortenSlots(lock, slots(0, 2), "v", 2000, script.Process{}, script.Turnover{})))
	assert.InDelta(t, 2000, g.do("pttl", slot(0)), 1000)
	assert.LessOrEqual(t, g.do("pttl", slot(2)), int64(1000))
	assert.Equal(t, script.Missing, g.run(script.ShortenSlots(lock, slots(0, 1), "v", 2000, script.Process{}, script.Turnover{})))
	g.do("set", slot(1), "w", "px", ttl)
	assert.Equal(t, script.Other, g.run(script.ShortenSlots(lock, slots(0, 1), "v", 2000, script.Process{}, script.Turnover{})))
}
