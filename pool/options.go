package pool

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// An Option configures a Pool of New or Func. One that is nil, out of range or unsuitable makes every operation of a
// Redsync fail at once.
type Option func(*config)

type config = wire.Config

func configOf(options []Option) (cfg config) {
	for _, option := range options {
		if option == nil {
			cfg.Wrong = errors.New("pool: nil Option")
			continue
		}
		option(&cfg)
	}
	return cfg
}

// WithOutstanding sets how many answers the node may owe before the pool refuses further commands, with an
// *[OutstandingError], so that a frozen node costs neither latency nor memory. The default is 4096, the range 1 to
// 16384. More tolerates longer pauses of a node under load. Releases count, but are not refused. Each server of a
// Cluster or a Ring has its own limit.
func WithOutstanding(limit int) Option {
	return func(c *config) {
		if limit < 1 || limit > wire.MaxOutstanding {
			c.Wrong = fmt.Errorf("pool: WithOutstanding(%d) is out of range: 1 to %d", limit, wire.MaxOutstanding)
		}
		c.Outstanding = limit
	}
}

// WithRestartGuard ignores the votes of a restarted node until all locks that it may have forgotten have expired.
// Without it a node that comes back without its keys, or with those of its last fsync, grants locks that others still
// hold.
//
// maxExpiry, more than 0, is the longest of these times of all programs on these nodes: an expiry plus its lock delay,
// or redsync.WithMinHold plus its drift. By default there is no guard.
//
// The guard needs a *redis.Client, and permission for INFO (+info). The page above says what it costs, and cannot
// detect.
func WithRestartGuard(maxExpiry time.Duration) Option {
	return func(c *config) {
		if maxExpiry <= 0 {
			c.Wrong = fmt.Errorf("pool: WithRestartGuard(%v) is out of range: more than 0", maxExpiry)
			return
		}
		c.Guard = maxExpiry
	}
}

// WithNoLocksBefore declares that nobody held a lock on the node before t, so the restart guard does not wait for a
// server that started before. One that starts later is guarded, so the option can stay in the code. The default is the
// zero time, which declares nothing.
//
// t must be a fixed moment at least 3 s after the start of the nodes, and before the first lock on them. time.Now() is
// an error, and so is a time more than a minute ahead:
//
//	pool.WithNoLocksBefore(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
//
// A program that starts before t must itself wait until t.
func WithNoLocksBefore(t time.Time) Option {
	return func(c *config) {
		switch {
		case t != t.Round(0): // Round(0) strips the monotonic reading
			c.Wrong = fmt.Errorf("pool: WithNoLocksBefore(%v) has a monotonic clock reading, as time.Now returns it: "+
				"give a fixed moment, such as time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC), or a stored one", t)
			return
		case time.Until(t) > maxAhead:
			c.Wrong = fmt.Errorf("pool: WithNoLocksBefore(%v) is out of range: at most a minute ahead of the clock", t)
			return
		}
		c.NoLocksBefore = t
	}
}

// maxAhead is how far ahead of the clock that time may be.
const maxAhead = time.Minute

// WithName sets what errors, events and the log call the node: String returns name. By default that is the client's
// address, without what may be a password, or else, as for a Sentinel client, the one that its last connection reached,
// or the client's type. name has 1 to 128 bytes, and no control characters. Two pools may have the same one.
func WithName(name string) Option {
	return func(c *config) {
		if name == "" || len(name) > wire.MaxName || strings.ContainsFunc(name, unicode.IsControl) {
			c.Wrong = fmt.Errorf("pool: WithName(%q) is out of range: 1 to %d bytes without control characters", wire.Cut(name), wire.MaxName)
			return
		}
		c.Name = name
	}
}

// WithoutIdentity makes the pool not ask with INFO which server answers. With WithRestartGuard it asks only for the
// uptime.
//
// It is for proxies that end the connection at INFO, and for nodes whose run_id does not distinguish servers, such as
// some managed services and clones of one virtual machine: without it a Redsync takes them for one server, and fails
// with redsync.ErrDuplicateNode, or does not follow a failover by Sentinel. Nodes without a run_id, or with zeros
// alone, do not need it.
//
// The price: a server at two addresses may count twice, so two quorums may share no server. Make sure that each pool
// leads to a server of its own. Two pools with one address or one client are still refused.
func WithoutIdentity() Option {
	return func(c *config) { c.Anonymous = true }
}

// WithoutNativeCommands makes the pool run scripts also on servers with commands that do the same at less cost: DELEX
// and MSETEX of Redis 8.4, DELIFEQ of Valkey 9.0 and MSETEX of 9.1. The pool of a *redis.Client uses them where the
// version in INFO has them. After a refusal a connection goes on with scripts.
func WithoutNativeCommands() Option {
	return func(c *config) { c.NoNatives = true }
}

// WithoutHooks says that no hook of the client need be called for locks. Without it New warns of hooks.
func WithoutHooks() Option {
	return func(c *config) { c.HooksAreKnown = true }
}

// ViaClient makes the pool send each command by the client's method Process, not on a connection of its own. So hooks,
// limiters, retries (MaxRetries) and connections of the client are used. It is for hooks that must see locks, such as
// one that puts a prefix before keys while other programs rely on that; otherwise redsync.WithPrefix is better. The
// page above says what it costs. It excludes WithRestartGuard.
func ViaClient() Option {
	return func(c *config) { c.ViaClient = true }
}
