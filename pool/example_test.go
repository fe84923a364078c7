package pool_test

import (
	"context"
	"log"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A node that restarts without its keys does not count until every lock that it may have forgotten has expired.
// Every program that locks on these nodes must set the guard to at least the longest expiry that any of them uses.
func ExampleWithRestartGuard() {
	var pools []pool.Pool
	for _, addr := range []string{"redis-1:6379", "redis-2:6379", "redis-3:6379"} {
		pools = append(pools, pool.New(redis.NewClient(&redis.Options{Addr: addr}),
			pool.WithRestartGuard(30*time.Second),
			// The nodes ran by then, and nobody had locked anything. So the first start of the program need not wait, and the
			// line can stay: a node that restarts later is guarded.
			pool.WithNoLocksBefore(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))))
	}
	rs := redsync.New(pools...)
	defer rs.Close(context.Background())

	if err := rs.NewMutex("orders:17", redsync.WithExpiry(30*time.Second)).Lock(); err != nil {
		log.Print(err)
	}
}

// A client that the program replaces while it runs, for example because its token has to be refreshed: the pool asks for the
// client of the moment at each command. So locks that are held stay held.
func ExampleFunc() {
	var current atomic.Pointer[redis.Client]
	current.Store(redis.NewClient(&redis.Options{Addr: "redis-1:6379", MaxRetries: -1})) // nothing is sent twice

	rs := redsync.New(pool.Func(func(ctx context.Context, args ...any) (any, error) {
		return current.Load().Do(ctx, args...).Result()
	}, pool.WithName("redis-1")))
	defer rs.Close(context.Background())
}

// redigoPool has what the example uses of redigo's *redis.Pool, and redigoConn what it uses of redis.ConnWithContext.
type (
	redigoPool interface {
		GetContext(ctx context.Context) (redigoConn, error)
	}
	redigoConn interface {
		DoContext(ctx context.Context, command string, args ...any) (any, error)
		Close() error
	}
)

// A pool of redigo. With redigo itself, conn.DoContext is redis.DoContext(conn, ctx, ...).
func ExampleFunc_redigo() {
	var connections redigoPool

	_ = pool.Func(func(ctx context.Context, args ...any) (any, error) {
		conn, err := connections.GetContext(ctx)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		return conn.DoContext(ctx, args[0].(string), args[1:]...)
	})
}

// v4Pool and v4Conn have what the example uses of a redis.Pool of redsync v4 and its redis.Conn.
type (
	v4Pool interface {
		Get(ctx context.Context) (v4Conn, error)
	}
	v4Conn interface {
		SetNX(name, value string, expiry time.Duration) (bool, error)
		Eval(script *v4Script, keysAndArgs ...any) (any, error)
		Close() error
	}
	v4Script struct {
		KeyCount  int
		Src, Hash string
	}
)

// A redis.Pool of your own for redsync v4. Its redis.Conn knows SET with NX, and scripts.
func ExampleFunc_redsyncV4() {
	var connections v4Pool

	_ = pool.Func(func(ctx context.Context, args ...any) (any, error) {
		conn, err := connections.Get(ctx)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		if args[0] == "set" { // name value NX PX milliseconds
			return conn.SetNX(args[1].(string), args[2].(string), time.Duration(args[5].(int64))*time.Millisecond)
		}
		return conn.Eval(&v4Script{KeyCount: args[2].(int), Src: args[1].(string)}, args[3:]...)
	})
}
