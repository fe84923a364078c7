package redsync_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// This file has the helpers that the random tests of waiters share. Clients in three processes lock few names, while a
// minority of nodes fails. Every waiter is served, and nothing is left.

// A rush is many clients that lock few names.
type rush struct {
	field
	*rand.Rand   // of one goroutine at a time: first the one that makes the plan, then the one that makes nodes fail
	names        []string
	fair, faults bool
}

// A visit locks, works and unlocks. It reports whether it got the lock.
type visit func(ctx context.Context) (served bool)

// rushes calls do with one rush for each seed, each of both modes, and each value in faults. Another stream gives other
// random numbers.
func rushes(t *testing.T, seeds int, stream uint64, faults []bool, names []string, do func(r *rush)) {
	t.Helper()
	parallelComputing(t)
	for seed := range uint64(seeds) { //nolint:gosec // it is not negative
		for _, fair := range []bool{false, true} {
			for _, faults := range faults {
				playAs(t, fmt.Sprintf("seed %d, fair %v, faults %v", seed, fair, faults), func(f field) {
					do(&rush{
						field: f, Rand: rand.New(rand.NewPCG(seed, stream)), //nolint:gosec // a test repeats itself
						names: names, fair: fair, faults: faults,
					})
				})
			}
		}
	}
}

// options returns the options of one client.
func (r *rush) options() (options []redsync.Option) {
	pick := func(option redsync.Option, oneIn int) {
		if r.IntN(oneIn) == 0 {
			options = append(options, option)
		}
	}
	options = patient()
	pick(redsync.WithRetryDelay(50*time.Millisecond), 3)
	if !r.faults {
		options = append(options, redsync.WithRetryDelay(time.Hour)) // so that no retry delay helps
	}
	if r.fair {
		return append(options, withFair)
	}
	pick(redsync.WithHandOver(false), 4)
	pick(withWatchdog, 4)
	pick(redsync.WithMaxHold(time.Minute), 6)
	pick(redsync.WithExpiry(5*time.Second), 4)
	pick(redsync.WithFailFast(false), 6)
	pick(redsync.WithPriority(r.IntN(3)-1), 4)
	return options
}

// some returns one to four of four names.
func (r *rush) some() (names []string) {
	for _, i := range r.Perm(len(r.names))[:1+r.IntN(2)+r.IntN(3)] {
		names = append(names, r.names[i])
	}
	return names
}

// work returns how long a client works.
func (r *rush) work() time.Duration { return time.Duration(r.IntN(40)) * time.Millisecond }

// run lets clients come within two seconds, in three processes. plan returns what a client does. Of three
// clients, two wait until they are served, and one gives up within a second.
func (r *rush) run(clients int, plan func(rs *redsync.Redsync, options []redsync.Option) visit) {
	r.meet()
	all := []*redsync.Redsync{r.Redsync, r.another(), r.another()}
	stop := r.keysLast()
	var wg sync.WaitGroup
	var served atomic.Int64
	patientOnes := int64(0)
	for i := range clients {
		does := plan(all[i%3], r.options())
		begin, waits := time.Duration(r.IntN(2000))*time.Millisecond, 2*time.Minute
		if r.IntN(3) == 0 {
			waits = time.Duration(1+r.IntN(900)) * time.Millisecond
		} else {
			patientOnes++
		}
		wg.Go(func() {
			if r.comes(begin, waits, does) {
				served.Add(1)
			} else {
				assert.Less(r, waits, time.Minute, "everybody who waits is served")
			}
		})
	}
	limit := 5 * time.Second
	if r.faults {
		limit = time.Minute
		wg.Go(func() {
			for range testlength.InGate(3, 4, 8, 8) {
				r.fault()
			}
		})
	}
	start := time.Now()
	wg.Wait()
	assert.Less(r, time.Since(start), limit)
	assert.GreaterOrEqual(r, served.Load(), patientOnes)
	r.leavesNothing(stop)
}

// comes makes a visit after the time begin. The context of the visit ends after the time waits.
func (r *rush) comes(begin, waits time.Duration, does visit) (served bool) {
	time.Sleep(begin)
	ctx, cancel := context.WithTimeout(r.Context(), waits)
	defer cancel()
	return does(ctx)
}

// leavesNothing checks the nodes after all clients have gone. It calls stop, which ends the check of the keys.
func (r *rush) leavesNothing(stop func()) {
	time.Sleep(15 * time.Second) // releases are repeated until the keys have run out
	stop()
	r.nobodyWaits()
	r.have(0, r.names...)
	require.False(r, r.Failed())
}

// fault makes one or two nodes fail for a while, and returns when they are up again.
func (r *rush) fault() {
	a := r.IntN(5)
	b := (a + 1 + r.IntN(4)) % 5
	for _, i := range []int{a, b} {
		n := r.nodes[i]
		switch r.IntN(6) {
		case 0:
			n.Freeze()
		case 1:
			n.Kill()
		case 2:
			n.LoseMessages(3)
		case 3:
			n.Disconnect()
		case 4:
			n.On("evalsha", 2, embedded.Fault{LoseReply: true})
		case 5:
			n.On("evalsha", 5, embedded.Fault{Delay: time.Duration(r.IntN(20)) * time.Millisecond})
		}
	}
	time.Sleep(time.Duration(r.IntN(700)) * time.Millisecond)
	r.thaw(a, b)
	r.restart(a, b)
	time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
}

// Clients of this library and of another one wait for each other. The test sends the commands that the other library
// would send.
func TestWaitersBesideAnotherLibrary(t *testing.T) {
	parallelComputing(t)
	inEachMode(t, play, func(f field, mode []redsync.Option) {
		clients := clientsOf(f.nodes)
		theirs := func() (won int) { // one attempt, as other libraries make it
			for _, c := range clients {
				if ok, err := c.SetNX(f.Context(), "lock", "theirs", 8*time.Second).Result(); err == nil && ok { //nolint:staticcheck // as they do
					won++
				}
			}
			return won
		}
		removes := func() {
			const remove = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) else return 0 end`
			for _, c := range clients {
				_ = c.Eval(context.Background(), remove, []string{"lock"}, "theirs").Err()
			}
		}
		var inside, ourTurns, theirTurns atomic.Int64
		work := func(turns *atomic.Int64) {
			turns.Add(1)
			assert.EqualValues(f, 1, inside.Add(1))
			time.Sleep(5 * time.Millisecond)
			inside.Add(-1)
		}
		ctx, cancel := context.WithTimeout(f.Context(), time.Duration(testlength.Of(1, 1, 60))*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		again := func(do func()) {
			wg.Go(func() {
				for ctx.Err() == nil {
					do()
					time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond) //nolint:gosec // no secret
				}
			})
		}
		for _, rs := range []*redsync.Redsync{f.Redsync, f.Redsync, f.another()} {
			m := rs.NewMutex("lock", append(mode, redsync.WithTries(0))...)
			again(func() {
				if m.LockContext(ctx) == nil {
					work(&ourTurns)
					f.unlock(m)
				}
			})
		}
		again(func() {
			if theirs() >= 3 {
				work(&theirTurns)
			}
			removes()
		})
		wg.Wait()
		for _, c := range clients {
			_ = c.Close()
		}
		assert.Greater(f, ourTurns.Load(), int64(10))
		assert.Positive(f, theirTurns.Load())
	})
}

// keysLast checks every tenth of a second that each key has a TTL, until stop is called.
func (f field) keysLast() (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			for i, n := range f.nodes {
				n.Between(func(m *miniredis.Miniredis) {
					for _, key := range m.Keys() {
						if m.TTL(key) == 0 && m.Exists(key) {
							assert.Fail(f, "found a key without a TTL", "%s on node %d", key, i)
						}
					}
				})
			}
			select {
			case <-end:
				return
			case <-time.After(97 * time.Millisecond): //nolint:forbidigo // in a bubble
			}
		}
	})
	return func() { close(end); wg.Wait() }
}
