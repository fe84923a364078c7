package main

import (
	"context"
	"time"

	"github.com/seed14bd9ef4/redsync"
)

// expiry is how long a leader that died keeps others from leading.
const expiry = 4 * time.Second

// A candidate is a process that wants to write the journal.
type candidate struct {
	who     string
	rs      *redsync.Redsync
	journal *client
	resign  <-chan struct{} // closed when the candidate should resign
}

// run campaigns, and leads whenever it can, until the candidate has resigned or ctx ends.
func (c *candidate) run(ctx context.Context) error {
	return c.rs.Lead(ctx, "journal", c.serve, redsync.WithExpiry(expiry))
}

// serve is what the leader does: it writes one entry after the other, with the number of its term.
func (c *candidate) serve(ctx context.Context) error {
	term := redsync.FromContext(ctx).Fence()
	if err := c.journal.begin(c.who, term); err != nil { // from here on the journal refuses former leaders
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err() // the leadership is lost, or the program ends
		case <-c.resign:
			return nil
		default:
		}
		if err := c.journal.prepare(c.who); err != nil { // takes a while, and does not look at ctx
			return err
		}
		if err := c.journal.write(c.who, term); err != nil {
			return err // perhaps the journal has seen a newer term
		}
	}
}
