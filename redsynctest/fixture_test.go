package redsynctest_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testmain"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

func TestMain(m *testing.M) {
	if err := os.Unsetenv(redsynctest.ServersEnv); err != nil { // each test decides whether its nodes are real servers
		panic(err)
	}
	testmain.Run(m)
}

// A form is a way in which the tests of users can run.
type form string

const (
	bubble   form = "bubble"
	realTime form = "real time"
	servers  form = "servers"
)

type kit = *redsynctest.Nodes

// A scene is a test on five nodes, in one form.
type scene struct {
	*testing.T
	*redsynctest.Nodes
	form form
	rs   *redsync.Redsync // its node deadline is long, so that the tests pass on a slow machine
}

// inEachForm plays a scene in each form.
func inEachForm(t *testing.T, play func(s *scene)) {
	t.Helper()
	start := func(t *testing.T, f form) {
		nodes := redsynctest.Start(t, 5)
		play(&scene{t, nodes, f, nodes.Redsync().With(redsync.WithTimeoutFactor(0.4))})
	}
	t.Run(string(bubble), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { start(t, bubble) })
	})
	t.Run(string(realTime), func(t *testing.T) { start(t, realTime) })
	t.Run(string(servers), func(t *testing.T) {
		onServers(t)
		start(t, servers)
	})
}

// locked locks m.
func locked(tb testing.TB, m *redsync.Mutex) *redsync.Mutex {
	tb.Helper()
	require.NoError(tb, m.Lock())
	return m
}

// locked returns a Mutex that is locked.
func (s *scene) locked(options ...redsync.Option) *redsync.Mutex {
	s.Helper()
	return locked(s, s.rs.NewMutex(name, options...))
}

// settled returns a Mutex that is locked on all nodes, for a minute.
func (s *scene) settled() *redsync.Mutex {
	s.Helper()
	mutex := s.locked(redsync.WithExpiry(time.Minute))
	s.Settle(name)
	return mutex
}

func unlock(tb testing.TB, m *redsync.Mutex) {
	tb.Helper()
	_, err := m.Unlock()
	require.NoError(tb, err)
}

// onServers makes Start use real servers as nodes. It skips the test if redis-server is not
// installed, unless real servers are required.
func onServers(t *testing.T) {
	t.Helper()
	realredis.Start(t, 0) // skips or fails the test where there is none
	t.Setenv(redsynctest.ServersEnv, "redis-server")
}

// fakeTB is the testing.TB of a user's test, which may fail without failing the real test.
type fakeTB struct {
	testing.TB

	mu       sync.Mutex
	failure  string // "" if the test has not failed
	cleanups []func()
}

// fails runs a user's test with its cleanups, and returns the text of its failure, "" if it has not failed.
func fails(tb testing.TB, test func(tb *fakeTB)) string {
	tb.Helper()
	f := &fakeTB{TB: tb}
	run := func(do func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			do()
		}()
		<-done
	}
	run(func() { test(f) })
	for _, cleanup := range slices.Backward(f.cleanups) {
		run(cleanup)
	}
	return f.failure
}

func (f *fakeTB) Helper()      {}
func (f *fakeTB) Name() string { return "TestOfUser" }

func (f *fakeTB) Cleanup(do func()) { f.cleanups = append(f.cleanups, do) }

func (f *fakeTB) Failed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failure != ""
}

func (f *fakeTB) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failure += fmt.Sprintf(format, args...)
}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}
