package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig/rigtest"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

func TestMain(m *testing.M) { rigtest.Main(m, program) }

func TestLeadersFollowEachOther(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	out, err := rigtest.Play(t, program)
	require.NoError(t, err, out)
	assert.Regexp(t, `^A leads: term \d+
A is killed
[BC] leads: term \d+
[BC] is stopped
[BC] leads: term \d+
[BC] goes on
[BC] writes with its old term: refused: fencing: token \d+ is stale: the resource has seen \d+
[BC] resigns
[BC] leads: term \d+
$`, rigtest.WithoutTimes(out))
}

// The control, on one node: a journal that does not look at the term accepts the late entry.
func TestWithoutFencingTheLateEntryIsWritten(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	t.Parallel()
	out, err := rigtest.Play(t, program, "-unfenced", "-nodes", realredis.Start(t, 1)[0].Addr())
	require.ErrorContains(t, err, "stands behind one of", out)
	assert.NotContains(t, out, "refused")
}
