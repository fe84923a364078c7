package wire

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"

	"github.com/redis/go-redis/v9"
)

// New returns a Pool for the node behind client. The package comment of pool says what a user sees of it. This is how:
//
// A *redis.Client has one stream, which all pools of the client share. The stream starts with the first Send, and stops when
// it has been idle for half a minute. go-redis opens its connections and greets the node. A connection carries requests only
// if its greeting is complete. A reply to the greeting may take 1 MiB of memory at most.
//
// If new credentials arrive, or ConnMaxLifetime has passed, the stream opens a new connection, and closes the old one once
// nothing is outstanding on it. When a connection that owes replies is silent for longer than its requests want
// (Request.Within, at least 50 ms), the stream opens a second one. If the node answers the second one's greeting while the
// first is still silent, the second replaces the first, and the requests unanswered on the first get the Fate Unknown. If data
// arrives on the first, the stream closes the second, and for a minute it waits twice as long before it opens another. A node
// that freezes briefly answers on neither, so it keeps its connection.
//
// With a *redis.ClusterClient each request goes through a stream to the master that has its key, and with a *redis.Ring
// through a stream to the shard that has its key. The client only tells which node that is. The limit of outstanding requests
// applies to each node separately. No order of execution is promised across nodes: Reply.Conn is 0 and Reply.Server nil.
// Replies of different nodes may arrive in another order than the requests were sent. Before the first request the client
// loads the state of the cluster. Requests sent meanwhile wait for that, 5 s at most. If the client ignores this limit, its
// own timeouts apply.
//
// A stream ends when the client would not use its connection any more. If the node announces maintenance, the stream moves
// when go-redis moves. While the node is migrated or fails over, the stream waits up to 5 s for a reply, and opens no second
// connection. What the old connection owes is answered, or it is Unknown. If a Cluster has another master for a key, or a Ring
// another shard, what the old one owes for that key is Unknown after at most 100 ms, and later requests go to the new one.
// While a master of a Cluster is silent, the pool asks the client four times a second to reload its state. Subscriptions move,
// too.
//
// Any other client, and each with pool.ViaClient, is used directly.
//
// A stream asks for INFO server on every connection that it opens. The answer becomes Reply.Server. If the node refuses, the
// stream does not ask again on that connection.
//
// All these pools are Subscribers. With a *redis.Client each Subscription has a connection of its own, opened with a copy of
// the client's options.
//
// If the user closes the client, its streams, subscriptions and their connections end within a second. Unanswered requests,
// and every later Send, fail with ErrClientClosed. A dial that ignores its context may take longer, up to its timeout. The
// pool looks at the client ten times a second while it has a stream or a subscription. That sends nothing. Of a client of
// another type it notices only when it sends a request.
//
// New starts nothing and never fails. If the client or an option is wrong, every Send returns an error.
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
