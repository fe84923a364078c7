package fencing_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/fencing"
)

// The tests with real databases are in the module examples/fencing, so that this module does not
// depend on their drivers.
func TestSQLTokenZeroSendsNothing(t *testing.T) {
	for _, guard := range []*fencing.SQL{
		fencing.NewPostgreSQL(nil), fencing.NewSQLite(nil), fencing.NewMySQL(nil),
	} {
		err := guard.Do(t.Context(), "orders:17", 0, nothing)
		require.ErrorIs(t, err, fencing.ErrNoToken)
		require.ErrorIs(t, guard.Check(t.Context(), nil, "orders:17", 0), fencing.ErrNoToken)
		err = guard.Read(t.Context(), "orders:17", 0, nothing)
		require.ErrorIs(t, err, fencing.ErrNoToken)
	}
}

func nothing(*sql.Tx) error { return nil }

// openDB opens a database, which the end of the test closes.
func openDB(t *testing.T, c driver.Connector) *sql.DB {
	t.Helper()
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

var errUnwell = errors.New("the database is unwell")

// An unwell database fails at one place: at BEGIN, at COMMIT, or at statements that begin with the word at.
type unwell struct {
	*table
	at string
}

func (d unwell) Connect(context.Context) (driver.Conn, error) { return d, nil }

func (d unwell) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
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

// If it is not certain that the transaction has raised the token, Do must not write, even though the table has the same
// token already, and Read must not read: an older write could change what it reads.
func TestSQLUnwellDatabaseFails(t *testing.T) {
	for at, says := range map[string]string{
		"BEGIN":  "fencing: begin: ",
		"INSERT": `fencing: raise the token of "orders:17": `,
		"SELECT": `fencing: read the token of "orders:17": `,
		"COMMIT": "fencing: commit: ",
	} {
		db := openDB(t, unwell{&table{rows: map[string]string{"orders:17": fencing.Text(7)}}, at})
		guard, called := fencing.NewSQLite(db), false
		call := func(*sql.Tx) error { called = true; return nil }
		err := guard.Do(t.Context(), "orders:17", 7, call)
		require.ErrorIs(t, err, errUnwell)
		require.ErrorContains(t, err, says)
		require.Equal(t, at == "COMMIT", called, at)
		if at != "COMMIT" { // a Read commits nothing
			err = guard.Read(t.Context(), "orders:17", 7, call)
			require.ErrorIs(t, err, errUnwell)
			require.ErrorContains(t, err, says)
			require.False(t, called, at)
		}
	}
}

// If write fails, Do returns its error, and commits nothing.
func TestSQLFailedWriteIsNotCommitted(t *testing.T) {
	db := openDB(t, unwell{&table{rows: map[string]string{}}, "COMMIT"})
	failed := errors.New("out of stock")
	err := fencing.NewSQLite(db).Do(t.Context(), "orders:17", 7, func(*sql.Tx) error { return failed })
	require.ErrorIs(t, err, failed)
	require.NotErrorIs(t, err, errUnwell)
}

// The function of Read should change nothing. If it does, Read rolls the change back.
func TestSQLReadCommitsNothing(t *testing.T) {
	tokens := &table{rows: map[string]string{}}
	db := openDB(t, tokens)
	require.NoError(t, fencing.NewSQLite(db).Read(t.Context(), "orders:17", 7, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), "WRITE", "by a reader")
		return err
	}))
	require.Empty(t, tokens.data)
}

// All that the function of Read selects is of one point in time, and it can write nothing. SQLite gives every transaction one
// point in time, and its driver may refuse a level.
func TestSQLTransactionOfARead(t *testing.T) {
	for _, c := range []struct {
		of    func(*sql.DB) *fencing.SQL
		level sql.IsolationLevel
	}{
		{fencing.NewPostgreSQL, sql.LevelRepeatableRead},
		{fencing.NewMySQL, sql.LevelRepeatableRead},
		{fencing.NewSQLite, sql.LevelDefault},
	} {
		begun := &begun{table: &table{rows: map[string]string{}}}
		db := openDB(t, begun)
		require.NoError(t, c.of(db).Read(t.Context(), "orders:17", 7, nothing))
		require.Equal(t, driver.TxOptions{Isolation: driver.IsolationLevel(c.level), ReadOnly: true}, begun.options)
		require.NoError(t, c.of(db).Do(t.Context(), "orders:17", 7, nothing))
		require.Zero(t, begun.options, "a Do leaves the level to the database, and writes")
	}
}

// A begun database keeps the options of its last transaction.
type begun struct {
	*table
	options driver.TxOptions
}

func (d *begun) Connect(context.Context) (driver.Conn, error) { return d, nil }

func (d *begun) BeginTx(_ context.Context, options driver.TxOptions) (driver.Tx, error) {
	d.options = options
	return d.table.Begin()
}

// While another process creates the table, PostgreSQL fails. Then the table exists.
func TestSQLCreateTwice(t *testing.T) {
	for _, fails := range []int{1, 2} {
		db := openDB(t, &busy{&table{}, fails})
		err := fencing.NewPostgreSQL(db).Create(t.Context())
		if fails == 1 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, errUnwell)
			require.ErrorContains(t, err, "fencing: create the table: ")
		}
	}
}

// A busy database does not execute its first statements.
type busy struct {
	*table
	fails int
}

func (d *busy) Connect(context.Context) (driver.Conn, error) { return d, nil }

func (d *busy) Prepare(query string) (driver.Stmt, error) {
	if d.fails > 0 {
		d.fails--
		return nil, errUnwell
	}
	return d.table.Prepare(query)
}

// MySQL may cut a long name off. No statement with such a name is sent.
func TestSQLMySQLNameTooLong(t *testing.T) {
	ctx, tokens := t.Context(), &table{rows: map[string]string{}}
	db := openDB(t, tokens)
	guard := fencing.NewMySQL(db)
	long := strings.Repeat("x", 256)
	const says = "fencing: a name of 256 bytes: the table keeps 255"
	require.EqualError(t, guard.Do(ctx, long, 2, nothing), says)
	require.EqualError(t, guard.Read(ctx, long, 2, nothing), says)
	require.Empty(t, tokens.rows)
	require.NoError(t, guard.Do(ctx, long[1:], 2, nothing))
	require.NoError(t, guard.Read(ctx, long[1:], 2, nothing))
}

// In MySQL the column of earlier versions has room for 20 digits. Writes still fit into that
// column. Reads fail until Create has widened it.
func TestSQLMySQLTableOfAnEarlierVersion(t *testing.T) {
	ctx, tokens := t.Context(), &table{rows: map[string]string{"orders:17": fencing.Text(7)}, width: 20}
	db := openDB(t, tokens)
	guard := fencing.NewMySQL(db)
	require.NoError(t, guard.Do(ctx, "orders:17", 8, nothing))
	require.ErrorIs(t, guard.Read(ctx, "orders:17", 9, nothing), errTooLong)
	require.NoError(t, guard.Do(ctx, "orders:17", 8, nothing))

	for range 2 {
		require.NoError(t, guard.Create(ctx))
		require.EqualValues(t, 41, tokens.width)
	}
	require.NoError(t, guard.Read(ctx, "orders:17", 9, nothing))
	requireStale(t, guard.Do(ctx, "orders:17", 8, nothing), 8, 9)
	require.NoError(t, guard.Read(ctx, "orders:17", 8, nothing))

	alterless := openDB(t, unwell{tokens, "ALTER"})
	require.NoError(t, fencing.NewMySQL(alterless).Create(ctx), "a column that is wide enough needs no ALTER, nor the privilege for it")
}

func TestSQLMySQLTableThatCannotBeWidened(t *testing.T) {
	for _, at := range []string{"SELECT", "ALTER"} {
		db := openDB(t, unwell{&table{width: 20}, at})
		err := fencing.NewMySQL(db).Create(t.Context())
		require.ErrorIs(t, err, errUnwell)
		require.ErrorContains(t, err, "fencing: widen the column token of the table: ")
	}
}

// If the table keeps what no guard has written, it is not known which tokens it has seen. So nothing older than that text
// is admitted, and the error does not call the token stale.
func TestSQLTextInPlaceOfAToken(t *testing.T) {
	for _, text := range []string{
		"6", "7", // not of 20 digits: they sort after every token
		"~", "00000000000000000007w00000000000000000003", "0000000000000000000xr00000000000000000003",
		"00000000000000000007r0000000000000000000x", "00000000000000000007r000000000000000000003", strings.Repeat("9", 41),
	} {
		tokens := &table{rows: map[string]string{"orders:17": text}}
		db := openDB(t, tokens)
		guard, never := fencing.NewSQLite(db), func(*sql.Tx) error { t.Error("called"); return nil }
		fails := []error{guard.Do(t.Context(), "orders:17", 7, never)}
		if text != "6" && text != "7" { // Read compares numbers
			fails = append(fails, guard.Read(t.Context(), "orders:17", 7, never))
		}
		for _, err := range fails {
			require.ErrorContains(t, err, fmt.Sprintf("the resource keeps %q in place of a token", text))
			require.NotErrorIs(t, err, fencing.ErrStale)
		}
		require.Equal(t, text, tokens.rows["orders:17"])
	}
}

// Outside its strict mode MySQL cuts off what does not fit into a column. Then Read must fail,
// because the token of the reader is not in the table.
func TestSQLColumnThatCutsTheTextOff(t *testing.T) {
	ctx, tokens := t.Context(), &table{rows: map[string]string{"orders:17": fencing.Text(7)}, width: 20, cuts: true}
	db := openDB(t, tokens)
	guard := fencing.NewMySQL(db)
	err := guard.Read(ctx, "orders:17", 9, func(*sql.Tx) error { t.Error("called"); return nil })
	require.EqualError(t, err, `fencing: the table keeps "00000000000000000008" of the token 9: has Create made the column wide enough?`)
	require.NoError(t, guard.Do(ctx, "orders:17", 9, nothing))
}
