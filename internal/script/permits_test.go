package script_test

import (
	"fmt"
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
)

// This file tests the scripts of permits on one node, rule by rule. The semaphore has the name of the lock,
// and four permits.

var four = script.NewSemaphore("lock", 4)

const slotQueue = "{lock}:slots"

// aList stands for a slot whose key is of another type.
const aList = "a list"

// slot returns the key of a slot.
func slot(i int) string { return fmt.Sprintf("{lock}:slot:%d", i) }

// slots returns a set.
func slots(list ...int) (set script.Slots) {
	for _, i := range list {
		set = set.With(i)
	}
	return set
}

// on runs f as a subtest.
func (g ground) on(name string, f func(g ground)) {
	g.Helper()
	g.Run(name, func(t *testing.T) {
		g.T = t
		f(g)
	})
}

// fills empties the node, and sets the slots to these values. They are separated by ", ", and "-" stands
// for none.
func (g ground) fills(values string) {
	g.Helper()
	g.do("flushall")
	for i, value := range strings.Split(values, ", ") {
		switch value {
		case "-":
		case aList:
			g.do("rpush", slot(i), "x")
			g.do("pexpire", slot(i), ttl/4)
		default:
			g.do("set", slot(i), value, "px", ttl/2)
		}
	}
}

// filled returns the values of the four slots as fills takes them.
func (g ground) filled() string {
	g.Helper()
	var values []string
	for i := range 4 {
		switch value := g.client.Get(g.Context(), slot(i)); {
		case value.Err() == nil:
			values = append(values, value.Val())
		case value.Err() == redis.Nil: //nolint:errorlint // a sentinel
			values = append(values, "-")
		default:
			values = append(values, aList)
		}
	}
	return strings.Join(values, ", ")
}

// queues makes the queue of permits: these tickets, each with its deadline in milliseconds from now.
func (g ground) queues(waiting map[string]int64) {
	g.Helper()
	now, err := g.client.Time(g.Context()).Result()
	require.NoError(g, err)
	var records []string
	for ticket, left := range waiting {
		records = append(records, record(ticket, now.UnixMilli()+left))
	}
	if records != nil {
		slices.Sort(records)
		g.do("set", slotQueue, strings.Join(records, ""), "px", 2*ttl)
	}
}

// queued returns the tickets in the queue of permits.
func (g ground) queued() (tickets []string) {
	g.Helper()
	text, _ := g.do("get", slotQueue).(string)
	for line := range strings.Lines(text) {
		tickets = append(tickets, line[:49])
	}
	return tickets
}

// told checks who has been told that a slot is free.
func (g ground) told(want ...string) {
	g.Helper()
	g.do("publish", script.ProcessOf(us).Channel(), "end")
	var got []string
	for _, m := range g.messages() {
		process, key, _ := strings.Cut(m, " ")
		assert.Equal(g, slotQueue, script.LineOf(key))
		got = append(got, process)
	}
	assert.Equal(g, want, got)
}

// permits runs the script that enters a semaphore, and returns its parsed reply.
func (g ground) permits(s *script.Semaphore, value string, e script.Entering, place script.Place) script.EnteredPermits {
	g.Helper()
	reply := g.do(script.EnterPermits(s, value, ttl, e, place).InFull()...)
	g.expires()
	entered, err := e.Parse(reply, s.Permits())
	require.NoError(g, err)
	return entered
}

// wants returns an Entering for n slots. A node tries the slots of front before the others, each part in
// cyclic order from first on.
func wants(n, first int, front ...int) script.Entering {
	return script.Entering{Wants: n, Order: script.Order{First: first, Front: slots(front...)}}
}

// granted returns the answer of a node that grants these slots.
func granted(list ...int) script.EnteredPermits {
	return script.EnteredPermits{Granted: true, Slots: slots(list...), Free: slots(list...)}
}

// alsoFree returns e with other slots that the node says are free.
func alsoFree(e script.EnteredPermits, free ...int) script.EnteredPermits {
	e.Free = e.Free.Or(slots(free...))
	return e
}

func refused(wait int64, free ...int) script.EnteredPermits {
	return script.EnteredPermits{Wait: wait, Free: slots(free...)}
}

func wasThere(list ...int) script.EnteredPermits {
	return script.EnteredPermits{Granted: true, WasThere: true, Slots: slots(list...)}
}

func TestEnterPermits(t *testing.T) {
	mine, before, behind := ticket(2, us), ticket(1, they), ticket(3, they)
	cases := map[string]struct {
		slots   string
		waiting map[string]int64
		enters  script.Entering
		ticket  string
		strict  bool
		want    script.EnteredPermits
		left    string // the values of the slots
		queue   []string
	}{
		"free":                             {"-, -, -, -", nil, wants(1, 0), "", false, granted(0), "v, -, -, -", nil},
		"free, from another on":            {"-, -, -, -", nil, wants(1, 2), "", false, granted(2), "-, -, v, -", nil},
		"the first is taken":               {"-, w, -, -", nil, wants(1, 1), "", false, granted(2), "-, w, v, -", nil},
		"the last are taken":               {"-, -, w, w", nil, wants(1, 2), "", false, granted(0), "v, -, w, w", nil},
		"only the one before is free":      {"w, -, w, w", nil, wants(1, 2), "", false, granted(1), "w, v, w, w", nil},
		"full":                             {"w, w, w, w", nil, wants(1, 2), "", false, refused(-1), "w, w, w, w", nil},
		"a front":                          {"-, -, -, -", nil, wants(1, 2, 1, 3), "", false, granted(3), "-, -, -, v", nil},
		"a front, cyclic":                  {"-, -, -, w", nil, wants(1, 2, 1, 3), "", false, granted(1), "-, v, -, w", nil},
		"a front that is taken":            {"-, w, -, w", nil, wants(1, 2, 1, 3), "", false, granted(2), "-, w, v, w", nil},
		"a front that is taken, and more":  {"-, w, w, w", nil, wants(1, 2, 1, 3), "", false, granted(0), "v, w, w, w", nil},
		"all are in front":                 {"-, w, w, w", nil, wants(1, 2, 0, 1, 2, 3), "", false, granted(0), "v, w, w, w", nil},
		"a list is taken":                  {"a list, -, -, -", nil, wants(1, 0), "", false, granted(1), "a list, v, -, -", nil},
		"lists are taken":                  {"a list, a list, -, a list", nil, wants(1, 3), "", false, granted(2), "a list, a list, v, a list", nil},
		"two":                              {"-, -, -, -", nil, wants(2, 3), "", false, alsoFree(granted(3, 0), 1, 2), "v, -, -, v", nil},
		"two, between others":              {"w, -, w, -", nil, wants(2, 0), "", false, granted(1, 3), "w, v, w, v", nil},
		"two, in front":                    {"-, -, -, -", nil, wants(2, 0, 3, 1), "", false, alsoFree(granted(1, 3), 0, 2), "-, v, -, v", nil},
		"two, one of them in front":        {"-, w, -, -", nil, wants(2, 2, 1, 0), "", false, alsoFree(granted(0, 2), 3), "v, w, v, -", nil},
		"two, one is free":                 {"w, w, -, w", nil, wants(2, 0), "", false, refused(-1, 2), "w, w, -, w", nil},
		"two, one is free, one a list":     {"w, w, -, a list", nil, wants(2, 0), "", false, refused(-1, 2), "w, w, -, a list", nil},
		"all":                              {"-, -, -, -", nil, wants(4, 1), "", false, granted(0, 1, 2, 3), "v, v, v, v", nil},
		"all, but one is taken":            {"-, -, -, w", nil, wants(4, 1), "", false, refused(-1, 0, 1, 2), "-, -, -, w", nil},
		"the value is there":               {"-, v, -, -", nil, wants(1, 1), "", false, wasThere(1), "-, v, -, -", nil},
		"the value is there, further on":   {"w, v, -, -", nil, wants(1, 0), "", false, wasThere(1), "w, v, -, -", nil},
		"two, the value is there":          {"v, w, -, v", nil, wants(2, 0), "", false, wasThere(0, 3), "v, w, -, v", nil},
		"two, a part of the value there":   {"v, w, -, -", nil, wants(2, 0), "", false, wasThere(0), "v, w, -, -", nil},
		"queued":                           {"-, w, -, -", nil, wants(1, 1), mine, false, alsoFree(granted(2), 0, 3), "-, w, v, -", []string{mine}},
		"queued, the first is free":        {"-, w, -, -", nil, wants(1, 0), mine, true, alsoFree(granted(0), 2, 3), "v, w, -, -", []string{mine}},
		"queued, two":                      {"-, w, -, -", nil, wants(2, 1), mine, false, alsoFree(granted(2, 3), 0), "-, w, v, v", []string{mine}},
		"queued, two, one is free":         {"w, w, -, w", nil, wants(2, 1), mine, true, refused(ttl/2, 2), "w, w, -, w", []string{mine}},
		"queued, full":                     {"w, w, w, w", nil, wants(1, 1), mine, false, refused(ttl / 2), "w, w, w, w", []string{mine}},
		"queued, full of lists but one":    {"a list, a list, a list, w", nil, wants(1, 1), mine, false, refused(ttl / 2), "a list, a list, a list, w", []string{mine}},
		"queued, the value is there":       {"w, v, -, -", nil, wants(1, 0), mine, false, wasThere(1), "w, v, -, -", []string{mine}},
		"queued behind":                    {"-, -, -, -", map[string]int64{before: 50_000}, wants(1, 0), mine, false, alsoFree(granted(0), 1, 2, 3), "v, -, -, -", []string{before, mine}},
		"queued behind, strict":            {"-, -, -, -", map[string]int64{before: 50_000}, wants(1, 0), mine, true, refused(50_000), "-, -, -, -", []string{before, mine}},
		"queued behind, strict, full":      {"w, w, w, w", map[string]int64{before: 50_000}, wants(1, 0), mine, true, refused(50_000), "w, w, w, w", []string{before, mine}},
		"queued behind, strict, there":     {"v, -, -, -", map[string]int64{before: 50_000}, wants(1, 0), mine, true, refused(50_000), "v, -, -, -", []string{before, mine}},
		"queued before, strict":            {"-, w, w, w", map[string]int64{behind: 50_000}, wants(1, 0), mine, true, granted(0), "v, w, w, w", []string{mine, behind}},
		"queued behind our own, strict":    {"-, w, w, w", map[string]int64{ticket(1, us): 50_000}, wants(1, 0), mine, true, granted(0), "v, w, w, w", []string{ticket(1, us), mine}},
		"queued behind the dead, strict":   {"-, w, w, w", map[string]int64{before: -5, behind: 50_000}, wants(1, 0), mine, true, granted(0), "v, w, w, w", []string{mine, behind}},
		"queued again, strict":             {"-, w, w, w", map[string]int64{mine: 5, behind: 50_000}, wants(1, 0), mine, true, granted(0), "v, w, w, w", []string{mine, behind}},
		"queued behind a higher, strict":   {"-, -, -, -", map[string]int64{higher(behind): 50_000}, wants(1, 0), mine, true, refused(50_000), "-, -, -, -", []string{higher(behind), mine}},
		"not queued, although others wait": {"-, w, w, w", map[string]int64{before: 50_000}, wants(1, 0), "", false, granted(0), "v, w, w, w", []string{before}},
	}
	onBoth(t, func(g ground) {
		for name, c := range cases {
			g.on(name, func(g ground) {
				g.fills(c.slots)
				g.queues(c.waiting)
				got := g.permits(four, "v", c.enters, script.Place{Ticket: script.TicketOf(c.ticket), Alive: alive, Strict: c.strict})
				if c.want.Wait > 0 {
					assert.InDelta(g, c.want.Wait, got.Wait, 5000)
					got.Wait = c.want.Wait
				}
				assert.Equal(g, c.want, got)
				assert.Equal(g, c.left, g.filled())
				assert.Equal(g, c.queue, g.queued())
				for i := range 4 {
					if got.Granted && !got.WasThere && got.Slots.Has(i) {
						assert.InDelta(g, ttl, g.do("pttl", slot(i)), 5000)
					} else if c.left != "" {
						assert.Less(g, g.do("pttl", slot(i)), int64(ttl/2+1), "the TTLs of others stay")
					}
				}
				if c.ticket != "" {
					assert.GreaterOrEqual(g, g.do("pttl", slotQueue), int64(2*alive-5000))
				}
				g.told()
			})
		}
	})
}

// The refusal of a waiter says when the first slot runs out. A slot belongs to its holder to the end, even
// while its TTL is less than a millisecond and PTTL shows 0.
func TestEnterPermitsSaysWhenASlotRunsOut(t *testing.T) {
	bubble(t, func(t *testing.T, _ *embedded.Node, c *redis.Client) {
		g := ground{T: t, client: c}
		place := script.Place{Ticket: aTicket(1, us), Alive: 100 * ttl}
		for _, c := range []struct {
			ttls []int64 // 0 for a slot that never runs out
			want int64
		}{
			{[]int64{300, 200, 100, 400}, 100},
			{[]int64{100, 200, 300, 400}, 100},
			{[]int64{0, 0, 300, 0}, 300},
			{[]int64{0, 0, 0, 0}, -1},
			{[]int64{0, 7, 1, 9}, 1},
		} {
			g.do("flushall")
			for i, ttl := range c.ttls {
				g.do("set", slot(i), "w")
				if ttl > 0 {
					g.do("pexpire", slot(i), ttl)
				}
			}
			e := wants(1, 2)
			read := func() int64 {
				entered, err := e.Parse(g.do(script.EnterPermits(four, "v", ttl, e, place).InFull()...), 4)
				require.NoError(t, err)
				assert.Equal(t, script.EnteredPermits{Wait: entered.Wait}, entered)
				return entered.Wait
			}
			assert.Equal(t, c.want, read())
			if c.want == 1 {
				time.Sleep(500 * time.Microsecond)
				require.Equal(t, int64(0), g.do("pttl", slot(2)))
				assert.Equal(t, int64(1), read())
			}
		}
	})
}

// With 256 permits the node finds the only free one, whichever slot comes first, and one lease can have all
// of them.
func TestManyPermits(t *testing.T) {
	const n = script.MaxPermits
	s := script.NewSemaphore("lock", n)
	onBoth(t, func(g ground) {
		fill := []any{"mset"}
		for i := range n {
			if i != 200 {
				fill = append(fill, slot(i), "w")
			}
		}
		place := script.Place{Ticket: aTicket(1, us), Alive: alive}
		for _, first := range []int{0, 199, 200, 201, 255} {
			for _, p := range []script.Place{{}, place} {
				for _, e := range []script.Entering{wants(1, first), wants(1, first, 7, 255), wants(1, first, 3, 200)} {
					g.do("flushall")
					g.do(fill...)
					entered, err := e.Parse(g.do(script.EnterPermits(s, "v", ttl, e, p).InFull()...), n)
					require.NoError(g, err)
					assert.Equal(g, granted(200), entered)
					assert.Equal(g, "v", g.do("get", slot(200)))
				}
			}
		}
		all := s.AllBut(script.Slots{})
		assert.Equal(g, n, all.Len())
		g.do("flushall")
		assert.Equal(g, script.EnteredPermits{Granted: true, Slots: all, Free: all}, g.permits(s, "v", wants(n, 100), place))
		assert.Equal(g, script.Mine, g.run(script.ExtendMulti(s.Multi(all, "v"), 2*ttl)))
		assert.Equal(g, refused(-1), g.permits(s, "w", wants(1, 100), script.Place{}))
		assert.Equal(g, script.Mine, g.run(script.ReleaseSlots(s, "v", n, all, script.Slots{}, script.Process{}, script.Turnover{Leave: []script.Ticket{aTicket(1, us)}})))
		assert.Empty(g, g.do("keys", "*"))
	})
}

func TestReleaseSlots(t *testing.T) {
	first, second, third := ticket(1, us), ticket(2, they), ticket(3, us)
	cases := map[string]struct {
		slots        string
		weight       int
		gives, keeps []int
		waiting      map[string]int64
		enters       string
		leave        []string
		quietly      bool
		want         int64
		left         string
		queue        []string
		told         []string
		ofNoProcess  bool
	}{
		"mine":                          {slots: "v, w, w, w", weight: 1, gives: []int{0, 1, 2, 3}, want: script.Mine, left: "-, w, w, w"},
		"two are mine":                  {slots: "v, w, v, w", weight: 2, gives: []int{0, 1, 2, 3}, want: script.Mine, left: "-, w, -, w"},
		"more than a lease has":         {slots: "v, v, v, w", weight: 2, gives: []int{0, 1, 2, 3}, want: script.Mine, left: "-, -, -, w"},
		"one of two":                    {slots: "v, w, -, w", weight: 2, gives: []int{0, 2}, want: script.Missing, left: "-, w, -, w"},
		"one of two, the other taken":   {slots: "v, w, -, w", weight: 2, gives: []int{0, 1}, want: script.Missing, left: "-, w, -, w"},
		"none":                          {slots: "-, w, w, w", weight: 1, gives: []int{0, 1, 2, 3}, want: script.Missing, left: "-, w, w, w"},
		"none, full":                    {slots: "w, w, w, w", weight: 1, gives: []int{0, 1, 2, 3}, want: script.Missing, left: "w, w, w, w"},
		"kept":                          {slots: "v, v, w, w", weight: 1, gives: []int{0, 2, 3}, keeps: []int{1}, want: script.Mine, left: "-, v, w, w"},
		"only what is kept":             {slots: "w, v, w, w", weight: 1, gives: []int{0, 2, 3}, keeps: []int{1}, want: script.Mine, left: "w, v, w, w"},
		"what is kept is not there":     {slots: "v, w, w, w", weight: 1, gives: []int{0, 2, 3}, keeps: []int{1}, want: script.Mine, left: "-, w, w, w"},
		"all are kept":                  {slots: "v, v, v, v", weight: 4, keeps: []int{0, 1, 2, 3}, want: script.Mine, left: "v, v, v, v"},
		"two are kept, two astray":      {slots: "v, v, v, v", weight: 2, gives: []int{0, 1}, keeps: []int{2, 3}, want: script.Mine, left: "-, -, v, v"},
		"others are not looked at":      {slots: "v, w, w, -", weight: 1, gives: []int{1}, keeps: []int{2}, want: script.Missing, left: "v, w, w, -", waiting: map[string]int64{second: 60_000}, queue: []string{second}},
		"lists":                         {slots: "a list, v, w, a list", weight: 1, gives: []int{0, 1, 2, 3}, want: script.Mine, left: "a list, -, w, a list"},
		"a list is not free":            {slots: "a list, w, w, a list", weight: 1, gives: []int{0, 1, 2, 3}, want: script.Missing, left: "a list, w, w, a list", waiting: map[string]int64{second: 60_000}, queue: []string{second}},
		"a list, and one is free":       {slots: "a list, w, -, a list", weight: 1, gives: []int{0, 1, 2, 3}, want: script.Missing, left: "a list, w, -, a list", waiting: map[string]int64{second: 60_000}, queue: []string{second}},
		"quietly":                       {slots: "v, w, v, w", weight: 2, gives: []int{0, 1, 2, 3}, quietly: true, want: script.Mine, left: "-, w, -, w", waiting: map[string]int64{second: 60_000}, queue: []string{second}},
		"quietly, nothing":              {slots: "v, w, v, w", weight: 2, quietly: true, want: script.Missing, left: "v, w, v, w", waiting: map[string]int64{second: 60_000}, queue: []string{second}},
		"quietly, a list":               {slots: "a list, v, w, w", weight: 1, gives: []int{0, 1, 2, 3}, quietly: true, want: script.Mine, left: "a list, -, w, w"},
		"another waits":                 {slots: "v, w, w, w", weight: 1, gives: []int{0, 1, 2, 3}, waiting: map[string]int64{second: 60_000}, want: script.Mine + script.Woke, left: "-, w, w, w", queue: []string{second}, told: []string{they}},
		"another waits, full":           {slots: "w, w, w, w", weight: 1, gives: []int{0, 1, 2, 3}, waiting: map[string]int64{second: 60_000}, want: script.Missing, left: "w, w, w, w", queue: []string{second}},
		"another waits, one is free":    {slots: "w, w, w, -", weight: 1, gives: []int{0, 1, 2, 3}, waiting: map[string]int64{second: 60_000}, want: script.Missing, left: "w, w, w, -", queue: []string{second}},
		"another waits, kept one free":  {slots: "w, w, w, -", weight: 1, gives: []int{0, 1, 2}, keeps: []int{3}, waiting: map[string]int64{second: 60_000}, want: script.Missing, left: "w, w, w, -", queue: []string{second}},
		"another waits, kept":           {slots: "w, w, w, v", weight: 1, gives: []int{0, 1, 2}, keeps: []int{3}, waiting: map[string]int64{second: 60_000}, want: script.Mine, left: "w, w, w, v", queue: []string{second}},
		"another waits, all kept":       {slots: "v, v, -, w", weight: 2, keeps: []int{0, 1, 2}, waiting: map[string]int64{second: 60_000}, want: script.Mine, left: "v, v, -, w", queue: []string{second}},
		"we wait first":                 {slots: "v, w, w, w", weight: 1, gives: []int{0}, waiting: map[string]int64{first: 60_000}, want: script.Mine + script.First, left: "-, w, w, w", queue: []string{first}},
		"we wait first, then another":   {slots: "v, w, w, w", weight: 1, gives: []int{0}, waiting: map[string]int64{first: 60_000, second: 60_000}, want: script.Mine + script.First + script.Others, left: "-, w, w, w", queue: []string{first, second}},
		"we wait twice, then another":   {slots: "v, w, w, w", weight: 1, gives: []int{0}, waiting: map[string]int64{first: 60_000, ticket(2, us): 60_000, ticket(3, they): 60_000}, want: script.Mine + script.First, left: "-, w, w, w", queue: []string{first, ticket(2, us), ticket(3, they)}},
		"we wait first, of no process":  {slots: "v, w, w, w", weight: 1, gives: []int{0}, waiting: map[string]int64{first: 60_000}, ofNoProcess: true, want: script.Mine + script.Woke, left: "-, w, w, w", queue: []string{first}, told: []string{us}},
		"the dead":                      {slots: "v, w, w, w", weight: 1, gives: []int{0}, waiting: map[string]int64{first: -5}, want: script.Mine, left: "-, w, w, w"},
		"the dead before another":       {slots: "v, w, w, w", weight: 1, gives: []int{0}, waiting: map[string]int64{first: -5, second: 60_000}, want: script.Mine + script.Woke, left: "-, w, w, w", queue: []string{second}, told: []string{they}},
		"ours leaves":                   {slots: "v, w, w, w", weight: 1, gives: []int{0}, waiting: map[string]int64{first: 60_000, second: 60_000}, leave: []string{first}, want: script.Mine + script.Woke, left: "-, w, w, w", queue: []string{second}, told: []string{they}},
		"ours leaves, full":             {slots: "w, w, w, w", weight: 1, gives: []int{0, 1, 2, 3}, waiting: map[string]int64{first: 60_000, second: 60_000}, leave: []string{first}, want: script.Missing, left: "w, w, w, w", queue: []string{second}},
		"ours leaves, kept":             {slots: "w, v, w, w", weight: 1, gives: []int{0, 2, 3}, keeps: []int{1}, waiting: map[string]int64{first: 60_000, second: 60_000}, leave: []string{first}, want: script.Mine, left: "w, v, w, w", queue: []string{second}},
		"ours leaves, kept, one free":   {slots: "w, v, -, w", weight: 1, gives: []int{0, 2, 3}, keeps: []int{1}, waiting: map[string]int64{first: 60_000, second: 60_000}, leave: []string{first}, want: script.Mine + script.Woke, left: "w, v, -, w", queue: []string{second}, told: []string{they}},
		"ours enters":                   {slots: "v, w, w, w", weight: 1, gives: []int{0}, enters: third, want: script.Mine + script.First, left: "-, w, w, w", queue: []string{third}},
		"ours enters behind another":    {slots: "v, w, w, w", weight: 1, gives: []int{0}, waiting: map[string]int64{second: 60_000}, enters: third, want: script.Mine + script.Woke, left: "-, w, w, w", queue: []string{second, third}, told: []string{they}},
		"ours enters, full":             {slots: "w, w, w, w", weight: 1, gives: []int{0}, waiting: map[string]int64{second: 60_000}, enters: third, want: script.Missing, left: "w, w, w, w", queue: []string{second, third}},
		"ours enters, another leaves":   {slots: "w, w, w, w", weight: 1, gives: []int{0}, waiting: map[string]int64{first: 60_000, second: 60_000}, enters: third, leave: []string{first}, want: script.Missing, left: "w, w, w, w", queue: []string{second, third}},
		"one leaves that was not there": {slots: "v, w, w, w", weight: 1, gives: []int{0}, leave: []string{first}, want: script.Mine, left: "-, w, w, w"},
	}
	onBoth(t, func(g ground) {
		for name, c := range cases {
			g.on(name, func(g ground) {
				g.fills(c.slots)
				g.queues(c.waiting)
				process := script.ProcessOf(us)
				if c.ofNoProcess {
					process = script.Process{}
				}
				turnover := script.Turnover{Enters: script.TicketOf(c.enters), Alive: alive, Leave: leaving(c.leave)}
				command := script.ReleaseSlots(four, "v", c.weight, slots(c.gives...), slots(c.keeps...), process, turnover)
				if c.quietly {
					command = script.ReleaseSlots(four, "v", c.weight, slots(c.gives...), script.Slots{}, script.Process{}, quietly)
				}
				assert.Equal(g, c.want, g.run(command))
				assert.Equal(g, c.left, g.filled())
				assert.Equal(g, c.queue, g.queued())
				g.told(c.told...)
			})
		}
	})
}

// One slot is released as a lock is, with the queue of the semaphore.
func TestReleaseSlot(t *testing.T) {
	first, second := ticket(1, us), ticket(2, they)
	process := script.ProcessOf(us)
	onBoth(t, func(g ground) {
		for _, plain := range []bool{false, true} {
			release := func(leave ...string) int64 {
				if plain && leave == nil {
					return g.run(script.ReleaseSlot(four, four.Lock(1, "v"), script.Process{}, script.Turnover{}))
				}
				return g.run(script.ReleaseSlot(four, four.Lock(1, "v"), process, script.Turnover{Leave: leaving(leave)}))
			}
			g.fills("v, v, -, -")
			assert.Equal(g, script.Mine, release())
			assert.Equal(g, script.Missing, release())
			assert.Equal(g, "v, -, -, -", g.filled())
			g.fills("v, w, -, -")
			assert.Equal(g, script.Other, release())
			g.queues(map[string]int64{second: 60_000})
			assert.Equal(g, script.Other, release(), "another slot is free, but this one is not")
			g.told()
			g.do("set", slot(1), "v", "px", ttl)
			assert.Equal(g, script.Mine+script.Woke, release())
			g.told(they)
			g.queues(map[string]int64{first: 60_000, second: 60_000})
			g.do("set", slot(1), "v", "px", ttl)
			assert.Equal(g, script.Mine+script.Woke, release(first))
			g.told(they)
			assert.Equal(g, []string{second}, g.queued())
			g.fills("v, a list, -, -")
			g.refuses(script.ReleaseSlot(four, four.Lock(1, "v"), process, script.Turnover{}), "WRONGTYPE")
			g.fills("v, v, -, -")
			g.do("rpush", slotQueue, "x")
			g.do("pexpire", slotQueue, ttl)
			assert.Equal(g, script.Mine, release())
			assert.Equal(g, int64(1), g.do("llen", slotQueue))
		}
	})
}

// Once they are won, slots are extended, checked and released as locks are: all or none.
func TestSlotsAreLocks(t *testing.T) {
	onBoth(t, func(g ground) {
		require.True(g, g.permits(four, "v", wants(2, 1), script.Place{}).Granted)
		one, two := four.Lock(1, "v"), four.Multi(slots(1, 2), "v")
		for _, c := range []script.Command{script.Extend(one, 2*ttl), script.Valid(one), script.Heal(one, ttl), script.ExtendMulti(two, 2*ttl), script.ValidMulti(two), script.HealMulti(two, ttl)} {
			assert.Equal(g, script.Mine, g.run(c))
		}
		assert.InDelta(g, 2*ttl, g.do("pttl", slot(1)), 5000)
		assert.InDelta(g, 2*ttl, g.do("pttl", slot(2)), 5000)
		g.do("del", slot(2))
		assert.Equal(g, script.Missing, g.run(script.ExtendMulti(two, 3*ttl)))
		assert.Equal(g, script.Missing, g.run(script.ValidMulti(two)))
		assert.Equal(g, script.Created, g.run(script.HealMulti(two, ttl)))
		assert.Equal(g, "-, v, v, -", g.filled())
		g.do("set", slot(1), "w", "px", ttl)
		assert.Equal(g, script.Other, g.run(script.HealMulti(two, ttl)))
		assert.Equal(g, script.Other, g.run(script.Extend(one, ttl)))
		beyond := script.NewSemaphore("lock", 1)
		assert.Equal(g, script.Mine, g.run(script.Valid(beyond.Lock(2, "v"))), "another process knows of more permits")
		assert.Equal(g, script.Mine, g.run(script.ReleaseSlots(beyond, "v", 1, slots(0, 2), slots(), script.Process{}, script.Turnover{})))
		assert.Equal(g, "-, w, -, -", g.filled())
	})
}

// If lists leave fewer slots than an acquire wants, it fails. If the queue is a list, an acquire with a ticket fails;
// acquires without a ticket and releases work.
func TestPermitsBesideAKeyOfAnotherType(t *testing.T) {
	onBoth(t, func(g ground) {
		place := script.Place{Ticket: aTicket(1, us), Alive: alive}
		g.fills("a list, w, a list, w")
		for _, place := range []script.Place{{}, place} {
			g.refuses(script.EnterPermits(four, "v", ttl, wants(3, 1), place), "WRONGTYPE the key "+slot(0)+" is a list")
			assert.Equal(g, "a list, w, a list, w", g.filled())
		}
		g.do("flushall")
		g.do("rpush", slotQueue, "x")
		g.do("pexpire", slotQueue, ttl)
		g.refuses(script.EnterPermits(four, "v", ttl, wants(1, 0), place), "WRONGTYPE the queue "+slotQueue+" is a list")
		assert.Equal(g, "-, -, -, -", g.filled())
		assert.Equal(g, granted(0), g.permits(four, "v", wants(1, 0), script.Place{}))
		turnover := script.Turnover{Enters: aTicket(2, us), Alive: alive, Leave: []script.Ticket{aTicket(1, us)}}
		assert.Equal(g, script.Mine, g.run(script.ReleaseSlots(four, "v", 1, slots(0, 1, 2, 3), slots(), script.ProcessOf(us), turnover)))
		assert.Equal(g, []any{slotQueue}, g.do("keys", "*"))
	})
}

// A text that is no queue counts as an empty queue, and each key gets a TTL.
func TestPermitsBesideAQueueThatIsNone(t *testing.T) {
	onBoth(t, func(g ground) {
		place := script.Place{Ticket: aTicket(1, us), Alive: alive, Strict: true}
		for _, text := range []string{"what?", ticket(0, they), ticket(0, they) + " when?        \n", record(ticket(0, they), 1)} {
			g.fills("-, w, w, w")
			g.do("set", slotQueue, text)
			assert.Equal(g, granted(0), g.permits(four, "v", wants(1, 0), place), text)
			assert.Equal(g, []string{ticket(1, us)}, g.queued())
			g.do("set", slotQueue, text)
			assert.Equal(g, script.Mine, g.run(script.ReleaseSlots(four, "v", 1, slots(0), slots(), script.ProcessOf(us), script.Turnover{})))
			assert.Nil(g, g.do("get", slotQueue))
		}
		g.told()
	})
}

// A node without memory grants nothing, and queues nobody. Permits can still be given back there.
func TestPermitsWithoutMemory(t *testing.T) {
	g := ground{T: t, client: realredis.Start(t, 1)[0].Client()}
	for _, place := range []script.Place{{}, {Ticket: aTicket(2, us), Alive: alive}} {
		for _, e := range []script.Entering{wants(1, 0), wants(1, 1), wants(2, 0)} {
			g.fills("-, w, -, -")
			g.queues(map[string]int64{ticket(1, they): 60_000})
			g.do("config", "set", "maxmemory", 1)
			g.refuses(script.EnterPermits(four, "v", ttl, e, place), "OOM")
			assert.Equal(g, "-, w, -, -", g.filled())
			assert.Equal(g, []string{ticket(1, they)}, g.queued())
			g.do("config", "set", "maxmemory", 0)
			require.True(g, g.permits(four, "v", e, script.Place{}).Granted)
			g.do("config", "set", "maxmemory", 1)
			turnover := script.Turnover{Enters: aTicket(2, us), Alive: alive}
			assert.Equal(g, script.Mine+script.Woke, g.run(script.ReleaseSlots(four, "v", e.Wants, slots(0, 1, 2, 3), slots(), script.ProcessOf(us), turnover)))
			assert.Equal(g, "-, w, -, -", g.filled())
			g.do("config", "set", "maxmemory", 0)
		}
	}
}

// restrictedPermits returns what restricted does, with slots of these values, and a waiter of another
// process.
func restrictedPermits(t *testing.T, values string, rules ...any) (g ground, run func(c script.Command) (any, error)) {
	t.Helper()
	g, run = restricted(t, rules...)
	g.fills(values)
	g.queues(map[string]int64{ticket(1, they): 60_000})
	return g, run
}

// A release takes back what an acquire that has failed half-way has left.
func TestEnterPermitsThatFailsHalfWay(t *testing.T) {
	place := script.Place{Ticket: aTicket(2, us), Alive: alive}
	for name, c := range map[string]struct {
		rules []any
		place script.Place
		left  string
		queue []string
	}{
		"no slot":               {[]any{"-set", "(+set ~{lock}:slots)"}, place, "w, -, -, -", []string{ticket(1, they), ticket(2, us)}},
		"one of two slots":      {[]any{"-set", "(+set ~{lock}:slots ~{lock}:slot:1)"}, place, "w, v, -, -", []string{ticket(1, they), ticket(2, us)}},
		"one of two, no ticket": {[]any{"-set", "(+set ~{lock}:slot:1)"}, script.Place{}, "w, v, -, -", []string{ticket(1, they)}},
		"no queue":              {[]any{"-set", "(+set ~{lock}:slot:?)"}, place, "w, -, -, -", []string{ticket(1, they)}},
		"not to read":           {[]any{"-mget"}, place, "w, -, -, -", []string{ticket(1, they), ticket(2, us)}},
		"not to ask if there":   {[]any{"-exists"}, place, "w, -, -, -", []string{ticket(1, they), ticket(2, us)}},
		"not the slots":         {[]any{"resetkeys", "~{lock}:slots"}, place, "w, -, -, -", []string{ticket(1, they)}},
		"not the queue":         {[]any{"resetkeys", "~{lock}:slot:*"}, place, "w, -, -, -", []string{ticket(1, they)}},
	} {
		t.Run(name, func(t *testing.T) {
			g, run := restrictedPermits(t, "w, -, -, -", c.rules...)
			_, err := run(script.EnterPermits(four, "v", ttl, wants(2, 0), c.place))
			require.Error(t, err)
			assert.Equal(t, c.left, g.filled())
			assert.Equal(t, c.queue, g.queued())
			turnover := script.Turnover{Leave: []script.Ticket{aTicket(2, us)}}
			reply, err := run(script.ReleaseSlots(four, "v", 2, slots(0, 1, 2, 3), slots(), script.ProcessOf(us), turnover))
			if err != nil { // the user may not name the keys
				assert.Contains(t, name, "not the ")
				_, err = run(script.ReleaseSlots(four, "v", 2, slots(0, 1, 2, 3), script.Slots{}, script.Process{}, quietly))
				assert.Equal(t, name != "not the queue", err != nil)
			} else {
				assert.Equal(t, int64(0), reply.(int64)&3, "it had less than a lease has")
			}
			assert.Equal(t, "w, -, -, -", g.filled())
			if c.rules[0] != any("-set") || c.left == "w, v, -, -" && !c.place.Ticket.IsZero() {
				assert.Equal(t, []string{ticket(1, they)}, g.queued())
			}
		})
	}
}

// A user who may only read and delete the slots can give them back. If the user may not delete them, the
// release makes them all run out.
func TestReleaseSlotsWithoutPermissions(t *testing.T) {
	turnover := script.Turnover{Enters: aTicket(2, us), Alive: alive, Leave: []script.Ticket{aTicket(1, they)}}
	for name, c := range map[string]struct {
		rules []any
		fails bool
		want  int64
		left  string
		queue []string
	}{
		"all":                       {nil, false, script.Mine + script.First, "-, -, -, a list", []string{ticket(2, us)}},
		"only to get and delete":    {[]any{"-@all", "+get", "+del", "+eval"}, false, script.Mine, "-, -, -, a list", []string{ticket(1, they)}},
		"not to read all at once":   {[]any{"-mget"}, false, script.Mine + script.First, "-, -, -, a list", []string{ticket(2, us)}},
		"not to delete":             {[]any{"-del"}, true, 0, "-, -, -, a list", []string{ticket(1, they)}},
		"to delete one":             {[]any{"-del", "(+del ~{lock}:slot:0)"}, true, 0, "-, -, -, a list", []string{ticket(1, they)}},
		"not to read at all":        {[]any{"-mget", "-get"}, true, 0, "v, -, v, a list", []string{ticket(1, they)}},
		"to read all at once alone": {[]any{"-get"}, false, script.Mine, "-, -, -, a list", []string{ticket(1, they)}},
		"not to ask for the time":   {[]any{"-time"}, false, script.Mine, "-, -, -, a list", []string{ticket(1, they)}},
		"not to publish":            {[]any{"-publish"}, false, script.Mine + script.First, "-, -, -, a list", []string{ticket(2, us)}},
	} {
		t.Run(name, func(t *testing.T) {
			g, run := restrictedPermits(t, "v, -, v, a list", c.rules...)
			reply, err := run(script.ReleaseSlots(four, "v", 2, slots(0, 1, 2, 3), slots(), script.ProcessOf(us), turnover))
			assert.Equal(t, c.fails, err != nil, "%v", err)
			if !c.fails {
				assert.Equal(t, c.want, reply)
			}
			time.Sleep(5 * time.Millisecond) // the TTL of a slot that could not be deleted is 1 ms
			assert.Equal(t, c.left, g.filled())
			assert.Equal(t, c.queue, g.queued())
		})
	}
}

// The commands of permits execute no more Redis commands than these.
func TestPermitsExecuteNoNeedlessCommands(t *testing.T) {
	place := script.Place{Ticket: aTicket(2, us), Alive: alive}
	waits := map[string]int64{ticket(1, they): 60_000}
	all, leaves := slots(0, 1, 2, 3), script.Turnover{Leave: []script.Ticket{aTicket(1, they)}}
	process := script.ProcessOf(us)
	g := ground{T: t, client: realredis.Start(t, 1)[0].Client()}
	for name, c := range map[string]struct {
		slots   string
		waiting map[string]int64
		command script.Command
		reply   any
		want    map[string]int
	}{
		"enter":                      {"-, -, -, -", nil, script.EnterPermits(four, "v", ttl, wants(1, 1), script.Place{}), int64(0), map[string]int{"set": 1}},
		"enter, the first is taken":  {"-, w, -, -", nil, script.EnterPermits(four, "v", ttl, wants(1, 1), script.Place{}), int64(1), map[string]int{"exists": 1, "mget": 1, "set": 2, "strlen": 4}},
		"enter, full":                {"w, w, w, w", nil, script.EnterPermits(four, "v", ttl, wants(1, 1), script.Place{}), []any{int64(0), int64(-1), []any{}, []any{}}, map[string]int{"mget": 1, "set": 1, "strlen": 4}},
		"enter, two":                 {"-, w, -, -", nil, script.EnterPermits(four, "v", ttl, wants(2, 1), script.Place{}), []any{int64(1), int64(0), []any{int64(1), int64(2)}, []any{int64(3)}}, map[string]int{"exists": 1, "mget": 1, "set": 2, "strlen": 4}},
		"enter, a list":              {"-, a list, w, w", nil, script.EnterPermits(four, "v", ttl, wants(1, 1), script.Place{}), int64(3), map[string]int{"exists": 3, "mget": 1, "set": 2, "strlen": 4}},
		"enter, queued":              {"-, -, -, -", nil, script.EnterPermits(four, "v", ttl, wants(1, 1), place), []any{int64(1), int64(0), []any{int64(0)}, []any{int64(1), int64(2), int64(3)}}, map[string]int{"exists": 1, "get": 1, "mget": 1, "pttl": 1, "set": 2, "strlen": 5, "time": 1}},
		"enter, queued, full":        {"w, w, w, w", nil, script.EnterPermits(four, "v", ttl, wants(1, 1), place), nil, map[string]int{"get": 1, "mget": 1, "pttl": 5, "set": 1, "strlen": 5, "time": 1}},
		"release, of all":            {"v, w, w, w", nil, script.ReleaseSlots(four, "v", 1, all, slots(), process, script.Turnover{}), int64(1), map[string]int{"del": 1, "get": 1, "mget": 1, "strlen": 5}},
		"release, of two":            {"v, v, w, w", nil, script.ReleaseSlots(four, "v", 2, slots(0, 1), slots(), process, script.Turnover{}), int64(1), map[string]int{"del": 1, "get": 1, "mget": 1, "strlen": 3}},
		"release, of nothing":        {"w, w, w, w", nil, script.ReleaseSlots(four, "v", 1, all, slots(), process, script.Turnover{}), int64(0), map[string]int{"mget": 1, "strlen": 4}},
		"release, others are free":   {"w, -, -, -", nil, script.ReleaseSlots(four, "v", 1, all, slots(), process, script.Turnover{}), int64(0), map[string]int{"get": 1, "mget": 1, "strlen": 5}},
		"release, somebody waits":    {"v, w, w, w", waits, script.ReleaseSlots(four, "v", 1, all, slots(), process, script.Turnover{}), int64(5), map[string]int{"del": 1, "get": 1, "mget": 1, "publish": 1, "strlen": 5, "time": 1}},
		"release, somebody leaves":   {"w, v, w, w", waits, script.ReleaseSlots(four, "v", 1, slots(0, 2, 3), slots(1), process, leaves), int64(1), map[string]int{"del": 1, "get": 1, "mget": 1, "strlen": 5, "time": 1}},
		"release, quietly":           {"v, w, w, w", waits, script.ReleaseSlots(four, "v", 1, all, script.Slots{}, script.Process{}, quietly), int64(1), map[string]int{"del": 1, "mget": 1, "strlen": 4}},
		"release, of one":            {"v, w, w, w", nil, script.ReleaseSlot(four, four.Lock(0, "v"), script.Process{}, script.Turnover{}), int64(1), map[string]int{"del": 1, "getrange": 1, "strlen": 1}},
		"release, of one, and waits": {"v, w, w, w", waits, script.ReleaseSlot(four, four.Lock(0, "v"), process, script.Turnover{}), int64(5), map[string]int{"del": 1, "get": 2, "publish": 1, "strlen": 2, "time": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			g := g
			g.T = t
			g.fills(c.slots)
			g.queues(c.waiting)
			g.do("config", "resetstat")
			reply := g.do(c.command.InFull()...)
			if c.reply != nil {
				assert.Equal(t, c.reply, reply)
			}
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

// A command touches the keys of its semaphore and no others, and says how many there are.
func TestPermitsCommands(t *testing.T) {
	s := script.NewSemaphore("a{b}c", 3)
	key := func(i int) string { return fmt.Sprintf("{b}:a{b}c:slot:%d", i) }
	const queue = "{b}:a{b}c:slots"
	place := script.Place{Ticket: aTicket(1, us), Alive: alive, Strict: true}
	leave := script.Turnover{Enters: aTicket(3, us), Alive: alive, Leave: []script.Ticket{aTicket(1, us), aTicket(2, us)}}
	for name, c := range map[string]struct {
		command script.Command
		keys    []string
		args    []string
	}{
		"enter":                  {script.EnterPermits(s, "v", ttl, wants(1, 2), script.Place{}), []string{key(2), key(0), key(1)}, []string{"v", "60000", "1"}},
		"enter, in front":        {script.EnterPermits(s, "v", ttl, wants(2, 2, 1), script.Place{}), []string{key(1), key(2), key(0)}, []string{"v", "60000", "2"}},
		"enter, queued":          {script.EnterPermits(s, "v", ttl, wants(1, 0), place), []string{key(0), key(1), key(2), queue}, []string{"v", "60000", "1", ticket(1, us), "60000", "1"}},
		"release":                {script.ReleaseSlots(s, "v", 1, slots(0, 2), slots(), script.Process{}, script.Turnover{}), []string{key(0), key(2), queue}, []string{"v", "1", "0", ""}},
		"release, keeps":         {script.ReleaseSlots(s, "v", 2, slots(2), slots(0, 1), script.ProcessOf(us), leave), []string{key(2), key(0), key(1), queue}, []string{"v", "2", "2", us, ticket(3, us), "60000", ticket(1, us), ticket(2, us)}},
		"release, quietly":       {script.ReleaseSlots(s, "v", 1, slots(1), script.Slots{}, script.Process{}, quietly), []string{key(1)}, []string{"v", "1", "0", "-"}},
		"release, of one":        {script.ReleaseSlot(s, s.Lock(1, "v"), script.Process{}, script.Turnover{}), []string{key(1), queue}, []string{"v"}},
		"release, of one, leave": {script.ReleaseSlot(s, s.Lock(1, "v"), script.ProcessOf(us), leave), []string{key(1), queue}, []string{"v", us, ticket(3, us), "60000", ticket(1, us), ticket(2, us)}},
		"valid":                  {script.ValidMulti(s.Multi(slots(0, 2), "v")), []string{key(0), key(2)}, []string{"v"}},
		"valid, beyond":          {script.ValidMulti(s.Multi(slots(0, 200), "v")), []string{key(0), key(200)}, []string{"v"}},
	} {
		t.Run(name, func(t *testing.T) {
			sends(t, c.command, c.keys, c.args)
		})
	}
	assert.Equal(t, "a{b}c", s.Name())
	assert.Equal(t, 3, s.Permits())
	assert.Equal(t, slots(0, 2), s.AllBut(slots(1, 7)))
}

// Slots work as a set of up to 256 slots.
func TestSlots(t *testing.T) {
	list := []int{0, 1, 63, 64, 127, 128, 200, 255}
	set := slots(list...)
	assert.Equal(t, len(list), set.Len())
	assert.Equal(t, list, slices.Collect(set.All()))
	for i := range script.MaxPermits {
		assert.Equal(t, slices.Contains(list, i), set.Has(i), i)
	}
	for range set.All() {
		break // it may end early
	}
	assert.Equal(t, slots(1, 63, 255), set.And(slots(1, 2, 63, 255)))
	assert.Equal(t, slots(1, 2, 255), slots(1).Or(slots(2, 255)))
	assert.Zero(t, slots().Len())
	assert.Equal(t, set, set.With(255))
}

func TestParseEnteredPermits(t *testing.T) {
	i := func(list ...int64) []any {
		all := []any{}
		for _, n := range list {
			all = append(all, n)
		}
		return all
	}
	odd := script.EnteredPermits{}
	one, two := wants(1, 2), wants(2, 2, 0)
	for name, c := range map[string]struct {
		enters script.Entering
		reply  any
		want   script.EnteredPermits // odd for an error
	}{
		"the first":               {one, int64(0), granted(2)},
		"the last":                {one, int64(3), granted(1)},
		"in front":                {wants(1, 2, 0), int64(0), granted(0)},
		"behind the front":        {wants(1, 2, 0), int64(1), granted(2)},
		"beyond":                  {one, int64(4), odd},
		"negative":                {one, int64(-1), odd},
		"one of two":              {two, int64(0), odd},
		"two":                     {two, []any{int64(1), int64(0), i(0, 1), i()}, granted(0, 2)},
		"two, others are free":    {two, []any{int64(1), int64(0), i(0, 1), i(3)}, alsoFree(granted(0, 2), 1)},
		"two, but one":            {two, []any{int64(1), int64(0), i(0), i()}, odd},
		"two, but twice the same": {two, []any{int64(1), int64(0), i(0, 0), i()}, odd},
		"two, but three":          {two, []any{int64(1), int64(0), i(0, 1, 2), i()}, odd},
		"granted, and free":       {two, []any{int64(1), int64(0), i(0, 1), i(1)}, odd},
		"granted, with a wait":    {one, []any{int64(1), int64(5), i(0), i()}, odd},
		"granted nothing":         {one, []any{int64(1), int64(0), i(), i(0)}, odd},
		"refused":                 {one, []any{int64(0), int64(7), i(), i(1)}, refused(7, 3)},
		"refused for ever":        {one, []any{int64(0), int64(-1), i(), i()}, refused(-1)},
		"refused, granted":        {one, []any{int64(0), int64(7), i(0), i()}, odd},
		"refused for no time":     {one, []any{int64(0), int64(0), i(), i()}, odd},
		"refused for less":        {one, []any{int64(0), int64(-2), i(), i()}, odd},
		"there":                   {one, []any{int64(2), int64(0), i(1), i()}, wasThere(3)},
		"there, less than wanted": {two, []any{int64(2), int64(0), i(1), i()}, wasThere(2)},
		"there, none":             {one, []any{int64(2), int64(0), i(), i()}, odd},
		"there, others free":      {one, []any{int64(2), int64(0), i(1), i(2)}, odd},
		"no such kind":            {one, []any{int64(3), int64(0), i(1), i()}, odd},
		"beyond, in an array":     {one, []any{int64(1), int64(0), i(4), i()}, odd},
		"free beyond":             {one, []any{int64(0), int64(-1), i(), i(4)}, odd},
		"a text in an array":      {one, []any{int64(1), int64(0), []any{"0"}, i()}, odd},
		"no array":                {one, []any{int64(1), int64(0), int64(0), i()}, odd},
		"no array of free ones":   {one, []any{int64(1), int64(0), i(0), nil}, odd},
		"a text for the kind":     {one, []any{"1", int64(0), i(0), i()}, odd},
		"a text for the wait":     {one, []any{int64(1), "0", i(0), i()}, odd},
		"too short":               {one, []any{int64(1), int64(0), i(0)}, odd},
		"too long":                {one, []any{int64(1), int64(0), i(0), i(), i()}, odd},
		"a text":                  {one, "0", odd},
		"OK":                      {one, "OK", odd},
		"nothing":                 {one, nil, odd},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.enters.Parse(c.reply, 4)
			assert.Equal(t, c.want, got)
			assert.Equal(t, c.want == odd, err != nil, "%v", err)
		})
	}
}
