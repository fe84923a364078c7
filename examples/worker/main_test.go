package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(m.Run())
}

// buffer collects output that another goroutine may still write.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// inVirtualTime runs test in a bubble, and then waits until the connections to
// closed nodes have ended.
func inVirtualTime(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t)
		time.Sleep(time.Minute)
	})
}

func TestRunEmbeddedNodes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		var out, errs buffer
		start := time.Now()
		status := run(t.Context(), []string{"-for", "20s", "-workers", "4"}, &out, &errs)
		assert.Zero(t, status, errs.String())
		assert.Empty(t, errs.String())
		assert.Less(t, time.Since(start), 21*time.Second)
		text := out.String()
		assert.GreaterOrEqual(t, strings.Count(text, " locked, "), 6, text)
		for id := range 4 {
			assert.NotContains(t, text, fmt.Sprintf("worker %d: 0 acquisitions", id+1), "every worker must acquire the lock at least once")
		}
		assert.GreaterOrEqual(t, strings.Count(text, " extended, "), 20, text)
		assert.Contains(t, text, "stopped: the time is up")
		assertUndisturbed(t, text)
	})
}

// assertUndisturbed checks that every hold ended as planned, and left no key.
func assertUndisturbed(t *testing.T, text string) {
	t.Helper()
	assert.NotContains(t, text, "LOST", text)
	assert.NotContains(t, text, "could not", text)
	assert.NotContains(t, text, "not valid", text)
	assert.Equal(t, strings.Count(text, " locked, "), strings.Count(text, " unlocked"), text)
	assert.Contains(t, text, "keys left on the nodes: 0", text)
}

func TestRunCanceledInTheMiddleOfAHold(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(fmt.Errorf("interrupted")) })
		var out, errs buffer
		start := time.Now()
		status := run(ctx, []string{"-for", "0", "-expiry", "10s"}, &out, &errs)
		assert.Zero(t, status, errs.String())
		assert.Less(t, time.Since(start), 1100*time.Millisecond)
		assert.Contains(t, out.String(), "stops working: interrupted")
		assert.Contains(t, out.String(), "stopped: interrupted")
		assertUndisturbed(t, out.String())
	})
}

func TestRunHelp(t *testing.T) {
	var out, errs buffer
	assert.Zero(t, run(t.Context(), []string{"-h"}, &out, &errs))
	assert.Contains(t, out.String(), "-workers")
	assert.Empty(t, errs.String())
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
		{[]string{"-nodes", "a:1,a:1"}, []string{"-nodes", "a:1 is there twice"}},
		{[]string{"-nodes", "http://:secret@a"}, []string{"-nodes", "redis://"}},
		{[]string{"-nodes", "redis://:secret@host:port"}, []string{"-nodes", "redis://"}},
		{[]string{"-speed", "9"}, []string{"-speed", "-h lists the flags"}},
		{[]string{"now"}, []string{`"now"`, "-h lists the flags"}},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			var out, errs buffer
			assert.Equal(t, 2, run(t.Context(), test.args, &out, &errs))
			for _, part := range test.want {
				assert.Contains(t, errs.String(), part)
			}
			assert.NotContains(t, errs.String(), "secret")
			assert.Equal(t, 1, strings.Count(errs.String(), "\n"), "the command must report the error in one line: %s", errs.String())
			assert.Empty(t, out.String())
		})
	}
}

func TestRunUnreachableNodes(t *testing.T) {
	var out, errs buffer
	status := run(t.Context(), []string{"-nodes", "127.0.0.1:1,redis://127.0.0.1:2,127.0.0.1:3"}, &out, &errs)
	assert.Equal(t, 1, status)
	assert.Contains(t, errs.String(), "0 of 3 nodes answered, 2 needed")
	assert.Empty(t, out.String())
}

func TestRunNameThatTheLibraryRefuses(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		var out, errs buffer
		start := time.Now()
		assert.Equal(t, 1, run(t.Context(), []string{"-name", "{a}:fence"}, &out, &errs))
		assert.Contains(t, errs.String(), "reserved")
		assert.Less(t, time.Since(start), time.Second)
	})
}

// runOn runs workers on embedded nodes that the caller disturbs.
func runOn(t *testing.T, servers embedded.Nodes, args ...string) (string, error) {
	t.Helper()
	cfg, err := parseFlags(args)
	require.NoError(t, err)
	nodes := embeddedNodes(servers)
	defer nodes.close()
	var out buffer
	err = runWorkers(t.Context(), cfg, nodes, &out)
	return out.String(), err
}

func TestRunMinorityFails(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		servers := embedded.Start(5)
		time.AfterFunc(5*time.Second, servers[1].Kill)
		time.AfterFunc(7*time.Second, servers[3].Freeze)
		time.AfterFunc(12*time.Second, func() { servers[1].Restart(false) })
		time.AfterFunc(8*time.Second, servers[3].Thaw)
		text, err := runOn(t, servers, "-for", "20s")
		require.NoError(t, err)
		assertUndisturbed(t, text)
	})
}

func TestRunQuorumFailsForGood(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		servers := embedded.Start(5)
		time.AfterFunc(4*time.Second, func() { // the second hold has begun at 3 s
			servers[0].Kill()
			servers[1].Kill()
			servers[2].Freeze()
		})
		start := time.Now()
		text, err := runOn(t, servers, "-for", "5m", "-workers", "1")
		require.ErrorContains(t, err, "no quorum of nodes reached for 10s")
		assert.WithinRange(t, time.Now(), start.Add(14*time.Second), start.Add(35*time.Second))
		assert.Equal(t, 1, strings.Count(text, "LOST"), text)
		assert.Contains(t, text, "stops working: redsync: lock lost")
	})
}

// Another process holds the lock for longer than patience, and two of five nodes
// are dead. The worker must wait for the lock, and must not end the run as if no
// quorum could be reached.
func TestRunTakenByAnotherProcess(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		servers := embedded.Start(5)
		for i, s := range servers {
			if i < 2 {
				s.Kill()
				continue
			}
			require.NoError(t, s.Set("example-worker", "another process"))
			s.SetTTL("example-worker", 30*time.Second)
		}
		text, err := runOn(t, servers, "-for", "40s", "-workers", "1")
		require.NoError(t, err, text)
		assert.Contains(t, text, "waits: another worker has the lock")
		assert.Contains(t, text, " locked, ")
		assertUndisturbed(t, text)
	})
}

func TestRunQuorumFailsForAWhile(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		servers := embedded.Start(5)
		time.AfterFunc(3200*time.Millisecond, func() { // the third hold has begun at 3 s
			for _, s := range servers[:3] {
				s.Freeze()
			}
		})
		time.AfterFunc(7*time.Second, func() {
			for _, s := range servers[:3] {
				s.Thaw()
			}
		})
		text, err := runOn(t, servers, "-for", "20s", "-expiry", "1s", "-workers", "1")
		require.NoError(t, err, text)
		assert.Equal(t, 1, strings.Count(text, "LOST"), text)
		assert.Contains(t, text[strings.Index(text, "LOST"):], " locked, ")
		assert.Contains(t, text, "keys left on the nodes: 0", text)
	})
}

// TestRegisterFindsTwoHolders shows that the register would notice two holders.
func TestRegisterFindsTwoHolders(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		nodes := embeddedNodes(embedded.Start(5))
		defer nodes.close()
		cfg, err := parseFlags([]string{"-workers", "2"})
		require.NoError(t, err)
		workers, err := openWorkers(t.Context(), cfg, nodes, &journal{out: &buffer{}, start: time.Now()})
		require.NoError(t, err)
		for i, w := range workers {
			defer w.close()
			mutex := w.rs.NewMutex(fmt.Sprintf("name of worker %d", i))
			require.NoError(t, mutex.Lock())
			w.register.enter(w.id, mutex)
		}
		require.ErrorIs(t, workers[0].register.check(), errTwoHolders)
		workers[1].register.leave(workers[1].id)
		require.NoError(t, workers[0].register.check())
	})
}

// loss matches the reports that must not occur. A failed extension is allowed: a worker that
// acquired the lock on no more nodes than a quorum may lose a node before the missing keys are
// set. Either the next extension succeeds, or the worker reports LOST, because its work takes
// longer than the expiry.
var loss = regexp.MustCompile(`could not unlock|LOST|not valid|TWO`)

// TestRunRealServers kills one server of five and freezes another while the
// workers run, and brings both back. A hold takes 4.5 s: it is longer than the expiry,
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
	cfg, err := parseFlags([]string{"-nodes", strings.Join(addresses, ","), "-for", "5s", "-expiry", "3s"})
	require.NoError(t, err)
	nodes := cfg.nodes()
	defer nodes.close()
	open := nodes.open
	nodes.open = func(ctx context.Context, options ...redsync.Option) (*redsync.Redsync, error) {
		return open(ctx, append(options, redsync.WithTimeoutFactor(0.45))...)
	}
	var out buffer
	ended := make(chan error, 1)
	go func() { ended <- runWorkers(t.Context(), cfg, nodes, &out) }()
	steps := time.NewTicker(900 * time.Millisecond)
	defer steps.Stop()
	for _, step := range []func(){servers[1].Kill, servers[3].Freeze, servers[1].Restart, servers[3].Thaw} {
		<-steps.C
		step()
	}
	require.NoError(t, <-ended, out.String())
	assert.GreaterOrEqual(t, strings.Count(out.String(), " locked, "), 2, out.String())
	assert.False(t, loss.MatchString(out.String()), out.String())
	assert.Contains(t, out.String(), "keys left on the nodes: 0", out.String())
}
