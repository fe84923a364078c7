package redsync_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/safety"
	"github.com/seed14bd9ef4/redsync/pool"
)

// The algorithm's safety properties, from outside: every scene of package
// safety, in virtual time and on real servers.

func TestMain(m *testing.M) {
	code := m.Run()
	// go-redis looks once a second whether a pool that could not dial has been
	// closed; goleak waits for less.
	time.Sleep(1100 * time.Millisecond)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// library adapts this package to the scenes.
type library struct{ *redsync.Redsync }

func open(clients []*redis.Client) safety.Library {
	pools := make([]pool.Pool, len(clients))
	for i, c := range clients {
		pools[i] = pool.New(c)
	}
	return library{redsync.New(pools...)}
}

// openPlain hides what the clients are, so that their pools have no stream.
func openPlain(clients []*redis.Client) safety.Library {
	pools := make([]pool.Pool, len(clients))
	for i, c := range clients {
		pools[i] = pool.New(struct{ redis.UniversalClient }{c})
	}
	return library{redsync.New(pools...)}
}

func (l library) NewMutex(name string, o safety.Options) safety.Mutex {
	var options []redsync.Option
	if o.Expiry != 0 {
		options = append(options, redsync.WithExpiry(o.Expiry))
	}
	if o.Tries != 0 {
		options = append(options, redsync.WithTries(o.Tries))
	}
	if o.RetryDelay != 0 {
		options = append(options, redsync.WithRetryDelay(o.RetryDelay))
	}
	if o.Value != "" {
		options = append(options, redsync.WithValue(o.Value))
	}
	if o.Heal {
		options = append(options, redsync.WithSetNXOnExtend())
	}
	return l.Redsync.NewMutex(name, options...)
}

func (l library) Close() {
	_ = l.Redsync.Close(context.Background()) // a scene may leave nodes frozen
}

func TestScenesInVirtualTime(t *testing.T) {
	for _, s := range safety.Scenes {
		t.Run(s.Name, func(t *testing.T) {
			require.NoError(t, safety.PlayEmbedded(t, open, s))
		})
	}
}

func TestScenesOnPlainClients(t *testing.T) {
	for _, s := range safety.Scenes {
		t.Run(s.Name, func(t *testing.T) {
			require.NoError(t, safety.PlayEmbedded(t, openPlain, s))
		})
	}
}

func TestScenesOnRealServers(t *testing.T) {
	for _, s := range safety.Scenes {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, safety.PlayReal(t, open, s))
		})
	}
}
