package yourtests

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	v4 "github.com/go-redsync/redsync/v4/redis"
	v4redigo "github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"

	"github.com/seed14bd9ef4/redsync/pool"
)

// redigoPool returns a pool of redigo's connections to a server inside the test.
func redigoPool(t *testing.T) *redis.Pool {
	server := miniredis.RunT(t)
	connections := &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", server.Addr())
	}}
	t.Cleanup(func() { _ = connections.Close() })
	return connections
}

// Connections of redigo.
func TestRedigo(t *testing.T) {
	connections := redigoPool(t)
	locks(t, pool.Func(func(ctx context.Context, args ...any) (any, error) {
		conn, err := connections.GetContext(ctx)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		return redis.DoContext(conn, ctx, args[0].(string), args[1:]...)
	}))
}

// Any redis.Pool of redsync v4, such as one of your own.
func TestPoolOfRedsyncV4(t *testing.T) {
	connections := v4redigo.NewPool(redigoPool(t))
	locks(t, pool.Func(func(ctx context.Context, args ...any) (any, error) {
		conn, err := connections.Get(ctx)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		if args[0] == "set" { // name value NX PX milliseconds
			return conn.SetNX(args[1].(string), args[2].(string), time.Duration(args[5].(int64))*time.Millisecond)
		}
		return conn.Eval(v4.NewScript(args[2].(int), args[1].(string), ""), args[3:]...)
	}))
}
