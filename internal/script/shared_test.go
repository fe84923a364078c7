package script

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// These tests show what the scripts of readers do on one node, rule by rule.

// reads runs the script by which a reader enters without a ticket, and returns its parsed reply.
func (g ground) reads(value string) Entered {
	g.Helper()
	reply := g.do(EnterShared(lockOf(value), ttl, noPlace, noFence).InFull()...)
	g.expires()
	e, err := ParseEnteredShared(reply)
	require.NoError(g, err)
	return e
}

// leavesOf returns the release of a reader.
func leavesOf(value string) Command { return ReleaseShared(lockOf(value), noProcess, noTurn, noFence) }

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

// A key lasts until the last deadline in it, to the millisecond, whatever happens to the other readers.
func TestReadersKeyLastsAsLongAsTheLastReader(t *testing.T) {
	long, short := lockOf("long"), lockOf("short")
	bubble(t, func(g ground, n *embedded.Node) {
		time.Sleep(999 * time.Millisecond) // so that the clock shows microseconds
		start := time.Now()
		at := func(value string, ms int) string { return fmt.Sprintf("%s %013d\n", value, int(start.UnixMilli())+ms) }
		// holds runs a command after some milliseconds. The deadlines of long and short are then at these, 0 for none.
		holds := func(after int, c Command, deadlines ...int) {
			g.Helper()
			time.Sleep(time.Duration(after) * time.Millisecond)
			g.run(c)
			text := "readers\n"
			for i, value := range []string{"new", "short", "long"} {
				if ms := deadlines[i]; ms > 0 {
					text += at(value, ms)
				}
			}
			g.has("lock", text)
			last := time.Duration(slices.Max(deadlines)) * time.Millisecond
			assert.Equal(g, last, n.TTL("lock")+time.Since(start))
		}
		holds(0, EnterShared(long, 9000, noPlace, noFence), 0, 0, 9000)
		holds(10, EnterShared(short, 1000, noPlace, noFence), 0, 1010, 9000)
		holds(10, ExtendShared(short, 2000, false), 0, 2020, 9000)
		holds(0, ExtendShared(short, 500, false), 0, 2020, 9000) // for less
		holds(0, ExtendShared(long, 20_000, false), 0, 2020, 20_020)
		holds(0, ReleaseShared(long, noProcess, quietly, noFence), 0, 2020, 0)
		holds(1999, ExtendShared(long, 3000, true), 0, 2020, 5019)
		g.runs(Mine, ValidShared(short))
		time.Sleep(time.Millisecond)
		g.runs(Missing, ValidShared(short), "its deadline is now")
		g.runs(Missing, ExtendShared(short, 9000, false))
		holds(0, ValidShared(long), 0, 2020, 5019)
		holds(0, EnterShared(lockOf("new"), 1000, noPlace, noFence), 3020, 0, 5019) // beside one that is gone
		time.Sleep(2999 * time.Millisecond)
		assert.False(g, n.Exists("lock"))
	})
}

// The key expires by itself at the last deadline.
func TestReadersKeyRunsOutAtTheDeadline(t *testing.T) {
	g := alone(t)
	if err := g.client.PExpireTime(t.Context(), "lock").Err(); err != nil && strings.Contains(err.Error(), "unknown command") {
		t.Skip("this server does not tell when a key expires")
	}
	for i := range 20 {
		g.reads(strconv.Itoa(i))
		text := g.do("get", "lock").(string)
		last, err := strconv.ParseInt(text[len(text)-14:len(text)-1], 10, 64)
		require.NoError(t, err)
		assert.Equal(t, last, g.do("pexpiretime", "lock"))
	}
}

// A deadline that would need more than 13 digits becomes the greatest of 13 digits.
func TestReaderForALongTime(t *testing.T) {
	onBoth(t, func(g ground) {
		g.run(EnterShared(lockV, math.MaxInt64/1_000_000, noPlace, noFence))
		g.reads("w")
		assert.Equal(t, []string{"w", "v"}, g.holders())
		assert.Contains(t, g.do("get", "lock"), "v 9999999999999\n")
		g.runs(Mine, ValidShared(lockV))
	})
}

// Two tickets that differ only in their kind are the same ticket.
func TestKindsOfTickets(t *testing.T) {
	mine := NewTicket(0, 77, ProcessOf(us), 5)
	read := mine.Shared()
	assert.Len(t, mine.String(), 49)
	assert.Equal(t, mine.String()+"r", read.String())
	assert.True(t, read.IsShared())
	assert.False(t, mine.IsShared())
	assert.Equal(t, read, read.Shared())
	assert.True(t, Ticket{}.Shared().IsZero())
}

// A value may be the beginning of another one, look like a record, or contain characters that a Lua pattern
// treats specially.
func TestValuesOfReaders(t *testing.T) {
	values := []string{"v", "v 1234567890123", "v 1234567890123 1234567890123", " ", "", "%d", "%", ".*", "\x00", "v\r", "readers", strings.Repeat("x", 3000)}
	onBoth(t, func(g ground) {
		for _, value := range values {
			g.runs(Missing, ValidShared(lockOf(value)), "%.50q", value)
			assert.Equal(t, Entered{}, g.reads(value), "%.50q", value)
		}
		assert.Equal(t, values[:len(values)-1], slices.DeleteFunc(g.holders(), func(v string) bool { return len(v) > 1000 }))
		for i, value := range values {
			g.runs(Mine, ValidShared(lockOf(value)), "%.50q", value)
			g.runs(Mine, ExtendShared(lockOf(value), 2*ttl, false), "%.50q", value)
			g.runs(Mine, leavesOf(value), "%.50q", value)
			assert.Len(t, g.holders(), len(values)-1-i, "%.50q", value)
		}
		g.has("lock", nil)
	})
	for value, may := range map[string][2]bool{
		"": {true, true}, "v": {true, true}, "readers": {true, true}, "v\n": {true, false}, "\nreaders\n": {true, false}, "readers\n": {false, false}, "readers\nv": {false, false},
	} {
		assert.Equal(t, may, [2]bool{MayBeValue(value, false), MayBeValue(value, true)}, "%q", value)
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
		g.reads("v")
		g.reads("w")
		before := g.do("get", "lock")
		for _, value := range []string{"v", "w", "x"} {
			assert.Equal(t, int64(0), g.do("eval", redsyncDelete, 1, "lock", value))
			assert.Equal(t, int64(0), g.do("eval", redsyncTouch, 1, "lock", value, 2*ttl))
			assert.Equal(t, int64(0), g.do("eval", redsyncTouchWithSetNX, 1, "lock", value, 2*ttl))
			assert.Nil(t, g.do("set", "lock", value, "nx", "px", 2*ttl))
		}
		g.has("lock", before)
		g.lasts("lock", ttl)
		g.run(leavesOf("v"))
		g.run(leavesOf("w"))
		assert.Equal(t, "OK", g.do("set", "lock", "x", "nx", "px", ttl))
		assert.Positive(t, g.reads("v").Wait)
		assert.Equal(t, int64(1), g.do("eval", redsyncDelete, 1, "lock", "x"))
		assert.Zero(t, g.reads("v").Wait)
	})
}

// restrictedReaders does what restricted does. The node then has nothing but a queue of the lock, in which a
// writer of another process waits.
func restrictedReaders(t *testing.T, rules string) (g ground, run func(c Command) (any, error)) {
	t.Helper()
	g, run = restricted(t, rules)
	g.do("flushall")
	g.line(queueKey, "they9")
	return g, run
}

// A user who may not read the queue is let in without a look at it, and the reply says so. If the user may
// not even name the queue, only a command that does not name it works.
func TestReaderWhoMayNotReadTheQueue(t *testing.T) {
	plain, fenced := EnterShared(lockV, ttl, noPlace, noFence), EnterShared(lockW, ttl, noPlace, token(7))
	queued := EnterShared(lockOf("x"), ttl, Place{Ticket: aTicket(1, us), Alive: alive}, noFence)
	leaves, release := leaving("they9"), leavesOf("v")
	t.Run("read", func(t *testing.T) {
		g, run := restrictedReaders(t, "-get (+get ~? ~lock ~{lock}:fence)")
		answers := func(want any, c Command) {
			t.Helper()
			reply, err := run(c)
			require.NoError(t, err)
			assert.Equal(t, want, reply)
		}
		answers(int64(-3), plain)                       // blind
		answers(int64(-2), plain)                       // it was there, which needs no look
		answers([]any{int64(0), "7", int64(5)}, fenced) // stored, and blind
		answers(Mine, ReleaseShared(lockV, ProcessOf(us), Turnover{Leave: leaves}, noFence))
		_, err := run(queued)
		require.ErrorContains(t, err, "access")
		assert.Equal(t, []string{"w"}, g.holders())
		for _, c := range []Command{Downgrade{Leave: leaves}.Extend(lockV, ttl, false), release} {
			g.do("set", "lock", "v", "px", ttl)
			answers(Mine, c)
		}
		g.lines(queueKey, "they9")
	})
	t.Run("name", func(t *testing.T) {
		g, run := restrictedReaders(t, "resetkeys ~lock ~{lock}:fence")
		for _, c := range []Command{plain, fenced, queued, Downgrade{}.Extend(lockV, ttl, false), release} {
			_, err := run(c)
			require.ErrorContains(t, err, "NOPERM")
		}
		blind, down := Place{Blind: true}, Downgrade{Blind: true}
		g.do("set", "lock", "v", "px", ttl)
		reply, err := run(down.Extend(lockV, ttl, false))
		require.NoError(t, err)
		assert.Equal(t, Mine, reply)
		for _, c := range []Command{
			EnterShared(lockW, ttl, blind, token(7)), ExtendShared(lockV, ttl, false), ValidShared(lockV), down.Extend(lockW, ttl, true),
			ReleaseShared(lockV, noProcess, quietly, noFence), ReleaseShared(lockW, noProcess, quietly, token(8)),
			EnterShared(lockV, ttl, blind, noFence), ExtendShared(lockW, ttl, true), ReleaseShared(lockV, noProcess, quietly, noFence), ReleaseShared(lockW, noProcess, quietly, noFence),
		} {
			_, err := run(c)
			require.NoError(t, err)
		}
		g.has("lock", nil)
		g.has("{lock}:fence", "8")
		g.lasts("{lock}:fence", 86_400_000)
		g.lines(queueKey, "they9")
	})
}

// If the user may not delete the key, the release of the last reader makes it run out.
func TestReaderWhoMayNotDelete(t *testing.T) {
	g, run := restrictedReaders(t, "-del")
	g.run(EnterShared(lockV, ttl, Place{Ticket: aTicket(1, us).Shared(), Alive: alive}, noFence))
	_, err := run(ReleaseShared(lockV, ProcessOf(us), noTurn, noFence))
	require.True(t, wire.IsDenied(err), "%v", err)
	time.Sleep(5 * time.Millisecond)
	g.has("lock", nil)
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
	all := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}
	for _, text := range []string{ // @ stands for a deadline, in milliseconds from now
		"", "v", "w", "readers", "readers v @5000\n", "readersv @5000\n", "readers\n", "readers\n\n", "readers\nv", "readers\nvw \n", "readers\n 5\n", "readers\nv \n", "readers\n @5000\n", "Readers\nv @5000\n",
		"readers\nv @5000\n", "readers\nv @-5000\n", "readers\nv @0\n", "readers\n @5000\n", "readers\nv @-9\nw @5000\n",
		"readers\nv @5000\nw @4000\n", "readers\nv @5000\nw @-4000\n", "readers\nv @5000\nw @5000\n", "readers\nv @5000\nv @6000\n",
		"readers\nv @5000\nx", "readers\nv @5000\n\n", "readers\nv @5000\nw 123\n", "readers\nv @5000\ngarbage\nw @6000\n", "readers\nw @5000\nx @-1\nv @6000\n", "readers\n\nv @5000\n", "readers\nx\nv @5000\n",
		"readers\nv  946684805000\n", "readers\nv 94668480500.0\n", "readers\nv 0x946684805000\n", "readers\nv           inf\n", "readers\nv           nan\n", "readers\nv 9999999999999\n",
		"readers\nv\t0946684805000\n", "readers\nv 1234567890123 @5000\n", "readers\nv @1000\nv 0946684805000 @5000\n", "readers\n\x00\xff @5000\n", "readers\nreaders @5000\n",
		"readers\nv 00946684805000\n", "readers\nv0946684805000\n", "readers\n" + strings.Repeat("x @5000\n", 50), "readers\r\nv @5000\n",
	} {
		text = regexp.MustCompile(`@-?\d+`).ReplaceAllStringFunc(text, func(at string) string {
			ms, _ := strconv.ParseInt(at[1:], 10, 64)
			return fmt.Sprintf("%013d", now+ms)
		})
		f.Add(text, all)
	}
	f.Fuzz(func(t *testing.T, text string, plan []byte) {
		bubble(t, func(g ground, m *embedded.Node) {
			n := &node{ground: g, Node: m}
			if text != "" {
				require.NoError(g, m.Set("lock", text))
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
	lock := lockOf(value)
	before, _ := n.Get("lock")
	own := before == value
	c := []Command{
		EnterShared(lock, 4000, noPlace, noFence),
		EnterShared(lock, 1000, Place{Ticket: aTicket(1, us), Alive: alive}, noFence),
		ExtendShared(lock, 5000, false),
		ExtendShared(lock, 2000, true),
		ValidShared(lock),
		Downgrade{}.Extend(lock, 1000, b >= 128),
		ReleaseShared(lock, noProcess, noTurn, noFence),
		ReleaseShared(lock, noProcess, quietly, noFence),
		Release(lock, noProcess, noTurn, noFence),
		Enter(lock, 1000, noPlace, noFence),
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
			require.Equal(n, Other, reply)
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
	line := func(names string) string { return queueOf(names, now, 5000) }
	theirs, odd := line("they1"), strings.Replace(line("they1"), " ", "x", 1)
	for _, text := range []string{
		"", "what?", " ", theirs, line("us1"), line("they1r"), line("they9"), line("they1r they2"), line("us1 they2"), line("!they0 they1"), line("they1r !they0 they2r"), theirs[:63], theirs[:50],
		odd, line("they1r") + odd, strings.Repeat(" ", 640), strings.Repeat(" ", 50), strings.Repeat("r", 128), "x" + theirs, ticket(1, they) + "            inf\n", line("they3 they1"),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		bubble(t, func(g ground, m *embedded.Node) {
			n := &node{ground: g, Node: m}
			queue := recordsOfQueue(text)
			set := func() {
				m.FlushAll()
				require.NoError(g, m.Set("lock", fmt.Sprintf("readers\nw %013d\n", n.now()+4000)))
				m.SetTTL("lock", 4*time.Second)
				if text != "" {
					require.NoError(g, m.Set(queueKey, text))
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
			require.Equal(g, kept(queue, ""), n.run(EnterShared(lockV, ttl, Place{Alive: alive}, noFence)))
			after, _ := m.Get(queueKey)
			if kept(queue, "") < alive {
				require.Equal(g, text, after)
			}

			set()
			mine := aTicket(5, us).Shared()
			got := n.run(EnterShared(lockV, ttl, Place{Ticket: mine, Alive: alive}, noFence))
			with := queue.with(ticket(5, us), n.now()+alive)
			i := slices.IndexFunc(with, func(r string) bool { return r == record(ticket(5, us), n.now()+alive) })
			with[i] = with[i][:49] + "r" + with[i][50:]
			with = with.living(n.now())
			after, _ = m.Get(queueKey)
			if kept(with, ticket(5, us)) < alive {
				require.Equal(g, strings.Join(with, ""), after)
			}
			require.Equal(g, kept(with, ticket(5, us)), got)
		})
	})
}
