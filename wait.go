package redsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/jitter"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file is waiting for a lock that is taken.
//
// The first in line (line.go) puts its ticket in the queue of each node (enter.lua),
// and tries again when it has reason to: it is woken by the nodes (wake.go), this
// process has released the lock, what stood in its way has run out, or its retry delay
// has elapsed.

const (
	// A waiter counts as alive for aliveFor after an attempt, and the first in line
	// makes one at least every aliveFor / 2. A process that dies blocks the queue
	// for no longer than that.
	aliveFor = time.Second

	// wakeGrace is how long the first in line waits for a quorum of wake-ups after
	// the first one, and up to as much longer at random: some of the others may be
	// lost.
	wakeGrace = 2 * time.Millisecond

	// runOutJitter spreads those who wait for the same TTL to run out.
	runOutJitter = 10 * time.Millisecond

	// minTry is how long a try that asks no node, or hears none, takes at least.
	minTry = 10 * time.Millisecond
)

// A waiter is one call of Lock that waits.
type waiter struct {
	m      *Mutex
	timing timing
	start  clock.Instant
	look   chan struct{} // has room for one token: something has changed
	err    error         // of the last attempt
	pace   pace          // its retry delays

	queueless bool // a node does not let us queue

	// Under lines.mu, and pace.mean.
	ticket   any       // a string; nil until it is needed, which it is not where the lock is handed over
	given    *hold     // handed over
	trying   bool      // an attempt is under way
	attempts int       // made so far
	unheard  bool      // the last attempt heard fewer nodes than a quorum
	gone     bool      // it has left its line without the lock
	polls    bool      // the retry delay of one behind is over
	ready    bool      // to be tried at once: w is new, or has become the first; a release; a first attempt that must be repeated
	behind   bool      // right behind a release of this process, and nobody else is known to wait
	woken    []bool    // by node: it has woken us since the last attempt began
	freed    []bool    // by node: the last attempt was granted, which is taken back
	hurry    time.Time // when a wake-up is reason enough, although no quorum came; zero: none came
	runsOut  time.Time // what refused us then runs out on a quorum; zero: not known
	refresh  time.Time // when the ticket must be shown again
	last     *hold     // through whose release the ticket leaves the queues; nil if it is in none
}

func (m *Mutex) newWaiter(t timing, start clock.Instant) *waiter {
	n := len(m.core.nodes)
	return &waiter{
		m: m, timing: t, start: start,
		look:  make(chan struct{}, 1),
		woken: make([]bool, n), freed: make([]bool, n),
	}
}

// maxTicketTime is the latest time that has room in a ticket, in microseconds: 2286.
const maxTicketTime = 1e16 - 1

// placeLocked returns w's ticket, its place in the queues: a text of fixed width, by
// which nodes sort it. queue.lua finds the process in it.
func (w *waiter) placeLocked() any {
	if w.ticket == nil {
		c := w.m.core
		w.ticket = fmt.Sprintf("%04d:%016d:%s:%010d",
			maxPriority-w.m.set.class, min(max(w.start.Wall.UnixMicro(), 0), maxTicketTime), c.process, c.tickets.Add(1))
	}
	return w.ticket
}

func (w *waiter) tryLocked() {
	w.ready = true
	w.lookAgain()
}

func (w *waiter) wakeLocked(i int) {
	w.woken[i] = true
	if w.hurry.IsZero() {
		w.hurry = time.Now().Add(wakeGrace + jitter.N(wakeGrace))
	}
	w.lookAgain()
}

// enteredLocked notes that the release of h puts the ticket in the queues.
func (w *waiter) enteredLocked(h *hold) {
	w.last = cmp.Or(w.last, h)
	w.refresh = time.Now().Add(aliveFor / 2)
	w.lookAgain()
}

func (w *waiter) lookAgain() {
	select {
	case w.look <- struct{}{}:
	default:
	}
}

// An event is what a waiter goes on for.
type event int

const (
	nothing  event = iota
	handed         // the lock has been handed over
	turn           // there is reason to try
	elapsed        // the retry delay is over
	prompted       // that of one behind, whose delays are shorter
	behind         // nothing, as long as others stand before
	deaf           // there is reason to try, but nobody listens
	ended          // the context is done, or the Redsync closed
)

// wait is Lock from the moment when w has joined its line. It makes attempts until
// one succeeds, or the retry delays of its limit have elapsed.
func (w *waiter) wait(ctx context.Context) (h *hold, err error) {
	returned := false
	defer func() { // also where a function of the user's has panicked
		w.m.core.lines.leave(w, h)
		if h == nil && w.given == nil {
			w.withdraw()
		}
		if w.given == nil {
			return
		}
		h, err = w.given, nil // it may have come while the waiting ended
		if !returned {
			h.abandon(ErrFailed)
		}
	}()
	h, err = w.waitInLine(ctx)
	returned = true
	return h, err
}

func (w *waiter) waitInLine(ctx context.Context) (*hold, error) {
	var err error
	for err == nil {
		what := w.next(ctx)
		switch what {
		case handed:
			return nil, nil
		case ended:
			return nil, w.m.withInterruption(ctx, w.why())
		case elapsed:
			w.pace.try++
		}
		last := what == elapsed && w.pace.try == w.pace.limit
		least := minTry
		if e := w.begin(what == elapsed || what == prompted, last); e != nil {
			h, err := w.try(ctx, w.pace.try, e)
			if err == nil || !mends(err) {
				return h, err
			}
			var taken *ErrTaken
			if errors.As(err, &taken) {
				least = 0 // the nodes answer: that takes a while
			}
		} else if what == elapsed {
			w.m.core.lines.prompt(w)
		}
		if last {
			return nil, w.m.withInterruption(ctx, w.why())
		}
		if what == elapsed {
			err = w.delay(least)
		}
	}
	return nil, err
}

// delay begins the next retry delay, which is least at the least.
func (w *waiter) delay(least time.Duration) error {
	if err := w.pace.begin(least); err != nil {
		return err
	}
	if w.m.set.meanDelay == ofUser {
		w.m.core.lines.setPace(w, w.pace.last)
	}
	return nil
}

// next waits until there is something to do.
func (w *waiter) next(ctx context.Context) event {
	var timer *time.Timer
	for {
		what, at := w.due()
		switch {
		case what == handed:
			return handed
		case ctx.Err() != nil || w.m.core.isClosed.Load():
			return ended
		case what == behind:
			if at = w.pace.sleep(); !at.IsZero() && !time.Now().Before(at) {
				w.pace.wake(time.Now())
				return elapsed
			}
		case w.pace.asleep:
			w.pace.wake(time.Now())
			continue
		case what == deaf:
			w.m.core.ear.listen(w.m.core, w.m.set.observers)
			continue
		case what != nothing:
			return what
		}
		var fires <-chan time.Time
		if timer != nil {
			timer.Stop()
		}
		if !at.IsZero() {
			if timer == nil {
				timer = time.NewTimer(0)
				defer timer.Stop()
			}
			timer.Reset(time.Until(at))
			fires = timer.C
		}
		select {
		case <-w.look:
		case <-fires:
		case <-ctx.Done():
			return ended
		case <-w.m.core.closing:
			return ended
		}
	}
}

// due returns what there is to do, or when there will be. Only the first in line, and who
// paces it, has anything to do at a time.
func (w *waiter) due() (event, time.Time) {
	ls, tick := &w.m.core.lines, w.pace.tick
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	if w.given != nil {
		return handed, tick
	}
	l := ls.byName[w.m.name]
	first := l.first() == w
	switch {
	case !first && !l.paces(w):
		return behind, tick
	case !now.Before(tick):
		return elapsed, tick
	case !first:
		return nothing, tick
	case w.polls:
		return prompted, tick
	}
	if left := l.held(); left > 0 {
		return nothing, earlier(tick, now.Add(left))
	}
	at := earlier(earlier(w.runsOut, w.refresh), w.hurry)
	if !w.ready && !w.wokenByQuorum() && (at.IsZero() || at.After(now)) {
		return nothing, earlier(tick, at)
	}
	if w.needsEar() {
		from, listens := w.m.core.ear.hears(w.maxDeaf())
		switch {
		case !listens:
			return deaf, now
		case !from.IsZero():
			return nothing, earlier(tick, from)
		}
	}
	return turn, now
}

// needsEar reports whether w does not try before it can hear the nodes: it will be in the
// queues. Its very first attempt may succeed, and is repeated if it fails.
func (w *waiter) needsEar() bool {
	return w.err != nil && (w.m.set.fair || !w.queueless && !w.behind)
}

// maxDeaf is for how long w waits to be able to hear.
func (w *waiter) maxDeaf() time.Duration { return min(w.timing.nodeTimeout, maxDeaf) }

// wokenByQuorum reports whether the lock is free on a quorum: on the nodes that have
// said so, one at least, and on those that w has freed itself.
func (w *waiter) wokenByQuorum() bool {
	free := 0
	for i := range w.woken {
		if w.woken[i] || w.freed[i] {
			free++
		}
	}
	return !w.hurry.IsZero() && free >= quorumOf(len(w.woken))
}

// earlier returns the earlier of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// why returns why the lock has not been acquired so far: what w found out, or who
// stands before it.
func (w *waiter) why() error {
	ls := &w.m.core.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.err != nil || w.given != nil {
		return w.err
	}
	return ls.byName[w.m.name].why
}

// mends reports whether it helps to wait after err.
func mends(err error) bool {
	var hopeless *hopelessError
	return !errors.Is(err, ErrDuplicateNode) && !errors.As(err, &hopeless)
}

// A hopelessError ends Lock without a further attempt.
type hopelessError struct{ error }

func (e *hopelessError) Unwrap() error { return e.error }

// begin notes that an attempt begins, and returns it; nil if w is not the first in
// line, has been handed the lock, or this process holds it. A poll, for which there is
// no other reason than the time, is made all the same, lest the lock was released
// elsewhere, and takes it where it is free, except in fair mode; any other attempt
// respects the order of the queues. After the last one w stands in no queue.
func (w *waiter) begin(poll, last bool) *entry {
	ls, set := &w.m.core.lines, w.m.set
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.byName[w.m.name]; w.given != nil || l.first() != w || !poll && l.held() > 0 {
		return nil
	}
	plain := w.behind && !set.fair // nobody is known to be in the queues
	w.trying, w.ready, w.behind, w.polls = true, false, false, false
	w.attempts++
	clear(w.woken)
	clear(w.freed)
	w.hurry, w.runsOut, w.refresh = time.Time{}, time.Time{}, time.Time{}
	return &entry{
		waiter: w, ticket: w.placeLocked(), number: w.attempts, begun: time.Now(),
		strict: set.fair || !poll, plain: plain, leaves: last,
	}
}

// try makes the attempt.
//
// A waiter in the queues must hear the nodes. Where it cannot yet the attempt is repeated
// once it can, if it fails: see needsEar for those that do not wait for that.
func (w *waiter) try(ctx context.Context, try int, e *entry) (*hold, error) {
	c, set := w.m.core, w.m.set
	switch {
	case w.queueless && !set.fair:
		e.plain, e.conclusive = true, true
	case e.plain, e.leaves:
	case w.err == nil:
		e.conclusive = c.ear.stands()
	default:
		c.ear.listen(c, set.observers)
		from, _ := c.ear.hears(w.maxDeaf())
		e.conclusive = from.IsZero()
	}
	h, err := w.m.attempt(ctx, w.timing, clock.Now(), try, e)
	w.end(e, err)
	return h, err
}

// end notes what an attempt has come to, and makes sure that w tries again.
func (w *waiter) end(e *entry, err error) {
	ls := &w.m.core.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	w.err = err
	w.queueless = w.queueless || e.denied.Load()
	if !e.leaves { // else it leaves its line at once, and is the first until then
		ls.triedLocked(w, err == nil, !e.unheard, time.Since(e.begun))
	}
	switch {
	case err == nil && (!e.plain || w.last != nil):
		e.hold.leaveQueues(w.ticket) // when it is released
	case err == nil, e.leaves, !mends(err):
	default:
		ls.byName[w.m.name].why = err
		w.ready = w.ready || !e.conclusive
		w.runsOut = e.runsOut(time.Now())
		w.refresh = time.Now().Add(aliveFor / 2)
	}
}

// rollBack releases what the attempt has left, which came to res. The waiter keeps
// its place in the queues unless it waits no longer (over), or cannot reach a quorum:
// then it would stand in everybody's way. It enters them again with another ticket, which
// no release that is late takes away.
func (e *entry) rollBack(res result, over bool) {
	w, h := e.waiter, e.hold
	ls := &w.m.core.lines
	e.unheard = res.tally.granted+res.tally.refused < quorumOf(res.tally.n)
	ls.mu.Lock()
	switch {
	case e.plain:
	case e.leaves || over || e.unheard:
		h.leaveQueues(w.ticket)
		w.ticket, w.last = nil, nil
	default:
		w.last = h
	}
	ls.mu.Unlock()
	startRelease(h, releasing{by: w})
}

// withdraw takes w, which has left its line, out of the queues of the nodes, if it may
// be in one.
func (w *waiter) withdraw() {
	if w.last != nil {
		w.last.leaveQueues(w.ticket)
		startRelease(w.last, releasing{})
	}
}

// An entry is the acquire of a waiter: it enters the queues of the nodes as well.
type entry struct {
	acquire
	waiter     *waiter
	ticket     any
	number     int // of the attempt
	begun      time.Time
	unheard    bool // it heard fewer nodes than a quorum
	strict     bool // only if this process is the first in the queue
	plain      bool // enter no queue
	conclusive bool // if it fails there is no reason to repeat it at once
	leaves     bool // the waiter does not wait any longer

	denied atomic.Bool // a node does not let us queue

	mu   sync.Mutex
	free []time.Time // when the lock may be free on a node that has answered
}

func (e *entry) brief() brief {
	if e.plain {
		return e.acquire.brief()
	}
	e.mu.Lock()
	e.free = e.free[:0] // a new round asks all nodes again
	e.mu.Unlock()
	b := e.from(script.Place{Ticket: e.ticket, Alive: aliveFor.Milliseconds(), Strict: e.strict})
	b.purpose = queueing
	return b
}

func (e *entry) judge(i int, reply pool.Reply, v vote) vote {
	switch {
	case e.plain:
	case pool.IsDenied(reply.Err), pool.IsCrossSlot(reply.Err):
		e.denied.Store(true)
		e.hold.deny(i, reply.Err)
	case v.err == nil:
		e.learn(i, v.answer)
	}
	return e.acquire.judge(i, reply, v)
}

// learn notes when the lock may be free on node i.
func (e *entry) learn(i int, a claim.Answer) {
	if a.Found == claim.Mine {
		e.waiter.freedBy(i, e.number)
	}
	if a.Wait != claim.Never {
		e.freeIn(a.Wait)
	}
}

func (e *entry) freeIn(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.free = append(e.free, time.Now().Add(d))
}

// runsOut returns when the lock may be free on a quorum of nodes although nobody
// releases it, zero if that is not known or was so before now.
func (e *entry) runsOut(now time.Time) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	slices.SortFunc(e.free, time.Time.Compare)
	q := quorumOf(len(e.waiter.m.core.nodes))
	if len(e.free) < q || !e.free[q-1].After(now) {
		return time.Time{}
	}
	return e.free[q-1].Add(time.Millisecond + jitter.N(runOutJitter))
}

// freedBy notes that node i has granted the attempt of that number, which has failed
// or will succeed. The release goes behind: the lock is free there then.
func (w *waiter) freedBy(i, number int) {
	ls := &w.m.core.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.attempts == number {
		w.freed[i] = true
		if !w.hurry.IsZero() {
			w.lookAgain()
		}
	}
}
