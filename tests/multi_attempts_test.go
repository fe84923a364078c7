package redsync_test

import (
	"testing"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
)

// This file tests how many attempts are made by calls that wait for several names.

// A name that is taken on a minority of nodes for ever does not block a lock on several names, although the first
// answers can look as if it did. The caller still waits for the name that another process holds, and has the lock when
// that name is released.
func TestMultiWaitsForTheNameThatIsTakenOnAQuorum(t *testing.T) {
	inEachMode(t, play, func(f field, mode opts) {
		b := locked(f, f.another().NewMutex("b", lasting))
		time.Sleep(10 * ms)
		f.occupy("a", 0, 1)                                              // which nobody releases
		onEach(f.nodes[3:], "evalsha", 1<<20, embedded.Fault{Delay: ms}) // the others answer first
		multi := f.waitsFor(f.Redsync, "a b", mode...)
		time.Sleep(1100 * ms)
		f.stillWait(multi)
		f.unlock(b)
		f.served(multi, 20*ms)
	})
}
