package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// pace is the time between two steps of a deployment.
	pace = time.Second

	// patience is how long wrongWay waits for two holders.
	patience = time.Minute
)

// A scene is a fleet whose nodes change.
type scene struct {
	cfg   config
	nodes *nodes
	judge *judge
	fleet []*process
	ids   int
	last  tally        // at the last report
	shown atomic.Int64 // clashes that were shown in detail

	mu    sync.Mutex // guards out
	out   io.Writer
	start time.Time
}

// play changes the nodes of a fleet, and judges what happened.
func play(ctx context.Context, cfg config, n *nodes, out io.Writer) error {
	s := &scene{cfg: cfg, nodes: n, judge: newJudge(), out: out, start: time.Now()}
	s.judge.clash = s.showClash
	s.say("nodes %v are %s; %d processes lock %s and %s, expiry %v",
		cfg.numbers(), n.what, cfg.processes, strings.Join(names[:], ", "), scheduled, cfg.expiry)
	way := s.rightWay
	if cfg.wrong {
		way = s.wrongWay
	}
	err := way(ctx)
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

// rightWay changes the nodes in two deployments.
func (s *scene) rightWay(ctx context.Context) error {
	removed := s.cfg.before.without(s.cfg.after)
	s.begin(ctx, "the fleet", oldKind)
	sleep(ctx, pace)
	s.report("before the change")

	if err := s.deploy(ctx, "deployment 1 of 2", jointKind); err != nil {
		return err
	}
	s.wait(ctx)
	if err := s.deploy(ctx, "deployment 2 of 2", newKind); err != nil {
		return err
	}
	s.wait(ctx)
	if len(removed) == 0 || isDone(ctx) {
		return nil
	}
	locks, queues, registers, err := s.nodes.left(removed)
	if err != nil {
		return err
	}
	s.say("removed nodes: %v. What is left there: %d locks, %d queues, %d fencing registers", removed, locks, queues, registers)
	if locks+queues > 0 {
		return errors.New("a node that is no longer in use has locks or queues")
	}
	for _, number := range removed {
		s.nodes.all[number].Kill()
	}
	s.say("the removed nodes are switched off")
	sleep(ctx, pace)
	s.report("after the change")
	return nil
}

// wrongWay changes the nodes in one deployment, so that processes with the list before and processes with the
// list after run at the same time. It ends once a lock has had two holders.
func (s *scene) wrongWay(ctx context.Context) error {
	s.begin(ctx, "the fleet", oldKind)
	sleep(ctx, pace)
	s.report("before the change")
	s.say("WRONG, one deployment: %s replaces %s", s.cfg.constructor(newKind), s.cfg.constructor(oldKind))
	for range s.cfg.processes {
		s.launch(ctx, newKind)
	}
	for end := time.Now().Add(patience); time.Now().Before(end) && !isDone(ctx); {
		sleep(ctx, pace)
		if _, now := s.judge.since(tally{}); now.clashes > 0 {
			break
		}
	}
	s.report("old and new together")
	return nil
}

// begin starts the fleet.
func (s *scene) begin(ctx context.Context, title string, k kind) {
	s.say("%s starts with %s", title, s.cfg.constructor(k))
	for range s.cfg.processes {
		s.launch(ctx, k)
	}
}

// deploy replaces one process after the other by a process of kind k. The last one ends without unlocking.
func (s *scene) deploy(ctx context.Context, title string, k kind) error {
	former := slices.Clone(s.fleet)
	s.say("%s: %s replaces %s", title, s.cfg.constructor(k), s.cfg.constructor(former[0].kind))
	for i, p := range former {
		s.launch(ctx, k)
		sleep(ctx, pace)
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
		s.say("process %d, the last %v one, ends without unlocking %q", p.id, p.kind, names[0])
	}
	s.report(title + " is complete")
	return nil
}

// launch starts a process of kind k.
func (s *scene) launch(ctx context.Context, k kind) {
	s.ids++
	s.fleet = append(s.fleet, startProcess(ctx, s.ids, k, s.cfg, s.nodes, s.judge))
}

// wait waits until no lock of a process that has ended is left: the longest expiry, the lock delay (there is
// none here), and the drift.
func (s *scene) wait(ctx context.Context) {
	drift := s.cfg.expiry/100 + 2*time.Millisecond
	sleep(ctx, s.cfg.expiry+drift)
	s.report(fmt.Sprintf("waited for %v (expiry %v + drift %v)", s.cfg.expiry+drift, s.cfg.expiry, drift))
}

// report says what has happened since the last report.
func (s *scene) report(title string) {
	while, now := s.judge.since(s.last)
	s.last = now
	s.say("%s: %v", title, while)
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
	s.say("TWO HOLDERS of %q: process %d (%v) by nodes %v, process %d (%v) by nodes %v", name,
		holder.process.id, holder.process.kind, owners[0], second.process.id, second.process.kind, owners[1])
}

// verdict says how the run ended. It returns an error if the run did not show what it should.
func (s *scene) verdict() error {
	_, all := s.judge.since(tally{})
	s.say("in all: %v, tokens that did not rise: %d", all, all.fallen)
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

// say writes one line: the time, and what happened.
func (s *scene) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = fmt.Fprintf(s.out, "%7.3fs  %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}
