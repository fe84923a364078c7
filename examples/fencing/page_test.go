package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/fencing"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// unindented is text without the spaces before its lines.
func unindented(text string) string {
	return regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(strings.TrimSpace(text), "")
}

// blocks returns the blocks of the page about fencing in a language.
func blocks(t *testing.T, language string) (blocks []string) {
	page, err := os.ReadFile(root + "docs/fencing.md")
	require.NoError(t, err)
	for _, match := range regexp.MustCompile("(?s)```"+language+"\n(.+?)```").FindAllStringSubmatch(string(page), -1) {
		blocks = append(blocks, unindented(match[1]))
	}
	return blocks
}

// Each block of Go on the page stands in this file, in a function that a test below calls.
func TestPageIsInThisFile(t *testing.T) {
	source, err := os.ReadFile("page_test.go")
	require.NoError(t, err)
	shown := blocks(t, "go")
	require.NotEmpty(t, shown)
	for _, block := range shown {
		assert.Equal(t, 1, strings.Count(unindented(string(source)), block), block)
	}
}

// pageSQL returns the statements in the block of SQL that has the text part.
func pageSQL(t *testing.T, part string) (statements []string) {
	for _, block := range blocks(t, "sql") {
		if strings.Contains(block, part) {
			statements = append(statements, strings.Split(strings.TrimSuffix(block, ";"), ";\n")...)
		}
	}
	require.NotEmpty(t, statements)
	return statements
}

// onPage returns a PostgreSQL database with the tables that the page speaks of.
func onPage(t *testing.T) *database {
	d := empty(t, kindPostgreSQL, session{})
	for _, statement := range append(pageSQL(t, "CREATE TABLE"), `CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL)`,
		`CREATE TABLE items (order_id INTEGER NOT NULL, state TEXT NOT NULL)`, `CREATE TABLE carts (order_id INTEGER NOT NULL)`,
		`CREATE TABLE accounts (id INTEGER PRIMARY KEY, cents BIGINT NOT NULL)`, `INSERT INTO orders VALUES (17, 'new'), (18, 'new')`,
		`INSERT INTO items VALUES (17, 'free'), (17, 'free'), (18, 'free')`, `INSERT INTO carts VALUES (17)`,
		`INSERT INTO accounts VALUES (3, 100), (7, 100)`) {
		d.exec(statement)
	}
	return d
}

// one returns the one value of a query.
func (d *database) one(query string) (value string) {
	require.NoError(d, d.db.QueryRowContext(d.ctx, query).Scan(&value), query)
	return value
}

func TestPageLocks(t *testing.T) {
	d, nodes := onPage(t), redsynctest.New(3)
	defer nodes.Close()
	ctx, rs, guard := d.ctx, nodes.Redsync(), d.SQL
	paid := func() error {
		mutex := rs.NewMutex("orders:17", redsync.WithFencing()) // every client that locks this name must set it
		if err := mutex.LockContext(ctx); err != nil {
			return err
		}
		defer mutex.Unlock()
		token := mutex.Fence() // take it once, right after Lock

		err := guard.Do(ctx, "orders:17", token, func(tx *sql.Tx) error { // guard := fencing.NewPostgreSQL(db)
			_, err := tx.ExecContext(ctx, `UPDATE orders SET state = 'paid' WHERE id = 17`)
			return err
		})
		if errors.Is(err, fencing.ErrStale) {
			return err // nothing was written: another process has had the lock since
		}
		return err
	}
	require.NoError(t, paid())
	assert.Equal(t, "paid", d.one(`SELECT state FROM orders WHERE id = 17`))

	pay := func(ctx context.Context, token uint64) error {
		return guard.Do(ctx, "orders:17", token, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE orders SET state = 'paid by Do' WHERE id = 17`)
			return err
		})
	}
	err := rs.Do(ctx, "orders:17", func(ctx context.Context) error {
		return pay(ctx, redsync.FromContext(ctx).Fence()) // pay writes with this token
	}, redsync.WithFencing())
	require.NoError(t, err)
	assert.Equal(t, "paid by Do", d.one(`SELECT state FROM orders WHERE id = 17`))

	mutex := rs.NewMutex("orders:17", redsync.WithFencing())
	require.NoError(t, mutex.LockContext(ctx))
	current := func() error {
		header := mutex.Sequencer().String()     // the holder sends it; it contains the lock's value, so keep it secret
		s, err := redsync.ParseSequencer(header) // the server
		if err == nil {
			err = rs.Current(ctx, s) // nil: a quorum of nodes has the value
		}
		return err
	}
	require.NoError(t, current())
	_, err = mutex.Unlock()
	require.NoError(t, err)
	require.Error(t, current())

	// The age of a token can be told from it, so that a purge leaves those that are in use.
	old := fencing.Text(uint64(time.Now().AddDate(0, 0, -31).UnixMicro())) //nolint:gosec // it is positive
	d.exec(`INSERT INTO fencing_tokens VALUES ('once', ?), ('read once', ?)`, old, old+"r"+old)
	assert.EqualValues(t, 2, d.exec(pageSQL(t, "DELETE FROM fencing_tokens")[0]))
	assert.Equal(t, "orders:17", d.one(`SELECT string_agg(name, ' ') FROM fencing_tokens`))
}

func TestPagePool(t *testing.T) {
	d := onPage(t)
	ctx, dsn := d.ctx, d.address
	dsn += "&tcp_user_timeout=10000&tcp_keepalives_idle=5&tcp_keepalives_interval=2&tcp_keepalives_count=3"
	require.NoError(t, func() error {
		pool, err := pgxpool.New(ctx, dsn)
		if err != nil {
			return err
		}
		defer pool.Close()
		db := stdlib.OpenDBFromPool(pool)
		defer db.Close()
		guard := fencing.NewPostgreSQL(db)

		return guard.Do(ctx, "orders:17", 2, func(tx *sql.Tx) error {
			for setting, want := range map[string]string{
				"tcp_user_timeout": "10000", "tcp_keepalives_idle": "5", "tcp_keepalives_interval": "2", "tcp_keepalives_count": "3",
				"statement_timeout": "8s",
			} {
				var value string
				require.NoError(t, tx.QueryRowContext(ctx, `SELECT current_setting($1)`, setting).Scan(&value))
				assert.Equal(t, want, value, setting)
			}
			return nil
		})
	}())
	requireStale(t, d.Do(ctx, "orders:17", 1, nothing), 1, 2)
}

// A late holder does not bring a row back that a newer one has deleted, and writes nothing to rows that nobody else has touched.
func TestPageTransaction(t *testing.T) {
	d := onPage(t)
	ctx, guard := d.ctx, d.SQL
	sell := func(token uint64) error {
		err := guard.Do(ctx, "orders:17", token, func(tx *sql.Tx) error {
			for _, statement := range []string{
				`INSERT INTO orders (id, state) VALUES (17, 'paid') ON CONFLICT (id) DO UPDATE SET state = excluded.state`,
				`UPDATE items SET state = 'sold' WHERE order_id = 17`,
				`DELETE FROM carts WHERE order_id = 17`,
			} {
				if _, err := tx.ExecContext(ctx, statement); err != nil {
					return err
				}
			}
			return nil
		})
		return err
	}
	all := `SELECT concat((SELECT string_agg(id || state, ' ' ORDER BY id) FROM orders), ', ',
		(SELECT string_agg(order_id || state, ' ' ORDER BY order_id) FROM items), ', ', (SELECT count(*) FROM carts))`
	require.NoError(t, sell(2))
	assert.Equal(t, "17paid 18new, 17sold 17sold 18free, 0", d.one(all))
	require.NoError(t, d.Do(ctx, "orders:17", 3, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM orders WHERE id = 17`)
		return err
	}))
	d.exec(`UPDATE items SET state = 'free'`)
	requireStale(t, sell(2), 2, 3)
	assert.Equal(t, "18new, 17free 17free 18free, 0", d.one(all))
}

func TestPageTwoNames(t *testing.T) {
	d := onPage(t)
	ctx, guard := d.ctx, d.SQL
	transfer := func(token uint64) error {
		names := []string{"account:7", "account:3"} // one lock: rs.NewMultiMutex(names, redsync.WithFencing())
		slices.Sort(names)
		err := guard.Do(ctx, names[0], token, func(tx *sql.Tx) error {
			for _, name := range names[1:] {
				if err := guard.Check(ctx, tx, name, token); err != nil {
					return err
				}
			}
			_, err := tx.ExecContext(ctx, `UPDATE accounts SET cents = cents + CASE id WHEN 3 THEN 100 ELSE -100 END WHERE id IN (3, 7)`)
			return err
		})
		return err
	}
	require.NoError(t, transfer(2))
	require.NoError(t, d.Do(ctx, "account:7", 4, nothing))
	requireStale(t, transfer(3), 3, 4)
	require.NoError(t, d.Do(ctx, "account:3", 2, nothing)) // the token 3 was rolled back there
	assert.Equal(t, "3 200 7 0", d.one(`SELECT string_agg(id || ' ' || cents, ' ' ORDER BY id) FROM accounts`))
}

// At the level SERIALIZABLE the database asks to repeat, and Repeat does. What takes longer than its bound is not repeated.
func TestPageRepeatAndBound(t *testing.T) {
	d := onPage(t)
	d = d.as(session{params: map[string]string{"default_transaction_isolation": "serializable"}})
	ctx, guard, token, calls := d.ctx, d.SQL, uint64(2), 0
	write := func(tx *sql.Tx) error {
		calls++
		_, err := tx.ExecContext(ctx, `UPDATE orders SET state = state || '!' WHERE id = 17`)
		return err
	}
	require.NoError(t, d.whileOneWrites("orders:17", 2, func() error {
		err := fencing.Repeat(ctx, func() error {
			return guard.Do(ctx, "orders:17", token, write)
		})
		return err
	}))
	assert.Equal(t, "new!", d.one(`SELECT state FROM orders WHERE id = 17`))
	require.False(t, fencing.Repeatable(nil))

	write = func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `SELECT pg_sleep(60)`)
		return err
	}
	err := func() error {
		err := guard.Within(2*time.Second).Do(ctx, "orders:17", token, write)
		if errors.Is(err, fencing.ErrBound) {
			return err // nothing was written, unless the text says that the commit had begun
		}
		return fmt.Errorf("no bound: %w", err)
	}()
	require.EqualError(t, err, "fencing: the transaction took longer than its bound of 2s: "+
		"ERROR: canceling statement due to statement timeout (SQLSTATE 57014)")
}
