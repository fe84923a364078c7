package script

import (
	"bufio"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/proto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file tests what scripts do beside keys that somebody has forged. Each script meets each text at each of its keys.

// everyCommand returns commands that between them run all paths of all scripts.
func everyCommand() map[string]Command {
	lock, process, fence := lockV, ProcessOf(us), token(1<<51)
	names, three := newLock("v", "lock", "other"), NewSemaphore("lock", 3)
	slot, slots, all := slotsWith(three, "v", 0), slotsWith(three, "v", 0, 1, 2), slotsOf(0, 1, 2)
	place := Place{Ticket: aTicket(20_000, us), Alive: alive, Strict: true}
	turnover := Turnover{Enters: aTicket(20_001, us), Alive: alive, Leave: []Ticket{aTicket(20_000, us)}}
	return map[string]Command{
		"enter":                  Enter(lock, ttl, place, fence),
		"enter, no ticket":       Enter(lock, ttl, noPlace, fence),
		"enter shared":           EnterShared(lock, ttl, place, fence),
		"enter shared, plain":    EnterShared(lock, ttl, noPlace, noFence),
		"enter names":            Enter(names, ttl, place, fence),
		"enter permits":          EnterPermits(three, "v", ttl, wants(2, 0), place),
		"enter permit":           EnterPermits(three, "v", ttl, wants(1, 0), noPlace),
		"extend":                 Extend(lock, 2*ttl, false),
		"heal":                   Extend(lock, 2*ttl, true),
		"valid":                  Valid(lock),
		"extend names":           Extend(names, 2*ttl, false),
		"heal names":             Extend(names, 2*ttl, true),
		"valid names":            Valid(names),
		"extend shared":          ExtendShared(lock, 2*ttl, false),
		"heal shared":            ExtendShared(lock, 2*ttl, true),
		"valid shared":           ValidShared(lock),
		"enter shared, blind":    EnterShared(lock, ttl, Place{Blind: true}, fence),
		"downgrade, blind":       Downgrade{Blind: true}.Extend(lock, ttl, false),
		"release, quietly":       Release(lock, noProcess, quietly, fence),
		"release shared, quiet":  ReleaseShared(lock, noProcess, quietly, fence),
		"release names, parts":   Release(names, noProcess, Turnover{Alive: alive, Parts: []Part{{Enters: turnover.Enters}, {Leave: turnover.Leave}}}, noFence),
		"release names, quietly": Release(names, noProcess, quietly, noFence),
		"release permits, keeps": ReleaseSlots(three, "v", 1, slotsOf(0, 2), slotsOf(1), process, turnover),
		"release permits, quiet": ReleaseSlots(three, "v", 1, all, Slots{}, noProcess, quietly),
		"shorten, quietly":       Shorten(lock, 1000, noProcess, quietly, fence),
		"shorten permit":         Shorten(slot, 1000, process, turnover, noFence),
		"shorten permits, quiet": Shorten(slots, 1000, noProcess, quietly, noFence),
		"downgrade":              Downgrade{Process: process, Leave: turnover.Leave}.Extend(lock, ttl, true),
		"release":                Release(lock, process, turnover, fence),
		"release, plain":         Release(lock, noProcess, noTurn, noFence),
		"release shared":         ReleaseShared(lock, process, turnover, fence),
		"release shared, plain":  ReleaseShared(lock, noProcess, noTurn, noFence),
		"release names":          Release(names, process, turnover, fence),
		"release names, plain":   Release(names, noProcess, noTurn, noFence),
		"release permits":        ReleaseSlots(three, "v", 2, all, Slots{}, process, turnover),
		"release permit":         Release(slot, process, turnover, noFence),
		"release permit, plain":  Release(slot, noProcess, noTurn, noFence),
		"shorten":                Shorten(lock, 1000, process, turnover, fence),
		"shorten names":          Shorten(names, 1000, process, turnover, fence),
		"shorten permits":        Shorten(slots, 1000, process, turnover, noFence),
		"inspect":                lock.of.Inspect(false),
		"inspect names":          names.of.Inspect(false),
		"inspect permits":        three.Inspect(false),
		"inspect, the key alone": lock.of.Inspect(true),
	}
}

// A command touches the keys of its lock and no others, and says how many there are. Its long form differs in the script
// alone, and another reader reads its elements from its encoding. Other versions rely on these keys and arguments.
func TestCommands(t *testing.T) {
	want := map[string]string{
		"downgrade":              "lock {lock}:queue | v 60000 1 PROCESS TICKET",
		"downgrade, blind":       "lock | v 60000 0 ",
		"enter":                  "lock {lock}:queue {lock}:fence | v 60000 TICKET 60000 1 TOKEN 86400000",
		"enter names":            "lock other {lock}:queue {other}:queue {lock}:fence {other}:fence | v 60000 TICKET 60000 1 TOKEN 86400000",
		"enter permit":           "{lock}:slot:0 {lock}:slot:1 {lock}:slot:2 | v 60000 1",
		"enter permits":          "{lock}:slot:0 {lock}:slot:1 {lock}:slot:2 {lock}:slots | v 60000 2 TICKET 60000 1",
		"enter shared":           "lock {lock}:queue {lock}:fence | v 60000 TICKETr 60000 TOKEN 86400000",
		"enter shared, blind":    "lock {lock}:fence | v 60000  1000 TOKEN 86400000",
		"enter shared, plain":    "lock {lock}:queue | v 60000  1000",
		"enter, no ticket":       "lock {lock}:fence | v 60000  0 0 TOKEN 86400000",
		"extend":                 "lock | v 120000",
		"extend names":           "lock other | v 120000",
		"extend shared":          "lock | v 120000 0",
		"heal":                   "lock | v 120000",
		"heal names":             "lock other | v 120000",
		"heal shared":            "lock | v 120000 1",
		"inspect":                "lock {lock}:queue {lock}:fence | 1 1",
		"inspect names":          "lock other {lock}:queue {other}:queue {lock}:fence {other}:fence | 2 2",
		"inspect permits":        "{lock}:slot:0 {lock}:slot:1 {lock}:slot:2 {lock}:slots | 3 1",
		"inspect, the key alone": "lock | 1 0",
		"release":                "lock {lock}:queue {lock}:fence | v PROCESS TOKEN 86400000 60000 1 TICKET NEXT 0",
		"release names":          "lock other {lock}:queue {other}:queue {lock}:fence {other}:fence | v PROCESS TOKEN 86400000 60000 1 TICKET NEXT 0",
		"release names, parts":   "lock other {lock}:queue {other}:queue | v   0 60000 0 NEXT 0  1 TICKET",
		"release names, plain":   "lock other {lock}:queue {other}:queue | v",
		"release names, quietly": "lock other | v -",
		"release permit":         "{lock}:slot:0 {lock}:slots | v PROCESS  0 60000 1 TICKET NEXT 0",
		"release permit, plain":  "{lock}:slot:0 {lock}:slots | v",
		"release permits":        "{lock}:slot:0 {lock}:slot:1 {lock}:slot:2 {lock}:slots | v 2 0 PROCESS 60000 1 TICKET NEXT 0",
		"release permits, keeps": "{lock}:slot:0 {lock}:slot:2 {lock}:slot:1 {lock}:slots | v 1 1 PROCESS 60000 1 TICKET NEXT 0",
		"release permits, quiet": "{lock}:slot:0 {lock}:slot:1 {lock}:slot:2 | v 1 0 -",
		"release shared":         "lock {lock}:queue {lock}:fence | v PROCESS TOKEN 86400000 60000 1 TICKET NEXT 0",
		"release shared, plain":  "lock {lock}:queue | v",
		"release shared, quiet":  "lock {lock}:fence | v - TOKEN 86400000",
		"release, plain":         "lock {lock}:queue | v",
		"release, quietly":       "lock {lock}:fence | v - TOKEN 86400000",
		"shorten":                "lock {lock}:queue {lock}:fence | v 1000 1 1 PROCESS TOKEN 86400000 60000 1 TICKET NEXT 0",
		"shorten names":          "lock other {lock}:queue {other}:queue {lock}:fence {other}:fence | v 1000 2 2 PROCESS TOKEN 86400000 60000 1 TICKET NEXT 0",
		"shorten permit":         "{lock}:slot:0 {lock}:slots | v 1000 1 1 PROCESS  0 60000 1 TICKET NEXT 0",
		"shorten permits":        "{lock}:slot:0 {lock}:slot:1 {lock}:slot:2 {lock}:slots | v 1000 3 1 PROCESS  0 60000 1 TICKET NEXT 0",
		"shorten permits, quiet": "{lock}:slot:0 {lock}:slot:1 {lock}:slot:2 | v 1000 3 0   0",
		"shorten, quietly":       "lock {lock}:fence | v 1000 1 0  TOKEN 86400000",
		"valid":                  "lock | v",
		"valid names":            "lock other | v",
		"valid shared":           "lock | v",
	}
	texts := strings.NewReplacer(ticket(20_000, us), "TICKET", ticket(20_001, us), "NEXT", us, "PROCESS", fmt.Sprint(int64(1)<<51), "TOKEN")
	for what, c := range everyCommand() {
		var args []string
		for _, arg := range c.Args {
			args = append(args, fmt.Sprint(arg))
		}
		keys := keysIn(c)
		assert.Equal(t, want[what], texts.Replace(strings.Join(keys, " ")+" | "+strings.Join(args[3+len(keys):], " ")), what)
		assert.Equal(t, c.Args[2:], c.InFull()[2:])
		assert.NotContains(t, c.InFull()[1], "-- include")
		encoding := Encoding{Command: &c}
		read, err := proto.ReadStrings(string(encoding.Args()))
		require.NoError(t, err)
		assert.Equal(t, args, read)
		encoding.Free()
	}
}

// keysIn returns the keys of a command.
func keysIn(c Command) (keys []string) {
	for _, key := range c.Args[3 : 3+c.Args[2].(int)] {
		keys = append(keys, key.(string))
	}
	return keys
}

// included matches a line of a script that stands for another file.
var included = regexp.MustCompile(`-- include (\w+)\.lua\n`)

// A script touches the keys that it is given, and no others, whatever it finds. It uses no command and no library that a
// server may lack.
func TestScriptsNeedLittle(t *testing.T) {
	files, err := filepath.Glob("*.lua")
	require.NoError(t, err)
	scripts := map[string]bool{}
	for _, file := range files {
		scripts[strings.TrimSuffix(file, ".lua")] = true
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range included.FindAllStringSubmatch(string(source), -1) {
			delete(scripts, match[1])
		}
	}
	globals, calls := map[string]bool{}, map[string]bool{}
	for _, c := range everyCommand() {
		source := c.InFull()[1].(string)
		chunk, err := parse.Parse(strings.NewReader(source), "script")
		require.NoError(t, err)
		proto, err := lua.Compile(chunk, "script")
		require.NoError(t, err)
		globalsOf(proto, globals)
		for _, match := range regexp.MustCompile(`redis\.(\w+)`).FindAllStringSubmatch(source, -1) {
			calls[match[1]] = true
		}
	}
	assert.Equal(t, "ARGV KEYS ipairs math pairs redis string table tonumber type unpack", sorted(globals))
	assert.Equal(t, "call error_reply pcall", sorted(calls))

	bubble(t, func(g ground, n *embedded.Node) {
		ran, used := map[any]bool{}, map[string]bool{}
		n.Spy(func(c embedded.Called) {
			ran[c.Script], used[c.Command[0]] = true, true
			assert.Empty(t, c.Undeclared(), "%q beside %q", c.Command, c.Keys)
		})
		random := rand.New(rand.NewPCG(1, 1))
		stores := []func(key string){
			func(key string) { g.do("del", key) },
			func(key string) { g.do("set", key, "v", "px", ttl) },
			func(key string) { g.do("set", key, "w", "px", ttl) },
			func(key string) { g.do("set", key, "readers\nv 9999999999999\nw 9999999999999\n", "px", ttl) },
			func(key string) { g.do("del", key); g.do("rpush", key, "x") },
			func(key string) { g.line(key, "they1 us2") },
			func(key string) { g.line(key, "they1r they2 us3r") },
		}
		for range 40 {
			for _, c := range everyCommand() {
				for _, key := range keysIn(c) {
					stores[random.IntN(len(stores))](key)
				}
				_ = g.client.Do(g.Context(), c.InFull()...).Err() // what it finds may be an error
			}
		}
		assert.Len(t, ran, len(scripts), "each of %v", scripts)
		assert.Equal(t, "DEL EXISTS GET GETRANGE MGET PEXPIRE PTTL PUBLISH SET STRLEN TIME TYPE", sorted(used))
	})
}

func sorted(set map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(set)), " ") }

// globalsOf adds the global variables that a function reads.
func globalsOf(proto *lua.FunctionProto, names map[string]bool) {
	for _, instruction := range proto.Code {
		if int(instruction>>26) == lua.OP_GETGLOBAL {
			names[proto.Constants[instruction&0x3ffff].String()] = true
		}
	}
	for _, inner := range proto.FunctionPrototypes {
		globalsOf(inner, names)
	}
}

func isQueue(key string) bool {
	return strings.HasSuffix(key, ":queue") || strings.HasSuffix(key, ":slots")
}

func anyKey(string) bool { return true }

// meets runs each command on a server on which store has stored a forged text at one of its keys, and then calls check. The
// other locks have the value of the command.
func (g ground) meets(at func(key string) bool, store func(key string), check func(what string, reply any)) {
	for what, c := range everyCommand() {
		keys := keysIn(c)
		for _, key := range keys {
			if !at(key) {
				continue
			}
			pipe := g.client.Pipeline()
			pipe.Del(g.Context(), keys...)
			for _, other := range keys {
				if !isQueue(other) && !strings.HasSuffix(other, ":fence") {
					pipe.Set(g.Context(), other, "v", ttl*time.Millisecond)
				}
			}
			_, err := pipe.Exec(g.Context())
			require.NoError(g, err)
			store(key)
			reply, err := g.client.Do(g.Context(), c.InFull()...).Result()
			if err != nil {
				reply = err
			}
			check(fmt.Sprintf("%s, at %s", what, key), reply)
		}
	}
}

// inWords matches the errors of scripts.
var inWords = regexp.MustCompile(`^(ERR|WRONGTYPE) the (key|queue|fencing register) \S+ is a (string that is too long|list|hash)$`)

// No script copies a text that is too long for its key, or returns it. What it cannot read it says in words.
func TestScriptsReadNothingThatIsTooLong(t *testing.T) {
	g := alone(t)
	g.do("set", "nines", strings.Repeat("9", 2_000_000))
	g.do("set", "readers", "readers\n"+strings.Repeat("v 9999999999999\n", 100_000))
	g.do("set", "waiters", strings.Repeat(ticket(1, they)+" 9999999999999\n", 20_000))
	monitor, err := net.Dial("tcp", g.client.Options().Addr)
	require.NoError(t, err)
	defer monitor.Close()
	fmt.Fprint(monitor, "MONITOR\r\n")
	seen := bufio.NewScanner(monitor)
	require.True(t, seen.Scan())
	for name, store := range map[string]func(key string){
		"digits":        func(key string) { g.do("copy", "nines", key, "replace") },
		"readers":       func(key string) { g.do("copy", "readers", key, "replace") },
		"waiters":       func(key string) { g.do("copy", "waiters", key, "replace") },
		"no bytes":      func(key string) { g.do("set", key, "") },
		"a far number":  func(key string) { g.do("set", key, "9223372036854775806") },
		"half a waiter": func(key string) { g.do("set", key, ticket(1, they)) },
		"half a reader": func(key string) { g.do("set", key, "readers\nv 99") },
	} {
		t.Run(name, func(t *testing.T) {
			g := g
			g.T = t
			forged := ""
			g.meets(anyKey, func(key string) { store(key); forged = key }, func(what string, reply any) {
				require.Less(t, len(fmt.Sprintf("%q", reply)), 4096, what)
				if err, ok := reply.(error); ok {
					require.Regexp(t, inWords, err.Error(), what)
				}
				g.do("echo", what)
				for seen.Scan() && !strings.HasSuffix(seen.Text(), `"echo" `+strconv.Quote(what)) {
					_, call, inScript := strings.Cut(seen.Text(), " lua] ")
					if !inScript || !strings.Contains(call, strconv.Quote(forged)) {
						continue
					}
					if name == "digits" || name == "readers" || name == "waiters" {
						require.Regexp(t, `^"(STRLEN|PTTL|PEXPIRE|GETRANGE|EXISTS|TYPE|DEL|SET)"`, call, what)
					}
				}
			})
		})
	}
}

// cpu returns how long the processor has worked for the server.
func (g ground) cpu() (took time.Duration) {
	for _, m := range regexp.MustCompile(`used_cpu_(?:user|sys):(\S+)`).FindAllStringSubmatch(g.do("info", "cpu").(string), -1) {
		part, _ := time.ParseDuration(m[1] + "s")
		took += part
	}
	return took
}

// Whatever stands at its keys, the work of a script has a bound. With -v the test shows the times, which are below 20 ms
// where the processor is fast. A script that is not linear in what it reads takes many seconds.
func TestScriptsTakeLittleTime(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	g := alone(t)
	past, future := time.Now().Add(-time.Hour).UnixMilli(), time.Now().Add(time.Hour).UnixMilli()
	queue := func(n int, kind string, deadline int64) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%s%s%013d\n", ticket(i, fmt.Sprintf("%016d", i)), kind, deadline)
		}
		return b.String()
	}
	readers := func(record string, deadline int64) string {
		record = fmt.Sprintf("%s %013d\n", record, deadline)
		return "readers\n" + strings.Repeat(record, 260_000/len(record))
	}
	for name, text := range map[string]string{
		"dead waiters":          queue(16_000, " ", past),
		"waiting writers":       queue(15_999, " ", future),
		"waiting readers":       queue(15_999, "r", future),
		"more waiting readers":  queue(160_000, "r", future),
		"dead, before a reader": queue(15_990, " ", past) + queue(9, "r", future),
		"readers":               readers("w", future),
		"readers, then lines":   "readers\nw " + strconv.FormatInt(time.Now().UnixMilli()+20_000, 10) + "\n" + strings.Repeat("\n", 260_000) + "w 9999999999999\n",
		"the value as a prefix": "readers\nw " + strconv.FormatInt(future, 10) + strings.Repeat("\nv ", 80_000) + "\nw 9999999999999\n",
		"spaces":                strings.Repeat(" ", 1_000_000/64*64),
	} {
		t.Run(name, func(t *testing.T) {
			g := g
			g.T = t
			g.do("set", "forged", text)
			worst, of, before := time.Duration(0), "", time.Duration(0)
			at := isQueue
			if strings.HasPrefix(text, "readers\n") {
				at = func(key string) bool { return key == "lock" }
			}
			g.meets(at, func(key string) {
				g.do("copy", "forged", key, "replace")
				g.do("config", "resetstat")
				before = g.cpu()
			}, func(what string, _ any) {
				published := 0
				if m := regexp.MustCompile(`cmdstat_publish:calls=(\d+)`).FindStringSubmatch(g.do("info", "commandstats").(string)); m != nil {
					published, _ = strconv.Atoi(m[1])
				}
				assert.LessOrEqual(t, published, 1001, what)
				if took := g.cpu() - before; took > worst {
					worst, of = took, what
				}
			})
			t.Logf("at most %v: %s", worst, of)
			assert.Less(t, worst, time.Second, of)
		})
	}
}
