package main

import (
	"context"
	"errors"
	"slices"
	"time"

	rival "github.com/go-redsync/redsync/v4"
	rivalredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
)

// An accused is a library against which objections are raised.
type accused struct {
	name string
	// nodes is how many servers keep a lock of the library.
	nodes int
	// key returns the Redis key of a lock.
	key func(name string) string
	// saysTaken tells whether an error of TryLock means that somebody else has the lock.
	saysTaken func(error) bool
	open      func(addrs []string, set setting) (party, error)
}

// A setting has the options that a scene chooses. A library ignores those that it does not have.
type setting struct {
	Expiry  time.Duration
	Auto    bool // the lock extends itself
	Fencing bool
	Heal    bool      // Extend sets missing keys again
	Guard   bool      // nodes that have restarted do not count for an expiry
	Fresh   time.Time // nobody held a lock before; the stage sets it for a party with Guard

	// After are the addresses of the nodes after a change, for which this library makes a joint set; nil: no change.
	After []string

	// Deadline is how long this library waits for a node, as a part of the expiry; 0
	// means its default. The other libraries keep their defaults.
	Deadline float64
}

// A party is one process that uses a library, with connections of its own.
type party interface {
	// Lock waits for the lock; TryLock makes one attempt.
	Lock(ctx context.Context, name string) (grip, error)
	TryLock(ctx context.Context, name string) (grip, error)
	Close()
}

// A grip is a lock that was acquired.
type grip interface {
	// Held reports whether the library, without asking a node, tells its holder that it holds the lock.
	Held() bool
	// Lost returns a channel that is closed when the library tells that the lock is lost,
	// or nil if the library has no such signal.
	Lost() <-chan struct{}
	// Extend returns errors.ErrUnsupported if the library has no such call.
	Extend(ctx context.Context) error
	Unlock(ctx context.Context) error
	Token() uint64 // 0: none
}

const (
	thisOne       = "this library"
	redsyncV4     = "redsync v4.18.1"
	oneKeyOnOne   = "rueidislock v1.0.79"
	standardNodes = 5
)

// libraries are in the order of the columns of docs/objections.md.
var libraries = []accused{
	{
		name: thisOne, nodes: standardNodes, open: openThis,
		key:       func(name string) string { return name },
		saysTaken: func(err error) bool { return errors.As(err, new(*redsync.ErrTaken)) },
	},
	{
		name: redsyncV4, nodes: standardNodes, open: openV4,
		key:       func(name string) string { return name },
		saysTaken: func(err error) bool { return errors.As(err, new(*rival.ErrTaken)) },
	},
	{
		name: oneKeyOnOne, nodes: 1, open: openRueidislock,
		key:       func(name string) string { return "rueidislock:0:" + name },
		saysTaken: func(err error) bool { return errors.Is(err, rueidislock.ErrNotLocked) },
	},
}

// dialAll returns one go-redis client per node, with the defaults of go-redis.
func dialAll(addrs []string) []*redis.Client {
	clients := make([]*redis.Client, len(addrs))
	for i, addr := range addrs {
		clients[i] = redis.NewClient(&redis.Options{Addr: addr})
	}
	return clients
}

func closeAll(clients []*redis.Client) {
	for _, c := range clients {
		_ = c.Close()
	}
}

// This library.

type thisParty struct {
	rs      *redsync.Redsync
	clients []*redis.Client
}

func openThis(addrs []string, set setting) (party, error) {
	var guard []pool.Option
	if set.Guard {
		guard = []pool.Option{pool.WithRestartGuard(set.Expiry), pool.WithNoLocksBefore(set.Fresh)}
	}
	options := []redsync.Option{redsync.WithExpiry(set.Expiry)}
	if set.Auto {
		options = append(options, redsync.WithWatchdog())
	}
	if set.Fencing {
		options = append(options, redsync.WithFencing())
	}
	if set.Heal {
		options = append(options, redsync.WithSetNXOnExtend())
	}
	if set.Deadline != 0 {
		options = append(options, redsync.WithTimeoutFactor(set.Deadline))
	}
	clients := dialAll(slices.Concat(addrs, set.After))
	pools := make([]pool.Pool, len(clients))
	for i, c := range clients {
		pools[i] = pool.New(c, guard...)
	}
	rs := redsync.New(pools...)
	if set.After != nil {
		rs = redsync.NewJoint(pools[:len(addrs)], pools[len(addrs):])
	}
	return &thisParty{rs: rs.With(options...), clients: clients}, nil
}

func (p *thisParty) Lock(ctx context.Context, name string) (grip, error) {
	m := p.rs.NewMutex(name, redsync.WithTries(0))
	return thisGrip{m}, m.LockContext(ctx)
}

func (p *thisParty) TryLock(ctx context.Context, name string) (grip, error) {
	m := p.rs.NewMutex(name)
	return thisGrip{m}, m.TryLockContext(ctx)
}

func (p *thisParty) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = p.rs.Close(ctx) // a scene may leave nodes dead
	closeAll(p.clients)
}

type thisGrip struct{ m *redsync.Mutex }

func (g thisGrip) Held() bool            { return g.m.Remaining() > 0 }
func (g thisGrip) Lost() <-chan struct{} { return g.m.Lost() }
func (g thisGrip) Token() uint64         { return g.m.Fence() }

func (g thisGrip) Extend(ctx context.Context) error {
	_, err := g.m.ExtendContext(ctx)
	return err
}

func (g thisGrip) Unlock(ctx context.Context) error {
	_, err := g.m.UnlockContext(ctx)
	return err
}

// Redsync v4. A holder learns from Until whether it still holds the lock.

type v4Party struct {
	rs      *rival.Redsync
	clients []*redis.Client
	set     setting
}

func openV4(addrs []string, set setting) (party, error) {
	p := &v4Party{clients: dialAll(addrs), set: set}
	pools := make([]rivalredis.Pool, len(p.clients))
	for i, c := range p.clients {
		pools[i] = goredis.NewPool(c)
	}
	p.rs = rival.New(pools...)
	return p, nil
}

func (p *v4Party) mutex(name string, options ...rival.Option) *rival.Mutex {
	options = append(options, rival.WithExpiry(p.set.Expiry))
	if p.set.Heal {
		options = append(options, rival.WithSetNXOnExtend())
	}
	return p.rs.NewMutex(name, options...)
}

func (p *v4Party) Lock(ctx context.Context, name string) (grip, error) {
	m := p.mutex(name, rival.WithTries(10000))
	return v4Grip{m}, m.LockContext(ctx)
}

func (p *v4Party) TryLock(ctx context.Context, name string) (grip, error) {
	m := p.mutex(name)
	return v4Grip{m}, m.TryLockContext(ctx)
}

func (p *v4Party) Close() { closeAll(p.clients) }

type v4Grip struct{ m *rival.Mutex }

func (g v4Grip) Held() bool          { return time.Now().Before(g.m.Until()) }
func (v4Grip) Lost() <-chan struct{} { return nil }
func (v4Grip) Token() uint64         { return 0 }

func (g v4Grip) Extend(ctx context.Context) error {
	ok, err := g.m.ExtendContext(ctx)
	return failed(ok, err)
}

func (g v4Grip) Unlock(ctx context.Context) error {
	ok, err := g.m.UnlockContext(ctx)
	return failed(ok, err)
}

// failed returns err, or an error of its own if ok is false and err is nil.
func failed(ok bool, err error) error {
	if !ok && err == nil {
		return errors.New("false without an error")
	}
	return err
}

// Rueidislock with one key on the first node. It always extends the key until the release.

type keyParty struct{ locker rueidislock.Locker }

func openRueidislock(addrs []string, set setting) (party, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: addrs[:1], ForceSingleClient: true},
		KeyValidity:  set.Expiry,
		KeyMajority:  1,
		// After TryNextAfter rueidislock gives up a key and tries the next. It has only one key here, and a Lock that
		// gives it up waits to be woken.
		TryNextAfter:   time.Second,
		NoLoopTracking: true, // recommended from Redis 7.0.5 on
	})
	return &keyParty{locker}, err
}

func (p *keyParty) Lock(ctx context.Context, name string) (grip, error) {
	// In rueidislock a lock ends with the context of the call that acquired it. But ctx must
	// bound the wait only. So Lock repeats TryLock, whose lock outlives ctx.
	for {
		g, err := p.TryLock(ctx, name)
		if err == nil || ctx.Err() != nil {
			return g, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TryLock bounds the wait for the node by ctx, but not the lock.
func (p *keyParty) TryLock(ctx context.Context, name string) (grip, error) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	held, release, err := p.locker.TryWithContext(own, name)
	stop()
	if err != nil {
		cancel()
		return nil, err
	}
	return keyGrip{held, func() { release(); cancel() }}, nil
}

func (p *keyParty) Close() { p.locker.Close() }

type keyGrip struct {
	ctx     context.Context //nolint:containedctx // it is what rueidislock calls a lock
	release func()
}

func (g keyGrip) Held() bool                 { return g.ctx.Err() == nil }
func (g keyGrip) Lost() <-chan struct{}      { return g.ctx.Done() }
func (keyGrip) Token() uint64                { return 0 }
func (keyGrip) Extend(context.Context) error { return errors.ErrUnsupported }

func (g keyGrip) Unlock(context.Context) error {
	g.release()
	return nil
}
