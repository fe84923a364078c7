package script_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
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

// This file tests what enter and release do on one node: on a real server and on an embedded one.

const (
	alive = 60_000 // milliseconds: longer than a test
	ttl   = 60_000

	us   = "2222222222222222" // processes
	they = "1111111111111111"
)

// aTicket returns the Ticket with the text that ticket returns.
func aTicket(rank int, process string) script.Ticket { return script.TicketOf(ticket(rank, process)) }

// ticket returns the text of a ticket of a process. The ticket with the smaller rank comes first.
func ticket(rank int, process string) string {
	return fmt.Sprintf("%04d:%016d:%s:%010d", 999, rank, process, rank)
}

// higher and lower return tickets of another priority.
func higher(ticket string) string { return "0998" + ticket[4:] }
func lower(ticket string) string  { return "1000" + ticket[4:] }

// A ground is one empty node.
type ground struct {
	*testing.T
	client *redis.Client
	pubsub *redis.PubSub
}

// quietly is the turnover of a release that touches no queue.
var quietly = script.Turnover{Quietly: true}

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

// onBoth runs f on nodes of both kinds.
func onBoth(t *testing.T, f func(g ground)) {
	t.Helper()
	for kind, client := range map[string]func(t *testing.T) *redis.Client{
		"server": onServer,
		"embedded": func(t *testing.T) *redis.Client {
			t.Helper()
			nodes := embedded.Start(1)
			t.Cleanup(nodes.Close)
			c := nodes[0].Client()
			t.Cleanup(func() { _ = c.Close() })
			return c
		},
	} {
		t.Run(kind, func(t *testing.T) {
			g := ground{T: t, client: client(t)}
			g.pubsub = g.client.Subscribe(t.Context(), script.ProcessOf(us).Channel(), script.ProcessOf(they).Channel())
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
func (g ground) run(c script.Command) int64 {
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

func (g ground) enter(name, value, ticket string, strict bool) int64 {
	g.Helper()
	return g.run(script.Enter(script.NewLock(name, value), ttl, script.Place{Ticket: script.TicketOf(ticket), Alive: alive, Strict: strict}, script.Fence{}))
}

// leaving returns the Tickets with these texts.
func leaving(texts []string) (tickets []script.Ticket) {
	for _, text := range texts {
		tickets = append(tickets, script.TicketOf(text))
	}
	return tickets
}

func (g ground) release(value, process string, tickets ...string) int64 {
	g.Helper()
	return g.run(script.Release(script.NewLock("lock", value), script.ProcessOf(process), script.Turnover{Leave: leaving(tickets)}, script.Fence{}))
}

// waits puts a ticket in the queue of the lock. deadline is in milliseconds from now.
func (g ground) waits(ticket string, deadline int64) {
	g.Helper()
	now, err := g.client.Time(g.Context()).Result()
	require.NoError(g, err)
	g.store(append(g.records(), record(ticket, now.UnixMilli()+deadline)))
}

// record returns a ticket with its deadline as a queue has it.
func record(ticket string, deadline int64) string { return fmt.Sprintf("%s %013d\n", ticket, deadline) }

// records returns what is in the queue.
func (g ground) records() []string {
	g.Helper()
	text, _ := g.do("get", "{lock}:queue").(string)
	return slices.Collect(strings.Lines(text))
}

// store makes the queue of records, which it sorts.
func (g ground) store(records []string) {
	g.Helper()
	slices.Sort(records)
	g.do("set", "{lock}:queue", strings.Join(records, ""), "px", 2*alive)
}

// queue checks that just these tickets are in the queue, each with a deadline.
func (g ground) queue(want ...string) {
	g.Helper()
	var tickets []string
	for _, r := range g.records() {
		assert.Regexp(g, `^\d{4}:\d{16}:\d{16}:\d{10} \d{13}\n$`, r)
		tickets = append(tickets, r[:len(ticket(0, us))])
	}
	assert.Equal(g, strings.Join(want, "\n"), strings.Join(tickets, "\n"))
}

// heard checks what has been published: to whom, each about the lock.
func (g ground) heard(want ...string) {
	g.Helper()
	g.do("publish", script.ProcessOf(us).Channel(), "end")
	var got []string
	for {
		m, err := g.pubsub.ReceiveTimeout(context.Background(), 10*time.Second)
		require.NoError(g, err)
		message := m.(*redis.Message)
		if message.Payload == "end" {
			break
		}
		assert.Equal(g, "lock", message.Payload)
		got = append(got, strings.TrimPrefix(message.Channel, "redsync:"))
	}
	assert.Equal(g, want, got)
}

func TestEnter(t *testing.T) {
	first, second, third := ticket(1, they), ticket(2, us), ticket(3, they)
	for name, c := range map[string]struct {
		before  func(g ground)
		ticket  string
		strict  bool
		least   int64 // of the answer
		most    int64
		lock    any
		waiting []string
	}{
		"free":                                {nil, second, false, 0, 0, "v", []string{second}},
		"taken by another, strict":            {func(g ground) { g.do("set", "lock", "w", "px", 60_000) }, second, true, 50_000, 60_000, "w", []string{second}},
		"taken by the same value":             {func(g ground) { g.do("set", "lock", "v", "px", 60_000) }, second, false, 50_000, 60_000, "v", []string{second}},
		"behind another process":              {func(g ground) { g.waits(first, 50_000) }, second, true, 40_000, 50_000, nil, []string{first, second}},
		"behind another process, not strict":  {func(g ground) { g.waits(first, 50_000) }, second, false, 0, 0, "v", []string{first, second}},
		"before another process":              {func(g ground) { g.waits(third, 50_000) }, second, true, 0, 0, "v", []string{second, third}},
		"behind one's own process":            {func(g ground) { g.waits(ticket(1, us), 50_000) }, second, true, 0, 0, "v", []string{ticket(1, us), second}},
		"behind a dead waiter":                {func(g ground) { g.waits(first, -1) }, second, true, 0, 0, "v", []string{second}},
		"a queue that is none":                {func(g ground) { g.do("set", "{lock}:queue", "what?", "px", ttl) }, second, true, 0, 0, "v", []string{second}},
		"free, with a lower class before it":  {func(g ground) { g.waits(lower(first), 50_000) }, second, true, 0, 0, "v", []string{second, lower(first)}},
		"free, with a higher class before it": {func(g ground) { g.waits(higher(third), 50_000) }, second, true, 40_000, 50_000, nil, []string{higher(third), second}},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(g ground) {
				if c.before != nil {
					c.before(g)
				}
				answer := g.enter("lock", "v", c.ticket, c.strict)
				assert.GreaterOrEqual(t, answer, c.least)
				assert.LessOrEqual(t, answer, c.most)
				assert.Equal(t, c.lock, g.do("get", "lock"))
				if c.waiting != nil {
					g.queue(c.waiting...)
				}
				if answer == script.Granted {
					assert.Greater(t, g.do("pttl", "lock"), int64(ttl-5000))
				}
				g.heard()
			})
		})
	}
}

// If the key of the queue has no TTL, enter gives it one.
func TestEnterGivesTheQueueATTL(t *testing.T) {
	onBoth(t, func(g ground) {
		g.do("set", "{lock}:queue", record(ticket(1, they), 1))
		g.enter("lock", "v", ticket(2, us), true)
		g.queue(ticket(2, us))
	})
}

// If the node's clock is set back, waiters that have died before are dead as soon as without the step, counted from the
// next enter on: all of them at once.
func TestClockThatIsSetBackKeepsNoDeadWaiter(t *testing.T) {
	place := script.Place{Ticket: aTicket(9, us), Alive: script.AliveFor, Strict: true}
	dead := func(kind string) (text string) {
		at := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() + script.AliveFor // the deadlines; a bubble begins then
		for i := range 3 {
			text += strings.Replace(record(ticket(i, they+"3"[:i/2])[:49], at), " ", kind, 1)
		}
		return text
	}
	for name, c := range map[string]struct {
		queues []string
		kind   string
		enter  script.Command
	}{
		"exclusive":               {[]string{queueKey}, " ", script.Enter(of("v"), ttl, place, script.Fence{})},
		"behind readers":          {[]string{queueKey}, "r", script.Enter(of("v"), ttl, place, token(7))},
		"several names":           {[]string{"{a}:queue", "{b}:queue", "{c}:queue"}, " ", script.EnterMulti(abc, ttl, place, script.Fence{})},
		"the last name":           {[]string{"{c}:queue"}, "r", script.EnterMulti(abc, ttl, place, script.Fence{})},
		"permits":                 {[]string{slotQueue}, " ", script.EnterPermits(four, "v", ttl, wants(2, 0), place)},
		"a reader":                {[]string{queueKey}, " ", script.EnterShared(of("v"), ttl, place, script.Fence{})},
		"a reader with a token":   {[]string{queueKey}, " ", script.EnterShared(of("v"), ttl, place, token(7))},
		"a reader with no ticket": {[]string{queueKey}, " ", script.EnterShared(of("v"), ttl, script.Place{}, script.Fence{})},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *embedded.Node, client *redis.Client) {
				g := ground{T: t, client: client}
				for _, q := range c.queues {
					g.do("set", q, dead(c.kind), "px", 2*script.AliveFor)
				}
				n.SetClock(-time.Minute, 1)
				has := func() bool { return g.client.Exists(t.Context(), "lock", "a", slot(0)).Val() > 0 }
				g.do(c.enter.InFull()...)
				assert.False(t, has(), "the dead may live yet")
				time.Sleep((script.AliveFor - 1) * time.Millisecond)
				g.do(c.enter.InFull()...)
				assert.False(t, has())
				time.Sleep(time.Millisecond)
				g.do(c.enter.InFull()...)
				assert.True(t, has())
			})
		})
	}
}

func TestRelease(t *testing.T) {
	mine := func(g ground) { g.do("set", "lock", "v", "px", ttl) }
	others := func(g ground) { g.do("set", "lock", "w", "px", ttl) }
	for name, c := range map[string]struct {
		before  func(g ground)
		waiting map[string]int64 // with their deadlines from now
		tickets []string         // that leave
		want    int64
		lock    any
		left    []string
		told    []string
	}{
		"mine":                                {mine, nil, nil, script.Mine, nil, nil, nil},
		"missing, somebody waits":             {nil, map[string]int64{ticket(1, they): 60_000}, nil, script.Missing + script.Woke, nil, []string{ticket(1, they)}, []string{they}},
		"another's, a ticket leaves":          {others, map[string]int64{ticket(1, us): 60_000, ticket(2, they): 60_000}, []string{ticket(1, us)}, script.Other, "w", []string{ticket(2, they)}, nil},
		"mine, we wait first":                 {mine, map[string]int64{ticket(1, us): 60_000, ticket(2, they): 60_000}, nil, script.Mine + script.First + script.Others, nil, []string{ticket(1, us), ticket(2, they)}, nil},
		"mine, we leave":                      {mine, map[string]int64{ticket(1, us): 60_000, ticket(2, they): 60_000}, []string{ticket(1, us)}, script.Mine + script.Woke, nil, []string{ticket(2, they)}, []string{they}},
		"mine, one leaves that is not there":  {mine, nil, []string{ticket(1, us)}, script.Mine, nil, nil, nil},
		"mine, dead ones before a live one":   {mine, map[string]int64{ticket(1, they): -1, ticket(2, us): -1, ticket(3, they): 60_000}, nil, script.Mine + script.Woke, nil, []string{ticket(3, they)}, []string{they}},
		"mine, a higher class than the first": {mine, map[string]int64{ticket(1, us): 60_000, higher(ticket(2, they)): 60_000}, nil, script.Mine + script.Woke, nil, []string{higher(ticket(2, they)), ticket(1, us)}, []string{they}},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(g ground) {
				if c.before != nil {
					c.before(g)
				}
				for ticket, deadline := range c.waiting {
					g.waits(ticket, deadline)
				}
				assert.Equal(t, c.want, g.release("v", us, c.tickets...))
				assert.Equal(t, c.lock, g.do("get", "lock"))
				g.queue(c.left...)
				g.heard(c.told...)
			})
		})
	}
}

// A plain release deletes the lock, and nothing else.
func TestReleasePlain(t *testing.T) {
	onBoth(t, func(g ground) { g.releasesPlainly(func() {}, func() {}) })
}

// It compares the whole of a value, however long that is.
func TestReleasePlainOfLongValues(t *testing.T) {
	onBoth(t, func(g ground) {
		for _, n := range []int{1, 255, 256, 257, 300_000} {
			own := strings.Repeat("v", n)
			for stored, want := range map[string]int64{own + "w": script.Other, own[1:] + "w": script.Other, own: script.Mine} {
				g.do("set", "lock", stored, "px", ttl)
				assert.Equal(g, want, g.release(own, ""), "%d bytes beside %d", n, len(stored))
				assert.Equal(g, want == script.Mine, g.do("get", "lock") == nil)
			}
		}
	})
}

// It also does so if it may not ask for the length of the queue, or read the first bytes of the lock, and without memory.
func TestReleasePlainWithoutTheShortCut(t *testing.T) {
	for name, c := range map[string]struct{ hinder, undo []any }{
		"no length":        {[]any{"acl", "setuser", "default", "-strlen"}, []any{"acl", "setuser", "default", "+strlen"}},
		"no length, no OR": {[]any{"acl", "setuser", "default", "-strlen", "-bitop"}, []any{"acl", "setuser", "default", "+strlen", "+bitop"}},
		"nothing in part":  {[]any{"acl", "setuser", "default", "-getrange"}, []any{"acl", "setuser", "default", "+getrange"}},
		"no memory":        {[]any{"config", "set", "maxmemory", 1}, []any{"config", "set", "maxmemory", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			g := ground{T: t, client: realredis.Start(t, 1)[0].Client()}
			g.releasesPlainly(func() { g.do(c.hinder...) }, func() { g.do(c.undo...) })
		})
	}
}

// If the release may not delete the lock, the lock must not become a copy of the queue, which would stay.
func TestReleasePlainWithoutPermissionToDelete(t *testing.T) {
	g := ground{T: t, client: realredis.Start(t, 1)[0].Client()}
	g.waits(ticket(1, they), 60_000)
	g.do("set", "lock", "v", "px", ttl)
	g.do("acl", "setuser", "default", "-del")
	release := script.Release(script.NewLock("lock", "v"), script.Process{}, script.Turnover{}, script.Fence{})
	err := g.client.Do(t.Context(), release.InFull()...).Err()
	require.True(t, pool.IsDenied(err), "%v", err)
	g.expires()
	g.queue(ticket(1, they))
}

// releasesPlainly makes plain releases while they are hindered: of a lock that is held or not, beside a queue
// or none.
func (g ground) releasesPlainly(hinder, unhinder func()) {
	g.Helper()
	for value, found := range map[string]int64{"v": script.Mine, "w": script.Other, "": script.Missing} {
		for _, beside := range []string{"nothing", "a queue", "a list"} {
			g.do("flushall")
			switch beside {
			case "a queue":
				g.waits(ticket(1, they), 60_000)
			case "a list":
				g.do("rpush", "{lock}:queue", "x")
				g.do("pexpire", "{lock}:queue", ttl)
			}
			if value != "" {
				g.do("set", "lock", value, "px", ttl)
			}
			want := found
			if beside == "a queue" && found != script.Other {
				want += script.Woke
			}
			hinder()
			assert.Equal(g, want, g.release("v", ""), "%q beside %s", value, beside)
			unhinder()
			assert.Equal(g, found == script.Other, g.do("get", "lock") != nil, "%q beside %s", value, beside)
			switch beside {
			case "nothing":
				assert.Zero(g, g.do("exists", "{lock}:queue"))
			case "a queue":
				g.queue(ticket(1, they))
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
			g := ground{T: t, client: realredis.Start(t, 1)[0].Client()}
			for _, fence := range []script.Fence{{}, token(7)} {
				g.do("flushall")
				g.do("set", "lock", "w", "px", ttl)
				g.waits(ticket(1, they), 60_000)
				g.do("config", "set", c.setting, 1)
				place := script.Place{Ticket: aTicket(2, us), Alive: alive}
				err := g.client.Do(t.Context(), script.Enter(script.NewLock("lock", "v"), ttl, place, fence).InFull()...).Err()
				require.ErrorContains(t, err, name)
				g.queue(ticket(1, they))
				turnover := script.Turnover{Enters: aTicket(2, us), Alive: alive, Leave: []script.Ticket{aTicket(1, they)}}
				assert.Equal(t, script.Other, g.run(script.Release(script.NewLock("lock", "v"), script.ProcessOf(us), turnover, fence)))
				if c.releases {
					g.run(script.Release(script.NewLock("lock", "w"), script.ProcessOf(us), turnover, fence))
					assert.Nil(t, g.do("get", "lock"))
				}
				g.do("config", "set", c.setting, 0)
			}
		})
	}
}
