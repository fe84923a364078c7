package rig

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// Nodes are what a program locks on.
type Nodes struct {
	What      string                                                             // for the first line of a program
	Addresses []string                                                           // none if the nodes are inside this process
	Clients   []*redis.Client                                                    // one for each node, to look at its keys
	Open      func(context.Context, ...redsync.Option) (*redsync.Redsync, error) // for one more process
	Off       func(i int)                                                        // switches node i off; nil if the nodes are those of -nodes
	Close     func()                                                             // ends what the program has started
}

// openTimeout is for how long a program waits for nodes that do not answer.
const openTimeout = 2 * time.Second

// counted returns a number of things: "1 node", "5 nodes".
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Parse parses the flags of a program, and adds -nodes. If it is not set, Parse returns what start returns.
func Parse(flags *flag.FlagSet, args []string, start func() (*Nodes, error), started string) (*Nodes, error) {
	list := flags.String("nodes", "", "`addresses` of Redis nodes, host:port or redis:// URLs, separated by commas (default: "+started+")")
	if err := cli.Parse(flags, args); err != nil {
		return nil, err
	}
	if *list == "" {
		return start()
	}
	addresses := strings.Split(*list, ",")
	over, cancel := context.WithCancel(context.Background())
	cancel() // so Open checks the addresses, and asks no node
	if _, err := redsync.Open(over, addresses); !errors.Is(err, context.Canceled) {
		return nil, cli.Misusef("-nodes: %w", err)
	}
	return at(addresses), nil
}

// WithServers is Parse for a program that starts five redis-servers.
func WithServers(ctx context.Context, flags *flag.FlagSet, args []string) (*Nodes, error) {
	nodes, err := Parse(flags, args, func() (*Nodes, error) { return Servers(5) }, "five redis-servers that it starts")
	if err != nil {
		return nil, err
	}
	rs, err := nodes.Open(ctx) // to say at once what is wrong with the nodes
	if err != nil {
		nodes.Close()
		return nil, err
	}
	_ = rs.Close(ctx) // fails if a node has just stopped to answer
	return nodes, nil
}

// WithInside is Parse for a program that starts five nodes inside its process.
func WithInside(flags *flag.FlagSet, args []string) (*Nodes, error) {
	return Parse(flags, args, func() (*Nodes, error) { return Inside(redsynctest.New(5)), nil }, "five nodes inside the process")
}

// at returns the nodes at addresses.
func at(addresses []string) *Nodes {
	n := &Nodes{What: counted(len(addresses), "node"), Addresses: addresses}
	for _, address := range addresses {
		options := &redis.Options{Addr: address}
		if parsed, err := redis.ParseURL(address); err == nil {
			options = parsed
		}
		n.Clients = append(n.Clients, looking(*options))
	}
	n.Open = func(ctx context.Context, options ...redsync.Option) (*redsync.Redsync, error) {
		ctx, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		return redsync.Open(ctx, addresses, options...)
	}
	n.Close = n.disconnect
	return n
}

// looking returns a client that is not delayed by a node that is frozen.
func looking(options redis.Options) *redis.Client {
	options.ContextTimeoutEnabled, options.MaxRetries = true, -1
	return redis.NewClient(&options)
}

func (n *Nodes) disconnect() {
	for _, client := range n.Clients {
		_ = client.Close()
	}
}

// Inside returns nodes inside the process.
func Inside(nodes *redsynctest.Nodes) *Nodes {
	n := &Nodes{Off: func(i int) { nodes.Node(i).Down() }}
	for _, client := range nodes.Clients() {
		n.Clients = append(n.Clients, looking(*client.Options()))
	}
	n.What = counted(len(n.Clients), "node") + " inside this process"
	n.Open = func(_ context.Context, options ...redsync.Option) (*redsync.Redsync, error) {
		return nodes.Process(options...), nil
	}
	n.Close = func() {
		n.disconnect()
		_ = nodes.Close()
	}
	return n
}

// Servers starts n redis-servers on free loopback ports.
func Servers(n int) (*Nodes, error) {
	servers, stop, err := realredis.LaunchAll(n)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, server := range servers {
		addresses = append(addresses, server.Addr())
	}
	nodes := at(addresses)
	nodes.What = counted(n, "redis-server")
	nodes.Off = func(i int) { servers[i].Kill() }
	nodes.Close = func() { nodes.disconnect(); stop() }
	return nodes, nil
}
