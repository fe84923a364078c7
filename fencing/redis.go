package fencing

import (
	"context"
	_ "embed" // the source of the script
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed write.lua
var writeSource string

var writeScript = redis.NewScript(writeSource)

// Redis guards values in Redis. A value and its token are the fields value and fence of
// one hash, so both expire, move and are lost together. It may be used by many goroutines
// at once.
//
// The key must be written by this type alone: who uses SET or DEL on it removes the token.
// On a server that is also a node of the lock it must not be the name of a lock. The server
// must not evict (maxmemory-policy noeviction); and where it can lose its last writes
// (appendfsync everysec, a failover) it can let an old holder in after that.
type Redis struct{ client redis.UniversalClient }

// NewRedis returns a guard of the values that client reaches. The caller closes client.
func NewRedis(client redis.UniversalClient) *Redis { return &Redis{client} }

// Set writes value, as go-redis encodes it, to key if token is not older than the newest
// there. Otherwise it returns a *StaleError and changes nothing, or ErrNoToken for 0. An
// equal token is in order. After any other error the value may have been written. (Where
// client repeats a command whose reply was lost, the first may have been executed, before
// a newer holder's, and the second be refused.)
//
// Value and token are kept for keep from now on, rounded up to milliseconds; 0 is for
// ever. keep must be longer than a holder may be paused or a request be on its way: once
// the token is gone, an old holder is let in. A few hours are a good start, a few times
// the lock's expiry are not.
func (r *Redis) Set(ctx context.Context, key string, value any, token uint64, keep time.Duration) error {
	return r.write(ctx, key, token, keep, "set", value)
}

// Delete removes the value of key, under the conditions of Set and with its errors. The
// token stays for keep.
func (r *Redis) Delete(ctx context.Context, key string, token uint64, keep time.Duration) error {
	return r.write(ctx, key, token, keep, "delete")
}

// Check notes token for key, so that nobody with an older one can write any more; it is
// for before a read. It returns a *StaleError if token is older than the newest there,
// ErrNoToken if it is 0. An equal token is in order. It does not change for how long
// value and token are kept: for ever if there was neither.
func (r *Redis) Check(ctx context.Context, key string, token uint64) error {
	return r.write(ctx, key, token, 0, "check")
}

func (r *Redis) write(ctx context.Context, key string, token uint64, keep time.Duration, what string, value ...any) error {
	if token == 0 {
		return ErrNoToken
	}
	if keep < 0 {
		return fmt.Errorf("fencing: keep %v is out of range: 0 (for ever) or more", keep)
	}
	ms := keep.Milliseconds()
	if keep%time.Millisecond > 0 {
		ms++
	}
	own := strconv.FormatUint(token, 10)
	args := append([]any{own, what, ms}, value...)
	text, err := writeScript.Run(ctx, r.client, []string{key}, args...).Text()
	if err != nil {
		return fmt.Errorf("fencing: %s %q: %w", what, key, err)
	}
	return admitText(token, own, text)
}

// Get returns the value of key and the newest token there, 0 for none. Where there is no
// value its error matches redis.Nil; the token of a Delete or Check comes with it.
func (r *Redis) Get(ctx context.Context, key string) (value string, token uint64, err error) {
	var found struct {
		Value *string `redis:"value"`
		Fence uint64  `redis:"fence"`
	}
	if err := r.client.HMGet(ctx, key, "value", "fence").Scan(&found); err != nil {
		return "", 0, fmt.Errorf("fencing: get %q: %w", key, err)
	}
	if found.Value == nil {
		return "", found.Fence, fmt.Errorf("fencing: get %q: %w", key, redis.Nil)
	}
	return *found.Value, found.Fence, nil
}

// admitText returns nil if token was let in: then the resource keeps its text, own, now.
// Another text that it keeps is that of a greater token, or of none: nothing was written.
func admitText(token uint64, own, kept string) error {
	if kept == own {
		return nil
	}
	if n, err := strconv.ParseUint(kept, 10, 64); err == nil && n > token {
		return &StaleError{Token: token, Newest: n}
	}
	return fmt.Errorf("fencing: the resource keeps %.100q in place of a token", kept)
}
