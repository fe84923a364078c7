package watch

import (
	"context"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

const (
	// readEvery is how often a lock is read at least.
	readEvery = time.Second

	// runOut is how long after the end of a TTL the lock is read: nodes count TTLs in milliseconds.
	runOut = time.Millisecond

	// newInspection is after how many reads it is forgotten which nodes deny the queue and the register.
	newInspection = 60
)

// A Lock is what somebody watches.
type Lock struct {
	Key     string                       // equal for watchers that read the same
	Terms   *lease.Terms                 // of the reads; those of the first watcher count
	Led     string                       // the name that leaders may have; "" if the lock cannot be that of a leader
	Holders func(lease.Inspected) string // returns a text; two texts differ if the holders do
}

// A Snapshot is what a read has seen. It does not change.
type Snapshot struct {
	lease.Inspected
	holders string // what Lock.Holders returns for it
	number  uint64 // of the read
}

// A reading reads a lock again and again, as long as somebody watches it.
type reading struct {
	lock     Lock
	hints    chan struct{} // has room for one: something may have changed
	stop     context.CancelFunc
	ended    chan struct{} // closed when nothing is read any more, and the subscriptions have ended
	watchers int           // guarded by Hub.mu

	mu         sync.Mutex // guards what follows
	inspection *lease.Inspection
	begun      uint64        // how many reads have begun
	snapshot   *Snapshot     // of the last read; nil if none has ended
	newer      chan struct{} // closed when snapshot changes
}

// newReading returns a reading that has not begun.
func newReading(l Lock) *reading {
	return &reading{
		lock: l, hints: make(chan struct{}, 1), ended: make(chan struct{}), newer: make(chan struct{}),
	}
}

// begin begins to read, as one of running. The caller holds Hub.mu, so nobody has asked r to stop yet.
func (r *reading) begin(running *sync.WaitGroup) {
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	running.Go(func() { r.run(ctx) })
}

// nextRead returns the number of the next read to begin, and makes it begin soon.
func (r *reading) nextRead() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hint()
	return r.begun + 1
}

// hint makes r read soon. It does not block.
func (r *reading) hint() {
	select {
	case r.hints <- struct{}{}:
	default: // r will read anyway
	}
}

// beginRead notes that a read begins, and returns what reads, and the number of the read.
func (r *reading) beginRead() (*lease.Inspection, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.hints: // this read follows it
	default:
	}
	if r.begun%newInspection == 0 {
		r.inspection = lease.NewInspection(r.lock.Terms)
	}
	r.begun++
	return r.inspection, r.begun
}

func (r *reading) latest() (last *Snapshot, newer <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.snapshot, r.newer
}

// run reads the lock until ctx ends or Close has begun.
func (r *reading) run(ctx context.Context) {
	defer close(r.ended)
	if r.lock.Led != "" {
		defer listen(r.lock.Terms.Keeper, r.lock.Led, r.hint)()
	}
	p, next := pace{}, time.Now()
	for r.pause(ctx, time.Until(next), r.hints) && r.pause(ctx, p.wait(time.Now()), nil) {
		start := time.Now()
		p.note(start)
		seen, ok := r.read(ctx)
		if !ok {
			return
		}
		next = start.Add(readEvery)
		for _, h := range seen.Holdings() {
			if end := time.Now().Add(h.TTL + runOut); h.TTL != script.Endless && end.Before(next) {
				next = end
			}
		}
	}
}

// pause does what lease.Keeper.Pause does, without a timer if d is not positive.
func (r *reading) pause(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	keeper := r.lock.Terms.Keeper
	if d <= 0 {
		return ctx.Err() == nil && !keeper.IsClosed()
	}
	return keeper.Pause(ctx, d, early)
}

// read reads the lock once. It reports false if Close has begun. Close and the end of ctx cut a read short. Then nobody is told
// of it: see Watcher.Next.
func (r *reading) read(ctx context.Context) (seen lease.Inspected, ok bool) {
	keeper := r.lock.Terms.Keeper
	if !keeper.BeginCall() {
		return seen, false
	}
	defer keeper.EndCall()
	inspection, number := r.beginRead()
	seen = inspection.Run(ctx, false, inspection.Limits())
	last := &Snapshot{Inspected: seen, holders: r.lock.Holders(seen), number: number}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snapshot = last
	close(r.newer)
	r.newer = make(chan struct{})
	return seen, true
}

// A pace spaces reads, however many hints there are: mostInARow at once, and then one every spacing. So there are at most
// 20 in a second.
type pace struct{ spent time.Time }

const (
	mostInARow = 10
	spacing    = 100 * time.Millisecond
)

// wait returns how long the next read must wait at now. It need not wait if that is not positive.
func (p *pace) wait(now time.Time) time.Duration {
	if p.spent.Before(now) {
		return 0
	}
	return p.spent.Sub(now) - (mostInARow-1)*spacing
}

// note notes that a read begins at now.
func (p *pace) note(now time.Time) {
	if p.spent.Before(now) {
		p.spent = now
	}
	p.spent = p.spent.Add(spacing)
}
