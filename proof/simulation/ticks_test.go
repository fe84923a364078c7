package simulation

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file plays clients that run a job at most once per tick of a schedule (WithMinHold).

// onTicks is the name of most jobs. Clients use it for nothing else.
const onTicks = "t"

// tick plays a term of a client that tries at the next tick by the clock of its process. No two clients come in the
// same nanosecond, so that a seed repeats itself. Some clients never unlock.
func (c *simClient) tick() {
	c.former = nil
	period := c.least * 5 / 4
	time.Sleep(period - c.now()%period + time.Duration(c.process)*c.least/20 + between(c.random, 0, time.Microsecond))
	if c.class[closing] {
		c.pause(0, c.least)
	}
	t := c.newTerm(c.current(c.process), c.expiry)
	t.keeps = c.least
	options := c.inTurn(t.expiry, redsync.WithMinHold(c.least))
	if !c.realm.changes() && (c.fencing || c.oneIn(5)) { // lockEach does not lock onTicks, so its tokens may fall
		t.drawn.fences = true
		options = append(options, redsync.WithFencing())
	}
	names := []string{onTicks}
	if c.oneIn(4) {
		names = c.someNames(c.random)
	}
	t.Mutex = newMutex(t.process.Redsync, names, t.labels(options))
	ctx, cancel := t.patience()
	defer cancel()
	t.note(history.Call, nil)
	t.waits()
	if c.realm != tidy && c.oneIn(4) {
		t.tickAndGo(ctx)
		return
	}
	ran, err := t.TryDo(ctx, func(ctx context.Context) error {
		t.within = true
		t.drawn.watched = true
		t.Mutex = redsync.FromContext(ctx)
		t.note(history.Held, nil)
		c.follow(t, t.Lost())
		c.heeds(ctx, t)
		for range c.random.IntN(3) {
			c.pause(0, 2*c.least/3)
		}
		close(t.done)
		t.note(history.Unlock, nil)
		return nil
	})
	if !ran {
		t.note(history.Refused, err)
		return
	}
	t.note(history.Unlocked, err)
}

// tickAndGo tries once. The client then leaves without unlocking, or it unlocks late, often after the validity.
func (t *simTerm) tickAndGo(ctx context.Context) {
	c := t.client
	if err := t.TryLockContext(ctx); err != nil {
		t.note(history.Refused, err)
		return
	}
	t.note(history.Held, nil)
	c.follow(t, t.Lost())
	if c.oneIn(2) {
		return
	}
	c.pause(t.expiry/2, 2*t.expiry)
	close(t.done)
	t.unlock(c.Context())
}

// onTime lets all processes try at some ticks, as if their clocks were a little apart. All faults have ended, and it
// first waits until nobody keeps the name any more. So at each tick exactly one process must run the job.
func (s *simulation) onTime(name string) {
	const keeps, period, count = 100 * time.Millisecond, 200 * time.Millisecond, 3
	time.Sleep(2 * s.least)
	if s.realm != tidy { // else every client unlocks
		time.Sleep(s.longest)
	}
	var all sync.WaitGroup
	var jobs [count]atomic.Int64
	start := s.now()
	for i := range simProcesses {
		m := s.current(i).NewMutex(name, append(s.optionsOf(wish{}), redsync.WithExpiry(keeps), redsync.WithMinHold(keeps))...)
		all.Go(func() {
			for tick := range count {
				time.Sleep(start + time.Duration(tick)*period + time.Duration(i*i)*10*time.Millisecond - s.now())
				_, _ = m.TryDo(s.Context(), func(context.Context) error { // all but one are refused
					jobs[tick].Add(1)
					return nil
				})
			}
		})
	}
	all.Wait()
	time.Sleep(keeps)
	for tick := range count {
		if n := jobs[tick].Load(); n != 1 {
			s.promised(fmt.Errorf("%d jobs at tick %d", n, tick), 0, []string{name})
		}
	}
}
