package fencing_test

import (
	"database/sql"
	"errors"
	"math"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/seed14bd9ef4/redsync/fencing"
)

func TestMain(m *testing.M) {
	logging.Disable()
	goleak.VerifyTestMain(m, goleak.Cleanup(os.Exit))
}

// pairs are tokens that a wrong comparison would put in the wrong order: one of texts of different
// lengths, of floats, of signed numbers or of bytes.
var pairs = []struct{ older, newer uint64 }{
	{1, 2},
	{9, 10},
	{1 << 53, 1<<53 + 1},
	{1_763_000_000_000_000, 1_763_000_000_000_001},
	{math.MaxInt64, math.MaxInt64 + 1},
	{9_999_999_999_999_999_999, 10_000_000_000_000_000_000},
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

func requireStale(t require.TestingT, err error, token, newest uint64) {
	require.ErrorIs(t, err, fencing.ErrStale)
	var stale *fencing.StaleError
	require.ErrorAs(t, err, &stale)
	require.Equal(t, fencing.StaleError{Token: token, Newest: newest}, *stale)
}

// A model says what every guard must do. It has two marks: the highest token of a write and the
// highest token of a read.
type model struct{ write, read uint64 }

func (m *model) newest() uint64 { return max(m.write, m.read) }

// requireErr checks that err is the right answer to a write with token. It reports whether the
// token must be admitted. If so, it raises the mark of writes to token.
func (m *model) requireErr(t require.TestingT, token uint64, err error) bool {
	if !requireAnswer(t, token, m.newest(), err) {
		return false
	}
	m.write = token
	return true
}

// requireReadErr does the same for a read, and raises the mark of reads.
func (m *model) requireReadErr(t require.TestingT, token uint64, err error) bool {
	if !requireAnswer(t, token, m.write, err) {
		return false
	}
	m.read = max(m.read, token)
	return true
}

// requireAnswer checks that err is the right answer to token if only tokens from mark on are
// admitted. It reports whether token is admitted.
func requireAnswer(t require.TestingT, token, mark uint64, err error) bool {
	switch {
	case token == 0:
		require.ErrorIs(t, err, fencing.ErrNoToken)
		return false
	case token < mark:
		requireStale(t, err, token, mark)
		return false
	}
	if !errors.Is(err, errWrite) {
		require.NoError(t, err)
	}
	return true
}

// errWrite is the error of a write that fails.
var errWrite = errors.New("the write failed")

// drawToken draws a token, most often one near the newest or near a border.
func (m *model) drawToken(t *rapid.T) uint64 {
	base := rapid.SampledFrom([]uint64{
		0, m.newest(), m.newest(), m.write, m.read, 10, 100, 1 << 53, math.MaxInt64, math.MaxUint64,
	}).Draw(t, "base")
	step := rapid.Int64Range(-2, 3).Draw(t, "step")
	if rapid.IntRange(0, 9).Draw(t, "any") == 0 {
		return rapid.Uint64().Draw(t, "token")
	}
	return base + uint64(step)
}

// A nil context stands for context.Background(), as in package redsync. If the guard passed nil on, database/sql
// would panic and leave one of its mutexes locked.
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
		_, err = r.Read(nil, "key", 3, 0)
		require.NoError(t, err)
		require.NoError(t, r.Delete(nil, "key", 3, 0))
	})
	guard := fencing.NewSQLite(openDB(t, &table{rows: map[string]string{}}))
	require.NoError(t, guard.Create(nil))
	require.NoError(t, guard.Do(nil, "name", 1, func(tx *sql.Tx) error { return guard.Check(nil, tx, "name", 2) }))
	require.NoError(t, guard.Read(nil, "name", 3, nothing))
}
