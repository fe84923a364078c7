package redsync_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// Waiters whose tickets never run out have been written by somebody else. If nobody refreshes them, they keep out WithFair for
// seconds, and not for ever.
func TestForgedQueueThatIsTooLongGoes(t *testing.T) {
	testlength.FromGate(t) // the race detector takes long for so many bytes
	play(t, func(f field) {
		for _, n := range f.nodes {
			noError(f, n.Set("{lock}:queue", strings.Repeat(fmt.Sprintf("0:%047d %013d\n", 1, int64(9999999999999)), 16_001)))
		}
		m := f.NewMutex("lock", withFair, forever)
		noError(f, m.LockContext(limited(f, 10*sec)))
		f.unlock(m)
	})
}
