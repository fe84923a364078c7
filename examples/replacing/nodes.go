package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// A node is one Redis.
type node interface {
	Client() *redis.Client
	Kill()
}

// nodes are all nodes of the run.
type nodes struct {
	what    string
	numbers list
	all     map[int]node
	look    map[int]*redis.Client // for looking at the keys
	stop    func()
}

// startNodes starts a redis-server for each node. Where there is no redis-server, the nodes run inside this
// process.
func startNodes(numbers list) (*nodes, error) {
	dir, err := os.MkdirTemp("", "replacing")
	if err != nil {
		return nil, err
	}
	all := make(map[int]node)
	stop := func() {
		for _, server := range all {
			server.Kill()
		}
		_ = os.RemoveAll(dir)
	}
	for _, number := range numbers {
		server, err := launch(filepath.Join(dir, strconv.Itoa(number)))
		if err != nil {
			stop()
			if errors.Is(err, realredis.ErrMissing) {
				return embeddedNodes(numbers), nil
			}
			return nil, err
		}
		all[number] = server
	}
	return newNodes("redis-server processes", numbers, all, stop), nil
}

func newNodes(what string, numbers list, all map[int]node, stop func()) *nodes {
	n := &nodes{what: what, numbers: numbers, all: all, look: make(map[int]*redis.Client), stop: stop}
	for number, server := range all {
		n.look[number] = server.Client()
	}
	return n
}

// close stops all nodes.
func (n *nodes) close() {
	for _, client := range n.look {
		_ = client.Close()
	}
	n.stop()
}

func launch(dir string) (*realredis.Server, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return realredis.Launch(dir)
}

// embeddedNodes run inside this process.
func embeddedNodes(numbers list) *nodes {
	servers, all := embedded.Start(len(numbers)), make(map[int]node)
	for i, number := range numbers {
		all[number] = embeddedNode{servers[i]}
	}
	return newNodes("nodes inside the process", numbers, all, servers.Close)
}

// An embeddedNode is a node.
type embeddedNode struct{ *embedded.Node }

func (n embeddedNode) Client() *redis.Client { return n.Node.Client() }

// maxLate is how much later than others a request may arrive.
const maxLate = 2 * time.Millisecond

// lateClient returns a client whose requests arrive a bit later, as in a network. So requests of two processes
// arrive at two nodes in a different order now and then.
func lateClient(n node) *redis.Client {
	client := n.Client()
	defer client.Close()
	options := *client.Options()
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
	for i, number := range n.numbers {
		group.Go(func() { found[i] = n.look[number].Get(ctx, key).Val() }) // "" from a node that fails
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
		keys, err := n.look[number].Keys(ctx, "*").Result()
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
