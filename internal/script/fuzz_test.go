package script

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
)

// This file compares one node with small models of what the scripts do. The keys may hold any text at first.

// bubble runs f with an embedded node in virtual time.
func bubble(t *testing.T, f func(g ground, n *embedded.Node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nodes := embedded.Start(1)
		nodes[0].Spy(func(c embedded.Called) { assert.Empty(t, c.Undeclared(), "%q beside %q", c.Command, c.Keys) })
		c := nodes[0].Client()
		defer func() {
			_ = c.Close()
			nodes.Close()
			time.Sleep(time.Minute)
		}()
		f(ground{T: t, client: c}, nodes[0])
	})
}

// recordSize is the size of a waiter's record in a queue: 49 bytes of ticket, its kind, 13 of deadline and a
// newline.
const recordSize = 64

// Records are a queue in the model, in which anything may stand.
type records []string

// recordsOfQueue cuts a text into records. A shorter rest at the end is a record, too.
func recordsOfQueue(text string) (q records) {
	for len(text) > recordSize {
		q, text = append(q, text[:recordSize]), text[recordSize:]
	}
	if text != "" {
		q = append(q, text)
	}
	return q
}

// whole reports whether all records of q have the full size.
func (q records) whole() bool { return len(q) == 0 || len(q[len(q)-1]) == recordSize }

func part(record string, from, to int) string {
	return record[min(from, len(record)):min(to, len(record))]
}

var number = regexp.MustCompile(`^[0-9]+$`)

// deadline returns the deadline of a record, 0 if it has none.
func deadline(record string) int64 {
	text := part(record, 50, 63)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || !number.MatchString(text) {
		return 0
	}
	return n
}

// processOf returns the text that stands for the process of a record.
func processOf(record string) string { return part(record, 22, 38) }

// living returns q from the first record on that counts as alive.
func (q records) living(now int64) records {
	for len(q) > 0 && deadline(q[0]) <= now {
		q = q[1:]
	}
	return q
}

// cut returns q with no deadline later than latest, if its first is later.
func (q records) cut(latest int64) records {
	if len(q) == 0 || deadline(q[0]) <= latest {
		return q
	}
	q = slices.Clone(q)
	for i, r := range q {
		if deadline(r) > latest {
			q[i] = r[:50] + fmt.Sprintf("%013d\n", latest)
		}
	}
	return q
}

// with returns q with a ticket in its place: after the last ticket that is not greater.
func (q records) with(ticket string, deadline int64) records {
	if !q.whole() {
		q = nil
	}
	at := len(q)
	for at > 0 && q[at-1][:len(ticket)] > ticket {
		at--
	}
	end := at
	if at > 0 && q[at-1][:len(ticket)] == ticket {
		at--
	}
	return slices.Concat(q[:at], records{record(ticket, deadline)}, q[end:])
}

// without returns q without a ticket.
func (q records) without(ticket string) records {
	i := slices.IndexFunc(q, func(r string) bool { return strings.HasPrefix(r, ticket) })
	if i < 0 {
		return q
	}
	return slices.Concat(q[:i], q[i+1:])
}

// tells returns what a release adds to its reply if it tells the waiters at the head of q. The first of them
// is alive.
func (q records) tells(process string, now int64) (flags int64) {
	if part(q[0], 49, 50) != "r" {
		switch {
		case processOf(q[0]) != process:
			return Woke
		case len(q) > 1 && processOf(q[1]) != "" && processOf(q[1]) != process:
			return First + Others
		}
		return First
	}
	for _, r := range q {
		switch kind := part(r, 49, 50); {
		case len(r) < recordSize || deadline(r) <= now:
		case kind == " ":
			if flags == First && processOf(r) != process {
				flags += Others
			}
			return flags
		case kind == "r" && processOf(r) == process:
			flags |= First
		case kind == "r":
			flags |= Woke
		}
	}
	return flags
}

// waiting returns the well-formed records of waiters that are alive.
func (q records) waiting(now int64) (live []string) {
	for _, r := range q {
		if wellFormed.MatchString(r) && deadline(r) > now {
			live = append(live, r)
		}
	}
	return live
}

var wellFormed = regexp.MustCompile(`^\d{4}:\d{16}:\d{16}:\d{10}[ r]\d{13}\n$`)

// A node is a node with a lock and its queue, and the model of both.
type node struct {
	ground
	*embedded.Node
	queue records
	lock  string // its value, "" if it is free
}

const queueKey = "{lock}:queue"

func (n *node) run(c Command) any {
	n.Helper()
	v, err := n.client.Do(n.Context(), c.InFull()...).Result()
	require.NoError(n, err)
	return v
}

// now is the node's clock, in milliseconds.
func (n *node) now() int64 { return time.Now().UnixMilli() }

// enter compares an enter with the model. The answer says when a refusal may end.
func (n *node) enter(value, ticket string, strict bool) {
	n.Helper()
	place := Place{Ticket: TicketOf(ticket), Alive: alive, Strict: strict}
	got := n.run(Enter(lockOf(value), ttl, place, noFence))

	n.queue = n.queue.with(ticket, n.now()+alive).living(n.now()).cut(n.now() + alive)
	want := int64(0)
	switch first := n.queue[0]; {
	case n.lock != "":
		want = n.TTL("lock").Milliseconds()
	case strict && processOf(first) != processOf(ticket):
		want = deadline(first) - n.now()
	default:
		n.lock = value
	}
	require.Equal(n, want, got)
	require.GreaterOrEqual(n, n.TTL(queueKey), 2*alive*time.Millisecond)
}

// release compares a release with the model.
func (n *node) release(value, process string, turnover Turnover) {
	n.Helper()
	var live []string
	if turnover.Enters.IsZero() || n.queue.whole() { // otherwise the text is replaced
		live = n.queue.waiting(n.now())
	}
	got := n.run(Release(lockOf(value), ProcessOf(process), turnover, noFence))

	want := Missing
	switch n.lock {
	case "":
	case value:
		want, n.lock = Mine, ""
	default:
		want = Other
	}
	if want != Other || !turnover.Enters.IsZero() || len(turnover.Leave) > 0 {
		for _, ticket := range turnover.Leave {
			n.queue = n.queue.without(ticket.String())
		}
		if !turnover.Enters.IsZero() {
			n.queue = n.queue.with(turnover.Enters.String(), n.now()+alive)
		}
		n.queue = n.queue.living(n.now())
	}
	if want != Other && len(n.queue) > 0 {
		want += n.queue.tells(process, n.now())
	}
	require.Equal(n, want, got)
	n.keeps(live, turnover)
}

// keeps checks that all live waiters are still in the queue, except those that have left.
func (n *node) keeps(live []string, turnover Turnover) {
	n.Helper()
	after, _ := n.Get(queueKey)
	for _, r := range live {
		if t := TicketOf(r[:49]); !slices.Contains(turnover.Leave, t) && turnover.Enters != t {
			require.Contains(n, after, r)
		}
	}
}

// compare checks that the node agrees with the model, and that each key has a TTL.
func (n *node) compare() {
	n.Helper()
	text, _ := n.Get(queueKey)
	require.Equal(n, strings.Join(n.queue, ""), text)
	lock, _ := n.Get("lock")
	require.Equal(n, n.lock, lock)
	for _, key := range n.Keys() {
		require.Positive(n, n.TTL(key), key)
	}
}

// step makes one step of a plan. b says what to do, and with which of eight tickets of two processes.
func (n *node) step(b byte) {
	n.Helper()
	rank := int(b >> 3 % 8)
	who := []string{us, they}[rank%2]
	value := []string{"v", "w"}[rank/2%2]
	mine, other := aTicket(rank, who), aTicket(rank/2+1, who)
	switch b % 8 {
	case 0, 1:
		n.enter(value, mine.String(), b%8 == 1)
	case 2:
		n.release(value, who, noTurn)
	case 3:
		n.release(value, who, Turnover{Leave: []Ticket{mine}})
	case 4:
		n.release(value, who, Turnover{Leave: []Ticket{mine, other}})
	case 5:
		n.release(value, who, Turnover{Enters: mine, Alive: alive, Leave: []Ticket{other}})
	case 6:
		time.Sleep(time.Duration(b) * 40 * time.Millisecond)
		if !n.Exists(queueKey) {
			n.queue = nil
		}
		if !n.Exists("lock") {
			n.lock = ""
		}
		return
	case 7:
		found := n.run(Release(lockOf(value), noProcess, quietly, noFence))
		switch n.lock {
		case "":
			require.Equal(n, Missing, found)
		case value:
			require.Equal(n, Mine, found)
			n.lock = ""
		default:
			require.Equal(n, Other, found)
		}
	}
	n.compare()
}

// FuzzQueue begins with any text in a queue. Enter and release must do what the model does, which cuts the
// text into records. No release may fail, leave its key, or lose a live waiter. No key may be left without a
// TTL.
func FuzzQueue(f *testing.F) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() // when bubbles begin
	line := func(names string) string { return queueOf(names, now, 5000) }
	they1, theirs := ticket(1, they), line("they1")
	plan := []byte{0, 0x11, 2, 0x0b, 0x1d, 0x0a, 0x76, 0x1d, 0x2c, 0x17, 0x3a}
	for _, text := range []string{
		"", "what?", theirs, line("they1 us2"), line("!they0 us1"), line("!they0 !they0 they3 us4"), line("!they0"), line("us2 they1"), line("they1 they1"),
		"x" + theirs, theirs + "x", theirs[1:], theirs[:63],
		they1 + "           inf\n", they1 + "           nan\n", they1 + " 0x1p+1000    \n", they1 + " 9999999999999\n",
		ticket(0, they) + " 9999999999999\n" + ticket(2, us) + " 99999999999x9\n" + line("us4"),
		they1 + " 94668480000.5\n", they1 + "  946684900000\n", they1 + " -946684900000\n", they1 + " 1e300        \n", they1 + " 0b11111111111\n", they1 + " 1_000_000_000\n",
		// A ticket that is not at the beginning of a record.
		strings.Repeat("x", 10) + they1 + "12345" + line("they3"), strings.Repeat("x", 60) + theirs + "123\n" + line("us4"),
		line("they1r"), line("us1r they2r"), line("us1r they2 they3r"), line("they1r us2r !they0 they4r"), line("!they0 us1r they2r")[:191],
		strings.Repeat("\x00", 64) + line("us1"), strings.Repeat("\xff", 128), strings.Repeat("9", 64) + line("they2"), strings.Repeat("9", 640), strings.Repeat("\n", 64),
	} {
		f.Add(text, plan)
		f.Add(text, []byte{0x0b})
		f.Add(text, []byte{0x0d, 0x0c, 0x1b})
		f.Add(text, []byte{1, 1, 9, 9, 0x1e, 0x0a, 0x12})
	}
	f.Fuzz(func(t *testing.T, text string, plan []byte) {
		bubble(t, func(g ground, m *embedded.Node) {
			n := &node{ground: g, Node: m, queue: recordsOfQueue(text)}
			if text != "" {
				require.NoError(g, m.Set(queueKey, text))
				m.SetTTL(queueKey, 2*alive*time.Millisecond)
			}
			for _, b := range plan[:min(len(plan), 16)] {
				n.step(b)
			}
		})
	})
}

// greater reports whether a token is greater than the number in a register. known is false if the register
// holds no number as the scripts write it.
func greater(token uint64, register string) (beyond, known bool) {
	if register == "" {
		return true, true
	}
	n, ok := new(big.Int).SetString(register, 10)
	if !ok || n.String() != register || n.Sign() < 0 {
		return false, false
	}
	return new(big.Int).SetUint64(token).Cmp(n) > 0, true
}

// FuzzRegister begins with any text in a register. Only a greater token may replace a number of any length,
// and nothing but a token may come after it. Each answer must be readable, or an error. A release must delete
// its key. No key may be left without a TTL.
func FuzzRegister(f *testing.F) {
	for _, register := range []string{
		"", "0", "1", "6", "7", "8", "10", "007", "+7", "-1", "7 ", "abc", "~", "\xff\x00", "9007199254740993", "18446744073709551614", "18446744073709551615", "18446744073709551616", "1e3", "0x10", strings.Repeat("9", 40), "00000000000000000000000007", "1763000000000000x",
	} {
		for _, token := range []uint64{1, 7, 9007199254740992, 9007199254740993, math.MaxUint64} {
			f.Add(register, token, uint8(token%64))
		}
		f.Add(register, uint64(8), uint8(0xff))
	}
	f.Fuzz(func(t *testing.T, register string, number uint64, how uint8) {
		if number == 0 {
			number = 1 // 0 is no fence
		}
		bubble(t, func(g ground, m *embedded.Node) {
			const key = "{lock}:fence"
			n := &node{ground: g, Node: m}
			set := func() {
				m.FlushAll()
				if register != "" {
					require.NoError(g, m.Set(key, register))
					m.SetTTL(key, time.Minute)
				}
			}
			looks := func(raises bool) {
				left, _ := m.Get(key)
				beyond, known := greater(number, register)
				raised := left == strconv.FormatUint(number, 10)
				require.True(g, raised || left == register, "%q", left)
				if known && raises {
					require.Equal(g, beyond, raised && left != register)
				}
				if !raises {
					require.Equal(g, register, left)
				}
				for _, key := range m.Keys() {
					require.Positive(g, m.TTL(key), key)
				}
			}
			set()
			there := []string{"", "v", "w", ""}[how%4]
			if there != "" {
				require.NoError(g, m.Set("lock", there))
				m.SetTTL("lock", time.Second)
			}
			lock := lockV
			place := Place{Alive: alive}
			if how&4 != 0 {
				place.Ticket = aTicket(1, us)
			}
			reply := n.run(Enter(lock, ttl, place, token(number)))
			looks(there != "w")
			left, _ := m.Get(key)
			entered, err := ParseEntered(reply)
			if _, bad := strconv.ParseUint(left, 10, 64); bad != nil && left != "" {
				require.Error(g, err)
			} else if left != "" || there != "w" {
				require.NoError(g, err)
				require.Equal(g, there != "w", entered.Wait == Granted)
				require.Equal(g, there == "v", entered.WasThere)
				require.Equal(g, entered.Stored, left != register)
			}

			set()
			require.NoError(g, m.Set("lock", "v"))
			release := Release(lock, ProcessOf(us), noTurn, token(number))
			if how&8 != 0 {
				release = Release(lock, noProcess, quietly, token(number))
			}
			require.Equal(g, Mine, n.run(release))
			require.False(g, m.Exists("lock"))
			looks(true)
		})
	})
}
