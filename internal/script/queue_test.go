package script

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file tests what enter and release do on one node: on a real server and on an embedded one.

const (
	alive = 60_000 // milliseconds: longer than a test
	ttl   = 60_000

	us   = "2222222222222222" // processes
	they = "1111111111111111"
)

var (
	noFence   Fence
	noPlace   Place // without a ticket
	noProcess Process
	noTurn    Turnover
)

// token returns the fence of a token, for a day.
func token(n uint64) Fence { return Fence{Token: n, TTL: 86_400_000} }

func newLock(value string, names ...string) Lock {
	k := KeysOf(names...)
	return k.Lock(value)
}

// lockOf returns the lock with a value.
func lockOf(value string) Lock { return newLock(value, "lock") }

// slotsWith returns the lock of slots.
func slotsWith(s *Semaphore, value string, slots ...int) Lock {
	return s.Lock(s.Keys(slotsOf(slots...)), value)
}

var lockV, lockW = lockOf("v"), lockOf("w")

// aTicket returns the Ticket with the text that ticket returns.
func aTicket(rank int, process string) Ticket { return TicketOf(ticket(rank, process)) }

// ticket returns the text of a ticket of a process. The ticket with the smaller rank comes first.
func ticket(rank int, process string) string {
	return fmt.Sprintf("%04d:%016d:%s:%010d", 999, rank, process, rank)
}

// ticketOf returns the text of a ticket by its name: a process, a rank, and r for a reader. + and - in front stand for a
// higher and a lower priority. "+us2r" is an example.
func ticketOf(name string) string {
	class := "0999"
	switch name[0] {
	case '+':
		class, name = "0998", name[1:]
	case '-':
		class, name = "1000", name[1:]
	}
	process, rank := us, strings.TrimPrefix(name, "us")
	if rank == name {
		process, rank = they, strings.TrimPrefix(name, "they")
	}
	n, err := strconv.Atoi(strings.TrimSuffix(rank, "r"))
	if err != nil {
		panic(err)
	}
	return class + ticket(n, process)[4:] + rank[len(strings.TrimSuffix(rank, "r")):]
}

// nameOf returns the name of a ticket that a record begins with.
func ticketName(record string) string {
	return map[string]string{"0998": "+", "1000": "-"}[record[:4]] + processes[record[22:38]] + strings.TrimLeft(record[5:21], "0") + strings.TrimSpace(record[49:50])
}

var processes = map[string]string{us: "us", they: "they"}

// A ground is one empty node.
type ground struct {
	*testing.T
	client *redis.Client
	pubsub *redis.PubSub
}

// quietly is the turnover of a release that touches no queue.
var quietly = Turnover{Quietly: true}

// server is the real server of all tests that call onBoth, which use nothing but its keys and channels: to start one
// takes longer than most of these tests. The first of them starts it.
var server struct {
	sync.Once
	addr string
	stop func()
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if server.stop != nil {
		server.stop()
	}
	os.Exit(code)
}

// onServer returns a client of the server, which is empty. No earlier test is subscribed to it any more, because the
// scripts count subscribers.
func onServer(t *testing.T) *redis.Client {
	t.Helper()
	realredis.Start(t, 0) // skips the test where there is no redis-server
	server.Do(func() {
		var servers []*realredis.Server
		if servers, server.stop, server.err = realredis.LaunchAll(1); server.err == nil {
			server.addr = servers[0].Addr()
		}
	})
	require.NoError(t, server.err)
	c := redis.NewClient(&redis.Options{Addr: server.addr})
	t.Cleanup(func() { _ = c.Close() })
	require.Eventually(t, func() bool {
		channels, err := c.PubSubChannels(t.Context(), "*").Result()
		return err == nil && len(channels) == 0
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, c.FlushAll(t.Context()).Err())
	return c
}

// alone returns a server that no other test uses.
func alone(t *testing.T) ground {
	t.Helper()
	return ground{T: t, client: realredis.Start(t, 1)[0].Client()}
}

// onBoth runs f on nodes of both kinds.
func onBoth(t *testing.T, f func(g ground)) {
	t.Helper()
	for kind, client := range map[string]func(t *testing.T) *redis.Client{
		"server": onServer,
		"embedded": func(t *testing.T) *redis.Client {
			t.Helper()
			nodes := embedded.Start(1)
			nodes[0].Spy(func(c embedded.Called) { assert.Empty(t, c.Undeclared(), "%q beside %q", c.Command, c.Keys) })
			t.Cleanup(nodes.Close)
			c := nodes[0].Client()
			t.Cleanup(func() { _ = c.Close() })
			return c
		},
	} {
		t.Run(kind, func(t *testing.T) {
			g := ground{T: t, client: client(t)}
			g.pubsub = g.client.Subscribe(t.Context(), ProcessOf(us).Channel(), ProcessOf(they).Channel())
			defer func() { _ = g.pubsub.Close() }()
			for range 2 {
				_, err := g.pubsub.ReceiveTimeout(t.Context(), 10*time.Second)
				require.NoError(t, err)
			}
			f(g)
		})
	}
}

// do runs a command.
func (g ground) do(args ...any) any {
	g.Helper()
	v, err := g.client.Do(g.Context(), args...).Result()
	if err != nil {
		require.ErrorIs(g, err, redis.Nil)
	}
	return v
}

// run runs a script, and checks that no key is left without a TTL.
func (g ground) run(c Command) int64 {
	g.Helper()
	v := g.do(c.InFull()...)
	g.expires()
	return v.(int64)
}

// expires checks that each key of the library has a TTL.
func (g ground) expires() {
	g.Helper()
	keys, err := g.client.Keys(g.Context(), "*").Result()
	require.NoError(g, err)
	for _, key := range keys {
		if key != "forever" {
			assert.NotEqual(g, int64(-1), g.do("pttl", key), "%s has no TTL", key)
		}
	}
}

// runs checks what a script finds.
func (g ground) runs(want int64, c Command, about ...any) {
	g.Helper()
	assert.Equal(g, want, g.run(c), about...)
}

// has checks what a key holds, nil for nothing.
func (g ground) has(key string, want any, about ...any) {
	g.Helper()
	assert.Equal(g, want, g.do("get", key), about...)
}

// lasts checks the TTL of a key.
func (g ground) lasts(key string, want any, about ...any) {
	g.Helper()
	assert.InDelta(g, want, g.do("pttl", key), 9000, about...)
}

// lines checks who waits in a queue.
func (g ground) lines(key, want string, about ...any) {
	g.Helper()
	assert.Equal(g, want, g.lined(key), about...)
}

func (g ground) enter(value, ticket string, strict bool) int64 {
	g.Helper()
	return g.run(Enter(lockOf(value), ttl, Place{Ticket: TicketOf(ticket), Alive: alive, Strict: strict}, noFence))
}

// leaving returns the tickets with these names.
func leaving(names string) (tickets []Ticket) {
	for name := range strings.FieldsSeq(names) {
		tickets = append(tickets, TicketOf(ticketOf(name)))
	}
	return tickets
}

func (g ground) release(value, process, tickets string) int64 {
	g.Helper()
	return g.run(Release(lockOf(value), ProcessOf(process), Turnover{Leave: leaving(tickets)}, noFence))
}

// queueOf returns the text of a queue of the tickets with these names, in order. They live for so many milliseconds, except
// those with ! in front, which are dead.
func queueOf(names string, now, alive int64) (text string) {
	for name := range strings.FieldsSeq(names) {
		deadline := now + alive
		if name[0] == '!' {
			name, deadline = name[1:], now-5
		}
		text += fmt.Sprintf("%-50s%013d\n", ticketOf(name), deadline)
	}
	return text
}

// line makes a queue of tickets, which live for a minute. Without names there is no queue.
func (g ground) line(key, names string) {
	g.Helper()
	if names == "" {
		return
	}
	now, err := g.client.Time(g.Context()).Result()
	require.NoError(g, err)
	g.do("set", key, queueOf(names, now.UnixMilli(), alive), "px", 2*ttl)
}

// lined returns the names of the tickets in a queue.
func (g ground) lined(key string) string {
	g.Helper()
	text, _ := g.do("get", key).(string)
	var names []string
	for r := range slices.Chunk([]byte(text), recordSize) {
		assert.Regexp(g, wellFormed, string(r))
		names = append(names, ticketName(string(r)))
	}
	return strings.Join(names, " ")
}

// record returns a ticket with its deadline as a queue has it.
func record(ticket string, deadline int64) string { return fmt.Sprintf("%s %013d\n", ticket, deadline) }

// If the key of the queue has no TTL, enter gives it one.
func TestEnterGivesTheQueueATTL(t *testing.T) {
	onBoth(t, func(g ground) {
		g.do("set", "{lock}:queue", record(ticket(1, they), 1))
		g.enter("v", ticket(2, us), true)
		g.lines(queueKey, "us2")
	})
}

// If the node's clock is set back, waiters that have died before are dead as soon as without the step, counted from the
// next enter on: all of them at once.
func TestClockThatIsSetBackKeepsNoDeadWaiter(t *testing.T) {
	place := Place{Ticket: aTicket(9, us), Alive: AliveFor, Strict: true}
	dead := func(kind string) (text string) {
		at := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() + AliveFor // the deadlines; a bubble begins then
		for i := range 3 {
			text += strings.Replace(record(ticket(i, they+"3"[:i/2])[:49], at), " ", kind, 1)
		}
		return text
	}
	for name, c := range map[string]struct {
		queues []string
		kind   string
		enter  Command
	}{
		"exclusive":               {[]string{queueKey}, " ", Enter(lockV, ttl, place, noFence)},
		"behind readers":          {[]string{queueKey}, "r", Enter(lockV, ttl, place, token(7))},
		"several names":           {[]string{"{a}:queue", "{b}:queue", "{c}:queue"}, " ", Enter(abc, ttl, place, noFence)},
		"the last name":           {[]string{"{c}:queue"}, "r", Enter(abc, ttl, place, noFence)},
		"permits":                 {[]string{slotQueue}, " ", EnterPermits(four, "v", ttl, wants(2, 0), place)},
		"a reader":                {[]string{queueKey}, " ", EnterShared(lockV, ttl, place, noFence)},
		"a reader with a token":   {[]string{queueKey}, " ", EnterShared(lockV, ttl, place, token(7))},
		"a reader with no ticket": {[]string{queueKey}, " ", EnterShared(lockV, ttl, noPlace, noFence)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(g ground, n *embedded.Node) {
				for _, q := range c.queues {
					g.do("set", q, dead(c.kind), "px", 2*AliveFor)
				}
				n.SetClock(-time.Minute, 1)
				has := func() bool { return g.client.Exists(g.Context(), "lock", "a", slot(0)).Val() > 0 }
				g.do(c.enter.InFull()...)
				assert.False(g, has(), "the dead may live yet")
				time.Sleep((AliveFor - 1) * time.Millisecond)
				g.do(c.enter.InFull()...)
				assert.False(g, has())
				time.Sleep(time.Millisecond)
				g.do(c.enter.InFull()...)
				assert.True(g, has())
			})
		})
	}
}

// A plain release compares the whole of a value, however long that is.
func TestReleasePlainOfLongValues(t *testing.T) {
	onBoth(t, func(g ground) {
		for _, n := range []int{1, 255, 256, 257, 300_000} {
			own := strings.Repeat("v", n)
			for stored, want := range map[string]int64{own + "w": Other, own[1:] + "w": Other, own: Mine} {
				g.do("set", "lock", stored, "px", ttl)
				assert.Equal(g, want, g.release(own, "", ""), "%d bytes beside %d", n, len(stored))
				assert.Equal(g, want == Mine, g.do("get", "lock") == nil)
			}
		}
	})
}

// It deletes the lock also if it may not ask for the length of the queue, or read the first bytes of the lock, and without memory.
func TestReleasePlainWithoutTheShortCut(t *testing.T) {
	for name, c := range map[string]struct{ hinder, undo []any }{
		"no length":       {[]any{"acl", "setuser", "default", "-strlen"}, []any{"acl", "setuser", "default", "+strlen"}},
		"nothing in part": {[]any{"acl", "setuser", "default", "-getrange"}, []any{"acl", "setuser", "default", "+getrange"}},
		"no memory":       {[]any{"config", "set", "maxmemory", 1}, []any{"config", "set", "maxmemory", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			g := alone(t)
			g.releasesPlainly(func() { g.do(c.hinder...) }, func() { g.do(c.undo...) })
		})
	}
}

// If the release may not delete the lock, the lock must not become a copy of the queue, which would stay.
func TestReleasePlainWithoutPermissionToDelete(t *testing.T) {
	g := alone(t)
	g.line(queueKey, "they1")
	g.do("set", "lock", "v", "px", ttl)
	g.do("acl", "setuser", "default", "-del")
	release := Release(lockV, noProcess, noTurn, noFence)
	err := g.client.Do(t.Context(), release.InFull()...).Err()
	require.True(t, wire.IsDenied(err), "%v", err)
	g.expires()
	g.lines(queueKey, "they1")
}

// releasesPlainly makes plain releases while they are hindered: of a lock that is held or not, beside a queue
// or none.
func (g ground) releasesPlainly(hinder, unhinder func()) {
	g.Helper()
	for value, found := range map[string]int64{"v": Mine, "w": Other, "": Missing} {
		for _, beside := range []string{"nothing", "a queue", "a list"} {
			g.do("flushall")
			switch beside {
			case "a queue":
				g.line(queueKey, "they1")
			case "a list":
				g.do("rpush", "{lock}:queue", "x")
				g.do("pexpire", "{lock}:queue", ttl)
			}
			if value != "" {
				g.do("set", "lock", value, "px", ttl)
			}
			want := found
			if beside == "a queue" && found != Other {
				want += Woke
			}
			hinder()
			assert.Equal(g, want, g.release("v", "", ""), "%q beside %s", value, beside)
			unhinder()
			assert.Equal(g, found == Other, g.do("get", "lock") != nil, "%q beside %s", value, beside)
			switch beside {
			case "nothing":
				assert.Zero(g, g.do("exists", "{lock}:queue"))
			case "a queue":
				g.lines(queueKey, "they1")
			case "a list":
				assert.EqualValues(g, 1, g.do("llen", "{lock}:queue"))
			}
		}
	}
}

// If enter cannot put the ticket in the queue, it must say so, and not only that the lock is taken. A release
// still releases.
func TestQueueThatCannotBeWritten(t *testing.T) {
	for name, c := range map[string]struct {
		setting  string
		releases bool // a node that is short of memory can delete
	}{
		"OOM":        {"maxmemory", true},
		"NOREPLICAS": {"min-replicas-to-write", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := alone(t)
			for _, fence := range []Fence{{}, token(7)} {
				g.do("flushall")
				g.do("set", "lock", "w", "px", ttl)
				g.line(queueKey, "they1")
				g.do("config", "set", c.setting, 1)
				place := Place{Ticket: aTicket(2, us), Alive: alive}
				err := g.client.Do(t.Context(), Enter(lockV, ttl, place, fence).InFull()...).Err()
				require.ErrorContains(t, err, name)
				g.lines(queueKey, "they1")
				turnover := Turnover{Enters: aTicket(2, us), Alive: alive, Leave: []Ticket{aTicket(1, they)}}
				g.runs(Other, Release(lockV, ProcessOf(us), turnover, fence))
				if c.releases {
					g.run(Release(lockW, ProcessOf(us), turnover, fence))
					g.has("lock", nil)
				}
				g.do("config", "set", c.setting, 0)
			}
		})
	}
}
