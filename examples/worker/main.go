// Worker shows a typical use of a distributed lock. Several workers want the same lock. The one that has it works for
// longer than the expiry, while redsync.Do extends the lock, and then unlocks. A worker that loses its lock, because the
// nodes are gone, learns that in time and stops.
//
//	go run ./examples/worker                                  # five nodes inside the process
//	go run ./examples/worker -nodes localhost:6379            # one Redis
//	go run ./examples/worker -nodes host1:6379,host2:6379,... # several
//
// Every worker has connections of its own, like a separate process. Each event is one line. The program ends with status
// 1 if two workers have the lock at once, if no quorum of nodes can be reached at the start, or if no quorum answers for
// ten seconds later on. Ctrl-C unlocks and leaves no key behind. Status 2 means bad flags.
//
// worker.go shows all that a program needs. The rest prints what happens, and checks that only one worker has the lock.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
)

const (
	maxWorkers = 100
	minExpiry  = 100 * time.Millisecond
	maxExpiry  = time.Hour

	// closeTimeout bounds how long the end waits for the releases of a worker.
	closeTimeout = 5 * time.Second
)

var program = rig.Program{Name: "worker", Command: command}

func main() { program.Main() }

func command(ctx context.Context, args []string, out io.Writer) error {
	cfg := &config{}
	nodes, err := rig.WithInside(cfg.flags(), args)
	if err != nil {
		return err
	}
	defer nodes.Close()
	if err := cfg.check(); err != nil {
		return err
	}
	return runWorkers(ctx, cfg, nodes, out)
}

// A config holds the flags.
type config struct {
	runFor  time.Duration
	workers int
	name    string
	expiry  time.Duration
}

func (cfg *config) flags() *flag.FlagSet {
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	flags.DurationVar(&cfg.runFor, "for", 15*time.Second, "how long to run: 0 (until interrupted) or more")
	flags.IntVar(&cfg.workers, "workers", 3, fmt.Sprintf("number of workers: 1 to %d", maxWorkers))
	flags.StringVar(&cfg.name, "name", "example-worker", "name of the lock: not empty")
	flags.DurationVar(&cfg.expiry, "expiry", 2*time.Second,
		fmt.Sprintf("expiry of the lock: %v to %v", minExpiry, maxExpiry))
	return flags
}

func (cfg *config) check() error {
	switch {
	case cfg.runFor < 0:
		return cli.Misusef("-for %v is out of range: 0 (until interrupted) or more", cfg.runFor)
	case cfg.workers < 1 || cfg.workers > maxWorkers:
		return cli.Misusef("-workers %d is out of range: 1 to %d", cfg.workers, maxWorkers)
	case cfg.name == "":
		return cli.Misusef("-name %q is out of range: it must not be empty", cfg.name)
	case cfg.expiry < minExpiry || cfg.expiry > maxExpiry:
		return cli.Misusef("-expiry %v is out of range: %v to %v", cfg.expiry, minExpiry, maxExpiry)
	}
	return nil
}

// errTimeUp ends a run after the time of -for.
var errTimeUp = errors.New("the time is up")

// runWorkers runs the workers of cfg until ctx is done, the time is up, or a worker returns an error that ends the run.
func runWorkers(ctx context.Context, cfg *config, nodes *rig.Nodes, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if cfg.runFor > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, cfg.runFor, errTimeUp)
		defer stop()
	}
	timeline := rig.NewTimeline(out)
	workers, err := openWorkers(ctx, cfg, nodes, timeline, cancel)
	if err != nil {
		return err
	}
	timeline.Say("%d workers want the lock %q on %s. One works at a time, and the others wait for their turn.",
		cfg.workers, cfg.name, nodes.What)
	timeline.Say("The work takes %v. The lock lasts for only %v, so it is extended while the work goes on.",
		cfg.expiry*3/2, cfg.expiry)
	var group sync.WaitGroup
	errs := make([]error, len(workers))
	for i, w := range workers {
		group.Go(func() {
			if errs[i] = w.run(ctx); errs[i] != nil {
				cancel(errs[i])
			}
			closeWorker(w)
		})
	}
	group.Wait()
	why := context.Cause(ctx)
	timeline.Say("The end: %v.", why)
	for _, w := range workers {
		timeline.Say("worker %d  locks: %d, extensions: %d, losses: %d",
			w.id, w.worked, w.extended.Load(), w.lost)
	}
	left, answered := keys(nodes, cfg.name)
	timeline.Say("keys left on the nodes: %d (%d of %d answered)", left, answered, len(nodes.Clients))
	if errors.Is(why, errOutOfReach) {
		return why
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	timeline.Say("No two workers had the lock at the same time.")
	return nil
}

// openWorkers connects every worker to the nodes, or none.
func openWorkers(ctx context.Context, cfg *config, nodes *rig.Nodes, timeline *rig.Timeline, giveUp context.CancelCauseFunc) ([]*worker, error) {
	referee := newReferee()
	var workers []*worker
	for id := 1; id <= cfg.workers; id++ {
		// WithFair and WithTries(0): the worker keeps its place in the queue until it has the
		// lock, or until the run ends. WithSetNXOnExtend: if several workers begin at the same
		// time, the winner may have its key on no more nodes than a quorum. Its extensions then
		// set the missing keys, so that it keeps the lock if nodes fail later.
		w := &worker{
			report: report{id: id, nodes: len(nodes.Clients), referee: referee, timeline: timeline, giveUp: giveUp},
			name:   cfg.name, expiry: cfg.expiry,
		}
		rs, err := nodes.Open(ctx, redsync.WithExpiry(cfg.expiry), redsync.WithFair(), redsync.WithTries(0),
			redsync.WithSetNXOnExtend(), redsync.WithHooks(w.report.hooks()))
		if err != nil {
			for _, w := range workers {
				closeWorker(w)
			}
			return nil, err
		}
		w.rs = rs
		workers = append(workers, w)
	}
	return workers, nil
}

// closeWorker waits until the nodes have settled the worker's releases, at most for closeTimeout.
func closeWorker(w *worker) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := w.rs.Close(ctx); err != nil {
		w.say("closed: %v", err)
	}
}

// keys counts the nodes that have a key named name, and the nodes that answer.
func keys(nodes *rig.Nodes, name string) (left, answered int64) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var sum, answers atomic.Int64
	var group sync.WaitGroup
	for _, client := range nodes.Clients {
		group.Go(func() {
			if count, err := client.Exists(ctx, name).Result(); err == nil {
				answers.Add(1)
				sum.Add(count)
			}
		})
	}
	group.Wait()
	return sum.Load(), answers.Load()
}
