// Package pool connects a Redsync to its Redis nodes. [New] makes the Pool of a node from a go-redis client, [Func]
// from a function:
//
//	client := redis.NewClient(&redis.Options{Addr: "redis-1:6379", Password: password})
//	p := pool.New(client, pool.WithRestartGuard(8*time.Second))
//
// This package is stable (docs/versions.md).
//
// # What a pool does with a client
//
// All pools of one *redis.Client share a connection of their own. The first command opens it, as go-redis does, with
// the client's Dialer, TLS, Sentinel, credentials, DB, ClientName, OnConnect and timeouts. It ends when it has been
// idle for half a minute. Hooks, limiters and client-side caches of the client do not apply, unless [ViaClient] is set.
// If the client has hooks, as instrumentation adds them, slog.Default() gets a Warn, once for each client.
// [WithoutHooks] silences it.
//
// If the node or OnConnect refuses a part of the greeting (a wrong password, a DB that the user may not SELECT),
// commands fail with that error. When a StreamingCredentialsProvider replaces the credentials, the pool opens a new
// connection.
//
// The pool gives up a connection that owes answers and is silent for ReadTimeout, 5 s at most. It tries a second one
// earlier, because a firewall or a NAT may have forgotten the first. It also replaces the connection that
// carries commands after ConnMaxLifetime, NOAUTH or READONLY: only a new one uses new credentials and looks up the host
// name again. After repeated failures to connect it pauses for 100 ms between attempts, and commands fail at once.
//
// Of a *redis.ClusterClient and a *redis.Ring the pool learns which server has a key. It has a connection to each, and
// follows MOVED and ASK itself, at most MaxRedirects times. A frozen server delays no command to another.
//
// If the node announces maintenance (MOVING, as cloud services do), the pool moves when go-redis does. The client needs
// Protocol 3 and maintenance notifications, which are defaults.
//
// Any other client is used directly, one Pipeline at a time, with its own timeouts.
//
// Locks that wait subscribe to hear of releases, on connections of the same kind. The user needs permission for
// SUBSCRIBE and the channel.
//
// Close a Redsync before its clients. If a client is closed first, commands fail with [ErrClientClosed] within a
// second, with another type of client from the next command on.
//
// # The restart guard
//
// A guard ([WithRestartGuard]) costs nothing per operation: the pool asks for INFO when it opens a connection. But a
// restarted node counts as down until its server has run for maxExpiry + drift + 1 s, with redsync.WithFencing 10 s and
// three node deadlines longer. Meanwhile the other nodes must form a quorum. Releases are always sent. A Mutex that
// needs a longer maxExpiry fails.
//
// A node that refuses INFO, or whose INFO has no uptime_in_seconds, never counts. Without a run_id, or with
// WithoutIdentity, the guard tells servers apart by their start alone. Then it misses a change to a server that started
// within a few seconds of the first.
//
// The guard cannot detect FLUSHALL, eviction (set maxmemory-policy noeviction), a failover to a replica that lacks
// keys, a change of the server's clock while it runs, or a restart behind a TCP proxy that keeps the client's
// connection open.
//
// In a new deployment all nodes have just started, so nobody acquires a lock for that time. [WithNoLocksBefore] avoids
// this, also for tests and programs that start their own nodes. A server that started at the declared time t or later
// is guarded while the client's clock is right, and one that started less than 2 s before t may be: it tells its uptime
// in whole seconds. If the clock is behind by x, a server that started up to x after t may not be guarded.
//
// A t that moves with each start of the program is dangerous: if the nodes have restarted before, it could get a lock
// that another process holds. So a t with a monotonic clock reading, as time.Now returns it, is an error. Do not strip
// the reading, unless the program itself has started the nodes. A t more than a minute ahead of the clock is an error,
// too: the guard would be off until t.
//
// # Commands that take the client's way
//
// With [ViaClient] and with [Func] a node carries out one command of a Redsync at a time. When a call takes longer than
// 200 ms, the next begins beside it, up to four. After 5 s its context ends, and its command counts as unanswered. So
// calls that never return take at most four goroutines, and the votes of their node. Commands that wait longer than
// their sender are not sent. Make sure that each pool leads to a server of its own: it does not know which one answers.
//
// A SET with NX that is sent twice finds its own key, and the lock looks taken. So a function must not send a command
// again that the node may have executed. With ViaClient the pool notices a repetition, and a Lock asks once more. With
// MaxRetries -1 a client repeats nothing.
//
// A hook of ViaClient must rewrite the keys of SET, GET, PTTL, PUBLISH, EVALSHA and EVAL (KEYS, after their number)
// alike, or locks do not work. Wake-ups on other channels are lost: waiters then try again by their timers, with Func
// always.
//
// # What a function gets and returns
//
// The args of a function for [Func] are a whole command, its name in lower case first: SET key value NX PX
// milliseconds, EVAL source, GET, PTTL or PUBLISH. They are strings and integers, and the function may change them.
// Scripts have up to 6 kB: to save that, send EVALSHA first, as redis.NewScript(source).Run does.
//
// It returns what the node has answered:
//
//   - A string or []byte, an integer, a []any of these, or nil for a null. true and false stand for OK and a null, the
//     answers to SET with NX.
//   - An error of the node: a redis.Error of go-redis, or one whose text, or that of an error that it wraps, begins
//     with a word of Redis such as ERR, NOSCRIPT or NOPERM. redis.Nil is a null.
//   - Any other error if it is not known what the node has done. A panic counts as one, and the end of the goroutine.
package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// A Pool leads to one node. Only [New] and [Func] make it: to write a driver, give Func a function. Many goroutines and
// several Redsyncs may use one Pool. A program may call these of its methods:
//
//   - String returns what errors and the log call the node: see [WithName].
//   - CloseIdle ends connections and background work as soon as no answer is outstanding, until the next command.
//   - Close does the same for good, and ends subscriptions at once. It does not wait, returns nil, and never closes the
//     client. Every later command fails with [ErrClosed].
type Pool = wire.Pool

// New returns a Pool for the node behind client: a *redis.Client (failover clients of Sentinel included), or any other
// redis.UniversalClient. The page above says what applies of it.
//
// New starts nothing, and leaves the client untouched. Every operation of the Redsync fails at once if the client is
// nil, or a mock of redismock without [ViaClient], if its address cannot be dialed, or if an option is out of range or
// does not suit it.
func New(client redis.UniversalClient, options ...Option) Pool {
	return wire.New(client, configOf(options))
}

// Func returns a Pool that sends each command by a call of do, for what is no redis.UniversalClient, such as a
// connection of redigo, a redis.Pool of redsync v4 or a mock, and for a client that the program replaces while it runs:
//
//	p := pool.Func(func(ctx context.Context, args ...any) (any, error) {
//		return current().Do(ctx, args...).Result() // the client of the moment
//	}, pool.WithName("redis-1"))
//
// The page above says what do gets and returns, and what this way costs. Of the options WithName and WithOutstanding
// apply, and WithRestartGuard is an error.
func Func(do func(ctx context.Context, args ...any) (any, error), options ...Option) Pool {
	return wire.Func(do, configOf(options))
}

// Ping sends PING to the node of p, as locks send, and waits for the answer until ctx ends. It returns nil if the node
// has answered, and has all keys of its server: a client of one address may lead to one master of a Redis Cluster.
func Ping(ctx context.Context, p Pool) error {
	if p == nil {
		return errors.New("pool: Ping of a nil Pool")
	}
	req, answer := wire.Request{Args: []any{"ping"}}, make(pong, 1)
	if end, has := ctx.Deadline(); has {
		req.Within = max(time.Until(end), 1)
	}
	req.To = answer
	if err := p.Send(req); err != nil {
		return err
	}
	select {
	case err := <-answer:
		if partial, may := p.(wire.Partial); may && err == nil {
			err = partial.Partial()
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("pool: %v has not answered: %w", p, context.Cause(ctx))
	}
}

// A pong takes the answer to a PING.
type pong chan error

// Receive implements wire.Receiver.
func (p pong) Receive(_ int, reply wire.Reply) { p <- reply.Err }

var (
	// ErrClosed is the error of a Pool after its Close.
	ErrClosed = wire.ErrClosed

	// ErrClientClosed is the error of everything on a client that the program has closed. It matches redis.ErrClosed,
	// and ErrClosed, because such a Pool never sends again.
	ErrClientClosed = wire.ErrClientClosed
)

// An OutstandingError is the error of a command to a node that owes Limit answers already: it is frozen, unreachable,
// or slower than its callers. See [WithOutstanding].
type OutstandingError = wire.OutstandingError

// IsPermanent reports whether err lasts until somebody changes the node or the client: the user lacks a permission or is
// not let in (NOPERM, NOAUTH, WRONGPASS, DENIED), the node does not have a command, a key has another type (WRONGTYPE),
// the keys of a command are not in one slot of a Cluster (CROSSSLOT), INFO does not tell the restart guard the uptime, a
// client of one address leads to a master of a Cluster that serves only some names, or the pool or the client is closed.
func IsPermanent(err error) bool { return wire.IsPermanent(err) }
