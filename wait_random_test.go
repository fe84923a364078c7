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

// A rush is many who lock few names in several processes, while a minority of nodes
// fails.
type rush struct {
	field
	*rand.Rand // of the one goroutine that makes the plan
	fair       bool

	mu      sync.Mutex
	holders map[string]*redsync.Mutex
	served  int
}

// options are those of one call.
func (r *rush) options() (options []redsync.Option) {
	pick := func(option redsync.Option, oneIn int) {
		if r.IntN(oneIn) == 0 {
			options = append(options, option)
		}
	}
	options = patient()
	pick(redsync.WithRetryDelay(50*time.Millisecond), 3)
	if r.fair {
		return append(options, redsync.WithFair())
	}
	pick(redsync.WithHandOver(false), 4)
	pick(redsync.WithWatchdog(), 4)
	pick(redsync.WithMaxHold(time.Minute), 6)
	pick(redsync.WithExpiry(5*time.Second), 4)
	pick(redsync.WithFailFast(false), 6)
	pick(redsync.WithPriority(r.IntN(3)-1), 4)
	return options
}

// takes notes that m holds.
func (r *rush) takes(m *redsync.Mutex) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if holder := r.holders[m.Name()]; holder != nil {
		assert.Fail(r, "two holders", "%s: one has %v left", m.Name(), holder.Remaining())
	}
	r.holders[m.Name()] = m
	r.served++
}

func (r *rush) gives(m *redsync.Mutex) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holders[m.Name()] = nil
}

// client is one goroutine's work; it waits for the lock, unless it is impatient.
func (r *rush) client(m *redsync.Mutex, begin, work, patience time.Duration) {
	time.Sleep(begin)
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	if err := m.LockContext(ctx); err != nil {
		assert.ErrorIs(r, err, context.DeadlineExceeded)
		assert.Less(r, patience, time.Minute, "everybody who waits is served")
		return
	}
	r.takes(m)
	time.Sleep(work)
	if m.Remaining() > 0 {
		r.gives(m)
	} else {
		r.gives(m)
		assert.Fail(r, "held for too long")
	}
	_, _ = m.Unlock() // the nodes may be away
}

// fault makes up to two nodes fail, and ends.
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

func TestWaitersAtRandom(t *testing.T) {
	parallelComputing(t)
	for seed := range testlength.Of(1, 2, 64) {
		for _, fair := range []bool{false, true} {
			t.Run(fmt.Sprintf("seed %d, fair %v", seed, fair), func(t *testing.T) {
				play(t, func(f field) { rushes(f, uint64(seed), fair) }) //nolint:gosec // it is not negative
			})
		}
	}
}

func rushes(f field, seed uint64, fair bool) {
	r := &rush{field: f, Rand: rand.New(rand.NewPCG(seed, 7)), fair: fair, holders: map[string]*redsync.Mutex{}} //nolint:gosec // a test repeats itself
	f.meet()
	all := []*redsync.Redsync{f.Redsync, f.another(), f.another()}
	stop := f.keysLast()
	var wg sync.WaitGroup
	clients, patientOnes := 60, 0
	for i := range clients {
		m := all[i%3].NewMutex([]string{"lock", "other"}[r.IntN(2)], r.options()...)
		begin, work := time.Duration(r.IntN(2000))*time.Millisecond, time.Duration(r.IntN(40))*time.Millisecond
		patience := 2 * time.Minute
		if r.IntN(3) == 0 {
			patience = time.Duration(1+r.IntN(900)) * time.Millisecond
		} else {
			patientOnes++
		}
		wg.Go(func() { r.client(m, begin, work, patience) })
	}
	wg.Go(func() {
		for range 8 {
			r.fault()
		}
	})
	start := time.Now()
	wg.Wait()
	assert.Less(f, time.Since(start), time.Minute)
	r.mu.Lock()
	assert.GreaterOrEqual(f, r.served, patientOnes)
	r.mu.Unlock()
	time.Sleep(15 * time.Second) // releases are repeated until the keys have run out
	stop()
	f.nobodyWaits()
	assert.Zero(f, f.nodes.Keys("lock"))
	assert.Zero(f, f.nodes.Keys("other"))
	require.False(f, f.Failed())
}

// Another library's client, by the commands it sends, and ours wait for each other.
func TestWaitersBesideAnotherLibrary(t *testing.T) {
	parallelComputing(t)
	inEachMode(t, play, func(f field, mode []redsync.Option) {
		f.meet()
		theirs := func() bool { // one attempt, as others make it
			won := 0
			for _, n := range f.nodes {
				c := n.Client()
				if ok, err := c.SetNX(f.Context(), "lock", "theirs", 8*time.Second).Result(); err == nil && ok { //nolint:staticcheck // as they do
					won++
				}
				_ = c.Close()
			}
			if won >= 3 {
				return true
			}
			f.removes("theirs")
			return false
		}
		var mu sync.Mutex
		inside, turns := 0, map[string]int{}
		work := func(who string) {
			mu.Lock()
			inside++
			turns[who]++
			assert.Equal(f, 1, inside)
			mu.Unlock()
			time.Sleep(5 * time.Millisecond)
			mu.Lock()
			inside--
			mu.Unlock()
		}
		ctx, cancel := context.WithTimeout(f.Context(), time.Duration(testlength.Of(1, 1, 60))*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for _, rs := range []*redsync.Redsync{f.Redsync, f.Redsync, f.another()} {
			wg.Go(func() {
				m := rs.NewMutex("lock", append(mode, redsync.WithTries(0))...)
				for ctx.Err() == nil {
					if m.LockContext(ctx) == nil {
						work("ours")
						_, err := m.Unlock()
						assert.NoError(f, err)
					}
					time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond) //nolint:gosec // no secret
				}
			})
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				if theirs() {
					work("theirs")
					f.removes("theirs")
				}
				time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond) //nolint:gosec // no secret
			}
		})
		wg.Wait()
		assert.Greater(f, turns["ours"], 10)
		assert.Positive(f, turns["theirs"])
	})
}

// removes compares and deletes, as other libraries do.
func (f field) removes(value string) {
	const remove = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) else return 0 end`
	for _, n := range f.nodes {
		c := n.Client()
		_ = c.Eval(context.Background(), remove, []string{"lock"}, value).Err()
		_ = c.Close()
	}
}
