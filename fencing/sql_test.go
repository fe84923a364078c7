package fencing_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/fencing"
)

// The tests with databases are in examples/fencing, because of the drivers.
func TestSQLTokenZeroSendsNothing(t *testing.T) {
	for _, guard := range []*fencing.SQL{
		fencing.NewPostgreSQL(nil), fencing.NewSQLite(nil), fencing.NewMySQL(nil),
	} {
		err := guard.Do(t.Context(), "orders:17", 0, func(*sql.Tx) error { return nil })
		require.ErrorIs(t, err, fencing.ErrNoToken)
		require.ErrorIs(t, guard.Check(t.Context(), nil, "orders:17", 0), fencing.ErrNoToken)
	}
}
