package pool

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"
)

// An Option configures a Pool of New.
type Option func(*config)

// WithOutstanding sets how many replies the node may owe before Send refuses
// further requests, so that a frozen node costs neither latency nor memory.
// The default is 4096, the range 1 to 16384. A larger limit rides out longer
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
// It needs a *redis.Client, which is one server at a time. With any other
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

// WithoutIdentity makes the pool tell nothing of the server process that answers:
// Reply.Server is nil, whatever INFO says. The default is to tell.
//
// It is for nodes whose run_id does not tell servers apart: some managed services and
// servers that are compatible with Redis answer the same constant everywhere, and clones
// of one virtual machine may answer alike. Without this option a Redsync takes such nodes
// for one server, and fails with ErrDuplicateNode.
//
// The price: two addresses of one server are not detected, so two quorums may have no
// server in common. Make sure yourself that each pool leads to a server of its own. Two pools with
// the same address or the same client are refused even so. It excludes WithRestartGuard,
// which needs to know the server: both together are the error of Err and of every Send.
func WithoutIdentity() Option {
	return func(c *config) { c.anonymous = true }
}

// New returns a Pool for the node behind client: a *redis.Client (Sentinel
// failover clients are such), or any other redis.UniversalClient.
//
// A *redis.Client is not used itself: the pool has a stream of its own, shared by all
// pools of the same client. It starts with the first Send, stops when idle for half
// a minute, and leaves the user's client untouched. go-redis opens its connection and
// greets the node, with the client's Dialer, TLS, Sentinel, credentials, DB, ClientName,
// OnConnect and timeouts. Then the pool writes requests and reads replies. Hooks, limiters
// and client-side caches of the user's client do not apply.
//
// A connection carries requests only if its greeting is complete. Where the node or
// OnConnect refuses a part of it (a wrong password, a DB that the user may not SELECT),
// requests fail with that error and are not sent. When a StreamingCredentialsProvider
// replaces the credentials, the pool opens a new connection with the new ones and closes
// the old one once its replies have come. A reply of the greeting may take 1 MiB.
//
// A connection that owes replies and is silent for ReadTimeout, 5 s at most, is
// given up. After ConnMaxLifetime it is exchanged for a new one, as soon as nothing
// is outstanding on it; so it is when the node answers NOAUTH or READONLY, because
// credentials are asked for, and names looked up, on connecting only. A node that
// cannot be connected to is left alone for up to 100 ms.
//
// A connection may die without a word: a firewall or a NAT forgets it. When one that owes
// replies is silent for longer than its requests want (Request.Within, at least 50 ms), the
// stream opens a second one. If the second is greeted while the first is still silent, the
// first is given up and the second goes on; the Fate of what the first owes is Unknown. If
// the first says something, the second is closed, and for a minute a silence may last twice
// as long. So a node that is frozen for a while keeps its connection.
//
// With a *redis.ClusterClient each request goes through such a stream to the master that
// has its key, and with a *redis.Ring through a stream to the shard that has its key. The
// client only says which node that is; its own connections are not used. The limit of outstanding requests
// holds for each of these nodes, and a frozen one delays no request to another. The pool
// follows MOVED and ASK itself, MaxRedirects times at most for one request. It promises no
// order of execution across nodes: Reply.Conn is 0 and Reply.Server nil. Replies of
// different nodes may come in another order than that of sending. Before the first request
// the client loads the cluster's state; what is sent meanwhile waits for that, for 5 s and
// the client's own timeouts at most.
//
// Any other client is used directly, one Pipeline at a time; its own timeouts bound how
// long a frozen server holds up what is sent behind.
//
// A stream asks for INFO server on every connection that it opens, which tells
// Reply.Server. A node that refuses is not asked again on that connection.
//
// All of these are Subscribers. A *redis.Client is not used for that either: each
// Subscription has a connection of its own, on a copy of the client's options, and
// goes on when the client is closed.
//
// New starts nothing and never fails; a nil client, an option out of its range or not for
// this client, or an address that nobody can dial is the error of every Send.
func New(client redis.UniversalClient, options ...Option) Pool {
	cfg := config{outstanding: defaultOutstanding}
	for _, option := range options {
		if option == nil {
			cfg.err = errors.New("pool: nil Option")
			continue
		}
		option(&cfg)
	}
	if cfg.guard > 0 && cfg.anonymous && cfg.err == nil {
		cfg.err = errors.New("pool: WithRestartGuard excludes WithoutIdentity: it needs to know the server")
	}
	if isNil(client) {
		cfg.err = fmt.Errorf("pool: nil client (%T)", client)
	} else if c, ok := client.(*redis.Client); ok {
		cfg.err = cmp.Or(cfg.err, badAddress(c.Options()))
		return newStreamPool(cfg, c)
	}
	if cfg.guard > 0 && cfg.err == nil {
		cfg.err = fmt.Errorf("pool: WithRestartGuard(%v) needs a *redis.Client: a %T does not tell when a connection is opened", cfg.guard, client)
	}
	switch client.(type) {
	case *redis.ClusterClient, *redis.Ring:
		if cfg.err == nil {
			return newRoutedPool(cfg, client)
		}
	}
	return &batchPool{config: cfg, client: client}
}

func isNil(client redis.UniversalClient) bool {
	v := reflect.ValueOf(client)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
