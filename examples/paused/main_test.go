package main

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig/rigtest"
)

func TestMain(m *testing.M) { rigtest.Main(m, program) }

func silent(string, ...any) {}

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
