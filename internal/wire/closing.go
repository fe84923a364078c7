package wire

import (
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file finds out that the user has closed a client. The streams and subscriptions on it have connections of
// their own, which go-redis does not close, so they look at the client from time to time. That sends nothing.

// lookPause is how often streams and subscriptions look whether their client has been closed. Package pool promises a second.
const lookPause = 500 * time.Millisecond

// ErrClientClosed is the error of everything on a client that its user has closed. It matches redis.ErrClosed, which
// go-redis itself returns then, and ErrClosed, because such a Pool never sends again.
var ErrClientClosed error = clientClosed{}

type clientClosed struct{}

func (clientClosed) Error() string { return "pool: the client was closed" }

// Is implements the interface of errors.Is.
func (clientClosed) Is(target error) bool {
	return target == ErrClosed || target == redis.ErrClosed //nolint:errorlint // sentinels
}

// isClosed reports whether the user has closed client. It costs no network traffic, and no hook or limiter of the
// user's sees it. It returns false if the client does not show it.
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

// noPipeliner are options that go-redis refuses before it makes anything. But first it refuses a closed client.
var noPipeliner = &redis.AutoPipelineOptions{MaxBatchSize: -1}
