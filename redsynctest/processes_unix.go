//go:build unix

package redsynctest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// process is a server in a process of its own, on a loopback port. It keeps its keys on disk.
type process struct {
	redis *realredis.Server
	dir   string
}

func startProcesses(n int, program string) (servers []server, err error) {
	for range n {
		s, err := startProcess(program)
		if err != nil {
			for _, started := range servers {
				started.close()
			}
			return nil, fmt.Errorf("%s=%s: %w", serversEnv, program, err)
		}
		servers = append(servers, s)
	}
	return servers, nil
}

func startProcess(program string) (server, error) {
	dir, err := os.MkdirTemp("", "redsynctest")
	if err != nil {
		return nil, err
	}
	r, err := realredis.LaunchProgram(program, dir, nil, "--appendonly", "yes", "--appendfsync", "always")
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return &process{r, dir}, nil
}

func (p *process) addr() string { return p.redis.Addr() }

func (p *process) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

func (p *process) freeze() { p.redis.Freeze() }
func (p *process) thaw()   { p.redis.Thaw() }
func (p *process) kill()   { p.redis.Kill() }

func (p *process) restart(empty bool) error {
	if empty {
		for _, data := range []string{"appendonlydir", "appendonly.aof"} { // since Redis 7, and before
			if err := os.RemoveAll(filepath.Join(p.dir, data)); err != nil {
				return err
			}
		}
	}
	return p.redis.Relaunch()
}

func (p *process) advance(time.Duration) error {
	return fmt.Errorf("the clocks of real servers (%s) cannot be moved", serversEnv)
}

func (p *process) close() {
	p.redis.Kill()
	_ = os.RemoveAll(p.dir)
}
