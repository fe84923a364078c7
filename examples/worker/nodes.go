package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/pool"
)

// nodes are what the workers lock on.
type nodes struct {
	what  string
	open  func(context.Context, ...redsync.Option) (*redsync.Redsync, error)
	look  []*redis.Client // for counting the keys at the end
	close func()
}

func (cfg *config) nodes() *nodes {
	if len(cfg.addresses) == 0 {
		return embeddedNodes(embedded.Start(5))
	}
	return realNodes(cfg.addresses, cfg.clients)
}

// realNodes are Redis servers, reached through redsync.Open.
func realNodes(addresses []string, options []*redis.Options) *nodes {
	n := &nodes{what: fmt.Sprintf("%d nodes", len(addresses))}
	n.open = func(ctx context.Context, opts ...redsync.Option) (*redsync.Redsync, error) {
		return redsync.Open(ctx, addresses, opts...)
	}
	for _, o := range options {
		o.ContextTimeoutEnabled, o.MaxRetries = true, -1 // a frozen node must not delay the end
		n.look = append(n.look, redis.NewClient(o))
	}
	n.close = func() { closeAll(n.look) }
	return n
}

// embeddedNodes run inside this process and listen on no port, so redsync.Open cannot reach them. The
// nodes themselves make the clients, which redsync.New gets.
func embeddedNodes(servers embedded.Nodes) *nodes {
	n := &nodes{what: fmt.Sprintf("%d nodes inside the process", len(servers)), look: clientsOf(servers)}
	clients := n.look
	n.open = func(_ context.Context, opts ...redsync.Option) (*redsync.Redsync, error) {
		var pools []pool.Pool
		for _, client := range clientsOf(servers) {
			pools = append(pools, pool.New(client))
			clients = append(clients, client)
		}
		return redsync.New(pools...).With(opts...), nil
	}
	n.close = func() {
		closeAll(clients)
		servers.Close()
	}
	return n
}

func clientsOf(servers embedded.Nodes) (clients []*redis.Client) {
	for _, s := range servers {
		clients = append(clients, s.Client())
	}
	return clients
}

func closeAll(clients []*redis.Client) {
	for _, c := range clients {
		_ = c.Close()
	}
}

// keys counts the nodes that have a key named name, and the nodes that answer.
func (n *nodes) keys(name string) (left, answered int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, client := range n.look {
		group.Go(func() {
			count, err := client.Exists(ctx, name).Result()
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answered++
			left += int(count)
		})
	}
	group.Wait()
	return left, answered
}
