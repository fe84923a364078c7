package redsync_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// Waiters whose tickets never run out have been written by somebody else. If nobody refreshes them, they keep out WithFair for
// seconds, and not for ever.
func TestForgedQueueThatIsTooLongGoes(t *testing.T) {
	testlength.NotShort(t) // the race detector takes long for so many bytes
	play(t, func(f field) {
		for _, n := range f.nodes {
			require.NoError(f, n.Set("{lock}:queue", strings.Repeat(fmt.Sprintf("0:%047d %013d\n", 1, int64(9999999999999)), 16_001)))
		}
		ctx, cancel := context.WithTimeout(f.Context(), 10*time.Second)
		defer cancel()
		m := f.NewMutex("lock", redsync.WithFair(), redsync.WithTries(0))
		require.NoError(f, m.LockContext(ctx))
		f.unlock(m)
	})
}

// What a caller writes itself never is too long to be read again.
func TestLocksWithLongValues(t *testing.T) {
	testlength.NotShort(t) // see above
	play(t, func(f field) {
		for names, bytes := range map[int]int{1: 1_100_000, 2: 600_000, 20: 60_000} {
			made := 0
			long := redsync.WithGenValueFunc(func() (string, error) {
				made++
				return fmt.Sprint(names, " ", made, strings.Repeat("v", bytes)), nil
			})
			var all []string
			for i := range names {
				all = append(all, fmt.Sprintf("of %d: %d", names, i))
			}
			m := locked(f, f.NewMultiMutex(all, long))
			f.confirms(m.Extend())
			f.unlock(m)
			time.Sleep(time.Second)
			for _, name := range all {
				assert.Zero(f, f.nodes.Keys(name))
			}
		}
	})
}
