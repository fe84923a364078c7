package main

import (
	"context"

	"github.com/seed14bd9ef4/redsync"
)

// name is the name of the lock.
const name = "catalog"

// A client has a process's connections to the nodes.
type client struct {
	rs    *redsync.Redsync
	shelf *shelf
}

// read reads the catalog, while other readers may read it too.
func (c *client) read(ctx context.Context) error {
	return c.rs.Do(ctx, name, func(ctx context.Context) error {
		c.shelf.look(ctx)
		return ctx.Err() // not nil if the lock was lost
	}, redsync.WithShared(), redsync.WithTries(0))
}

// reload writes new prices while nobody reads. Then it checks them, while readers may already read them.
func (c *client) reload(ctx context.Context) error {
	return c.rs.Do(ctx, name, func(ctx context.Context) error {
		c.shelf.write(ctx)
		if err := redsync.FromContext(ctx).Downgrade(ctx); err != nil {
			return err
		}
		c.shelf.check(ctx) // from here on read only: after Downgrade the lock is shared
		return ctx.Err()
	}, redsync.WithTries(0))
}
