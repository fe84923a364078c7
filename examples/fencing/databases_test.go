package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig/rigtest"
	"github.com/seed14bd9ef4/redsync/fencing"
)

// The kinds of databases that fencing.SQL supports. kindMySQL is MariaDB.
const (
	kindSQLite     = "SQLite"
	kindPostgreSQL = "PostgreSQL"
	kindMySQL      = "MySQL"
)

// A database is one that fencing.SQL supports, with the table of the tokens and a table for the tests: id is the name
// of a resource, state its data.
type database struct {
	*testing.T
	to  require.TestingT // what is told of failures: T, or a test of rapid inside it
	ctx context.Context  //nolint:containedctx // of the test
	id  string           // of a resource with the state "new"
	*fencing.SQL
	db   *sql.DB
	kind string
	// again opens the database with other settings. In SQLite they have no effect.
	again           func(t *testing.T, s session) *sql.DB
	address, server string // for another process: the data source name, and the host and port in it
}

// guards makes guards of each kind.
var guards = map[string]func(*sql.DB) *fencing.SQL{
	kindPostgreSQL: fencing.NewPostgreSQL, kindMySQL: fencing.NewMySQL, kindSQLite: fencing.NewSQLite,
}

// onDatabases runs f on an SQLite file and on the servers.
func onDatabases(t *testing.T, f func(d *database)) {
	t.Run(kindSQLite, func(t *testing.T) {
		f(empty(t, kindSQLite, session{}).create())
	})
	onServers(t, f)
}

// onServers runs f on PostgreSQL and MariaDB, each as the driver connects by default and without prepared statements.
func onServers(t *testing.T, f func(d *database)) {
	for _, kind := range []string{kindPostgreSQL, kindMySQL} {
		for name, s := range map[string]session{kind: {}, kind + ", plain": {plain: true}} {
			t.Run(name, func(t *testing.T) {
				f(empty(t, kind, s).create())
			})
		}
	}
}

// empty returns a database of its own for the test, without tables.
func empty(t *testing.T, kind string, s session) *database {
	d := &database{T: t, to: t, ctx: rigtest.Bounded(t), kind: kind}
	if kind == kindSQLite {
		file := filepath.Join(t.TempDir(), "test.db")
		d.address = sqliteAddress(file)
		d.again = func(t *testing.T, _ session) *sql.DB {
			db, err := openSQLite(file)
			require.NoError(t, err)
			t.Cleanup(func() { db.Close() })
			return db
		}
	} else {
		p := newPlace(t, kind)
		d.again = p.open
		d.address, d.server = p.address()
	}
	return d.as(s)
}

// as returns the same database in another session.
func (d *database) as(s session) *database {
	other := *d
	other.db = d.again(d.T, s)
	// On a slow machine a test may take longer than the default.
	other.SQL = guards[d.kind](other.db).Within(time.Minute)
	return &other
}

// on returns the database for a part of the test.
func (d *database) on(t require.TestingT) *database {
	part := *d
	part.to, part.ctx = t, d.Context()
	part.id = part.newResource()
	return &part
}

// create creates the tables.
func (d *database) create() *database {
	d.createShown()
	require.NoError(d, d.Create(d.Context())) // it must accept a table that exists
	id := "TEXT"
	if d.kind == kindMySQL {
		id = "VARBINARY(255)"
	}
	d.exec(`CREATE TABLE fencing_test (id ` + id + ` PRIMARY KEY, state VARCHAR(100) NOT NULL)`)
	d.id = d.newResource()
	return d
}

// query returns the text of a query with ? for its arguments, as the database has it.
func (d *database) query(text string) string {
	if d.kind == kindPostgreSQL {
		return numbered(text)
	}
	return text
}

// exec executes a statement, which must succeed, and returns how many rows it affects.
func (d *database) exec(query string, args ...any) int64 {
	result, err := d.db.ExecContext(context.Background(), d.query(query), args...)
	require.NoError(d.to, err, query)
	rows, err := result.RowsAffected()
	require.NoError(d.to, err)
	return rows
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

// do and read are Do and Read of the resource.
func (d *database) do(token uint64, write func(*sql.Tx) error) error {
	return d.Do(d.ctx, d.id, token, write)
}

func (d *database) read(token uint64, read func(*sql.Tx) error) error {
	return d.Read(d.ctx, d.id, token, read)
}

// newResource inserts a resource with the state "new", and returns its name.
func (d *database) newResource() string {
	id := rand.Text()
	d.exec(`INSERT INTO fencing_test (id, state) VALUES (?, 'new')`, id)
	return id
}

// save returns a function for Do that sets the state of id.
func (d *database) save(state string) func(*sql.Tx) error {
	return func(tx *sql.Tx) error {
		_, err := tx.ExecContext(d.ctx, d.query(`UPDATE fencing_test SET state = ? WHERE id = ?`), state, d.id)
		return err
	}
}

// write saves a state with a token.
func (d *database) write(token uint64, state string) error {
	return d.do(token, d.save(state))
}

const selectState = `SELECT state FROM fencing_test WHERE id = ?`

func (d *database) state() (state string) {
	require.NoError(d.to, d.db.QueryRowContext(context.Background(), d.query(selectState), d.id).Scan(&state))
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

func nothing(*sql.Tx) error { return nil }

var errWrite = errors.New("the write failed")

func TestSQLContextEndsBeforeTheCommit(t *testing.T) {
	onDatabases(t, func(d *database) {
		var cancel func()
		d.ctx, cancel = context.WithCancel(d.ctx)
		err := d.do(2, func(tx *sql.Tx) error {
			defer cancel()
			return d.save("failed")(tx)
		})
		require.ErrorContains(d, err, "fencing: commit: ")
		assert.Equal(d, "new", d.state())
		require.ErrorIs(d, d.write(2, "failed"), context.Canceled)
	})
}

// The names are such that collations take some of them for others, and that quotation may go wrong.
func TestSQLNamesAreSeparate(t *testing.T) {
	names := []string{
		"x", "X", "x ", " x", "x\t", "x\n", "", " ", "ü", "u", "u\u0308", "Ü", "ß", "ss", "ı", "i", "\u200bx", "日本", "😀", "😁",
		`'`, `''`, `"`, "`", `\`, `\\`, `\'`, "%", "_", "?", "$1", "--", ";", "1", "01", "1.0", "1e0", "NULL",
		strings.Repeat("ü", 127) + "x", strings.Repeat("ü", 127) + "X", strings.Repeat("x", 254) + " ", strings.Repeat("x", 255),
	}
	onDatabases(t, func(d *database) {
		names := names
		if d.kind != kindPostgreSQL { // there a text has neither
			names = append(slices.Clip(names), "x\x00", "\x00", "\xff", "\xfe", "\xc3", "\xc3(")
		}
		for i, name := range names {
			token := uint64(1000 - i) // falling, so the guard would refuse it if it confused this name with an earlier one
			require.NoError(d, d.Do(d.ctx, name, token, nothing), name)
		}
		for i, name := range names {
			token := uint64(1000 - i)
			requireStale(d, d.Do(d.ctx, name, token-1, nothing), token-1, token)
			require.NoError(d, d.Read(d.ctx, name, token, nothing), name)
		}
		if d.kind == kindPostgreSQL {
			for _, name := range []string{"x\x00", "\xff"} {
				require.ErrorContains(d, d.Do(d.ctx, name, 1, nothing), "fencing: raise the token of ")
			}
		}
	})
}

// Processes whose connections have different character sets mean the same name.
func TestSQLMySQLCharacterSets(t *testing.T) {
	d := empty(t, kindMySQL, session{}).create()
	require.NoError(t, d.Do(d.ctx, "ü", 5, nothing))
	for _, charset := range []string{"latin1", "utf8mb4", "ascii", "binary"} {
		for _, plain := range []bool{false, true} {
			guard := d.as(session{charset: charset, plain: plain})
			requireStale(t, guard.Do(d.ctx, "ü", 4, nothing), 4, 5)
			require.NoError(t, guard.Do(d.ctx, "ü", 5, nothing))
			require.NoError(t, guard.Read(d.ctx, "ü", 5, nothing))
			requireStale(t, guard.Read(d.ctx, "ü", 4, nothing), 4, 5)
		}
	}
}

// TestSQLCheckInATransactionThatHasAnOldSnapshot: a transaction reads before its Check,
// against the advice, and a newer holder writes in between. The database or the guard must
// refuse the transaction even so.
func TestSQLCheckInATransactionThatHasAnOldSnapshot(t *testing.T) {
	onDatabases(t, func(d *database) {
		require.NoError(d, d.write(1, "old"))
		tx, err := d.db.BeginTx(d.ctx, &sql.TxOptions{Isolation: d.snapshot()})
		require.NoError(d, err)
		defer tx.Rollback()
		var state string
		require.NoError(d, tx.QueryRowContext(d.ctx, d.query(selectState), d.id).Scan(&state))
		require.NoError(d, d.write(2, "newer"))
		require.Error(d, d.Check(d.ctx, tx, d.id, 1))
		require.NoError(d, tx.Rollback())
		assert.Equal(d, "newer", d.state())
	})
}

// snapshot is the isolation level in which all reads of a transaction see the same snapshot. SQLite has no other level.
func (d *database) snapshot() sql.IsolationLevel {
	if d.kind == kindSQLite {
		return sql.LevelDefault
	}
	return sql.LevelRepeatableRead
}

func TestSQLLikeTheModel(t *testing.T) { onDatabases(t, (*database).checkModel) }

// checkModel plays calls of Do, also some that fail, and of Read.
func (d *database) checkModel() {
	rapid.Check(d.T, func(t *rapid.T) {
		d = d.on(t)
		var write, read uint64 // the highest token of a write, and of a read
		state := "new"
		for i := range rapid.IntRange(1, 10).Draw(t, "calls") {
			newest, next := max(write, read), fmt.Sprint("state ", i)
			base := rapid.SampledFrom([]uint64{newest, newest, write, read, 10, math.MaxInt64, math.MaxUint64}).Draw(t, "base")
			token := base + uint64(rapid.Int64Range(-2, 3).Draw(t, "step"))
			call, save := rapid.SampledFrom([]string{"do", "fails", "read", "read"}).Draw(t, "call"), d.save(next)
			var err error
			switch {
			case call == "read" && token == 0:
				err = d.read(token, nil)
			case call == "read" && token < write:
				d.requireUnread(token, write)
				continue
			case call == "read":
				d.requireRead(token, state)
				read = max(read, token)
				continue
			case call == "fails":
				err = d.do(token, func(tx *sql.Tx) error { return errors.Join(save(tx), errWrite) })
			default:
				err = d.do(token, save)
			}
			switch {
			case token == 0:
				require.ErrorIs(t, err, fencing.ErrNoToken)
			case token < newest:
				requireStale(t, err, token, newest)
			case call == "fails":
				require.ErrorIs(t, err, errWrite)
			default:
				require.NoError(t, err)
				write, state = token, next
			}
			require.Equal(t, state, d.state())
		}
	})
}
