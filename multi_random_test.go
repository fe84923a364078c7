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
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// This file plays locks on several names and on single ones at random, in three processes, while a minority of
// nodes fails. No two holders may share a name. Everybody who waits is served, and nothing is left.

// A crowd is many who lock some of four names.
type crowd struct {
	rush
	names  []string
	single bool // nobody locks several names

	mu      sync.Mutex
	holders map[string]*redsync.Mutex
}

func (c *crowd) takes(m *redsync.Mutex) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range m.Names() {
		if holder := c.holders[name]; holder != nil {
			assert.Fail(c, "two holders", "of %s: %q and %q, which has %v left", name, m.Name(), holder.Name(), holder.Remaining())
		}
		c.holders[name] = m
	}
	c.served++
}

func (c *crowd) gives(m *redsync.Mutex) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range m.Names() {
		c.holders[name] = nil
	}
}

// some returns one to four of the names.
func (c *crowd) some() (names []string) {
	for _, i := range c.Perm(len(c.names))[:1+c.IntN(2)+c.IntN(3)] {
		names = append(names, c.names[i])
	}
	return names
}

func (c *crowd) client(m *redsync.Mutex, begin, work, waits time.Duration) {
	time.Sleep(begin)
	ctx, cancel := context.WithTimeout(c.Context(), waits)
	defer cancel()
	if err := m.LockContext(ctx); err != nil {
		assert.ErrorIs(c, err, context.DeadlineExceeded)
		assert.Less(c, waits, time.Minute, "everybody who waits is served")
		return
	}
	c.takes(m)
	time.Sleep(work)
	if m.Remaining() == 0 {
		assert.Fail(c, "held for too long")
	}
	c.gives(m)
	_, _ = m.Unlock() // the nodes may be away
}

func TestSeveralNamesAtRandom(t *testing.T) {
	parallelComputing(t)
	for seed := range testlength.Of(1, 2, 100) {
		for _, fair := range []bool{false, true} {
			for _, faults := range []bool{false, true} {
				t.Run(fmt.Sprintf("seed %d, fair %v, faults %v", seed, fair, faults), func(t *testing.T) {
					play(t, func(f field) { crowds(f, uint64(seed), fair, faults) }) //nolint:gosec // it is not negative
				})
			}
		}
	}
}

func crowds(f field, seed uint64, fair, faults bool) {
	c := &crowd{
		rush:  rush{field: f, Rand: rand.New(rand.NewPCG(seed, 11)), fair: fair}, //nolint:gosec // a test repeats itself
		names: []string{"a", "b", "c", "d"}, holders: map[string]*redsync.Mutex{},
	}
	f.meet()
	all := []*redsync.Redsync{f.Redsync, f.another(), f.another()}
	stop := f.keysLast()
	var wg sync.WaitGroup
	patientOnes := 0
	for i := range 60 {
		options := c.options()
		if !faults {
			options = append(options, redsync.WithRetryDelay(time.Hour)) // no retry delay helps
		}
		m := all[i%3].NewMultiMutex(c.some(), options...)
		begin, work := time.Duration(c.IntN(2000))*time.Millisecond, time.Duration(c.IntN(40))*time.Millisecond
		waits := 2 * time.Minute
		if c.IntN(3) == 0 {
			waits = time.Duration(1+c.IntN(900)) * time.Millisecond
		} else {
			patientOnes++
		}
		wg.Go(func() { c.client(m, begin, work, waits) })
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
	c.mu.Lock()
	assert.GreaterOrEqual(f, c.served, patientOnes)
	c.mu.Unlock()
	time.Sleep(15 * time.Second) // releases are repeated until the keys have run out
	stop()
	f.nobodyWaits()
	f.have(0, c.names...)
	require.False(f, f.Failed())
}
