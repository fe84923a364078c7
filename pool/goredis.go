package pool

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
)

// An Option configures a Pool of New.
type Option func(*config)

// WithOutstanding sets how many replies the node may owe before Send refuses further requests, so
// that a frozen node costs neither latency nor memory. The default is 4096, the range 1 to 16384. A
// larger limit tolerates longer pauses of a node under load, a smaller one holds less memory during
// them. The limit does not refuse a request with Request.Reserved set, but counts it.
func WithOutstanding(limit int) Option {
	return func(c *config) {
		if limit < 1 || limit > maxOutstanding {
			c.err = fmt.Errorf("pool: WithOutstanding(%d) is out of range: 1 to %d", limit, maxOutstanding)
		}
		c.outstanding = limit
	}
}

// WithRestartGuard ignores the votes of a restarted node until all locks that it may have
// forgotten have expired. Without it a node that comes back without its keys, or with those of
// its last fsync, grants locks that others still hold, and two processes may hold one lock.
//
// maxExpiry is the longest of these times of all programs on these nodes: an expiry plus its lock
// delay, or redsync.WithMinHold plus its drift. It must be more than 0. Without this option there
// is no guard. A Redsync counts no grant and no extension of a node whose server started less than
// maxExpiry + drift + 1 s before the request. With redsync.WithFencing that time is 10 s and three
// node deadlines longer. The Redsync refuses a Mutex that needs a longer maxExpiry. Releases are
// always sent.
//
// The guard costs nothing per operation: the pool asks for INFO when it opens a connection, in a
// round trip that it makes anyway. The price is availability: a restarted node counts as down for
// that time, and the other nodes must form a quorum. In a fresh deployment all nodes have just
// started, so nobody acquires a lock for that time. WithNoLocksBefore avoids this.
//
// The client's user needs permission for INFO (+info). A node that refuses INFO, or whose INFO has no
// uptime_in_seconds, never counts.
//
// If INFO has no run_id, or with WithoutIdentity, the guard tells servers apart by their start alone. Then it does not notice
// that an address leads to another server that started within a few seconds of the first.
//
// The guard cannot detect FLUSHALL, eviction (set maxmemory-policy noeviction), a failover to a
// replica that lacks keys, a change of the server's clock while it runs, or a restart behind a
// TCP proxy that keeps the client's connection open.
//
// The guard needs a *redis.Client, which reaches one server at a time. With any other client
// (*redis.ClusterClient, *redis.Ring, ...), or with a maxExpiry out of range, Err and every Send
// return an error.
func WithRestartGuard(maxExpiry time.Duration) Option {
	return func(c *config) {
		if maxExpiry <= 0 {
			c.err = fmt.Errorf("pool: WithRestartGuard(%v) is out of range: more than 0", maxExpiry)
			return
		}
		c.guard = maxExpiry
	}
}

// WithNoLocksBefore declares that nobody held a lock on the node before t. Then a server that started before t has
// forgotten no lock. Its replies have Server.New set, and the restart guard does not wait for it. A server that starts
// later is guarded as usual, so the option can stay in the code for good. By default nothing is declared, and the zero
// time declares nothing either. Without WithRestartGuard the option changes only Server.New.
//
// It is for a fresh deployment, for tests, and for programs that start their own nodes. t must be a fixed moment
// between the start of the nodes and the first lock on them. Write it as a constant, or store it:
//
//	pool.WithNoLocksBefore(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
//
// Choose t at least 3 s after the start of the nodes. The option forbids no lock before t: a program that starts earlier
// must itself wait until t. A server tells its uptime in whole seconds, so the guard may wait for one that started less
// than 2 s before t. A server that started at t or later never has Server.New set while the client's clock is right. If
// that clock is behind by x, a server that started up to x after t may have it set.
//
// A t that moves with each start of the program would be dangerous: a process that starts after the nodes have
// restarted could get a lock that another process holds. So a t with a monotonic clock reading, as time.Now returns it,
// is an error. Do not strip the reading to avoid the error, unless the program itself has started the nodes. A t more
// than a minute ahead of the client's clock is an error, too, because the guard would be off until t. Err and every
// Send return the error.
func WithNoLocksBefore(t time.Time) Option {
	return func(c *config) {
		switch {
		case t != t.Round(0): // Round(0) strips the monotonic reading
			c.err = fmt.Errorf("pool: WithNoLocksBefore(%v) has a monotonic clock reading, as time.Now returns it: "+
				"give a fixed moment, such as time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC), or a stored one", t)
			return
		case time.Until(t) > maxAhead:
			c.err = fmt.Errorf("pool: WithNoLocksBefore(%v) is out of range: at most a minute ahead of the clock", t)
			return
		}
		c.noLocksBefore = t
	}
}

// maxAhead is how far ahead of the clock the time of WithNoLocksBefore may be.
const maxAhead = time.Minute

// WithName sets what errors, events and the log call the node: String returns name. By default that is the client's
// address, without what may be a password. For a *redis.Client without an address, such as a Sentinel client, it is the
// one that its last connection reached. For another type of client it is the name of that type. name must have 1 to 128
// bytes, and no control characters. Otherwise Err and every Send return an error. The name decides nothing: two pools
// may have the same one.
func WithName(name string) Option {
	return func(c *config) {
		if name == "" || len(name) > maxName || strings.ContainsFunc(name, unicode.IsControl) {
			c.err = fmt.Errorf("pool: WithName(%q) is out of range: 1 to %d bytes without control characters", cut(name), maxName)
			return
		}
		c.name = name
	}
}

// WithoutIdentity makes the pool leave Reply.Server nil, and not ask for INFO unless another pool of the client does. By
// default Reply.Server identifies the server process that answers. With WithRestartGuard the pool does ask, and Reply.Server
// only tells how long the server has been running: its RunID is "".
//
// It is also for proxies that end the connection at INFO.
//
// It is for nodes whose run_id does not distinguish servers: some managed services and
// Redis-compatible servers report the same constant everywhere, and clones of one virtual machine
// may report the same value. Nodes that report none, or zeros alone, do not need it. Without this option a Redsync mistakes such nodes for one server,
// which counts once. It fails with redsync.ErrDuplicateNode if too few nodes are left.
//
// The price: a server at two addresses may count twice, so two quorums may share no server. Make
// sure that each pool leads to a different server. A Redsync still refuses two pools with the same
// address or the same client.
func WithoutIdentity() Option {
	return func(c *config) { c.anonymous = true }
}

// WithoutHooks says that no hook of the client need be called for locks. By default New warns of hooks. The option changes
// nothing else.
func WithoutHooks() Option {
	return func(c *config) { c.hooksAreKnown = true }
}

// ViaClient makes the pool send each command through the client, by its method Process, and not through a connection of
// the pool's own. So hooks, limiters, retries (MaxRetries) and connections of the client are used as for the program's own
// commands. It is for a client whose hooks must see locks, such as one that puts a prefix before keys, while other programs
// rely on that. Without such a need, redsync.WithPrefix is the better way.
//
// A hook must rewrite the keys of SET, GET, PTTL and PUBLISH alike, and those of EVALSHA and EVAL (KEYS, after the number of
// keys), or locks do not work. Wake-ups that it sends to other channels are lost: waiters then try again by their timers.
//
// The price: the pool sends one command at a time, so a node carries out one command of a Redsync in each round trip.
// When a call of the client takes longer than 200 ms, the next begins beside it, up to four; after 5 s a command counts as
// unanswered. Commands that wait longer than their sender fail unsent.
// The pool does not notice a silent connection earlier, and does not know which server answers (Reply.Server is nil,
// Reply.Conn is 0). When the client sends a SET with NX again and finds the key, the reply is Unknown, because the key may be
// the lock's own: a Lock then asks once more. With MaxRetries -1 the client sends nothing again. Releases are repeated more
// often. The option excludes WithRestartGuard: with both, Err and every Send return an error.
func ViaClient() Option {
	return func(c *config) { c.viaClient = true }
}

// New returns a Pool for the node behind client: a *redis.Client (failover clients of Sentinel
// included), or any other redis.UniversalClient.
//
// The pool does not send through a *redis.Client: it has a stream of its own, shared by all pools
// of the same client. The stream starts with the first Send, stops when idle for half a minute, and
// leaves the user's client untouched. go-redis opens the stream's connection and greets the node,
// with the client's Dialer, TLS, Sentinel, credentials, DB, ClientName, OnConnect and timeouts.
// Then the pool writes requests and reads replies. Hooks, limiters and client-side caches of the
// user's client do not apply, unless ViaClient is set. If the client has hooks, New writes one line at level Warn to
// slog.Default(), once for each client; if they were added later, the first stream that starts then writes it.
// Instrumentation adds hooks, too. WithoutHooks silences the line.
//
// A connection carries requests only if its greeting is complete. If the node or OnConnect
// refuses a part of it (a wrong password, a DB that the user may not SELECT), requests fail with
// that error and are not sent. When a StreamingCredentialsProvider replaces the credentials, the
// pool opens a new connection with the new ones, and closes the old one once its replies have
// arrived. A reply to the greeting may take 1 MiB of memory at most.
//
// The pool gives up a connection that owes replies and is silent for ReadTimeout, 5 s at most.
// After ConnMaxLifetime it exchanges the connection for a new one, as soon as nothing is
// outstanding on it. It does the same when the node answers NOAUTH or READONLY, because only a new
// connection uses new credentials and looks up the host name again. After repeated failures to
// connect, the pool pauses for 100 ms between attempts. Meanwhile requests fail at once.
//
// A connection may die silently, because a firewall or a NAT forgets it. When a connection that
// owes replies is silent for longer than its requests want (Request.Within, at least 50 ms), the
// stream opens a second one. If the node answers the second one's greeting while the first is still
// silent, the second replaces the first, and the requests unanswered on the first get the Fate
// Unknown. If data arrives on the first, the stream closes the second, and for a minute it waits
// twice as long before it opens another. A node that freezes briefly answers on neither, so it
// keeps its connection.
//
// With a *redis.ClusterClient each request goes through such a stream to the master that has its
// key, and with a *redis.Ring through a stream to the shard that has its key. The client only
// tells which node that is; its own connections are not used. The limit of outstanding requests
// applies to each node separately, and a frozen node delays no request to another. The pool
// follows MOVED and ASK itself, at most MaxRedirects times for one request. It promises no order
// of execution across nodes: Reply.Conn is 0 and Reply.Server nil. Replies of different nodes may
// arrive in another order than the requests were sent. Before the first request the client loads
// the state of the cluster. Requests sent meanwhile wait for that, 5 s at most; if the
// client ignores this limit, its own timeouts apply.
//
// A stream ends when the client would not use its connection any more. If the node announces maintenance (MOVING, as Redis
// Enterprise and cloud services push it), the stream moves when go-redis moves. While the node is migrated or fails over,
// the stream waits up to 5 s for a reply, and opens no second connection. For that the client must have Protocol 3, and
// maintenance notifications that are not disabled: both are defaults. What the old connection owes is answered, or it is
// Unknown. If a Cluster has another master for a key, or a Ring another shard, what the old one owes for that key is
// Unknown after at most 100 ms, and later requests go to the new one. While a master of a Cluster is silent, the pool asks
// the client four times a second to reload its state. Subscriptions move, too.
//
// Any other client is used directly, one Pipeline at a time; its own timeouts bound how long a
// frozen server delays later requests.
//
// A stream asks for INFO server on every connection that it opens. The answer becomes
// Reply.Server. If the node refuses, the stream does not ask again on that connection.
//
// All these pools are Subscribers. With a *redis.Client each Subscription has a connection of its
// own, opened with a copy of the client's options.
//
// Close a Redsync before the clients that it uses. If the user closes a client first, its streams, subscriptions and
// their connections end within a second. Unanswered requests, and every later Send, fail with ErrClientClosed. A dial
// that ignores its context may take longer, up to its timeout. The pool looks at the client ten times a second while it
// has a stream or a subscription. That sends nothing. If the client is no *redis.Client, *redis.ClusterClient or
// *redis.Ring, the pool notices only when it sends a request.
//
// New starts nothing and never fails. If the client is nil, or a mock of redismock and ViaClient is not set, an option is
// out of range or does not suit the client, or the address cannot be dialed, every Send returns an error.
func New(client redis.UniversalClient, options ...Option) Pool {
	cfg := configOf(options)
	if isNil(client) {
		cfg.err = fmt.Errorf("pool: nil client (%T)", client)
	} else if isMock(client) && !cfg.viaClient {
		cfg.err = cmp.Or(cfg.err, errMock)
	}
	if c, ok := client.(*redis.Client); ok && c != nil {
		cfg.err = cmp.Or(cfg.err, badAddress(c.Options()))
		if !cfg.viaClient {
			p := newStreamPool(cfg, c, c)
			p.warnOfHooks(c, nil, p.String(), atOnce)
			return p
		}
	}
	switch {
	case cfg.guard == 0 || cfg.err != nil:
	case cfg.viaClient:
		cfg.err = errors.New("pool: WithRestartGuard excludes ViaClient: a client does not tell when a connection is opened")
	default:
		cfg.err = fmt.Errorf("pool: WithRestartGuard(%v) needs a *redis.Client: a %T does not tell when a connection is opened", cfg.guard, client)
	}
	switch client.(type) {
	case *redis.ClusterClient, *redis.Ring:
		if cfg.err == nil && !cfg.viaClient {
			p := newRoutedPool(cfg, client)
			p.warnOfHooks(client, nil, p.String(), atOnce)
			return p
		}
	}
	return newBatchPool(cfg, client)
}

// configOf returns what options set.
func configOf(options []Option) config {
	cfg := config{outstanding: defaultOutstanding}
	for _, option := range options {
		if option == nil {
			cfg.err = errors.New("pool: nil Option")
			continue
		}
		option(&cfg)
	}
	return cfg
}

func atOnce(line func()) { line() }

func isNil(client redis.UniversalClient) bool {
	v := reflect.ValueOf(client)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
