package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
)

var (
	nodes  = flag.String("nodes", "", "addresses, such as redis-1:6379,redis-2:6379,...; one will do")
	user   = flag.String("user", "", "of the nodes; the password is in REDIS_PASSWORD")
	before = flag.String("no-locks-before", "2026-03-01T12:00:00Z", "a constant, 3 s or more after the first start of the nodes")
	expiry = flag.Duration("expiry", 8*time.Second, "of the locks")
	guard  = flag.Duration("guard", 8*time.Second, "the longest lock on the nodes: see docs/production.md")
)

// withLocks connects to the nodes, and calls work. At the end it releases what is still locked.
func withLocks(ctx context.Context, work func(*redsync.Redsync)) error {
	noLocksBefore, err := time.Parse(time.RFC3339, *before)
	if err != nil {
		return err
	}
	host, err := os.Hostname() // in Kubernetes the name of the pod
	if err != nil {
		return err
	}
	pools, end := inside(*nodes) // none with -nodes
	defer end()
	for address := range strings.FieldsFuncSeq(*nodes, func(r rune) bool { return r == ',' }) {
		client := redis.NewClient(&redis.Options{Addr: address, Username: *user, Password: os.Getenv("REDIS_PASSWORD")})
		defer client.Close() // after closeLocks: deferred calls run in reverse order
		pools = append(pools, pool.New(client, pool.WithRestartGuard(*guard), pool.WithNoLocksBefore(noLocksBefore)))
	}
	rs := redsync.New(pools...).With(redsync.WithExpiry(*expiry), redsync.WithTries(0),
		redsync.WithOwner("production@"+host), redsync.WithLogger(slog.Default()), redsync.WithHooks(metrics))
	defer closeLocks(rs)
	if err := rs.Ping(ctx); err != nil {
		return err // no majority of the nodes answers, or an option is wrong
	}
	work(rs)
	return nil
}

func closeLocks(rs *redsync.Redsync) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := rs.Close(ctx); err != nil {
		slog.Warn("close", "error", err) // it says which keys may be left, and for how long
	}
}
