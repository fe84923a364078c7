package redsync_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
)

// In fair mode, a free name is kept for a lock on several names that still waits for another of its names. It does not
// matter which process holds that other name.
func TestFairMultiIsNotOvertaken(t *testing.T) {
	parallelComputing(t)
	fair := patient(withFair, lasting)
	for _, how := range []string{"another process", "this process", "a waiter of this process", "a waiter of this process that was served"} {
		playAs(t, "held by "+how, func(f field) {
			other := f.another()
			holds := other
			if how == "this process" {
				holds = f.Redsync
			}
			b := locked(f, holds.NewMutex("b", fair...))
			if strings.HasPrefix(how, "a waiter") {
				w := f.waitsFor(f.Redsync, "b", fair...)
				time.Sleep(ms)
				if strings.HasSuffix(how, "served") {
					f.waitsFor(f.Redsync, "a b", fair...)
					time.Sleep(ms)
					f.unlock(b)
					f.within(w, sec)
				}
			}
			time.Sleep(100 * ms)
			multi := f.waitsFor(f.Redsync, "a b", fair...)
			time.Sleep(100 * ms)
			behind := f.waitsFor(f.Redsync, "a", fair...)
			time.Sleep(100 * ms)
			for range 5 {
				erred(f, other.NewMutex("a", fair...).LockContext(limited(f, sec))) // it does not overtake the multi, and the caller of a behind it
			}
			f.stillWait(multi, behind)
		})
	}
}

// A lock on several names fails if a node keeps the names in different slots. After that, releases of other locks must
// still wake waiters.
func TestMultiOverTwoSlotsDoesNotSilenceOtherReleases(t *testing.T) {
	play(t, func(f field) {
		other := f.another()
		c := f.locked([]string{"c"})
		w := f.waitsFor(other, "c")
		time.Sleep(100 * ms)
		onEach(f.nodes, "evalsha", 2, embedded.Fault{Err: "CROSSSLOT Keys in request don't hash to the same slot"})
		erred(f, f.NewMultiMutex(both).TryLock())
		time.Sleep(10 * ms)
		f.unlock(c)
		f.served(w, 50*ms)
	})
}

// A waiter could not try because a call for several names was trying. The waiter goes on when that call gives up, or when
// its lock runs out without an Unlock.
func TestWaiterGoesOnAfterTheTryOfAMulti(t *testing.T) {
	for _, wins := range []bool{false, true} {
		play(t, func(f field) {
			other := f.another()
			b := locked(f, other.NewMutex("b", lasting))
			multi := f.begins(f.NewMultiMutex(both, withTries(2), withRetryDelay(200*ms)))
			time.Sleep(100 * ms)
			onEach(f.nodes, "evalsha", 2, embedded.Fault{Delay: 50 * ms})
			underWay := 120 * ms // the try
			if wins {
				f.unlock(b)
				underWay = 20 * ms
			}
			time.Sleep(underWay)
			f.stillWait(multi)
			a := f.waitsFor(f.Redsync, "a", withFair)
			f.stillWait(a)
			<-multi.done
			require.Equal(f, wins, multi.err == nil, "%v", multi.err)
			f.served(a, 10*sec)
		})
	}
}
