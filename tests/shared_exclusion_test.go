package redsync_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// This file plays readers, writers and locks on several names at random, in three processes, while a minority
// of nodes fails. No writer may share a name with anybody.

// A library counts the readers and the writers of each name.
type library struct {
	testing.TB

	prompt bool // there are no faults, so a waiter must be served as soon as it can be

	mu      sync.Mutex
	readers map[string]int
	writers map[string]int
	changed map[string]time.Time   // by name: when somebody last came or went
	ends    map[string][]time.Time // by name: when the contexts of waiters end
}

func newLibrary(tb testing.TB) *library {
	tb.Helper()
	return &library{TB: tb, readers: map[string]int{}, writers: map[string]int{}, changed: map[string]time.Time{}, ends: map[string][]time.Time{}}
}

// comes records that the Lock of m is called with ctx.
func (l *library) comes(ctx context.Context, m *redsync.Mutex) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changesLocked(m)
	end, _ := ctx.Deadline()
	for _, name := range m.Names() {
		l.ends[name] = append(l.ends[name], end)
	}
}

func (l *library) changesLocked(m *redsync.Mutex) {
	for _, name := range m.Names() {
		l.changed[name] = time.Now()
	}
}

// enters records that m holds its lock.
func (l *library) enters(m *redsync.Mutex, shared bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	since := time.Hour
	for _, name := range m.Names() {
		l.count(shared)[name]++
		l.check(name)
		since = min(since, time.Since(l.changed[name]))
		for _, end := range l.ends[name] { // a waiter that gives up wakes others before its Lock returns
			if gone := time.Since(end); gone >= 0 {
				since = min(since, gone)
			}
		}
	}
	if l.prompt && since > atOnce {
		assert.Fail(l, "nobody woke the waiter", "the waiter for %s (shared %v) is served %v after the last change", m.Name(), shared, since)
	}
}

// atOnce is the longest time until a waiter that can be served is served. It waits for wake-ups of a quorum, and two
// attempts may collide.
const atOnce = 6 * time.Millisecond

// leaves records that m no longer relies on its hold.
func (l *library) leaves(m *redsync.Mutex, shared bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range m.Names() {
		l.count(shared)[name]--
	}
	l.changesLocked(m)
}

// becomesReader records that m is about to downgrade its hold.
func (l *library) becomesReader(m *redsync.Mutex) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writers[m.Name()]--
	l.readers[m.Name()]++
	l.changesLocked(m)
}

func (l *library) count(shared bool) map[string]int {
	if shared {
		return l.readers
	}
	return l.writers
}

func (l *library) check(name string) {
	if l.writers[name] > 1 || l.writers[name] == 1 && l.readers[name] > 0 {
		assert.Fail(l, "a writer is not alone", "%s: %d writers, %d readers", name, l.writers[name], l.readers[name])
	}
}

// A patron makes one call of Lock, and then works and unlocks.
type patron struct {
	mutex      *redsync.Mutex
	shared     bool
	downgrades bool
	work       time.Duration
}

// visit locks, works and unlocks. It reports whether it got the lock.
func (p patron) visit(ctx context.Context, l *library) bool {
	l.comes(ctx, p.mutex)
	if err := p.mutex.LockContext(ctx); err != nil {
		assert.ErrorIs(l, err, context.DeadlineExceeded)
		return false
	}
	shared := p.shared
	l.enters(p.mutex, shared)
	time.Sleep(p.work)
	if p.downgrades && p.mutex.Remaining() > time.Second {
		l.becomesReader(p.mutex)
		shared = true
		_ = p.mutex.Downgrade(context.Background()) // nodes may be down
		time.Sleep(p.work)
	}
	if p.mutex.Remaining() == 0 {
		assert.Fail(l, "the patron held the lock for too long")
	}
	l.leaves(p.mutex, shared)
	_, _ = p.mutex.Unlock() // nodes may be down
	return true
}

// patron returns a random patron. It locks one name, or sometimes several names if several is set.
func (r *rush) patron(rs *redsync.Redsync, options []redsync.Option, several bool) patron {
	p := patron{work: r.work()}
	switch kind := r.IntN(8); {
	case kind < 2 && several:
		p.mutex = rs.NewMultiMutex(r.some(), options...)
	case kind == 2:
		p.mutex, p.downgrades = rs.NewMutex(r.some()[0], options...), true
	case kind <= 3:
		p.mutex = rs.NewMutex(r.some()[0], options...)
	default:
		p.mutex, p.shared = rs.NewMutex(r.some()[0], append(options, withShared)...), true
	}
	return p
}

func TestNoWriterBesideAnotherHolder(t *testing.T) {
	rushes(t, testlength.Of(1, 1, 200), 13, []bool{false, true}, []string{"a", "b", "c", "d"}, func(r *rush) {
		l := newLibrary(r)
		l.prompt = !r.faults
		r.run(testlength.InGate(15, 25, 50, 80), func(rs *redsync.Redsync, options []redsync.Option) visit {
			p := r.patron(rs, options, true)
			return func(ctx context.Context) bool { return p.visit(ctx, l) }
		})
	})
}
