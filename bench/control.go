package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/bsm/redislock"
	rival "github.com/go-redsync/redsync/v4"
	rivalredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
)

// start opens the contender and checks that it runs with the options of its name. It compares the
// settings of the go-redis clients and of a lock with those that the name promises. It also asks each
// node whether it keeps the lock, and for how long. Every scene starts its contenders here. So if an
// option does not reach the locks, the run fails and no row of the report is mislabelled.
func (c contender) start(ctx context.Context, addrs []string, ttl time.Duration) (library, error) {
	lib, err := c.open(addrs, ttl)
	if err != nil {
		return nil, err
	}
	if err := c.control(ctx, lib, addrs, ttl); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", c.name, err), lib.Close())
	}
	return lib, nil
}

// controlLocks limits how many locks control acquires until it has seen each node keep one. The first
// lock may not be on all nodes yet when control looks: this library and the floor return at a quorum,
// while slower nodes still set their keys. redsync v4 WithFailFast even cancels its remaining requests.
const controlLocks = 50

func (c contender) control(ctx context.Context, lib library, addrs []string, ttl time.Duration) (err error) {
	if l, ok := lib.(interface{ onGoRedis() clients }); ok {
		if err := l.onGoRedis().checkDefaults(); err != nil {
			return err
		}
	}
	look := dial(addrs)
	defer func() { err = errors.Join(err, look.Close()) }()
	want := len(addrs)
	if c.single {
		want = 1
	}
	seen := make(map[int]bool) // the nodes that kept a lock
	for i := 0; i < controlLocks && len(seen) < want; i++ {
		if err := c.controlLock(ctx, lib, look, seen, ttl); err != nil {
			return err
		}
	}
	if len(seen) != want {
		return fmt.Errorf("%d nodes kept its locks, want %d", len(seen), want)
	}
	return nil
}

// controlLock acquires a lock, checks it, adds to seen the nodes that have its key, and releases it.
func (c contender) controlLock(
	ctx context.Context, lib library, look clients, seen map[int]bool, ttl time.Duration,
) error {
	start := time.Now()
	name := fmt.Sprintf("bench:control:%d:%d", os.Getpid(), start.UnixNano()) // no other process uses it
	lock, err := lib.Lock(ctx, name)
	if err != nil {
		return err
	}
	err = c.checkSettings(lib, lock, len(look), ttl)
	for i := 0; i < len(look) && err == nil; i++ {
		var keeps bool
		if keeps, err = c.keeps(ctx, look[i], name, start, ttl); keeps {
			seen[i] = true
		}
	}
	return errors.Join(err, unlock(ctx, lock))
}

// keeps returns whether a node has the keys of the lock on name, for which Lock was called at start. It returns an
// error if the node has the first key but lacks another. The node may set the keys while keeps looks, but it sets all
// of them at once, so every key must be there once the first one is.
func (c contender) keeps(
	ctx context.Context, node *redis.Client, name string, start time.Time, ttl time.Duration,
) (bool, error) {
	if c.oneOf != nil {
		return keepsOne(ctx, node, c.oneOf(name), start, ttl)
	}
	for i, name := range severalNames(name, max(c.names, 1)) {
		left, err := node.PTTL(ctx, c.keyPrefix+name).Result()
		switch {
		case redis.HasErrorPrefix(err, "MOVED"): // of a Cluster, another master has the name
			return false, nil
		case err != nil:
			return false, err
		case left == noKey && i == 0:
			return false, nil
		case left == noKey:
			return false, fmt.Errorf("a node has its key 1, but not key %d", i+1)
		}
		if err := checkTTL(left, time.Since(start), ttl); err != nil {
			return false, err
		}
	}
	return true, nil
}

// keepsOne tells whether a node has one of the keys of a lock. It returns an error if it has several.
func keepsOne(ctx context.Context, node *redis.Client, keys []string, start time.Time, ttl time.Duration) (bool, error) {
	had := 0
	for _, key := range keys {
		left, err := node.PTTL(ctx, key).Result()
		if err != nil {
			return false, err
		}
		if left == noKey {
			continue
		}
		had++
		if err := checkTTL(left, time.Since(start), ttl); err != nil {
			return false, err
		}
	}
	if had > 1 {
		return false, fmt.Errorf("a node has %d of its keys, want 1", had)
	}
	return had == 1, nil
}

// noKey is the PTTL that go-redis returns if there is no key.
const noKey time.Duration = -2

// checkTTL checks left, the remaining TTL of a key that was set at most elapsed ago. left may exceed
// ttl by a second, because some libraries round up.
func checkTTL(left, elapsed, ttl time.Duration) error {
	if left+elapsed < ttl-min(2*time.Second, ttl/10) || left > ttl+time.Second {
		return fmt.Errorf("a node keeps its lock for %v after %v, want %v in all", left, elapsed, ttl)
	}
	return nil
}

// checkDefaults checks that the clients have the options that go-redis gives a client by default. Call it
// before the first command, because the handshake of a connection may change the options.
func (cs clients) checkDefaults() error {
	for _, c := range cs {
		plain := redis.NewClient(&redis.Options{Addr: c.Options().Addr})
		err := differ("options", reflect.ValueOf(c.Options()), reflect.ValueOf(plain.Options()))
		if err := errors.Join(err, plain.Close()); err != nil {
			return err
		}
	}
	return nil
}

// checkSettings compares the settings of an acquired lock with those that locks of c must have.
func (c contender) checkSettings(lib library, lock held, nodes int, ttl time.Duration) error {
	if c.single {
		nodes = 1
	}
	like, err := c.like(nodes, ttl)
	if err != nil || like == nil {
		return err
	}
	got, want := reflect.ValueOf(lock), reflect.ValueOf(like)
	switch l := lib.(type) {
	case rueidislockLibrary:
		got = reflect.ValueOf(l.locker)
	case *redislockLibrary:
		got = reflect.ValueOf(l.options)
	}
	m, ok := like.(*redsync.Mutex)
	if !ok {
		return differ("lock", got, want)
	}
	err = errors.Join(differPart(got, want, "set"), differPart(got, want, "core", "keeper", "Set", "Nodes"))
	if c.names > 0 {
		err = errors.Join(err, differ("names", reflect.ValueOf(lock.(*redsync.Mutex).Names()), reflect.ValueOf(m.Names())))
	}
	return err
}

// The functions below provide the field like of a contender. They create a lock, or an object that
// makes locks, with the settings that the contender's name promises. The library itself fills in its
// defaults, so this file does not repeat them. No node is needed: the pools and the client are nil.

// likeNothing is for contenders whose locks have no settings. Only their keys on the nodes can be
// checked.
func likeNothing(int, time.Duration) (any, error) { return nil, nil } //nolint:nilnil // there is nothing

func likeRedsync(failFast bool) func(int, time.Duration) (any, error) {
	return func(nodes int, ttl time.Duration) (any, error) {
		rs := rival.New(make([]rivalredis.Pool, nodes)...)
		return rs.NewMutex("", rival.WithExpiry(ttl), rival.WithFailFast(failFast)), nil
	}
}

// likeOurs is for contenders of this library. All settings but the expiry and option are defaults.
func likeOurs(option ...redsync.Option) func(int, time.Duration) (any, error) {
	return func(nodes int, ttl time.Duration) (any, error) {
		rs := redsync.New(make([]pool.Pool, nodes)...).With(redsync.WithExpiry(ttl))
		return rs.NewMutex("like", option...), nil
	}
}

func likeRueidislock(_ int, ttl time.Duration) (any, error) {
	return rueidislock.NewLocker(rueidislock.LockerOption{
		ClientBuilder: func(rueidis.ClientOption) (rueidis.Client, error) { return nil, nil }, //nolint:nilnil // see above
		KeyValidity:   ttl, TryNextAfter: ttl, KeyMajority: 1, NoLoopTracking: true,
	})
}

func likeRedislock(int, time.Duration) (any, error) { return new(redislock.Options), nil }

// noSettings are the fields that the function differ skips. They may differ between two locks or
// clients with the same settings, or change while the library is in use.
var noSettings = []string{"name", "value", "until", "observers", "client", "gates", "mu", "isOwn"}

// differ returns an error that names a setting in which got and want differ. It uses reflection,
// because most settings are unexported. Functions are equal if their code is the same. Slices and maps
// are equal if their lengths are. Interfaces are equal if both or neither are nil. Channels are skipped.
func differ(path string, got, want reflect.Value) error {
	if !got.IsValid() || !want.IsValid() || got.Type() != want.Type() {
		return fmt.Errorf("its %s is %v, want %v", path, got, want)
	}
	var a, b any
	switch got.Kind() {
	case reflect.Struct:
		for field := range got.Type().Fields() {
			if slices.Contains(noSettings, field.Name) {
				continue
			}
			err := differ(path+"."+field.Name, got.FieldByIndex(field.Index), want.FieldByIndex(field.Index))
			if err != nil {
				return err
			}
		}
		return nil
	case reflect.Pointer:
		if a, b = got.IsNil(), want.IsNil(); a == b && a == false {
			return differ(path, got.Elem(), want.Elem())
		}
	case reflect.Interface:
		a, b = got.IsNil(), want.IsNil()
	case reflect.Slice, reflect.Map:
		a, b = got.Len(), want.Len()
	case reflect.Func:
		a, b = got.Pointer(), want.Pointer()
	case reflect.Chan:
		return nil
	default:
		a, b = fmt.Sprint(got), fmt.Sprint(want)
	}
	if a != b {
		return fmt.Errorf("its %s is %v, want %v", path, a, b)
	}
	return nil
}

// differPart calls differ for the field that path leads to. Each step of path is the name of a field.
func differPart(got, want reflect.Value, path ...string) error {
	for _, step := range path {
		got, want = reflect.Indirect(got), reflect.Indirect(want)
		if got.Kind() != reflect.Struct || want.Kind() != reflect.Struct {
			return fmt.Errorf("its lock is a %v, want a struct with %s", got.Kind(), step)
		}
		got, want = got.FieldByName(step), want.FieldByName(step)
	}
	return differ(strings.Join(path, "."), got, want)
}
