package safety

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/pool"
)

// Ours returns an Open for this project's library, with options as defaults of its locks.
func Ours(options ...redsync.Option) Open {
	return func(clients []*redis.Client) Library {
		pools := make([]wire.Pool, len(clients))
		for i, c := range clients {
			pools[i] = pool.New(c)
		}
		return ours{redsync.New(pools...).With(options...)}
	}
}

// OursOnPlainClients is an Open for this project's library. It hides the types of the clients, so
// that their pools have no stream.
func OursOnPlainClients(clients []*redis.Client) Library {
	pools := make([]wire.Pool, len(clients))
	for i, c := range clients {
		pools[i] = pool.New(struct{ redis.UniversalClient }{c})
	}
	return ours{redsync.New(pools...)}
}

type ours struct{ rs *redsync.Redsync }

func (o ours) NewMutex(name string, set Options) Mutex {
	var options []redsync.Option
	if set.Expiry != 0 {
		options = append(options, redsync.WithExpiry(set.Expiry))
	}
	if set.Tries != 0 {
		options = append(options, redsync.WithTries(set.Tries))
	}
	if set.RetryDelay != 0 {
		options = append(options, redsync.WithRetryDelay(set.RetryDelay))
	}
	if set.Value != "" {
		options = append(options, redsync.WithValue(set.Value))
	}
	if set.Generated != "" {
		options = append(options, redsync.WithGenValueFunc(func() (string, error) { return set.Generated, nil }))
	}
	if set.Heal {
		options = append(options, redsync.WithSetNXOnExtend())
	}
	return o.rs.NewMutex(name, options...)
}

func (o ours) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = o.rs.Close(ctx) // a scene may leave nodes frozen
}
