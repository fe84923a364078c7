package main

import (
	"context"
	"errors"
	"slices"
	"time"

	rival "github.com/go-redsync/redsync/v4"
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

// A party is one process that uses a library, with connections of its own. Lock waits for the lock; TryLock makes one attempt.
type party struct {
	Lock, TryLock attempt
	Close         func()
}

type attempt func(ctx context.Context, name string) (grip, error)

// A grip is a lock that was acquired.
type grip struct {
	// Held reports whether the library, without asking a node, tells its holder that it holds the lock.
	Held func() bool
	// Lost is closed when the library tells that the lock is lost. It is nil if the library has no such signal.
	Lost  <-chan struct{}
	Token uint64 // 0: none
	// Extend returns errors.ErrUnsupported if the library has no such call.
	Extend, Unlock func(ctx context.Context) error
}

// failing returns the call with an error of its own where it returns false and no error.
func failing(call func(ctx context.Context) (bool, error)) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		ok, err := call(ctx)
		if !ok && err == nil {
			return errors.New("false without an error")
		}
		return err
	}
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
		c.Close()
	}
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
	rs = rs.With(options...)
	attempts := func(lock func(*redsync.Mutex, context.Context) error, options ...redsync.Option) attempt {
		return func(ctx context.Context, name string) (grip, error) {
			m := rs.NewMutex(name, options...)
			err := lock(m, ctx)
			return grip{func() bool { return m.Remaining() > 0 }, m.Lost(), m.Fence(), failing(m.ExtendContext), failing(m.UnlockContext)}, err
		}
	}
	return party{attempts((*redsync.Mutex).LockContext, redsync.WithTries(0)), attempts((*redsync.Mutex).TryLockContext), func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		rs.Close(ctx) // a scene may leave nodes dead
		closeAll(clients)
	}}, nil
}

// A holder with redsync v4 learns from Until whether it still holds the lock.
func openV4(addrs []string, set setting) (party, error) {
	clients := dialAll(addrs)
	rs := openRival(clients).(rivalLibrary).rs
	options := []rival.Option{rival.WithExpiry(set.Expiry), rival.WithTries(10000)}
	if set.Heal {
		options = append(options, rival.WithSetNXOnExtend())
	}
	attempts := func(lock func(*rival.Mutex, context.Context) error) attempt {
		return func(ctx context.Context, name string) (grip, error) {
			m := rs.NewMutex(name, options...)
			err := lock(m, ctx)
			return grip{func() bool { return time.Now().Before(m.Until()) }, nil, 0, failing(m.ExtendContext), failing(m.UnlockContext)}, err
		}
	}
	return party{attempts((*rival.Mutex).LockContext), attempts((*rival.Mutex).TryLockContext), func() { closeAll(clients) }}, nil
}

// Rueidislock with one key on the first node. It always extends the key until the release.

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
	if err != nil {
		return party{}, err
	}
	// TryLock bounds the wait for the node by ctx, but not the lock, which ends with own.
	tryLock := func(ctx context.Context, name string) (grip, error) {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		stop := context.AfterFunc(ctx, cancel)
		held, release, err := locker.TryWithContext(own, name)
		stop()
		if err != nil {
			cancel()
			return grip{}, err
		}
		return grip{
			func() bool { return held.Err() == nil }, held.Done(), 0,
			func(context.Context) error { return errors.ErrUnsupported },
			func(context.Context) error { release(); cancel(); return nil },
		}, nil
	}
	return party{func(ctx context.Context, name string) (grip, error) {
		for { // a Lock of rueidislock would end the lock with ctx
			g, err := tryLock(ctx, name)
			if err == nil || ctx.Err() != nil {
				return g, err
			}
			time.Sleep(10 * time.Millisecond)
		}
	}, tryLock, locker.Close}, nil
}
