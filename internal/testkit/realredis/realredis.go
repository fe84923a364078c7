// Package realredis starts redis-server processes on free loopback ports, and
// stops them, for tests and measurements.
package realredis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Env is the environment variable that decides what Start does if there is no redis-server: with
// the value Require the test fails, otherwise it is skipped.
const (
	Env     = "REDSYNC_TEST_REDIS"
	Require = "require"
)

// Missing skips a test, because a program that it needs is not there. If the environment variable has the value Require, it
// fails the test, and so it does if the variable has a value that nobody knows.
func Missing(tb testing.TB, variable string, why error) {
	tb.Helper()
	switch value := os.Getenv(variable); value {
	case "":
		tb.Skipf("%v; %s=%s makes this a failure", why, variable, Require)
	case Require:
		tb.Fatalf("%s=%s, and %v", variable, Require, why)
	default:
		tb.Fatalf("%s is %q: it must be %q or empty", variable, value, Require)
	}
}

// redisServer is the server on PATH. It may be a link to a Valkey server.
const redisServer = "redis-server"

const (
	launchTries  = 3 // another process may take a free port first
	readyTimeout = 20 * time.Second
)

// A Server is one redis-server process.
type Server struct {
	program string

	addr string
	dir  string
	env  []string // added to the environment of this process
	args []string
	tb   testing.TB // nil after Launch
	cmd  *exec.Cmd
	exit chan struct{} // closed when cmd has ended
	bus  string        // the port for other nodes of its cluster, "" if it is busDistance above

	conf, ready string // of a Sentinel: its file, and what its log says when it is ready
}

// Start returns n running servers without persistence, which end with the test. The flag -short skips the test, unless
// Env has the value Require: somebody who takes a quick look waits for no server.
// Args are added to each command line ("--requirepass", "secret").
func Start(tb testing.TB, n int, args ...string) []*Server {
	tb.Helper()
	if err := findServer(); err != nil {
		Missing(tb, Env, err)
	}
	if testing.Short() && os.Getenv(Env) == "" {
		tb.Skipf("no servers with -short; %s=%s starts them", Env, Require)
	}
	servers := make([]*Server, n)
	for i := range servers {
		s, err := Launch(tb.TempDir(), args...)
		if err != nil {
			tb.Fatal(err)
		}
		s.tb = tb
		tb.Cleanup(s.Kill)
		servers[i] = s
	}
	return servers
}

// Launch returns a running server without persistence that keeps its files in dir; Kill ends it.
// The error is ErrMissing if there is no redis-server.
func Launch(dir string, args ...string) (*Server, error) {
	return LaunchWith(dir, nil, args...)
}

// ErrMissing means that there is no redis-server, and says how to get one.
var ErrMissing = errors.New("redis-server is not on PATH: apt-get install redis-server, or brew install redis")

// findServer returns ErrMissing if there is no redis-server.
func findServer() error {
	if _, err := exec.LookPath(redisServer); err != nil {
		return ErrMissing
	}
	return nil
}

// LaunchAll returns n running servers without persistence, each with a folder of its own for its files. stop ends them and
// removes their files. If one does not start, the others are ended, and stop is nil. Args are as for Start.
func LaunchAll(n int, args ...string) (servers []*Server, stop func(), err error) {
	dir, err := os.MkdirTemp("", "redsync")
	if err != nil {
		return nil, nil, err
	}
	stop = func() {
		for _, s := range servers {
			s.Kill()
		}
		_ = os.RemoveAll(dir)
	}
	for i := range n {
		data := filepath.Join(dir, strconv.Itoa(i))
		err := os.Mkdir(data, 0o700)
		var s *Server
		if err == nil {
			s, err = Launch(data, args...)
		}
		if err != nil {
			stop()
			return nil, nil, err
		}
		servers = append(servers, s)
	}
	return servers, stop, nil
}

// LaunchWith is Launch, with variables added to the environment of the process
// ("NAME=value").
func LaunchWith(dir string, env []string, args ...string) (*Server, error) {
	if err := findServer(); err != nil {
		return nil, err
	}
	if since7(redisServer) {
		args = append([]string{"--enable-debug-command", "yes"}, args...) // older servers always have the command
	}
	return LaunchProgram(redisServer, dir, env, args...)
}

// LaunchProgram is LaunchWith for another program than the redis-server on PATH, and without
// the DEBUG command.
func LaunchProgram(program, dir string, env []string, args ...string) (*Server, error) {
	var errs []error
	for range launchTries {
		s := &Server{program: program, dir: dir, env: env, args: args}
		err := s.settle()
		if err != nil {
			return nil, err
		}
		if err = s.start(); err == nil {
			return s, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// settle chooses the ports of the server.
func (s *Server) settle() (err error) {
	if s.inCluster() && !since7(s.program) {
		s.addr, err = freeAddrWithBus()
		return err
	}
	if s.addr, err = FreeAddr(); err != nil || !s.inCluster() {
		return err
	}
	bus, err := FreeAddr()
	if err == nil {
		_, s.bus, err = net.SplitHostPort(bus)
	}
	return err
}

// inCluster reports whether the server is started as a node of a Redis Cluster.
func (s *Server) inCluster() bool { return slices.Contains(s.args, clusterEnabled) }

func (s *Server) start() error {
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return err
	}
	args := []string{"--port", port, "--bind", host, "--dir", s.dir}
	if s.conf != "" {
		args = append([]string{s.conf}, args...)
	} else {
		args = append(args, "--save", "", "--appendonly", "no")
	}
	args = append(args, s.args...)
	if s.bus != "" {
		args = append(args, "--cluster-port", s.bus)
	}
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	before, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	cmd, exit := exec.Command(s.program, args...), make(chan struct{}) //nolint:gosec // our own arguments
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = EndWithParent()
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd, s.exit = cmd, exit
	go func() {
		_ = cmd.Wait() // its error does not matter
		close(exit)
	}()
	if err := AwaitLog(cmd, exit, s.log(), before, cmp.Or(s.ready, "Ready to accept connections"), readyTimeout); err != nil {
		s.Kill()
		return err
	}
	return nil
}

func (s *Server) log() string { return filepath.Join(s.dir, "log") }

// Addr returns the address of the server.
func (s *Server) Addr() string { return s.addr }

// Pid returns the process ID.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Client returns a new client of the server. The end of the test closes it. After Launch the caller
// must close it.
func (s *Server) Client() *redis.Client {
	c := s.connect(0)
	if s.tb != nil {
		s.tb.Cleanup(func() { _ = c.Close() })
	}
	return c
}

// connect returns a client that starts no goroutine of its own. readTimeout is 0 for the one of go-redis.
func (s *Server) connect(readTimeout time.Duration) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                     s.addr,
		ReadTimeout:              readTimeout,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// Freeze pauses the process: see Pause.
func (s *Server) Freeze() { s.do(Pause) }

// Thaw continues a frozen process.
func (s *Server) Thaw() { s.do(Resume) }

// do does something to the process, unless it has ended. On a system that cannot do it, it panics: a test that goes on
// would show nothing.
func (s *Server) do(what func(*os.Process) error) {
	select {
	case <-s.exit:
		return
	default:
	}
	if err := what(s.cmd.Process); err != nil && !errors.Is(err, os.ErrProcessDone) {
		panic(err)
	}
}

// Kill ends the process with SIGKILL and waits for its end.
func (s *Server) Kill() {
	s.do((*os.Process).Kill)
	<-s.exit
}

// Restart is Relaunch without an error: if the server does not start, the test fails. After Launch,
// Restart panics instead.
func (s *Server) Restart() {
	err := s.Relaunch()
	switch {
	case err == nil:
	case s.tb == nil:
		panic(err)
	default:
		s.tb.Helper()
		s.tb.Fatal(err)
	}
}

// Relaunch starts a killed server again at the same address, with the data that its
// arguments made it keep.
func (s *Server) Relaunch() error { return s.start() }

// Do runs one command on the server, to look at its data or to configure it.
func (s *Server) Do(args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := s.connect(time.Minute) // else go-redis sends a command again on a slow machine
	defer func() { _ = c.Close() }()
	v, err := c.Do(ctx, args...).Result()
	if err != nil {
		return nil, fmt.Errorf("%v on %s: %w", args, s.addr, err)
	}
	return v, nil
}
