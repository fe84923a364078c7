package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"
)

// A server is one redis-server process without persistence.
type server struct {
	addr string
	dir  string
	cmd  *exec.Cmd
	log  bytes.Buffer  // read after exit only
	exit chan struct{} // closed when the process has ended
}

// readyTimeout bounds the start of a server, stopTimeout its end.
const (
	readyTimeout = 10 * time.Second
	stopTimeout  = 5 * time.Second
)

// startServers returns n running servers on free loopback ports, or none and an
// error.
func startServers(ctx context.Context, n int) ([]*server, error) {
	var servers []*server
	for range n {
		s, err := startServer(ctx)
		if err != nil {
			return nil, errors.Join(err, stopServers(servers))
		}
		servers = append(servers, s)
	}
	return servers, nil
}

func addresses(servers []*server) []string {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.addr
	}
	return addrs
}

func startServer(ctx context.Context) (*server, error) {
	addr, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "redsync-bench-")
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	s := &server{addr: addr, dir: dir, exit: make(chan struct{})}
	s.cmd = exec.Command("redis-server", "--bind", host, "--port", port, "--dir", dir, //nolint:gosec // our own arguments
		"--save", "", "--appendonly", "no")
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() {
		_ = s.cmd.Wait() // how it ended does not matter
		close(s.exit)
	}()
	if err := s.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func freeAddr(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// awaitReady waits until the server accepts connections.
func (s *server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-s.exit:
			return fmt.Errorf("redis-server at %s ended: %s", s.addr, s.log.String())
		case <-ctx.Done():
			return fmt.Errorf("redis-server at %s is not ready: %w", s.addr, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// stopServers ends the processes, waits for their end and removes their
// directories.
func stopServers(servers []*server) error {
	var errs []error
	for _, s := range servers {
		errs = append(errs, s.stop())
	}
	return errors.Join(errs...)
}

func (s *server) stop() error {
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.exit:
	case <-time.After(stopTimeout):
		return fmt.Errorf("redis-server at %s, process %d, does not end", s.addr, s.cmd.Process.Pid)
	}
	return os.RemoveAll(s.dir)
}
