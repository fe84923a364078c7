package lease

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
)

// unexecuted returns a release that no node of the terms, which have one, has executed yet.
func unexecuted(terms *Terms) *Release {
	l := New(terms, "value", clock.Now())
	l.writes.sending(0)
	rel := &Release{lease: l, claim: l.claim, extras: &noExtras, progress: make([]progress, 1)}
	rel.round.Prepare(quorum.NoCall, terms.Keeper.Set, rel, false, false)
	return rel
}

// A node's last reply may be noted when the other nodes have just ended the release. Then another release has its seat.
func TestUnsettledCountsNothingForAReleaseThatHasEnded(t *testing.T) {
	var u unsettled
	terms, releases := nowhere(t, 1), [3]*Release{}
	for i := range releases {
		releases[i] = unexecuted(terms)
		u.add(releases[i])
	}
	u.begin(1)
	releases[0].executed.Store(1)
	u.remove(releases[0])
	u.progressed(releases[0])
	open, _ := u.opens(clock.Now())
	assert.Equal(t, 2, open)
	assert.Equal(t, 2, u.partials())

	releases[2].executed.Store(1) // it has the seat of the first one now
	u.progressed(releases[2])
	u.remove(releases[2])
	u.progressed(releases[2])
	open, _ = u.opens(clock.Now())
	assert.Equal(t, 1, open)
	all, _ := u.rest()
	assert.Equal(t, []left{{releases[1], 1, false}}, all)
}

// A quorum may confirm the last release just after Close has seen that it must wait for it. Its keys have not run out, so Close
// waits for the other nodes, too.
func TestCloseSeesAReleaseConfirmedBeforeItsKeysRunOut(t *testing.T) {
	rel := unexecuted(nowhere(t, 1))
	for i := range 60_000 {
		var k Keeper
		k.unsettled.add(rel)
		k.unsettled.begin(1)
		go func() {
			for range i % 200 { // nanoseconds
				k.unsettled.count()
			}
			k.unsettled.remove(rel)
		}()
		settled, cut := k.awaitQuorums(t.Context())
		require.NoError(t, cut)
		require.True(t, settled, "play %d", i)
	}
}
