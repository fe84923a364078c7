package script

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file compares the scripts of several names with a reference in Go. The reference decides about any
// number of names. It is compared with the scripts of one name, too, which checks the reference itself. What
// it says about readers is in shared_fuzz_test.go.

// A world is what the reference expects on a node. It does not count the time that a test takes, so all times
// are far apart.
type world [3]worldName

// A worldName is what a node keeps of one name. The TTL of a missing key is 0, and that of a key that never
// ends is -1.
type worldName struct {
	lock    string        // a writer's value
	readers []worldReader // if they hold the lock, in the order of their deadlines
	queue   []worldWaiter
	fence   string // a number

	lockTTL, queueTTL, fenceTTL    int64
	lockOdd, queueOdd, fenceIsList bool // the key is a list, and nothing else of it matters
}

type worldWaiter struct {
	ticket string // without its kind
	left   int64  // until its deadline; not positive if it is dead
	shared bool
}

const (
	worldTTL   = 1_000_000 // that commands set, in milliseconds
	worldAlive = 100_000
	worldFence = 3_000_000
	tolerance  = 20_000 // what a test may take
)

var (
	worldNames   = []string{"a", "b", "c"}
	worldTickets = []string{ticketOf("+us4"), ticketOf("they2"), ticketOf("us3"), ticketOf("-they1")} // in order
	worldTokens  = []uint64{7, 9, 10, 9007199254740993}
	worldDead    = int64(-5000)
)

// A move is one command, and what the reference says about it.
type move interface {
	command() Command
	expect(w *world) expected
	parse(reply any) (any, error)
}

type expected struct {
	refused bool // the answer is an error
	reply   any
	told    []string
}

func (n *worldName) living() {
	for len(n.queue) > 0 && n.queue[0].left <= 0 {
		n.queue = n.queue[1:]
	}
}

// cut lets no waiter live for longer than one that enters, if the one that keeps others back does.
func (n *worldName) cut(first string) {
	at := slices.IndexFunc(n.queue, func(w worldWaiter) bool { return w.ticket == first })
	if at < 0 || n.queue[at].left <= worldAlive {
		return
	}
	n.queue = slices.Clone(n.queue)
	for i := range n.queue {
		n.queue[i].left = min(n.queue[i].left, worldAlive)
	}
}

func (n *worldName) with(ticket string) {
	if ticket == "" {
		return
	}
	n.without(ticket)
	n.queue = append(n.queue, worldWaiter{ticket[:49], worldAlive, len(ticket) > 49})
	slices.SortFunc(n.queue, func(a, b worldWaiter) int { return cmp.Compare(a.ticket, b.ticket) })
	n.queueTTL = max(n.queueTTL, 2*worldAlive)
}

func (n *worldName) without(tickets ...string) {
	n.queue = slices.DeleteFunc(slices.Clone(n.queue), func(w worldWaiter) bool {
		return slices.ContainsFunc(tickets, func(t string) bool { return t[:49] == w.ticket })
	})
}

// settle notes that an empty queue has no key.
func (n *worldName) settle() {
	if len(n.queue) == 0 {
		n.queueTTL = 0
	}
}

// at returns the process of the i-th waiter, "" if there is none.
func (n *worldName) at(i int) string {
	if i >= len(n.queue) {
		return ""
	}
	return processOf(n.queue[i].ticket)
}

// raise sets the register to token if token is greater than it.
func (n *worldName) raise(token uint64) {
	register, _ := strconv.ParseUint(n.fence, 10, 64)
	if token > register && !n.fenceIsList {
		n.fence, n.fenceTTL = strconv.FormatUint(token, 10), worldFence
	}
}

// An acquire is an enter of some names.
type acquire struct {
	names         []int
	value, ticket string
	strict        bool
	token         uint64
	shared        bool // a reader's, of one name
	old           bool // by the script of a version that knows no readers
}

func (a acquire) expect(w *world) expected {
	if a.shared {
		return a.expectShared(&w[a.names[0]])
	}
	var e Entered
	for _, i := range a.names {
		n := &w[i]
		if n.lockOdd || a.ticket != "" && n.queueOdd || a.token != 0 && n.fenceIsList {
			return expected{refused: true}
		}
	}
	for at, i := range a.names {
		n := &w[i]
		if a.ticket != "" {
			n.with(a.ticket)
			n.living()
			if !a.old || len(a.names) > 1 {
				n.cut(n.queue[0].ticket)
			}
		}
		mine := a.token != 0 && n.lock == a.value
		e.WasThere = e.WasThere || mine
		register, _ := strconv.ParseUint(n.fence, 10, 64)
		if a.token != 0 {
			e.Register = max(e.Register, register)
		}
		var wait int64
		switch {
		case mine:
			continue
		case n.held():
			wait = n.lockTTL
		case a.strict && a.ticket != "" && n.at(0) != processOf(a.ticket):
			wait = n.queue[0].left
		default:
			continue
		}
		if e.By == 0 {
			e.Wait = wait
		}
		e.By |= 1 << at
	}
	if e.By != 0 {
		e.WasThere = false
		if len(a.names) == 1 { // the answer to an acquire of one name does not say which
			e.By = 0
		}
		return expected{reply: e}
	}
	e.Stored = a.token > e.Register
	for _, i := range a.names {
		n := &w[i]
		if n.lock == "" {
			n.lock, n.lockTTL = a.value, worldTTL
		}
		switch {
		case a.token == 0:
		case e.Stored:
			n.raise(a.token)
		case n.fence != "":
			n.fenceTTL = worldFence
		}
	}
	if e.Stored {
		e.Register = a.token
	}
	return expected{reply: e}
}

func (a acquire) command() Command {
	place, f := Place{Ticket: TicketOf(a.ticket), Alive: worldAlive, Strict: a.strict}, fenceOf(a.token)
	lock := worldLock(a.names, a.value)
	switch {
	case a.shared:
		return EnterShared(lock, worldTTL, place, f)
	}
	return maybeOld(a.old && len(a.names) == 1, "enter", Enter(lock, worldTTL, place, f))
}

func (a acquire) parse(reply any) (any, error) {
	switch {
	case a.shared:
		return ParseEnteredShared(reply)
	case len(a.names) == 1:
		return ParseEntered(reply)
	}
	return ParseEnteredNames(reply)
}

// fenceOf returns the fence of a token, 0 for none.
func fenceOf(token uint64) (f Fence) {
	if token != 0 {
		f = Fence{Token: token, TTL: worldFence}
	}
	return f
}

// worldLock returns the lock of some names.
func worldLock(names []int, value string) Lock {
	var texts []string
	for _, i := range names {
		texts = append(texts, worldNames[i])
	}
	return newLock(value, texts...)
}

// A leave is a release of some names.
type leave struct {
	names          []int
	value, process string
	quiet          bool
	token          uint64
	all            []string   // tickets that leave all queues
	enters         []string   // by name: the ticket that enters
	leaves         [][]string // by name: the tickets that leave
	rest           int64      // the keys are shortened to it; 0: they are deleted
	shared         bool       // a reader's, of one name
	old            bool       // by the script of a version that knows no readers
}

// shorten lets n last for a rest at most, and reports whether it lasted longer.
func (n *worldName) shorten(rest int64) bool {
	if n.lockTTL >= 0 && n.lockTTL <= rest {
		return false
	}
	n.lockTTL = rest
	return true
}

// ticketsOf returns the tickets with these texts.
func ticketsOf(texts []string) (tickets []Ticket) {
	for _, text := range texts {
		tickets = append(tickets, TicketOf(text))
	}
	return tickets
}

// by returns by whom, and with which turnover, the names are released.
func (l leave) by() (Process, Turnover) {
	t := Turnover{Alive: worldAlive, Leave: ticketsOf(l.all)}
	switch {
	case l.quiet:
		return noProcess, quietly
	case len(l.names) == 1 && l.enters != nil:
		t.Enters = TicketOf(l.enters[0])
	default:
		for i := range l.enters {
			t.Parts = append(t.Parts, Part{Enters: TicketOf(l.enters[i]), Leave: ticketsOf(l.leaves[i])})
		}
	}
	return ProcessOf(l.process), t
}

func (l leave) expect(w *world) (e expected) {
	r := Released{Found: found(w, l.names, l.value)}
	if l.shared {
		n := &w[l.names[0]]
		r.Found = n.foundShared(l.value)
		if len(n.readers) == 1 && n.readers[0].value == l.value {
			r.Found = Mine // even after the deadline: the script then does not look at the clock
		}
	}
	for _, i := range l.names {
		e.refused = e.refused || w[i].lockOdd
	}
	if e.refused && (l.shared || l.old) {
		return e
	}
	changes := len(l.all) > 0
	for i := range l.enters {
		changes = changes || l.enters[i] != "" || len(l.leaves[i]) > 0
	}
	for at, i := range l.names {
		n := &w[i]
		looks := false // waiters must look again, although the key stays
		switch mine := n.lock == l.value && !n.lockOdd; {
		case mine && l.rest == 0:
			n.lock, n.lockTTL = "", 0
		case mine:
			looks = n.shorten(l.rest) || changes
		}
		if l.shared {
			n.takeOut(l.value)
		}
		if l.token != 0 {
			n.raise(l.token)
		}
		held := n.lockOdd || n.held() && !looks
		if l.quiet || n.queueOdd || held && !changes {
			continue
		}
		writer := n.firstWriter("")
		n.without(l.all...)
		if l.enters != nil {
			n.without(l.leaves[at]...)
			n.with(l.enters[at])
		}
		n.living()
		n.settle()
		if len(n.queue) == 0 || held && (l.old || !n.freesReaders(writer)) {
			continue
		}
		told, first, others := n.tells(l.process, l.old)
		for _, process := range told {
			e.told = append(e.told, process+" "+worldNames[i])
		}
		if first {
			r.First |= 1 << at
		}
		if others {
			r.Others |= 1 << at
		}
	}
	e.reply = r
	return e
}

func (l leave) command() Command {
	process, turnover := l.by()
	f, lock := fenceOf(l.token), worldLock(l.names, l.value)
	switch {
	case l.rest != 0:
		return Shorten(lock, l.rest, process, turnover, f)
	case l.shared:
		return ReleaseShared(lock, process, turnover, f)
	}
	return maybeOld(l.old, "release", Release(lock, process, turnover, f))
}

func (l leave) parse(reply any) (any, error) {
	if len(l.names) == 1 {
		return parseReleasedOne(reply)
	}
	return ParseReleasedNames(reply)
}

// anyRest returns a rest at random, 0 for none. It is far from the TTLs that keys have.
func anyRest(r *rand.Rand) int64 { return pick[int64](r, 0, 0, worldTTL/5, worldTTL, 3*worldTTL) }

// parseReleasedOne reads a reply to the release of one name as if that was one of several.
func parseReleasedOne(reply any) (any, error) {
	n, ok := reply.(int64)
	if !ok {
		return nil, fmt.Errorf("no number: %v", reply)
	}
	r := Released{Found: n % Woke}
	if n&First != 0 {
		r.First = 1
	}
	if n&(Woke|Others) != 0 {
		r.Others = 1
	}
	return r, nil
}

// found returns what a command that looks for a value finds.
func found(w *world, names []int, value string) int64 {
	missing := false
	for _, i := range names {
		if n := w[i]; n.lockOdd || n.held() && n.lock != value {
			return Other
		}
		missing = missing || w[i].lock == ""
	}
	if missing {
		return Missing
	}
	return Mine
}

// A look is an extend, a heal or a valid of some names.
type look struct {
	names []int
	value string
	kind  string
}

func (l look) expect(w *world) expected {
	for _, i := range l.names {
		if w[i].lockOdd {
			return expected{refused: true}
		}
	}
	reply := found(w, l.names, l.value)
	if l.kind == "valid" || reply == Other || reply == Missing && l.kind == "extend" {
		return expected{reply: reply}
	}
	if reply == Missing {
		reply = Created
	}
	for _, i := range l.names {
		n := &w[i]
		n.lock = l.value
		if n.lockTTL < worldTTL {
			n.lockTTL = worldTTL
		}
	}
	return expected{reply: reply}
}

func (l look) command() Command { return l.at(worldLock(l.names, l.value)) }

// at returns the command that looks at a lock.
func (l look) at(lock Lock) Command {
	return map[string]Command{"extend": Extend(lock, worldTTL, false), "heal": Extend(lock, worldTTL, true), "valid": Valid(lock)}[l.kind]
}

func (look) parse(reply any) (any, error) { return reply, nil }

// A play is a sequence of commands for a node, and what the reference says about each. It is sent in one
// pipeline.
type play struct {
	ground
	keys   [3][3]string // of each name: of the lock, of its queue and of its register
	start  int64        // the node's clock, in milliseconds
	pipe   redis.Pipeliner
	checks []func(messages []string)
}

func (g ground) play() *play {
	g.Helper()
	now, err := g.client.Time(g.Context()).Result()
	require.NoError(g, err)
	p := &play{ground: g, start: now.UnixMilli(), pipe: g.client.Pipeline()}
	for i, name := range worldNames {
		p.keys[i] = [3]string{name, QueueKey(name), FenceKey(name)}
	}
	return p
}

// dump returns values and TTLs of keys.
const dump = `local out = {}
for i = 1, #KEYS do
  local v = redis.pcall('GET', KEYS[i]) or ''
  if type(v) == 'table' then v = 'a list' end
  out[2 * i - 1], out[2 * i] = v, redis.call('PTTL', KEYS[i])
end
return out`

// set brings the node into the state w.
func (p *play) set(w *world) {
	c := p.Context()
	p.pipe.FlushAll(c)
	for i, n := range w {
		p.put(p.keys[i][0], n.lock+p.readersText(n.readers), n.lockTTL, n.lockOdd)
		p.put(p.keys[i][1], p.text(n.queue), n.queueTTL, n.queueOdd)
		p.put(p.keys[i][2], n.fence, n.fenceTTL, n.fenceIsList)
	}
}

// put sets a key, unless its value is empty.
func (p *play) put(key, value string, ttl int64, isList bool) {
	c := p.Context()
	switch {
	case isList:
		p.pipe.RPush(c, key, "x")
		p.pipe.PExpire(c, key, worldTTL*time.Millisecond)
	case value != "" && ttl < 0:
		p.pipe.Set(c, key, value, 0)
	case value != "":
		p.pipe.Do(c, "set", key, value, "px", ttl)
	}
}

func (p *play) text(queue []worldWaiter) string {
	var b strings.Builder
	for _, w := range queue {
		b.WriteString(w.record(p.start))
	}
	return b.String()
}

// do plays a move. The failure names from if the node does not do what the reference says.
func (p *play) do(w *world, m move, from string) {
	c := p.Context()
	reply := p.pipe.Do(c, m.command().InFull()...)
	want := m.expect(w)
	after := *w
	for i := range after {
		after[i].queue, after[i].readers = slices.Clone(after[i].queue), slices.Clone(after[i].readers)
	}
	p.pipe.Publish(c, ProcessOf(us).Channel(), "end")
	var keys []string
	for _, of := range p.keys {
		keys = append(keys, of[:]...)
	}
	state := p.pipe.Eval(c, dump, keys)
	p.checks = append(p.checks, func(messages []string) {
		if wrong := p.wrong(m, want, reply, after, state, messages); wrong != "" {
			p.Fatalf("%s\n%T %+v\nfrom %s", wrong, m, m, from)
		}
	})
}

// end sends the commands and compares the node with the reference.
func (p *play) end() {
	p.Helper()
	_, _ = p.pipe.Exec(p.Context())
	for _, check := range p.checks {
		check(p.messages())
	}
	p.checks, p.pipe = nil, p.client.Pipeline()
}

// messages returns what has been published up to the next end: to whom, and about which lock.
func (g ground) messages() (messages []string) {
	g.Helper()
	for {
		m, err := g.pubsub.ReceiveTimeout(g.Context(), 10*time.Second)
		require.NoError(g, err)
		message := m.(*redis.Message)
		if message.Payload == "end" {
			return messages
		}
		messages = append(messages, strings.TrimPrefix(message.Channel, "redsync:")+" "+message.Payload)
	}
}

func near(got, want int64) bool {
	return got == want || want > 0 && got > want-tolerance && got <= want+tolerance && got > 0
}

// wrong says how the node differs from the reference, "" if it does not.
func (p *play) wrong(m move, want expected, reply *redis.Cmd, after world, state *redis.Cmd, messages []string) string {
	if wrong := want.differs(m.parse, reply, messages); wrong != "" {
		return wrong
	}
	values := state.Val().([]any)
	for i, n := range after {
		name, at := p.keys[i][0], 6*i
		if len(n.readers) > 0 {
			if wrong := p.readersDiffer(values[at:], n); wrong != "" {
				return name + ": " + wrong
			}
		} else if wrong := differs(values[at:], n.lock, n.lockTTL, n.lockOdd); wrong != "" {
			return name + ": lock " + wrong
		}
		if wrong := differs(values[at+4:], n.fence, n.fenceTTL, n.fenceIsList); wrong != "" {
			return name + ": fence " + wrong
		}
		if wrong := p.queueDiffers(values[at+2:], n); wrong != "" {
			return name + ": queue " + wrong
		}
	}
	return ""
}

// differs compares an answer, and who has been told, with what is expected.
func (e expected) differs(parse func(reply any) (any, error), reply *redis.Cmd, messages []string) string {
	if failed := reply.Err() != nil && !errors.Is(reply.Err(), redis.Nil); failed || e.refused {
		if failed != e.refused || !strings.Contains(reply.Err().Error(), "WRONGTYPE") {
			return fmt.Sprintf("answer %v, %v", reply.Val(), reply.Err())
		}
	} else {
		got, err := parse(reply.Val())
		switch g := got.(type) {
		case Entered:
			if want := e.reply.(Entered); near(g.Wait, want.Wait) {
				g.Wait = want.Wait
			}
			got = g
		case EnteredPermits:
			if want := e.reply.(EnteredPermits); near(g.Wait, want.Wait) {
				g.Wait = want.Wait
			}
			got = g
		}
		if err != nil || got != e.reply {
			return fmt.Sprintf("answer %v (%+v, %v), want %+v", reply.Val(), got, err, e.reply)
		}
	}
	if !slices.Equal(messages, e.told) {
		return fmt.Sprintf("told %q, want %q", messages, e.told)
	}
	return ""
}

// queueDiffers compares a queue and its TTL.
func (p *play) queueDiffers(got []any, n worldName) string {
	text := got[0].(string)
	if n.queueOdd {
		if text != "a list" {
			return "the list beside it is overwritten: " + text
		}
		return ""
	}
	if len(text) != recordSize*len(n.queue) {
		return fmt.Sprintf("%q, want %v", text, n.queue)
	}
	for j, w := range n.queue {
		r := text[recordSize*j:][:recordSize]
		if r[:50] != w.record(0)[:50] || !number.MatchString(r[50:63]) || r[63] != '\n' || max(deadline(r)-p.start-w.left, p.start+w.left-deadline(r)) > tolerance {
			return fmt.Sprintf("%q, want %v", text, n.queue)
		}
	}
	if ttl := got[1].(int64); len(n.queue) > 0 && !near(ttl, n.queueTTL) {
		return fmt.Sprintf("lasts %d, want %d", ttl, n.queueTTL)
	}
	return ""
}

// differs compares a value and its TTL.
func differs(got []any, value string, ttl int64, isList bool) string {
	if isList {
		value, ttl = "a list", worldTTL
	}
	if value == "" {
		ttl = -2
	}
	if got[0] != value || !near(got[1].(int64), ttl) {
		return fmt.Sprintf("%v, want %q for %d", got[:2], value, ttl)
	}
	return ""
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// some returns a random part of list.
func some[T any](r *rand.Rand, list []T) (part []T) {
	for _, e := range list {
		if r.IntN(3) == 0 {
			part = append(part, e)
		}
	}
	return part
}

// anyName returns a name at random.
func anyName(r *rand.Rand) (n worldName) {
	switch r.IntN(14) {
	case 0, 1, 2, 3:
		n.lock, n.lockTTL = "v", pick[int64](r, worldTTL/2, 2*worldTTL, -1)
	case 4, 5:
		n.lock, n.lockTTL = "w", pick[int64](r, worldTTL/2, 2*worldTTL, -1)
	case 6:
		n.lockOdd = r.IntN(2) == 0
	case 7, 8, 9, 10:
		n.readers, n.lockTTL = anyReaders(r)
	}
	for _, t := range some(r, worldTickets) {
		n.queue = append(n.queue, worldWaiter{t, pick(r, worldDead, 3*worldAlive, 5*worldAlive), r.IntN(2) == 0})
		n.queueTTL = pick[int64](r, 150_000, 400_000)
	}
	if r.IntN(20) == 0 {
		n.queueOdd, n.queue = true, nil
	}
	switch r.IntN(8) {
	case 0, 1, 2, 3:
		n.fence, n.fenceTTL = strconv.FormatUint(pick(r, worldTokens...)-uint64(r.IntN(2)), 10), worldTTL/2
	case 4:
		n.fenceIsList = r.IntN(3) == 0
	}
	return n
}

// anyTicket returns a ticket of either kind.
func anyTicket(r *rand.Rand) string { return pick(r, worldTickets...) + pick(r, "", "r") }

func anyMove(r *rand.Rand) move {
	if r.IntN(2) == 0 {
		return anySharedMove(r)
	}
	names := pick(r, []int{0, 1}, []int{0, 2}, []int{1, 2}, []int{0, 1, 2}, []int{0, 1, 2}, []int{r.IntN(3)})
	value, token := pick(r, "v", "v", "w"), uint64(0)
	if r.IntN(2) == 0 {
		token = pick(r, worldTokens...)
	}
	switch r.IntN(7) {
	case 0, 1:
		return acquire{names: names, value: value, ticket: pick(r, append([]string{""}, worldTickets...)...), strict: r.IntN(2) == 0, token: token, old: r.IntN(3) == 0}
	case 2:
		return look{names, value, pick(r, "extend", "heal", "valid")}
	}
	l := leave{names: names, value: value, token: token, process: pick(r, us, they, ""), quiet: r.IntN(8) == 0, old: r.IntN(3) == 0 && len(names) == 1}
	if !l.old {
		l.rest = anyRest(r)
	}
	return l.changed(r)
}

// changed returns l with tickets that enter and leave the queues at random. An old version knows no shared
// tickets.
func (l leave) changed(r *rand.Rand) leave {
	if r.IntN(2) == 0 {
		l.all = some(r, worldTickets)
	}
	if r.IntN(2) == 0 {
		for range l.names {
			enters := pick(r, "", anyTicket(r))
			if l.old && enters != "" {
				enters = enters[:49]
			}
			l.enters = append(l.enters, enters)
			l.leaves = append(l.leaves, some(r, worldTickets))
		}
		if len(l.names) == 1 {
			l.leaves[0] = nil
		}
	}
	for i := range l.all {
		if !l.old && r.IntN(2) == 0 {
			l.all[i] += "r"
		}
	}
	return l
}

// TestLockScriptsDoWhatTheReferenceSays plays commands of readers and writers, of one name and of several, of old versions and
// of this one, on nodes of both kinds.
func TestLockScriptsDoWhatTheReferenceSays(t *testing.T) {
	atRandom(t, testlength.InGate(10, 20, 40, 7000), anyMove, func(r *rand.Rand, _ *play) *world {
		return &world{anyName(r), anyName(r), anyName(r)}
	})
}

// atRandom plays moves from states at random, for so many seeds.
func atRandom(t *testing.T, seeds int, anyMove func(r *rand.Rand) move, anyWorld func(r *rand.Rand, p *play) *world) {
	t.Helper()
	onBoth(t, func(g ground) {
		for seed := range seeds {
			r := rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // it is to be repeatable
			p := g.play()
			for range 10 {
				w := anyWorld(r, p)
				p.set(w)
				for range 6 {
					p.do(w, anyMove(r), fmt.Sprintf("seed %d: %+v", seed, *w))
				}
			}
			p.end()
		}
	})
}

// TestMultiInSmallWorlds plays commands of two names in all states of a small set.
func TestMultiInSmallWorlds(t *testing.T) {
	ours, theirs := worldWaiter{worldTickets[0], 3 * worldAlive, false}, worldWaiter{worldTickets[1], 5 * worldAlive, false}
	late, dead := worldWaiter{worldTickets[2], 3 * worldAlive, false}, worldWaiter{worldTickets[1], worldDead, false}
	lines := [][]worldWaiter{nil, {theirs}, {ours, theirs}, {dead, late}, {dead}, {theirs, late}, {ours}}
	locks := []string{"", "v", "w", "a list"}
	lines, locks = lines[:testlength.Of(3, 4, 7)], locks[:testlength.Of(2, 3, 4)]
	var names []worldName
	for _, line := range lines {
		for _, lock := range locks {
			n := worldName{lock: lock, queue: line, lockOdd: lock == "a list"}
			if lock != "" {
				n.lockTTL = worldTTL / 2
			}
			if line != nil {
				n.queueTTL = 400_000
			}
			names = append(names, n)
		}
	}
	both, leaves := []int{0, 2}, []string{ours.ticket, late.ticket}
	moves := []move{
		leave{names: both, value: "v"},
		leave{names: both, value: "v", process: us, all: leaves},
		leave{names: both, value: "v", process: us, enters: []string{late.ticket, ""}, leaves: [][]string{nil, leaves}},
		leave{names: both, value: "v", rest: worldTTL / 5},
		leave{names: both, value: "v", rest: worldTTL},
		leave{names: both, value: "v", rest: worldTTL / 5, process: us, all: leaves},
		leave{names: both, value: "v", rest: worldTTL, process: us, enters: []string{late.ticket, ""}, leaves: [][]string{nil, leaves}},
		acquire{names: both, value: "v"},
		acquire{names: both, value: "v", ticket: late.ticket, strict: true, token: 7},
		look{both, "v", "heal"},
		look{both, "v", "extend"},
		look{both, "v", "valid"},
	}
	onBoth(t, func(g ground) {
		for i, first := range names {
			p := g.play()
			for j, last := range names {
				for _, a := range moves {
					w := &world{first, {}, last}
					p.set(w)
					p.do(w, a, fmt.Sprintf("%d and %d: %+v", i, j, *w))
				}
			}
			p.end()
		}
	})
}
