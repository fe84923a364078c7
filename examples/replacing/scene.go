package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
)

const (
	// pace is the time between two steps of a deployment.
	pace = time.Second

	// patience is how long wrongWay waits for two holders.
	patience = time.Minute
)

// A scene is a fleet whose nodes change.
type scene struct {
	*rig.Timeline
	cfg   config
	nodes *nodes
	judge *judge
	fleet []*process
	ids   int
	last  tally        // at the last report
	shown atomic.Int64 // clashes that were shown in detail
}

// play changes the nodes of a fleet, and judges what happened.
func play(ctx context.Context, cfg config, n *nodes, out io.Writer) error {
	s := &scene{Timeline: rig.NewTimeline(out), cfg: cfg, nodes: n, judge: newJudge()}
	s.judge.clash = s.showClash
	s.Say("nodes %v are %s; %d processes lock %s and %s, expiry %v",
		cfg.numbers(), n.What, cfg.processes, strings.Join(names[:], ", "), scheduled, cfg.expiry)
	s.Say("the fleet starts with %s", cfg.constructor(oldKind))
	for range cfg.processes {
		s.launch(ctx, oldKind)
	}
	rig.Sleep(ctx, pace)
	s.report("before the change")
	var err error
	if cfg.wrong {
		s.wrongWay(ctx)
	} else {
		err = rightWay(ctx, s, cfg.expiry)
	}
	for _, p := range s.fleet {
		err = errors.Join(err, p.end())
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	return s.verdict()
}

// switchOff switches the nodes off that are no longer in use. No lock may be left there.
func (s *scene) switchOff(ctx context.Context) error {
	removed := s.cfg.before.without(s.cfg.after)
	if len(removed) == 0 || isDone(ctx) {
		return nil
	}
	locks, queues, registers, err := s.nodes.left(removed)
	if err != nil {
		return err
	}
	s.Say("removed nodes: %v. What is left there: %d locks, %d queues, %d fencing registers", removed, locks, queues, registers)
	if locks+queues > 0 {
		return errors.New("a node that is no longer in use has locks or queues")
	}
	for _, number := range removed {
		s.nodes.Off(s.nodes.index(number))
	}
	s.Say("the removed nodes are switched off")
	rig.Sleep(ctx, pace)
	s.report("after the change")
	return nil
}

// wrongWay changes the nodes in one deployment, so that processes with the list before and processes with the
// list after run at the same time. It ends once a lock has had two holders.
func (s *scene) wrongWay(ctx context.Context) {
	s.Say("WRONG, one deployment: %s replaces %s", s.cfg.constructor(newKind), s.cfg.constructor(oldKind))
	for range s.cfg.processes {
		s.launch(ctx, newKind)
	}
	for end := time.Now().Add(patience); time.Now().Before(end) && !isDone(ctx); {
		rig.Sleep(ctx, pace)
		if _, now := s.judge.since(tally{}); now.clashes > 0 {
			break
		}
	}
	s.report("old and new together")
}

// deploy replaces one process after the other by a process of kind k. The last one ends without unlocking.
func (s *scene) deploy(ctx context.Context, title string, k kind) error {
	former := slices.Clone(s.fleet)
	s.Say("%s: %s replaces %s", title, s.cfg.constructor(k), s.cfg.constructor(former[0].kind))
	for i, p := range former {
		s.launch(ctx, k)
		rig.Sleep(ctx, pace)
		if isDone(ctx) {
			return nil
		}
		s.fleet = slices.DeleteFunc(s.fleet, func(o *process) bool { return o == p })
		if i < len(former)-1 {
			if err := p.end(); err != nil {
				return err
			}
			continue
		}
		if err := p.crash(ctx, names[0]); err != nil {
			return err
		}
		s.Say("process %d, the last %v one, ends without unlocking %q", p.id, p.kind, names[0])
	}
	s.report(title + " is complete")
	return nil
}

// launch starts a process of kind k.
func (s *scene) launch(ctx context.Context, k kind) {
	s.ids++
	s.fleet = append(s.fleet, startProcess(ctx, s.ids, k, s.cfg, s.nodes, s.judge))
}

// wait waits for d.
func (s *scene) wait(ctx context.Context, d time.Duration) {
	rig.Sleep(ctx, d)
	s.report(fmt.Sprintf("waited for %v (expiry %v + drift %v)", d, s.cfg.expiry, d-s.cfg.expiry))
}

// report says what has happened since the last report.
func (s *scene) report(title string) {
	while, now := s.judge.since(s.last)
	s.last = now
	s.Say("%s: %v", title, while)
}

// maxShown is how many clashes are shown in detail.
const maxShown = 3

// showClash says that a lock has two holders, and which nodes have the key of each. It says nothing if one holder
// has released the lock meanwhile, or if maxShown clashes have been shown.
func (s *scene) showClash(name string, holder, second *hold) {
	owners := s.nodes.owners(name, holder.value, second.value)
	if s.shown.Load() >= maxShown || len(owners[0]) == 0 || len(owners[1]) == 0 {
		return
	}
	s.shown.Add(1)
	s.Say("TWO HOLDERS of %q: process %d (%v) by nodes %v, process %d (%v) by nodes %v", name,
		holder.process, holder.kind, owners[0], second.process, second.kind, owners[1])
}

// verdict says how the run ended. It returns an error if the run did not show what it should.
func (s *scene) verdict() error {
	_, all := s.judge.since(tally{})
	s.Say("in all: %v, tokens that did not rise: %d", all, all.fallen)
	switch {
	case s.cfg.wrong && all.clashes == 0:
		return errors.New("no lock had two holders this time: try again")
	case s.cfg.wrong:
		return nil
	case all.clashes > 0:
		return errors.New("a lock had two holders")
	case all.fallen > 0:
		return errors.New("a fencing token did not rise")
	}
	return nil
}
