package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/bsm/redislock"
	rival "github.com/go-redsync/redsync/v4"
	rivalredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A library is an opened contender. Like one client process, it has its own connections.
type library interface {
	// Lock acquires name, and retries as the library does by default.
	Lock(ctx context.Context, name string) (held, error)
	Close() error
}

// A held is an acquired lock. Locks with the API of redsync implement it directly, without a
// wrapper that would cost an allocation.
type held interface {
	UnlockContext(ctx context.Context) (bool, error)
}

// A contender is one library with one configuration.
type contender struct {
	name string
	// strict means that the whole run fails if, while all nodes work, this contender leaves a key
	// behind or one of its operations fails. See verdict and fault.measure.
	strict bool
	// single means that the contender uses the first node only. It sends a fifth of the commands of
	// a contender that uses all nodes.
	single bool
	// inScripts are the commands that its scripts call. INFO commandstats counts them although no
	// client sends them.
	inScripts []string
	// open connects to the nodes. Locks expire after ttl. Scenes call start instead.
	open func(addrs []string, ttl time.Duration) (library, error)
	// like returns a value with the settings that a lock with the expiry ttl must have, see
	// control.go.
	like func(nodes int, ttl time.Duration) (any, error)
	// names is how many names each lock has; 0 means one.
	names int
	// oneOf returns all keys that a lock on a name may have; each such lock has exactly one of them. nil means
	// that there is no choice.
	oneOf func(name string) []string
	// keyPrefix is the prefix that the library adds to the name of a lock.
	keyPrefix string
}

// Names of contenders, as the report shows them.
const (
	ours        = "redsync (this library)"
	oursApart   = ours + " WithHandOver(false)"
	oursFair    = ours + " WithFair"
	oursFenced  = ours + " WithFencing"
	oursWatched = ours + " WithWatchdog"
	oursPatient = ours + " WithNodeTimeout(3s)"
	oursTwo     = ours + " on two names"
	oursTwoFair = oursTwo + " WithFair"
	oursEight   = ours + " on eight names"
	oursShared  = ours + " WithShared"
	oursMany    = ours + " on 64 names"
	oursPermits = ours + " WithPermits(4)"
	defaults    = "redsync v4"
	failFast    = "redsync v4 WithFailFast"
	onRueidis   = "redsync v4 on rueidis, WithFailFast"
	oneKey      = "rueidislock (one node, one key)"
	oneNode     = "bsm/redislock (one node)"
	floor       = "the floor"
	oursOne     = ours + onOne
	oursClients = ours + " ViaClient"
	oursFunc    = ours + " on pool.Func"

	oursPermitsFair = oursPermits + " WithFair"
	oursManyPermits = ours + " WithPermits(16)"
	oursAtRandom    = oursApart + " on 4 names, one at random"
	inTurn          = defaults + " on 4 names, in turn"
)

var contenders = []contender{
	{name: ours, strict: true, inScripts: oursInScripts, open: openOursWith(), like: likeOurs()},
	{name: defaults, inScripts: []string{"get", "del"}, open: openRedsync, like: likeRedsync(false)},
	{name: failFast, inScripts: []string{"get", "del"}, open: openFailFast, like: likeRedsync(true)},
	{name: onRueidis, inScripts: []string{"get", "del"}, open: openRueidis, like: likeRedsync(true)},
	{
		name: oneKey, single: true, inScripts: []string{"set", "get", "del", "pexpireat"},
		open: openRueidislock, like: likeRueidislock, keyPrefix: "rueidislock:0:",
	},
	{
		name: oneNode, single: true, inScripts: []string{"msetnx", "mset", "getrange", "pexpire", "mget", "del"},
		open: openRedislock, like: likeRedislock,
	},
	{name: floor, strict: true, inScripts: []string{"get", "del"}, open: openFloor, like: likeNothing},
}

// variants are configurations of this library for some scenes.
var variants = []contender{
	{
		name: oursApart, strict: true, inScripts: oursInScripts,
		open: openOursWith(redsync.WithHandOver(false)), like: likeOurs(redsync.WithHandOver(false)),
	},
	{
		name: oursFair, strict: true, inScripts: allInScripts,
		open: openOursWith(redsync.WithFair()), like: likeOurs(redsync.WithFair()),
	},
	{
		name: oursFenced, inScripts: oursInScripts,
		open: openOursWith(redsync.WithFencing()), like: likeOurs(redsync.WithFencing()),
	},
	{name: oursWatched, strict: true, inScripts: oursInScripts, open: openWatched, like: likeOurs(redsync.WithWatchdog())},
	{
		name: oursPatient, strict: true, inScripts: oursInScripts,
		open: openOursWith(redsync.WithNodeTimeout(patientTimeout)), like: likeOurs(redsync.WithNodeTimeout(patientTimeout)),
	},
	{name: oursTwo, strict: true, names: 2, inScripts: allInScripts, open: openOursOn(2), like: likeOursOn(2)},
	{
		name: oursTwoFair, strict: true, names: 2, inScripts: allInScripts,
		open: openOursOn(2, redsync.WithFair()), like: likeOursOn(2, redsync.WithFair()),
	},
	{name: oursEight, strict: true, names: 8, inScripts: allInScripts, open: openOursOn(8), like: likeOursOn(8)},
	{
		name: oursMany, strict: true, names: visitWidth, inScripts: allInScripts,
		open: openOursOn(visitWidth), like: likeOursOn(visitWidth),
	},
	{
		name: oursShared, strict: true, inScripts: allInScripts,
		open: openOursWith(redsync.WithShared()), like: likeOurs(redsync.WithShared()),
	},
	{
		name: oursPermits, strict: true, oneOf: keysOfPermits(fewPermits), inScripts: allInScripts,
		open: openOursWith(redsync.WithPermits(fewPermits)), like: likeOurs(redsync.WithPermits(fewPermits)),
	},
	{
		name: oursPermitsFair, strict: true, oneOf: keysOfPermits(fewPermits), inScripts: allInScripts,
		open: openOursWith(redsync.WithPermits(fewPermits), redsync.WithFair()),
		like: likeOurs(redsync.WithPermits(fewPermits), redsync.WithFair()),
	},
	{
		name: oursManyPermits, strict: true, oneOf: keysOfPermits(manyPermits), inScripts: allInScripts,
		open: openOursWith(redsync.WithPermits(manyPermits)), like: likeOurs(redsync.WithPermits(manyPermits)),
	},
	{
		name: oursAtRandom, strict: true, oneOf: oneOfNames(fewPermits), inScripts: oursInScripts,
		open: openAtRandom(fewPermits, redsync.WithHandOver(false)), like: likeOurs(redsync.WithHandOver(false)),
	},
}

// rivalVariants are uses of redsync v4 for some scenes.
var rivalVariants = []contender{
	{
		name: inTurn, oneOf: oneOfNames(fewPermits), inScripts: []string{"get", "del"},
		open: openInTurn(fewPermits), like: likeRedsync(false),
	},
}

// ways are how this library reaches its nodes, for some scenes.
var ways = []contender{
	{
		name: oursOne, single: true, strict: true, inScripts: oursInScripts, like: likeOurs(),
		open: func(addrs []string, ttl time.Duration) (library, error) { return openOursWith()(addrs[:1], ttl) },
	},
	{name: oursClients, inScripts: oursInScripts, open: openViaClient, like: likeOurs()},
	{name: oursFunc, inScripts: oursInScripts, open: openFunc, like: likeOurs()},
}

// everyContender returns all contenders.
func everyContender() []contender {
	return slices.Concat(contenders, variants, ways, rivalVariants, natives)
}

// oursInScripts are the commands that release.lua and enter.lua call. SET is not listed, because plain attempts
// send it without a script, and these must be counted.
var oursInScripts = []string{"get", "del", "bitop", "strlen", "getrange", "time", "pttl", "pexpire", "publish"}

// allInScripts are the commands that the scripts of this library call.
var allInScripts = append([]string{"set", "mget", "exists"}, oursInScripts...)

// named returns the contenders with the given names, in the order of names.
func named(names ...string) []contender {
	var list []contender
	for _, name := range names {
		for _, c := range everyContender() {
			if c.name == name {
				list = append(list, c)
			}
		}
	}
	return list
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

// onGoRedis returns the go-redis clients of a library.
func (cs clients) onGoRedis() clients { return cs }

type oursLibrary struct {
	clients
	rs *redsync.Redsync
}

// openOursWith opens this library with options.
func openOursWith(options ...redsync.Option) func(addrs []string, ttl time.Duration) (library, error) {
	return func(addrs []string, ttl time.Duration) (library, error) {
		lib := dialOurs(addrs, ttl)
		lib.rs = lib.rs.With(options...)
		return lib, nil
	}
}

func openViaClient(addrs []string, ttl time.Duration) (library, error) {
	return dialOurs(addrs, ttl, pool.ViaClient()), nil
}

func openFunc(addrs []string, ttl time.Duration) (library, error) {
	return oursOn(addrs, ttl, func(c *redis.Client) pool.Pool {
		return pool.Func(func(ctx context.Context, args ...any) (any, error) { return c.Do(ctx, args...).Result() },
			pool.WithName(c.Options().Addr))
	}), nil
}

func dialOurs(addrs []string, ttl time.Duration, options ...pool.Option) *oursLibrary {
	return oursOn(addrs, ttl, func(c *redis.Client) pool.Pool { return pool.New(c, options...) })
}

func oursOn(addrs []string, ttl time.Duration, newPool func(*redis.Client) pool.Pool) *oursLibrary {
	cs := dial(addrs)
	pools := make([]pool.Pool, len(cs))
	for i, c := range cs {
		pools[i] = newPool(c)
	}
	return &oursLibrary{clients: cs, rs: redsync.New(pools...).With(redsync.WithExpiry(ttl))}
}

func (l *oursLibrary) Lock(ctx context.Context, name string) (held, error) {
	m := l.rs.NewMutex(name)
	return m, m.LockContext(ctx)
}

func (l *oursLibrary) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // it may hold a million locks
	defer cancel()
	return errors.Join(l.rs.Close(ctx), l.clients.Close())
}

// redsyncLibrary is redsync v4. It passes its options to each mutex.
type redsyncLibrary struct {
	clients // empty with rueidis
	rs      *rival.Redsync
	options []rival.Option
	close   func() error
}

func openRedsync(addrs []string, ttl time.Duration) (library, error) {
	return redsyncOnGoRedis(addrs, rival.WithExpiry(ttl)), nil
}

func openFailFast(addrs []string, ttl time.Duration) (library, error) {
	return redsyncOnGoRedis(addrs, rival.WithExpiry(ttl), rival.WithFailFast(true)), nil
}

func redsyncOnGoRedis(addrs []string, options ...rival.Option) *redsyncLibrary {
	cs := dial(addrs)
	pools := make([]rivalredis.Pool, len(cs))
	for i, c := range cs {
		pools[i] = goredis.NewPool(c)
	}
	return &redsyncLibrary{clients: cs, rs: rival.New(pools...), options: options, close: cs.Close}
}

func (l *redsyncLibrary) Lock(ctx context.Context, name string) (held, error) {
	m := l.rs.NewMutex(name, l.options...)
	return m, m.LockContext(ctx)
}

func (l *redsyncLibrary) Close() error { return l.close() }

// redislockLibrary is bsm/redislock on the first node.
type redislockLibrary struct {
	clients
	locker  *redislock.Client
	ttl     time.Duration
	options *redislock.Options // the zero value: no retries
}

func openRedislock(addrs []string, ttl time.Duration) (library, error) {
	cs := dial(addrs[:1])
	return &redislockLibrary{clients: cs, locker: redislock.New(cs[0]), ttl: ttl, options: new(redislock.Options)}, nil
}

func (l *redislockLibrary) Lock(ctx context.Context, name string) (held, error) {
	lock, err := l.locker.Obtain(ctx, name, l.ttl, l.options)
	return redislockLock{lock}, err
}

type redislockLock struct{ *redislock.Lock }

func (l redislockLock) UnlockContext(ctx context.Context) (bool, error) {
	err := l.Release(ctx)
	return err == nil, err
}
