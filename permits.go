package redsync

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/queue"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file is about permits: locks that up to n holders have at once.

const maxPermits = script.MaxPermits

// WithPermits makes a Mutex one of n permits of its name: at most n holders have one at once, whatever nodes fail. It is
// a semaphore on a quorum of nodes. The range of n is 1 to 256. The default is no permits: a lock.
//
// A holder that crashes gives its permit back when its expiry has passed. A permit is extended, lost and unlocked as a
// lock is. Lock waits while all permits are taken, and the release of a permit wakes the first waiter, and no other.
//
// The permits of a name and the lock of that name are independent of each other: {name}:slot:0 and so on are the keys
// of the permits. WithPermits(1) is no lock of the name, either.
//
// All who use the permits of a name should agree on n. If they do not, the largest n in use is what holds. When n
// shrinks, the new limit holds from the moment at which the last permit beyond it ends. A waiter with a smaller n may
// wait while others could have a permit.
//
// Without WithFair, a first attempt may take a permit before those who wait. A Mutex has one permit at a time, also
// with this option: Lock waits while its own Mutex is held. Use a Mutex for each permit, or Do, which many goroutines may
// call on one Mutex at once.
//
// WithPermits excludes WithShared, WithFencing, WithValue and NewMultiMutex: with any of these, every operation fails.
// Tokens would order nothing, because several holders work at once. WithSequencer adopts a permit.
//
// That a quorum must have granted the same permits is this library's rule. If each node only counted, N nodes could admit
// up to N*n/(N/2+1) holders.
func WithPermits(n int) Option {
	return OptionFunc(func(m *Mutex) {
		if n < 1 || n > maxPermits {
			m.change().fail(outOfRange("WithPermits", n, fmt.Sprint("1 to ", maxPermits)))
			return
		}
		m.change().permits = n
	})
}

// WithWeight makes a Mutex take k permits at once, all or none. It needs WithPermits(n) and WithFair; the range of k is 1
// to n. Every client that takes permits of the name must set WithFair then: otherwise those who want one permit could
// overtake one who wants several again and again. The default is 1.
func WithWeight(k int) Option {
	return OptionFunc(func(m *Mutex) {
		if k < 1 || k > maxPermits {
			m.change().fail(outOfRange("WithWeight", k, "1 to the n of WithPermits"))
			return
		}
		m.change().weight = k
	})
}

// What does not go together with WithPermits.
var (
	errPermitsShared  = errors.New("redsync: WithPermits excludes WithShared: a permit is neither a reader's nor a writer's lock")
	errPermitsFencing = errors.New("redsync: WithPermits excludes WithFencing: tokens of several holders at once order nothing")
	errPermitsValue   = errors.New("redsync: WithValue excludes WithPermits: WithSequencer adopts a permit")
	errPermitsNames   = errors.New("redsync: WithPermits excludes NewMultiMutex: permits are of one name")
)

// checkPermits returns why the settings of permits do not go together.
func (s *settings) checkPermits() error {
	switch {
	case s.permits == 0 && s.weight != 0:
		return fmt.Errorf("redsync: WithWeight(%d) needs WithPermits", s.weight)
	case s.permits == 0:
		return nil
	case s.shared:
		return errPermitsShared
	case s.fencing:
		return errPermitsFencing
	case s.value != "":
		return errPermitsValue
	case s.weight > s.permits:
		return outOfRange("WithWeight", s.weight, fmt.Sprintf("1 to %d: the permits of WithPermits(%[1]d)", s.permits))
	case s.weight != 0 && !s.fair:
		return fmt.Errorf("redsync: WithWeight(%d) needs WithFair: without it, others could overtake again and again", s.weight)
	}
	return nil
}

// sharesName reports whether others may hold the same name at the same time, so that a grant does not prove that a
// former hold is over.
func (s *settings) sharesName() bool { return s.shared || s.permits != 0 }

// permitsMode returns the mode of a Sequencer of some of n permits.
func permitsMode(n int, slots script.Slots) string {
	mode := strconv.AppendInt([]byte(modePermits+"-"), int64(n), 10)
	for slot := range slots.All() {
		mode = strconv.AppendInt(append(mode, '-'), int64(slot), 10)
	}
	return string(mode)
}

// parsePermitsMode reads what permitsMode returns, and reports whether mode is that.
func parsePermitsMode(mode string) (n int, slots script.Slots, ok bool) {
	numbers, ok := strings.CutPrefix(mode, modePermits+"-")
	if !ok {
		return 0, slots, false
	}
	all := strings.Split(numbers, "-")
	n, err := strconv.Atoi(all[0])
	if err != nil || n < 1 || n > maxPermits {
		return 0, slots, false
	}
	for _, number := range all[1:] {
		slot, err := strconv.Atoi(number)
		if err != nil || slot < 0 || slot >= n {
			return 0, slots, false
		}
		slots = slots.With(slot)
	}
	return n, slots, slots.Len() > 0 && permitsMode(n, slots) == mode
}

// adoptPermits makes m a holder of these slots of n permits.
func (m *Mutex) adoptPermits(n int, slots script.Slots) error {
	weight := slots.Len()
	set := m.change()
	switch {
	case set.permits != 0 && set.permits != n:
		return fmt.Errorf("redsync: WithSequencer: the sequencer is of %d permits, which excludes WithPermits(%d)", n, set.permits)
	case set.weight != 0 && set.weight != weight:
		return fmt.Errorf("redsync: WithSequencer: the sequencer is of weight %d, which excludes WithWeight(%d)", weight, set.weight)
	case weight > 1:
		set.weight, set.fair = weight, true
	}
	set.permits, m.slots = n, slots
	return nil
}

// newPermits returns what m's holds write on the nodes.
func newPermits(m *Mutex) *claim.Permits {
	return claim.NewPermits(m.name, m.set.permits, max(m.set.weight, 1))
}

// adoptLease returns a lease of the value that m adopts.
func (m *Mutex) adoptLease(t *queue.Terms, value string, start clock.Instant) *lease.Lease {
	h := lease.Adopt(&t.Terms, value, start)
	if p, ok := h.Claim().(*claim.Permits); ok {
		h.Replace(p.Of(m.slots))
	}
	return h
}
