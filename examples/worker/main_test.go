package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
	"github.com/seed14bd9ef4/redsync/examples/internal/rig/rigtest"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/internal/stall"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

func TestMain(m *testing.M) { rigtest.Main(m, program) }

// lasted returns the time of the last line.
func lasted(t *testing.T, text string) time.Duration {
	t.Helper()
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
			assert.NotContains(t, text, fmt.Sprintf("worker %d  locks: 0,", id+1), "every worker must acquire the lock at least once")
		}
		assert.GreaterOrEqual(t, strings.Count(text, " its lock is extended, "), 20, text)
		assert.Contains(t, text, "The end: the time is up")
		assertUndisturbed(t, text)
	})
}

// assertUndisturbed checks that every hold ended as planned, and left no key.
func assertUndisturbed(t *testing.T, text string) {
	t.Helper()
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

func TestRunBadFlags(t *testing.T) {
	for _, test := range []struct {
		args []string
		want []string // parts of the message
	}{
		{[]string{"-for", "-1s"}, []string{"-for -1s", "0 (until interrupted) or more"}},
		{[]string{"-for", "soon"}, []string{"soon", "-for", "0 (until interrupted) or more"}},
		{[]string{"-workers", "0"}, []string{"-workers 0", "1 to 100"}},
		{[]string{"-workers", "101"}, []string{"-workers 101", "1 to 100"}},
		{[]string{"-name", ""}, []string{`-name ""`, "not be empty"}},
		{[]string{"-expiry", "10ms"}, []string{"-expiry 10ms", "100ms to 1h0m0s"}},
		{[]string{"-expiry", "2h"}, []string{"-expiry 2h", "100ms to 1h0m0s"}},
		{[]string{"-nodes", "localhost"}, []string{"-nodes", `"localhost"`, "host:port"}},
		{[]string{"-nodes", "a:1,"}, []string{"-nodes", `""`, "host:port"}},
		{[]string{"-nodes", "a:1,a:1"}, []string{"-nodes", "#0 and #1", "a:1"}},
		{[]string{"-nodes", "http://:secret@a"}, []string{"-nodes", "http://...@a"}},
		{[]string{"-nodes", "redis://:secret@host:port"}, []string{"-nodes", "redis://"}},
		{[]string{"-speed", "9"}, []string{"-speed", "-h lists the flags"}},
		{[]string{"now"}, []string{`"now"`, "-h lists the flags"}},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			var out, errs bytes.Buffer
			assert.Equal(t, 2, program.Run(t.Context(), test.args, &out, &errs))
			for _, part := range test.want {
				assert.Contains(t, errs.String(), part)
			}
			assert.NotContains(t, errs.String(), "secret")
			assert.Equal(t, 1, strings.Count(errs.String(), "\n"), "the command must report the error in one line: %s", errs.String())
			assert.Empty(t, out.String())
		})
	}
}

func TestCommandExitStatus(t *testing.T) { rigtest.Statuses(t, program, rigtest.NeedsServers[1]) }

func TestRunUnreachableNodes(t *testing.T) {
	var out, errs bytes.Buffer
	status := program.Run(t.Context(), []string{"-nodes", "127.0.0.1:1,redis://127.0.0.1:2,127.0.0.1:3"}, &out, &errs)
	assert.Equal(t, 1, status)
	assert.Contains(t, errs.String(), "0 of 3 nodes answered, 2 needed")
	assert.Empty(t, out.String())
}

func TestRunNameThatTheLibraryRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, errs bytes.Buffer
		assert.Equal(t, 1, program.Run(t.Context(), []string{"-name", "{a}:fence"}, &out, &errs))
		assert.Contains(t, errs.String(), "reserved")
		assert.Less(t, lasted(t, out.String()), time.Second)
	})
}

// parse returns the config of a command line.
func parse(t *testing.T, args ...string) *config {
	t.Helper()
	cfg := &config{}
	require.NoError(t, cfg.flags().Parse(args))
	require.NoError(t, cfg.check())
	return cfg
}

// runOn runs workers on nodes inside the process, which the caller disturbs.
func runOn(t *testing.T, nodes *redsynctest.Nodes, args ...string) (string, error) {
	t.Helper()
	n := rig.Inside(nodes)
	defer n.Close()
	var out bytes.Buffer
	err := runWorkers(t.Context(), parse(t, args...), n, &out)
	return out.String(), err
}

func TestRunMinorityFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.New(5)
		time.AfterFunc(5*time.Second, nodes.Node(1).Down)
		time.AfterFunc(7*time.Second, nodes.Node(3).Freeze)
		time.AfterFunc(12*time.Second, nodes.Node(1).Up)
		time.AfterFunc(8*time.Second, nodes.Node(3).Thaw)
		text, err := runOn(t, nodes, "-for", "20s")
		require.NoError(t, err)
		assertUndisturbed(t, text)
	})
}

func TestRunQuorumFailsForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.New(5)
		time.AfterFunc(4*time.Second, func() { // the second hold has begun at 3 s
			nodes.Node(0).Down()
			nodes.Node(1).Down()
			nodes.Node(2).Freeze()
		})
		text, err := runOn(t, nodes, "-for", "5m", "-workers", "1")
		require.ErrorContains(t, err, "no quorum of nodes reached for 10s")
		assert.InDelta(t, 24.5, lasted(t, text).Seconds(), 10.5, text)
		assert.NotContains(t, text, "No two")
		assert.Equal(t, 1, strings.Count(text, "LOST"), text)
		assert.Contains(t, text, "stops working: redsync: lock lost")
	})
}

// Another process holds the lock for longer than patience, and two of five nodes
// are dead. The worker must wait for the lock, and must not end the run as if no
// quorum could be reached.
func TestRunTakenByAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.New(5)
		nodes.Node(0).Down()
		nodes.Node(1).Down()
		nodes.HoldBySomebody("example-worker")
		time.AfterFunc(30*time.Second, func() { nodes.Expire("example-worker") })
		text, err := runOn(t, nodes, "-for", "40s", "-workers", "1")
		require.NoError(t, err, text)
		assert.Contains(t, text, "waits: another worker has the lock")
		assert.Contains(t, text, " has the lock: ")
		assertUndisturbed(t, text)
	})
}

func TestRunQuorumFailsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.New(5)
		time.AfterFunc(3200*time.Millisecond, func() { // the third hold has begun at 3 s
			for i := range 3 {
				nodes.Node(i).Freeze()
			}
		})
		time.AfterFunc(7*time.Second, func() {
			for i := range 3 {
				nodes.Node(i).Thaw()
			}
		})
		text, err := runOn(t, nodes, "-for", "20s", "-expiry", "1s", "-workers", "1")
		require.NoError(t, err, text)
		assert.Equal(t, 1, strings.Count(text, "LOST"), text)
		assert.Contains(t, text[strings.Index(text, "LOST"):], " has the lock: ")
		assert.Contains(t, text, "keys left on the nodes: 0", text)
	})
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

// loss matches the reports that must not occur. A failed extension is allowed: a worker that
// acquired the lock on no more nodes than a quorum may lose a node before the missing keys are
// set. Either the next extension succeeds, or the worker reports LOST, because its work takes
// longer than the expiry.
var loss = regexp.MustCompile(`could not unlock|LOST|do not confirm|TWO`)

// TestRunRealServers kills one server of five and freezes another while the
// workers run, and brings both back. A hold takes 7.5 s: it is longer than the expiry,
// and both servers are down in the middle of it. The expiry and the node deadline are
// long, because the machine may be busy.
func TestRunRealServers(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 5)
	addresses := make([]string, len(servers))
	for i, s := range servers {
		addresses[i] = s.Addr()
	}
	addresses[4] = "redis://" + addresses[4]
	cfg := &config{}
	nodes, err := rig.WithInside(cfg.flags(), []string{"-nodes", strings.Join(addresses, ","), "-for", "10s", "-expiry", "5s"})
	require.NoError(t, err)
	defer nodes.Close()
	open := nodes.Open
	nodes.Open = func(ctx context.Context, options ...redsync.Option) (*redsync.Redsync, error) {
		return open(ctx, append(options, redsync.WithTimeoutFactor(0.45))...)
	}
	var out bytes.Buffer
	machine := stall.Begin(t)
	ended := make(chan error, 1)
	go func() { ended <- runWorkers(t.Context(), cfg, nodes, &out) }()
	steps := time.NewTicker(1500 * time.Millisecond)
	defer steps.Stop()
	for _, step := range []func(){servers[1].Kill, servers[3].Freeze, servers[1].Restart, servers[3].Thaw} {
		<-steps.C
		step()
	}
	require.NoError(t, <-ended, out.String())
	if machine.Longest() < 200*time.Millisecond { // else the work may take all the time, and a lock may be lost
		assert.GreaterOrEqual(t, strings.Count(out.String(), " has the lock: "), 2, out.String())
		assert.False(t, loss.MatchString(out.String()), out.String())
	}
	assert.Contains(t, out.String(), "keys left on the nodes: 0", out.String())
}
