package redsync

import (
	"fmt"

	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file has the options of permits and their rules. Permits are the places of a semaphore: several
// holders can each have one at the same time.

const maxPermits = script.MaxPermits

// WithPermits makes a Mutex take one of n permits of its name, instead of the lock. At most n are held at any time. n
// is 1 to 256. By default a Mutex is a lock.
//
// A permit is extended, lost and unlocked as a lock is. All clients should set the same n: the largest n in use is
// the limit. WithPermits(1) does not exclude a client that locks the name.
//
// Use a Mutex for each holder, or Do: many goroutines may call it on one Mutex. Inside a Do that has a permit, a call
// for another permit of the name fails with ErrNested.
//
// There are no fencing tokens. See docs/permits.md, and docs/reference.md for what excludes WithPermits.
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
