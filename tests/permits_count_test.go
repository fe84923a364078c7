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

// This file plays holders of permits at random, in three processes, with and without faults. There are never more
// holders than the permits allow. Every waiter is served, and nothing is left.

// A workshop counts who has permits.
type workshop struct {
	testing.TB

	permits int
	prompt  bool // there are no faults, so a waiter must get a free permit at once

	mu      sync.Mutex
	taken   int
	changed time.Time // when somebody last came or went
	ends    []time.Time
	most    int
}

// comes notes that somebody calls Lock, with a context that ends.
func (w *workshop) comes(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed = time.Now()
	end, _ := ctx.Deadline()
	w.ends = append(w.ends, end)
}

// enters notes that a holder has weight permits.
func (w *workshop) enters(weight int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taken += weight
	w.most = max(w.most, w.taken)
	if w.taken > w.permits {
		assert.Fail(w, "more permits are held than exist", "%d of %d permits are held", w.taken, w.permits)
	}
	since := time.Since(w.changed)
	for _, end := range w.ends { // a waiter that gives up wakes others before its Lock returns
		if gone := time.Since(end); gone >= 0 {
			since = min(since, gone)
		}
	}
	if w.prompt && since > atOnce {
		assert.Fail(w, "nobody woke the waiter", "it was served %v after the last change", since)
	}
	w.changed = time.Now()
}

func (w *workshop) leaves(weight int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taken -= weight
	w.changed = time.Now()
}

// A shift has the parameters of one run of a workshop.
type shift struct {
	permits, clients int
	heavy            bool // weights up to 3, with WithFair
	fair             bool
	faults           bool
}

func playWorkshop(t *testing.T, seed uint64, s shift) {
	play(t, func(f field) {
		processes := []*redsync.Redsync{f.Redsync, f.process(), f.process()}
		f.closes(processes[1:]...)
		w := &workshop{TB: f, permits: s.permits, prompt: !s.faults}
		end := time.Now().Add(time.Duration(testlength.InGate(1, 1, 2, 20)) * time.Second)
		var all sync.WaitGroup
		for i := range s.clients {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			rs := processes[i%len(processes)]
			all.Go(func() {
				for time.Now().Before(end) {
					options := []redsync.Option{redsync.WithPermits(s.permits), redsync.WithTries(0), redsync.WithExpiry(2 * time.Second), redsync.WithRetryDelay(5 * time.Second)}
					weight := 1
					if s.heavy {
						weight = 1 + r.IntN(min(3, s.permits))
						options = append(options, redsync.WithWeight(weight))
					}
					if s.fair || s.heavy {
						options = append(options, redsync.WithFair())
					}
					if s.faults {
						options = append(options, redsync.WithWatchdog(), redsync.WithRetryDelay(100*time.Millisecond))
					}
					m := rs.NewMutex("lock", options...)
					stays := 30 * time.Second
					if r.IntN(5) == 0 {
						stays = time.Duration(1+r.IntN(300)) * time.Millisecond
					}
					ctx, cancel := context.WithTimeout(f.Context(), stays)
					w.comes(ctx)
					err := m.LockContext(ctx)
					cancel()
					if err != nil {
						if stays == 30*time.Second {
							assert.NoError(f, err)
						}
						w.mu.Lock()
						w.changed = time.Now()
						w.mu.Unlock()
						continue
					}
					w.enters(weight)
					time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
					lost := m.Err()
					w.leaves(weight)
					ok, err := m.Unlock()
					if !s.faults {
						assert.NoError(f, lost)
						assert.True(f, ok, "%v", err)
					}
					time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
				}
			})
		}
		if s.faults {
			r := rand.New(rand.NewPCG(seed, 1<<32))
			for time.Now().Before(end) {
				i := r.IntN(5)
				f.freeze(i)
				time.Sleep(time.Duration(r.IntN(700)) * time.Millisecond)
				f.thaw(i)
				time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
			}
		}
		all.Wait()
		require.Equal(f, s.permits, w.most, "all permits were held at once at some time")
		for _, rs := range processes {
			require.NoError(f, rs.Close(f.Context()))
		}
		time.Sleep(5 * time.Second)
		for i, n := range f.nodes {
			assert.Empty(f, n.Keys(), "node %d", i)
		}
	})
}

func TestNoMoreHoldersThanPermits(t *testing.T) {
	for _, s := range []shift{
		{permits: 1, clients: 4},
		{permits: 3, clients: 7},
		{permits: 3, clients: 7, fair: true},
		{permits: 5, clients: 7, heavy: true},
		{permits: 3, clients: 7, faults: true},
		{permits: 5, clients: 7, heavy: true, faults: true},
	} {
		for seed := range uint64(testlength.Of(1, 1, 40)) { //nolint:gosec // a small number
			t.Run(fmt.Sprintf("%+v, seed %d", s, seed), func(t *testing.T) {
				playWorkshop(t, seed, s)
			})
		}
	}
}
