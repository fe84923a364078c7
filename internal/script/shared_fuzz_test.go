package script

import (
	"cmp"
	_ "embed" // the scripts of older versions
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file is the part about readers of the reference in multi_fuzz_test.go. On the same keys the reference
// also plays the scripts of versions that know no readers.

//go:embed testdata/before_readers/enter.lua
var oldEnter string

//go:embed testdata/before_readers/release.lua
var oldRelease string

//go:embed testdata/before_readers/queue.lua
var oldQueue string

// oldSource returns a script of a version that knows no readers.
func oldSource(name string) string {
	text := map[string]string{"enter": oldEnter, "release": oldRelease}[name]
	return strings.Replace(text, "-- include queue.lua\n", oldQueue, 1)
}

// maybeOld returns c, or with old the same command by the script of a version that knows no readers. The arguments of its
// release end with the ticket that enters, how long that counts as alive, and the tickets that leave.
func maybeOld(old bool, name string, c Command) Command {
	if !old {
		return c
	}
	args := append([]any{"eval", oldSource(name)}, c.Args[2:]...)
	at := 5 + len(keysIn(c)) // of the token
	if name == "release" && len(args) > at+2 {
		enters, leave := []any{none}, args[at+4:]
		if n := args[at+3].(int); n < len(leave) {
			enters, leave = leave[n:n+1], leave[:n]
		}
		args = slices.Concat(args[:at+2], enters, args[at+2:at+3], leave)
		if args[at] == none {
			args = slices.Delete(args, at, at+2)
		}
	}
	return Command{Args: args}
}

// A worldReader is one of the readers that hold a lock.
type worldReader struct {
	value string
	left  int64 // until its deadline; not positive if it is gone
}

// held reports whether the lock's key is there.
func (n *worldName) held() bool { return n.lock != "" || len(n.readers) > 0 }

// here returns the readers that are not gone.
func (n *worldName) here() []worldReader {
	return slices.DeleteFunc(slices.Clone(n.readers), func(r worldReader) bool { return r.left <= 0 })
}

// indexOf returns the index of a reader, -1 if it is not there.
func indexOf(readers []worldReader, value string) int {
	return slices.IndexFunc(readers, func(r worldReader) bool { return r.value == value })
}

// add adds a reader, or raises its deadline.
func (n *worldName) add(value string, left int64) {
	readers := n.here()
	if i := indexOf(readers, value); i >= 0 {
		if readers[i].left >= left {
			return
		}
		readers = slices.Delete(readers, i, i+1)
	}
	readers = append(readers, worldReader{value, left})
	slices.SortStableFunc(readers, func(a, b worldReader) int { return cmp.Compare(a.left, b.left) })
	n.lock, n.readers, n.lockTTL = "", readers, readers[len(readers)-1].left
}

// takeOut takes a reader out, and frees the lock if nobody else holds it.
func (n *worldName) takeOut(value string) {
	if len(n.readers) == 0 {
		return
	}
	readers := n.here()
	if i := indexOf(readers, value); i >= 0 {
		n.readers = slices.Delete(readers, i, i+1)
		if len(n.readers) > 0 {
			n.lockTTL = n.readers[len(n.readers)-1].left
		}
	}
	if len(n.here()) == 0 {
		n.readers, n.lockTTL = nil, 0
	}
}

// foundShared returns what a command that looks for a reader finds.
func (n *worldName) foundShared(value string) int64 {
	switch {
	case n.lock == value || indexOf(n.here(), value) >= 0:
		return Mine
	case n.lock != "":
		return Other
	}
	return Missing
}

// firstWriter returns the ticket of the first live writer in the queue, "" if there is none. If a reader's
// ticket is given, the writer must stand before it, and be of another process.
func (n *worldName) firstWriter(ticket string) string {
	for _, w := range n.queue {
		if ticket != "" && w.ticket >= ticket[:49] {
			break
		}
		if w.left > 0 && !w.shared && (ticket == "" || processOf(w.ticket) != processOf(ticket)) {
			return w.ticket
		}
	}
	return ""
}

// freesReaders reports whether a change of the queue lets readers enter beside those that hold the lock:
// writer, which was the first in the queue, has left it, and a reader leads it now. A value that begins as
// the text of readers does counts as one here, because the scripts do not read all of it.
func (n *worldName) freesReaders(writer string) bool {
	return (len(n.readers) > 0 || strings.HasPrefix(n.lock, "readers\n")) && writer != "" && n.queue[0].shared &&
		!slices.ContainsFunc(n.queue, func(w worldWaiter) bool { return w.ticket == writer })
}

// tells returns which processes are told that they may have the lock, whether the caller's process would be
// told, and whether another process is known. An old version tells only the first.
func (n *worldName) tells(process string, old bool) (told []string, first, others bool) {
	if old || !n.queue[0].shared {
		if n.at(0) != process {
			return []string{n.at(0)}, false, true
		}
		return nil, true, n.at(1) != "" && n.at(1) != process
	}
	for _, w := range n.queue {
		p := processOf(w.ticket)
		switch {
		case w.left <= 0:
		case !w.shared:
			return told, first, len(told) > 0 || p != process
		case p == process:
			first = true
		case !slices.Contains(told, p):
			told = append(told, p)
		}
	}
	return told, first, len(told) > 0
}

func (a acquire) expectShared(n *worldName) expected {
	if n.lockOdd || a.ticket != "" && n.queueOdd || a.token != 0 && n.fenceIsList {
		return expected{refused: true}
	}
	var e Entered
	if a.ticket != "" {
		n.with(a.ticket)
		n.living()
	}
	if a.token != 0 {
		e.Register, _ = strconv.ParseUint(n.fence, 10, 64)
	}
	mine := indexOf(n.here(), a.value) >= 0
	writer := n.firstWriter(a.ticket)
	switch {
	case n.lock != "":
		e.Wait = n.lockTTL
		return expected{reply: e}
	case !mine && writer != "":
		n.cut(writer)
		e.Wait = n.queue[slices.IndexFunc(n.queue, func(w worldWaiter) bool { return w.ticket == writer })].left
		return expected{reply: e}
	case !mine:
		n.add(a.value, worldTTL)
	}
	e.WasThere, e.Stored = mine, a.token > e.Register
	if e.Stored {
		n.raise(a.token)
		e.Register = a.token
	} else if a.token != 0 && n.fence != "" {
		n.fenceTTL = worldFence
	}
	return expected{reply: e}
}

// A sharedLook is an extend, a heal, a valid or a downgrade of a reader of one name.
type sharedLook struct {
	name    int
	value   string
	kind    string
	process string   // of a downgrade
	leave   []string // of a downgrade
	heals   bool     // of a downgrade
}

func (l sharedLook) expect(w *world) (e expected) {
	n := &w[l.name]
	if n.lockOdd {
		return expected{refused: true}
	}
	reply := n.foundShared(l.value)
	wrote := n.lock == l.value
	switch heals := l.kind == "heal" || l.heals; {
	case l.kind == "valid" || reply == Other || reply == Missing && !heals:
		return expected{reply: reply}
	case reply == Missing:
		n.add(l.value, worldTTL)
		return expected{reply: Created}
	default:
		n.add(l.value, max(worldTTL, n.lockTTLIf(wrote)))
	}
	if !wrote || l.kind != "downgrade" || n.queueOdd || len(n.queue) == 0 {
		return expected{reply: reply}
	}
	n.without(l.leave...)
	n.living()
	n.settle()
	if len(n.queue) > 0 && n.queue[0].shared {
		told, first, others := n.tells(l.process, false)
		for _, process := range told {
			e.told = append(e.told, process+" "+worldNames[l.name])
		}
		if first {
			reply += First
		}
		switch {
		case len(told) > 0:
			reply += Woke
		case others:
			reply += Others
		}
	}
	e.reply = reply
	return e
}

// lockTTLIf returns the TTL of the key if it is a writer's, and 0 otherwise.
func (n *worldName) lockTTLIf(writers bool) int64 {
	if writers {
		return n.lockTTL
	}
	return 0
}

func (l sharedLook) command() Command {
	lock := worldLock([]int{l.name}, l.value)
	down := Downgrade{Process: ProcessOf(l.process), Leave: ticketsOf(l.leave)}
	return map[string]Command{
		"extend": ExtendShared(lock, worldTTL, false), "heal": ExtendShared(lock, worldTTL, true), "valid": ValidShared(lock), "downgrade": down.Extend(lock, worldTTL, l.heals),
	}[l.kind]
}

func (sharedLook) parse(reply any) (any, error) { return reply, nil }

// record returns the record of a waiter, if the node's clock was at start.
func (w worldWaiter) record(start int64) string {
	kind := " "
	if w.shared {
		kind = "r"
	}
	return w.ticket + kind + fmt.Sprintf("%013d\n", start+w.left)
}

// readersText returns what the key of readers holds.
func (p *play) readersText(readers []worldReader) string {
	if len(readers) == 0 {
		return ""
	}
	text := "readers\n"
	for _, r := range readers {
		text += fmt.Sprintf("%s %013d\n", r.value, p.start+r.left)
	}
	return text
}

// rounding is by how many milliseconds a deadline may seem too early if it was computed from a TTL: a node
// counts TTLs by another clock than the one that tells the time, and may be stopped between its looks at the two.
const rounding = 3000

// readersDiffer compares a readers' key, which is in the order of the deadlines.
func (p *play) readersDiffer(got []any, n worldName) string {
	lines := strings.Split(got[0].(string), "\n")
	wrong := fmt.Sprintf("readers %q for %d, want %v for %d", got[0], got[1], n.readers, n.lockTTL)
	if len(lines) != len(n.readers)+2 || lines[0] != "readers" || lines[len(lines)-1] != "" || !near(got[1].(int64), n.lockTTL) {
		return wrong
	}
	last := ""
	left := slices.Clone(n.readers)
	for _, line := range lines[1 : len(lines)-1] {
		at := strings.LastIndexByte(line, ' ')
		i := indexOf(left, line[:max(at, 0)])
		if i < 0 || len(line)-at != 14 || line[at:] < last {
			return wrong
		}
		ms, err := strconv.ParseInt(line[at+1:], 10, 64)
		if err != nil || ms-p.start > left[i].left+tolerance || ms-p.start < left[i].left-rounding {
			return wrong
		}
		last, left = line[at:], slices.Delete(left, i, i+1)
	}
	return ""
}

// anyReaders returns readers at random, and the TTL of their key.
func anyReaders(r *rand.Rand) (readers []worldReader, ttl int64) {
	values := []string{"v", "w", "x", "v 0000000000001", "spaced value "}
	for _, left := range []int64{2 * worldDead, worldDead, worldTTL / 4, worldTTL / 2, 2 * worldTTL} {
		if r.IntN(3) == 0 {
			i := r.IntN(len(values))
			readers = append(readers, worldReader{values[i], left})
			values = slices.Delete(values, i, i+1)
			ttl = max(left, worldTTL/8) // a key with only dead readers has a TTL that the scripts did not set
		}
	}
	return readers, ttl
}

func anySharedMove(r *rand.Rand) move {
	value, token, name := pick(r, "v", "v", "w", "v 0000000000001"), uint64(0), r.IntN(3)
	if r.IntN(2) == 0 {
		token = pick(r, worldTokens...)
	}
	switch r.IntN(8) {
	case 0, 1, 2:
		ticket := pick(r, "", pick(r, worldTickets...)+"r")
		return acquire{names: []int{name}, value: value, ticket: ticket, token: token, shared: true}
	case 3:
		return sharedLook{name: name, value: value, kind: pick(r, "extend", "heal", "valid")}
	case 4:
		return sharedLook{name, value, "downgrade", pick(r, us, they, ""), some(r, worldTickets), r.IntN(2) == 0}
	}
	l := leave{names: []int{name}, value: value, token: token, process: pick(r, us, they, ""), quiet: r.IntN(8) == 0, shared: true}
	return l.changed(r)
}

// TestSharedInSmallWorlds plays commands of one name in all states of a set: who holds the key, and who waits
// in which order.
func TestSharedInSmallWorlds(t *testing.T) {
	waiters := []worldWaiter{} // at each place of the queue: nobody, or one of these
	for _, left := range []int64{3 * worldAlive, worldDead} {
		for _, shared := range []bool{false, true} {
			waiters = append(waiters, worldWaiter{left: left, shared: shared})
		}
	}
	places := testlength.Of(2, 2, 4)
	queues := [][]worldWaiter{nil}
	for place := range places {
		for _, q := range slices.Clone(queues) {
			for _, w := range waiters {
				w.ticket = worldTickets[place]
				queues = append(queues, append(slices.Clone(q), w))
			}
		}
	}
	keys := []worldName{
		{},
		{lock: "v", lockTTL: worldTTL / 2},
		{lock: "v", lockTTL: 2 * worldTTL},
		{lock: "w", lockTTL: 2 * worldTTL},
		{lock: "readers\nv 9999999999999", lockTTL: worldTTL / 2}, // a writer's value: it is no text of readers
		{readers: []worldReader{{"v", worldTTL / 2}}, lockTTL: worldTTL / 2},
		{readers: []worldReader{{"w", worldTTL / 2}}, lockTTL: worldTTL / 2},
		{readers: []worldReader{{"x", worldDead}, {"v", worldTTL / 4}, {"w", 2 * worldTTL}}, lockTTL: 2 * worldTTL},
		{readers: []worldReader{{"v", worldDead}}, lockTTL: worldTTL / 2},
	}
	name, ours, theirs := []int{0}, worldTickets[2], worldTickets[1]
	moves := []move{
		acquire{names: name, value: "v", shared: true},
		acquire{names: name, value: "v", shared: true, ticket: ours + "r"},
		acquire{names: name, value: "v", shared: true, ticket: theirs + "r", token: 7},
		acquire{names: name, value: "v", ticket: ours, strict: true},
		acquire{names: name, value: "v", ticket: ours, strict: true, old: true},
		look{name, "v", "extend"},
		look{name, "v", "heal"},
		sharedLook{value: "v", kind: "valid"},
		sharedLook{value: "v", kind: "extend"},
		sharedLook{value: "v", kind: "heal"},
		sharedLook{value: "v", kind: "downgrade", process: us, leave: []string{worldTickets[0]}},
		leave{names: name, value: "v", shared: true},
		leave{names: name, value: "v", shared: true, process: they, all: []string{theirs + "r"}},
		leave{names: name, value: "v", shared: true, process: us, all: []string{worldTickets[0]}},
		leave{names: name, value: "v"},
		leave{names: name, value: "v", rest: worldTTL},
		leave{names: name, value: "v", process: us, all: []string{worldTickets[0]}},
		leave{names: name, value: "v", process: us, enters: []string{ours + "r"}, leaves: [][]string{nil}, all: []string{worldTickets[0]}},
		leave{names: name, value: "v", process: us, all: []string{worldTickets[0]}, old: true},
		leave{names: []int{0, 1}, value: "v", process: us, all: []string{worldTickets[0]}},
	}
	onBoth(t, func(g ground) {
		for i, q := range queues {
			p := g.play()
			for _, key := range keys {
				for _, a := range moves {
					key.queue = q
					if q != nil {
						key.queueTTL = 400_000
					}
					w := &world{key}
					p.set(w)
					p.do(w, a, fmt.Sprintf("queue %d: %+v", i, *w))
				}
			}
			p.end()
		}
	})
}
