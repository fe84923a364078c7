package wire

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"

	"github.com/redis/go-redis/v9"
)

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
func New(client redis.UniversalClient, cfg Config) Pool {
	cfg.Outstanding = cmp.Or(cfg.Outstanding, defaultOutstanding)
	if isNil(client) {
		cfg.Wrong = fmt.Errorf("pool: nil client (%T)", client)
	} else if isMock(client) && !cfg.ViaClient {
		cfg.Wrong = cmp.Or(cfg.Wrong, errMock)
	}
	if c, ok := client.(*redis.Client); ok && c != nil {
		cfg.Wrong = cmp.Or(cfg.Wrong, badAddress(c.Options()))
		if !cfg.ViaClient {
			p := newStreamPool(cfg, c, c)
			p.warnOfHooks(c, nil, p.String(), atOnce)
			return p
		}
	}
	switch {
	case cfg.Guard == 0 || cfg.Wrong != nil:
	case cfg.ViaClient:
		cfg.Wrong = errors.New("pool: WithRestartGuard excludes ViaClient: a client does not tell when a connection is opened")
	default:
		cfg.Wrong = fmt.Errorf("pool: WithRestartGuard(%v) needs a *redis.Client: a %T does not tell when a connection is opened", cfg.Guard, client)
	}
	switch client.(type) {
	case *redis.ClusterClient, *redis.Ring:
		if cfg.Wrong == nil && !cfg.ViaClient {
			p := newRoutedPool(cfg, client)
			p.warnOfHooks(client, nil, p.String(), atOnce)
			return p
		}
	}
	return newBatchPool(cfg, client)
}

func atOnce(line func()) { line() }

func isNil(client redis.UniversalClient) bool {
	v := reflect.ValueOf(client)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
