package wire

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A census is a recorder for the metrics of go-redis. It counts the connection pools that clients
// have made, and those that they have not closed yet.
type census struct{ made, open atomic.Int64 }

func (c *census) begin() { c.made.Add(1); c.open.Add(1) }

func (c *census) RegisterPool(string, redis.Pooler)             { c.begin() }
func (c *census) RegisterPubSubPool(string, redis.PubSubPooler) { c.begin() }
func (c *census) UnregisterPool(redis.Pooler)                   { c.open.Add(-1) }
func (c *census) UnregisterPubSubPool(redis.PubSubPooler)       { c.open.Add(-1) }

// The other metrics. Clients of other tests may still report them.

func (*census) RecordOperationDuration(context.Context, time.Duration, redis.Cmder, int, error, redis.ConnInfo, int) {
}

func (*census) RecordPipelineOperationDuration(context.Context, time.Duration, string, int, int, error, redis.ConnInfo, int) {
}

func (*census) RecordConnectionCreateTime(context.Context, time.Duration, redis.ConnInfo) {}

func (*census) RecordConnectionRelaxedTimeout(context.Context, int, redis.ConnInfo, string, string) {}

func (*census) RecordConnectionHandoff(context.Context, redis.ConnInfo, string) {}

func (*census) RecordError(context.Context, string, redis.ConnInfo, string, bool, int) {}

func (*census) RecordMaintenanceNotification(context.Context, redis.ConnInfo, string) {}

func (*census) RecordConnectionWaitTime(context.Context, time.Duration, redis.ConnInfo) {}

func (*census) RecordConnectionClosed(context.Context, redis.ConnInfo, string, error) {}

func (*census) RecordPubSubMessage(context.Context, redis.ConnInfo, string, string, bool) {}

func (*census) RecordStreamLag(context.Context, time.Duration, redis.ConnInfo, string, string, string) {
}

// The pool makes some clients only to read their options. It must close them: an open one would
// stay in the metrics of go-redis.
func TestClientsMadeForTheirOptionsAreClosed(t *testing.T) {
	cluster := cast{}.client()
	defer func() { _ = cluster.Close() }()
	known := unused(t, &redis.Options{Addr: firstOfCast, MaintNotificationsConfig: noNotifications})
	p := newRoutedPool(Config{}, cluster)
	for name, ask := range map[string]func(){
		"the default dialer":               func() { dialerOfClient() },
		"a node that the client knows not": func() { p.nodeAtLocked("10.0.0.2:7000", &streamPool{client: known}) },
	} {
		t.Run(name, func(t *testing.T) {
			var all census
			redis.SetOTelRecorder(&all)
			defer redis.SetOTelRecorder(nil)
			ask()
			require.Positive(t, all.made.Load())
			require.Zero(t, all.open.Load())
		})
	}
}
