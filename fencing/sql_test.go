package fencing_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/fencing"
	"github.com/seed14bd9ef4/redsync/internal/testkit/clocktest"
)

// The tests with real databases are in examples/fencing, so that this module does not
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
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// If it is not certain that the transaction has raised the token, Do must not write, even though the table has the same
// token already, and Read must not read: an older write could change what it reads.
func TestSQLUnwellDatabaseFails(t *testing.T) {
	for at, says := range map[string]string{
		"BEGIN":  "fencing: begin: ",
		"PRAGMA": "fencing: begin: ",
		"INSERT": `fencing: raise the token of "orders:17": `,
		"SELECT": `fencing: read the token of "orders:17": `,
		"COMMIT": "fencing: commit: ",
	} {
		db, called := openDB(t, &table{rows: map[string]string{"orders:17": fencing.Text(7)}, at: at}), false
		guard := fencing.NewSQLite(db)
		call := func(*sql.Tx) error { called = true; return nil }
		err := guard.Do(t.Context(), "orders:17", 7, call)
		require.ErrorIs(t, err, errUnwell)
		require.ErrorContains(t, err, says)
		require.Equal(t, at == "COMMIT", called, at)
		require.Zero(t, db.Stats().InUse)
		if at != "COMMIT" && at != "PRAGMA" { // a Read commits nothing
			err = guard.Read(t.Context(), "orders:17", 7, call)
			require.ErrorIs(t, err, errUnwell)
			require.ErrorContains(t, err, says)
			require.False(t, called, at)
		}
	}
}

// If write fails, Do returns its error, and commits nothing.
func TestSQLFailedWriteIsNotCommitted(t *testing.T) {
	db := openDB(t, &table{rows: map[string]string{}, at: "COMMIT"})
	for failed, bound := range map[error]bool{errors.New("out of stock"): false, stateError("25P03"): true} { // it was idle
		err := fencing.NewSQLite(db).Do(t.Context(), "orders:17", 7, func(*sql.Tx) error { return failed })
		require.ErrorIs(t, err, failed)
		require.Equal(t, bound, errors.Is(err, fencing.ErrBound))
		require.NotErrorIs(t, err, errUnwell)
	}
}

// The function of Read should change nothing. If it does, Read rolls the change back.
func TestSQLReadCommitsNothing(t *testing.T) {
	tokens := &table{rows: map[string]string{}}
	require.NoError(t, fencing.NewSQLite(openDB(t, tokens)).Read(t.Context(), "orders:17", 7, func(tx *sql.Tx) error {
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
		tokens := &table{rows: map[string]string{}}
		db := openDB(t, tokens)
		require.NoError(t, c.of(db).Read(t.Context(), "orders:17", 7, nothing))
		require.Equal(t, driver.TxOptions{Isolation: driver.IsolationLevel(c.level), ReadOnly: true}, tokens.begun)
		require.NoError(t, c.of(db).Do(t.Context(), "orders:17", 7, nothing))
		require.Zero(t, tokens.begun) // a Do leaves the level to the database, and writes
	}
}

// While another process creates the table, PostgreSQL fails. Then the table exists.
func TestSQLCreateTwice(t *testing.T) {
	for _, fails := range []int{1, 2} {
		err := fencing.NewPostgreSQL(openDB(t, &table{fails: fails})).Create(t.Context())
		if fails == 1 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, errUnwell)
			require.ErrorContains(t, err, "fencing: create the table: ")
		}
	}
}

// MySQL may cut a long name off. No statement with such a name is sent.
func TestSQLMySQLNameTooLong(t *testing.T) {
	ctx, tokens := t.Context(), &table{rows: map[string]string{}}
	guard := fencing.NewMySQL(openDB(t, tokens))
	long := strings.Repeat("x", 256)
	const says = "fencing: a name of 256 bytes: the table keeps 255"
	require.EqualError(t, guard.Do(ctx, long, 2, nothing), says)
	require.EqualError(t, guard.Read(ctx, long, 2, nothing), says)
	require.EqualError(t, guard.Check(ctx, nil, long, 2), says)
	require.Empty(t, tokens.rows)
	require.NoError(t, guard.Do(ctx, long[1:], 2, nothing))
	require.NoError(t, guard.Read(ctx, long[1:], 2, nothing))
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
		guard, never := fencing.NewSQLite(openDB(t, tokens)), func(*sql.Tx) error { t.Error("called"); return nil }
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

// A migration has made the column too narrow. Outside its strict mode MySQL cuts off what does not fit. Then Read must fail, because
// the token of the reader is not in the table.
func TestSQLColumnThatCutsTheTextOff(t *testing.T) {
	ctx, tokens := t.Context(), &table{rows: map[string]string{"orders:17": fencing.Text(7)}, width: 20}
	guard := fencing.NewMySQL(openDB(t, tokens))
	err := guard.Read(ctx, "orders:17", 9, func(*sql.Tx) error { t.Error("called"); return nil })
	require.EqualError(t, err, `fencing: the table keeps "00000000000000000008" of the token 9: is the column wide enough?`)
	require.NoError(t, guard.Do(ctx, "orders:17", 9, nothing))
}

// A transaction takes less than its bound, or is rolled back, also by a process that has slept through it.
func TestSQLBound(t *testing.T) {
	const never = -1
	for name, c := range map[string]struct {
		within, deadline time.Duration // 0: the default, none
		takes, suspended time.Duration
		says             string
	}{
		"in time":                   {takes: fencing.DefaultBound - 1},
		"too long":                  {takes: fencing.DefaultBound, says: "of 8s"},
		"more than by default":      {within: time.Hour, takes: time.Hour - 1},
		"less than by default":      {within: 1500 * time.Millisecond, takes: 1500 * time.Millisecond, says: "of 1.5s"},
		"no bound":                  {within: never, takes: 24 * time.Hour},
		"deadline":                  {deadline: 3 * time.Second, takes: 3 * time.Second, says: "of 3s: context deadline exceeded"},
		"deadline and no bound":     {within: never, deadline: time.Hour, takes: time.Hour, says: "of 1h0m0s: context deadline exceeded"},
		"deadline after the bound":  {deadline: time.Hour, takes: fencing.DefaultBound, says: "of 8s"},
		"the machine was suspended": {suspended: fencing.DefaultBound, says: "of 8s"},
		"suspended, no bound":       {within: never, suspended: fencing.DefaultBound},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wall, tokens := clocktest.StepWall(t), &table{rows: map[string]string{}}
				guard, ctx := fencing.NewSQLite(openDB(t, tokens)), t.Context()
				if c.within != 0 {
					guard = guard.Within(c.within)
				}
				if c.deadline > 0 {
					var cancel func()
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				for _, fails := range []error{nil, errWrite} {
					err := guard.Do(ctx, "orders:17", 7, func(*sql.Tx) error {
						time.Sleep(c.takes)
						wall.Step(c.suspended)
						return fails
					})
					if c.says == "" {
						require.Equal(t, fails, err)
						continue
					}
					require.ErrorIs(t, err, fencing.ErrBound)
					says := "fencing: the transaction took longer than its bound " + c.says
					if fails != nil {
						says += ": " + fails.Error()
					}
					require.EqualError(t, err, says)
					require.Empty(t, tokens.rows)
					if c.deadline > 0 {
						return // ctx has ended
					}
					require.Equal(t, fails != nil, errors.Is(err, errWrite))
				}
			})
		})
	}
}

// A connection whose session cannot be restored is not used again.
func TestSQLSessionNotRestored(t *testing.T) {
	tokens := &table{rows: map[string]string{}}
	db := openDB(t, tokens)
	guard := fencing.NewSQLite(db)
	require.NoError(t, guard.Do(t.Context(), "orders:17", 7, nothing))
	require.Zero(t, tokens.closed)
	require.NoError(t, guard.Do(t.Context(), "orders:17", 7, func(*sql.Tx) error { tokens.at = "PRAGMA"; return nil }))
	require.Equal(t, 1, tokens.closed)
	require.ErrorContains(t, guard.Do(t.Context(), "orders:17", 7, nothing), "fencing: begin: ")
	require.NoError(t, db.Close())
	require.EqualError(t, guard.Do(t.Context(), "orders:17", 7, nothing), "fencing: begin: sql: database is closed")
}

// A connection that has ended meanwhile costs another try. Do gives up once it has tried more connections than the pool had.
func TestSQLConnectionsThatHaveEnded(t *testing.T) {
	for fails, want := range map[int]error{1: nil, 2: driver.ErrBadConn} {
		tokens := &table{rows: map[string]string{}, how: driver.ErrBadConn}
		guard := fencing.NewSQLite(openDB(t, tokens))
		require.NoError(t, guard.Do(t.Context(), "orders:17", 7, nothing))
		tokens.fails = fails
		require.ErrorIs(t, guard.Do(t.Context(), "orders:17", 7, nothing), want)
	}
}

type stateError string

func (e stateError) Error() string    { return "SQLSTATE " + string(e) }
func (e stateError) SQLState() string { return string(e) }

func TestRepeatable(t *testing.T) {
	for err, want := range map[error]bool{
		stateError("40001"): true, stateError("40P01"): true, stateError("55P03"): true, stateError("25P03"): false,
		stateError("23505: database is locked"):                                          false,
		errors.New("Error 1213 (40001): Deadlock found when trying to get lock"):         true,
		errors.New("Error 1205: Lock wait timeout exceeded; try restarting transaction"): true,
		errors.New("Error 1020 (HY000): Record has changed since last read"):             true,
		errors.New("Error 1062 (23000): Duplicate entry '1213' for key 'PRIMARY'"):       false,
		errors.New("database is locked (5) (SQLITE_BUSY)"):                               true,
		errors.New("database is locked"):                                                 true,
		fmt.Errorf("%w: %w", fencing.ErrBound, stateError("40001")):                      false,
		&fencing.StaleError{Token: 1, Newest: 2}:                                         false,
		fencing.ErrNoToken:                                                               false,
	} {
		require.Equal(t, want, fencing.Repeatable(fmt.Errorf("fencing: commit: %w", err)), err)
	}
	require.False(t, fencing.Repeatable(nil))
}

// Repeat ends with success, with an error that is not to be repeated, or with the context.
func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := stateError("40001")
		for _, last := range []error{nil, errWrite} {
			calls := 0
			require.Equal(t, last, fencing.Repeat(t.Context(), func() error {
				if calls++; calls < 100 {
					return busy
				}
				return last
			}))
			require.Equal(t, 100, calls)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		calls := 0
		require.Equal(t, busy, fencing.Repeat(ctx, func() error { calls++; return busy }))
		require.Error(t, ctx.Err())
		require.Greater(t, calls, 600) // at least one in 100 ms
	})
}
