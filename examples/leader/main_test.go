package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/cli"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// TestMain runs a candidate if a test has started this program as one.
func TestMain(m *testing.M) {
	if os.Getenv(envJob) != "" {
		main()
		return
	}
	logging.Disable()
	os.Exit(m.Run())
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func TestLeadersFollowEachOther(t *testing.T) {
	t.Parallel()
	realredis.Start(t, 0) // skips the test where there is no redis-server
	var out bytes.Buffer
	require.NoError(t, command(bounded(t), nil, &out), out.String())
	assert.Regexp(t, `^ +\d+\.\d s  A leads: term \d+
 +\d+\.\d s  A is killed
 +\d+\.\d s  [BC] leads: term \d+
 +\d+\.\d s  [BC] is stopped
 +\d+\.\d s  [BC] leads: term \d+
 +\d+\.\d s  [BC] goes on
 +\d+\.\d s  [BC] writes with its old term: refused: fencing: token \d+ is stale: the resource has seen \d+
 +\d+\.\d s  [BC] resigns
 +\d+\.\d s  [BC] leads: term \d+
$`, out.String())
}

// The control: a journal that does not look at the term accepts the late entry.
func TestWithoutFencingTheLateEntryIsWritten(t *testing.T) {
	t.Parallel()
	realredis.Start(t, 0)
	var out bytes.Buffer
	require.ErrorContains(t, command(bounded(t), []string{"-unfenced"}, &out), "stands behind one of", out.String())
	assert.NotContains(t, out.String(), "refused")
}

func TestCommandExitStatus(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no redis-server
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{nil, cli.Failed, "leader: " + realredis.ErrMissing.Error() + "\n"},
		{[]string{"-nodes", "127.0.0.1:1"}, cli.Failed, "leader: redsync: Open: 0 of 1 nodes answered, 1 needed: " +
			"node #0 (127.0.0.1:1): dial tcp 127.0.0.1:1: connect: connection refused\n"},
		{[]string{"-h"}, cli.OK, ""},
		{[]string{"-fast"}, cli.Misuse, "leader: flag provided but not defined: -fast (-h lists the flags)\n"},
	} {
		var errs bytes.Buffer
		assert.Equal(t, c.status, cli.Status("leader", command(bounded(t), c.args, io.Discard), io.Discard, &errs))
		assert.Equal(t, c.want, errs.String())
	}
}
