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

// This file has the options of permits and their rules. Permits are the places of a semaphore: several
// holders can each have one at the same time.

const maxPermits = script.MaxPermits

// WithPermits makes a Mutex take one of n permits of its name, instead of the lock. At most n permits are
// held at any time, under the same assumptions as the exclusion of a lock (see the package documentation). It
// is a semaphore on a quorum of nodes. The range of n is 1 to 256. Without this option, a Mutex is a lock.
//
// A permit is extended, checked, lost and unlocked as a lock is. The permit of a holder that crashes is free
// again when its expiry, and WithLockDelay, have passed. Lock waits while all permits are taken. Unlock wakes
// the first waiter, and no other. Without WithFair, a first attempt may take a permit before callers that
// wait.
//
// The permits of a name are independent of the lock of that name, because they have keys of their own:
// {name}:slot:0 and so on. So WithPermits(1) does not exclude a client that locks the name.
//
// All clients that use the permits of a name should set the same n. If they do not, the largest n in use is
// the limit. A waiter with a smaller n, and the waiters behind it, may then wait although a permit beyond
// that n is free. If you deploy a smaller n, it becomes the limit once no client uses the old n and no
// permit beyond the new n is held any more.
//
// A Mutex has one hold at a time: Lock of a held Mutex waits until that hold ends. Use a Mutex for each holder,
// or Do, which many goroutines may call on one Mutex at once. Inside a Do that has a permit of the name, a call
// for another permit of that name fails with ErrNested, because it could wait for the permit of that Do.
//
// WithPermits excludes WithShared, WithFencing, WithValue, NewMultiMutex, and WithSequencer with the
// Sequencer of a lock: with any of these, every operation fails. With the Sequencer of a permit,
// WithSequencer adopts that permit. There are no fencing tokens: several holders work at once, so the
// order of tokens would tell a resource nothing.
//
// A holder has a permit if a quorum of nodes has granted that same permit. It would not be enough if each node only
// counted its holders: N nodes could then admit up to N*n/(N/2+1) holders, which is seven for n = 5 on three nodes.
func WithPermits(n int) Option {
	return OptionFunc(func(m *Mutex) {
		if n < 1 || n > maxPermits {
			m.change().fail(outOfRange("WithPermits", n, fmt.Sprint("1 to ", maxPermits)))
			return
		}
		m.change().permits = n
	})
}

// WithWeight makes a Mutex take k permits at once, all or none. It needs WithPermits(n) and WithFair. The
// range of k is 1 to n. The default is 1. If an option is missing or k is out of range, every operation
// fails.
//
// Every client that takes permits of the name must then set WithFair. Otherwise clients that want one permit
// could overtake a client that wants several, again and again.
func WithWeight(k int) Option {
	return OptionFunc(func(m *Mutex) {
		if k < 1 || k > maxPermits {
			m.change().fail(outOfRange("WithWeight", k, "1 to the n of WithPermits"))
			return
		}
		m.change().weight = k
	})
}

// The errors of options and constructors that WithPermits excludes.
var (
	errPermitsShared  = errors.New("redsync: WithPermits excludes WithShared: a permit is neither a reader's nor a writer's lock")
	errPermitsFencing = errors.New("redsync: WithPermits excludes WithFencing: tokens of several holders at once order nothing")
	errPermitsValue   = errors.New("redsync: WithValue excludes WithPermits: WithSequencer adopts a permit")
	errPermitsNames   = errors.New("redsync: WithPermits excludes NewMultiMutex: permits are of one name")
)

// checkPermits returns an error if WithPermits or WithWeight does not go together with the other settings.
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

// sharesName reports whether several holders may have the name at once, as readers or with permits. Then a
// grant does not prove that a former hold of the same Mutex is over.
func (s *settings) sharesName() bool { return s.shared || s.permits != 0 }

// permitsMode returns the mode of a Sequencer whose hold has these slots of a semaphore with n permits. For
// slots 0 and 2 of three it is permits-3-0-2.
func permitsMode(n int, slots script.Slots) string {
	mode := strconv.AppendInt([]byte(modePermits+"-"), int64(n), 10)
	for slot := range slots.All() {
		mode = strconv.AppendInt(append(mode, '-'), int64(slot), 10)
	}
	return string(mode)
}

// parsePermitsMode reads a mode that permitsMode has written. It reports false for any other text.
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

// adoptPermits makes m adopt a hold of these slots of a semaphore with n permits. It returns an error if that
// contradicts WithPermits or WithWeight of m.
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
	set.permits, m.slots = n, &slots
	return nil
}

// newPermits returns the claim of m, which has permits.
func newPermits(m *Mutex) *claim.Permits {
	return claim.NewPermits(m.name, m.set.permits, max(m.set.weight, 1))
}

// adoptLease returns a lease with the value that m adopts. If m has permits, the Sequencer has told which
// slots they are.
func (m *Mutex) adoptLease(t *queue.Terms, value string, start clock.Instant) *lease.Lease {
	h := lease.Adopt(&t.Terms, value, start)
	if p, ok := h.Claim().(*claim.Permits); ok {
		var slots script.Slots
		if m.slots != nil {
			slots = *m.slots
		}
		h.Replace(p.Of(slots))
	}
	return h
}
