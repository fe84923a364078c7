package redsync_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows that the restart guard admits no second holder, whichever nodes restart.

// A siege is processes that contend for a lock while the nodes restart one after
// another.
type siege struct {
	field
	rand *rand.Rand
	end  time.Time

	mu      sync.Mutex
	holders map[*redsync.Mutex]bool // from Lock's return to the call of Unlock
	grants  int
	overlap int
}

// enter notes that m has the lock. An earlier holder that has not called Unlock must have no time left now. Time that
// has run out never comes back, so a look at this moment is enough.
func (s *siege) enter(m *redsync.Mutex) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Remaining() == 0 {
		return
	}
	s.grants++
	for other := range s.holders {
		if other != m && other.Remaining() > 0 {
			s.overlap++
		}
	}
	s.holders[m] = true
}

func (s *siege) leave(m *redsync.Mutex) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holders, m)
}

// contend locks, extends and unlocks until the end. No other goroutine uses r.
func (s *siege) contend(rs *redsync.Redsync, r *rand.Rand, options ...redsync.Option) {
	for time.Now().Before(s.end) {
		m := rs.NewMutex("lock", options...)
		if m.Lock() != nil {
			continue
		}
		s.enter(m)
		for range r.IntN(6) {
			time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
			_, _ = m.Extend()
		}
		if r.IntN(4) > 0 {
			s.leave(m)
			_, _ = m.Unlock()
			time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
		}
	}
}

// besiege lets bursts of restarts come, with time to recover between.
func (s *siege) besiege() {
	ms := func(n int) time.Duration { return time.Duration(s.rand.IntN(n)) * time.Millisecond }
	for time.Now().Before(s.end) {
		time.Sleep(3*time.Second + ms(2000))
		for _, i := range s.rand.Perm(5)[:2+s.rand.IntN(4)] {
			time.Sleep(ms(300))
			f := s.nodes[i]
			f.Kill()
			time.Sleep(ms(50))
			f.Restart(true)
			switch s.rand.IntN(4) {
			case 0:
				f.On("set", 1, embedded.Fault{Delay: ms(400)})
			case 1:
				f.On("set", 1, embedded.Fault{LoseReply: true})
			case 2:
				f.On("evalsha", 1, embedded.Fault{LoseReply: true})
			}
		}
	}
}

// run plays a siege and returns how often the lock was granted, and how often to a
// second holder.
func (s *siege) run(heals bool, of ...pool.Option) (grants, overlap int) {
	options := []redsync.Option{redsync.WithExpiry(time.Second), redsync.WithNodeTimeout(450 * time.Millisecond)}
	if heals {
		options = append(options, withSetNXOnExtend)
	}
	s.holders = make(map[*redsync.Mutex]bool)
	processes := make([]*redsync.Redsync, 4)
	for i := range processes {
		processes[i] = s.veteran(of...)
	}
	s.end = time.Now().Add(time.Duration(testlength.InGate(8, 12, 20, 20)) * time.Second)
	var wg sync.WaitGroup
	for i, rs := range processes {
		mine := options[:len(options):len(options)]
		if i%2 == 0 {
			mine = append(mine, withWatchdog)
		}
		r := rand.New(rand.NewPCG(s.rand.Uint64(), uint64(i))) //nolint:gosec // a repeatable schedule
		wg.Go(func() { s.contend(rs, r, mine...) })
	}
	s.besiege()
	wg.Wait()
	for _, rs := range processes {
		_ = rs.Close(s.Context())
	}
	return s.grants, s.overlap
}

// besieged plays the siege of seed on nodes of its own.
func besieged(t *testing.T, seed int, heals bool, of ...pool.Option) (grants, overlaps int) {
	t.Helper()
	play(t, func(f field) {
		s := &siege{field: f, rand: rand.New(rand.NewPCG(uint64(seed), 7))} //nolint:gosec // a repeatable schedule
		grants, overlaps = s.run(heals, of...)
	})
	return grants, overlaps
}

func TestRestartGuardNeverTwoHoldersWhileNodesRestartOneAfterAnother(t *testing.T) {
	parallelComputing(t)
	for _, heals := range []bool{false, true} {
		t.Run(fmt.Sprintf("heals=%v guarded", heals), func(t *testing.T) {
			grants, sieges := 0, testlength.Of(1, 1, 30)
			for seed := range sieges {
				g, overlaps := besieged(t, seed, heals, pool.WithRestartGuard(time.Second))
				assert.Zero(t, overlaps, "seed %d", seed)
				grants += g
			}
			assert.Greater(t, grants, sieges, "the restarts come so often that nobody gets the lock")
		})
		t.Run(fmt.Sprintf("heals=%v, without the guard some siege has two holders", heals), func(t *testing.T) {
			testlength.FromGate(t)
			for seed := range 60 { // about half of them have
				if _, overlaps := besieged(t, seed, heals); overlaps > 0 {
					return
				}
			}
			t.Error("no siege has two holders without the guard")
		})
	}
}
