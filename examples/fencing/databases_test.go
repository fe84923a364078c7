package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed14bd9ef4/redsync/fencing"
)

// Environment variables with the data source names of servers to test with. The tests
// leave tables named fencing_tokens and fencing_test there.
const (
	envPostgreSQL = "FENCING_POSTGRES" // postgres://user@host/database
	envMySQL      = "FENCING_MYSQL"    // user@tcp(host:3306)/database
)

// A database is one that fencing.SQL supports, with a table for the tests: id is the
// name of a resource, state its data, fence a token in a column of its own.
type database struct {
	*fencing.SQL
	db *sql.DB
	// The arguments of insert are id, state and fence, those of update are state, fence, id and fence. The others
	// take id.
	insert, update, selectState, selectFence string
}

// onDatabases runs f on an SQLite file, and on the servers that the environment variables name.
func onDatabases(t *testing.T, f func(t *testing.T, d *database)) {
	t.Helper()
	const table = `CREATE TABLE IF NOT EXISTS fencing_test (id %s PRIMARY KEY, state VARCHAR(100) NOT NULL, fence %s NOT NULL)`
	t.Run("SQLite", func(t *testing.T) {
		db, err := openSQLite(filepath.Join(t.TempDir(), "test.db"))
		require.NoError(t, err)
		f(t, newDatabase(t, db, fencing.NewSQLite(db), fmt.Sprintf(table, "TEXT", "TEXT")))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		db := openServer(t, "pgx", envPostgreSQL)
		d := newDatabase(t, db, fencing.NewPostgreSQL(db), fmt.Sprintf(table, "TEXT", `TEXT COLLATE "C"`))
		for _, query := range []*string{&d.insert, &d.update, &d.selectState, &d.selectFence} {
			*query = numbered(*query)
		}
		f(t, d)
	})
	t.Run("MySQL", func(t *testing.T) {
		db := openServer(t, "mysql", envMySQL)
		f(t, newDatabase(t, db, fencing.NewMySQL(db),
			fmt.Sprintf(table, "VARBINARY(255)", "CHAR(20) CHARACTER SET ascii")))
	})
}

func newDatabase(t *testing.T, db *sql.DB, guard *fencing.SQL, table string) *database {
	t.Helper()
	t.Cleanup(func() { _ = db.Close() })
	for range 2 { // Create must accept a table that exists
		require.NoError(t, guard.Create(t.Context()))
	}
	_, err := db.ExecContext(t.Context(), table)
	require.NoError(t, err)
	return &database{
		SQL:         guard,
		db:          db,
		insert:      `INSERT INTO fencing_test (id, state, fence) VALUES (?, ?, ?)`,
		update:      `UPDATE fencing_test SET state = ?, fence = ? WHERE id = ? AND fence <= ?`,
		selectState: `SELECT state FROM fencing_test WHERE id = ?`,
		selectFence: `SELECT fence FROM fencing_test WHERE id = ?`,
	}
}

func openServer(t *testing.T, driver, env string) *sql.DB {
	t.Helper()
	dsn := os.Getenv(env)
	if dsn == "" {
		t.Skipf("%s is not set", env)
	}
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	return db
}

// numbered replaces each ? by $1, $2 and so on.
func numbered(query string) string {
	var b strings.Builder
	for i, part := range strings.Split(query, "?") {
		if i > 0 {
			fmt.Fprintf(&b, "$%d", i)
		}
		b.WriteString(part)
	}
	return b.String()
}

// newResource inserts a resource with the state "new" and the fence 0, and returns its
// name.
func (d *database) newResource(t require.TestingT) string {
	id := rand.Text()
	_, err := d.db.ExecContext(context.Background(), d.insert, id, "new", fencing.Text(0))
	require.NoError(t, err)
	return id
}

// save returns a function for Do that sets the state of id.
func (d *database) save(ctx context.Context, id, state string) func(*sql.Tx) error {
	return func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, d.update, state, fencing.Text(0), id, fencing.Text(0))
		return err
	}
}

func (d *database) state(t require.TestingT, id string) (state string) {
	require.NoError(t, d.db.QueryRowContext(context.Background(), d.selectState, id).Scan(&state))
	return state
}

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

func requireStale(t require.TestingT, err error, token, newest uint64) {
	var stale *fencing.StaleError
	require.ErrorAs(t, err, &stale)
	require.Equal(t, fencing.StaleError{Token: token, Newest: newest}, *stale)
}

func TestSQLOlderEqualNewer(t *testing.T) {
	onDatabases(t, func(t *testing.T, d *database) {
		for _, p := range pairs {
			ctx, id := t.Context(), d.newResource(t)
			require.NoError(t, d.Do(ctx, id, p.older, d.save(ctx, id, "older")))
			require.NoError(t, d.Do(ctx, id, p.newer, d.save(ctx, id, "newer")))
			require.NoError(t, d.Do(ctx, id, p.newer, d.save(ctx, id, "newer again")))
			requireStale(t, d.Do(ctx, id, p.older, func(*sql.Tx) error {
				assert.Fail(t, "Do called a write whose token is stale")
				return nil
			}), p.older, p.newer)
			require.NoError(t, d.Do(ctx, id, p.newer, d.save(ctx, id, "newer once more")))
			assert.Equal(t, "newer once more", d.state(t, id))
			require.ErrorIs(t, d.Do(ctx, id, 0, d.save(ctx, id, "none")), fencing.ErrNoToken)
		}
	})
}

var errWrite = errors.New("the write failed")

func TestSQLFailedWriteChangesNothing(t *testing.T) {
	onDatabases(t, func(t *testing.T, d *database) {
		ctx, id := t.Context(), d.newResource(t)
		fail := func(tx *sql.Tx) error { return errors.Join(d.save(ctx, id, "failed")(tx), errWrite) }
		err := d.Do(ctx, id, 2, fail)
		require.ErrorIs(t, err, errWrite)
		assert.Equal(t, "new", d.state(t, id))
		require.NoError(t, d.Do(ctx, id, 1, d.save(ctx, id, "saved")), "no write with a newer token has succeeded")
		assert.Equal(t, "saved", d.state(t, id))
	})
}

func TestSQLPanicEndsTheTransaction(t *testing.T) {
	onDatabases(t, func(t *testing.T, d *database) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		id := d.newResource(t)
		require.Panics(t, func() { _ = d.Do(ctx, id, 2, func(*sql.Tx) error { panic("write") }) })
		require.NoError(t, d.Do(ctx, id, 1, d.save(ctx, id, "saved")))
	})
}

func TestSQLContextEndsBeforeTheCommit(t *testing.T) {
	onDatabases(t, func(t *testing.T, d *database) {
		ctx, cancel := context.WithCancel(t.Context())
		id := d.newResource(t)
		err := d.Do(ctx, id, 2, func(tx *sql.Tx) error {
			defer cancel()
			return d.save(ctx, id, "failed")(tx)
		})
		require.ErrorContains(t, err, "fencing: commit: ")
		assert.Equal(t, "new", d.state(t, id))
		require.ErrorIs(t, d.Do(ctx, id, 2, d.save(ctx, id, "failed")), context.Canceled)
	})
}

func TestSQLNamesAreSeparate(t *testing.T) {
	onDatabases(t, func(t *testing.T, d *database) {
		ctx, id := t.Context(), d.newResource(t)
		nothing := func(*sql.Tx) error { return nil }
		for i, name := range []string{"x", "X", "x ", "", "ü", "u"} {
			token := uint64(10 - i) // falling, so the guard would refuse it if it confused this name with an earlier one
			require.NoError(t, d.Do(ctx, id+name, token, nothing), "%q", name)
		}
	})
}

func TestSQLNoTable(t *testing.T) {
	db, err := openSQLite(filepath.Join(t.TempDir(), "test.db"))
	require.NoError(t, err)
	defer db.Close()
	err = fencing.NewSQLite(db).Do(t.Context(), "x", 1, func(*sql.Tx) error { return nil })
	require.ErrorContains(t, err, `fencing: raise the token of "x": `)
	require.ErrorContains(t, err, "no such table: fencing_tokens")
}

func TestSQLTokensSurviveTheProcess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "test.db")
	nothing := func(*sql.Tx) error { return nil }
	for i, token := range []uint64{2, 2, 3} {
		db, err := openSQLite(file)
		require.NoError(t, err)
		guard := fencing.NewSQLite(db)
		require.NoError(t, guard.Create(t.Context()))
		require.NoError(t, guard.Do(t.Context(), "x", token, nothing))
		if i > 0 {
			requireStale(t, guard.Do(t.Context(), "x", 1, nothing), 1, token)
		}
		require.NoError(t, db.Close())
	}
}

// TestSQLManyWriters lets many writers save their tokens. At the end the state must be the
// greatest token that was admitted.
func TestSQLManyWriters(t *testing.T) {
	onDatabases(t, func(t *testing.T, d *database) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		id := d.newResource(t)
		var mu sync.Mutex
		var greatest uint64
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 25 {
					token := math.MaxUint64 - mathrand.Uint64N(100)
					err := d.Do(ctx, id, token, d.save(ctx, id, fencing.Text(token)))
					if err != nil {
						assert.ErrorIs(t, err, fencing.ErrStale)
						continue
					}
					mu.Lock()
					greatest = max(greatest, token)
					mu.Unlock()
				}
			})
		}
		all.Wait()
		assert.Equal(t, fencing.Text(greatest), d.state(t, id))
	})
}

// TestSQLCheckInATransactionThatHasAnOldSnapshot: a transaction reads before its Check,
// against the advice, and a newer holder writes in between. The database or the guard must
// refuse the transaction even so.
func TestSQLCheckInATransactionThatHasAnOldSnapshot(t *testing.T) {
	onDatabases(t, func(t *testing.T, d *database) {
		ctx, id := t.Context(), d.newResource(t)
		require.NoError(t, d.Do(ctx, id, 1, d.save(ctx, id, "old")))
		tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: snapshotOf(t)})
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		var state string
		require.NoError(t, tx.QueryRowContext(ctx, d.selectState, id).Scan(&state))
		require.NoError(t, d.Do(ctx, id, 2, d.save(ctx, id, "newer")))
		require.Error(t, d.Check(ctx, tx, id, 1))
		require.NoError(t, tx.Rollback())
		assert.Equal(t, "newer", d.state(t, id))
	})
}

// snapshotOf returns the isolation level in which all reads of a transaction see the same
// snapshot. SQLite has no other level.
func snapshotOf(t *testing.T) sql.IsolationLevel {
	t.Helper()
	if strings.HasSuffix(t.Name(), "SQLite") {
		return sql.LevelDefault
	}
	return sql.LevelRepeatableRead
}

// TestColumnOfYourOwn tests the statement that the doc of fencing.SQL gives.
func TestColumnOfYourOwn(t *testing.T) {
	onDatabases(t, func(t *testing.T, d *database) {
		for _, p := range pairs {
			ctx, id := t.Context(), d.newResource(t)
			save := func(state string, token uint64) error {
				text := fencing.Text(token)
				result, err := d.db.ExecContext(ctx, d.update, state, text, id, text)
				if err != nil {
					return err
				}
				if rows, err := result.RowsAffected(); err != nil || rows > 0 {
					return err
				}
				var newest string
				if err := d.db.QueryRowContext(ctx, d.selectFence, id).Scan(&newest); err != nil {
					return err // sql.ErrNoRows: there is no such order
				}
				n, err := strconv.ParseUint(newest, 10, 64)
				if err != nil {
					return err
				}
				return fencing.Admit(token, n)
			}
			require.NoError(t, save("older", p.older))
			require.NoError(t, save("newer", p.newer))
			require.NoError(t, save("newer again", p.newer))
			requireStale(t, save("paused", p.older), p.older, p.newer)
			assert.Equal(t, "newer again", d.state(t, id))
		}
	})
}

func TestSQLLikeTheModel(t *testing.T) {
	onDatabases(t, func(t *testing.T, d *database) {
		ctx := t.Context()
		rapid.Check(t, func(t *rapid.T) {
			id := d.newResource(t)
			var write, read uint64 // the highest token of a write, and of a read
			state := "new"
			for i := range rapid.IntRange(1, 10).Draw(t, "calls") {
				newest := max(write, read)
				base := rapid.SampledFrom([]uint64{newest, newest, write, read, 10, math.MaxInt64, math.MaxUint64}).Draw(t, "base")
				token := base + uint64(rapid.Int64Range(-2, 3).Draw(t, "step"))
				if rapid.Bool().Draw(t, "read") {
					switch {
					case token == 0:
						require.ErrorIs(t, d.Read(ctx, id, token, nil), fencing.ErrNoToken)
					case token < write:
						d.requireUnread(t, id, token, write)
					default:
						d.requireRead(t, id, token, state)
						read = max(read, token)
					}
					continue
				}
				fails := rapid.IntRange(0, 3).Draw(t, "fails") == 0
				next := fmt.Sprint("state ", i)
				err := d.Do(ctx, id, token, func(tx *sql.Tx) error {
					if err := d.save(ctx, id, next)(tx); err != nil || !fails {
						return err
					}
					return errWrite
				})
				switch {
				case token == 0:
					require.ErrorIs(t, err, fencing.ErrNoToken)
				case token < newest:
					requireStale(t, err, token, newest)
				case fails:
					require.ErrorIs(t, err, errWrite)
				default:
					require.NoError(t, err)
					write, state = token, next
				}
				require.Equal(t, state, d.state(t, id))
			}
		})
	})
}
