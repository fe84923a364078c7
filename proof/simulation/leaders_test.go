package simulation

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file plays candidates: clients that campaign for a name, and lead.

// lead plays a campaign of a client. The client may lead for several terms or for none.
func (c *simClient) lead() {
	c.former = nil
	options, expiry, drawn := c.options(false)
	process, name := c.current(c.process), c.names[c.random.IntN(len(c.names))]
	first := &simTerm{client: c, number: c.term + 1}
	options = first.labels(options)
	campaign := func() *simTerm {
		t := c.newTerm(process, expiry)
		t.owner, t.leads, t.within = first.owner, true, true
		t.drawn.watched, t.drawn.defaults = true, drawn.defaults
		t.Mutex = process.NewMutex(name, options...) // events take the name from it until the term begins
		t.note(history.Call, nil)
		t.waits()
		return t
	}
	ctx, cancel := process.call(between(c.random, 0, time.Second))
	defer cancel()
	next, runs := campaign(), false
	var last *simTerm
	err := process.Lead(ctx, name, func(ctx context.Context) error {
		assert.False(c, runs, "%s leads twice at once", c.name)
		runs = true
		defer func() { runs = false }()
		last = next
		err := last.asLeader(ctx)
		next = campaign()
		return err
	}, options...)
	assert.False(c, runs, "%s leads, and its Lead has returned", c.name)
	if last != nil {
		last.note(history.Unlocked, err)
	}
	next.note(history.Refused, err)
}

var errResigned = errors.New("resigned")

// asLeader plays what a leader does in a term.
func (t *simTerm) asLeader(ctx context.Context) error {
	c := t.client
	t.Mutex = redsync.FromContext(ctx)
	t.note(history.Held, nil)
	assert.NotZero(c, t.Fence(), "a term without a number")
	c.follow(t, ctx.Done())
	for range c.random.IntN(4) {
		if c.pause(0, min(t.expiry/2, 60*time.Millisecond)); c.oneIn(3) {
			t.extend()
		}
	}
	if c.oneIn(2) { // it leads for as long as it may, and sometimes a little longer
		<-ctx.Done()
		if c.oneIn(2) {
			c.pause(0, 100*time.Millisecond)
		}
	}
	close(t.done)
	t.note(history.Unlock, nil)
	if c.oneIn(2) {
		return errResigned
	}
	return nil
}
