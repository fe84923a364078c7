package wiretest_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testmain"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/internal/wire/wiretest"
)

func TestMain(m *testing.M) { testmain.RunWaiting(m) }

var (
	_ wire.Located = (*Driver)(nil)
	_ wire.Met     = (*Driver)(nil)
)

func TestDriverConformsEmbedded(t *testing.T) {
	wiretest.Run(t, func(t *testing.T, check func(*testing.T, wiretest.Env)) {
		synctest.Test(t, func(t *testing.T) {
			nodes := embedded.Start(1)
			t.Cleanup(nodes.Close) // after the cleanups of check
			node := nodes[0]
			link := wiretest.NewLink(node.Dial)
			check(t, wiretest.Env{
				Pool: driverOn(link, "node"),
				Do: func(args ...any) (any, error) {
					c := node.Client()
					defer func() { _ = c.Close() }()
					return c.Do(context.Background(), args...).Result()
				},
				Freeze:      node.Freeze,
				Thaw:        node.Thaw,
				Kill:        node.Kill,
				Restart:     func() { node.Restart(true) },
				LoseReply:   link.LoseReply,
				Answer:      func(command, text string) { node.On(command, 1, embedded.Fault{Err: text}) },
				Connections: node.CurrentConnectionCount,
			})
		})
	})
}

func TestDriverConformsRealServer(t *testing.T) {
	wiretest.RunParallel(t, func(t *testing.T, check func(*testing.T, wiretest.Env)) {
		server := realredis.Start(t, 1)[0]
		link := wiretest.NewLink(nil)
		check(t, wiretest.Env{
			Pool:      driverOn(link, server.Addr()),
			Do:        server.Do,
			Freeze:    server.Freeze,
			Thaw:      server.Thaw,
			Kill:      server.Kill,
			Restart:   server.Restart,
			LoseReply: link.LoseReply,
			Connections: func() int {
				list, err := server.Do("client", "list")
				if err != nil {
					return -1
				}
				return strings.Count(list.(string), "\n") - 1 // without the connection of Do
			},
			Slack: 4 * time.Second,
		})
	})
}

func driverOn(link *wiretest.Link, address string) func(limit int) wire.Pool {
	return func(limit int) wire.Pool { return NewDriver(address, greeted(link.Dial, address), limit) }
}
