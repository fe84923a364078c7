package wire

import (
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file notices that the user has closed a client. go-redis does not close the connections of streams and
// subscriptions, so they look at the client.

// lookPause is the pause between looks. Package pool promises to notice within a second.
const lookPause = 500 * time.Millisecond

// ErrClientClosed is the error of everything on a client that its user has closed. It matches redis.ErrClosed, which
// go-redis returns then, and ErrClosed, because such a Pool never sends again.
var ErrClientClosed error = clientClosed{}

type clientClosed struct{}

func (clientClosed) Error() string { return "pool: the client was closed" }

func (clientClosed) Is(target error) bool {
	return target == ErrClosed || target == redis.ErrClosed //nolint:errorlint // sentinels
}

// isClosed reports whether the user has closed client, as far as that shows, unseen by hooks and limiters.
func isClosed(client redis.UniversalClient) bool {
	var err error
	switch client := client.(type) {
	case *redis.Client:
		_, err = client.AsyncAutoPipelineWithOptions(noPipeliner)
	case *redis.ClusterClient:
		_, err = client.AsyncAutoPipelineWithOptions(noPipeliner)
	case *redis.Ring:
		_, err = client.GetShardClientForKey("")
	}
	return errors.Is(err, redis.ErrClosed)
}

// noPipeliner are options that go-redis refuses, but only after it has refused a closed client.
var noPipeliner = &redis.AutoPipelineOptions{MaxBatchSize: -1}
