package main

import (
	"context"
	"errors"
	"net/rpc"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
)

// term is how long a leader leads before something happens to it.
const term = 500 * time.Millisecond

// errSecond means that the second leader does not follow the third one, although no other candidate is left.
var errSecond = errors.New("the candidate that was stopped does not lead again")

// A job tells a candidate its name, the nodes and the journal.
type job struct {
	Who     string
	Nodes   []string
	Journal string
}

// child is the program of a candidate.
func child(ctx context.Context, j job) error {
	conn, err := rpc.Dial("tcp", j.Journal)
	if err != nil {
		return err
	}
	defer conn.Close()
	rs, err := redsync.Open(ctx, j.Nodes, redsync.WithTimeoutFactor(0.4)) // the machine may be busy
	if err != nil {
		return err
	}
	defer rs.Close(context.WithoutCancel(ctx))
	resign := make(chan struct{})
	go func() {
		if rig.Ready() == nil {
			close(resign)
		}
	}()
	return (&candidate{j.Who, rs, &client{conn}, resign}).run(ctx)
}

// play plays the scene on nodes.
func play(ctx context.Context, nodes []string, journal *Journal) error {
	address, stop, err := rig.Serve(journal)
	if err != nil {
		return err
	}
	defer stop()
	processes := map[string]*rig.Process{}
	first := ""
	for _, who := range []string{"A", "B", "C"} {
		p, err := rig.Start(ctx, job{who, nodes, address})
		if err != nil {
			return err
		}
		defer p.Kill()
		processes[who] = p
		if first, err = journal.leader(ctx, 1); err != nil {
			return err
		}
	}

	time.Sleep(term)
	journal.Say("%s is killed", first)
	processes[first].Kill()
	second, err := journal.leader(ctx, 2)
	if err != nil {
		return err
	}
	third, err := stopInTheMiddle(ctx, journal, second, processes[second])
	if err != nil {
		return err
	}
	time.Sleep(term) // meanwhile the second one becomes a candidate again
	journal.Say("%s resigns", third)
	if err := errors.Join(processes[third].Go(), processes[third].Wait()); err != nil {
		return err
	}
	last, err := journal.leader(ctx, 4)
	if err != nil {
		return err
	}
	if last != second {
		return errSecond
	}
	return journal.audit()
}

// stopInTheMiddle suspends the leader in the middle of an entry until a third leader leads, and returns the third. Then
// the suspended one continues.
func stopInTheMiddle(ctx context.Context, journal *Journal, leader string, p *rig.Process) (third string, err error) {
	time.Sleep(term)
	goOn := journal.hold(leader)
	if err := journal.await(ctx, "the leader prepares an entry", func() bool { return journal.holding }); err != nil {
		return "", err
	}
	journal.Say("%s is stopped", leader)
	if err := p.Pause(); err != nil {
		return "", err
	}
	if third, err = journal.leader(ctx, 3); err != nil {
		return "", err
	}
	journal.Say("%s goes on", leader)
	goOn()
	if err := p.Resume(); err != nil {
		return "", err
	}
	return third, journal.await(ctx, "the late entry has come", func() bool {
		return len(journal.refused) > 0 || journal.lateLocked() != nil
	})
}
