package fencing

import (
	"context"
	_ "embed" // the sources of the scripts
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed write.lua
var writeSource string

//go:embed read.lua
var readSource string

var (
	writeScript = redis.NewScript(writeSource)
	readScript  = redis.NewScript(readSource)
)

// Redis guards values in Redis. A value and its tokens are the fields value, fence, read and written of one hash, so
// they expire, move and get lost together. Many goroutines may use a Redis at once.
//
// Only this type may write the key: SET or DEL would remove the token. If the server is also a node of the lock, the
// key must not be the name of a lock. The server must not evict keys (maxmemory-policy noeviction). A server that loses
// its last writes (appendfsync everysec, a failover) may then admit an old holder.
type Redis struct{ client redis.UniversalClient }

// NewRedis returns a guard of the values that client reaches. The caller closes client.
func NewRedis(client redis.UniversalClient) *Redis { return &Redis{client} }

// Set writes value, as go-redis encodes it, to key if token is not older than the newest there. Otherwise it changes
// nothing, and returns a *StaleError, or ErrNoToken if token is 0. After any other error the value may have been
// written, and even after a *StaleError, if client repeated a command whose reply was lost and a newer holder wrote in
// between.
//
// The server keeps value and token for the duration keep from now on, rounded up to milliseconds; 0 means for ever.
// Once the token is gone, an old holder is admitted, so keep must be longer than any pause of a holder and any delay of
// a request: a few hours, not a few times the lock's expiry.
func (r *Redis) Set(ctx context.Context, key string, value any, token uint64, keep time.Duration) error {
	return r.write(ctx, key, token, keep, "set", value)
}

// Delete removes the value of key, under the conditions and with the errors of Set. The server keeps the token for the
// duration keep.
func (r *Redis) Delete(ctx context.Context, key string, token uint64, keep time.Duration) error {
	return r.write(ctx, key, token, keep, "delete")
}

// Check notes token for key before a read, so that no holder with an older token can write any more. It has the errors
// of Set. How long value and token are kept does not change. If there are none, the token is kept for ever. A reader
// calls Read instead: Check would refuse other readers.
func (r *Redis) Check(ctx context.Context, key string, token uint64) error {
	return r.write(ctx, key, token, 0, "check")
}

func (r *Redis) write(ctx context.Context, key string, token uint64, keep time.Duration, what string, value ...any) error {
	if token == 0 {
		return ErrNoToken
	}
	ms, err := milliseconds(keep)
	if err != nil {
		return err
	}
	own := strconv.FormatUint(token, 10)
	args := append([]any{own, what, ms}, value...)
	text, err := writeScript.Run(orBackground(ctx), r.client, []string{key}, args...).Text()
	if err != nil {
		return fmt.Errorf("fencing: %s %q: %w", what, key, err)
	}
	return admitText(token, own, text)
}

func milliseconds(keep time.Duration) (int64, error) {
	if keep < 0 {
		return 0, fmt.Errorf("fencing: keep %v is out of range: 0 (for ever) or more", keep)
	}
	ms := keep.Milliseconds()
	if keep%time.Millisecond > 0 {
		ms++
	}
	return ms, nil
}

// Read returns the value of key if token is not older than the newest of a write there. Otherwise it changes nothing,
// and returns a *StaleError, or ErrNoToken if token is 0. If there is no value, err matches redis.Nil. From then on no
// holder with an older token can write, but readers with older tokens can still read.
//
// The server keeps value and tokens at least for the duration keep, as with Set. Pass what the writers pass.
func (r *Redis) Read(ctx context.Context, key string, token uint64, keep time.Duration) (value string, err error) {
	if token == 0 {
		return "", ErrNoToken
	}
	ms, err := milliseconds(keep)
	if err != nil {
		return "", err
	}
	own := strconv.FormatUint(token, 10)
	found, err := readScript.Run(orBackground(ctx), r.client, []string{key}, own, ms).Slice()
	if err != nil {
		return "", fmt.Errorf("fencing: read %q: %w", key, err)
	}
	if err := admitText(token, own, fmt.Sprint(found[0])); err != nil {
		return "", err
	}
	value, ok := found[1].(string)
	if !ok {
		return "", fmt.Errorf("fencing: read %q: %w", key, redis.Nil)
	}
	return value, nil
}

// Get returns the value of key and the newest token there, 0 for none, without a check. If there is no value, err
// matches redis.Nil, and token may still be greater than 0, after a Delete, Check or Read.
func (r *Redis) Get(ctx context.Context, key string) (value string, token uint64, err error) {
	var found struct {
		Value *string `redis:"value"`
		Fence uint64  `redis:"fence"`
	}
	if err := r.client.HMGet(orBackground(ctx), key, "value", "fence").Scan(&found); err != nil {
		return "", 0, fmt.Errorf("fencing: get %q: %w", key, err)
	}
	if found.Value == nil {
		return "", found.Fence, fmt.Errorf("fencing: get %q: %w", key, redis.Nil)
	}
	return *found.Value, found.Fence, nil
}

// admitText returns nil if token, whose text is own, was admitted. kept is what the resource keeps. If it differs from
// own, nothing was written, and kept is a greater token, or none.
func admitText(token uint64, own, kept string) error {
	if kept == own {
		return nil
	}
	if n, err := strconv.ParseUint(kept, 10, 64); err == nil && n > token {
		return &StaleError{Token: token, Newest: n}
	}
	return noToken(kept)
}

func noToken(kept string) error {
	return fmt.Errorf("fencing: the resource keeps %.100q in place of a token", kept)
}
