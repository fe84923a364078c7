package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file plays clients that call Do within a Do.

// deepest is the largest number of calls of Do within one another.
const deepest = 3

// nest makes calls of Do within the Do of t. ctx is the context of t's function. nest waits for some of the calls, and
// runs the others on their own goroutines. It reports whether it has made any.
func (t *simTerm) nest(ctx context.Context, depth int) (any bool) {
	c := t.client
	if !c.class[nesting] || depth == deepest || t.drawn.permits != 0 {
		return false
	}
	hold, value := cmp.Or(t.shares, t.event("").ID()), fortests.Value(t.Mutex)
	for range c.random.IntN(3) {
		any = true
		c.shown++
		in := &simClient{player: c.within(c.process, fmt.Sprintf("%s+%d", c.name, c.shown))}
		if c.oneIn(3) {
			in.callWithin(ctx, t, hold, value, depth)
			continue
		}
		c.adopters.Go(func() {
			in.pause(0, 20*time.Millisecond)
			in.callWithin(ctx, t, hold, value, depth)
		})
	}
	if c.oneIn(4) {
		t.lockWithin(ctx)
	}
	return any
}

// callWithin calls Do with ctx, the context of an outer Do that has, or had, the hold with this value. If the outer Do
// still has the hold, the call joins it and sends nothing.
func (c *simClient) callWithin(ctx context.Context, outer *simTerm, hold, value string, depth int) {
	names := outer.Names()
	if c.oneIn(3) {
		names = names[:1]
	}
	t := c.newTerm(outer.process, outer.expiry)
	t.within = true
	options := c.lasting(outer.expiry)
	reads := len(names) == 1 && c.oneIn(3)
	if reads {
		options = append(options, redsync.WithShared())
	}
	limited := c.oneIn(4)
	if limited {
		options = append(options, redsync.WithNesting(1+c.random.IntN(deepest)))
	}
	t.drawn.watched = true
	t.shared.Store(reads || outer.shared.Load())
	t.Mutex = newMutex(t.process.Redsync, names, options)
	t.note(history.Call, nil)
	called, runs := c.now(), false
	err := t.Do(ctx, func(ctx context.Context) error {
		runs = true
		t.Mutex = redsync.FromContext(ctx)
		if fortests.Value(t.Mutex) == value {
			t.shares = hold
			c.nested.Add(1)
			assert.Equal(c, called, c.now(), "%s #%d has joined", c.name, t.number)
		} else {
			t.shared.Store(reads)
		}
		t.note(history.Held, nil)
		c.follow(t, t.Lost())
		c.heeds(ctx, t)
		for range c.random.IntN(3) {
			c.pause(0, min(t.expiry/2, 60*time.Millisecond))
		}
		t.nest(ctx, depth+1)
		close(t.done)
		t.note(history.Gave, nil)
		return nil
	})
	switch {
	case runs:
		t.note(history.Unlocked, err)
	case errors.Is(err, redsync.ErrNested) && !strings.Contains(err.Error(), upgrade):
		assert.True(c, limited || len(names) > 1, "%s #%d: %v", c.name, t.number, err)
		fallthrough
	default:
		assert.Error(c, err)
		t.note(history.Refused, err)
	}
}

// heeds checks that the context of a function ends with the hold.
func (c *simClient) heeds(ctx context.Context, t *simTerm) {
	lost := t.Lost()
	go func() {
		select {
		case <-t.done:
		case <-lost:
			time.Sleep(time.Nanosecond)
			assert.Error(c, ctx.Err(), "the hold of %s #%d is over, and its context is not", c.name, t.number)
		}
	}()
}

// upgrade stands in the error of an exclusive call inside a Do that holds the name shared.
const upgrade = "an exclusive lock within a shared one"

// lockWithin calls Lock for the names that the Do around ctx holds. That must fail at once.
func (t *simTerm) lockWithin(ctx context.Context) {
	c := t.client
	m := newMutex(t.process.Redsync, t.Names(), c.lasting(t.expiry))
	err := m.LockContext(ctx)
	if t.Remaining() > 0 {
		assert.ErrorIs(c, err, redsync.ErrNested, "%s #%d locks within its Do: %v", c.name, t.number, err)
	}
	if err == nil { // the Do had lost its lock
		_, _ = m.UnlockContext(c.Context())
	}
}
