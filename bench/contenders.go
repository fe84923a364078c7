package main

import (
	"context"
	"errors"
	"time"

	rival "github.com/go-redsync/redsync/v4"
	rivalredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
)

// expiry is that of every lock measured.
const expiry = 8 * time.Second

// A library is a contender at work: one process with connections of its own.
type library interface {
	// Lock acquires name, with the retries of the library's defaults.
	Lock(ctx context.Context, name string) (held, error)
	Close() error
}

// A held is a lock that was acquired. Locks with the API of redsync are it as
// they are, so that nothing is allocated in between.
type held interface {
	UnlockContext(ctx context.Context) (bool, error)
}

// A contender is one library with one configuration.
type contender struct {
	name string
	// strict: a key left behind on a node is an error of the whole run.
	strict bool
	open   func(addrs []string) library
}

// ours and defaults are the contenders that the report and the benchmarks
// mention by name.
const (
	ours     = "ours"
	defaults = "redsync"
)

var contenders = []contender{
	{name: ours, strict: true, open: openOurs},
	{name: defaults, open: func(addrs []string) library { return openRedsync(addrs) }},
	{name: "redsync WithFailFast", open: func(addrs []string) library {
		return openRedsync(addrs, rival.WithFailFast(true))
	}},
}

// clients is one go-redis client per node, with the defaults of go-redis.
type clients []*redis.Client

func dial(addrs []string) clients {
	cs := make(clients, len(addrs))
	for i, addr := range addrs {
		cs[i] = redis.NewClient(&redis.Options{Addr: addr})
	}
	return cs
}

func (cs clients) Close() error {
	var errs []error
	for _, c := range cs {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

type oursLibrary struct {
	clients
	rs *redsync.Redsync
}

func openOurs(addrs []string) library {
	cs := dial(addrs)
	pools := make([]pool.Pool, len(cs))
	for i, c := range cs {
		pools[i] = pool.New(c)
	}
	return &oursLibrary{clients: cs, rs: redsync.New(pools...)}
}

func (l *oursLibrary) Lock(ctx context.Context, name string) (held, error) {
	m := l.rs.NewMutex(name, redsync.WithExpiry(expiry))
	return m, m.LockContext(ctx)
}

func (l *oursLibrary) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(l.rs.Close(ctx), l.clients.Close())
}

type redsyncLibrary struct {
	clients
	rs      *rival.Redsync
	options []rival.Option
}

func openRedsync(addrs []string, options ...rival.Option) library {
	cs := dial(addrs)
	pools := make([]rivalredis.Pool, len(cs))
	for i, c := range cs {
		pools[i] = goredis.NewPool(c)
	}
	options = append([]rival.Option{rival.WithExpiry(expiry)}, options...)
	return &redsyncLibrary{clients: cs, rs: rival.New(pools...), options: options}
}

func (l *redsyncLibrary) Lock(ctx context.Context, name string) (held, error) {
	m := l.rs.NewMutex(name, l.options...)
	return m, m.LockContext(ctx)
}
