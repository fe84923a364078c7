package redsynctest

import (
	"context"
	"net"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
)

// startServers starts n servers: processes of program, or servers inside this process if program is "".
func startServers(n int, program string) ([]server, error) {
	if program != "" {
		return startProcesses(n, program)
	}
	var servers []server
	for _, node := range embedded.Start(n) {
		c := node.Client()
		servers = append(servers, &inProcess{node, c.Options().Addr})
		_ = c.Close()
	}
	return servers, nil
}

// inProcess is a server inside this process. It follows the clock of the bubble, if there is one.
type inProcess struct {
	node    *embedded.Node
	address string
}

func (s *inProcess) addr() string { return s.address }

func (s *inProcess) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return s.node.Dial(ctx, network, addr)
}

func (s *inProcess) freeze() { s.node.Freeze() }
func (s *inProcess) thaw()   { s.node.Thaw() }
func (s *inProcess) kill()   { s.node.Kill() }

func (s *inProcess) restart(empty bool) error {
	s.node.Restart(empty)
	return nil
}

func (s *inProcess) advance(d time.Duration) error {
	s.node.SetClock(d, 1)
	return nil
}

func (s *inProcess) close() { embedded.Nodes{s.node}.Close() }
