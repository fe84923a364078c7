package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file defines three kinds of clients: candidates for a leadership, clients that call Do within Do, and clients
// that run a job at most once per tick.

// offices are the names for which candidates campaign. In one case out of four a candidate campaigns for one of
// lockNames instead, which other clients lock with fencing tokens.
var offices = []lockName{
	{name: "office", slow: true, fenced: true},
	{name: "office-fair", slow: true, fair: true, fenced: true},
}

// pickOffice returns a random name for which to campaign.
func (c *client) pickOffice() lockName {
	if !c.chance(4) {
		return offices[c.rand.IntN(len(offices))]
	}
	for {
		if l := lockNames[c.rand.IntN(len(lockNames))]; l.fenced {
			return l
		}
	}
}

// campaign campaigns for some seconds, and leads each time that it is elected.
func (c *client) campaign() {
	l, expiry := c.pickOffice(), c.expiryNow()
	l.owner = c.label()
	options := append(l.options(), redsync.WithExpiry(expiry))
	if c.chance(4) {
		options = append(options, redsync.WithSetNXOnExtend())
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.between(0, 2*lockTime))
	defer cancel()
	next := func() *turn {
		t := c.begin(l, options...)
		t.expiry, t.leads, t.within = expiry, true, true
		t.waits()
		return t
	}
	t, runs := next(), false
	var last *turn
	err := c.rs.Lead(ctx, l.name, func(ctx context.Context) error {
		last, runs = t, true
		defer func() { t, runs = next(), false }()
		last.lead(ctx)
		return nil
	}, options...)
	if runs {
		t.broken("Lead has returned, but its function still runs")
	}
	if last != nil {
		last.note(history.Event{Kind: history.Unlocked, Err: text(err)})
	}
	t.note(history.Event{Kind: history.Refused, Err: text(err)})
}

// lead does what a leader does during one term.
func (t *turn) lead(ctx context.Context) {
	t.m = redsync.FromContext(ctx)
	t.took(nil)
	work := t.between(0, 15*ms)
	if t.chance(2) {
		work = t.between(t.expiry/2, 3*t.expiry)
	}
	if t.hold(work, ctx.Done()) {
		t.checkContext(ctx)
		time.Sleep(t.between(0, 300*ms)) // the function of a leader may return some time after the loss
	}
	t.leaveFunc(history.Unlock)
}

// leaveFunc notes that the function of the turn returns. kind is Unlock if the hold then ends, or Gave if joined calls
// may go on with the hold.
func (t *turn) leaveFunc(kind history.Kind) {
	t.noteUntil()
	t.note(history.Event{Kind: kind, Paused: t.beat.pausedSince(t.began)})
}

// checkContext is called after the loss of a lock. It checks that the context of the lock's function ends soon.
func (t *turn) checkContext(ctx context.Context) {
	late := time.NewTimer(lostSlop)
	defer late.Stop()
	select {
	case <-ctx.Done():
	case <-late.C:
		if !t.beat.pausedSince(t.began) {
			t.broken("the lock was lost %v ago, but the context of its function has not ended", lostSlop)
		}
	}
}

// mostNested is the greatest depth of nested calls of Do. The outermost call counts as one.
const mostNested = 3

// nest works within Do, and lets other calls of Do join its hold. Some of these calls go on after nest's own function
// has returned.
func (c *client) nest() {
	ctx, cancel := context.WithTimeout(c.ctx, lockTime)
	defer cancel()
	l := c.pick()
	t := c.begin(l)
	t.within = true
	t.waits()
	held := false
	var calls sync.WaitGroup
	defer calls.Wait()
	err := t.again().Do(ctx, func(ctx context.Context) error {
		held = true
		t.m = redsync.FromContext(ctx)
		t.took(nil)
		t.callWithin(ctx, 1, &calls)
		if t.hold(c.between(0, 40*ms), ctx.Done()) {
			t.checkContext(ctx)
			t.checkOver(ctx)
		}
		t.leaveFunc(history.Gave)
		return nil
	})
	if !held {
		t.took(err)
		return
	}
	t.note(history.Event{Kind: history.Unlocked, Err: text(err)})
}

// again returns a Mutex for the lock of the turn, with its expiry.
func (t *turn) again() *redsync.Mutex {
	return t.on.mutex(t.rs, append(t.on.options(), redsync.WithExpiry(t.expiry))...)
}

// callWithin starts calls of Do with ctx, the context of the function of t. The calls join the hold of t, unless the
// hold ends before.
func (t *turn) callWithin(ctx context.Context, depth int, calls *sync.WaitGroup) {
	if depth == mostNested {
		return
	}
	for i := range t.rand.IntN(3) {
		inner := *t.client
		inner.who, inner.term = fmt.Sprintf("%s+%d.%d", t.who, t.number, i), 0
		inner.rand = rand.New(rand.NewPCG(t.rand.Uint64(), 4))
		calls.Go(func() { inner.within(ctx, t, depth, calls) })
	}
}

// within calls Do with ctx, the context of the function of outer.
func (c *client) within(ctx context.Context, outer *turn, depth int, calls *sync.WaitGroup) {
	pause(ctx, c.between(0, 20*ms))
	l := outer.on
	if c.chance(3) {
		l.reads = true
	}
	t := c.begin(l)
	t.within, t.expiry = true, outer.expiry
	t.waits()
	runs := false
	err := t.again().Do(ctx, func(ctx context.Context) error {
		runs = true
		if t.m = redsync.FromContext(ctx); t.m == outer.m {
			t.shares = outer.holdID()
			t.on.reads = l.reads || outer.on.reads
		}
		t.took(nil)
		t.callWithin(ctx, depth+1, calls)
		if t.hold(t.between(0, 40*ms)) {
			t.checkContext(ctx)
		}
		t.leaveFunc(history.Gave)
		return nil
	})
	switch {
	case runs:
		t.note(history.Event{Kind: history.Unlocked, Err: text(err)})
	case err == nil:
		t.broken("a nested Do returns nil, but has not called its function")
	case errors.Is(err, redsync.ErrNested) && strings.Contains(err.Error(), upgrade) && !outer.on.reads:
		t.broken("a Do within a Do that holds an exclusive lock returns %v", err)
	default:
		t.note(history.Event{Kind: history.Refused, Err: text(err)})
	}
}

// schedules are the names of jobs that run at most once per tick.
var schedules = []lockName{{name: "job"}, {name: "job-fair-fenced", fair: true, fenced: true}}

// errOthers is noted of a TryDo that has not called its function, because others have the lock.
var errOthers = errors.New("others have the lock")

// tick tries to run a job at the next tick. All processes count the ticks by one clock. A client tries at a random
// time up to 50 ms after the tick. In one case out of four it locks the job and does not unlock it, as if it had
// crashed.
func (c *client) tick() {
	every := c.Expiry
	keeps := every * 3 / 4
	pause(c.ctx, every-c.now()%every+c.between(0, 50*ms))
	l := schedules[c.rand.IntN(len(schedules))]
	l.owner = c.label()
	t := c.begin(l, append(l.options(), redsync.WithMinHold(keeps))...)
	t.keeps = keeps
	if c.chance(4) {
		if t.took(t.m.TryLockContext(c.ctx)) {
			t.goAway(c.ctx)
		}
		return
	}
	t.within = true
	ran, err := t.m.TryDo(c.ctx, func(ctx context.Context) error {
		t.m = redsync.FromContext(ctx)
		t.took(nil)
		work := c.between(0, 15*ms)
		if c.chance(4) {
			work = c.between(0, 2*keeps)
		}
		if t.hold(work) {
			t.checkContext(ctx)
		}
		t.leaveFunc(history.Unlock)
		return nil
	})
	if !ran {
		t.took(cmp.Or(err, errOthers))
		return
	}
	t.note(history.Event{Kind: history.Unlocked, Err: text(err)})
}
