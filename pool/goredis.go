package pool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// defaultOutstanding is far more than a healthy node ever owes, and little
	// memory when a frozen one does (measured: a stream without a limit stalled
	// every caller for 21 s behind one frozen node).
	defaultOutstanding = 2048

	// maxOutstanding keeps requests and reserved requests together below the
	// stream's window of 65,536, at which go-redis would make Send wait.
	maxOutstanding = 16384

	// maxOwed bounds requests of every kind, reserved ones included.
	maxOwed = 2 * maxOutstanding

	// maxReadTimeout bounds how long a silent connection is trusted, whatever
	// the user's client allows; without a bound a stream cannot be closed.
	maxReadTimeout = 5 * time.Second
)

// An Option configures a Pool of New.
type Option func(*config)

type config struct {
	outstanding int
	guard       time.Duration
	newNodes    bool
	err         error
}

// Err returns why no Send can ever succeed: the pool was made from a nil
// client, with an option out of its range, or with one that its client cannot
// have. A Redsync asks for it, so that its first operation fails at once instead
// of trying again.
func (c *config) Err() error { return c.err }

// RestartGuard returns the longest expiry plus lock delay of WithRestartGuard, 0
// without a guard. A Redsync asks for it.
func (c *config) RestartGuard() time.Duration { return c.guard }

// usable returns why req cannot be sent.
func (c *config) usable(req Request) error {
	if c.err == nil && (len(req.Args) == 0 || req.To == nil) {
		return errors.New("pool: a Request needs Args and To")
	}
	return c.err
}

// WithOutstanding sets how many replies the node may owe before Send refuses
// further requests, so that a frozen node costs neither latency nor memory.
// The default is 2048, the range 1 to 16384. A larger limit rides out longer
// pauses of a node under load, a smaller one holds less memory during them.
// Reserved requests are not refused by it, but take room like any other.
func WithOutstanding(limit int) Option {
	return func(c *config) {
		if limit < 1 || limit > maxOutstanding {
			c.err = fmt.Errorf("pool: WithOutstanding(%d) is out of range: 1 to %d", limit, maxOutstanding)
		}
		c.outstanding = limit
	}
}

// WithRestartGuard makes a node that has restarted count for nothing until all
// locks that it may have forgotten have expired. Without it a node that comes
// back without its keys, or with those of its last fsync, grants locks that
// others still hold, and two processes may hold one lock.
//
// MaxExpiry is the longest expiry plus lock delay that anyone uses on these nodes,
// other programs included. It must be more than 0; there is no default, and so no
// guard, without this option. A Redsync counts no grant and no extension of a
// node whose server started less than maxExpiry + drift + 1 s before; it refuses
// a Mutex whose expiry plus lock delay is longer. Releases are sent always.
//
// The guard costs nothing per operation: a server is asked for INFO when a
// connection to it is opened, in a round trip that is made anyway. It costs
// availability: a node that has restarted is as good as down for that time, and
// a quorum must be found without it. All nodes of a fresh deployment have just
// started, so that the first lock waits as long; WithNewNodes waives that.
//
// The user of the client must be allowed INFO (+info): a node that refuses it
// never counts.
//
// What the guard cannot see: FLUSHALL, eviction (have maxmemory-policy
// noeviction), a failover to a replica that lacks keys, a server's clock that is
// set while it runs, and a restart behind a TCP proxy that keeps the client's
// connection open.
//
// It needs a *redis.Client, whose connections can be watched. With any other
// client (*redis.ClusterClient, *redis.Ring, ...) it is the error of Err and of
// every Send, as is a maxExpiry out of range.
func WithRestartGuard(maxExpiry time.Duration) Option {
	return func(c *config) {
		if maxExpiry <= 0 {
			c.err = fmt.Errorf("pool: WithRestartGuard(%v) is out of range: more than 0", maxExpiry)
			return
		}
		c.guard = maxExpiry
	}
}

// WithNewNodes says that the node is new: nobody has held a lock on it before its
// server started, so that the restart guard need not wait for anything. The first
// server process that the Pool meets has Server.New set, in all its replies; one
// that starts later has not.
//
// It is for a fresh deployment, for tests, and for programs that start their own
// nodes. A program that says so while the nodes have in fact restarted lets two
// processes hold one lock; the library cannot tell, because a power failure looks
// the same. Without WithRestartGuard it changes nothing but that field.
func WithNewNodes() Option {
	return func(c *config) { c.newNodes = true }
}

// New returns a Pool for the node behind client: a *redis.Client (Sentinel
// failover clients are such), or any other redis.UniversalClient.
//
// A *redis.Client is not used itself: the pool opens a stream of its own, on a
// copy of the client's options without retries, shared by all pools of the same
// client. It starts with the first Send, stops when idle for half a minute, and
// leaves the user's client untouched. Hooks, limiters and client-side caches of
// the user's client do not apply to it.
//
// Other clients, *redis.ClusterClient among them, offer no stream whose Submit
// never waits (routing may have to load the slots first). They are used
// directly, one Pipeline at a time; their own timeouts bound how long a frozen
// server holds up what is sent behind.
//
// A stream asks for INFO server on every connection that it opens, which tells
// Reply.Server. A node that refuses is not asked again on that connection.
//
// Both kinds are Subscribers. A *redis.Client is not used for that either: each
// Subscription has a connection of its own, on a copy of the client's options, and
// goes on when the client is closed.
//
// New starts nothing and never fails; a nil client, or an option out of its range
// or not for this client, is the error of every Send.
func New(client redis.UniversalClient, options ...Option) Pool {
	cfg := config{outstanding: defaultOutstanding}
	for _, option := range options {
		if option == nil {
			cfg.err = errors.New("pool: nil Option")
			continue
		}
		option(&cfg)
	}
	if isNil(client) {
		cfg.err = fmt.Errorf("pool: nil client (%T)", client)
	} else if c, ok := client.(*redis.Client); ok {
		return &streamPool{config: cfg, client: c}
	}
	if cfg.guard > 0 && cfg.err == nil {
		cfg.err = fmt.Errorf("pool: WithRestartGuard(%v) needs a *redis.Client: a %T does not tell when a connection is opened", cfg.guard, client)
	}
	return &batchPool{config: cfg, client: client}
}

func isNil(client redis.UniversalClient) bool {
	v := reflect.ValueOf(client)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// streamOptions copies the options of a user's client for a stream. Every
// difference is one that the contract of Pool needs.
func streamOptions(user *redis.Options, d *dials) *redis.Options {
	opt := ownOptions(user)
	opt.ContextTimeoutEnabled = false
	opt.Dialer = d.wrap(opt.Dialer)
	opt.OnConnect = d.prepare(opt.OnConnect)
	return opt
}

// ownOptions copies the options of a user's client for a client that carries one
// connection of ours.
func ownOptions(user *redis.Options) *redis.Options {
	opt := *user
	opt.MaxRetries = -1   // a command is sent at most once
	opt.DialerRetries = 1 // a dead node is told at once
	opt.Protocol = 2      // nothing is pushed, so that no reply is searched for it
	opt.ReadTimeout = boundedTimeout(opt.ReadTimeout)
	opt.WriteTimeout = boundedTimeout(opt.WriteTimeout)

	// One connection is used. The second pool is where go-redis looks when the
	// first fails to dial.
	opt.PoolSize, opt.PipelinePoolSize = 2, 2
	opt.MinIdleConns, opt.MaxIdleConns, opt.MaxActiveConns = 0, 0, 0
	opt.MaxConcurrentDials = 0
	opt.PoolTimeout = 0

	// What could answer in the node's place, or delay or divert a command.
	opt.Limiter = nil
	opt.AutoPipelineOptions = nil
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	opt.ClientSideCacheConfig, opt.ClientSideCache = nil, nil
	opt.PushNotificationProcessor = nil // go-redis has put the one of the user's client here
	return &opt
}

// boundedTimeout takes an I/O timeout as go-redis stores it, where 0 and less
// mean none.
func boundedTimeout(d time.Duration) time.Duration {
	if d <= 0 || d > maxReadTimeout {
		return maxReadTimeout
	}
	return d
}

// prepare returns an OnConnect that runs the user's own, then asks the node who
// it is and gives it every script, in one round trip. A node may refuse either,
// for want of permission: it is unknown then, and answers NOSCRIPT later and is
// sent the source. Any other failure is the connection's.
func (d *dials) prepare(user func(context.Context, *redis.Conn) error) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, cn *redis.Conn) error {
		if user != nil {
			if err := user(ctx, cn); err != nil {
				return err
			}
		}
		covers := d.opened.Load() // before INFO is sent
		var info *redis.Cmd
		cmds, _ := cn.Pipelined(ctx, func(p redis.Pipeliner) error { // every command has its own error
			info = p.Do(ctx, infoArgs...)
			for _, script := range knownScripts() {
				p.ScriptLoad(ctx, script.source)
			}
			return nil
		})
		for _, cmd := range cmds {
			var refused redis.Error
			if err := cmd.Err(); err != nil && !errors.As(err, &refused) {
				return err
			}
		}
		text, _ := info.Val().(string)
		d.learn(covers, text, info.Err())
		return nil
	}
}

// connections counts what all streams begin to open, so that a client's next
// stream goes on where its last one ended.
var connections atomic.Uint64

// dials numbers the connections that a stream begins to open, and marks the
// errors of those that fail: a request that never had a connection was not sent.
// It counts those that succeed, and holds what is known of who is at their end.
type dials struct {
	newest   atomic.Uint64
	opened   atomic.Uint64
	identity atomic.Pointer[identity]
}

// begin makes newest a number that no connection has had. Of two dials at once
// the higher number stays.
func (d *dials) begin() {
	n := connections.Add(1)
	for {
		old := d.newest.Load()
		if old >= n || d.newest.CompareAndSwap(old, n) {
			return
		}
	}
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

func (d *dials) wrap(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		d.begin()
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, &dialError{err}
		}
		d.opened.Add(1) // before anything can be read from conn
		return conn, nil
	}
}

type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// replyOf is the reply of an executed command.
func replyOf(cmd *redis.Cmd, conn uint64) Reply {
	value, err := cmd.Result()
	if err != nil {
		return failure(err, conn)
	}
	return Reply{Value: value, Fate: Answered, Conn: conn}
}

// failure is the reply of a command that ended with err.
func failure(err error, conn uint64) Reply {
	var answer redis.Error
	var dial *dialError
	switch {
	case errors.Is(err, redis.Nil):
		return Reply{Fate: Answered, Conn: conn}
	case errors.As(err, &dial):
		return Reply{Err: err, Fate: NotSent, Conn: conn}
	case errors.As(err, &answer):
		return Reply{Err: err, Fate: Answered, Conn: conn}
	default:
		return Reply{Err: err, Fate: Unknown, Conn: conn}
	}
}
