package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// nodes are all nodes of the run.
type nodes struct {
	*rig.Nodes
	numbers list
}

// startNodes starts a redis-server for each node. Where there is no redis-server, the nodes run inside this process.
func startNodes(numbers list) (*nodes, error) {
	servers, err := rig.Servers(len(numbers))
	if errors.Is(err, realredis.ErrMissing) {
		return nodesInside(numbers), nil
	}
	return &nodes{servers, numbers}, err
}

func nodesInside(numbers list) *nodes {
	return &nodes{rig.Inside(redsynctest.New(len(numbers))), numbers}
}

// index returns the place of a node in Clients.
func (n *nodes) index(number int) int { return slices.Index(n.numbers, number) }

// maxLate is how much later than others a request may arrive.
const maxLate = 2 * time.Millisecond

// lateClient returns a client whose requests arrive a bit later, as in a network. So requests of two processes
// arrive at two nodes in a different order now and then.
func (n *nodes) lateClient(number int) *redis.Client {
	options := *n.Clients[n.index(number)].Options()
	dial := options.Dialer
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return lateConn{conn}, nil
	}
	return redis.NewClient(&options)
}

type lateConn struct{ net.Conn }

func (c lateConn) Write(p []byte) (int, error) {
	time.Sleep(rand.N(maxLate))
	return c.Conn.Write(p)
}

// lookTimeout bounds a look at the keys of the nodes.
const lookTimeout = 5 * time.Second

// owners returns the nodes on which key has the value first, and those on which it has the value second.
func (n *nodes) owners(key string, first, second string) (owners [2]list) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	found := make([]string, len(n.numbers))
	var group sync.WaitGroup
	for i, client := range n.Clients {
		group.Go(func() { found[i] = client.Get(ctx, key).Val() }) // "" from a node that fails
	}
	group.Wait()
	for i, number := range n.numbers {
		switch found[i] {
		case first:
			owners[0] = append(owners[0], number)
		case second:
			owners[1] = append(owners[1], number)
		}
	}
	return owners
}

// left counts what is still on the given nodes: keys of locks, queues of waiters, and fencing registers.
func (n *nodes) left(numbers list) (locks, queues, registers int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	for _, number := range numbers {
		keys, err := n.Clients[n.index(number)].Keys(ctx, "*").Result()
		if err != nil {
			return 0, 0, 0, err
		}
		for _, key := range keys {
			switch {
			case strings.HasSuffix(key, ":fence"):
				registers++
			case strings.HasSuffix(key, ":queue"):
				queues++
			default:
				locks++
			}
		}
	}
	return locks, queues, registers, nil
}
