package main

import (
	"context"
	"errors"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/fencing"
)

// expiry is how long a holder that is paused keeps others from the lock.
const expiry = 2 * time.Second

// A fenced is a holder with a lock of this library. It writes through a guard.
type fenced struct {
	rs    *redsync.Redsync
	mutex *redsync.Mutex
	data  *fencing.Redis
	token uint64
}

func openFenced(ctx context.Context, nodes []string, name string, data *fencing.Redis) (*fenced, error) {
	rs, err := redsync.Open(ctx, nodes)
	if err != nil {
		return nil, err
	}
	mutex := rs.NewMutex(name, redsync.WithFencing(), redsync.WithExpiry(expiry), redsync.WithTries(0))
	return &fenced{rs: rs, mutex: mutex, data: data}, nil
}

// lock notes the token right after the Lock: it must be that of this lock, also if the lock expires.
func (h *fenced) lock(ctx context.Context) (uint64, error) {
	if err := h.mutex.LockContext(ctx); err != nil {
		return 0, err
	}
	h.token = h.mutex.Fence()
	return h.token, nil
}

// left says whether the holder may write. But a pause can come between this check and the write.
func (h *fenced) left() time.Duration { return h.mutex.Remaining() }

// write sends the token with the data. The guard refuses it if it has seen a newer one.
func (h *fenced) write(ctx context.Context, key, text string) error {
	return h.data.Set(ctx, key, text, h.token, 0)
}

func (h *fenced) unlock(ctx context.Context) error {
	_, err := h.mutex.UnlockContext(ctx)
	return errors.Join(err, h.rs.Close(ctx))
}
