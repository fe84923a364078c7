package fencing_test

import (
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/seed14bd9ef4/redsync/fencing"
)

func TestMain(m *testing.M) {
	logging.Disable()
	goleak.VerifyTestMain(m, goleak.Cleanup(os.Exit))
}

// pairs are tokens where a comparison that is not exact goes wrong: lengths, floats,
// signed numbers, bytes.
var pairs = []struct{ older, newer uint64 }{
	{1, 2},
	{9, 10},
	{99, 100},
	{2, 10},
	{1<<53 - 1, 1 << 53},
	{1 << 53, 1<<53 + 1},
	{1_763_000_000_000_000, 1_763_000_000_000_001},
	{math.MaxInt64 - 1, math.MaxInt64},
	{math.MaxInt64, math.MaxInt64 + 1},
	{9_999_999_999_999_999_999, 10_000_000_000_000_000_000},
	{10_000_000_000_000_000_000, math.MaxUint64},
	{math.MaxUint64 - 1, math.MaxUint64},
	{1, math.MaxUint64},
}

func TestAdmit(t *testing.T) {
	for _, p := range pairs {
		require.NoError(t, fencing.Admit(p.newer, p.older))
		require.NoError(t, fencing.Admit(p.newer, p.newer))
		require.NoError(t, fencing.Admit(p.older, 0))
		requireStale(t, fencing.Admit(p.older, p.newer), p.older, p.newer)
	}
	require.ErrorIs(t, fencing.Admit(0, 0), fencing.ErrNoToken)
	require.ErrorIs(t, fencing.Admit(0, 7), fencing.ErrNoToken)
}

func TestStaleErrorNamesBothTokens(t *testing.T) {
	err := fmt.Errorf("save: %w", &fencing.StaleError{Token: 41, Newest: 42})
	require.EqualError(t, err, "save: fencing: token 41 is stale: the resource has seen 42")
	require.ErrorIs(t, err, fencing.ErrStale)
	assert.NotErrorIs(t, err, fencing.ErrNoToken)
}

func TestText(t *testing.T) {
	for _, p := range pairs {
		assert.Len(t, fencing.Text(p.older), 20)
		assert.Less(t, fencing.Text(p.older), fencing.Text(p.newer))
	}
	assert.Equal(t, "00000000000000000000", fencing.Text(0))
	assert.Equal(t, "18446744073709551615", fencing.Text(math.MaxUint64))
}

func requireStale(t require.TestingT, err error, token, newest uint64) {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	require.ErrorIs(t, err, fencing.ErrStale)
	var stale *fencing.StaleError
	require.ErrorAs(t, err, &stale)
	require.Equal(t, fencing.StaleError{Token: token, Newest: newest}, *stale)
}

// A model is what every guard must be like.
type model struct{ newest uint64 }

// requireErr checks that err is the right answer to token. It reports whether the token
// is let in, and then counts it as seen.
func (m *model) requireErr(t require.TestingT, token uint64, err error) bool {
	switch {
	case token == 0:
		require.ErrorIs(t, err, fencing.ErrNoToken)
		return false
	case token < m.newest:
		requireStale(t, err, token, m.newest)
		return false
	}
	if !errors.Is(err, errWrite) {
		require.NoError(t, err)
	}
	m.newest = token
	return true
}

// errWrite is the error of a write that fails.
var errWrite = errors.New("the write failed")

// drawToken draws a token, most often one near the newest or near a border.
func (m *model) drawToken(t *rapid.T) uint64 {
	base := rapid.SampledFrom([]uint64{
		0, m.newest, m.newest, m.newest, 10, 100, 1 << 53, math.MaxInt64, math.MaxUint64,
	}).Draw(t, "base")
	step := rapid.Int64Range(-2, 3).Draw(t, "step")
	if rapid.IntRange(0, 9).Draw(t, "any") == 0 {
		return rapid.Uint64().Draw(t, "token")
	}
	return base + uint64(step)
}

// A nil context stands for context.Background(), as in package redsync. Without that, database/sql panics and keeps a
// lock of its own.
//
//nolint:staticcheck // a nil context is what this is about
func TestNilContextIsBackground(t *testing.T) {
	onRedis(t, func(t *testing.T, client *redis.Client) {
		r := fencing.NewRedis(client)
		require.NoError(t, r.Set(nil, "key", "value", 1, 0))
		require.NoError(t, r.Check(nil, "key", 2))
		value, token, err := r.Get(nil, "key")
		require.NoError(t, err)
		require.Equal(t, "value", value)
		require.Equal(t, uint64(2), token)
		require.NoError(t, r.Delete(nil, "key", 3, 0))
	})
	db := sql.OpenDB(&table{rows: map[string]string{}})
	guard := fencing.NewSQLite(db)
	require.NoError(t, guard.Create(nil))
	require.NoError(t, guard.Do(nil, "name", 1, func(tx *sql.Tx) error { return guard.Check(nil, tx, "name", 2) }))
	require.NoError(t, db.Close())
}
