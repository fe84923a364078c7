package main

import (
	goredislib "github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
)

// connect returns a Redsync with one pool for each node.
func connect(addresses []string) (*redsync.Redsync, func()) {
	var clients []*goredislib.Client
	var pools []pool.Pool
	for _, address := range addresses {
		client := goredislib.NewClient(&goredislib.Options{Addr: address})
		clients = append(clients, client)
		pools = append(pools, pool.New(client))
	}
	return redsync.New(pools...), func() {
		for _, client := range clients {
			_ = client.Close()
		}
	}
}
