package redsync_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file tests which messages waiters for permits send, and which waiters are woken.

// A waiter that wants more permits than are free is not woken again and again by the waiters behind it, because nothing
// has changed.
func TestPermitsOfAHeadThatWantsMoreAreQuiet(t *testing.T) {
	testlength.NotShort(t)
	playMet(t, func(f field) {
		held := f.locks(permitsOf(5, 3, withWatchdog)...)
		other := f.another()
		head := f.calls(other, permitsOf(5, 3, patient()...)...)
		var behind []*call
		const processes = 8
		for range processes {
			time.Sleep(7 * ms)
			rs := f.another()
			behind = append(behind, f.calls(rs, permitsOf(5, 1, patient(withFair)...)...))
		}
		time.Sleep(2 * sec)
		before := f.traffic()
		time.Sleep(10 * sec)
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
			f.served(c, 10*ms)
		}
		f.nothingOfPermits()
	})
}

// In fair mode the place in the queues of a call that has got a permit goes to the next call of its process. A later
// call of another process does not overtake that call, even if its own attempt is late.
func TestFairCallWithAPermitLeavesItsPlaceToTheNextOfItsProcess(t *testing.T) {
	playMet(t, func(f field) {
		held := f.locks(permitsOf(2, 2)...)
		process, other := f.another(), f.another()
		fair := patient(withFair)
		late := withGenValueFunc(func() (string, error) {
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
		f.stillWait(last)
		f.unlock(next)
		f.within(last, 10*ms)
		f.unlock(first)
		f.unlock(last)
		m := obtained(f, process.NewMutex("lock", permitsOf(2, 1, fair...)...))
		sleep(ms)
		f.have(0, "{lock}:slots")
		f.unlock(m)
		f.nothingOfPermits()
	})
}
