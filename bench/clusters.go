package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/pool"
)

// oneServer is the variant in which a node is no Cluster.
const oneServer = "one server"

var clustersScene = scene{
	name: "clusters",
	about: "The load of distinct keys on three nodes. A node is one server, or a Redis Cluster of so many masters without " +
		"replicas. CPU is per pair: server CPU is that of all servers, and busiest that of the server that used most.",
	variant: "a node is",
	columns: []column{
		{title: "allocs", key: "allocs", format: tenth},
		{title: "client CPU µs", key: "client_cpu", format: tenth},
		{title: "x " + oneServer, key: "client_cpu", format: cents, base: toVariant(oneServer)},
		{title: "server CPU µs", key: "server_cpu", format: tenth},
		{title: "busiest µs", key: "busiest", format: cents},
		{title: "busiest x one master", key: "busiest", format: cents, base: toVariant(masters(1))},
		{title: "commands/read", key: "batch", format: cents},
		{title: "keys left", key: "left", format: whole},
		{title: "failed", key: "failed", format: whole},
	},
	cells: func(p plan) (cells []cell) {
		widths := []int{1, 128, 1024}
		if p.quick {
			widths = widths[1:2]
		}
		for _, width := range widths {
			cells = append(cells, grid("clusters", oneServer, []int{width}, named(ours), patiently(measureOnNodes(clusterNodes)))...)
			for n := range clusterMasters {
				cells = append(cells, grid("clusters", masters(n+1), []int{width}, named(ours), patiently(measureOnClusters(n+1)))...)
			}
		}
		return cells
	},
	apart: true,
}

// How many nodes the scene has, and the most masters of one.
const (
	clusterNodes   = 3
	clusterMasters = 3
)

func masters(n int) string { return "Cluster of " + strconv.Itoa(n) }

// measureOnClusters measures on Clusters of n masters, which it starts.
func measureOnClusters(n int) measuring {
	return func(ctx context.Context, l *lab, c cell) (f figures, err error) {
		clusters, stop, err := realredis.LaunchClusters(clusterNodes, n) //nolint:contextcheck // it takes 3 s
		if err != nil {
			return nil, err
		}
		defer stop()
		some := &lab{plan: l.plan}
		for _, s := range slices.Concat(clusters...) {
			some.addrs = append(some.addrs, s.Addr())
		}
		some.look = dial(some.addrs)
		defer func() { err = errors.Join(err, some.close()) }()
		c.contender.open = openOnClusters(n)
		like := c.contender.like
		c.contender.like = func(_ int, ttl time.Duration) (any, error) { return like(clusterNodes, ttl) }
		return measureDistinct(ctx, some, c)
	}
}

// openOnClusters opens this library on Clusters of n masters, whose addresses follow each other.
func openOnClusters(n int) func(addrs []string, ttl time.Duration) (library, error) {
	return func(addrs []string, ttl time.Duration) (library, error) {
		lib := &clustersLibrary{}
		var pools []pool.Pool
		for addrs := range slices.Chunk(addrs, n) {
			client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
			lib.routing = append(lib.routing, client)
			pools = append(pools, pool.New(client))
		}
		lib.rs = redsync.New(pools...).With(redsync.WithExpiry(ttl))
		return lib, nil
	}
}

// clustersLibrary is this library on clients that route.
type clustersLibrary struct {
	oursLibrary
	routing []*redis.ClusterClient
}

func (l *clustersLibrary) Close() error {
	err := l.oursLibrary.Close()
	for _, client := range l.routing {
		err = errors.Join(err, client.Close())
	}
	return err
}
