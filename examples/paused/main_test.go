package main

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig/rigtest"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

func TestMain(m *testing.M) { rigtest.Main(m, program) }

func silent(string, ...any) {}

// startServers returns the addresses of the nodes and of the data.
func startServers(t *testing.T) (addresses []string) {
	t.Helper()
	for _, s := range realredis.Start(t, servers) {
		addresses = append(addresses, s.Addr())
	}
	return addresses
}

func TestPausedHolderIsRefused(t *testing.T) {
	o, err := play(rigtest.Bounded(t), thisLibrary, startServers(t), silent)
	require.NoError(t, err)
	assert.NotZero(t, o.TokenA)
	assert.Greater(t, o.TokenB, o.TokenA)
	assert.Equal(t, wrote, o.B.Step)
	assert.Equal(t, refused, o.A.Step)
	assert.True(t, o.refused())
	assert.Equal(t, fmt.Sprintf("fencing: token %d is stale: the resource has seen %d", o.TokenA, o.TokenB), o.A.Err)
	assert.Equal(t, "written by B", o.Data)
	requirePaused(t, o)
}

func TestPausedHolderOfRedsyncV4IsNot(t *testing.T) {
	o, err := play(rigtest.Bounded(t), redsyncV4, startServers(t), silent)
	require.NoError(t, err)
	assert.Equal(t, wrote, o.B.Step)
	assert.Equal(t, wrote, o.A.Step)
	assert.Equal(t, "written by A", o.Data, "B's write is lost")
	requirePaused(t, o)
}

// requirePaused checks, by A's own clock, that A was stopped. The pause lasts for the rest of
// the validity of A's lock, which may be much less than the expiry if the machine is busy.
func requirePaused(t *testing.T, o *outcome) {
	t.Helper()
	assert.Greater(t, o.A.Paused, expiry/10)
}

func TestRunTellsBothAccounts(t *testing.T) {
	out, err := rigtest.Play(t, program)
	require.NoError(t, err, out)
	assert.Regexp(t, `^This library, .*:
A has the lock, token (\d+)\. \S+ of it are left: it may write
A is stopped \(SIGSTOP\)
B has the lock, token (\d+): A's has expired
B writes: it goes through
A goes on \(SIGCONT\) after a pause of \S+, and writes: refused: fencing: token \d+ is stale: the resource has seen \d+
The data: "written by B"
The control: redsync v4, .*:
A has the lock\. \S+ of it are left: it may write
A is stopped \(SIGSTOP\)
B has the lock: A's has expired
B writes: it goes through
A goes on \(SIGCONT\) after a pause of \S+, and writes: it goes through
The data: "written by A"
$`, rigtest.WithoutTimes(out))
}

func TestCommandExitStatus(t *testing.T) { rigtest.Statuses(t, program, rigtest.NeedsServers[0]) }

func TestPlayNoServers(t *testing.T) {
	for _, library := range []string{thisLibrary, redsyncV4} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := play(ctx, library, slices.Repeat([]string{"127.0.0.1:1"}, servers), silent)
		cancel()
		require.Error(t, err)
	}
}

func TestWatchMeasuresFromTheStart(t *testing.T) {
	w := &watch{make(chan struct{}), make(chan time.Duration, 1)}
	go w.run(time.Now().Add(-time.Hour))
	assert.GreaterOrEqual(t, w.stop(), time.Hour)
}
