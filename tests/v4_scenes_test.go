package redsync_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/internal/testkit/v4scenes"
)

// The scenes of redsync v4's driver tests, through options of go-redis v9. Module rueidispool plays them through
// options of rueidis.

func TestV4ScenesInVirtualTime(t *testing.T) {
	t.Parallel()
	for _, s := range v4scenes.Scenes {
		t.Run(s.Test, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := embedded.Start(v4scenes.MaxNodes)
				var options []*redis.Options
				for _, c := range clientsOf(nodes) {
					options = append(options, c.Options())
					_ = c.Close()
				}
				s.Play(t, "goredis_v9", options)
				nodes.Close()
				time.Sleep(minute) // goroutines that end by themselves have ended
			})
		})
	}
}

func TestV4ScenesOnRealServers(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	// redsync v4 reaches the servers of these drivers by their Unix sockets.
	sockets := make([]string, v4scenes.MaxNodes)
	for i := range sockets {
		sockets[i] = t.TempDir() + "/s"
		realredis.Start(t, 1, "--unixsocket", sockets[i])
	}
	for through, at := range map[string]func(socket string) *redis.Options{
		"pool.New, Options.Addr": func(socket string) *redis.Options {
			return &redis.Options{Network: "unix", Addr: socket}
		},
		"pool.New, Options.Dialer": func(socket string) *redis.Options {
			return &redis.Options{Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", socket)
			}}
		},
	} {
		for _, s := range v4scenes.Scenes {
			t.Run(s.Test+"/"+through, func(t *testing.T) {
				t.Parallel()
				var options []*redis.Options
				for _, socket := range sockets {
					options = append(options, at(socket))
				}
				s.Play(t, through, options)
			})
		}
	}
}
