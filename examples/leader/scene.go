package main

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// term is how long a leader leads before something happens to it.
const term = 500 * time.Millisecond

// errSecond means that the second leader does not follow the third one, although no other candidate is left.
var errSecond = errors.New("the candidate that was stopped does not lead again")

// play plays the scene on nodes.
func play(ctx context.Context, nodes []string, unfenced bool, out io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	rs, err := redsync.Open(ctx, nodes) // only to check that the nodes can be reached
	if err != nil {
		return err
	}
	_ = rs.Close(ctx)
	s := scene{newJournal(unfenced, out), processes{}, job{Nodes: nodes, Journal: listener.Addr().String()}}
	go s.journal.serve(listener)
	defer s.processes.end()
	return s.run(ctx)
}

// A scene is a journal and the candidates that want to write it.
type scene struct {
	journal   *Journal
	processes processes
	job       job
}

func (s *scene) run(ctx context.Context) error {
	first, err := s.starts(ctx)
	if err != nil {
		return err
	}
	time.Sleep(term)
	s.journal.say("%s is killed", first)
	if err := s.processes.process(first).Kill(); err != nil {
		return err
	}
	second, err := s.journal.leader(ctx, 2)
	if err != nil {
		return err
	}
	third, err := s.stops(ctx, second)
	if err != nil {
		return err
	}
	time.Sleep(term) // meanwhile the second one becomes a candidate again
	s.journal.say("%s resigns", third)
	if err := s.processes.resign(third); err != nil {
		return err
	}
	last, err := s.journal.leader(ctx, 4)
	if err != nil {
		return err
	}
	if last != second {
		return errSecond
	}
	return s.journal.audit()
}

// starts launches three candidates, and returns the leader.
func (s *scene) starts(ctx context.Context) (first string, err error) {
	for _, who := range []string{"A", "B", "C"} {
		j := s.job
		j.Who = who
		if err := s.processes.start(ctx, j); err != nil {
			return "", err
		}
		if first, err = s.journal.leader(ctx, 1); err != nil {
			return "", err
		}
	}
	return first, nil
}

// stops suspends the leader in the middle of an entry until a third leader leads, and returns the third. Then the
// suspended one continues.
func (s *scene) stops(ctx context.Context, leader string) (third string, err error) {
	time.Sleep(term)
	goOn := s.journal.hold(leader)
	err = s.journal.await(ctx, "the leader prepares an entry", func() bool { return s.journal.holding })
	if err != nil {
		return "", err
	}
	s.journal.say("%s is stopped", leader)
	if err := realredis.Pause(s.processes.process(leader)); err != nil {
		return "", err
	}
	if third, err = s.journal.leader(ctx, 3); err != nil {
		return "", err
	}
	s.journal.say("%s goes on", leader)
	goOn()
	if err := realredis.Resume(s.processes.process(leader)); err != nil {
		return "", err
	}
	return third, s.journal.await(ctx, "the late entry has come", func() bool {
		return len(s.journal.refused) > 0 || s.journal.lateLocked() != nil
	})
}
