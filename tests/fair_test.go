package redsync_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file shows the order in which processes are served: with WithFair, without it, and by
// WithPriority.

func TestFairOrderIsThatOfTheCalls(t *testing.T) {
	parallelComputing(t)
	for seed := range uint64(testlength.InGate(1, 2, 4, 4)) { //nolint:gosec // it is not negative
		playAs(t, fmt.Sprint(seed), func(f field) {
			r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test repeats itself
			m := f.held(withFair)
			var calls []*call
			for range 8 {
				calls = append(calls, f.calls(f.another(withFair), patient()...))
				sleep(ms)
			}
			for _, n := range f.nodes {
				for range 200 {
					n.On("evalsha", 1, embedded.Fault{Delay: time.Duration(r.IntN(3000)) * time.Microsecond})
				}
			}
			f.unlock(m)
			assert.Equal(f, ascending(8), f.inOrder(calls, ms))
			sleep(sec)
			f.nobodyWaits()
		})
	}
}

func TestFairTryLockIsBehindThoseWhoWait(t *testing.T) {
	for count, wins := range map[int]bool{2: true, 3: false} {
		playMetAs(t, fmt.Sprint(count), func(f field) {
			ticket := f.stranger(sec, false, ascending(count)...)
			sleep(ms)
			m := f.NewMutex("lock", withFair)
			if err := m.TryLock(); wins {
				require.NoError(f, err)
				f.unlock(m)
			} else {
				errorIs(f, err, redsync.ErrFailed)
				isTaken(f, err)
			}
			f.keysOn(0)
			for i := range f.nodes {
				want := []string{ticket}
				if i >= count {
					want = nil
				}
				assert.Equal(f, want, f.inQueue(i))
			}
		})
	}
}

func TestDefaultFirstAttemptMayBarge(t *testing.T) {
	play(t, func(f field) {
		f.stranger(minute, false, allNodes...)
		f.unlock(locked(f, f.NewMutex("lock")))
	})
}

func TestPriority(t *testing.T) {
	for _, across := range []bool{false, true} { // processes
		inEachMode(t, onKit, func(k kit, mode opts) {
			m := locked(k, k.another(mode...).NewMutex("lock"))
			rs := k.With(mode...)
			var calls []*call
			for _, class := range []int{0, 5, -5, 5, 0, 999, -999} {
				if across {
					rs = k.another(mode...)
				}
				calls = append(calls, k.calls(rs, patient(redsync.WithPriority(class))...))
				sleep(ms)
			}
			k.unlock(m)
			assert.Equal(k, []int{5, 1, 3, 0, 4, 2, 6}, k.inOrder(calls, ms))
			k.nothingLeft()
		})
	}
}
