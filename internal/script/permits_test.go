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
	cases := map[string]struct {
		slots, line string
		enters      script.Entering
		queued      bool
		strict      bool
		want        script.EnteredPermits
		left        string // the values of the slots
		queue       string
	}{
		"free":                             {"-, -, -, -", "", wants(1, 0), false, false, granted(0), "v, -, -, -", ""},
		"the first is taken":               {"-, w, -, -", "", wants(1, 1), false, false, granted(2), "-, w, v, -", ""},
		"only the one before is free":      {"w, -, w, w", "", wants(1, 2), false, false, granted(1), "w, v, w, w", ""},
		"full":                             {"w, w, w, w", "", wants(1, 2), false, false, refused(-1), "w, w, w, w", ""},
		"a front, cyclic":                  {"-, -, -, w", "", wants(1, 2, 1, 3), false, false, granted(1), "-, v, -, w", ""},
		"a front that is taken":            {"-, w, -, w", "", wants(1, 2, 1, 3), false, false, granted(2), "-, w, v, w", ""},
		"lists are taken":                  {"a list, a list, -, a list", "", wants(1, 3), false, false, granted(2), "a list, a list, v, a list", ""},
		"two, one of them in front":        {"-, w, -, -", "", wants(2, 2, 1, 0), false, false, alsoFree(granted(0, 2), 3), "v, w, v, -", ""},
		"two, one is free":                 {"w, w, -, w", "", wants(2, 0), false, false, refused(-1, 2), "w, w, -, w", ""},
		"all":                              {"-, -, -, -", "", wants(4, 1), false, false, granted(0, 1, 2, 3), "v, v, v, v", ""},
		"two, a part of the value there":   {"v, w, -, -", "", wants(2, 0), false, false, wasThere(0), "v, w, -, -", ""},
		"queued, the first is free":        {"-, w, -, -", "", wants(1, 0), true, true, alsoFree(granted(0), 2, 3), "v, w, -, -", "us2"},
		"queued, full":                     {"w, w, w, w", "", wants(1, 1), true, false, refused(ttl / 2), "w, w, w, w", "us2"},
		"queued behind, strict":            {"-, -, -, -", "they1", wants(1, 0), true, true, refused(ttl), "-, -, -, -", "they1 us2"},
		"queued behind, strict, there":     {"v, -, -, -", "they1", wants(1, 0), true, true, refused(ttl), "v, -, -, -", "they1 us2"},
		"queued behind our own, strict":    {"-, w, w, w", "us1", wants(1, 0), true, true, granted(0), "v, w, w, w", "us1 us2"},
		"queued behind the dead, strict":   {"-, w, w, w", "!they1 they3", wants(1, 0), true, true, granted(0), "v, w, w, w", "us2 they3"},
		"queued behind a higher, strict":   {"-, -, -, -", "+they3", wants(1, 0), true, true, refused(ttl), "-, -, -, -", "+they3 us2"},
		"not queued, although others wait": {"-, w, w, w", "they1", wants(1, 0), false, false, granted(0), "v, w, w, w", "they1"},
	}
	onBoth(t, func(g ground) {
		for name, c := range cases {
			g.on(name, func(g ground) {
				g.fills(c.slots)
				g.line(slotQueue, c.line)
				place := script.Place{Alive: alive, Strict: c.strict}
				if c.queued {
					place.Ticket = aTicket(2, us)
				}
				got := g.permits(four, "v", c.enters, place)
				if c.want.Wait > 0 {
					assert.InDelta(g, c.want.Wait, got.Wait, 5000)
					got.Wait = c.want.Wait
				}
				assert.Equal(g, c.want, got)
				assert.Equal(g, c.left, g.filled())
				assert.Equal(g, c.queue, g.lined(slotQueue))
				for i := range 4 {
					if got.Granted && !got.WasThere && got.Slots.Has(i) {
						assert.InDelta(g, ttl, g.do("pttl", slot(i)), 5000)
					} else if c.left != "" {
						assert.Less(g, g.do("pttl", slot(i)), int64(ttl/2+1), "the TTLs of others stay")
					}
				}
				if c.queued {
					assert.GreaterOrEqual(g, g.do("pttl", slotQueue), int64(2*alive-5000))
				}
				assert.Empty(g, g.told())
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
	cases := map[string]struct {
		slots        string
		weight       int
		gives, keeps script.Slots
		line, leave  string
		enters       bool
		want         int64
		left         string // the values of the slots
		queue, told  string
	}{
		"more than a lease has":        {"v, v, v, w", 2, slots(0, 1, 2, 3), slots(), "", "", false, script.Mine, "-, -, -, w", "", ""},
		"one of two, the other taken":  {"v, w, -, w", 2, slots(0, 1), slots(), "", "", false, script.Missing, "-, w, -, w", "", ""},
		"kept":                         {"v, v, w, w", 1, slots(0, 2, 3), slots(1), "", "", false, script.Mine, "-, v, w, w", "", ""},
		"all are kept":                 {"v, v, v, v", 4, slots(), slots(0, 1, 2, 3), "", "", false, script.Mine, "v, v, v, v", "", ""},
		"two are kept, two astray":     {"v, v, v, v", 2, slots(0, 1), slots(2, 3), "", "", false, script.Mine, "-, -, v, v", "", ""},
		"others are not looked at":     {"v, w, w, -", 1, slots(1), slots(2), "they2", "", false, script.Missing, "v, w, w, -", "they2", ""},
		"a list, and one is free":      {"a list, w, -, a list", 1, slots(0, 1, 2, 3), slots(), "they2", "", false, script.Missing, "a list, w, -, a list", "they2", ""},
		"another waits":                {"v, w, w, w", 1, slots(0, 1, 2, 3), slots(), "they2", "", false, script.Mine + script.Woke, "-, w, w, w", "they2", "they"},
		"another waits, kept one free": {"w, w, w, -", 1, slots(0, 1, 2), slots(3), "they2", "", false, script.Missing, "w, w, w, -", "they2", ""},
		"we wait first, then another":  {"v, w, w, w", 1, slots(0), slots(), "us1 they2", "", false, script.Mine + script.First + script.Others, "-, w, w, w", "us1 they2", ""},
		"the dead before another":      {"v, w, w, w", 1, slots(0), slots(), "!us1 they2", "", false, script.Mine + script.Woke, "-, w, w, w", "they2", "they"},
		"ours leaves, kept, one free":  {"w, v, -, w", 1, slots(0, 2, 3), slots(1), "us1 they2", "us1", false, script.Mine + script.Woke, "w, v, -, w", "they2", "they"},
		"ours enters behind another":   {"v, w, w, w", 1, slots(0), slots(), "they2", "", true, script.Mine + script.Woke, "-, w, w, w", "they2 us3", "they"},
		"ours enters, full":            {"w, w, w, w", 1, slots(0, 1, 2, 3), slots(), "they2", "", true, script.Missing, "w, w, w, w", "they2 us3", ""},
	}
	onBoth(t, func(g ground) {
		for name, c := range cases {
			g.on(name, func(g ground) {
				g.fills(c.slots)
				g.line(slotQueue, c.line)
				turnover := script.Turnover{Alive: alive, Leave: leaving(c.leave)}
				if c.enters {
					turnover.Enters = aTicket(3, us)
				}
				assert.Equal(g, c.want, g.run(script.ReleaseSlots(four, "v", c.weight, c.gives, c.keeps, script.ProcessOf(us), turnover)))
				assert.Equal(g, c.left, g.filled())
				assert.Equal(g, c.queue, g.lined(slotQueue))
				assert.Equal(g, c.told, g.told())
			})
		}
		g.fills("v, w, v, w")
		g.line(slotQueue, "they2")
		assert.Equal(g, script.Mine, g.run(script.ReleaseSlots(four, "v", 2, slots(0, 1, 2, 3), script.Slots{}, script.Process{}, quietly)))
		assert.Equal(g, "-, w, -, w", g.filled())
		assert.Equal(g, "they2", g.lined(slotQueue))
		assert.Empty(g, g.told())
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
			assert.Equal(g, "us1", g.lined(slotQueue))
			g.do("set", slotQueue, text)
			assert.Equal(g, script.Mine, g.run(script.ReleaseSlots(four, "v", 1, slots(0), slots(), script.ProcessOf(us), script.Turnover{})))
			assert.Nil(g, g.do("get", slotQueue))
		}
		assert.Empty(g, g.told())
	})
}

// restrictedPermits returns what restricted does, with slots of these values, and a waiter of another
// process.
func restrictedPermits(t *testing.T, values string, rules ...any) (g ground, run func(c script.Command) (any, error)) {
	t.Helper()
	g, run = restricted(t, rules...)
	g.fills(values)
	g.line(slotQueue, "they1")
	return g, run
}

// A release takes back what an acquire that has failed half-way has left.
func TestEnterPermitsThatFailsHalfWay(t *testing.T) {
	place := script.Place{Ticket: aTicket(2, us), Alive: alive}
	for name, c := range map[string]struct {
		rules []any
		place script.Place
		left  string
		queue string
	}{
		"one of two slots":      {[]any{"-set", "(+set ~{lock}:slots ~{lock}:slot:1)"}, place, "w, v, -, -", "they1 us2"},
		"one of two, no ticket": {[]any{"-set", "(+set ~{lock}:slot:1)"}, script.Place{}, "w, v, -, -", "they1"},
		"no queue":              {[]any{"-set", "(+set ~{lock}:slot:?)"}, place, "w, -, -, -", "they1"},
		"not to read":           {[]any{"-mget"}, place, "w, -, -, -", "they1 us2"},
		"not the slots":         {[]any{"resetkeys", "~{lock}:slots"}, place, "w, -, -, -", "they1"},
		"not the queue":         {[]any{"resetkeys", "~{lock}:slot:*"}, place, "w, -, -, -", "they1"},
	} {
		t.Run(name, func(t *testing.T) {
			g, run := restrictedPermits(t, "w, -, -, -", c.rules...)
			_, err := run(script.EnterPermits(four, "v", ttl, wants(2, 0), c.place))
			require.Error(t, err)
			assert.Equal(t, c.left, g.filled())
			assert.Equal(t, c.queue, g.lined(slotQueue))
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
				assert.Equal(t, "they1", g.lined(slotQueue))
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
		queue string
	}{
		"all":                       {nil, false, script.Mine + script.First, "-, -, -, a list", "us2"},
		"only to get and delete":    {[]any{"-@all", "+get", "+del", "+eval"}, false, script.Mine, "-, -, -, a list", "they1"},
		"not to read all at once":   {[]any{"-mget"}, false, script.Mine + script.First, "-, -, -, a list", "us2"},
		"not to delete":             {[]any{"-del"}, true, 0, "-, -, -, a list", "they1"},
		"not to read at all":        {[]any{"-mget", "-get"}, true, 0, "v, -, v, a list", "they1"},
		"to read all at once alone": {[]any{"-get"}, false, script.Mine, "-, -, -, a list", "they1"},
		"not to ask for the time":   {[]any{"-time"}, false, script.Mine, "-, -, -, a list", "they1"},
		"not to publish":            {[]any{"-publish"}, false, script.Mine + script.First, "-, -, -, a list", "us2"},
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
			assert.Equal(t, c.queue, g.lined(slotQueue))
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
