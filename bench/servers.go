package main

import (
	"errors"
	"os"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// servers are redis-server processes and the folder with their files.
type servers struct {
	list []*realredis.Server
	dir  string
}

// startServers returns n running servers without persistence on free loopback
// ports, or none and an error.
func startServers(n int) (*servers, error) {
	dir, err := os.MkdirTemp("", "redsync-bench-")
	if err != nil {
		return nil, err
	}
	s := &servers{dir: dir}
	for range n {
		one, err := realredis.Launch(dir)
		if err != nil {
			return nil, errors.Join(err, s.stop())
		}
		s.list = append(s.list, one)
	}
	return s, nil
}

func (s *servers) addresses() []string {
	addrs := make([]string, len(s.list))
	for i, one := range s.list {
		addrs[i] = one.Addr()
	}
	return addrs
}

// freeze stops the first n servers, which keep their connections.
func (s *servers) freeze(n int) {
	for _, one := range s.list[:n] {
		one.Freeze()
	}
}

// thaw lets the first n servers go on.
func (s *servers) thaw(n int) {
	for _, one := range s.list[:n] {
		one.Thaw()
	}
}

// stop ends the processes and removes their files.
func (s *servers) stop() error {
	for _, one := range s.list {
		one.Kill()
	}
	return os.RemoveAll(s.dir)
}
