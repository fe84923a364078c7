package redsync_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// Clients of this library and of another one wait for each other. The test sends the commands that the other library
// would send.
func TestWaitersBesideAnotherLibrary(t *testing.T) {
	parallelComputing(t)
	inEachMode(t, play, func(f field, mode opts) {
		clients := clientsOf(f.nodes)
		theirs := func() (won int) { // one attempt, as other libraries make it
			for _, c := range clients {
				if ok, err := c.SetNX(f.Context(), "lock", "theirs", 8*time.Second).Result(); err == nil && ok { //nolint:staticcheck // as they do
					won++
				}
			}
			return won
		}
		removes := func() {
			const remove = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) else return 0 end`
			for _, c := range clients {
				_ = c.Eval(context.Background(), remove, []string{"lock"}, "theirs").Err()
			}
		}
		var inside, ourTurns, theirTurns atomic.Int64
		work := func(turns *atomic.Int64) {
			turns.Add(1)
			assert.EqualValues(f, 1, inside.Add(1))
			time.Sleep(5 * ms)
			inside.Add(-1)
		}
		ctx, cancel := context.WithTimeout(f.Context(), time.Duration(testlength.Of(1, 1, 60))*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		again := func(do func()) {
			wg.Go(func() {
				for ctx.Err() == nil {
					do()
					time.Sleep(time.Duration(rand.IntN(30)) * ms) //nolint:gosec // no secret
				}
			})
		}
		for _, rs := range []*redsync.Redsync{f.Redsync, f.Redsync, f.another()} {
			m := rs.NewMutex("lock", append(mode, forever)...)
			again(func() {
				if m.LockContext(ctx) == nil {
					work(&ourTurns)
					f.unlock(m)
				}
			})
		}
		again(func() {
			if theirs() >= 3 {
				work(&theirTurns)
			}
			removes()
		})
		wg.Wait()
		for _, c := range clients {
			_ = c.Close()
		}
		assert.Greater(f, ourTurns.Load(), int64(10))
		assert.Positive(f, theirTurns.Load())
	})
}
