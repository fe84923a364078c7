package redsync

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync/atomic"
	"time"
	"weak"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/journal"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/notice"
	"github.com/seed14bd9ef4/redsync/internal/queue"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A Redsync makes locks on a set of independent Redis nodes. Many goroutines may use it at once. A nil context stands
// for context.Background().
type Redsync struct {
	core *core
	set  *settings
}

// New returns a Redsync on the nodes behind pools, one each: independent primaries, no two of them one server, or
// replicas of each other. A lock needs N/2 + 1 of them: with five nodes, two may fail.
//
// New starts nothing and never fails. Every operation fails if there are no pools or more than 64, if one is nil or can
// never send (see pool.New), or if two lead to one address or one client.
func New(pools ...pool.Pool) *Redsync {
	return newRedsync(newCore(pools, formOf(len(pools)), unusable(pools)))
}

func newRedsync(c *core) *Redsync {
	set := newSettings(&defaultOptions)
	set.prepare()
	return &Redsync{core: c, set: set}
}

// Close unlocks what is still held, and waits until a quorum has confirmed every release, ctx is done, or the keys have
// run out. Even if ctx is done, it writes every release, and gives calls under way, and then the nodes, one node
// deadline each (50 to 500 ms).
//
// End your work first: its locks are over when Close begins. Close your own clients afterwards: without a quorum of
// them the locks stay on the nodes until they expire.
//
// Later operations fail with ErrClosed. A second Close waits likewise, and returns the same.
//
// Errors:
//
//   - ErrNoQuorum, if a quorum has not confirmed a release. It names at most ten of the locks, their number, the nodes,
//     and when the keys are gone. errors.As finds a *RedisError for each node.
func (r *Redsync) Close(ctx context.Context) error {
	if r == nil || r.core == nil {
		return nil
	}
	ctx = orBackground(ctx)
	timeout := minNodeTimeout
	if p := r.set.policy; p != nil {
		timeout = max(timeout, p.Timing.NodeTimeout)
	}
	return r.core.close(ctx, timeout)
}

// core is what all copies of a Redsync and all its locks share.
type core struct {
	keeper  lease.Keeper
	member  *queue.Member
	notices *notice.Queue                   // apart: its goroutine must not keep core in memory
	states  atomic.Pointer[journal.Journal] // nil without WithLogger
	err     error                           // why the pools cannot be used
	owned   bool                            // Close closes the pools

	recents recents

	closed   chan struct{} // then closeErr is set
	closeErr error
}

func newCore(pools []pool.Pool, rule claim.Rule, err error) *core {
	c := &core{notices: &notice.Queue{}, err: err, closed: make(chan struct{})}
	c.member = queue.GroupOf(pools, rule).Join()
	c.keeper.Set = quorum.NewSet(pools, c.member.Group.Known, rule)
	c.keeper.Errors, c.keeper.Tokens = &ends, &c.member.Group.Tokens
	c.keeper.Process, c.keeper.Waiters = c.member.Group.Process, c.member.Group
	c.keeper.Init()
	runtime.AddCleanup(c, (*queue.Member).Collected, c.member)
	return c
}

func (c *core) journal() *journal.Journal {
	switch {
	case c == nil:
		return nil
	case c.states.Load() == nil:
		known := weak.Make(c) // others' nodes may know the log
		c.states.CompareAndSwap(nil, journal.New(c.notices, func() map[string]int {
			if open := known.Value(); open != nil {
				return open.member.Group.Waiting(&open.keeper)
			}
			return nil
		}))
	}
	return c.states.Load()
}

func (c *core) queue() *notice.Queue {
	if c == nil {
		return nil
	}
	return c.notices
}

func unusable(pools []pool.Pool) error {
	switch {
	case len(pools) == 0:
		return ErrNoPools
	case len(pools) > claim.MaxNodes:
		return fmt.Errorf("redsync: %d pools are too many: at most %d", len(pools), claim.MaxNodes)
	}
	for i, p := range pools {
		if err := quorum.Unusable(p); err != nil {
			return fail(fmt.Sprintf("pool #%d", i), "", err)
		}
	}
	return twice(pools)
}

// twice finds pools that are known to lead to one node. quorum.Set.NoteServer finds others by their answers.
func twice(pools []pool.Pool) error {
	seen := make(map[any]int, len(pools))
	for i, p := range pools {
		where := destination(p)
		if where == nil {
			continue
		}
		if first, there := seen[where]; there {
			return duplicateError(first, pools[first].String(), i, p.String())
		}
		seen[where] = i
	}
	return nil
}

// destination returns a comparable value for the node of p, nil if there is none.
func destination(p pool.Pool) any {
	where := any(p)
	if known, ok := p.(wire.Located); ok {
		where = known.Destination()
	}
	if !reflect.ValueOf(where).Comparable() {
		return nil
	}
	return where
}

func (c *core) beginCall() error {
	switch {
	case c == nil:
		return ErrNoPools
	case c.err != nil:
		return c.err
	case !c.keeper.BeginCall():
		return ErrClosed
	}
	return nil
}

func (c *core) close(ctx context.Context, timeout time.Duration) error {
	ctx, stop := apart(ctx, func(h *lease.Lease) bool { return h.Terms().Keeper == &c.keeper })
	defer stop()
	switch {
	case c.err != nil:
		return nil //nolint:nilerr // nothing has ever started
	case c.keeper.BeginClose():
		c.closeErr = c.shutDown(ctx, timeout)
		close(c.closed)
	case !c.awaitClosed(ctx, timeout):
		return fmt.Errorf("redsync: Close: another call is closing: %w", context.Cause(ctx))
	}
	return c.closeErr
}

// awaitClosed waits for the call that closes c. If ctx is done first, the releases get a Grace: the program may end
// after either call.
func (c *core) awaitClosed(ctx context.Context, timeout time.Duration) bool {
	ctx, stop := lease.Grace(ctx, timeout)
	defer stop()
	return lease.Await(ctx, c.closed)
}

func (c *core) shutDown(ctx context.Context, timeout time.Duration) (err error) {
	if rest := c.keeper.Close(ctx, timeout, c.member.Leave); len(rest.Names) > 0 {
		err = c.notReleased(rest)
	}
	c.keeper.Set.Retire()
	if j := c.states.Load(); j != nil {
		j.Close()
	}
	c.notices.Close(timeout)
	for _, n := range c.keeper.Set.Nodes {
		if c.owned {
			_ = n.Close()
		} else {
			n.CloseIdle()
		}
	}
	return err
}

func (c *core) notReleased(rest lease.Rest) error {
	var nodes []error
	for i, n := range c.keeper.Set.Nodes {
		if rest.Nodes.Has(i) {
			nodes = append(nodes, nodeError(i, n.Address(), rest.Errs[i]))
		}
	}
	locks := "locks"
	if len(rest.Names) == 1 {
		locks = "lock"
	}
	text := fmt.Sprintf("no quorum has confirmed the release of %d %s (%s)", len(rest.Names), locks, quotedAll(rest.Names))
	switch rest.Attempts {
	case 0:
	case len(rest.Names):
		text += " after failed attempts"
	default:
		text += fmt.Sprintf(", %d of them after failed attempts", rest.Attempts)
	}
	keys := note("keys that were left have expired")
	if rest.Within >= 0 {
		keys = notef("keys that are left go in %v at the latest", journal.Rounded(rest.Within))
	}
	return fail("Close", "", &said{ErrNoQuorum, text}, rest.Reason, &failure{nodes: nodes}, keys)
}

// allows returns an error if keys may outlast the restart guard of some node.
func (c *core) allows(t *lease.Timing) error {
	n, longest := c.keeper.Set.Guard()
	switch {
	case n == nil:
		return nil
	case t.MinHold > longest:
		return outOfRange("WithMinHold", t.MinHold, fmt.Sprintf(
			"with its drift at most %v, which pool #%d guards (pool.WithRestartGuard)", longest, n.Index))
	case t.TTL > longest:
		return outOfRange("WithExpiry and WithLockDelay", t.TTL, fmt.Sprintf(
			"together at most %v, which pool #%d guards (pool.WithRestartGuard)", longest, n.Index))
	}
	return nil
}

func (c *core) checkNames(prefix string, names []string) error {
	if len(names) == 0 || len(names) > claim.MaxLines {
		return fmt.Errorf("redsync: NewMultiMutex: %d names are %w: 1 to %d", len(names), errOutOfRange, claim.MaxLines)
	}
	for _, name := range names {
		if err := checkName(prefix, name); err != nil {
			return err
		}
	}
	if c == nil || c.err != nil {
		return nil //nolint:nilerr // see above
	}
	if n, a, b := c.keeper.Set.Apart(names); n != nil {
		return fail(fmt.Sprintf("pool #%d", n.Index), "", fmt.Errorf(
			"the names %s and %s do not lie in one slot: give them a common hash tag, as in {tag}:name", quoted(a), quoted(b)))
	}
	return nil
}

func checkName(prefix, name string) error {
	if len(name) == len(prefix) {
		return errors.New("redsync: the name of a Mutex must not be empty")
	}
	if side := script.Reserved(name); side != "" {
		return fmt.Errorf("redsync: the name %s is reserved: {x}%s belongs to the lock x", quoted(name), side)
	}
	return nil
}

func orBackground(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}
