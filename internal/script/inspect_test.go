package script_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/nonsense"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// inspects runs an inspection of that many keys.
func (g ground) inspects(c script.Command, keys int) *script.Report {
	g.Helper()
	r, err := script.ParseReport(g.do(c.InFull()...), keys)
	require.NoError(g, err)
	return r
}

// TTLs runs out while a test reads them, so they are compared with what they were set to.
func (g ground) lasts(h script.Held, atMost time.Duration) {
	g.Helper()
	assert.LessOrEqual(g, h.TTL, atMost)
	assert.Greater(g, h.TTL, atMost-10*time.Second)
}

func TestInspectReadsALock(t *testing.T) {
	onBoth(t, func(g ground) {
		key := script.NewKey("lock")
		assert.Equal(g, &script.Report{Tickets: [][]string{{}}, Registers: []uint64{0}}, g.inspects(key.Inspect(false), 1))
		assert.Equal(g, &script.Report{}, g.inspects(key.Inspect(true), 1))

		g.do("set", "lock", "v", "px", ttl)
		g.do("set", "{lock}:fence", "17", "px", ttl)
		g.line(queueKey, "!us1 they2 us3")
		r := g.inspects(key.Inspect(false), 1)
		require.Len(g, r.Holds, 1)
		assert.Equal(g, "v", r.Holds[0].Value)
		g.lasts(r.Holds[0], ttl*time.Millisecond)
		assert.False(g, r.Holds[0].Shared)
		assert.Equal(g, [][]string{{ticket(2, they) + " ", ticket(3, us) + " "}}, r.Tickets)
		assert.Equal(g, they, script.ProcessIn(r.Tickets[0][0]))
		assert.Equal(g, []uint64{17}, r.Registers)
		alone := g.inspects(key.Inspect(true), 1)
		assert.Nil(g, alone.Tickets)
		assert.Nil(g, alone.Registers)
		assert.Len(g, alone.Holds, 1)

		g.do("persist", "lock")
		assert.Equal(g, script.Endless, g.inspects(key.Inspect(false), 1).Holds[0].TTL)
		g.do("del", "lock", "{lock}:queue", "{lock}:fence")
		g.do("rpush", "{lock}:fence", "x")
		assert.Equal(g, []uint64{0}, g.inspects(key.Inspect(false), 1).Registers)
		g.do("del", "{lock}:fence")
	})
}

func TestInspectReadsReaders(t *testing.T) {
	onBoth(t, func(g ground) {
		key := script.NewKey("lock")
		for _, value := range []string{"v with spaces", "w", "gone"} {
			g.reads(value, "", script.Fence{})
		}
		text := g.do("get", "lock").(string)
		gone := strings.Index(text, "gone ") + len("gone ")
		text = "readers\ngone 0000000000001\n" + strings.Replace(text[len("readers\n"):], text[gone-len("gone "):gone+14], "", 1)
		g.do("set", "lock", text, "px", ttl)
		r := g.inspects(key.Inspect(false), 1)
		require.Len(g, r.Holds, 2)
		for i, value := range []string{"v with spaces", "w"} {
			assert.Equal(g, value, r.Holds[i].Value)
			assert.True(g, r.Holds[i].Shared)
			g.lasts(r.Holds[i], ttl*time.Millisecond)
		}
	})
}

// What begins as the text of readers, but is none, is the value of a writer.
func TestInspectReadsATextThatIsNotOfReaders(t *testing.T) {
	onBoth(t, func(g ground) {
		key := script.NewKey("lock")
		for _, text := range []string{
			"readers\n", "readers\nv", "readers\nv 1234567890123", "readers\nv 12345678901234\n", "readers\nv 123456789012\n",
			"readers\nv +123456789012\n", "readers\nv1234567890123\n", "readers\n1234567890123\n", "readers\nv 9999999999999\nw\n", "Readers\nv 9999999999999\n", "",
		} {
			g.do("set", "lock", text, "px", ttl)
			r := g.inspects(key.Inspect(false), 1)
			require.Len(g, r.Holds, 1, "%q", text)
			assert.Equal(g, text, r.Holds[0].Value)
			assert.False(g, r.Holds[0].Shared)
		}
	})
}

func TestInspectReadsSeveralKeys(t *testing.T) {
	onBoth(t, func(g ground) {
		m, s := script.NewMulti([]string{"a", "lock"}), script.NewSemaphore("s", 3)
		g.do("set", "lock", "v", "px", ttl)
		g.line(queueKey, "they2")
		r := g.inspects(m.Inspect(false), 2)
		require.Len(g, r.Holds, 1)
		assert.Equal(g, 1, r.Holds[0].At)
		assert.Equal(g, [][]string{{}, {ticket(2, they) + " "}}, r.Tickets)
		assert.Equal(g, []uint64{0, 0}, r.Registers)
		assert.Equal(g, r.Holds[0].Value, g.inspects(m.Inspect(true), 2).Holds[0].Value)

		g.do("set", "{s}:slot:0", "v", "px", ttl)
		g.do("set", "{s}:slot:2", "w", "px", ttl)
		r = g.inspects(s.Inspect(false), 3)
		require.Len(g, r.Holds, 2)
		assert.Equal(g, 0, r.Holds[0].At)
		assert.Equal(g, 2, r.Holds[1].At)
		assert.Equal(g, [][]string{{}}, r.Tickets)
		assert.Nil(g, r.Registers)
		assert.Len(g, g.inspects(s.Inspect(true), 3).Holds, 2)
	})
}

// A reply that no node gives is an error, and no lock that is free.
func TestOddAnswersToAnInspection(t *testing.T) {
	replies := nonsenseReplies()
	for _, text := range []string{
		`null`, `"OK"`, `0`, `[]`, `[1, [null, -2], [""]]`, `[1, [null, -2], [""], [null], []]`, `["1", [null, -2], [""], [null]]`, `[1, [null], [""], [null]]`,
		`[1, [null, "x"], [""], [null]]`, `[1, [7, 1], [""], [null]]`, `[1, [null, -2, null, -2], [""], [null]]`, `[1, [null, -2], ["short"], [null]]`,
		`[1, [null, -2], [null], [null]]`, `[1, [null, -2], [""], [7]]`, `[1, null, [""], [null]]`,
	} {
		replies = append(replies, replyOf(t, text))
	}
	for _, reply := range replies {
		_, err := script.ParseReport(reply, 1)
		require.ErrorContains(t, err, "odd answer to an inspection", "%v", reply)
	}
	r, err := script.ParseReport([]any{int64(1), []any{"v", int64(1 << 62)}, []any{strings.Repeat("\xff", 64)}, []any{"x"}}, 1)
	require.NoError(t, err)
	assert.Equal(t, script.Endless, r.Holds[0].TTL)
	assert.Equal(t, []uint64{0}, r.Registers)
}

func nonsenseReplies() (replies []any) {
	for _, v := range nonsense.Values() {
		replies = append(replies, v.Reply())
	}
	return replies
}
