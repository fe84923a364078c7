package script_test

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
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

// These tests show what the scripts of readers do on one node, rule by rule.

// of returns the lock of a value.
func of(value string) script.Lock { return script.NewLock("lock", value) }

// reads runs the script by which a reader enters, with the name of a ticket ("" for none), and returns its parsed reply.
func (g ground) reads(value, name string, f script.Fence) script.Entered {
	g.Helper()
	var ticket string
	if name != "" {
		ticket = ticketOf(name)
	}
	reply := g.do(script.EnterShared(of(value), ttl, script.Place{Ticket: script.TicketOf(ticket), Alive: alive}, f).InFull()...)
	g.expires()
	e, err := script.ParseEnteredShared(reply)
	require.NoError(g, err)
	return e
}

// holders returns the values of the readers that hold the lock, in order.
func (g ground) holders() (values []string) {
	g.Helper()
	text, _ := g.do("get", "lock").(string)
	for i, line := range strings.Split(text, "\n") {
		if len(line) >= 14 && i > 0 {
			values = append(values, line[:len(line)-14])
		}
	}
	return values
}

func (g ground) unreads(value, process string) int64 {
	g.Helper()
	return g.run(script.ReleaseShared(of(value), script.ProcessOf(process), script.Turnover{}, script.Fence{}))
}

func TestReadersShareTheLock(t *testing.T) {
	onBoth(t, func(g ground) {
		assert.Equal(t, script.Entered{}, g.reads("v", "", script.Fence{}))
		assert.Equal(t, script.Entered{}, g.reads("w", "", script.Fence{}))
		assert.Equal(t, script.Entered{WasThere: true}, g.reads("v", "", script.Fence{}))
		assert.Equal(t, []string{"v", "w"}, g.holders())
		assert.InDelta(t, ttl, g.do("pttl", "lock"), 5000)
		assert.Regexp(t, `^readers\nv \d{13}\nw \d{13}\n$`, g.do("get", "lock"))

		assert.Positive(t, g.enter("lock", "x", ticket(1, us), false))
		assert.Nil(t, g.do(script.Acquire(of("x"), ttl).InFull()...))
		assert.Equal(t, script.Other, g.run(script.Valid(of("v"))), "to a writer, readers are another value")
		assert.Equal(t, script.Mine, g.run(script.ValidShared(of("v"))))
		assert.Equal(t, script.Missing, g.run(script.ValidShared(of("x"))))

		assert.Equal(t, script.Mine, g.unreads("v", us))
		assert.Equal(t, script.Missing, g.unreads("v", us))
		assert.Equal(t, []string{"w"}, g.holders())
		assert.Empty(t, g.told())
		assert.Equal(t, script.Mine+script.Woke, g.unreads("w", they), "the last one tells the writer")
		assert.Nil(t, g.do("get", "lock"))
		assert.Equal(t, "us", g.told())
	})
}

// Waiting writers keep a reader back: all of them if it has no ticket, otherwise those of other processes
// that stand before it.
func TestReaderWaitsForExclusiveTickets(t *testing.T) {
	for name, c := range map[string]struct {
		line, ticket string // "" for none
		lets         bool
	}{
		"readers wait":                       {"they1r they6r", "us5r", true},
		"a writer behind readers, no ticket": {"they1r they9", "", false},
		"our writer waits, no ticket":        {"us9", "", false},
		"a writer before":                    {"they1", "us5r", false},
		"a writer behind":                    {"they9", "us5r", true},
		"our writer before":                  {"us1", "us5r", true},
		"another's writer of a lower class":  {"-they1", "us5r", true},
		"another's writer of a higher class": {"+they9", "us5r", false},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(g ground) {
				g.line(queueKey, c.line)
				e := g.reads("v", c.ticket, script.Fence{})
				assert.Equal(t, c.lets, slices.Contains(g.holders(), "v"))
				if c.lets {
					assert.Zero(t, e.Wait)
				} else {
					assert.InDelta(t, 60_000, e.Wait, 5000)
				}
				assert.Empty(t, g.told())
			})
		})
	}
}

// A key lasts until the last deadline in it, to the millisecond, whatever happens to the other readers.
func TestReadersKeyLastsAsLongAsTheLastReader(t *testing.T) {
	long, short := of("long"), of("short")
	bubble(t, func(t *testing.T, n *embedded.Node, c *redis.Client) {
		g := ground{T: t, client: c}
		start := time.Now()
		lasts := func(value string, ms int64, records string) {
			t.Helper()
			text, _ := n.Get("lock")
			assert.Equal(t, records, text)
			assert.Equal(t, time.Duration(ms)*time.Millisecond, n.TTL("lock")+time.Since(start), value)
		}
		at := func(value string, ms int64) string { return fmt.Sprintf("%s %013d\n", value, start.UnixMilli()+ms) }
		enter := func(l script.Lock, ttl int64) { g.run(script.EnterShared(l, ttl, script.Place{}, script.Fence{})) }
		enter(long, 9000)
		time.Sleep(10 * time.Millisecond)
		enter(short, 1000)
		lasts("enter", 9000, "readers\n"+at("short", 1010)+at("long", 9000))
		time.Sleep(10 * time.Millisecond)
		g.run(script.ExtendShared(short, 2000))
		lasts("extend", 9000, "readers\n"+at("short", 2020)+at("long", 9000))
		g.run(script.ExtendShared(short, 500))
		lasts("extend for less", 9000, "readers\n"+at("short", 2020)+at("long", 9000))
		g.run(script.ExtendShared(long, 20_000))
		lasts("extend the last", 20_020, "readers\n"+at("short", 2020)+at("long", 20_020))
		g.run(script.ReleaseShared(long, script.Process{}, quietly, script.Fence{}))
		lasts("release the last", 2020, "readers\n"+at("short", 2020))
		time.Sleep(1999 * time.Millisecond)
		assert.Equal(t, script.Mine, g.run(script.ValidShared(short)))
		g.run(script.HealShared(long, 3000))
		lasts("heal", 5019, "readers\n"+at("short", 2020)+at("long", 5019))
		time.Sleep(time.Millisecond)
		assert.Equal(t, script.Missing, g.run(script.ValidShared(short)), "its deadline is now")
		assert.Equal(t, script.Missing, g.run(script.ExtendShared(short, 9000)))
		lasts("a reader is gone", 5019, "readers\n"+at("short", 2020)+at("long", 5019))
		enter(of("new"), 1000)
		lasts("enter beside one that is gone", 5019, "readers\n"+at("new", 3020)+at("long", 5019))
		time.Sleep(2999 * time.Millisecond)
		assert.False(t, n.Exists("lock"))
	})
}

// The key expires by itself at the last deadline.
func TestReadersKeyRunsOutAtTheDeadline(t *testing.T) {
	g := ground{T: t, client: realredis.Start(t, 1)[0].Client()}
	if err := g.client.PExpireTime(t.Context(), "lock").Err(); err != nil && strings.Contains(err.Error(), "unknown command") {
		t.Skip("this server does not tell when a key expires")
	}
	for i := range 20 {
		g.reads(strconv.Itoa(i), "", script.Fence{})
		text := g.do("get", "lock").(string)
		last, err := strconv.ParseInt(text[len(text)-14:len(text)-1], 10, 64)
		require.NoError(t, err)
		assert.Equal(t, last, g.do("pexpiretime", "lock"))
	}
}

// A deadline that would need more than 13 digits becomes the greatest of 13 digits.
func TestReaderForALongTime(t *testing.T) {
	onBoth(t, func(g ground) {
		g.run(script.EnterShared(of("v"), math.MaxInt64/1_000_000, script.Place{}, script.Fence{}))
		g.reads("w", "", script.Fence{})
		assert.Equal(t, []string{"w", "v"}, g.holders())
		assert.Contains(t, g.do("get", "lock"), "v 9999999999999\n")
		assert.Equal(t, script.Mine, g.run(script.ValidShared(of("v"))))
	})
}

func TestDowngrade(t *testing.T) {
	for name, c := range map[string]struct {
		line, process string
		want          int64
		left, told    string
	}{
		"the writer's tickets leave":         {"us1 us2", us, script.Mine, "", ""},
		"our reader, then a writer":          {"us1 us3r they4", us, script.Mine + script.First + script.Others, "us3r they4", ""},
		"a reader, ours, a writer, a reader": {"us1 they3r us4r us5 they6r", us, script.Mine + script.Woke + script.First, "they3r us4r us5 they6r", "they"},
		"readers of two processes":           {"they3r us4r they5", "", script.Mine + script.Woke, "they3r us4r they5", "they us"},
		"a writer before a reader":           {"they3 they4r", us, script.Mine, "they3 they4r", ""},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(g ground) {
				g.do("set", "lock", "v", "px", 2*ttl)
				g.line(queueKey, c.line)
				down := script.Downgrade{Process: script.ProcessOf(c.process), Leave: leaving("us1 us2")}
				assert.Equal(t, c.want, g.run(down.Extend(of("v"), ttl, false)))
				assert.Equal(t, []string{"v"}, g.holders())
				assert.InDelta(t, 2*ttl, g.do("pttl", "lock"), 5000, "it is not shortened")
				assert.Equal(t, c.left, g.lined(queueKey))
				assert.Equal(t, c.told, g.told())
				assert.Equal(t, script.Mine, g.run(down.Extend(of("v"), ttl, false)), "again")
				assert.Empty(t, g.told())
			})
		})
	}
}

// On a node that the downgrade has not reached, these commands find the value in the writer's form.
func TestBeforeTheDowngradeArrives(t *testing.T) {
	onBoth(t, func(g ground) {
		for name, c := range map[string]struct {
			command script.Command
			want    int64
			left    string
		}{
			"valid":           {script.ValidShared(of("v")), script.Mine, `^v$`},
			"extend":          {script.ExtendShared(of("v"), ttl), script.Mine, `^readers\nv \d+\n$`},
			"heal":            {script.HealShared(of("v"), ttl), script.Mine, `^readers\nv \d+\n$`},
			"downgrade":       {script.Downgrade{}.Extend(of("v"), ttl, false), script.Mine + script.Woke, `^readers\nv \d+\n$`},
			"blind downgrade": {script.Downgrade{Blind: true}.Extend(of("v"), ttl, false), script.Mine, `^readers\nv \d+\n$`},
			"release":         {script.ReleaseShared(of("v"), script.Process{}, script.Turnover{}, script.Fence{}), script.Mine + script.Woke, `^<nil>$`},
			"quietly":         {script.ReleaseShared(of("v"), script.Process{}, quietly, script.Fence{}), script.Mine, `^<nil>$`},
		} {
			g.do("flushall")
			g.line(queueKey, "they1r")
			g.do("set", "lock", "v", "px", ttl/2)
			assert.Equal(t, c.want, g.run(c.command), name)
			assert.Regexp(t, c.left, fmt.Sprint(g.do("get", "lock")), name)
		}
		g.do("flushall")
		assert.Equal(t, script.Missing, g.run(script.Downgrade{}.Extend(of("v"), ttl, false)))
		assert.Equal(t, script.Created, g.run(script.Downgrade{}.Extend(of("v"), ttl, true)))
		g.do("set", "lock", "w", "px", ttl)
		assert.Equal(t, script.Other, g.run(script.Downgrade{}.Extend(of("v"), ttl, true)))
	})
}

// A writer's release tells all readers that lead the queue.
func TestReleaseTellsTheLeadingReaders(t *testing.T) {
	onBoth(t, func(g ground) {
		for _, release := range []script.Command{
			script.Release(of("v"), script.Process{}, script.Turnover{}, script.Fence{}),
			script.Release(of("w"), script.Process{}, script.Turnover{}, script.Fence{}),
			script.ReleaseShared(of("w"), script.Process{}, script.Turnover{}, script.Fence{}),
		} {
			g.line(queueKey, "they1r us2r they3r us4 us5r")
			want := script.Missing
			if release.Args[len(release.Args)-1] == "v" {
				g.do("set", "lock", "v", "px", ttl)
				want = script.Mine
			}
			assert.Equal(t, want+script.Woke, g.run(release))
			assert.Equal(t, "they us", g.told())
		}
	})
}

// Two tickets that differ only in their kind are the same ticket.
func TestKindsOfTickets(t *testing.T) {
	mine := script.NewTicket(0, 77, script.ProcessOf(us), 5)
	read := mine.Shared()
	assert.Len(t, mine.String(), 49)
	assert.Equal(t, mine.String()+"r", read.String())
	assert.True(t, read.IsShared())
	assert.False(t, mine.IsShared())
	assert.Equal(t, read, read.Shared())
	assert.True(t, script.Ticket{}.Shared().IsZero())
}

// A value may be the beginning of another one, look like a record, or contain characters that a Lua pattern
// treats specially.
func TestValuesOfReaders(t *testing.T) {
	values := []string{"v", "v 1234567890123", "v 1234567890123 1234567890123", " ", "", "%d", "%", ".*", "\x00", "v\r", "readers", strings.Repeat("x", 3000)}
	onBoth(t, func(g ground) {
		for _, value := range values {
			assert.Equal(t, script.Missing, g.run(script.ValidShared(of(value))), "%.50q", value)
			assert.Equal(t, script.Entered{}, g.reads(value, "", script.Fence{}), "%.50q", value)
		}
		assert.Equal(t, values[:len(values)-1], slices.DeleteFunc(g.holders(), func(v string) bool { return len(v) > 1000 }))
		for i, value := range values {
			assert.Equal(t, script.Mine, g.run(script.ValidShared(of(value))), "%.50q", value)
			assert.Equal(t, script.Mine, g.run(script.ExtendShared(of(value), 2*ttl)), "%.50q", value)
			assert.Equal(t, script.Mine, g.unreads(value, us), "%.50q", value)
			assert.Len(t, g.holders(), len(values)-1-i, "%.50q", value)
		}
		assert.Nil(t, g.do("get", "lock"))
	})
	for value, may := range map[string][2]bool{
		"": {true, true}, "v": {true, true}, "readers": {true, true}, "v\n": {true, false}, "\nreaders\n": {true, false}, "readers\n": {false, false}, "readers\nv": {false, false},
	} {
		assert.Equal(t, may, [2]bool{script.MayBeValue(value, false), script.MayBeValue(value, true)}, "%q", value)
	}
}

// These are the scripts of redsync v4, and its acquire.
const (
	redsyncDelete = `
	local val = redis.call("GET", KEYS[1])
	if val == ARGV[1] then
		return redis.call("DEL", KEYS[1])
	elseif val == false then
		return -1
	else
		return 0
	end`
	redsyncTouchWithSetNX = `
	if redis.call("GET", KEYS[1]) == ARGV[1] then
		return redis.call("PEXPIRE", KEYS[1], ARGV[2])
	elseif redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2], "NX") then
		return 1
	else
		return 0
	end`
	redsyncTouch = `
	if redis.call("GET", KEYS[1]) == ARGV[1] then
		return redis.call("PEXPIRE", KEYS[1], ARGV[2])
	else
		return 0
	end`
)

// To redsync v4 the key of readers holds the value of another client. It does not change the key.
func TestReadersBesideRedsync(t *testing.T) {
	onBoth(t, func(g ground) {
		g.reads("v", "", script.Fence{})
		g.reads("w", "", script.Fence{})
		before := g.do("get", "lock")
		for _, value := range []string{"v", "w", "x"} {
			assert.Equal(t, int64(0), g.do("eval", redsyncDelete, 1, "lock", value))
			assert.Equal(t, int64(0), g.do("eval", redsyncTouch, 1, "lock", value, 2*ttl))
			assert.Equal(t, int64(0), g.do("eval", redsyncTouchWithSetNX, 1, "lock", value, 2*ttl))
			assert.Nil(t, g.do("set", "lock", value, "nx", "px", 2*ttl))
		}
		assert.Equal(t, before, g.do("get", "lock"))
		assert.InDelta(t, ttl, g.do("pttl", "lock"), 5000)
		g.unreads("v", us)
		g.unreads("w", us)
		assert.Equal(t, "OK", g.do("set", "lock", "x", "nx", "px", ttl))
		assert.Positive(t, g.reads("v", "", script.Fence{}).Wait)
		assert.Equal(t, int64(1), g.do("eval", redsyncDelete, 1, "lock", "x"))
		assert.Zero(t, g.reads("v", "", script.Fence{}).Wait)
	})
}

// restrictedReaders does what restricted does. The node then has nothing but a queue of the lock, in which a
// writer of another process waits.
func restrictedReaders(t *testing.T, rules ...any) (g ground, run func(c script.Command) (any, error)) {
	t.Helper()
	g, run = restricted(t, rules...)
	g.do("flushall")
	g.line(queueKey, "they9")
	return g, run
}

// A user who may not read the queue is let in without a look at it, and the reply says so. If the user may
// not even name the queue, only a command that does not name it works.
func TestReaderWhoMayNotReadTheQueue(t *testing.T) {
	plain := script.EnterShared(of("v"), ttl, script.Place{}, script.Fence{})
	fenced := script.EnterShared(of("w"), ttl, script.Place{}, token(7))
	queued := script.EnterShared(of("x"), ttl, script.Place{Ticket: aTicket(1, us), Alive: alive}, script.Fence{})
	leaves := leaving("they9")
	release := script.ReleaseShared(of("v"), script.Process{}, script.Turnover{}, script.Fence{})
	t.Run("read", func(t *testing.T) {
		g, run := restrictedReaders(t, "-get", "(+get ~? ~lock ~{lock}:fence)")
		for _, c := range []struct {
			script.Command
			want any
		}{
			{plain, int64(-3)},                       // blind
			{plain, int64(-2)},                       // it was there, which needs no look
			{fenced, []any{int64(0), "7", int64(5)}}, // stored, and blind
			{script.ReleaseShared(of("v"), script.ProcessOf(us), script.Turnover{Leave: leaves}, script.Fence{}), script.Mine},
		} {
			reply, err := run(c.Command)
			require.NoError(t, err)
			assert.Equal(t, c.want, reply)
		}
		_, err := run(queued)
		require.ErrorContains(t, err, "access")
		assert.Equal(t, []string{"w"}, g.holders())
		for _, c := range []script.Command{script.Downgrade{Leave: leaves}.Extend(of("v"), ttl, false), release} { // BITOP is denied, too
			g.do("set", "lock", "v", "px", ttl)
			reply, err := run(c)
			require.NoError(t, err)
			assert.Equal(t, script.Mine, reply)
		}
		assert.Equal(t, "they9", g.lined(queueKey))
	})
	t.Run("name", func(t *testing.T) {
		g, run := restrictedReaders(t, "resetkeys", "~lock", "~{lock}:fence")
		for _, c := range []script.Command{plain, fenced, queued, script.Downgrade{}.Extend(of("v"), ttl, false), release} {
			_, err := run(c)
			require.ErrorContains(t, err, "NOPERM")
		}
		blind := script.Place{Blind: true}
		for _, c := range []script.Command{
			script.EnterShared(of("v"), ttl, blind, script.Fence{}), script.EnterShared(of("w"), ttl, blind, token(7)),
			script.ExtendShared(of("v"), ttl), script.HealShared(of("w"), ttl), script.ValidShared(of("v")),
			script.Downgrade{Blind: true}.Extend(of("w"), ttl, true),
			script.ReleaseShared(of("v"), script.Process{}, quietly, script.Fence{}), script.ReleaseShared(of("w"), script.Process{}, quietly, token(8)),
		} {
			_, err := run(c)
			require.NoError(t, err)
		}
		assert.Nil(t, g.do("get", "lock"))
		g.isAt("8")
		assert.Equal(t, "they9", g.lined(queueKey))
	})
}

// If the user may not delete the key, the release of the last reader makes it run out.
func TestReaderWhoMayNotDelete(t *testing.T) {
	g, run := restrictedReaders(t, "-del", "-bitop")
	g.reads("v", "us1r", script.Fence{})
	_, err := run(script.ReleaseShared(of("v"), script.ProcessOf(us), script.Turnover{}, script.Fence{}))
	require.True(t, pool.IsDenied(err), "%v", err)
	time.Sleep(5 * time.Millisecond)
	assert.Nil(t, g.do("get", "lock"))
}

// whole reports whether text is a text of readers as the scripts write it.
func whole(text string) bool {
	if !readersText.MatchString(text) {
		return false
	}
	var deadlines []string
	for _, r := range recordsOf(text) {
		deadlines = append(deadlines, r[len(r)-13:])
	}
	return slices.IsSorted(deadlines)
}

var (
	readersText = regexp.MustCompile(`^readers\n([^\n]* [0-9]{13}\n)+$`)
	readersLine = regexp.MustCompile(`^[^\n]* [0-9]{13}$`)
)

// recordsOf returns the lines of a text of readers, without the first.
func recordsOf(text string) []string {
	return strings.Split(strings.TrimSuffix(strings.TrimPrefix(text, "readers\n"), "\n"), "\n")
}

// counts returns whether the scripts accept text as a text of readers. Its last line must be a record. Each
// line up to the first reader that is not gone must be a record, too, and no deadline there may be later than
// the last.
func counts(text string, now int64) bool {
	if !strings.HasPrefix(text, "readers\n") || len(text) == len("readers\n") || text[len(text)-1] != '\n' {
		return false
	}
	lines := recordsOf(text)
	last := lines[len(lines)-1]
	if !readersLine.MatchString(last) {
		return false
	}
	for _, line := range lines {
		if !readersLine.MatchString(line) || line[len(line)-13:] > last[len(last)-13:] {
			return false
		}
		if line[len(line)-13:] > fmt.Sprintf("%013d", now) {
			return true
		}
	}
	return true
}

// Whatever text the key of a lock holds, no command of a reader or a writer fails, and the key has a TTL
// afterwards. A text that is not one of readers is a writer's value: it stays as it is, unless it is the
// caller's. A text of readers stays one, and loses no reader.
func FuzzReaders(f *testing.F) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() // when bubbles begin
	at := func(value string, ms int64) string { return fmt.Sprintf("%s %013d\n", value, now+ms) }
	all := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}
	for _, text := range []string{
		"", "v", "w", "readers", "readers " + at("v", 5000), "readers" + at("v", 5000), "readers\n", "readers\n\n", "readers\nv", "readers\nvw \n", "readers\n 5\n", "readers\nv \n", "readers\n" + at("v", 5000)[1:], "Readers\n" + at("v", 5000),
		"readers\n" + at("v", 5000), "readers\n" + at("v", -5000), "readers\n" + at("v", 0), "readers\n" + at("", 5000), "readers\n" + at("v", -9) + at("w", 5000),
		"readers\n" + at("v", 5000) + at("w", 4000), "readers\n" + at("v", 5000) + at("w", -4000), "readers\n" + at("v", 5000) + at("w", 5000), "readers\n" + at("v", 5000) + at("v", 6000),
		"readers\n" + at("v", 5000) + "x", "readers\n" + at("v", 5000) + "\n", "readers\n" + at("v", 5000) + "w 123\n", "readers\n" + at("v", 5000) + "garbage\n" + at("w", 6000), "readers\n" + at("w", 5000) + at("x", -1) + at("v", 6000), "readers\n\n" + at("v", 5000), "readers\nx\n" + at("v", 5000),
		"readers\nv  946684805000\n", "readers\nv 94668480500.0\n", "readers\nv 0x946684805000\n", "readers\nv           inf\n", "readers\nv           nan\n", "readers\nv 9999999999999\n",
		"readers\nv\t0946684805000\n", "readers\n" + at("v 1234567890123", 5000), "readers\n" + at("v", 1000) + at("v 0946684805000", 5000), "readers\n" + at("\x00\xff", 5000), "readers\n" + at("readers", 5000),
		"readers\nv 00946684805000\n", "readers\nv0946684805000\n", "readers\n" + strings.Repeat(at("x", 5000), 50), "readers\r\n" + at("v", 5000),
	} {
		f.Add(text, all)
	}
	f.Fuzz(func(t *testing.T, text string, plan []byte) {
		bubble(t, func(t *testing.T, m *embedded.Node, c *redis.Client) {
			n := &node{T: t, Node: m, client: c}
			if text != "" {
				require.NoError(t, m.Set("lock", text))
				m.SetTTL("lock", 3*time.Second)
			}
			for _, b := range plan[:min(len(plan), 24)] {
				n.stepOfReaders(b)
			}
		})
	})
}

// stepOfReaders runs a command on the lock of the node, and checks what it has done.
func (n *node) stepOfReaders(b byte) {
	n.Helper()
	value := []string{"v", "w"}[b/10%2]
	lock := of(value)
	before, _ := n.Get("lock")
	own := before == value
	c := []script.Command{
		script.EnterShared(lock, 4000, script.Place{}, script.Fence{}),
		script.EnterShared(lock, 1000, script.Place{Ticket: aTicket(1, us), Alive: alive}, script.Fence{}),
		script.ExtendShared(lock, 5000),
		script.HealShared(lock, 2000),
		script.ValidShared(lock),
		script.Downgrade{}.Extend(lock, 1000, b >= 128),
		script.ReleaseShared(lock, script.Process{}, script.Turnover{}, script.Fence{}),
		script.ReleaseShared(lock, script.Process{}, quietly, script.Fence{}),
		script.Release(lock, script.Process{}, script.Turnover{}, script.Fence{}),
		script.Enter(lock, 1000, script.Place{}, script.Fence{}),
	}[b%10]
	reply, err := n.client.Do(n.Context(), c.InFull()...).Int64()
	require.NoError(n, err)
	after, _ := n.Get("lock")
	if after != "" {
		require.Positive(n, n.TTL("lock"))
	}
	writers := before != "" && !counts(before, n.now())
	if writers && !own {
		require.Equal(n, before, after, "it is a writer's")
		if k := b % 10; k < 2 || k == 9 {
			require.Positive(n, reply, "it is taken")
		} else {
			require.Equal(n, script.Other, reply)
		}
	}
	if after != before && after != "" && after != value && (writers || before == "" || whole(before)) {
		require.True(n, whole(after), "%q", after)
		last, _ := strconv.ParseInt(after[len(after)-14:len(after)-1], 10, 64)
		require.Equal(n, last-n.now(), n.TTL("lock").Milliseconds())
	}
	if !writers && before != "" { // all others stay
		for _, line := range recordsOf(before) {
			if !readersLine.MatchString(line) {
				continue
			}
			deadline, _ := strconv.ParseInt(line[len(line)-13:], 10, 64)
			if line[:len(line)-14] != value && deadline > n.now() {
				require.Contains(n, after, "\n"+line+"\n")
			}
		}
	}
	if b >= 200 {
		time.Sleep(time.Duration(b) * 10 * time.Millisecond)
	}
}

// Whatever text a queue holds, no reader's enter fails. A reader waits for the live writers that can be read there, and live
// waiters stay in the queue.
func FuzzQueueOfReaders(f *testing.F) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() // when bubbles begin
	live := func(rank int, process, kind string) string {
		return fmt.Sprintf("%s%s%013d\n", ticket(rank, process), kind, now+5000)
	}
	dead := record(ticket(0, they), now-5)
	for _, text := range []string{
		"", "what?", " ", live(1, they, " "), live(1, us, " "), live(1, they, "r"), live(9, they, " "), live(1, they, "r") + live(2, they, " "), live(1, us, " ") + live(2, they, " "),
		dead + live(1, they, " "), live(1, they, "r") + dead + live(2, they, "r"), live(1, they, " ")[:63], live(1, they, " ")[:50], live(1, they, "x"), live(1, they, "r") + live(2, they, "x"),
		strings.Repeat(" ", 640), strings.Repeat(" ", 50), strings.Repeat("r", 128), "x" + live(1, they, " "), ticket(1, they) + "            inf\n", live(3, they, " ") + live(1, they, " "),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		bubble(t, func(t *testing.T, m *embedded.Node, c *redis.Client) {
			n := &node{T: t, Node: m, client: c}
			queue := queueOf(text)
			set := func() {
				m.FlushAll()
				require.NoError(t, m.Set("lock", fmt.Sprintf("readers\nw %013d\n", n.now()+4000)))
				m.SetTTL("lock", 4*time.Second)
				if text != "" {
					require.NoError(t, m.Set(queueKey, text))
					m.SetTTL(queueKey, 2*alive*time.Millisecond)
				}
			}
			kept := func(q []string, ticket string) (ms int64) {
				for _, r := range q {
					if part(r, 49, 50) != " " {
						continue
					}
					if ticket != "" && part(r, 0, 49) >= ticket {
						return 0
					}
					if deadline(r) > n.now() && (ticket == "" || processOf(r) != processOf(ticket)) {
						return min(deadline(r)-n.now(), alive)
					}
				}
				return 0
			}
			set()
			require.Equal(t, kept(queue, ""), n.run(script.EnterShared(of("v"), ttl, script.Place{Alive: alive}, script.Fence{})))
			after, _ := m.Get(queueKey)
			if kept(queue, "") < alive {
				require.Equal(t, text, after)
			}

			set()
			mine := aTicket(5, us).Shared()
			got := n.run(script.EnterShared(of("v"), ttl, script.Place{Ticket: mine, Alive: alive}, script.Fence{}))
			with := queue.with(ticket(5, us), n.now()+alive)
			i := slices.IndexFunc(with, func(r string) bool { return r == record(ticket(5, us), n.now()+alive) })
			with[i] = with[i][:49] + "r" + with[i][50:]
			with = with.living(n.now())
			after, _ = m.Get(queueKey)
			if kept(with, ticket(5, us)) < alive {
				require.Equal(t, strings.Join(with, ""), after)
			}
			require.Equal(t, kept(with, ticket(5, us)), got)
		})
	})
}
