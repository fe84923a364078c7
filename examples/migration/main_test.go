package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
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
		for range 5 {
			server := miniredis.RunT(t)
			server.ClockTTL(true)
			addresses = append(addresses, server.Addr())
		}
		return addresses
	})
}

func TestRunRealServers(t *testing.T) {
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
	t.Helper()
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

// TestOnlyImportsAndPoolsChanged compares the program written for redsync v4
// with this one, line by line.
func TestOnlyImportsAndPoolsChanged(t *testing.T) {
	var allRemoved, allAdded []string
	changed := map[string]string{}
	for _, file := range files {
		removed, before := split(t, "testdata/"+file+".txt")
		added, after := split(t, file)
		allRemoved, allAdded = append(allRemoved, removed...), append(allAdded, added...)
		require.Len(t, after, len(before))
		for i := range before {
			if before[i] != after[i] {
				changed[strings.TrimSpace(before[i])] = strings.TrimSpace(after[i])
			}
		}
	}
	assert.Equal(t, []string{
		`"github.com/go-redsync/redsync/v4"`,
		`"github.com/go-redsync/redsync/v4"`,
		`"github.com/go-redsync/redsync/v4/redis"`,
		`"github.com/go-redsync/redsync/v4/redis/goredis/v9"`,
	}, allRemoved)
	assert.Equal(t, []string{
		`"github.com/seed14bd9ef4/redsync"`,
		`"github.com/seed14bd9ef4/redsync"`,
		`"github.com/seed14bd9ef4/redsync/pool"`,
	}, allAdded)
	assert.Equal(t, map[string]string{
		"var pools []redis.Pool":                         "var pools []pool.Pool",
		"pools = append(pools, goredis.NewPool(client))": "pools = append(pools, pool.New(client))",
	}, changed)
}

// split returns the imports of redsync in a file, and all other lines.
func split(t *testing.T, file string) (imports, rest []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.SplitSeq(string(text), "\n") {
		if trimmed := strings.TrimSpace(line); strings.HasPrefix(trimmed, `"github.com/`) && strings.Contains(line, "/redsync") {
			imports = append(imports, trimmed)
		} else {
			rest = append(rest, line)
		}
	}
	return imports, rest
}
