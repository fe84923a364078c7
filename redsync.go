package redsync

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed14bd9ef4/redsync/internal/script"
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
// New starts nothing and never fails; no pools, or a nil one, is the error of
// the first operation.
func New(pools ...pool.Pool) *Redsync {
	set := defaultSettings()
	set.prepare()
	return &Redsync{core: newCore(pools), set: &set}
}

// Open connects to the nodes at addresses, "host:port" or redis://, rediss:// or
// unix:// URLs, and returns once a quorum has answered, else an error naming
// each node. It waits no longer than 5 s. The options are defaults for the
// Redsync's locks. Close ends its connections. For the options of a pool, such as
// pool.WithRestartGuard, use New.
func Open(ctx context.Context, addresses []string, options ...Option) (*Redsync, error) {
	pools := make([]pool.Pool, 0, len(addresses))
	seen := make(map[string]bool)
	for i, address := range addresses {
		opt, err := parseAddress(address)
		if err != nil {
			return nil, fmt.Errorf("redsync: Open: address #%d: %w", i, err)
		}
		if seen[opt.Addr] {
			return nil, fmt.Errorf("redsync: Open: address #%d: %q is there twice: each node counts once", i, opt.Addr)
		}
		seen[opt.Addr] = true
		// The client itself stays unused and starts nothing: its pool reads
		// the options.
		opt.MinIdleConns = 0
		opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		pools = append(pools, pool.New(redis.NewClient(opt)))
	}
	rs := New(pools...).With(options...)
	rs.core.owned = true
	if err := rs.ping(ctx); err != nil {
		return nil, errors.Join(err, rs.Close(ctx))
	}
	return rs, nil
}

// openTimeout bounds Open.
const openTimeout = 5 * time.Second

func parseAddress(address string) (*redis.Options, error) {
	if strings.Contains(address, "://") {
		opt, err := redis.ParseURL(address)
		switch {
		case err == nil:
			return opt, nil
		case strings.Contains(address, "@"):
			// The parser's words may quote a part of the password.
			return nil, fmt.Errorf("%q cannot be parsed as a URL", redacted(address))
		default:
			return nil, fmt.Errorf("%q: %w", address, err)
		}
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" || strings.Contains(address, "@") {
		return nil, fmt.Errorf("%q is not of the form host:port or redis://", redacted(address))
	}
	return &redis.Options{Addr: address}, nil
}

// redacted cuts what may be a password out of an address.
func redacted(address string) string {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return address
	}
	if scheme, _, ok := strings.Cut(address, "://"); ok {
		return scheme + "://..." + address[at:]
	}
	return "..." + address[at:]
}

// ping returns nil once a quorum of nodes has answered.
func (r *Redsync) ping(ctx context.Context) error {
	c := r.core
	if err := c.enter(); err != nil {
		return err
	}
	defer c.exit()
	ctx, start := orBackground(ctx), time.Now()
	b := bounds{decide: openTimeout, node: openTimeout}
	res := startRound(c, ping{}, false).wait(ctx, b)
	if left := openTimeout - time.Since(start); !res.tally.won() && ctx.Err() == nil && left > 0 {
		// Once more, for what every node has to say.
		b = bounds{decide: left, node: left}
		res = startRound(c, ping{}, true).wait(ctx, b)
	}
	if err := c.duplicate(); err != nil {
		return fmt.Errorf("redsync: Open: %w", err)
	}
	if res.tally.won() {
		return nil
	}
	return fmt.Errorf("redsync: Open: %d of %d nodes answered, %d needed: %w",
		res.tally.granted, res.tally.n, quorumOf(res.tally.n), nodeErrors(res.errs))
}

// With returns a Redsync on the same nodes whose locks have other defaults.
// Closing one closes all.
func (r *Redsync) With(options ...Option) *Redsync {
	m := Mutex{set: r.set}
	m.apply(options)
	return &Redsync{core: r.core, set: m.set}
}

// NewMutex returns a lock with the given name, which is its Redis key. It sends
// nothing. The name must not be empty, nor of the form {x}:fence or {x}:queue,
// which belong to the lock named x; with such a name, or an option out of its
// range, every operation fails and says so.
func (r *Redsync) NewMutex(name string, options ...Option) *Mutex {
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
// It waits until every node has answered or failed, ctx is done, or the node
// deadline of r's options (at least 50 ms) has passed; in the latter two cases it
// returns an error. nil does not say that every key is gone: what a node that
// failed still holds runs out within the expiry.
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

	census    census
	holds     schedule // of every hold, its expiry
	extends   schedule // watchdogs
	repeats   schedule // releases to be sent again
	unsettled gauge    // releases not settled, one per node
	active    gauge    // operations under way
	notices   notices

	isClosed atomic.Bool
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
	c.extends.burst = extendsInARow
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
			c.err = fmt.Errorf("redsync: pool #%d: %w", i, err)
		}
	}
	return c
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
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w within %v", errNoAnswer, timeout))
	defer cancel()
	close(c.closing)
	c.extends.close()
	c.holds.close()
	// Operations under way give up at their next step, or have a deadline.
	await(ctx, c.active.zero())
	c.repeats.close()
	if !await(ctx, c.unsettled.zero()) {
		err = fmt.Errorf("redsync: Close: keys are left to their expiry: %w", context.Cause(ctx))
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

// ping is the round that asks whether nodes answer.
type ping struct{}

func (ping) command() script.Command { return script.Ping() }
func (ping) sending(int)             {}
func (ping) unsent(int)              {}
func (ping) explains() bool          { return false }
func (ping) witnessed() *witness     { return nil }
func (ping) onWon(instant)           {}

func (ping) judge(i int, reply pool.Reply) (vote, error) {
	if reply.Err != nil {
		return failed, &RedisError{Node: i, Err: reply.Err}
	}
	return granted, nil
}
