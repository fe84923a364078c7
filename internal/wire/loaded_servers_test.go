package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
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
			if first == "" {
				first = loads()
			}
			require.NotEmpty(t, first)
			require.Equal(t, first, loads())
		}
	}
}
