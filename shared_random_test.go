package redsync_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// This file plays readers, writers and locks on several names at random, in three processes, while a minority of
// nodes fails. No writer may share a name with anybody. Everybody who waits is served, and nothing is left.

// A library notes who reads and who writes what.
type library struct {
	testing.TB

	prompt bool // there are no faults: who is served is served at once when that is possible

	mu      sync.Mutex
	readers map[string]int
	writers map[string]int
	changed map[string]time.Time   // by name: when somebody last came or went
	ends    map[string][]time.Time // by name: when the contexts of those end who wait
	served  int
}

func newLibrary(tb testing.TB) *library {
	tb.Helper()
	return &library{TB: tb, readers: map[string]int{}, writers: map[string]int{}, changed: map[string]time.Time{}, ends: map[string][]time.Time{}}
}

// comes notes that somebody calls Lock with a context.
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

// enters notes that m holds.
func (l *library) enters(m *redsync.Mutex, shared bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.served++
	since := time.Hour
	for _, name := range m.Names() {
		l.count(shared)[name]++
		l.check(name)
		since = min(since, time.Since(l.changed[name]))
		for _, end := range l.ends[name] { // who gives up wakes others before its Lock returns
			if gone := time.Since(end); gone >= 0 {
				since = min(since, gone)
			}
		}
	}
	if l.prompt && since > atOnce {
		assert.Fail(l, "nobody woke it", "%s (shared %v) is served %v after the last change", m.Name(), shared, since)
	}
}

// atOnce is how long it takes at most until a waiter is served: it waits for wake-ups of a quorum, and two attempts may
// collide.
const atOnce = 6 * time.Millisecond

// leaves notes that m no longer relies on its hold.
func (l *library) leaves(m *redsync.Mutex, shared bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range m.Names() {
		l.count(shared)[name]--
	}
	l.changesLocked(m)
}

// becomesReader notes that m is about to downgrade its hold.
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

// A patron is one call of Lock, and what follows.
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
		_ = p.mutex.Downgrade(context.Background()) // the nodes may be away
		time.Sleep(p.work)
	}
	if p.mutex.Remaining() == 0 {
		assert.Fail(l, "held for too long")
	}
	l.leaves(p.mutex, shared)
	_, _ = p.mutex.Unlock() // the nodes may be away
	return true
}

// patron returns a patron for one name, or for several.
func (c *crowd) patron(rs *redsync.Redsync, options []redsync.Option) patron {
	p := patron{work: time.Duration(c.IntN(40)) * time.Millisecond}
	switch kind := c.IntN(8); {
	case kind < 2 && !c.single:
		p.mutex = rs.NewMultiMutex(c.some(), options...)
	case kind == 2:
		p.mutex, p.downgrades = rs.NewMutex(c.some()[0], options...), true
	case kind <= 3:
		p.mutex = rs.NewMutex(c.some()[0], options...)
	default:
		p.mutex, p.shared = rs.NewMutex(c.some()[0], append(options, redsync.WithShared())...), true
	}
	return p
}

func TestReadersAndWritersAtRandom(t *testing.T) {
	parallelComputing(t)
	for seed := range testlength.Of(1, 3, 200) {
		for _, fair := range []bool{false, true} {
			for _, faults := range []bool{false, true} {
				t.Run(fmt.Sprintf("seed %d, fair %v, faults %v", seed, fair, faults), func(t *testing.T) {
					play(t, func(f field) { reads(f, uint64(seed), fair, faults) }) //nolint:gosec // it is not negative
				})
			}
		}
	}
}

func reads(f field, seed uint64, fair, faults bool) {
	c := &crowd{
		rush:  rush{field: f, Rand: rand.New(rand.NewPCG(seed, 13)), fair: fair}, //nolint:gosec // a test repeats itself
		names: []string{"a", "b", "c", "d"},
	}
	l := newLibrary(f)
	l.prompt = !faults
	f.meet()
	all := []*redsync.Redsync{f.Redsync, f.another(), f.another()}
	stop := f.keysLast()
	var wg sync.WaitGroup
	patientOnes := 0
	for i := range 80 {
		options := c.options()
		if !faults {
			options = append(options, redsync.WithRetryDelay(time.Hour)) // no retry delay helps
		}
		p := c.patron(all[i%3], options)
		begin, waits := time.Duration(c.IntN(2000))*time.Millisecond, 2*time.Minute
		if c.IntN(3) == 0 {
			waits = time.Duration(1+c.IntN(900)) * time.Millisecond
		} else {
			patientOnes++
		}
		wg.Go(func() {
			time.Sleep(begin)
			ctx, cancel := context.WithTimeout(f.Context(), waits)
			defer cancel()
			if !p.visit(ctx, l) {
				assert.Less(f, waits, time.Minute, "everybody who waits is served")
			}
		})
	}
	if faults {
		wg.Go(func() {
			for range 8 {
				c.fault()
			}
		})
	}
	start := time.Now()
	wg.Wait()
	limit := 5 * time.Second
	if faults {
		limit = time.Minute
	}
	assert.Less(f, time.Since(start), limit)
	assert.GreaterOrEqual(f, l.served, patientOnes)
	time.Sleep(15 * time.Second) // releases are repeated until the keys have run out
	stop()
	f.nobodyWaits()
	f.have(0, c.names...)
	require.False(f, f.Failed())
}

// Calls that come in a burst and hold for long are served as soon as somebody leaves who stood in their way. Without fair
// mode that is not promised beside locks on several names.
func TestReadersAndWritersAreServedAtOnce(t *testing.T) {
	parallelComputing(t)
	for seed := range testlength.Of(3, 10, 500) {
		for _, fair := range []bool{false, true} {
			t.Run(fmt.Sprintf("seed %d, fair %v", seed, fair), func(t *testing.T) {
				play(t, func(f field) { bursts(f, uint64(seed), fair) }) //nolint:gosec // it is not negative
			})
		}
	}
}

func bursts(f field, seed uint64, fair bool) {
	c := &crowd{
		rush:  rush{field: f, Rand: rand.New(rand.NewPCG(seed, 17)), fair: fair}, //nolint:gosec // a test repeats itself
		names: []string{"a", "b", "c", "d"}, single: !fair,
	}
	l := newLibrary(f)
	l.prompt = true
	f.meet()
	all := []*redsync.Redsync{f.Redsync, f.another(), f.another()}
	var wg sync.WaitGroup
	for range 24 {
		options := append(patient(redsync.WithExpiry(time.Minute)), redsync.WithRetryDelay(time.Hour))
		if fair {
			options = append(options, redsync.WithFair())
		}
		p := c.patron(all[c.IntN(3)], options)
		p.work = time.Duration(100+c.IntN(300)) * time.Millisecond
		begin, waits := time.Duration(c.IntN(50))*100*time.Microsecond, time.Hour
		if c.IntN(4) == 0 {
			waits = time.Duration(1+c.IntN(900)) * time.Millisecond
		}
		wg.Go(func() {
			time.Sleep(begin)
			ctx, cancel := context.WithTimeout(f.Context(), waits)
			defer cancel()
			p.visit(ctx, l)
		})
	}
	wg.Wait()
	time.Sleep(15 * time.Second)
	f.nobodyWaits()
	f.have(0, c.names...)
}

// The same on real servers, of which one is killed and another frozen.
func TestReadersAndWritersOnRealServers(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 5)
	l := newLibrary(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for range 3 {
		rs := realProcess(servers)
		t.Cleanup(func() { _ = rs.Close(context.Background()) })
		for i := range 8 {
			p := patron{mutex: rs.NewMutex("a", patient()...), downgrades: i == 1, work: time.Duration(i) * time.Millisecond}
			if i > 2 {
				p.mutex, p.shared = rs.NewMutex("a", patient(redsync.WithShared())...), true
			}
			wg.Go(func() {
				for p.visit(ctx, l) && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
			})
		}
	}
	time.Sleep(500 * time.Millisecond)
	servers[0].Kill()
	time.Sleep(500 * time.Millisecond)
	servers[1].Freeze()
	time.Sleep(500 * time.Millisecond)
	servers[1].Thaw()
	wg.Wait()
	assert.Greater(t, l.served, 10)
}
