package redsync_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// This file tests which messages waiters for permits send, and which waiters are woken.

// A waiter that wants more permits than are free is not woken again and again by the waiters behind it, because nothing
// has changed.
func TestPermitsOfAHeadThatWantsMoreAreQuiet(t *testing.T) {
	playMet(t, func(f field) {
		held := acquired(f, f.NewMutex("lock", permitsOf(5, 3, withWatchdog)...))
		other := f.another()
		head := f.calls(other, permitsOf(5, 3, patient()...)...)
		var behind []*call
		const processes = 8
		for range processes {
			time.Sleep(7 * ms)
			rs := f.another()
			behind = append(behind, f.calls(rs, permitsOf(5, 1, patient(withFair)...)...))
		}
		time.Sleep(2 * time.Second)
		before := f.traffic()
		time.Sleep(10 * time.Second)
		// Each process shows its ticket twice a second to five nodes, and takes back what that attempt left.
		assert.LessOrEqual(f, f.traffic()-before, (processes+2)*2*2*5*10)
		head.cancel()
		<-head.done
		for _, c := range behind[:2] {
			f.within(c, 10*ms)
		}
		f.unlock(held)
		for _, c := range behind[2:4] {
			f.within(c, 10*ms)
		}
		for _, c := range behind {
			f.within(c, 10*ms)
			f.unlock(c.Mutex)
		}
		f.nothingOfPermits()
	})
}

// In fair mode the place in the queues of a call that has got a permit goes to the next call of its process. A later
// call of another process does not overtake that call, even if its own attempt is late.
func TestFairCallWithAPermitLeavesItsPlaceToTheNextOfItsProcess(t *testing.T) {
	playMet(t, func(f field) {
		held := acquired(f, f.NewMutex("lock", permitsOf(2, 2)...))
		process, other := f.another(), f.another()
		fair := patient(withFair)
		late := redsync.WithGenValueFunc(func() (string, error) {
			time.Sleep(100 * ms)
			return fmt.Sprint("late ", rand.Uint64()), nil //nolint:gosec // no secret
		})
		first := f.calls(process, permitsOf(2, 1, fair...)...)
		time.Sleep(ms)
		next := f.calls(process, permitsOf(2, 1, append(fair, late)...)...)
		time.Sleep(ms)
		last := f.calls(other, permitsOf(2, 1, fair...)...)
		time.Sleep(ms)
		f.unlock(held)
		f.within(first, 10*ms)
		f.within(next, 110*ms)
		assert.False(f, last.isDone())
		f.unlock(next.Mutex)
		f.within(last, 10*ms)
		f.unlock(first.Mutex)
		f.unlock(last.Mutex)
		f.nothingOfPermits()
	})
}

// Each holder has its slot on a quorum of nodes, seldom on all. Wherever these slots are, one TryLock finds the
// permits that nobody holds. It fails if it wants more permits than are free.
func TestTryLockFindsWhatHoldersLeaveFree(t *testing.T) {
	for nodes := 1; nodes <= 6; nodes++ {
		for seed := range uint64(testlength.Of(4, 10, 400)) { //nolint:gosec // a small number
			synctest.Test(t, func(t *testing.T) {
				all := embedded.Start(nodes)
				f := field{user{t, process(all)}, all}
				f.closes(f.Redsync)
				t.Cleanup(func() { all.Close(); time.Sleep(time.Minute) })
				f.meet()
				r := rand.New(rand.NewPCG(seed, uint64(nodes))) //nolint:gosec // a small number
				n := 1 + r.IntN(8)
				free := r.IntN(n + 1)
				for i, slot := range r.Perm(n)[free:] {
					quorum := nodes/2 + 1
					for _, node := range r.Perm(nodes)[:quorum+r.IntN(nodes-quorum+1)] {
						f.puts(slot, fmt.Sprint("holder ", i), time.Hour, node)
					}
				}
				weight := 1 + r.IntN(n)
				m := f.NewMutex("lock", permitsOf(n, weight)...)
				err := m.TryLock()
				require.Equal(f, weight <= free, err == nil, "TryLock of %d of %d permits on %d nodes, of which %d are free, returned %v", weight, n, nodes, free, err)
				if err == nil {
					f.unlock(m)
				}
				time.Sleep(time.Second)
				f.nobodyWaits()
			})
		}
	}
}
