package queue

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim/claimtest"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A process that reads many names once each must not remember all their holds, even if nobody unlocks them.
func TestHoldsThatNobodyCanJoinAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, 3)
		h.answer = func(int, pool.Request) (*pool.Reply, error) {
			return &pool.Reply{Value: script.Granted, Fate: pool.Answered, Conn: 1}, nil
		}
		for i := range 1000 {
			terms := h.terms()
			terms.Claim, terms.Joins = claimtest.Shared("name-"+strconv.Itoa(i)), true
			_, failure := h.Lock(t.Context(), terms, clock.Now(), 1)
			require.Nil(t, failure)
			time.Sleep(maxChain)
		}
		assert.LessOrEqual(t, len(h.sharing.holds), 66)
		h.closes()
	})
}
