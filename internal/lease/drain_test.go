package lease

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
