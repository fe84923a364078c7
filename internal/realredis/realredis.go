// Package realredis starts redis-server processes on free loopback ports for
// tests, and stops them: with the test, or by signals on request.
package realredis

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Env is the environment variable that decides what happens where there is no
// redis-server: with the value Require the test fails, else it is skipped.
const (
	Env     = "REDSYNC_TEST_REDIS"
	Require = "require"
)

// A Server is one redis-server process.
type Server struct {
	tb   testing.TB
	addr string
	dir  string
	args []string
	cmd  *exec.Cmd
	exit chan struct{} // closed when cmd has ended
}

// Start returns n running servers without persistence. Args are added to each
// command line ("--requirepass", "secret").
func Start(tb testing.TB, n int, args ...string) []*Server {
	tb.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv(Env) == Require {
			tb.Fatalf("%s=%s, and %v", Env, Require, err)
		}
		tb.Skipf("no redis-server on PATH; %s=%s makes this a failure", Env, Require)
	}
	servers := make([]*Server, n)
	for i := range servers {
		servers[i] = &Server{tb: tb, addr: freeAddr(tb), dir: tb.TempDir(), args: args}
		servers[i].start()
		tb.Cleanup(servers[i].Kill)
	}
	return servers
}

func freeAddr(tb testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func (s *Server) start() {
	s.tb.Helper()
	_, port, _ := net.SplitHostPort(s.addr)
	args := append([]string{
		"--port", port, "--bind", "127.0.0.1", "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--enable-debug-command", "yes",
	}, s.args...)
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.tb.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	s.cmd = exec.Command("redis-server", args...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	// The server goes with the test, even when the test is killed.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatal(err)
	}
	cmd, exit := s.cmd, make(chan struct{})
	s.exit = exit
	go func() {
		_ = cmd.Wait()
		close(exit)
	}()
	s.awaitReady()
}

// awaitReady waits until the server accepts connections.
func (s *Server) awaitReady() {
	s.tb.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		conn, err := net.DialTimeout("tcp", s.addr, time.Second)
		if err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-s.exit:
			text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			s.tb.Fatalf("redis-server %v ended: %s", s.cmd.Args, text)
		case <-time.After(10 * time.Millisecond): //nolint:forbidigo // waiting for a process
		}
	}
	s.tb.Fatalf("redis-server at %s is not ready after 20s", s.addr)
}

// Addr returns the address of the server.
func (s *Server) Addr() string { return s.addr }

// Client returns a new client of the server; the test closes it.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr:                     s.addr,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	s.tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Freeze stops the process with SIGSTOP; connections stay open.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	select {
	case <-s.exit:
	default:
		_ = s.cmd.Process.Signal(sig)
	}
}

// Kill ends the process with SIGKILL and waits for its end.
func (s *Server) Kill() {
	s.signal(syscall.SIGKILL)
	<-s.exit
}

// Restart starts a killed server again at the same address, without data.
func (s *Server) Restart() {
	s.tb.Helper()
	s.start()
}

// Do runs one command on the server, for looking at its data.
func (s *Server) Do(args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c := redis.NewClient(&redis.Options{
		Addr:                     s.addr,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer func() { _ = c.Close() }()
	v, err := c.Do(ctx, args...).Result()
	if err != nil {
		return nil, fmt.Errorf("%v on %s: %w", args, s.addr, err)
	}
	return v, nil
}
