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
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// This file tests how many attempts are made by calls that wait for several names.

// near is the distance of nodes that data reaches within 0.1 to 0.2 ms.
var near = everywhere(100 * time.Microsecond)

// busy lets callers of some processes lock names again and again, and unlock them after hold. It returns how many locks
// they have acquired after a while, and how many attempts they have made.
func (f field) busy(processes, callers int, hold time.Duration, names func(*rand.Rand) []string, mode []redsync.Option) (locks, attempts int64) {
	count := &attemptCounter{}
	options := append(patient(mode...), redsync.WithObserver(count), redsync.WithHandOver(false))
	ctx, cancel := context.WithCancel(f.Context())
	var wg sync.WaitGroup
	for p, rs := range f.processes(processes, near) {
		for c := range callers {
			r := rand.New(rand.NewPCG(uint64(p), uint64(c))) //nolint:gosec // a test repeats itself
			wg.Go(func() {
				for {
					m := rs.NewMultiMutex(names(r), options...)
					if m.LockContext(ctx) != nil {
						return
					}
					time.Sleep(hold)
					_, _ = m.Unlock()
				}
			})
		}
	}
	time.Sleep(time.Duration(testlength.Of(100, 100, 10000)) * time.Millisecond)
	made, failed := count.made.Load(), count.failed.Load()
	cancel()
	wg.Wait()
	return made - failed, made
}

// Calls that take turns for the same names make one attempt for each lock, however many names they lock. If each call
// locks one or two of six names, another of its names may be taken when the name for which it has waited becomes free.
// Then its attempt fails. In fair mode, its names are kept for it.
func TestMultisMakeFewAttempts(t *testing.T) {
	testlength.NotShort(t)
	parallelComputing(t)
	turns := func(*rand.Rand) []string { return both }
	random := func(r *rand.Rand) (names []string) {
		for _, i := range r.Perm(6)[:1+r.IntN(2)] {
			names = append(names, fmt.Sprint("n", i))
		}
		return names
	}
	for name, c := range map[string]struct {
		names func(*rand.Rand) []string
		mode  string
		most  float64 // attempts for each lock
	}{
		"the same names":     {turns, "default", 1.5},
		"random names":       {random, "default", 4.5},
		"random names, fair": {random, "fair", 2.5},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				locks, attempts := f.busy(3, 4, 2*time.Millisecond, c.names, modes[c.mode])
				t.Logf("%d locks took %d attempts", locks, attempts)
				assert.Greater(t, locks, int64(10))
				assert.Less(t, float64(attempts), c.most*float64(locks)+20)
			})
		})
	}
}

// half sets a value of "a" on two nodes that nobody releases. These two nodes and node 2 answer first.
func (f field) half() {
	f.Helper()
	for i, n := range f.nodes {
		switch {
		case i < 2:
			require.NoError(f, n.Set("a", "stale"))
		case i > 2:
			n.On("evalsha", 1<<20, embedded.Fault{Delay: time.Millisecond})
		}
	}
}

// A name that is taken on a minority of nodes for ever does not block a lock on several names, although the first
// answers can look as if it did. The caller still waits for the name that another process holds, and has the lock when
// that name is released.
func TestMultiWaitsForTheNameThatIsTakenOnAQuorum(t *testing.T) {
	inEachMode(t, play, func(f field, mode []redsync.Option) {
		other := f.another()
		f.closes(other)
		b := other.NewMutex("b", redsync.WithExpiry(time.Minute))
		require.NoError(f, b.Lock())
		time.Sleep(10 * time.Millisecond)
		f.half()
		multi := f.callsSeveral(f.Redsync, both, patient(mode...)...)
		time.Sleep(1100 * time.Millisecond)
		require.True(f, open(multi.done))
		f.unlock(b)
		f.within(multi, 20*time.Millisecond)
		f.unlock(multi.Mutex)
	})
}

// Calls wait for the same two names. One name is taken on two nodes for ever, and the other is held on four. The calls
// do not wake each other by their attempts. They only show their tickets twice a second, like calls for one name.
func TestMultisThatWaitDoNotWakeEachOtherByANameOfAMinority(t *testing.T) {
	inEachMode(t, play, func(f field, mode []redsync.Option) {
		all := f.processes(3, near)
		b := all[2].NewMutex("b", redsync.WithExpiry(time.Hour))
		require.NoError(f, b.Lock())
		time.Sleep(10 * time.Millisecond)
		for i := range 2 {
			require.NoError(f, f.nodes[i].Set("a", "stale"))
		}
		f.nodes[4].Del("b")
		count := &attemptCounter{}
		options := patient(append(mode, redsync.WithObserver(count))...)
		f.callsSeveral(all[0], both, options...)
		f.callsSeveral(all[1], both, options...)
		time.Sleep(time.Second)
		before := count.made.Load()
		time.Sleep(10 * time.Second)
		f.Logf("%d attempts", count.made.Load()-before)
		assert.Less(f, count.made.Load()-before, int64(55), "two calls that only show their tickets make about 40 attempts")
	})
}
