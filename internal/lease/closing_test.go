package lease

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// A pool that is full refuses one release after another. Each goes back to very many that wait, at no cost that grows
// with their number.
func TestDrainTakesBackARefusedReleaseAtAConstantCost(t *testing.T) {
	const many, refusals = 50_000, 1000
	var d drain
	for range closeWindow {
		require.True(t, d.enter(&Release{}))
	}
	for range many {
		require.False(t, d.enter(&Release{}))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range refusals {
		rel := d.replace()
		require.NotNil(t, rel)
		require.True(t, d.putBack(rel, &wire.OutstandingError{Limit: 1}))
		d.sent++ // another reply is owed
	}
	runtime.ReadMemStats(&after)
	assert.Len(t, d.waiting, many)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(5<<20), "copying the list each time takes 400 MB")
}

// A release that the pool has refused waits. Releases that come later wait behind it, although there is room for them.
func TestDrainKeepsTheOrderOfReleases(t *testing.T) {
	var d drain
	under, refused, later := &Release{}, &Release{}, &Release{}
	require.True(t, d.enter(under))
	require.True(t, d.enter(refused))
	require.True(t, d.putBack(refused, &wire.OutstandingError{Limit: 1}))
	require.False(t, d.enter(later))
	assert.Same(t, refused, d.replace())
	assert.Same(t, later, d.replace())
	assert.Nil(t, d.replace())
}

// unexecuted returns a release that no node of the terms, which have one, has executed yet.
func unexecuted(terms *Terms) *Release {
	l := New(terms, "value", clock.Now())
	l.writes.sending(0)
	rel := &Release{lease: l, claim: l.claim, rare: &noRareRelease, progress: make([]progress, 1)}
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
	rel := unexecuted(newTermsOf(t, timingOf(time.Hour), nil)) // many plays may take longer than 8 s
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
