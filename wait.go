package redsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file is waiting for a lock that is taken.
//
// Those who wait for one name in one process stand in a line. Only the first one
// talks to the nodes, however many there are. It puts its ticket in the queue of
// each node (enter.lua) and tries again when it has reason to: it is woken by the
// nodes (wake.go), this process has released the lock, what stood in its way has run
// out, or its retry delay has elapsed. A lock that is released may also pass to the
// first in line without the nodes knowing: see handOver.

const (
	// A waiter counts as alive for aliveFor after an attempt, and the first in line
	// makes one at least every aliveFor / 2. A process that dies blocks the queue
	// for no longer than that.
	aliveFor = time.Second

	// wakeGrace is how long the first in line waits for a quorum of wake-ups after
	// the first one: some of the others may be lost.
	wakeGrace = 3 * time.Millisecond

	// runOutJitter spreads those who wait for the same TTL to run out.
	runOutJitter = 10 * time.Millisecond

	// A lock is handed over within the process for at most maxChain since it was
	// acquired, and a tenth of its expiry: for so long other processes are not let
	// in. It pays for the acquire many times.
	maxChain = 20 * time.Millisecond
)

// lines are those who wait in this process, by the name of the lock.
type lines struct {
	count atomic.Int64 // of lines and of gaveWay: a look without the lock

	mu      sync.Mutex
	byName  map[string]*line
	gaveWay map[string]bool // the last release has let in another process
}

// maxGaveWay bounds gaveWay. One that is forgotten lets somebody barge.
const maxGaveWay = 1024

// A line is who waits for one name in this process, by class and then in the order
// of arrival.
type line struct {
	waiters []*waiter
	holder  *hold // who got the lock out of this line and has not released it, if known
	why     error // of the last attempt
	rivals  bool  // the last release has told a waiter of another process
}

// A waiter is one call of Lock that waits.
type waiter struct {
	m      *Mutex
	timing timing
	ticket any           // a string
	look   chan struct{} // has room for one token: something has changed

	// Under lines.mu.
	given    *hold     // handed over
	trying   bool      // an attempt is under way
	attempts int       // made so far
	ready    bool      // to be tried at once
	behind   bool      // right behind a release of this process, and nobody else is known to wait
	woken    []bool    // by node: it has woken us since the last attempt began
	freed    []bool    // by node: the last attempt was granted, which is taken back
	wokenAt  time.Time // the first of woken
	runsOut  time.Time // what refused us then runs out on a quorum; zero: not known
	refresh  time.Time // when the ticket must be shown again
	last     *hold     // of the last attempt, if that entered the queues
	err      error     // of the last attempt
}

func (m *Mutex) newWaiter(t timing, start instant) *waiter {
	n := len(m.core.nodes)
	return &waiter{
		m: m, timing: t, ticket: m.core.newTicket(m.set.class, start),
		look:  make(chan struct{}, 1),
		woken: make([]bool, n), freed: make([]bool, n),
	}
}

// newTicket returns the place of a waiter that began at start: a text of fixed
// width, by which nodes sort it. enter.lua and release.lua find the process in it.
func (c *core) newTicket(class int, start instant) string {
	return fmt.Sprintf("%04d:%016x:%s:%08x", maxPriority-class, max(start.wall.UnixMicro(), 0), c.process, c.tickets.Add(1))
}

// mayBarge reports whether a first attempt for name may come before those who wait:
// not where there are such in this process, nor right after a release by which it let
// in another one.
func (ls *lines) mayBarge(name string) bool {
	if ls.count.Load() == 0 {
		return true
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	gaveWay := ls.gaveWay[name]
	if gaveWay {
		delete(ls.gaveWay, name)
		ls.count.Add(-1)
	}
	return !gaveWay && ls.byName[name] == nil
}

// toldRivals notes whether a release has told a waiter of another process.
func (ls *lines) toldRivals(name string, told bool) {
	if !told && ls.count.Load() == 0 {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.byName[name]; l != nil {
		l.rivals = told
		return
	}
	if ls.gaveWay == nil {
		ls.gaveWay = make(map[string]bool)
	}
	if told && !ls.gaveWay[name] && len(ls.gaveWay) < maxGaveWay {
		ls.gaveWay[name] = true
		ls.count.Add(1)
	}
}

// anybody reports whether somebody waits.
func (ls *lines) anybody() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return len(ls.byName) > 0
}

// join puts w in its line. why is why its first attempt failed, nil if it has made
// none. Unless the nodes are to blame there is reason to try at once.
func (ls *lines) join(w *waiter, why error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byName[w.m.name]
	if l == nil {
		l = &line{}
		if ls.byName == nil {
			ls.byName = make(map[string]*line)
		}
		ls.byName[w.m.name] = l
		ls.count.Add(1)
	}
	// Before the first of a lower class.
	i, _ := slices.BinarySearchFunc(l.waiters, w, func(in, w *waiter) int {
		return cmp.Or(cmp.Compare(w.m.set.class, in.m.set.class), -1)
	})
	l.waiters = slices.Insert(l.waiters, i, w)
	var taken *ErrTaken
	w.ready = l.holder == nil && (why == nil || errors.As(why, &taken))
	w.err, l.why = why, cmp.Or(why, l.why, errWaiting)
}

// errWaiting is the reason where none is known yet.
var errWaiting = errors.New("redsync: others of this process wait for it")

// leave takes w out of its line, unless it has been handed the lock, and lets the
// next one try. holder is the hold that w has acquired, nil if it has not.
func (ls *lines) leave(w *waiter, holder *hold) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.given == nil {
		ls.removeLocked(w, holder)
	}
}

func (ls *lines) removeLocked(w *waiter, holder *hold) {
	l := ls.byName[w.m.name]
	i := slices.Index(l.waiters, w)
	l.waiters = slices.Delete(l.waiters, i, i+1)
	if holder != nil {
		l.holder = holder
	}
	switch {
	case len(l.waiters) == 0:
		delete(ls.byName, w.m.name)
		ls.count.Add(-1)
	case i == 0 && l.holder == nil:
		l.waiters[0].tryLocked()
	}
}

// released makes the first in line try, because h has been, or is being, released:
// the commands of its attempt go behind those of the release.
func (ls *lines) released(h *hold) {
	if ls.count.Load() == 0 {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.byName[h.lock.Name()]; l != nil {
		l.holder = nil
		l.waiters[0].behind = !l.rivals
		l.waiters[0].tryLocked()
	}
}

// wake notes that node i has told that the lock of that name is free.
func (ls *lines) wake(name string, i int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.byName[name]; l != nil {
		l.waiters[0].wakeLocked(i)
	}
}

// wakeAll notes that node i may have told about any lock, and nobody heard.
func (ls *lines) wakeAll(i int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byName {
		l.waiters[0].wakeLocked(i)
	}
}

func (w *waiter) tryLocked() {
	w.ready = true
	w.lookAgain()
}

func (w *waiter) wakeLocked(i int) {
	w.woken[i] = true
	if w.wokenAt.IsZero() {
		w.wokenAt = time.Now()
	}
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
	nothing event = iota
	handed        // the lock has been handed over
	turn          // there is reason to try
	elapsed       // the retry delay is over
	ended         // the context is done, or the Redsync closed
)

// wait is Lock from the moment when w has joined its line. It makes attempts until
// one succeeds, or limit retry delays have elapsed; 0 is no limit.
func (w *waiter) wait(ctx context.Context, limit int) (*hold, error) {
	h, err := w.waitInLine(ctx, limit)
	w.m.core.lines.leave(w, h)
	switch {
	case w.given != nil: // it may have come while the waiting ended
		return w.given, nil
	case err != nil:
		w.withdraw()
	}
	return h, err
}

func (w *waiter) waitInLine(ctx context.Context, limit int) (*hold, error) {
	try := 1
	tick, err := w.tick(try)
	for err == nil {
		what := w.next(ctx, tick)
		switch what {
		case handed:
			return nil, nil
		case ended:
			return nil, w.m.withInterruption(ctx, w.why())
		case elapsed:
			try++
		}
		last := what == elapsed && try == limit
		if e := w.begin(what == elapsed, last); e != nil {
			h, err := w.try(ctx, try, e)
			if err == nil || !mends(err) {
				return h, err
			}
		}
		if last {
			return nil, w.m.withInterruption(ctx, w.why())
		}
		if what == elapsed {
			tick, err = w.tick(try)
		}
	}
	return nil, err
}

// tick returns when the retry delay after a try is over.
func (w *waiter) tick(try int) (time.Time, error) {
	delay := w.m.set.delay(try)
	if delay < 0 {
		return time.Time{}, outOfRange("WithRetryDelayFunc", delay, "0 or more")
	}
	return time.Now().Add(delay), nil
}

// next waits until there is something to do, at the latest at tick.
func (w *waiter) next(ctx context.Context, tick time.Time) event {
	var timer *time.Timer
	for {
		what, at := w.due(tick)
		switch {
		case what == handed:
			return handed
		case ctx.Err() != nil || w.m.core.isClosed.Load():
			return ended
		case what != nothing:
			return what
		}
		if timer == nil {
			timer = time.NewTimer(time.Until(at))
			defer timer.Stop()
		} else {
			timer.Reset(time.Until(at))
		}
		select {
		case <-w.look:
		case <-timer.C:
		case <-ctx.Done():
			return ended
		case <-w.m.core.closing:
			return ended
		}
	}
}

// due returns what there is to do, or when there will be.
func (w *waiter) due(tick time.Time) (event, time.Time) {
	ls := &w.m.core.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.given != nil {
		return handed, tick
	}
	now := time.Now()
	if !now.Before(tick) {
		return elapsed, tick
	}
	if ls.byName[w.m.name].waiters[0] != w {
		return nothing, tick
	}
	at := w.turnLocked()
	switch {
	case w.ready || !at.IsZero() && !at.After(now):
		return turn, now
	case at.IsZero() || at.After(tick):
		return nothing, tick
	}
	return nothing, at
}

// turnLocked returns when the first in line is to try, zero if there is no such time.
func (w *waiter) turnLocked() time.Time {
	at := earlier(w.runsOut, w.refresh)
	if w.wokenAt.IsZero() {
		return at
	}
	// The lock is free on the nodes that say so, and on those that we freed.
	free := 0
	for i := range w.woken {
		if w.woken[i] || w.freed[i] {
			free++
		}
	}
	if free >= quorumOf(len(w.woken)) {
		return w.wokenAt
	}
	return earlier(at, w.wokenAt.Add(wakeGrace))
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
// line, or has been handed the lock. A poll, for which there is no other reason than
// the time, takes the lock where it is free, except in fair mode; any other respects
// the order of the queues. After the last one w stands in no queue.
func (w *waiter) begin(poll, last bool) *entry {
	ls, set := &w.m.core.lines, w.m.set
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.given != nil || ls.byName[w.m.name].waiters[0] != w {
		return nil
	}
	plain := w.behind && !set.fair // nobody is known to be in the queues
	w.trying, w.ready, w.behind = true, false, false
	w.attempts++
	clear(w.woken)
	clear(w.freed)
	w.wokenAt, w.runsOut = time.Time{}, time.Time{}
	return &entry{waiter: w, number: w.attempts, strict: set.fair || !poll, plain: plain, last: last}
}

// try makes the attempt.
//
// Whoever is in the queues must hear the nodes. The very first attempt of a fair
// waiter, which may succeed, does not wait for that: it is repeated if it fails.
func (w *waiter) try(ctx context.Context, try int, e *entry) (*hold, error) {
	c, set := w.m.core, w.m.set
	if c.queueless.Load() && !set.fair {
		e.plain, e.final = true, true
	}
	if w.err != nil && !e.last && !e.plain {
		c.ear.listen(ctx, w.timing.nodeTimeout, set.observers)
		e.final = true
	}
	h, err := w.m.attempt(ctx, w.timing, try, e)
	w.end(e, err)
	return h, err
}

// end notes what an attempt has come to, and makes sure that w is woken later.
func (w *waiter) end(e *entry, err error) {
	if err == nil && (!e.plain || w.last != nil) {
		e.hold.leaveQueues(w.ticket) // when it is released
	}
	c := w.m.core
	c.lines.mu.Lock()
	defer c.lines.mu.Unlock()
	w.trying, w.err = false, err
	if err == nil || e.last {
		return
	}
	c.lines.byName[w.m.name].why = err
	w.ready = w.ready || !e.final
	w.runsOut = e.runsOut(time.Now())
	w.refresh = time.Now().Add(aliveFor / 2)
}

// rollBack releases what the attempt has left, which came to res. The waiter keeps
// its place in the queues unless it waits no longer (over), or cannot reach a quorum:
// then it would stand in everybody's way.
func (e *entry) rollBack(res result, over bool) {
	w, h := e.waiter, e.hold
	switch {
	case e.plain:
	case e.last || over || res.tally.granted+res.tally.refused < quorumOf(res.tally.n):
		h.leaveQueues(w.ticket)
		w.last = nil
	default:
		w.last = h
	}
	startRelease(h, false)
}

// withdraw takes w out of the queues of the nodes, if it may be in one.
func (w *waiter) withdraw() {
	if w.last != nil {
		w.last.leaveQueues(w.ticket)
		startRelease(w.last, false)
	}
}

// An entry is the acquire of a waiter: it enters the queues of the nodes as well.
type entry struct {
	acquire
	waiter *waiter
	number int  // of the attempt
	strict bool // only if this process is the first in the queue
	plain  bool // enter no queue
	final  bool // if it fails there is no reason to repeat it at once
	last   bool // the waiter does not wait any longer

	mu   sync.Mutex
	free []time.Time // when the lock may be free on a node that has answered
}

func (e *entry) command() script.Command {
	if e.plain {
		return e.acquire.command()
	}
	ttl, _ := e.hold.timing.atAge(0)
	return script.Enter(e.hold.lock, ttl.Milliseconds(), e.waiter.ticket, aliveFor.Milliseconds(), e.strict)
}

func (e *entry) judge(i int, reply pool.Reply) (vote, error) {
	if e.plain {
		return e.acquire.judge(i, reply)
	}
	e.hold.answered(i, reply.Fate)
	if reply.Err != nil {
		if pool.IsDenied(reply.Err) {
			e.hold.core.denyQueues(i, reply.Err, e.hold.set.observers)
		}
		return failed, &RedisError{Node: i, Err: reply.Err}
	}
	wait, _ := reply.Value.(int64)
	if wait == script.Granted {
		e.freeIn(0)
		e.waiter.freedBy(i, e.number)
		return e.hold.grantUnlessRestarted(i, reply.Server, e.hold.first)
	}
	if wait > 0 {
		e.freeIn(time.Duration(wait) * time.Millisecond)
	}
	return refused, &ErrNodeTaken{Node: i}
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
	q := quorumOf(len(e.hold.core.nodes))
	if len(e.free) < q || !e.free[q-1].After(now) {
		return time.Time{}
	}
	return e.free[q-1].Add(time.Millisecond + mathrand.N(runOutJitter)) //nolint:gosec // a delay is no secret
}

// freedBy notes that node i has granted the attempt of that number, which has failed
// or will succeed. The release goes behind: the lock is free there then.
func (w *waiter) freedBy(i, number int) {
	ls := &w.m.core.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.attempts == number {
		w.freed[i] = true
		if !w.trying && !w.wokenAt.IsZero() {
			w.lookAgain()
		}
	}
}

// handOver passes the lock of h, which has been ended by Unlock, to the first in
// line, and reports whether it did. The value and its validity go to a new hold. No
// node is told, and nothing that the giver does later touches the new hold.
//
// It must be worth as much as a lock that is acquired now, within a tenth; and other
// processes are let in every maxChain.
func (ls *lines) handOver(h *hold) bool {
	if ls.count.Load() == 0 || !h.mayPass() {
		return false
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byName[h.lock.Name()]
	if l == nil {
		return false
	}
	w := l.waiters[0]
	if w.trying || !w.m.set.passes() || w.timing != h.timing {
		return false
	}
	w.given = h.pass(w.m.set)
	if w.last != nil {
		w.given.leaveQueues(w.ticket)
	}
	ls.removeLocked(w, w.given)
	w.lookAgain()
	return true
}

// passes reports whether locks with these settings may be handed over.
func (s *settings) passes() bool {
	return !s.noHandOver && !s.fair && !s.customValues && s.value == "" && s.maxHold == 0
}

// mayPass reports whether the lock of h may be handed over now. h has been ended by
// Unlock.
func (h *hold) mayPass() bool {
	now := now()
	return h.set.passes() && now.since(h.acquired) < min(h.timing.expiry/10, maxChain) && h.fresh(now)
}

// fresh reports whether nine tenths of the validity are left.
func (h *hold) fresh(now instant) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.past && h.validity.remaining(now) >= h.timing.span-h.timing.span/10
}

// pass returns the hold that goes on with the lock of h.
func (h *hold) pass(set *settings) *hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &hold{
		core: h.core, set: set, value: h.value, lock: h.lock, timing: h.timing,
		first: now(), acquired: h.acquired, validity: h.validity, trail: h.trail,
	}
}

// leaveQueues makes the release of the value take a ticket off the queues.
func (t *trail) leaveQueues(ticket any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(t.tickets, ticket) {
		t.tickets = append(t.tickets, ticket)
	}
}

// leaving returns the tickets that the release of the value takes off the queues.
func (t *trail) leaving() []any {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.tickets)
}
