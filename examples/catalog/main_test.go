package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/cli"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(m.Run())
}

// play runs the program for two seconds of virtual time, and returns the counts that it prints.
func play(t *testing.T, unlocked bool) (reads, most, reloads, early, halves int, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.Start(t, 5)
		var out bytes.Buffer
		err = run(t.Context(), 2*time.Second, unlocked, func() (*redsync.Redsync, error) { return nodes.Process(), nil }, &out)
		_, scanErr := fmt.Sscanf(out.String(), "%d reads, up to %d at once; %d reloads, %d reads beside the downgraded writer; "+
			"reads that saw half of a reload: %d\n", &reads, &most, &reloads, &early, &halves)
		require.NoError(t, scanErr, out.String())
		nodes.RequireNothingLeft()
	})
	return reads, most, reloads, early, halves, err
}

func TestReadersSeeWholeReloads(t *testing.T) {
	reads, most, reloads, early, halves, err := play(t, false)
	require.NoError(t, err)
	assert.Zero(t, halves)
	assert.Equal(t, readers, most)
	assert.Greater(t, reads, 50)
	assert.Greater(t, reloads, 5, "readers must not starve the writer")
	assert.Positive(t, early, "readers must enter once the writer has downgraded")
}

// The control: without the lock readers see half of a reload.
func TestWithoutTheLockReadersSeeHalves(t *testing.T) {
	_, _, _, _, halves, err := play(t, true)
	require.ErrorIs(t, err, errHalf)
	assert.Positive(t, halves)
}

func TestCommandExitStatus(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"-for", "100ms"}, cli.OK, ""},
		{[]string{"-for", "0"}, cli.Misuse, "catalog: -for must be more than 0, not 0s\n"},
		{[]string{"-nodes", "127.0.0.1:1"}, cli.Failed, "catalog: redsync: Open: 0 of 1 nodes answered, 1 needed: " +
			"node #0 (127.0.0.1:1): dial tcp 127.0.0.1:1: connect: connection refused\n"},
		{[]string{"-h"}, cli.OK, ""},
	} {
		var errs bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		assert.Equal(t, c.status, cli.Status("catalog", command(ctx, c.args, io.Discard), io.Discard, &errs))
		assert.Equal(t, c.want, errs.String())
		cancel()
	}
}
