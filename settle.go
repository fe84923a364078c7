package redsync

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/alarm"
	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

const (
	// Backoff of a release that did not settle.
	minReleaseDelay = 50 * time.Millisecond
	maxReleaseDelay = time.Second

	// maxRepeats bounds the releases that wait to be repeated, on all nodes
	// together. One that is dropped leaves a key on one node for at most its
	// TTL.
	maxRepeats = 1 << 16
)

// A release takes a hold's value off all nodes, also those that never answered,
// and repeats until each is settled: until nothing can set the value there any
// more, or the keys have run out. It depends on no caller's context.
//
// It sends, repeats and takes replies by itself: as the operation of its round it only
// notes when that was won. It sets no value, so that it records nothing.
type release struct {
	hold     *hold
	round    round
	wonAt    clock.Instant // when a quorum had confirmed; set before who waits is told
	awaited  bool          // a caller waits for the round
	turnover script.Turnover
	process  any          // a string: that of the core if somebody in it waits, or did; else ""
	by       *waiter      // whose attempt it undoes, if it does
	rivals   atomic.Bool  // other processes wait
	open     atomic.Int32 // nodes that have not settled it

	// By node, each used by who sends to it and then by who takes its reply.
	progress []progress
	spare    [usualNodes]progress
}

// progress is the state of a release on one node.
type progress struct {
	form
	orderly bool  // when it was last sent, all that set the value had been answered
	paced   bool  // it has room in the node's drain, or waits there
	lost    bool  // an earlier sending went unanswered: the node may have executed it
	unvoted bool  // the node's vote waits for the repetition
	repeats int32 // how often it has been put off, for the delay
}

// A form is how a node must be sent the release.
type form struct {
	inFull  bool // it does not have the script
	quietly bool // it does not let its user touch queues
	again   bool // it has been sent before
}

// releasing is how to release a hold.
type releasing struct {
	awaited bool    // the caller waits for its round
	waitAll bool    // see round; only if awaited
	enters  any     // the ticket that enters the queues with it; nil for none
	by      *waiter // whose attempt it undoes; nil if it is something else
}

// startRelease sends the release of h to all nodes at once, behind everything
// that was sent for h. The hold must be over, or have never begun.
func startRelease(h *hold, how releasing) *release {
	rel := &release{hold: h, by: how.by, process: "", awaited: how.awaited}
	turnover := script.Turnover{Enters: how.enters, Alive: aliveFor.Milliseconds(), Leave: h.leaving()}
	if slices.Contains(turnover.Leave, turnover.Enters) {
		turnover.Enters = nil // it has given up meanwhile
	}
	rel.turnover = turnover
	if h.core.lines.count.Load() > 0 || len(turnover.Leave) > 0 {
		rel.process = h.core.process
	}
	rel.progress = room(rel.spare[:], len(h.nodes))
	then := decider(nobody{})
	if how.awaited {
		then = h.core.sleepers.get(&rel.round)
	}
	rel.round.prepare(h.core, how.waitAll, then)
	rel.round.op, rel.round.brief = rel, rel.brief()
	// What has been answered by now, if an earlier release is repeated.
	h.renewing()
	rel.open.Store(int32(len(h.nodes))) //nolint:gosec // there are few
	h.core.unsettled.add(1)
	rel.round.brief.call.Command.WithRESP(func(resp []byte) {
		for i, n := range h.core.nodes {
			if n.denies() && len(turnover.Leave) == 0 {
				rel.send(i, form{quietly: true}, nil)
				continue
			}
			rel.send(i, form{}, resp)
		}
	})
	return rel
}

func (rel *release) brief() brief {
	return rel.hold.brief("unlock", rel.hold.claim.Release(rel.process, rel.turnover, rel.hold.tokens.final()))
}

func (rel *release) judge(_ int, _ pool.Reply, v vote) vote { return v }

func (rel *release) onWon() { rel.wonAt = clock.Now() }

// send sends the release to node i, in a form of which resp is the encoding, if there is
// one. While the core is closing the release may have to wait for others.
func (rel *release) send(i int, as form, resp []byte) {
	s, n := &rel.progress[i], rel.hold.core.nodes[i]
	s.form = as
	if rel.hold.core.isClosed.Load() && !s.paced {
		s.paced = true // first: it may be sent by another goroutine from here on
		if !n.drain.enter(rel) {
			return
		}
	}
	paced := s.paced
	if !rel.transmit(i, resp) && paced {
		n.drain.leave(i)
	}
}

// transmit sends the release to node i now, and reports whether a reply will come. Where
// h may have reached the node the request is Reserved: the command that set the value has
// paid for its room.
func (rel *release) transmit(i int, resp []byte) bool {
	s, n, f := &rel.progress[i], rel.hold.core.nodes[i], rel.hold.footprint(i)
	s.orderly = f.settled()
	err := n.Send(pool.Request{
		Args: rel.args(s.form), RESP: resp, Reserved: f.reached(), Within: rel.hold.timing.nodeTimeout, To: rel, Tag: i,
	})
	if err == nil {
		return true
	}
	if s.paced && n.drain.putBack(rel, err) {
		return true
	}
	s.paced, s.unvoted = false, false
	rel.round.refuse(i, err)
	if f.reached() && !errors.Is(err, pool.ErrClosed) {
		rel.repeatLater(i, err)
		return false
	}
	rel.nodeSettled()
	return false
}

// args returns the command in a form.
func (rel *release) args(as form) []any {
	call := rel.round.brief.call
	switch {
	case as.quietly:
		call = rel.hold.claim.ReleaseQuietly(rel.hold.tokens.final())
	case as.again: // who entered then may have left
		call = rel.hold.claim.Release(rel.process, script.Turnover{Leave: rel.hold.leaving()}, rel.hold.tokens.final())
	}
	if as.inFull {
		return call.Command.InFull()
	}
	return call.Command.Args
}

// Receive takes a node's reply.
func (rel *release) Receive(i int, reply pool.Reply) {
	rel.hold.core.meet(i, reply.Server)
	sent := rel.progress[i]
	if sent.paced {
		defer rel.hold.core.nodes[i].drain.leave(i)
		rel.progress[i].paced = false
	}
	switch {
	case pool.IsNoScript(reply.Err) && !sent.inFull:
		sent.inFull = true
		rel.send(i, sent.form, nil)
		return
	case !sent.quietly && (pool.IsDenied(reply.Err) || pool.IsCrossSlot(reply.Err)):
		rel.hold.deny(i, reply.Err)
		sent.quietly = true
		rel.send(i, sent.form, nil)
		return
	}
	v := read(rel.round.brief.call, reply)
	rel.notice(i, v.answer)
	if v.choice == failed && reply.Err == nil {
		reply.Err = v.err // an odd answer settles nothing
	}
	settled := rel.settles(i, sent, reply, v)
	rel.heed(i, v, reply)
	if settled {
		rel.giveUp(i)
		return
	}
	rel.repeatLater(i, reply.Err)
}

// heed counts node i's vote, if it can be told by now.
//
// A connection that broke leaves open whether the node has executed the release. The
// caller waits for what the repetition finds then, until the node deadline. That our value
// is there proves that it was held until now. That it is missing, or another's is there,
// proves nothing: the first sending may have deleted ours, and somebody else may have
// acquired the lock since.
func (rel *release) heed(i int, v vote, reply pool.Reply) {
	s := &rel.progress[i]
	switch {
	case v.choice == failed && reply.Fate == pool.Unknown && rel.awaited:
		s.lost, s.unvoted = true, true
		rel.round.waitFor(i, v.err)
		rel.round.watch(i, v)
		return
	case v.choice == failed && reply.Fate == pool.Unknown:
		s.lost = true
	case v.choice == refused && s.lost:
		v = failure(fmt.Errorf("the reply to the release was lost, and %s", afterwards(v)))
	}
	s.unvoted = false
	v = rel.round.cast(i, v, reply.Server)
	if reply.Err == nil && reply.Fate == pool.Answered {
		v.choice = refused // whatever it counts as, the node is there
	}
	rel.round.watch(i, v)
}

// afterwards says what a repetition has found, where that proves nothing.
func afterwards(v vote) string {
	if v.taken() {
		return "another value is there now"
	}
	return "the key is gone now"
}

// giveUp notes that nothing more is sent to node i.
func (rel *release) giveUp(i int) {
	s := &rel.progress[i]
	if s.unvoted {
		s.unvoted = false
		_ = rel.round.cast(i, failure(rel.round.waitsFor(i)), nil)
	}
	rel.nodeSettled()
}

// notice takes from node i's answer who waits for the lock.
func (rel *release) notice(i int, a claim.Answer) {
	if a.Rivals {
		rel.rivals.Store(true)
	}
	if a.First {
		rel.hold.core.lines.wake(rel.hold.claim.Name(), i, rel.by)
	}
}

// settles reports whether reply, which judge has read as v, shows that node i is done with
// the value. Every command that may set the value must have been executed before the node
// looked. On an ordered stream (Conn is not 0) it is enough that they are answered by now;
// on any other pool they must have been when the release was sent (orderly). Where only one
// command may have set the value, the node has executed it if the value was there: a node
// executes each at most once. That the value is missing proves nothing of the kind.
func (rel *release) settles(i int, sent progress, reply pool.Reply, v vote) bool {
	looked := reply.Fate == pool.Answered && reply.Err == nil
	if looked && sent.orderly {
		return true
	}
	f := rel.hold.footprint(i)
	return !f.reached() || looked && (f.settled() && reply.Conn != 0 || v.choice == granted && f.sent() == 1)
}

// nodeSettled notes that one more node has settled the release, or is given up.
func (rel *release) nodeSettled() {
	if rel.hold.core.isClosed.Load() {
		rel.hold.core.progress.Store(int64(clock.Now().Mono))
	}
	if rel.open.Add(-1) == 0 {
		rel.hold.core.unsettled.add(-1)
	}
}

// repeatLater schedules the next sending to node i, which did not settle this one.
func (rel *release) repeatLater(i int, err error) {
	rel.hold.keepTime() // a repetition asks whether the keys have run out
	s := &rel.progress[i]
	delay := min(minReleaseDelay<<min(s.repeats, 8), maxReleaseDelay) // 8 is beyond the maximum
	if s.unvoted && s.repeats == 0 {                                  // the caller of Unlock waits for what it finds
		delay = min(delay, rel.hold.timing.nodeTimeout/4)
	}
	s.repeats++
	again := &alarm.Alarm{What: repetition{rel, i}}
	dropped := !rel.hold.core.repeats.SetUnlessFull(again, time.Now().Add(delay), maxRepeats)
	tellLater(rel.hold.core, rel.hold.set.observers, UnsettledObserver.ObserveUnsettled, Unsettled{
		Name: rel.hold.claim.Name(), Node: i, Pending: rel.hold.core.unsettled.n(), Dropped: dropped, Err: err,
	})
	if dropped {
		rel.giveUp(i)
	}
}

// A repetition is a release that is due again on one node.
type repetition struct {
	release *release
	node    int
}

func (r repetition) Fire(bool) { r.release.repeat(r.node) }

func (rel *release) repeat(i int) {
	if rel.hold.cleared(clock.Now()) {
		rel.giveUp(i)
		return
	}
	as := rel.progress[i].form
	as.again = true
	rel.send(i, as, nil)
}

// A gauge counts what is under way, and lets Close wait for none.
type gauge struct {
	count   atomic.Int64
	waiting atomic.Bool // somebody waits, on none
	none    chan struct{}
	once    sync.Once
}

func (g *gauge) add(n int) {
	if g.count.Add(int64(n)) == 0 && g.waiting.Load() {
		g.once.Do(func() { close(g.none) })
	}
}

func (g *gauge) n() int { return int(g.count.Load()) }

// zero returns a channel that is closed once nothing is under way. It is called
// once in the life of g.
func (g *gauge) zero() <-chan struct{} {
	g.none = make(chan struct{})
	g.waiting.Store(true)
	g.add(0)
	return g.none
}
