package wire

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"

	"github.com/redis/go-redis/v9"
)

// New returns a Pool for the node behind client. Package pool says what a user sees of it.
//
// All pools of a *redis.Client share one stream. With a *redis.ClusterClient or a *redis.Ring each request goes through
// a stream to the node that has its key (routed.go), and each node has its own limit of outstanding replies. Any other
// client, and each with pool.ViaClient, is used directly (batch.go). All these pools are Subscribers.
//
// If the user closes the client, streams and subscriptions end with ErrClientClosed. New starts nothing and never
// fails: see Config.Err.
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

// A clientPool is what the pools of New have in common.
type clientPool struct {
	Config
	owner redis.UniversalClient // the user's client
	subs  subscriptions
	dial  dialer
}

// single returns the client if it is one of a single node.
func (p *clientPool) single() (client *redis.Client, ok bool) {
	client, _ = p.owner.(*redis.Client)
	return client, client != nil
}

func (p *clientPool) String() string {
	if client, ok := p.single(); ok {
		return cmp.Or(p.Name, addressOf(client))
	}
	return cmp.Or(p.Name, fmt.Sprintf("%T", p.owner))
}

func (p *clientPool) Listed() string {
	if client, ok := p.single(); ok {
		return client.Options().Addr
	}
	return fmt.Sprintf("%T", p.owner)
}

func (p *clientPool) Keyspace() any {
	if client, ok := p.single(); ok {
		return client.Options().DB
	}
	return nil
}

func (p *clientPool) Destination() any {
	if client, ok := p.single(); ok {
		return destinationOf(client)
	}
	if !reflect.ValueOf(p.owner).Comparable() {
		return p // a type that the user wrote
	}
	return p.owner
}

func (p *clientPool) ClientClosed() bool { return p.Wrong == nil && isClosed(p.owner) }

func (p *clientPool) Client() any {
	if p.Wrong != nil {
		return nil
	}
	return weakKey(p.owner)
}

func atOnce(line func()) { line() }

func isNil(client redis.UniversalClient) bool {
	v := reflect.ValueOf(client)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
