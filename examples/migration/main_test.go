package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(m.Run())
}

// files are the files of the program.
var files = []string{"main.go", "connect.go"}

// want is what the program prints, both with redsync v4 and with this library.
const want = `locked migration:orders true true
extended, valid, unlocked
the same with a context
taken on a quorum: true
handed over
unlocking too late: it had expired
locking nowhere: node 0 failed
`

func TestRunEmbeddedNodes(t *testing.T) {
	requireRuns(t, func() (addresses []string) {
		addresses, err := inside()
		require.NoError(t, err)
		return addresses
	})
}

func TestRunRealServers(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	requireRuns(t, func() (addresses []string) {
		for _, server := range realredis.Start(t, 5) {
			addresses = append(addresses, server.Addr())
		}
		return addresses
	})
}

// requireRuns requires that the program succeeds on the nodes that start returns. Its deadlines
// are the short ones of redsync, so an operation may fail while the machine stalls. Therefore
// the program gets up to two more attempts, each on nodes of its own.
func requireRuns(t *testing.T, start func() (addresses []string)) {
	var out bytes.Buffer
	err := run(t.Context(), start(), &out)
	for again := 0; again < 2 && (err != nil || out.String() != want); again++ {
		t.Logf("it ended with %v, and printed:\n%s", err, out.String())
		out.Reset()
		err = run(t.Context(), start(), &out)
	}
	require.NoError(t, err)
	assert.Equal(t, want, out.String())
}
