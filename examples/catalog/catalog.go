package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync"
)

// name is the name of the lock.
const name = "catalog"

// step is how long it takes to read or to write a price.
const step = time.Millisecond

// A catalog stands for files or for a database without transactions. All its prices are of the same version,
// unless a reload is half done.
type catalog struct {
	prices [10]atomic.Int64

	// inside counts the readers at this moment, and most is its maximum. early counts the reads beside the
	// downgraded writer, and halves the reads that saw half of a reload.
	reads, inside, most, reloads, early, halves atomic.Int64
	checking                                    atomic.Bool // the writer checks what it has written
}

// look reads all prices.
func (c *catalog) look(ctx context.Context) {
	version := c.prices[0].Load()
	for i := range c.prices {
		if c.prices[i].Load() != version {
			c.halves.Add(1)
			break
		}
		pause(ctx)
	}
}

// A client has a process's connections to the nodes.
type client struct {
	rs       *redsync.Redsync
	catalog  *catalog
	unlocked bool // leave the lock out: the control
}

// read reads the catalog, while other readers may read it too.
func (c *client) read(ctx context.Context) error {
	look := func(ctx context.Context) error {
		now := c.catalog.inside.Add(1)
		defer c.catalog.inside.Add(-1)
		for most := c.catalog.most.Load(); now > most && !c.catalog.most.CompareAndSwap(most, now); {
			most = c.catalog.most.Load()
		}
		if c.catalog.checking.Load() {
			c.catalog.early.Add(1)
		}
		c.catalog.look(ctx)
		c.catalog.reads.Add(1)
		return ctx.Err() // not nil if the lock was lost
	}
	if c.unlocked {
		return look(ctx)
	}
	return c.rs.Do(ctx, name, look, redsync.WithShared(), redsync.WithTries(0))
}

// reload writes new prices while nobody reads. Then it checks them, while readers may already read them.
func (c *client) reload(ctx context.Context) error {
	write := func(ctx context.Context) error {
		version := c.catalog.reloads.Load() + 1
		for i := range c.catalog.prices {
			c.catalog.prices[i].Store(version)
			pause(ctx)
		}
		if !c.unlocked {
			if err := redsync.FromContext(ctx).Downgrade(ctx); err != nil {
				return err
			}
		}
		c.catalog.checking.Store(true) // from here on read only: after Downgrade the lock is shared
		defer c.catalog.checking.Store(false)
		c.catalog.look(ctx)
		c.catalog.reloads.Add(1)
		return ctx.Err()
	}
	if c.unlocked {
		return write(ctx)
	}
	return c.rs.Do(ctx, name, write, redsync.WithTries(0))
}

// pause stands for work. It ends early when ctx ends.
func pause(ctx context.Context) {
	select {
	case <-time.After(step):
	case <-ctx.Done():
	}
}
