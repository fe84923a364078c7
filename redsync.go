package redsync

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/alarm"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/notice"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A Redsync makes locks on a set of independent Redis nodes. It may be used by
// many goroutines at once.
type Redsync struct {
	core *core
	set  *settings
}

// New returns a Redsync on the nodes behind pools, one each. The nodes must be
// independent primaries: no two of them replicas of each other, or the same.
// A lock needs N/2 + 1 of them, so five bear the loss of two.
//
// New starts nothing and never fails. Every operation fails if there are no pools, if one
// is nil or can never send (see pool.New), or if two lead to one address or one client.
func New(pools ...pool.Pool) *Redsync {
	set := defaultSettings()
	set.prepare()
	return &Redsync{core: newCore(pools), set: &set}
}

// With returns a Redsync on the same nodes whose locks have other defaults.
// Closing one closes all.
func (r *Redsync) With(options ...Option) *Redsync {
	if r == nil {
		r = &Redsync{} // of an Open that failed: it has no nodes
	}
	m := Mutex{set: r.set}
	m.apply(options)
	return &Redsync{core: r.core, set: m.set}
}

// NewMutex returns a lock with the given name, which is its Redis key. It sends
// nothing. The name must not be empty, nor of the form {x}:queue or {x}:fence,
// which belong to the lock named x; with such a name, or an option out of its
// range, every operation fails and says so.
func (r *Redsync) NewMutex(name string, options ...Option) *Mutex {
	if r == nil {
		r = &Redsync{} // see With
	}
	m := &Mutex{core: r.core, name: name, set: r.set}
	m.apply(options)
	if m.set != nil {
		m.adopted = m.set.value
	}
	return m
}

// Close unlocks what is still held, tries every pending release once more, ends
// the connections of Open, and lets those of New end when they are idle. Every
// later operation fails with ErrClosed. A second Close returns what the first did.
//
// It waits until every node has answered or failed. It returns an error when ctx is done,
// or once no node has released anything for a node deadline of r's options (at least
// 50 ms). However many locks are held, healthy nodes release all of them: Close takes as
// long as that does, so bound it by ctx where the process must end. nil does not say that
// every key is gone: what a node that failed still holds runs out within the expiry.
func (r *Redsync) Close(ctx context.Context) error {
	if r == nil || r.core == nil {
		return nil
	}
	ctx = orBackground(ctx)
	t, _ := r.set.timing() // zero if they are no use
	return r.core.close(ctx, max(t.nodeTimeout, minNodeTimeout))
}

// core is what all copies of a Redsync and all its locks share.
type core struct {
	nodes   []*node
	guarded *node // the one whose guard allows least; nil without a guard
	err     error // the pools cannot be used
	owned   bool  // Close closes the pools

	*membership // of the group, with what the process has but once

	sleepers  sleepers
	census    census
	holds     alarm.Schedule // of every hold, its expiry
	extends   alarm.Schedule // watchdogs
	repeats   alarm.Schedule // releases to be sent again
	unsettled gauge          // releases that a node has not settled
	active    gauge          // operations under way
	notices   notice.Queue

	isClosed atomic.Bool
	progress atomic.Int64  // the monotonic time at which Close has begun, or a node has last settled a release since
	closing  chan struct{} // closed when Close begins
	closed   chan struct{} // closed when Close has ended, with closeErr
	closeErr error
}

// extendsInARow spreads the extensions of many locks that are due at once: each is
// two events, so that 64,000 begin in a second. More would pile up at the nodes,
// whose limit of outstanding requests would refuse some.
const extendsInARow = 128

func newCore(pools []pool.Pool) *core {
	c := &core{closing: make(chan struct{}), closed: make(chan struct{})}
	c.extends.InARow = extendsInARow
	if len(pools) == 0 {
		c.err = ErrNoPools
	}
	for i, p := range pools {
		n := newNode(i, p)
		c.nodes = append(c.nodes, n)
		if n.guard != 0 && (c.guarded == nil || n.guard < c.guarded.guard) {
			c.guarded = n
		}
		if err := unusable(p); err != nil && c.err == nil {
			c.err = &within{fmt.Sprintf("pool #%d", i), err}
		}
	}
	if c.err == nil {
		c.err = twice(pools)
	}
	c.membership = groupOf(pools).join()
	for i, n := range c.nodes {
		n.health = &c.health[i]
	}
	runtime.AddCleanup(c, (*membership).collected, c.membership)
	return c
}

// twice returns an error if two pools are known to lead to one node. Where nothing but
// the server can tell, the census does.
func twice(pools []pool.Pool) error {
	seen := make(map[any]int, len(pools))
	for i, p := range pools {
		where := any(p)
		if known, ok := p.(interface{ Destination() any }); ok {
			where = known.Destination()
		}
		if !reflect.ValueOf(where).Comparable() {
			continue
		}
		if first, there := seen[where]; there {
			return (&twins{first, i, [2]string{pools[first].String(), p.String()}}).err()
		}
		seen[where] = i
	}
	return nil
}

// newProcess returns what tells a process from all others in a ticket: 16 digits.
func newProcess() string {
	n, _ := rand.Int(rand.Reader, big.NewInt(1e16)) // never fails
	return fmt.Sprintf("%016d", n)
}

// unusable returns why p can never serve, if p knows.
func unusable(p pool.Pool) error {
	if p == nil {
		return errors.New("it is nil")
	}
	if known, ok := p.(interface{ Err() error }); ok {
		return known.Err()
	}
	return nil
}

// enter begins an operation; exit ends it.
func (c *core) enter() error {
	switch {
	case c == nil:
		return ErrNoPools
	case c.err != nil:
		return c.err
	}
	c.active.add(1)
	if c.isClosed.Load() {
		c.exit()
		return ErrClosed
	}
	return nil
}

func (c *core) exit() { c.active.add(-1) }

// close closes c, or waits for the call that does.
func (c *core) close(ctx context.Context, timeout time.Duration) error {
	switch {
	case c.err != nil:
		return nil //nolint:nilerr // nothing has ever started
	case c.isClosed.CompareAndSwap(false, true):
		c.closeErr = c.shutDown(ctx, timeout)
		close(c.closed)
	case !await(ctx, c.closed):
		return fmt.Errorf("redsync: Close: another call is closing: %w", context.Cause(ctx))
	}
	return c.closeErr
}

func (c *core) shutDown(ctx context.Context, timeout time.Duration) (err error) {
	c.progress.Store(int64(clock.Now().Mono))
	close(c.closing)
	c.extends.Close()
	c.holds.Close()
	// Operations under way give up at their next step, or have a deadline.
	_ = c.awaitProgress(ctx, c.active.zero(), timeout)
	c.leave()
	c.repeats.Close()
	if why := c.awaitProgress(ctx, c.unsettled.zero(), timeout); why != nil {
		err = fmt.Errorf("redsync: Close: keys are left to their expiry: %w", why)
	}
	for _, p := range c.nodes {
		if c.owned {
			_ = p.Close() // never fails, and does not wait
		} else {
			p.CloseIdle()
		}
	}
	return err
}

// awaitProgress waits until done is closed, or returns an error: when ctx is done, or once
// no node has settled a release for the length of timeout.
func (c *core) awaitProgress(ctx context.Context, done <-chan struct{}, timeout time.Duration) error {
	for {
		last := c.progress.Load()
		step, cancel := context.WithTimeout(ctx, timeout-(clock.Now().Mono-time.Duration(last)))
		ended := await(step, done)
		cancel()
		switch {
		case ended:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case c.progress.Load() == last:
			return fmt.Errorf("%w within %v", errNoAnswer, timeout)
		}
	}
}

// await waits until done is closed, or reports false when ctx is done first.
func await(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
