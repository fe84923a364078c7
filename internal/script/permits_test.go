package script

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
)

// This file tests the scripts of permits on one node, rule by rule. The semaphore has the name of the lock,
// and four permits.

var four = NewSemaphore("lock", 4)

const slotQueue = "{lock}:slots"

// aList stands for a slot whose key is of another type.
const aList = "a list"

// slot returns the key of a slot.
func slot(i int) string { return fmt.Sprintf("{lock}:slot:%d", i) }

// slotsOf returns a set.
func slotsOf(list ...int) (set Slots) {
	for _, i := range list {
		set = set.With(i)
	}
	return set
}

// fills empties the node, and sets the slots to these values. They are separated by ", ", and "-" stands for none. Behind " | "
// are the tickets in the queue.
func (g ground) fills(state string) {
	g.Helper()
	g.do("flushall")
	values, line, _ := strings.Cut(state, " | ")
	g.line(slotQueue, line)
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

// filled checks the four slots, and the queue, as fills takes them.
func (g ground) filled(want string) {
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
	state := strings.Join(values, ", ")
	if line := g.lined(slotQueue); line != "" {
		state += " | " + line
	}
	assert.Equal(g, want, state)
}

// permits runs the script that enters a semaphore, and returns its parsed reply.
func (g ground) permits(s *Semaphore, value string, e Entering, place Place) EnteredPermits {
	g.Helper()
	reply := g.do(EnterPermits(s, value, ttl, e, place).InFull()...)
	g.expires()
	entered, err := e.Parse(reply, s.Permits())
	require.NoError(g, err)
	return entered
}

// wants returns an Entering for n slots. A node tries the slots of front before the others, each part in
// cyclic order from first on.
func wants(n, first int, front ...int) Entering {
	return Entering{Wants: n, Order: Order{First: first, Front: slotsOf(front...)}}
}

// granted returns the answer of a node that grants these slots.
func granted(list ...int) EnteredPermits {
	return EnteredPermits{Granted: true, Slots: slotsOf(list...), Free: slotsOf(list...)}
}

// alsoFree returns e with other slots that the node says are free.
func alsoFree(e EnteredPermits, free ...int) EnteredPermits {
	e.Free = e.Free.Or(slotsOf(free...))
	return e
}

func refused(wait int64, free ...int) EnteredPermits {
	return EnteredPermits{Wait: wait, Free: slotsOf(free...)}
}

func wasThere(list ...int) EnteredPermits {
	return EnteredPermits{Granted: true, WasThere: true, Slots: slotsOf(list...)}
}

// A slot belongs to its holder to the end, even while its TTL is less than a millisecond and PTTL shows 0. The refusal of a
// waiter says when the first slot runs out.
func TestEnterPermitsLeavesTheLastMillisecondOfASlot(t *testing.T) {
	bubble(t, func(g ground, _ *embedded.Node) {
		g.fills("w, w, w, w")
		g.do("pexpire", slot(2), 1)
		time.Sleep(500 * time.Microsecond)
		require.Equal(g, int64(0), g.do("pttl", slot(2)))
		assert.Equal(g, refused(1), g.permits(four, "v", wants(1, 2), Place{Ticket: aTicket(1, us), Alive: 100 * ttl}))
	})
}

// With 256 permits the node finds the only free one, whichever slot comes first, and one lease can have all
// of them.
func TestManyPermits(t *testing.T) {
	const n = MaxPermits
	s := NewSemaphore("lock", n)
	onBoth(t, func(g ground) {
		fill := []any{"mset"}
		for i := range n {
			fill = append(fill, slot(i), "w")
		}
		place := Place{Ticket: aTicket(1, us), Alive: alive}
		for _, e := range []Entering{wants(1, 0), wants(1, 201), wants(1, 199, 7, 255), wants(1, 255, 3, 200)} {
			g.do(fill...)
			g.do("del", slot(200))
			entered, err := e.Parse(g.do(EnterPermits(s, "v", ttl, e, place).InFull()...), n)
			require.NoError(g, err)
			assert.Equal(g, granted(200), entered)
		}
		all := s.AllBut(Slots{})
		g.do("flushall")
		assert.Equal(g, EnteredPermits{Granted: true, Slots: all, Free: all}, g.permits(s, "v", wants(n, 100), place))
		g.runs(Mine, Extend(s.Lock(s.Keys(all), "v"), 2*ttl, false))
		assert.Equal(g, refused(-1), g.permits(s, "w", wants(1, 100), noPlace))
		g.runs(Mine, ReleaseSlots(s, "v", n, all, Slots{}, noProcess, Turnover{Leave: []Ticket{aTicket(1, us)}}))
		assert.Empty(g, g.do("keys", "*"))
	})
}

// A text that is no queue counts as an empty queue, and each key gets a TTL.
func TestPermitsBesideAQueueThatIsNone(t *testing.T) {
	onBoth(t, func(g ground) {
		place := Place{Ticket: aTicket(1, us), Alive: alive, Strict: true}
		for _, text := range []string{"what?", ticket(0, they), ticket(0, they) + " when?        \n", record(ticket(0, they), 1)} {
			g.fills("-, w, w, w")
			g.do("set", slotQueue, text)
			assert.Equal(g, granted(0), g.permits(four, "v", wants(1, 0), place), text)
			g.lines(slotQueue, "us1")
			g.do("set", slotQueue, text)
			g.runs(Mine, ReleaseSlots(four, "v", 1, slotsOf(0), slotsOf(), ProcessOf(us), noTurn))
			g.has(slotQueue, nil)
		}
	})
}

// A release takes back what an acquire that has failed half-way has left.
func TestEnterPermitsThatFailsHalfWay(t *testing.T) {
	queued := Place{Ticket: aTicket(2, us), Alive: alive}
	for name, c := range map[string]struct {
		rules string
		place Place
		left  string
	}{
		"one of two slots":      {"-set (+set ~{lock}:slots ~{lock}:slot:1)", queued, "w, v, -, - | they1 us2"},
		"one of two, no ticket": {"-set (+set ~{lock}:slot:1)", noPlace, "w, v, -, - | they1"},
		"no queue":              {"-set (+set ~{lock}:slot:?)", queued, "w, -, -, - | they1"},
		"not to read":           {"-mget", queued, "w, -, -, - | they1 us2"},
		"not the slots":         {"resetkeys ~{lock}:slots", queued, "w, -, -, - | they1"},
		"not the queue":         {"resetkeys ~{lock}:slot:*", queued, "w, -, -, - | they1"},
	} {
		t.Run(name, func(t *testing.T) {
			g, run := restricted(t, c.rules)
			g.fills("w, -, -, - | they1")
			_, err := run(EnterPermits(four, "v", ttl, wants(2, 0), c.place))
			require.Error(t, err)
			g.filled(c.left)
			all := slotsOf(0, 1, 2, 3)
			reply, err := run(ReleaseSlots(four, "v", 2, all, Slots{}, ProcessOf(us), Turnover{Leave: leaving("us2")}))
			if err != nil { // the user may not name the keys
				assert.Contains(t, name, "not the ")
				_, err = run(ReleaseSlots(four, "v", 2, all, Slots{}, noProcess, quietly))
				assert.Equal(t, name != "not the queue", err != nil)
			} else {
				assert.Equal(t, int64(0), reply.(int64)&3, "it had less than a lease has")
			}
			g.filled("w, -, -, - | they1")
		})
	}
}

// A user who may only read and delete the slots can give them back. If the user may not delete them, the
// release makes them all run out.
func TestReleaseSlotsWithoutPermissions(t *testing.T) {
	turnover := Turnover{Enters: aTicket(2, us), Alive: alive, Leave: leaving("they1")}
	for rules, c := range map[string]struct {
		want any // nil: it fails
		left string
	}{
		"+@all":                 {Mine + First, "-, -, -, a list | us2"},
		"-@all +get +del +eval": {Mine, "-, -, -, a list | they1"},
		"-mget":                 {Mine + First, "-, -, -, a list | us2"},
		"-del":                  {nil, "-, -, -, a list | they1"},
		"-mget -get":            {nil, "v, -, v, a list | they1"},
		"-get":                  {Mine, "-, -, -, a list | they1"},
		"-time":                 {Mine, "-, -, -, a list | they1"},
		"-publish":              {Mine + First, "-, -, -, a list | us2"},
	} {
		t.Run(rules, func(t *testing.T) {
			g, run := restricted(t, rules)
			g.fills("v, -, v, a list | they1")
			reply, err := run(ReleaseSlots(four, "v", 2, slotsOf(0, 1, 2, 3), Slots{}, ProcessOf(us), turnover))
			assert.Equal(t, c.want == nil, err != nil, "%v", err)
			assert.Equal(t, c.want, reply)
			time.Sleep(5 * time.Millisecond) // the TTL of a slot that could not be deleted is 1 ms
			g.filled(c.left)
		})
	}
}

// Slots work as a set of up to 256 slots.
func TestSlots(t *testing.T) {
	list := []int{0, 1, 63, 64, 127, 128, 200, 255}
	set := slotsOf(list...)
	assert.Equal(t, len(list), set.Len())
	assert.Equal(t, list, slices.Collect(set.All()))
	for i := range MaxPermits {
		assert.Equal(t, slices.Contains(list, i), set.Has(i), i)
	}
	for range set.All() {
		break // it may end early
	}
	assert.Equal(t, slotsOf(1, 63, 255), set.And(slotsOf(1, 2, 63, 255)))
	assert.Equal(t, slotsOf(1, 2, 255), slotsOf(1).Or(slotsOf(2, 255)))
	assert.Zero(t, slotsOf().Len())
	assert.Equal(t, set, set.With(255))
}
