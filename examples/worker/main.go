// Worker is the job that a distributed lock is for: several workers want the
// same name, one at a time has it, works for longer than the lock's expiry, which
// redsync.Do extends meanwhile, and gives it back. A worker whose lock is lost,
// because its nodes are gone, is told and stops in time.
//
//	go run ./examples/worker                                  # five nodes inside the process
//	go run ./examples/worker -nodes host1:6379,host2:6379,... # real ones
//
// Every worker has connections of its own, as if it were a process of its own.
// Each event is one line: time, worker, what happened, and details. The program
// watches its workers and ends with status 1 when two of them hold the lock at
// once, or when no quorum of nodes can be reached at the start, or for ten
// seconds later on. Ctrl-C unlocks and leaves no key behind. Status 2 means bad
// flags.
//
// Read worker.go: run, work and judge are what a program needs; the rest is flags,
// embedded nodes and the check that only one holds the lock.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/cli"
)

func main() {
	logging.Disable() // go-redis logs every failed dial; the workers tell what matters
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run is the program: it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Status("worker", command(ctx, args, stdout), stdout, stderr)
}

func command(ctx context.Context, args []string, out io.Writer) error {
	cfg, err := parseFlags(args)
	if err != nil {
		return err
	}
	nodes := cfg.nodes()
	defer nodes.close()
	return runWorkers(ctx, cfg, nodes, out)
}

// errTimeUp ends a run after the time of -for.
var errTimeUp = errors.New("the time is up")

// runWorkers lets the workers of cfg contend until ctx is done, their time is
// up, or one of them meets an error that ends the run.
func runWorkers(ctx context.Context, cfg config, nodes *nodes, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if cfg.runFor > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, cfg.runFor, errTimeUp)
		defer stop()
	}
	j := &journal{out: out, start: time.Now()}
	workers, err := openWorkers(ctx, cfg, nodes, j)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	errs := make([]error, len(workers))
	for i, w := range workers {
		group.Go(func() {
			errs[i] = w.run(ctx, cancel)
			if errs[i] != nil {
				cancel(errs[i])
			}
		})
	}
	group.Wait()
	why := context.Cause(ctx)
	summarize(j, cfg, why, workers, nodes)
	if errors.Is(why, errOutOfReach) {
		return why
	}
	return errors.Join(errs...)
}

// openWorkers connects every worker to the nodes, or none.
func openWorkers(ctx context.Context, cfg config, nodes *nodes, j *journal) ([]*worker, error) {
	reg, con := newRegister(), newContact()
	var workers []*worker
	for id := 1; id <= cfg.workers; id++ {
		// WithFair and WithTries(0): the worker keeps its place in the queue until it has
		// the lock, or until the run ends. Workers that begin at once may leave the winner with a
		// bare quorum. Its extends set the missing keys again, so that it can lose nodes
		// afterwards.
		w := &worker{id: id, name: cfg.name, nodes: len(nodes.look), expiry: cfg.expiry, register: reg, contact: con, journal: j}
		rs, err := nodes.open(ctx, redsync.WithExpiry(cfg.expiry), redsync.WithFair(), redsync.WithTries(0),
			redsync.WithSetNXOnExtend(), redsync.WithObserver(w))
		if err != nil {
			for _, w := range workers {
				w.close()
			}
			return nil, err
		}
		w.rs = rs
		workers = append(workers, w)
	}
	j.note("%d workers want %q on %s, expiry %v", cfg.workers, cfg.name, nodes.what, cfg.expiry)
	return workers, nil
}

// summarize tells what the workers did and what they left on the nodes.
func summarize(j *journal, cfg config, why error, workers []*worker, nodes *nodes) {
	j.note("stopped: %v", why)
	for _, w := range workers {
		j.note("worker %d: %d acquisitions, %d extensions, %d losses", w.id, w.acquired, w.extended.Load(), w.lost)
	}
	left, answered := nodes.keys(cfg.name)
	j.note("keys left on the nodes: %d (%d of %d nodes answered)", left, answered, len(nodes.look))
}

// A journal writes one line per event.
type journal struct {
	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

func (j *journal) note(format string, args ...any) {
	j.line("-", fmt.Sprintf(format, args...))
}

func (j *journal) line(who, text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, _ = fmt.Fprintf(j.out, "%8.3fs  %-9s  %s\n", time.Since(j.start).Seconds(), who, text)
}
