package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
	"github.com/seed14bd9ef4/redsync/examples/internal/rig/rigtest"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

func TestMain(m *testing.M) { rigtest.Main(m, program) }

// lasted returns the time of the last line.
func lasted(t *testing.T, text string) time.Duration {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	seconds, err := strconv.ParseFloat(strings.Fields(lines[len(lines)-1])[0], 64)
	require.NoError(t, err, text)
	return time.Duration(seconds * float64(time.Second))
}

func TestRunEmbeddedNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, errs bytes.Buffer
		status := program.Run(t.Context(), []string{"-for", "20s", "-workers", "4"}, &out, &errs)
		assert.Zero(t, status, errs.String())
		assert.Empty(t, errs.String())
		text := out.String()
		assert.Less(t, lasted(t, text), 21*time.Second)
		assert.GreaterOrEqual(t, strings.Count(text, " has the lock: "), 6, text)
		for id := range 4 {
			assert.NotContains(t, text, fmt.Sprintf("worker %d  locks: 0,", id+1)) // every worker must acquire the lock at least once
		}
		assert.GreaterOrEqual(t, strings.Count(text, " its lock is extended, "), 20, text)
		assert.Contains(t, text, "The end: the time is up")
		assertUndisturbed(t, text)
	})
}

// assertUndisturbed checks that every hold ended as planned, and left no key.
func assertUndisturbed(t *testing.T, text string) {
	assert.NotContains(t, text, "LOST", text)
	assert.NotContains(t, text, "could not", text)
	assert.NotContains(t, text, "do not confirm", text)
	assert.Equal(t, strings.Count(text, " has the lock: "), strings.Count(text, " has unlocked"), text)
	assert.Contains(t, text, "keys left on the nodes: 0", text)
	assert.Contains(t, text, "No two workers had the lock at the same time.\n", text)
}

func TestRunCanceledInTheMiddleOfAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(fmt.Errorf("interrupted")) })
		var out, errs bytes.Buffer
		status := program.Run(ctx, []string{"-for", "0", "-expiry", "10s"}, &out, &errs)
		assert.Zero(t, status, errs.String())
		assert.Less(t, lasted(t, out.String()), 1100*time.Millisecond)
		assert.Contains(t, out.String(), "stops working: interrupted")
		assert.Contains(t, out.String(), "The end: interrupted")
		assertUndisturbed(t, out.String())
	})
}

// parse returns the config of a command line.
func parse(t *testing.T, args ...string) *config {
	cfg := &config{}
	require.NoError(t, cfg.flags().Parse(args))
	require.NoError(t, cfg.check())
	return cfg
}

// disturbed runs workers on n nodes inside the process, which a test disturbs.
func disturbed(t *testing.T, n int, disturb func(*redsynctest.Nodes), args ...string) (text string, err error) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.New(n)
		disturb(nodes)
		inside := rig.Inside(nodes)
		defer inside.Close()
		var out bytes.Buffer
		err = runWorkers(t.Context(), parse(t, args...), inside, &out)
		text = out.String()
	})
	return text, err
}

func TestRunOnOneNode(t *testing.T) {
	text, err := disturbed(t, 1, func(nodes *redsynctest.Nodes) {
		time.AfterFunc(5*time.Second, nodes.Node(0).Freeze)
		time.AfterFunc(5200*time.Millisecond, nodes.Node(0).Thaw)
	}, "-for", "20s")
	require.NoError(t, err)
	assertUndisturbed(t, text)
	assert.Contains(t, text, "on 1 node inside this process.")
	assert.Contains(t, text, "keys left on the nodes: 0 (1 of 1 answered)")
}

func TestRunQuorumFailsForGood(t *testing.T) {
	text, err := disturbed(t, 5, func(nodes *redsynctest.Nodes) {
		for _, fail := range []func(){nodes.Node(0).Down, nodes.Node(1).Down, nodes.Node(2).Freeze} {
			time.AfterFunc(4*time.Second, fail) // the second hold has begun at 3 s
		}
	}, "-for", "5m", "-workers", "1")
	require.ErrorContains(t, err, "no quorum of nodes reached for 10s")
	assert.InDelta(t, 24.5, lasted(t, text).Seconds(), 10.5, text)
	assert.NotContains(t, text, "No two")
	assert.Equal(t, 1, strings.Count(text, "LOST"), text)
	assert.Contains(t, text, "stops working: redsync: lock lost")
}

// Another process holds the lock for longer than patience, and two of five nodes
// are dead. The worker must wait for the lock, and must not end the run as if no
// quorum could be reached.
func TestRunTakenByAnotherProcess(t *testing.T) {
	text, err := disturbed(t, 5, func(nodes *redsynctest.Nodes) {
		nodes.Node(0).Down()
		nodes.Node(1).Down()
		nodes.HoldBySomebody("example-worker")
		time.AfterFunc(30*time.Second, func() { nodes.Expire("example-worker") })
	}, "-for", "40s", "-workers", "1")
	require.NoError(t, err, text)
	assert.Contains(t, text, "waits: another worker has the lock")
	assert.Contains(t, text, " has the lock: ")
	assertUndisturbed(t, text)
}

func TestRunQuorumFailsForAWhile(t *testing.T) {
	text, err := disturbed(t, 5, func(nodes *redsynctest.Nodes) {
		for i := range 3 {
			time.AfterFunc(3200*time.Millisecond, nodes.Node(i).Freeze) // the third hold has begun at 3 s
			time.AfterFunc(7*time.Second, nodes.Node(i).Thaw)
		}
	}, "-for", "20s", "-expiry", "1s", "-workers", "1")
	require.NoError(t, err, text)
	assert.Equal(t, 1, strings.Count(text, "LOST"), text)
	assert.Contains(t, text[strings.Index(text, "LOST"):], " has the lock: ")
	assert.Contains(t, text, "keys left on the nodes: 0", text)
}

// TestRefereeFindsTwoHolders shows that the referee would notice two holders.
func TestRefereeFindsTwoHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.Start(t, 5)
		workers, err := openWorkers(t.Context(), parse(t, "-workers", "2"), rig.Inside(nodes), rig.NewTimeline(io.Discard), nil)
		require.NoError(t, err)
		var leave func()
		for i, w := range workers {
			mutex := w.rs.NewMutex(fmt.Sprintf("name of worker %d", i))
			require.NoError(t, mutex.Lock())
			leave = w.enter(mutex)
		}
		require.ErrorIs(t, workers[0].referee.check(), errTwoHolders)
		leave()
		require.NoError(t, workers[0].referee.check())
	})
}
