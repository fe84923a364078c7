package redsync_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// This file tests how many attempts are made by calls that wait for several names.

// distant returns another process, which has met the nodes. Data on its connections takes 0.1 to 0.2 ms each way.
func (f field) distant(seed int) *redsync.Redsync {
	f.Helper()
	var clients []*redis.Client
	for i, n := range f.nodes {
		var mu sync.Mutex
		r := rand.New(rand.NewPCG(uint64(seed), uint64(i))) //nolint:gosec // a test repeats itself
		clients = append(clients, n.Client(func(o *redis.Options) {
			o.Dialer = n.DialVia(func(bool) time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Duration(100+r.IntN(100)) * time.Microsecond
			})
		}))
	}
	rs := on(clients)
	f.as(rs).meet()
	time.Sleep(10 * time.Millisecond)
	f.closes(rs)
	return rs
}

// busy lets callers of some processes lock names again and again, and unlock them after hold. It returns how many locks
// they have acquired after a while, and how many attempts they have made.
func (f field) busy(processes, callers int, hold time.Duration, names func(*rand.Rand) []string, mode ...redsync.Option) (locks, attempts int64) {
	count := &attemptCounter{}
	options := append(patient(mode...), redsync.WithObserver(count), redsync.WithHandOver(false))
	var all []*redsync.Redsync
	for p := range processes {
		all = append(all, f.distant(p))
	}
	ctx, cancel := context.WithCancel(f.Context())
	var wg sync.WaitGroup
	for p, rs := range all {
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

// Calls that take turns for the same names make one attempt for each lock, however many names they lock.
func TestMultisThatTakeTurnsMakeOneAttemptEach(t *testing.T) {
	testlength.NotShort(t)
	parallelComputing(t)
	for _, names := range [][]string{{"a"}, both} {
		t.Run(fmt.Sprint(names), func(t *testing.T) {
			play(t, func(f field) {
				locks, attempts := f.busy(2, 4, 5*time.Millisecond, func(*rand.Rand) []string { return names })
				t.Logf("%d locks took %d attempts", locks, attempts)
				assert.Greater(t, locks, int64(10))
				assert.Less(t, float64(attempts), 1.2*float64(locks)+20)
			})
		})
	}
}

// Each call locks one or two of six names. Without fair mode, when the name for which a call has waited becomes free,
// another of its names may have been taken meanwhile. Then its attempt fails. In fair mode, its names are kept for it.
func TestMultisForRandomNamesMakeFewAttempts(t *testing.T) {
	testlength.NotShort(t)
	parallelComputing(t)
	for mode, most := range map[string]float64{"default": 4.5, "fair": 2.5} {
		t.Run(mode, func(t *testing.T) {
			play(t, func(f field) {
				locks, attempts := f.busy(4, 3, 2*time.Millisecond, func(r *rand.Rand) (names []string) {
					for _, i := range r.Perm(6)[:1+r.IntN(2)] {
						names = append(names, fmt.Sprint("n", i))
					}
					return names
				}, modes[mode]...)
				t.Logf("%d locks took %d attempts", locks, attempts)
				assert.Greater(t, locks, int64(20))
				assert.Less(t, float64(attempts), most*float64(locks))
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
		f.meet()
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
		one, another, holder := f.distant(1), f.distant(2), f.distant(3)
		b := holder.NewMutex("b", redsync.WithExpiry(time.Hour))
		require.NoError(f, b.Lock())
		time.Sleep(10 * time.Millisecond)
		for i := range 2 {
			require.NoError(f, f.nodes[i].Set("a", "stale"))
		}
		f.nodes[4].Del("b")
		count := &attemptCounter{}
		options := patient(append(mode, redsync.WithObserver(count))...)
		f.callsSeveral(one, both, options...)
		f.callsSeveral(another, both, options...)
		time.Sleep(time.Second)
		before := count.made.Load()
		time.Sleep(10 * time.Second)
		f.Logf("%d attempts", count.made.Load()-before)
		assert.Less(f, count.made.Load()-before, int64(55), "two calls that only show their tickets make about 40 attempts")
	})
}
