// Worker shows a typical use of a distributed lock. Several workers want the same lock. The one
// that holds it works for longer than the expiry, while redsync.Do extends the lock, and then
// unlocks. A worker that loses its lock, because the nodes are gone, learns that in time and stops.
//
//	go run ./examples/worker                                  # five nodes inside the process
//	go run ./examples/worker -nodes host1:6379,host2:6379,... # real nodes
//
// Every worker has connections of its own, like a separate process. Each event is one line: time,
// worker, what happened, and details. The program ends with status 1 if two workers hold the lock
// at once, if no quorum of nodes can be reached at the start, or if no quorum answers for ten
// seconds later on. Ctrl-C unlocks and leaves no key behind. Status 2 means bad flags.
//
// The methods run, work and judge in worker.go show all that a program needs. The rest is flags,
// embedded nodes, and the check that only one worker holds the lock.
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
	logging.Disable() // go-redis logs every failed dial; the workers report what matters
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run is the program. It returns the exit status.
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

// runWorkers runs the workers of cfg until ctx is done, the time is up, or a worker returns an
// error that ends the run.
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
		// WithFair and WithTries(0): the worker keeps its place in the queue until it has the
		// lock, or until the run ends. WithSetNXOnExtend: if several workers begin at the same
		// time, the winner may have its key on no more nodes than a quorum. Its extensions then
		// set the missing keys, so that it keeps the lock if nodes fail later.
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

// summarize prints what the workers did and which keys they left on the nodes.
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
