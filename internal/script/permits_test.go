package script_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/embedded"
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
		"the first is taken":               {"-, w, -, -", nil, wants(1, 1), "", false, granted(2), "-, w, v, -", nil},
		"only the one before is free":      {"w, -, w, w", nil, wants(1, 2), "", false, granted(1), "w, v, w, w", nil},
		"full":                             {"w, w, w, w", nil, wants(1, 2), "", false, refused(-1), "w, w, w, w", nil},
		"a front, cyclic":                  {"-, -, -, w", nil, wants(1, 2, 1, 3), "", false, granted(1), "-, v, -, w", nil},
		"a front that is taken":            {"-, w, -, w", nil, wants(1, 2, 1, 3), "", false, granted(2), "-, w, v, w", nil},
		"lists are taken":                  {"a list, a list, -, a list", nil, wants(1, 3), "", false, granted(2), "a list, a list, v, a list", nil},
		"two, one of them in front":        {"-, w, -, -", nil, wants(2, 2, 1, 0), "", false, alsoFree(granted(0, 2), 3), "v, w, v, -", nil},
		"two, one is free":                 {"w, w, -, w", nil, wants(2, 0), "", false, refused(-1, 2), "w, w, -, w", nil},
		"all":                              {"-, -, -, -", nil, wants(4, 1), "", false, granted(0, 1, 2, 3), "v, v, v, v", nil},
		"two, a part of the value there":   {"v, w, -, -", nil, wants(2, 0), "", false, wasThere(0), "v, w, -, -", nil},
		"queued, the first is free":        {"-, w, -, -", nil, wants(1, 0), mine, true, alsoFree(granted(0), 2, 3), "v, w, -, -", []string{mine}},
		"queued, full":                     {"w, w, w, w", nil, wants(1, 1), mine, false, refused(ttl / 2), "w, w, w, w", []string{mine}},
		"queued behind, strict":            {"-, -, -, -", map[string]int64{before: 50_000}, wants(1, 0), mine, true, refused(50_000), "-, -, -, -", []string{before, mine}},
		"queued behind, strict, there":     {"v, -, -, -", map[string]int64{before: 50_000}, wants(1, 0), mine, true, refused(50_000), "v, -, -, -", []string{before, mine}},
		"queued behind our own, strict":    {"-, w, w, w", map[string]int64{ticket(1, us): 50_000}, wants(1, 0), mine, true, granted(0), "v, w, w, w", []string{ticket(1, us), mine}},
		"queued behind the dead, strict":   {"-, w, w, w", map[string]int64{before: -5, behind: 50_000}, wants(1, 0), mine, true, granted(0), "v, w, w, w", []string{mine, behind}},
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
			fill = append(fill, slot(i), "w")
		}
		place := script.Place{Ticket: aTicket(1, us), Alive: alive}
		for _, e := range []script.Entering{wants(1, 0), wants(1, 201), wants(1, 199, 7, 255), wants(1, 255, 3, 200)} {
			g.do(fill...)
			g.do("del", slot(200))
			entered, err := e.Parse(g.do(script.EnterPermits(s, "v", ttl, e, place).InFull()...), n)
			require.NoError(g, err)
			assert.Equal(g, granted(200), entered)
		}
		all := s.AllBut(script.Slots{})
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
		"more than a lease has":        {slots: "v, v, v, w", weight: 2, gives: []int{0, 1, 2, 3}, want: script.Mine, left: "-, -, -, w"},
		"one of two, the other taken":  {slots: "v, w, -, w", weight: 2, gives: []int{0, 1}, want: script.Missing, left: "-, w, -, w"},
		"kept":                         {slots: "v, v, w, w", weight: 1, gives: []int{0, 2, 3}, keeps: []int{1}, want: script.Mine, left: "-, v, w, w"},
		"all are kept":                 {slots: "v, v, v, v", weight: 4, keeps: []int{0, 1, 2, 3}, want: script.Mine, left: "v, v, v, v"},
		"two are kept, two astray":     {slots: "v, v, v, v", weight: 2, gives: []int{0, 1}, keeps: []int{2, 3}, want: script.Mine, left: "-, -, v, v"},
		"others are not looked at":     {slots: "v, w, w, -", weight: 1, gives: []int{1}, keeps: []int{2}, want: script.Missing, left: "v, w, w, -", waiting: map[string]int64{second: 60_000}, queue: []string{second}},
		"a list, and one is free":      {slots: "a list, w, -, a list", weight: 1, gives: []int{0, 1, 2, 3}, want: script.Missing, left: "a list, w, -, a list", waiting: map[string]int64{second: 60_000}, queue: []string{second}},
		"quietly":                      {slots: "v, w, v, w", weight: 2, gives: []int{0, 1, 2, 3}, quietly: true, want: script.Mine, left: "-, w, -, w", waiting: map[string]int64{second: 60_000}, queue: []string{second}},
		"another waits":                {slots: "v, w, w, w", weight: 1, gives: []int{0, 1, 2, 3}, waiting: map[string]int64{second: 60_000}, want: script.Mine + script.Woke, left: "-, w, w, w", queue: []string{second}, told: []string{they}},
		"another waits, kept one free": {slots: "w, w, w, -", weight: 1, gives: []int{0, 1, 2}, keeps: []int{3}, waiting: map[string]int64{second: 60_000}, want: script.Missing, left: "w, w, w, -", queue: []string{second}},
		"we wait first, then another":  {slots: "v, w, w, w", weight: 1, gives: []int{0}, waiting: map[string]int64{first: 60_000, second: 60_000}, want: script.Mine + script.First + script.Others, left: "-, w, w, w", queue: []string{first, second}},
		"we wait first, of no process": {slots: "v, w, w, w", weight: 1, gives: []int{0}, waiting: map[string]int64{first: 60_000}, ofNoProcess: true, want: script.Mine + script.Woke, left: "-, w, w, w", queue: []string{first}, told: []string{us}},
		"the dead before another":      {slots: "v, w, w, w", weight: 1, gives: []int{0}, waiting: map[string]int64{first: -5, second: 60_000}, want: script.Mine + script.Woke, left: "-, w, w, w", queue: []string{second}, told: []string{they}},
		"ours leaves, kept, one free":  {slots: "w, v, -, w", weight: 1, gives: []int{0, 2, 3}, keeps: []int{1}, waiting: map[string]int64{first: 60_000, second: 60_000}, leave: []string{first}, want: script.Mine + script.Woke, left: "w, v, -, w", queue: []string{second}, told: []string{they}},
		"ours enters behind another":   {slots: "v, w, w, w", weight: 1, gives: []int{0}, waiting: map[string]int64{second: 60_000}, enters: third, want: script.Mine + script.Woke, left: "-, w, w, w", queue: []string{second, third}, told: []string{they}},
		"ours enters, full":            {slots: "w, w, w, w", weight: 1, gives: []int{0}, waiting: map[string]int64{second: 60_000}, enters: third, want: script.Missing, left: "w, w, w, w", queue: []string{second, third}},
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
		"one of two slots":      {[]any{"-set", "(+set ~{lock}:slots ~{lock}:slot:1)"}, place, "w, v, -, -", []string{ticket(1, they), ticket(2, us)}},
		"one of two, no ticket": {[]any{"-set", "(+set ~{lock}:slot:1)"}, script.Place{}, "w, v, -, -", []string{ticket(1, they)}},
		"no queue":              {[]any{"-set", "(+set ~{lock}:slot:?)"}, place, "w, -, -, -", []string{ticket(1, they)}},
		"not to read":           {[]any{"-mget"}, place, "w, -, -, -", []string{ticket(1, they), ticket(2, us)}},
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
