package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
	"github.com/seed14bd9ef4/redsync/pool"
)

// constructor returns how a process of kind k makes its Redsync.
func (cfg *config) constructor(k kind) string {
	switch k {
	case oldKind:
		return fmt.Sprintf("New(%v)", cfg.before)
	case newKind:
		return fmt.Sprintf("New(%v)", cfg.after)
	}
	return fmt.Sprintf("NewJoint(%v and %v)", cfg.before, cfg.after)
}

// names are the locks that every process acquires again and again.
var names = [...]string{"invoices", "orders"}

// scheduled is the lock of a job. All processes try to run the job at the same moments, and each process tries only
// once at each moment.
const scheduled = "cleanup"

// closeTimeout bounds how long the end of a process waits for the nodes.
const closeTimeout = 5 * time.Second

// A process is a part of this program with a Redsync and connections of its own.
type process struct {
	id      int
	kind    kind
	rs      *redsync.Redsync
	clients map[int]*redis.Client // by node
	judge   *judge

	stop    context.CancelFunc
	workers sync.WaitGroup
	mu      sync.Mutex // guards err
	err     error      // why a worker gave up
}

// startProcess starts a process of kind k, with a worker for each lock.
func startProcess(ctx context.Context, id int, k kind, cfg config, n *nodes, j *judge) *process {
	p := &process{id: id, kind: k, judge: j, clients: map[int]*redis.Client{}}
	p.rs = connect(k, cfg.before, cfg.after, func(numbers list) []pool.Pool { return p.pools(n, numbers) }).
		With(redsync.WithExpiry(cfg.expiry), redsync.WithFencing())
	ctx, p.stop = context.WithCancel(ctx)
	for _, name := range names {
		p.workers.Go(func() { p.giveUp(p.work(ctx, name, cfg.work)) })
	}
	p.workers.Go(func() { p.giveUp(p.runJob(ctx, cfg.work)) })
	return p
}

// giveUp records why a worker has ended.
func (p *process) giveUp(err error) {
	if err == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = errors.Join(p.err, fmt.Errorf("process %d: %w", p.id, err))
}

// pools returns a pool for each node. A client of lateClient has a Dialer, so NewJoint cannot compare addresses: a node of
// both sets has one client.
func (p *process) pools(n *nodes, numbers list) (pools []pool.Pool) {
	for _, number := range numbers {
		if p.clients[number] == nil {
			p.clients[number] = n.lateClient(number)
		}
		pools = append(pools, pool.New(p.clients[number]))
	}
	return pools
}

// work locks, works and unlocks, over and over, until ctx is done. Each work, and each pause between two locks, takes
// the time longest at most.
func (p *process) work(ctx context.Context, name string, longest time.Duration) error {
	for !isDone(ctx) {
		if err := p.do(ctx, name, longest, redsync.WithTries(0)); err != nil {
			return err
		}
		rig.Sleep(ctx, rand.N(longest))
	}
	return nil
}

// runJob runs the scheduled job again and again, until ctx is done. The process that gets the lock runs it, for
// the time longest at most.
func (p *process) runJob(ctx context.Context, longest time.Duration) error {
	for !isDone(ctx) {
		period := 4 * longest
		rig.Sleep(ctx, time.Until(time.Now().Truncate(period).Add(period)))
		err := p.do(ctx, scheduled, longest, redsync.WithTries(1))
		if err != nil && !errors.Is(err, redsync.ErrFailed) {
			return err
		}
	}
	return nil
}

// do works while it holds a lock.
func (p *process) do(ctx context.Context, name string, longest time.Duration, options ...redsync.Option) error {
	err := p.rs.Do(ctx, name, func(ctx context.Context) error {
		defer p.enter(name, redsync.FromContext(ctx))()
		rig.Sleep(ctx, longest/2+rand.N(longest/2))
		return nil
	}, options...)
	if isDone(ctx) || isPassing(err) {
		return nil
	}
	return err
}

// enter tells the judge that p holds the lock.
func (p *process) enter(name string, mutex *redsync.Mutex) (leave func()) {
	return p.judge.enter(name, &hold{p.id, p.kind, mutex.Value(), mutex.Fence(), mutex.Remaining})
}

// end ends the process as programs should: its locks are released. The error is why a worker gave up, or why
// the end was not clean.
func (p *process) end() error {
	p.stop()
	p.workers.Wait()
	return p.close()
}

// crash ends the process while it holds a lock. The keys of the lock stay on the nodes until they expire, and
// the judge counts the hold until its validity ends.
func (p *process) crash(ctx context.Context, name string) error {
	p.stop()
	p.workers.Wait()
	mutex := p.rs.NewMutex(name, redsync.WithTries(0))
	if err := mutex.LockContext(ctx); err != nil {
		return errors.Join(err, p.close())
	}
	until := mutex.Until()
	p.judge.enter(name, &hold{p.id, p.kind, mutex.Value(), mutex.Fence(), func() time.Duration { return time.Until(until) }})
	_, err := mutex.Detach(ctx) // so that close does not release it
	if isPassing(err) {
		err = nil
	}
	return errors.Join(err, p.close())
}

// isPassing reports whether err comes from a computer that is too busy: a hold expired, or nodes did not answer
// in time.
func isPassing(err error) bool {
	var node *redsync.RedisError
	return errors.Is(err, redsync.ErrLockLost) || errors.Is(err, redsync.ErrLockAlreadyExpired) ||
		errors.Is(err, redsync.ErrNoQuorum) || errors.As(err, &node)
}

func (p *process) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = p.rs.Close(ctx) // on an error some keys stay until they expire, and the wait covers them too
	err := p.err
	for _, client := range p.clients {
		err = errors.Join(err, client.Close())
	}
	return err
}

func isDone(ctx context.Context) bool { return ctx.Err() != nil }
