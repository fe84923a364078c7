package redsync

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/pool"
)

// A round whose caller has given it up is not kept until its deadline, which is hours away where
// a lock with a long expiry is extended. The nodes never answer here.
func TestRoundThatIsGivenUpIsNotKeptUntilItsDeadline(t *testing.T) {
	given := map[string]func(t *testing.T) (context.Context, <-chan struct{}){
		"by the context": func(t *testing.T) (context.Context, <-chan struct{}) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx, nil
		},
		"by the end of the hold": func(t *testing.T) (context.Context, <-chan struct{}) {
			over := make(chan struct{})
			close(over)
			return t.Context(), over
		},
	}
	for name, how := range given {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCore([]pool.Pool{&puppet{answer: func(pool.Request) (*pool.Reply, error) { return nil, nil }}})
				ctx, over := how(t)
				kept := func() weak.Pointer[round] {
					r := startRound(c, ping{}, false)
					res := r.wait(ctx, bounds{decide: time.Hour, over: over})
					assert.False(t, res.tally.won())
					return weak.Make(r)
				}()
				for range 10 {
					runtime.GC()
				}
				require.Nil(t, kept.Value())
			})
		})
	}
}
