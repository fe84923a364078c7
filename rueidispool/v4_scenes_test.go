package rueidispool

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/v4scenes"
)

// playV4 plays a scene of redsync v4's driver tests through these options of rueidis.
func playV4(t *testing.T, s v4scenes.Scene, through []rueidis.ClientOption) {
	t.Helper()
	var options []*redis.Options
	for _, option := range through {
		opt, err := Options(option)
		require.NoError(t, err)
		options = append(options, opt)
	}
	s.Play(t, "rueidis", options)
}

func TestV4ScenesInVirtualTime(t *testing.T) {
	t.Parallel()
	for _, s := range v4scenes.Scenes {
		t.Run(s.Test, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := embedded.Start(v4scenes.MaxNodes)
				var through []rueidis.ClientOption
				for _, n := range nodes {
					through = append(through, rueidis.ClientOption{
						InitAddress: []string{"node:6379"}, DialCtxFn: dialing(n),
					})
				}
				playV4(t, s, through)
				nodes.Close()
				time.Sleep(time.Minute) // goroutines that end by themselves have ended
			})
		})
	}
}
