package redsync_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file tests the promise of fencing tokens with processes whose clocks differ, nodes that fail, holders
// that stay for too long, and keys that vanish during a hold.

// A tokenOf records a Lock that succeeded: its token, when it was called, and when it returned. Both times are numbers
// of one sequence.
type tokenOf struct {
	token            uint64
	called, returned int
}

// inOrder reports whether each Lock that was called after another had returned got a higher token.
func (c *contest) inOrder() bool {
	for _, before := range c.locks {
		for _, l := range c.locks {
			if before.returned < l.called && before.token >= l.token {
				return false
			}
		}
	}
	return true
}

// A contest is many Locks of one name with fencing.
type contest struct {
	field
	options opts

	sequence atomic.Int64
	mu       sync.Mutex
	locks    []tokenOf
	at       map[uint64]bool // the tokens of those who believe that they hold the lock
	together int             // how often more than one believed so
}

func (c *contest) next() int { return int(c.sequence.Add(1)) }

// contender locks in one goroutine, of a process whose clock is ahead.
func (c *contest) contender(rs *redsync.Redsync, ahead time.Duration, times int, random *rand.Rand) {
	for range times {
		if random.IntN(20) == 0 {
			ahead += time.Duration(random.IntN(10_000)) * ms // the clock is stepped
		}
		if ahead > 0 {
			fortests.KnowsToken(rs, "lock", uint64(time.Now().Add(ahead).UnixMicro())) //nolint:gosec // after 1970
		}
		c.contend(rs.NewMutex("lock", c.options...), random)
		sleep(time.Duration(random.IntN(20)) * ms)
	}
}

func (c *contest) contend(m *redsync.Mutex, random *rand.Rand) {
	called := c.next()
	err := m.LockContext(limited(c, 5*sec))
	returned, token := c.next(), m.Fence()
	if err != nil {
		assert.Zero(c, token)
		return
	}
	assert.NotZero(c, token)
	c.mu.Lock()
	c.locks = append(c.locks, tokenOf{token, called, returned})
	c.at[token] = true
	if len(c.at) > 1 {
		c.together++
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.at, token)
	}()
	switch random.IntN(8) {
	case 0: // it stays beyond its expiry
		sleep(time.Duration(300+random.IntN(500)) * ms)
		assert.Equal(c, token, m.Fence())
		if random.IntN(2) == 0 {
			_, _ = m.Unlock()
		}
	case 1: // it leaves without Unlock
	default:
		sleep(time.Duration(random.IntN(15)) * ms)
		_, _ = m.Unlock() // nodes may be down
	}
}

// fault makes up to two nodes fail for a while. No node forgets its register, but all may lose the lock's key.
func (c *contest) fault(random *rand.Rand) {
	a := random.IntN(5)
	b := (a + 1 + random.IntN(4)) % 5
	for _, i := range []int{a, b} {
		n := c.nodes[i]
		switch random.IntN(7) {
		case 0:
			n.Freeze()
		case 1:
			n.Kill()
		case 2:
			n.Disconnect()
		case 3:
			n.On("evalsha", 3, embedded.Fault{LoseReply: true})
		case 4:
			n.On("evalsha", 3, embedded.Fault{LoseCommand: true})
		case 5:
			n.On("evalsha", 9, embedded.Fault{Delay: time.Duration(random.IntN(60)) * ms})
		case 6: // exclusion is violated
			c.lose(allNodes...)
		}
	}
	sleep(time.Duration(random.IntN(400)) * ms)
	c.thaw(a, b)
	c.restart(a, b)
	sleep(time.Duration(random.IntN(200)) * ms)
}

func TestALaterLockHasAHigherToken(t *testing.T) {
	testlength.FromGate(t)
	parallelComputing(t)
	seeds, acquired, turns := testlength.Of(1, 1, 30), 0, testlength.InGate(5, 5, 12, 30)
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			play(t, func(f field) { acquired += contends(f, uint64(seed), turns) }) //nolint:gosec // it is not negative
		})
	}
	t.Logf("Lock succeeded %d times", acquired)
	assert.Greater(t, acquired, 5*turns*seeds)
}

func contends(f field, seed uint64, turns int) int {
	random := func(i uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, i)) } //nolint:gosec // a test repeats itself
	c := &contest{field: f, at: map[uint64]bool{}}
	c.options = opts{withFencing, withExpiry(250 * ms), forever, withRetryDelay(150 * ms)}
	if seed%2 == 1 {
		c.options = append(c.options, withFair)
	}
	plan := random(0)
	var contenders, faults sync.WaitGroup
	for i := range uint64(4) {
		rs := f.another()
		ahead := []time.Duration{0, 0, hour, time.Duration(plan.IntN(1_000_000)) * minute}[i]
		for j := range uint64(2) {
			contenders.Go(func() { c.contender(rs, ahead, turns, random(10*i+j+1)) })
		}
	}
	ctx, cancel := context.WithCancel(f.Context())
	faults.Go(func() {
		for ctx.Err() == nil {
			c.fault(plan)
		}
	})
	contenders.Wait()
	cancel()
	faults.Wait()
	sleep(5 * sec) // releases are repeated until the keys have run out
	require.True(f, c.inOrder(), "a later Lock has no higher token: %v", c.locks)
	assert.Positive(f, c.together, "the faults have let two holders in at once, as the test intends")
	f.keysOn(0)
	for _, n := range f.nodes {
		assert.InDelta(f, 24*hour, n.TTL("{lock}:fence"), float64(10*minute))
	}
	f.nobodyWaits()
	return len(c.locks)
}
