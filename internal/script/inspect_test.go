package script

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/badreply"
)

// inspects checks what an inspection of that many keys reports. A TTL that is about a minute counts as one.
func (g ground) inspects(want Report, c Command, keys int) {
	g.Helper()
	r, err := ParseReport(g.do(c.InFull()...), keys)
	require.NoError(g, err)
	for i, h := range r.Holds {
		if h.TTL <= time.Minute && h.TTL > 50*time.Second {
			r.Holds[i].TTL = time.Minute
		}
	}
	assert.Equal(g, want, *r)
}

func TestInspectReadsALock(t *testing.T) {
	onBoth(t, func(g ground) {
		key := KeysOf("lock")
		g.inspects(Report{nil, [][]string{{}}, []uint64{0}}, key.Inspect(false), 1)
		g.inspects(Report{}, key.Inspect(true), 1)

		g.do("set", "lock", "v", "px", ttl)
		g.do("set", "{lock}:fence", "17", "px", ttl)
		g.line(queueKey, "!us1 they2 us3")
		holds, tickets := []Held{{Value: "v", TTL: time.Minute}}, [][]string{{ticket(2, they) + " ", ticket(3, us) + " "}}
		g.inspects(Report{holds, tickets, []uint64{17}}, key.Inspect(false), 1)
		g.inspects(Report{Holds: holds}, key.Inspect(true), 1)
		assert.Equal(g, they, ProcessIn(tickets[0][0]))

		g.do("persist", "lock")
		g.do("del", "{lock}:fence")
		g.do("rpush", "{lock}:fence", "x")
		holds[0].TTL = Endless
		g.inspects(Report{holds, tickets, []uint64{0}}, key.Inspect(false), 1)
	})
}

func TestInspectReadsReaders(t *testing.T) {
	onBoth(t, func(g ground) {
		key, last := KeysOf("lock"), time.Now().UnixMilli()+ttl
		g.do("set", "lock", fmt.Sprintf("readers\ngone 0000000000001\nv with spaces %d\nw %d\n", last, last), "px", ttl)
		g.inspects(Report{Holds: []Held{{0, "v with spaces", time.Minute, true}, {0, "w", time.Minute, true}}}, key.Inspect(true), 1)
	})
}

// What begins as the text of readers, but is none, is the value of a writer.
func TestInspectReadsATextThatIsNotOfReaders(t *testing.T) {
	key := KeysOf("lock")
	onBoth(t, func(g ground) {
		for _, text := range []string{
			"readers\n", "readers\nv", "readers\nv 1234567890123", "readers\nv 12345678901234\n", "readers\nv 123456789012\n",
			"readers\nv +123456789012\n", "readers\nv1234567890123\n", "readers\n1234567890123\n", "readers\nv 9999999999999\nw\n", "Readers\nv 9999999999999\n", "",
		} {
			g.do("set", "lock", text, "px", ttl)
			g.inspects(Report{Holds: []Held{{Value: text, TTL: time.Minute}}}, key.Inspect(true), 1)
		}
	})
}

func TestInspectReadsSeveralKeys(t *testing.T) {
	onBoth(t, func(g ground) {
		m, s := KeysOf("a", "lock"), NewSemaphore("s", 3)
		g.do("set", "lock", "v", "px", ttl)
		g.line(queueKey, "they2")
		holds := []Held{{At: 1, Value: "v", TTL: time.Minute}}
		g.inspects(Report{holds, [][]string{{}, {ticket(2, they) + " "}}, []uint64{0, 0}}, m.Inspect(false), 2)
		g.inspects(Report{Holds: holds}, m.Inspect(true), 2)

		g.do("set", "{s}:slot:0", "v", "px", ttl)
		g.do("set", "{s}:slot:2", "w", "px", ttl)
		holds = []Held{{Value: "v", TTL: time.Minute}, {At: 2, Value: "w", TTL: time.Minute}}
		g.inspects(Report{Holds: holds, Tickets: [][]string{{}}}, s.Inspect(false), 3)
		g.inspects(Report{Holds: holds}, s.Inspect(true), 3)
	})
}

// A reply that no node gives is an error, and no lock that is free.
func TestOddAnswersToAnInspection(t *testing.T) {
	var replies []any
	for _, v := range badreply.Values() {
		replies = append(replies, v.Reply())
	}
	for _, text := range []string{
		`null`, `"OK"`, `0`, `[]`, `[1, [null, -2], [""]]`, `[1, [null, -2], [""], [null], []]`, `["1", [null, -2], [""], [null]]`, `[1, [null], [""], [null]]`,
		`[1, [null, "x"], [""], [null]]`, `[1, [7, 1], [""], [null]]`, `[1, [null, -2, null, -2], [""], [null]]`, `[1, [null, -2], ["short"], [null]]`,
		`[1, [null, -2], [null], [null]]`, `[1, [null, -2], [""], [7]]`, `[1, null, [""], [null]]`,
	} {
		replies = append(replies, replyOf(t, text))
	}
	for _, reply := range replies {
		_, err := ParseReport(reply, 1)
		require.ErrorContains(t, err, "odd answer to an inspection", "%v", reply)
	}
	r, err := ParseReport([]any{int64(1), []any{"v", int64(1 << 62)}, []any{strings.Repeat("\xff", 64)}, []any{"x"}}, 1)
	require.NoError(t, err)
	assert.Equal(t, Endless, r.Holds[0].TTL)
	assert.Equal(t, []uint64{0}, r.Registers)
}
