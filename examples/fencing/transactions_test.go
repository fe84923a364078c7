package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/fencing"
)

// awaitWaiting waits until n transactions wait for others in the server.
func (d *database) awaitWaiting(n int) {
	count := map[string]string{
		kindPostgreSQL: `SELECT 'waiting', count(*) FROM pg_locks WHERE NOT granted`,
		kindMySQL:      `SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'`,
	}[d.kind]
	require.Eventually(d, func() bool {
		var name string
		var waiting int
		return assert.NoError(d, d.db.QueryRowContext(context.Background(), count).Scan(&name, &waiting)) && waiting >= n
	}, time.Minute, 10*time.Millisecond)
}

// TestSQLWritesOfOneNameDoNotOverlap: the writes of one hold, which have the same token, read and then write.
func TestSQLWritesOfOneNameDoNotOverlap(t *testing.T) {
	onDatabases(t, func(d *database) {
		require.NoError(d, d.write(1, "0"))
		var all sync.WaitGroup
		count := func(tx *sql.Tx) error {
			var n int
			if err := tx.QueryRowContext(d.ctx, d.query(selectState), d.id).Scan(&n); err != nil {
				return err
			}
			return d.save(fmt.Sprint(n + 1))(tx)
		}
		for range 5 {
			all.Go(func() {
				for range 8 {
					assert.NoError(d, fencing.Repeat(d.ctx, func() error { return d.do(1, count) }))
				}
			})
		}
		all.Wait()
		assert.Equal(d, "40", d.state())
	})
}

// TestSQLFirstWriteFails: others wait for the first write of a name, which fails. The database may take this for a
// deadlock of those that wait. Then they get its error, not ErrStale, and succeed when they repeat the call.
func TestSQLFirstWriteFails(t *testing.T) {
	onServers(t, func(d *database) {
		for round := range 5 {
			name := fmt.Sprint("round ", round)
			var all sync.WaitGroup
			err := d.Do(d.ctx, name, 2, func(*sql.Tx) error {
				for range 4 {
					all.Go(func() {
						assert.NoError(d, fencing.Repeat(d.ctx, func() error { return d.Do(d.ctx, name, 1, nothing) }))
					})
				}
				d.awaitWaiting(4)
				return errWrite
			})
			require.ErrorIs(d, err, errWrite)
			all.Wait()
		}
	})
}

func TestSQLOtherNamesDoNotWait(t *testing.T) {
	onServers(t, func(d *database) {
		for range 2 { // the second time the table has the names
			require.NoError(d, d.Do(d.ctx, "b", 1, func(*sql.Tx) error {
				for _, name := range []string{"a", "c", "bb", "B"} {
					assert.NoError(d, d.Do(d.ctx, name, 1, nothing), name)
					assert.NoError(d, d.Read(d.ctx, name, 1, nothing), name)
				}
				return nil
			}))
		}
	})
}

var levels = []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

// repeats reports whether a transaction of that level may meet an error that asks to repeat it, where it waits for another.
func (d *database) repeats(level sql.IsolationLevel) bool {
	return d.kind == kindPostgreSQL && level >= sql.LevelRepeatableRead
}

// TestSQLWaitingWriter: a transaction waits for one with an older, equal or newer token. Afterwards the guard gives its
// verdict, or the database asks to repeat the transaction; then the verdict comes at the second time.
func TestSQLWaitingWriter(t *testing.T) {
	onServers(t, func(d *database) {
		for _, l := range levels {
			for _, waiting := range []uint64{4, 5, 6} {
				for _, known := range []bool{false, true} {
					name := fmt.Sprint(l, waiting, known)
					if known {
						require.NoError(d, d.Do(d.ctx, name, 1, nothing))
					}
					err := d.whileOneWrites(name, 5, func() error { return d.checkAt(l, name, waiting) })
					if d.repeats(l) {
						require.Error(d, err, name)
						require.True(d, fencing.Repeatable(err), "%s: %v", name, err)
						require.NotErrorIs(d, err, fencing.ErrStale)
						require.ErrorContains(d, err, "fencing: raise the token of ")
						err = d.checkAt(l, name, waiting)
					}
					if waiting < 5 {
						requireStale(d, err, waiting, 5)
					} else {
						require.NoError(d, err, name)
					}
				}
			}
		}
	})
}

// whileOneWrites returns the error of f, which waits in the database until a write with token is committed.
func (d *database) whileOneWrites(name string, token uint64, f func() error) error {
	result := make(chan error, 1)
	require.NoError(d, d.Do(d.ctx, name, token, func(*sql.Tx) error {
		go func() { result <- f() }()
		d.awaitWaiting(1)
		return nil
	}))
	return <-result
}

// checkAt calls Check in a transaction of that level.
func (d *database) checkAt(level sql.IsolationLevel, name string, token uint64) error {
	tx, err := d.db.BeginTx(d.ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := d.Check(d.ctx, tx, name, token); err != nil {
		return err
	}
	return tx.Commit()
}

// Newer versions of MariaDB refuse to lock a row that has changed since the snapshot of the transaction.
func TestSQLMariaDBSnapshotIsolation(t *testing.T) {
	d := empty(t, kindMySQL, session{params: map[string]string{"innodb_snapshot_isolation": "1"}}).create()
	require.NoError(t, d.write(1, "old"))
	err := d.whileOneWrites(d.id, 3, func() error { return d.write(2, "late") })
	requireStale(t, err, 2, 3)

	tx, err := d.db.BeginTx(d.ctx, nil)
	require.NoError(t, err)
	defer tx.Rollback()
	require.NoError(t, d.load(new(string))(tx)) // against the advice: before Check
	require.NoError(t, d.write(4, "newer"))
	err = d.Check(d.ctx, tx, d.id, 3)
	require.NotErrorIs(t, err, fencing.ErrStale)
	require.True(t, fencing.Repeatable(err), err)
}

// The server ends a statement that waits for too long. That says nothing about the token.
func TestSQLLockTimeout(t *testing.T) {
	params := map[string]map[string]string{
		kindPostgreSQL: {"lock_timeout": "20ms"},
		kindMySQL:      {"innodb_lock_wait_timeout": "0"}, // MariaDB then does not wait at all
	}
	onServers(t, func(d *database) {
		guard := d.as(session{params: params[d.kind]})
		require.NoError(d, d.do(2, func(*sql.Tx) error {
			for _, err := range []error{
				guard.write(1, "late"),
				guard.write(3, "newer"),
				guard.look(1),
				guard.look(3),
			} {
				assert.ErrorContains(d, err, "fencing: raise the token of ")
				assert.NotErrorIs(d, err, fencing.ErrStale)
			}
			return nil
		}))
		assert.Equal(d, "new", d.state())
		requireStale(d, guard.write(1, "late"), 1, 2)
		require.NoError(d, guard.look(3))
	})
}

// TestSQLOneConnection: each call returns its connection, however it ends, and needs only one.
func TestSQLOneConnection(t *testing.T) {
	onDatabases(t, func(d *database) {
		d.db.SetMaxOpenConns(1)
		fail := func(*sql.Tx) error { return errWrite }
		for range 2 {
			require.NoError(d, d.write(2, "saved"))
			require.NoError(d, d.look(2))
			requireStale(d, d.do(1, fail), 1, 2)
			requireStale(d, d.read(1, fail), 1, 2)
			require.ErrorIs(d, d.do(2, fail), errWrite)
			require.ErrorIs(d, d.read(2, fail), errWrite)
		}
	})
}

// Two transactions that check two names in different orders wait for each other. The database ends one of them.
func TestSQLDeadlock(t *testing.T) {
	onServers(t, func(d *database) {
		var both, all sync.WaitGroup
		both.Add(2)
		errs := make([]error, 2)
		for i, names := range [][]string{{"a", "b"}, {"b", "a"}} {
			all.Go(func() {
				met := sync.OnceFunc(both.Done)
				defer met()
				errs[i] = d.Do(d.ctx, names[0], 5, func(tx *sql.Tx) error {
					met()
					both.Wait()
					return d.Check(d.ctx, tx, names[1], 5)
				})
			})
		}
		all.Wait()
		failed := errors.Join(errs...)
		require.True(d, errs[0] == nil || errs[1] == nil, failed)
		require.True(d, fencing.Repeatable(failed), failed)
		require.NotErrorIs(d, failed, fencing.ErrStale)
	})
}

// The doc of Do warns of statements that MySQL commits implicitly: what the write has done stays, although it fails.
func TestSQLMySQLImplicitCommit(t *testing.T) {
	d := empty(t, kindMySQL, session{}).create()
	for token, create := range []string{``, `CREATE TABLE other (id INTEGER PRIMARY KEY)`} {
		err := d.do(uint64(token)+1, func(tx *sql.Tx) error {
			err := d.save("failed")(tx)
			if err == nil && create != "" {
				_, err = tx.ExecContext(d.ctx, create)
			}
			return errors.Join(err, errWrite)
		})
		require.ErrorIs(t, err, errWrite)
		assert.Equal(t, create != "", d.state() == "failed")
	}
}

// In PostgreSQL a statement that fails ends the transaction. If write does not return its error, Do must return one.
func TestSQLPostgreSQLErrorNotReturned(t *testing.T) {
	d := empty(t, kindPostgreSQL, session{}).create()
	err := d.do(2, func(tx *sql.Tx) error {
		err := d.save("failed")(tx)
		tx.ExecContext(d.ctx, `SELECT 1/0`)
		return err
	})
	require.ErrorContains(t, err, "fencing: commit: ")
	assert.Equal(t, "new", d.state())
	require.NoError(t, d.write(1, "saved"))
}

// A cut is a connection that ends at the COMMIT: before the server has it, or before the answer.
type cut struct {
	net.Conn
	before bool
}

func (c *cut) Write(p []byte) (int, error) {
	if !bytes.Contains(bytes.ToUpper(p), []byte("COMMIT")) {
		return c.Conn.Write(p)
	}
	if c.before {
		c.Conn.Close()
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Write(p)
	answer := make([]byte, 1)
	c.Conn.Read(answer) // the server has executed it
	c.Conn.Close()
	return n, err
}

// TestSQLCommitWithoutAnswer: Do returns an error, whether the commit has been made or not. The data and the token
// agree in both cases.
func TestSQLCommitWithoutAnswer(t *testing.T) {
	onServers(t, func(d *database) {
		for _, before := range []bool{true, false} {
			dial := func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				return &cut{conn, before}, err
			}
			d.id = d.newResource()
			guard := d.as(session{dial: dial})
			err := guard.write(2, "perhaps")
			require.ErrorContains(d, err, "fencing: commit: ")
			require.NotErrorIs(d, err, fencing.ErrStale)
			err = d.write(1, "older")
			if before {
				require.NoError(d, err)
				assert.Equal(d, "older", d.state())
			} else {
				requireStale(d, err, 1, 2)
				assert.Equal(d, "perhaps", d.state())
			}
			require.NoError(d, d.write(2, "repeated")) // the holder may repeat its write
			assert.Equal(d, "repeated", d.state())
		}
	})
}

// TestSQLCreateAtOnce: several processes start at the same time, and each calls Create.
func TestSQLCreateAtOnce(t *testing.T) {
	for _, kind := range []string{kindSQLite, kindPostgreSQL, kindMySQL} {
		t.Run(kind, func(t *testing.T) {
			for range 3 {
				d := empty(t, kind, session{})
				var all sync.WaitGroup
				begin := make(chan struct{})
				for range 6 {
					guard := d.as(session{})
					all.Go(func() {
						<-begin
						assert.NoError(t, guard.Create(t.Context()))
					})
				}
				close(begin)
				all.Wait()
				require.NoError(t, d.Read(t.Context(), "x", 1, nothing))
			}
		})
	}
}

// TestSQLPrivileges gives a user what the doc of Create says that Do and Read need.
func TestSQLPrivileges(t *testing.T) {
	onServers(t, func(d *database) {
		user := "fencing_" + strings.ToLower(rand.Text())
		statements := []string{
			`GRANT SELECT, INSERT, UPDATE ON fencing_tokens TO ` + user,
			`GRANT SELECT, UPDATE ON fencing_test TO ` + user,
		}
		drop := []string{`DROP USER ` + user}
		if d.kind == kindPostgreSQL {
			var schema string
			require.NoError(d, d.db.QueryRowContext(d.ctx, `SELECT current_schema()`).Scan(&schema))
			statements = append([]string{`CREATE ROLE ` + user + ` LOGIN`, `GRANT USAGE ON SCHEMA ` + schema + ` TO ` + user}, statements...)
			drop = []string{`DROP OWNED BY ` + user, `DROP ROLE ` + user}
		} else {
			statements = append([]string{`CREATE USER ` + user}, statements...)
		}
		for _, statement := range statements {
			d.exec(statement)
		}
		d.Cleanup(func() {
			for _, statement := range drop {
				d.exec(statement)
			}
		})
		guard := d.as(session{user: user})
		require.NoError(d, guard.write(2, "saved"))
		require.NoError(d, guard.look(2))
		requireStale(d, guard.write(1, "late"), 1, 2)
		requireStale(d, guard.look(1), 1, 2)
		require.ErrorContains(d, guard.Create(d.ctx), "fencing: create the table: ")
	})
}
