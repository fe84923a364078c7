package redsync_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// permitsOf returns options of a lock that takes k of n permits. A weight needs WithFair.
func permitsOf(n, k int, more ...redsync.Option) opts {
	options := opts{withPermits(n)}
	if k > 1 {
		options = append(options, redsync.WithWeight(k), withFair)
	}
	return append(options, more...)
}

func slotOf(i int) string { return fmt.Sprintf("{lock}:slot:%d", i) }

// owners returns the value in each of n slots on a node, "" for a free slot.
func (f field) owners(node, n int) []string {
	synctest.Wait()
	all := make([]string, n)
	for i := range all {
		all[i], _ = f.nodes[node].Get(slotOf(i))
	}
	return all
}

// holdsOn counts the slots that a value has on each node.
func (f field) holdsOn(value string, n int) (counts []int) {
	for node := range f.nodes {
		count := 0
		for _, owner := range f.owners(node, n) {
			if owner == value {
				count++
			}
		}
		counts = append(counts, count)
	}
	return counts
}

// puts makes a stranger hold a slot on some nodes.
//
// Before that, it waits until the nodes have finished earlier work, such as a release that Unlock has not waited for.
func (f field) puts(slot int, value string, ttl time.Duration, nodes ...int) {
	time.Sleep(ms)
	f.sets(slotOf(slot), value, ttl, nodes...)
}

// nothingOfPermits checks that no key is left.
func (f field) nothingOfPermits() {
	f.Helper()
	time.Sleep(3 * sec)
	for i, n := range f.nodes {
		assert.Empty(f, n.Keys(), "node %d", i)
	}
}

func TestPermitsAdmitSoManyAndWakeTheFirst(t *testing.T) {
	inEachMode(t, play, func(f field, mode opts) {
		other, third := f.another(), f.another()
		options := permitsOf(3, 1, patient(mode...)...)
		var held []*redsync.Mutex
		for range 3 {
			held = append(held, f.locks(options...))
		}
		taken := isTaken(f, other.NewMutex("lock", options...).TryLock())
		assert.Len(f, taken.Nodes, 3) // the error names a quorum of nodes, which proves that no permit is free
		var waiters []*call
		for _, rs := range []*redsync.Redsync{other, third, other} {
			waiters = append(waiters, f.calls(rs, options...))
			time.Sleep(ms)
		}
		time.Sleep(2500 * ms)
		f.extends(held[0])
		f.confirms(held[0].Valid())
		for i, w := range waiters {
			for _, later := range waiters[i:] {
				f.stillWait(later)
			}
			f.unlock(held[i])
			f.within(w, 10*ms)
		}
		for _, w := range waiters {
			f.unlock(w)
		}
		f.nothingOfPermits()
	})
}

// A node that answers late may have granted another slot than the other nodes. That slot is released at once, whether
// the holder still holds its permit or has unlocked.
func TestPermitsGiveLateStraysBack(t *testing.T) {
	for _, unlocks := range []bool{false, true} {
		playMet(t, func(f field) {
			m := f.locks(twoPermits, withWatchdog)
			mine := slices.Index(f.owners(0, 2), m.Value())
			f.unlock(m)
			f.puts(mine, "stranger", minute, 4)
			f.freeze(4)
			locked(f, m)
			value := m.Value()
			assert.Equal(f, []int{1, 1, 1, 1, 0}, f.holdsOn(value, 2))
			if unlocks {
				f.unlock(m)
			}
			time.Sleep(100 * ms)
			f.thaw(4)
			time.Sleep(200 * ms)
			assert.Zero(f, f.holdsOn(value, 2)[4])
			if !unlocks {
				f.confirms(m.Valid())
				f.unlock(m)
			}
			time.Sleep(3 * sec)
			assert.Equal(f, make([]int, 5), f.holdsOn(value, 2))
		})
	}
}

// The nodes may split the votes of the first round although a permit is free. No message would wake the caller later,
// so it must find the permit at once.
func TestPermitsFindWhatIsFreeOnAQuorum(t *testing.T) {
	for n, weight := range map[int]int{3: 1, 4: 2} {
		for range testlength.Of(5, 10, 100) {
			playMet(t, func(f field) {
				f.puts(0, "a", minute, 0, 1)
				f.puts(1, "b", minute, 1, 2)
				f.puts(0, "c", minute, 3)
				f.puts(1, "d", minute, 4)
				w := f.inLine(permitsOf(n, weight)...)
				f.served(w, 20*ms)
			})
		}
	}
}

func TestWeightsTakeAllOrNone(t *testing.T) {
	play(t, func(f field) {
		other := f.another()
		one, two := f.locks(permitsOf(3, 1, withFair)...), locked(f, other.NewMutex("lock", permitsOf(3, 2)...))
		counts := f.holdsOn(two.Value(), 3)
		slices.Sort(counts)
		assert.Greater(f, counts[2], 1) // on three nodes
		three := f.calls(f.Redsync, permitsOf(3, 3, patient()...)...)
		time.Sleep(ms)
		last := f.calls(other, permitsOf(3, 1, patient(withFair)...)...)
		f.unlock(two)
		time.Sleep(100 * ms)
		f.stillWait(three) // the call for three permits waits: only two are free
		f.stillWait(last)  // the last call waits behind the call that wants all permits
		f.unlock(one)
		f.within(three, 10*ms)
		f.extends(three)
		f.confirms(three.Valid())
		f.stillWait(last)
		f.unlock(three)
		f.served(last, 10*ms)
		f.nothingOfPermits()
	})
}

// If processes use different numbers of permits, the largest number is the limit.
func TestPermitsOfDifferentNumbers(t *testing.T) {
	play(t, func(f field) {
		other := f.another()
		var many []*redsync.Mutex
		for range 5 {
			many = append(many, obtained(f, other.NewMutex("lock", withPermits(5))))
		}
		isTaken(f, f.tries(twoPermits))
		w := f.inLine(twoPermits)
		for _, m := range many {
			f.unlock(m)
		}
		f.served(w, 10*ms)
		f.nothingOfPermits()
	})
}

func TestPermitIsDetachedAndAdopted(t *testing.T) {
	for _, weight := range []int{1, 2} {
		play(t, func(f field) {
			other := f.another()
			m := f.locks(permitsOf(3, weight, withWatchdog)...)
			s := f.detaches(m)
			assert.Equal(f, []string{"lock"}, s.Names())
			assert.Equal(f, s, must(redsync.ParseSequencer(s.String())))
			noError(f, other.With(withFencing, withPermits(9)).Current(f.Context(), s))

			over := withSequencer(s)
			f.confirms(other.NewMutex("lock", permitsOf(3, weight, over)...).Valid())
			for what, options := range map[string]opts{
				"WithPermits(4)": {withPermits(4), over},
				"WithWeight(3)":  permitsOf(3, 3, over),
				"WithShared":     {withShared, over},
			} {
				says(f, other.NewMutex("lock", options...).TryLock(), what)
			}
			says(f, other.NewMultiMutex(both, over).TryLock(), "WithSequencer")

			d := other.NewMutex("lock", over)
			f.extends(d)
			time.Sleep(5 * sec)
			f.confirms(d.Valid())
			erred(f, d.Downgrade(f.Context()))
			f.unlock(d)
			errorIs(f, f.current(f.Redsync, s), redsync.ErrLockAlreadyExpired)
			f.nothingOfPermits()

			locked(f, m)
			over = withSequencer(m.Sequencer())
			f.unlock(other.NewMutex("lock", over))
			failsWith(f, m.Valid, redsync.ErrLockLost)
			noError(f, other.NewMutex("lock", over).Lock()) // Lock begins a hold of its own
		})
	}
}

func TestPermitsRefuseBadInput(t *testing.T) {
	play(t, func(f field) {
		for what, options := range map[string]opts{
			"WithPermits(0) is out of range: 1 to 256":   {withPermits(0)},
			"WithPermits(257) is out of range: 1 to 256": {withPermits(257)},
			"WithWeight(0) is out of range: 1 to ":       {withPermits(3), redsync.WithWeight(0)},
			"WithWeight(4) is out of range: 1 to 3":      permitsOf(3, 4),
			"WithWeight(2) needs WithFair":               {withPermits(3), redsync.WithWeight(2)},
			"WithWeight(1) needs WithPermits":            {redsync.WithWeight(1), withFair},
		} {
			refuses(f, f.NewMutex("lock", options...), what)
			refuses(f, f.With(options[:len(options)-1]...).NewMutex("lock", options[len(options)-1]), what)
		}
		for _, name := range []string{"{lock}:slot:0", "{lock}:slots", "{lock}:slot:255", "{a}:{a}b:slot:7"} {
			refuses(f, f.NewMutex(name), "is reserved")
		}
		obtained(f, f.NewMutex("{lock}:slot"))
		obtained(f, f.NewMutex("{lock}:slot:x"))
	})
}

// One Mutex has one permit at a time, and many goroutines may call its Do.
func TestPermitsOfOneMutex(t *testing.T) {
	play(t, func(f field) {
		m := f.NewMutex("lock", withPermits(3), forever)
		var at, most atomic.Int64
		var all sync.WaitGroup
		for range 12 {
			all.Go(func() {
				assert.NoError(f, m.Do(f.Context(), func(context.Context) error {
					most.Store(max(most.Load(), at.Add(1)))
					time.Sleep(sec)
					at.Add(-1)
					return nil
				}))
			})
		}
		all.Wait()
		assert.EqualValues(f, 3, most.Load())

		locked(f, m)
		err := m.LockContext(limited(f, sec))
		says(f, err, "this Mutex holds")
		errorIs(f, err, context.DeadlineExceeded)
		time.AfterFunc(sec, func() { f.unlock(m) })
		locked(f, m)
		f.unlock(m)
		f.nothingOfPermits()
	})
}
