package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// A swept is a release that these nodes have not executed yet. One node is a quorum of one.
type swept claim.Nodes

func (s *swept) unconfirmed() claim.Nodes        { return claim.Nodes(*s) }
func (s *swept) isConfirmed() bool               { return *s == 0 }
func (*swept) keepTime()                         {}
func (*swept) lasts(clock.Instant) time.Duration { return sec }
func (*swept) of() (name string, to Events)      { return "lock", nil }
func (*swept) isAttempt() bool                   { return false }

// A node's last reply may be noted when the other nodes have just ended the release. Then another release has its seat.
func TestUnsettledCountsNothingForAReleaseThatHasEnded(t *testing.T) {
	var u unsettled
	releases, seats := [3]swept{1, 1, 1}, [3]seat{}
	for i := range releases {
		u.add(&releases[i], &seats[i])
	}
	u.begin(1)
	releases[0] = 0
	u.remove(&seats[0])
	u.progressed(&seats[0])
	open, _ := u.opens(clock.Now())
	assert.Equal(t, 2, open)
	assert.Equal(t, 2, u.partials())

	releases[2] = 0 // it has the seat of the first one now
	u.progressed(&seats[2])
	u.remove(&seats[2])
	u.progressed(&seats[2])
	open, _ = u.opens(clock.Now())
	assert.Equal(t, 1, open)
	all, _ := u.rest()
	assert.Equal(t, []left{{&releases[1], 1, false}}, all)
}

// A quorum may confirm the last release just after Close has seen that it must wait for it. Its keys have not run out, so Close
// waits for the other nodes, too.
func TestCloseSeesAReleaseConfirmedBeforeItsKeysRunOut(t *testing.T) {
	for i := range 60_000 {
		var k Keeper
		nodes, at := swept(1), noSeat
		k.unsettled.add(&nodes, &at)
		k.unsettled.begin(1)
		go func() {
			for range i % 200 { // nanoseconds
				k.unsettled.count()
			}
			k.unsettled.remove(&at)
		}()
		settled, cut := k.awaitQuorums(t.Context())
		require.NoError(t, cut)
		require.True(t, settled, "play %d", i)
	}
}
