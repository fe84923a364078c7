package redsync

import (
	"fmt"

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
