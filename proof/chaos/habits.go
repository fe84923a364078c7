package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file defines what clients do with locks, and which events they note.

// habits are the habits of every process.
var habits = []habit{
	{name: "plain", clients: 4, pace: 30 * ms, do: (*client).plain},
	{name: "try", clients: 1, pace: 60 * ms, do: (*client).try},
	{name: "cancel", clients: 1, pace: 60 * ms, do: (*client).cancel},
	{name: "priority", clients: 1, pace: 60 * ms, do: (*client).prior},
	{name: "watchdog", clients: 1, slow: true, pace: 500 * ms, do: (*client).watch},
	{name: "healing", clients: 1, slow: true, pace: 500 * ms, do: (*client).heal},
	{name: "do", clients: 1, slow: true, pace: 500 * ms, do: (*client).doIt},
	{name: "hanging", clients: 1, slow: true, pace: 3000 * ms, do: (*client).hang},
	{name: "leaving", clients: 1, slow: true, pace: 3000 * ms, do: (*client).leave},
	{name: "overstaying", clients: 1, slow: true, pace: 3000 * ms, do: (*client).overstay},
	{name: "delay", clients: 1, slow: true, pace: 3000 * ms, do: (*client).delay},
	{name: "giving", clients: 1, slow: true, pace: 500 * ms, do: (*client).give},
	{name: "hasty", clients: 1, pace: 60 * ms, do: (*client).hurry},
	{name: "request", clients: 1, pace: 60 * ms, do: (*client).request},
	{name: "adopting", clients: 1, pace: 100 * ms, do: (*client).adopt},
	{name: "several", clients: 2, several: true, pace: 150 * ms, do: anyOf(
		(*client).plain, (*client).plain, (*client).prior, (*client).try, (*client).cancel, (*client).hurry)},
	{name: "several-long", clients: 1, several: true, slow: true, pace: 1000 * ms, do: anyOf(
		(*client).watch, (*client).watch, (*client).watch, (*client).heal, (*client).heal, (*client).overstay, (*client).leave, (*client).delay, (*client).hang)},
	{name: "reader", clients: 4, meets: true, reads: true, pace: 30 * ms, do: anyOf(
		(*client).plain, (*client).plain, (*client).plain, (*client).plain, (*client).prior, (*client).try, (*client).cancel, (*client).hurry, (*client).request)},
	{name: "reader-long", clients: 2, meets: true, reads: true, slow: true, pace: 500 * ms, do: anyOf(
		(*client).watch, (*client).watch, (*client).heal, (*client).doIt, (*client).doIt, (*client).overstay, (*client).leave, (*client).delay, (*client).hang, (*client).give)},
	{name: "reader-mid", clients: 1, meets: true, reads: true, pace: 1500 * ms, do: anyOf(
		(*client).watch, (*client).watch, (*client).heal, (*client).overstay, (*client).doIt)},
	{name: "downgrading", clients: 2, meets: true, pace: 60 * ms, do: (*client).downgradingShort},
	{name: "downgrading-long", clients: 1, meets: true, slow: true, pace: 500 * ms, do: (*client).downgradingLong},
	{name: "permit", clients: 4, permits: true, pace: 30 * ms, do: anyOf(
		(*client).plain, (*client).plain, (*client).plain, (*client).plain, (*client).prior, (*client).try, (*client).cancel, (*client).hurry, (*client).request)},
	{name: "permit-long", clients: 2, permits: true, slow: true, pace: 500 * ms, do: anyOf(
		(*client).watch, (*client).watch, (*client).heal, (*client).doIt, (*client).doIt, (*client).overstay, (*client).leave, (*client).delay, (*client).hang, (*client).give)},
	{name: "candidate", clients: 2, slow: true, pace: 500 * ms, do: (*client).campaign},
	{name: "nesting", clients: 1, pace: 150 * ms, do: (*client).nest},
	{name: "nesting-readers", clients: 1, meets: true, reads: true, pace: 150 * ms, do: (*client).nest},
	{name: "tick", clients: 2, pace: 30 * ms, do: (*client).tick},
	{name: "looker", clients: 2, pace: 40 * ms, do: (*client).look},
	{name: "redsync-v4", clients: 2, meets: true, v4: true, pace: 60 * ms, do: (*client).theirs},
}

// loners are few, so that most of them release a lock that nobody waits for, which needs no script.
var loners = []habit{
	{name: "plain", clients: 1, pace: 30 * ms, do: (*client).plain},
	{name: "several", clients: 1, several: true, pace: 150 * ms, do: anyOf((*client).plain, (*client).cancel, (*client).hurry)},
	{name: "watchdog", clients: 1, slow: true, pace: 500 * ms, do: (*client).watch},
}

// anyOf returns a habit that does one of several things each time.
func anyOf(habits ...func(*client)) func(*client) {
	return func(c *client) { habits[c.rand.IntN(len(habits))](c) }
}

const (
	// lockTime bounds a Lock.
	lockTime = 6 * time.Second
	// unlockTime bounds an Unlock.
	unlockTime = 2 * time.Second
	// look is how often a client checks whether its lock has been extended.
	look = 40 * ms
)

// expiryNow returns a random expiry: from two thirds to four thirds of the job's expiry.
//
// Readers mostly take the job's expiry: readers of a process share a hold only if their expiries are equal.
func (c *client) expiryNow() time.Duration {
	if c.reads && !c.chance(4) {
		return c.Expiry
	}
	return c.between(c.Expiry-c.Expiry/3, longestExpiry(c.Expiry)).Truncate(ms)
}

// plain locks, works for a short time, extends at times, and unlocks.
func (c *client) plain() { c.lockAndUnlock(lockTime) }

// prior is plain, with a priority.
func (c *client) prior() { c.lockAndUnlock(lockTime, redsync.WithPriority(c.rand.IntN(11)-5)) }

// lockAndUnlock waits for the lock no longer than patience.
func (c *client) lockAndUnlock(patience time.Duration, options ...redsync.Option) {
	t := c.beginAny(options...)
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	if !t.lock(ctx) {
		return
	}
	work := c.between(0, 15*ms)
	if c.chance(8) {
		work = c.between(15*ms, 300*ms)
	}
	told := t.hold(work)
	if !told && c.chance(3) {
		t.extend()
		told = t.hold(work)
	}
	if told {
		t.checkOver(ctx)
	}
	t.unlock()
}

// try makes one attempt.
func (c *client) try() {
	t := c.beginAny()
	if t.took(t.m.TryLockContext(c.ctx)) {
		t.hold(c.between(0, 15*ms))
		t.unlock()
	}
}

// cancel is plain, but gives up waiting for the lock after at most 150 ms.
func (c *client) cancel() {
	c.lockAndUnlock(c.between(0, 150*ms))
}

// hurry uses contexts that end before any deadline of the library, for all operations.
func (c *client) hurry() {
	ctx, cancel := c.soon()
	defer cancel()
	if !c.several && c.chance(4) {
		c.doWithin(ctx, c.between(0, 15*ms))
		return
	}
	t := c.beginAny()
	if !t.lock(ctx) {
		return
	}
	for range c.rand.IntN(4) {
		t.hold(c.between(0, 5*ms))
		step, done := c.soon()
		if c.chance(2) {
			ok, err := t.m.ExtendContext(step)
			t.agree("Extend", ok, err)
			t.noteUntil()
		} else {
			ok, err := t.m.ValidContext(step)
			t.agree("Valid", ok, err)
		}
		done()
	}
	end, done := c.soon()
	t.unlockWithin(end)
	done()
}

// soon returns a context that ends at once, within a few milliseconds, or within a quarter of the
// node timeout.
func (c *client) soon() (context.Context, context.CancelFunc) {
	most := []time.Duration{0, 4 * ms, c.Expiry / 20 / 4}[c.rand.IntN(3)]
	return context.WithTimeout(c.ctx, c.between(0, most))
}

// request makes a Redsync on the process's go-redis clients for a single Lock. In one case out of two it
// closes the Redsync afterwards.
func (c *client) request() {
	c.rs = c.open()
	defer func() { c.rs = c.crowd.rs }()
	c.lockAndUnlock(lockTime)
	if c.chance(2) {
		ctx, cancel := context.WithTimeout(context.Background(), c.between(0, unlockTime))
		defer cancel()
		_ = c.rs.Close(ctx) // may fail, because nodes may be out of action
	}
}

// watch holds a lock with a watchdog, for up to twice the job's expiry.
func (c *client) watch() { c.holdLong(redsync.WithWatchdog()) }

// heal is watch with WithSetNXOnExtend, which sets keys again that nodes have lost.
func (c *client) heal() { c.holdLong(redsync.WithWatchdog(), redsync.WithSetNXOnExtend()) }

func (c *client) holdLong(options ...redsync.Option) {
	c.holdFor(c.between(c.Expiry/2, 2*c.Expiry), options...)
}

func (c *client) holdFor(work time.Duration, options ...redsync.Option) {
	t := c.beginAny(options...)
	ctx, cancel := context.WithTimeout(c.ctx, lockTime)
	defer cancel()
	if !t.lock(ctx) {
		return
	}
	if t.hold(work) {
		t.checkOver(ctx)
	}
	t.unlock()
}

// hang locks with a watchdog that has a limit (WithMaxHold). It does not unlock before the traffic ends.
func (c *client) hang() {
	t := c.beginAny(redsync.WithWatchdog(), redsync.WithMaxHold(c.between(c.Expiry, 2*c.Expiry)))
	if t.lockAndGo(); t.ctx.Err() != nil {
		t.unlock() // the traffic has ended, so nothing may be extended any more
	}
}

// leave locks, and does not unlock.
func (c *client) leave() { c.beginAny().lockAndGo() }

// delay is leave with a lock delay.
func (c *client) delay() { c.beginAny(redsync.WithLockDelay(lockDelay)).lockAndGo() }

// overstay holds a lock until it learns of the loss, and keeps working for a while after that.
func (c *client) overstay() {
	t := c.beginAny()
	ctx, cancel := context.WithTimeout(c.ctx, lockTime)
	defer cancel()
	if !t.lock(ctx) {
		return
	}
	if t.hold(2 * longestExpiry(c.Expiry)) {
		t.checkOver(ctx)
		pause(c.ctx, c.between(0, 300*ms))
		t.checkOver(ctx)
	}
	t.unlock()
}

// doIt works within Do.
func (c *client) doIt() {
	ctx, cancel := context.WithTimeout(c.ctx, lockTime)
	defer cancel()
	c.doWithin(ctx, c.between(c.Expiry/2, 2*c.Expiry))
}

// doWithin holds a lock within Do until the time work has passed or ctx is done.
func (c *client) doWithin(ctx context.Context, work time.Duration) {
	l := c.pick()
	t := c.begin(l)
	t.waits()
	held := false
	err := c.rs.Do(ctx, l.name, func(ctx context.Context) error {
		held = true
		t.m = redsync.FromContext(ctx)
		t.took(nil)
		working, stop := context.WithTimeout(ctx, work)
		defer stop()
		if l.reads && c.chance(3) {
			t.checkUpgrade(ctx)
		}
		if t.hold(lockTime, working.Done()) {
			t.checkOver(ctx)
		}
		t.note(history.Event{Kind: history.Unlock})
		return nil
	}, slices.Concat(l.options(), t.observer(), []redsync.Option{redsync.WithExpiry(t.expiry)})...)
	if !held {
		t.took(err)
		return
	}
	t.note(history.Event{Kind: history.Unlocked, Err: text(err)})
}

// A turn is one call of Lock, and everything that follows from it.
type turn struct {
	*client
	number int
	on     lockName
	expiry time.Duration
	m      *redsync.Mutex
	began  time.Time
	until  time.Duration // the last Until noted
	token  uint64
	shares string        // if the hold was adopted or joined: the ID of the term that began it
	keeps  time.Duration // the minimal hold; 0: none
	leads  bool          // it is a term of leadership, in the function of Lead
	within bool          // a function holds the lock, and its context ends with the hold
	untold bool          // checkTold has noted that Lost was not closed in time
	err    error         // what Lock returned

	stubborn bool // after Downgrade it still believes in an exclusive lock; for tests
}

// beginAny begins a term with one of the locks.
func (c *client) beginAny(options ...redsync.Option) *turn {
	l := c.pick()
	return c.begin(l, append(l.options(), options...)...)
}

func (c *client) begin(l lockName, options ...redsync.Option) *turn {
	c.term++
	t := &turn{client: c, number: c.term, on: l, expiry: c.expiryNow(), began: time.Now()}
	t.m = l.mutex(c.rs, slices.Concat([]redsync.Option{redsync.WithExpiry(t.expiry)}, options, t.observer())...)
	t.note(history.Event{Kind: history.Call})
	return t
}

// holdID returns the ID of the term that began the hold.
func (t *turn) holdID() string {
	return cmp.Or(t.shares, history.Event{Client: t.who, Term: t.number}.ID())
}

// note notes an event of the term. Its time is now, unless the event has one.
func (t *turn) note(e history.Event) {
	e.Client, e.Term, e.Name, e.More, e.Shares = t.who, t.number, t.on.name, t.on.more, t.shares
	if e.At == 0 {
		e.At = t.now()
	}
	t.log.Note(t.forForcers(t.forLookers(e)))
}

func (t *turn) broken(format string, args ...any) {
	t.note(history.Event{Kind: history.Broken, Err: fmt.Sprintf(format, args...)})
}

func (t *turn) lock(ctx context.Context) bool {
	t.waits()
	return t.took(t.m.LockContext(ctx))
}

// took notes the result of Lock, and reports whether the lock is held.
func (t *turn) took(err error) bool {
	at := t.now() // taken before Remaining, so that the noted Until is not too late
	left := t.m.Remaining()
	t.err = err
	if err != nil {
		t.note(history.Event{At: at, Kind: history.Refused, Err: text(err)})
		if left > 0 {
			t.broken("Lock has failed, but Remaining is %v: %v", left, err)
		}
		return false
	}
	t.until = at + left
	if t.shares == "" { // an adopted or joined hold has the token of the Lock that began it
		t.token = t.m.Fence()
	}
	t.note(history.Event{At: at, Kind: history.Held, Until: t.until, Token: t.token, Reads: t.on.reads, Permits: t.on.permits, Weight: t.on.weight, Leads: t.leads, Within: t.within, Keeps: t.keeps})
	if (t.token != 0) != t.on.fenced && t.shares == "" {
		t.broken("fencing is %v, but the token is %d", t.on.fenced, t.token)
	}
	return true
}

// hold holds the lock for the time work. It returns earlier if ends[0] is closed, if the traffic ends, or if the lock
// is lost. It reports whether the lock was lost.
func (t *turn) hold(work time.Duration, ends ...<-chan struct{}) bool {
	end := time.NewTimer(work)
	defer end.Stop()
	looks := time.NewTicker(look)
	defer looks.Stop()
	var early <-chan struct{}
	if len(ends) > 0 {
		early = ends[0]
	}
	for {
		select {
		case <-t.m.Lost():
			at := t.now() // taken first, so that pausedSince covers every pause before at
			t.note(history.Event{At: at, Kind: history.Lost, Paused: t.beat.pausedSince(t.began), Err: text(t.m.Err())})
			return true
		case <-t.ctx.Done():
			return false
		case <-early:
			early = nil
			select {
			case <-t.m.Lost(): // early was closed because of the loss, which the next iteration notes
			default:
				return false
			}
		case <-end.C:
			return false
		case <-looks.C:
			t.noteUntil()
			t.checkTold()
		}
	}
}

// noteUntil notes an extension of the hold, if there was one since the last call.
func (t *turn) noteUntil() {
	at := t.now()
	left := t.m.Remaining()
	if until := at + left; left > 0 && until > t.until+ms {
		t.until = until
		t.note(history.Event{At: at, Kind: history.Extended, Until: until})
	}
}

// checkTold notes a broken promise if Lost is still open more than lostSlop after the end of the hold.
func (t *turn) checkTold() {
	if over := t.now() - t.until; over > lostSlop && !t.untold && !t.beat.pausedSince(t.began) {
		t.untold = true
		t.broken("the hold ended %v ago, but Lost is not closed", over)
	}
}

func (t *turn) extend() {
	ctx, cancel := context.WithTimeout(t.ctx, t.between(0, t.expiry))
	defer cancel()
	ok, err := t.m.ExtendContext(ctx)
	t.agree("Extend", ok, err)
	if ok {
		t.noteUntil()
	}
}

// checkOver checks that a lost lock stays lost.
func (t *turn) checkOver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTime)
	defer cancel()
	if left := t.m.Remaining(); left > 0 {
		t.broken("the lock is lost, but Remaining is %v", left)
	}
	if err := t.m.Err(); !errors.Is(err, redsync.ErrLockLost) {
		t.broken("the lock is lost, but Err is %v", err)
	}
	if ok, err := t.m.ExtendContext(ctx); ok || err == nil {
		t.broken("the lock is lost, but Extend returns %v, %v", ok, err)
	}
	if t.m.Remaining() > 0 {
		t.broken("the lock was lost, but Extend has brought it back")
	}
}

// agree checks that an operation returns true if and only if it returns no error.
func (t *turn) agree(operation string, ok bool, err error) {
	if ok != (err == nil) {
		t.broken("%s returns %v, %v", operation, ok, err)
	}
}

// unlock unlocks, whether or not the traffic has ended.
func (t *turn) unlock() {
	ctx, cancel := context.WithTimeout(context.Background(), unlockTime)
	defer cancel()
	t.unlockWithin(ctx)
}

func (t *turn) unlockWithin(ctx context.Context) {
	t.noteUntil()
	t.note(history.Event{Kind: history.Unlock})
	lost := t.m.Err() != nil
	ok, err := t.m.UnlockContext(ctx)
	t.note(history.Event{Kind: history.Unlocked, Err: text(err)})
	t.agree("Unlock", ok, err)
	switch {
	case lost && ok:
		t.broken("the lock was lost, but Unlock returns true")
	case t.m.Remaining() > 0:
		t.broken("the lock is unlocked, but Remaining is %v", t.m.Remaining())
	}
}

// lockAndGo locks, and does not unlock: see goAway.
func (t *turn) lockAndGo() {
	ctx, cancel := context.WithTimeout(t.ctx, lockTime)
	defer cancel()
	if t.lock(ctx) {
		t.goAway(ctx)
	}
}

// goAway watches the lock, and does not unlock it, until it is lost, the traffic ends, or four times the longest TTL
// have passed. Unless the lock was lost, goAway adds the turn to kept, and close notes its end.
func (t *turn) goAway(ctx context.Context) {
	if t.hold(4 * longestTTL(t.Expiry)) {
		t.checkOver(ctx)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, t)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
