package fencing_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
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

var errUnwell = errors.New("the database is unwell")

// An unwell database fails at BEGIN, at COMMIT, or at statements that begin with a word.
type unwell struct {
	*table
	at string
}

func (d unwell) Connect(context.Context) (driver.Conn, error) { return d, nil }

func (d unwell) Begin() (driver.Tx, error) {
	if d.at == "BEGIN" {
		return nil, errUnwell
	}
	_, _ = d.table.Begin()
	return d, nil
}

func (d unwell) Prepare(query string) (driver.Stmt, error) {
	if strings.HasPrefix(query, d.at) {
		return nil, errUnwell
	}
	return d.table.Prepare(query)
}

func (d unwell) Commit() error {
	if d.at == "COMMIT" {
		return errUnwell
	}
	return d.table.Commit()
}

// Nothing is written in a transaction in which the token may not have been raised, although
// the table has the same token already.
func TestSQLUnwellDatabaseFailsDo(t *testing.T) {
	for at, want := range map[string]struct {
		says   string
		writes bool
	}{
		"BEGIN":  {"fencing: begin: ", false},
		"INSERT": {`fencing: raise the token of "orders:17": `, false},
		"SELECT": {`fencing: read the token of "orders:17": `, false},
		"COMMIT": {"fencing: commit: ", true},
	} {
		t.Run(at, func(t *testing.T) {
			db := sql.OpenDB(unwell{&table{rows: map[string]string{"orders:17": fencing.Text(7)}}, at})
			defer func() { _ = db.Close() }()
			writes := false
			err := fencing.NewSQLite(db).Do(t.Context(), "orders:17", 7, func(*sql.Tx) error {
				writes = true
				return nil
			})
			require.ErrorIs(t, err, errUnwell)
			require.ErrorContains(t, err, want.says)
			require.Equal(t, want.writes, writes)
		})
	}
}
