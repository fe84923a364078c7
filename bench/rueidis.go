package main

import (
	"context"
	"errors"
	"strings"
	"time"

	rival "github.com/go-redsync/redsync/v4"
	rivalredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// ForceSingleClient, below, saves each client a CLUSTER SLOTS command when it connects. control cannot
// check this option: on a server outside a Cluster, rueidis makes the same client with and without it.

// openRueidis opens redsync v4 WithFailFast, on one rueidis client per node.
func openRueidis(addrs []string, ttl time.Duration) (library, error) {
	var opened []rueidis.Client
	closeAll := func() error {
		for _, c := range opened {
			c.Close()
		}
		return nil
	}
	pools := make([]rivalredis.Pool, len(addrs))
	for i, addr := range addrs {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true})
		if err != nil {
			_ = closeAll()
			return nil, err
		}
		opened = append(opened, c)
		pools[i] = rueidisPool{c}
	}
	options := []rival.Option{rival.WithExpiry(ttl), rival.WithFailFast(true)}
	return &redsyncLibrary{rs: rival.New(pools...), options: options, close: closeAll}, nil
}

// rueidisPool implements the pool of redsync v4 on rueidis, as far as Lock and Unlock need it. The pool
// that comes with redsync v4 uses rueidiscompat, which costs some more allocations.
type rueidisPool struct{ client rueidis.Client }

func (p rueidisPool) Get(ctx context.Context) (rivalredis.Conn, error) {
	return &rueidisConn{p.client, ctx}, nil
}

type rueidisConn struct {
	client rueidis.Client
	ctx    context.Context //nolint:containedctx // redsync's pools are made like this
}

func (c *rueidisConn) SetNX(name, value string, ttl time.Duration) (bool, error) {
	err := c.client.Do(c.ctx, c.client.B().Set().Key(name).Value(value).Nx().Px(ttl).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return false, nil
	}
	return err == nil, err
}

func (c *rueidisConn) Eval(script *rivalredis.Script, keysAndArgs ...any) (any, error) {
	texts := make([]string, len(keysAndArgs))
	for i, arg := range keysAndArgs {
		text, ok := arg.(string)
		if !ok {
			return nil, errors.ErrUnsupported
		}
		texts[i] = text
	}
	keys, args, n := texts[:script.KeyCount], texts[script.KeyCount:], int64(script.KeyCount)
	v, err := c.client.Do(c.ctx, c.client.B().Evalsha().Sha1(script.Hash).Numkeys(n).Key(keys...).Arg(args...).Build()).ToAny()
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT ") {
		v, err = c.client.Do(c.ctx, c.client.B().Eval().Script(script.Src).Numkeys(n).Key(keys...).Arg(args...).Build()).ToAny()
	}
	if rueidis.IsRedisNil(err) {
		return nil, nil //nolint:nilnil // what redsync expects
	}
	return v, err
}

func (c *rueidisConn) Close() error { return nil }

// Lock and Unlock of redsync v4 do not call the methods below.

func (c *rueidisConn) Get(string) (string, error)          { return "", errors.ErrUnsupported }
func (c *rueidisConn) Set(_, _ string) (bool, error)       { return false, errors.ErrUnsupported }
func (c *rueidisConn) PTTL(string) (time.Duration, error)  { return 0, errors.ErrUnsupported }
func (c *rueidisConn) ScriptLoad(*rivalredis.Script) error { return errors.ErrUnsupported }

// rueidislockLibrary is rueidislock with one key on the first node. It always extends a held lock
// until its release; that cannot be turned off.
type rueidislockLibrary struct{ locker rueidislock.Locker }

func openRueidislock(addrs []string, ttl time.Duration) (library, error) {
	return openKeys(addrs, ttl, 1)
}

// openKeys opens rueidislock with that many keys as the majority: 1 means one key.
func openKeys(addrs []string, ttl time.Duration, majority int32) (library, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: addrs[:1], ForceSingleClient: true},
		KeyValidity:  ttl,
		KeyMajority:  majority,
		// After TryNextAfter, rueidislock gives up a key and tries the next. Here no next key exists.
		// With the default of 20 ms, a Lock that takes longer under load gives up its only key, and
		// then waits without being woken.
		TryNextAfter:   ttl,
		NoLoopTracking: true, // recommended from Redis 7.0.5 on
	})
	return rueidislockLibrary{locker}, err
}

func (l rueidislockLibrary) Lock(ctx context.Context, name string) (held, error) {
	ctx, cancel, err := l.locker.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return rueidislockLock{ctx.Done(), cancel}, nil
}

func (l rueidislockLibrary) Close() error {
	l.locker.Close()
	return nil
}

// rueidislockLock is an acquired lock of rueidislock. release returns after the key has been deleted.
type rueidislockLock struct {
	lost    <-chan struct{}
	release context.CancelFunc
}

func (l rueidislockLock) UnlockContext(context.Context) (bool, error) {
	l.release()
	return true, nil
}

func (l rueidislockLock) gone() <-chan struct{} { return l.lost }
