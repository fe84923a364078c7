package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// This file is what a stream does about a connection that owes a reply and is silent.
// Either the node is slow, or the connection is dead and nobody says so: a firewall or a
// NAT has forgotten it. The silence does not tell which.
//
// So the stream does not give the connection up. Once it has been silent for longer than
// the requests in flight wait (Request.Within), the stream opens a second one. If the
// second is greeted while the first is still silent, the node is well and the first
// connection is dead: the second goes on in its place. If the first says something first,
// the second is closed. A node that is frozen answers neither.

const (
	// minPatience is the least silence that a second connection is opened for.
	minPatience = 50 * time.Millisecond

	// A second connection that did not help doubles the patience with the first, so that
	// a slow link does not cost a connection for each request. Half of that is forgotten
	// after each forgetAfter: a node that is slow now and then does not leave its
	// connection unwatched for ever. No patience is longer than the timeout.
	maxDoubled  = 10
	forgetAfter = time.Minute

	// lastLook is how long a second connection that has been greeted waits before the
	// first is given up: what has come on the first is read meanwhile.
	lastLook = time.Millisecond
)

var errForgotten = errors.New("no reply while a second connection was opened")

// A second is a connection that is being opened beside a silent one.
type second struct {
	since  int64              // when the silence began, as silent has it
	cancel context.CancelFunc // ends the connection, also once it is greeted
}

// sooner returns the smaller of two durations, where 0 stands for none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// clock returns the time since the connection was opened, never 0.
func (c *conn) clock() int64 { return int64(time.Since(c.opened)) + 1 }

// patience returns for how long the connection may be silent until a second one is
// opened. From c.timeout on none is.
func (c *conn) patience() time.Duration {
	within := sooner(c.batchWithin, c.writtenWithin)
	if within == 0 || within >= c.timeout {
		return c.timeout
	}
	return min(max(within, minPatience)<<c.doubled, c.timeout)
}

// startWatch begins to count a silence, if nothing was in flight, and sees to it that the
// watch fires in time for what has just been taken. It is called under the stream's mu.
func (c *conn) startWatch(idle bool) {
	if idle {
		c.silent.Store(c.clock())
	}
	if !c.watching || c.second == nil && c.patience() < c.armed {
		c.arm(0)
	}
}

// arm sets the watch for the next thing to do about a silence that has lasted for a
// while. The watch is left alone by what comes meanwhile, and looks at the silence anew
// when it fires. It is called under the stream's mu.
func (c *conn) arm(waited time.Duration) {
	c.armed = c.timeout - waited
	if c.second == nil {
		left := c.patience() - waited
		if left <= 0 { // one that was cancelled is being opened still
			left = minPatience
		}
		c.armed = min(c.armed, left)
	}
	c.watching = true
	c.watch.Reset(c.armed)
}

// checkSilence opens a second connection when this one owes a reply and nothing has come
// for longer than its patience, and gives it up after its timeout.
func (c *conn) checkSilence() {
	s := c.stream
	s.mu.Lock()
	now, since := c.clock(), c.silent.Load()
	waited := time.Duration(0)
	if since > 0 {
		waited = time.Duration(now - since)
	}
	c.forgive(now)
	c.watching = c.inFlight > 0 && !c.dead
	silent := c.watching && waited >= c.timeout
	if c.watching && !silent {
		if c.second == nil && !s.opening && waited >= c.patience() {
			ctx, cancel := context.WithCancel(context.Background())
			c.second = &second{since, cancel}
			s.opening = true
			go c.replace(ctx, c.second)
		}
		c.arm(waited)
	}
	s.mu.Unlock()
	if silent {
		c.abort(fmt.Errorf("no reply for %v: %w", c.timeout, os.ErrDeadlineExceeded))
	}
}

// forgive halves the patience for each forgetAfter since it was doubled.
func (c *conn) forgive(now int64) {
	for c.doubled > 0 && now-c.doubledAt >= int64(forgetAfter) {
		c.doubled--
		c.doubledAt += int64(forgetAfter)
	}
}

// replace opens a second connection. It serves in the place of c if c has been silent all
// the while: then c is given up, and the stream goes on with the second once the fates of
// all that c owes are delivered. Else the second is closed.
func (c *conn) replace(ctx context.Context, d *second) {
	next, err := c.stream.connect(ctx)
	if err == nil {
		next.cancel = d.cancel
		sleep(ctx, lastLook)
	}
	if c.succeeds(d, next) {
		c.abort(fmt.Errorf("%w: %w", errForgotten, os.ErrDeadlineExceeded))
		return
	}
	d.cancel()
	if next != nil {
		_ = next.net.Close()
	}
}

// succeeds makes next, nil if it could not be opened, the next connection of the stream,
// and reports whether it did.
func (c *conn) succeeds(d *second, next *conn) bool {
	s := c.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening = false
	if c.second != d {
		return false // c has ended, or said something
	}
	if next == nil || c.silent.Load() != d.since {
		c.dropSecond()
		return false
	}
	c.second = nil
	s.next = next
	return true
}

// dropSecond ends the attempt to replace c. The next one, if c is silent still or again,
// comes after twice the patience. It is called under the stream's mu.
func (c *conn) dropSecond() {
	c.second.cancel()
	c.second = nil
	if c.doubled < maxDoubled {
		c.doubled++
	}
	now, waited := c.clock(), time.Duration(0)
	c.doubledAt = now
	if since := c.silent.Load(); since > 0 {
		waited = time.Duration(now - since)
	}
	c.arm(waited)
}
