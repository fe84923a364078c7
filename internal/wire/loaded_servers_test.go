package wire_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/stall"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// A program makes a client for each lock. Only the first one loads the scripts, and one that meets another server at the
// address.
func TestScriptsAreLoadedOnceForManyClients(t *testing.T) {
	server := realredis.Start(t, 1)[0]
	loads := func() string {
		stats := realredis.Must(t, server, "info", "commandstats").(string)
		_, rest, _ := strings.Cut(stats, "cmdstat_script|load:calls=")
		calls, _, _ := strings.Cut(rest, ",")
		return calls
	}
	for _, restarts := range []bool{false, true} {
		stall.Replay(t, 100*time.Millisecond, func() error { // a client that reads late what the server says of its uptime doubts it
			if restarts {
				server.Kill()
				server.Restart()
			}
			first := ""
			for range 3 {
				client := clientOf(t, server.Addr())
				p := poolOf(t, client)
				lockOnce(t, p, "key")
				require.NotNil(t, wire.Answer(t, p, "ping").Server)
				require.NoError(t, client.Close())
				now := loads()
				require.NotEmpty(t, now)
				if first == "" {
					first = now
				}
				if now != first {
					return fmt.Errorf("SCRIPT LOAD was called %s times, then %s", first, now)
				}
			}
			return nil
		})
	}
}
