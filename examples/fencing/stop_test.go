package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/fencing"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// envHolder makes the test binary a holder in place of a test: the words are the kind of the database, its address,
// the name of the resource, and what the holder does.
const envHolder = "REDSYNC_TEST_FENCING_HOLDER"

// bound is that of holders that are stopped.
const bound = time.Second

// hold calls Do with the token 1. It prints "inside" where it is to be stopped, and in the end how Do has ended.
func hold(words []string) {
	kind, address, id, how := words[0], words[1], words[2], words[3]
	driver := map[string]string{kindSQLite: "sqlite", kindPostgreSQL: "pgx", kindMySQL: "mysql"}[kind]
	db, err := sql.Open(driver, address)
	if err != nil {
		fmt.Println(err)
		return
	}
	guard, ctx := guards[kind](db).Within(bound), context.Background()
	if how == "deadline" {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, bound)
		defer cancel()
		guard = guards[kind](db)
	}
	err = guard.Do(ctx, id, 1, func(tx *sql.Tx) error {
		if how == "waiting call" {
			go guard.Do(ctx, id, 1, nothing)
			time.Sleep(200 * time.Millisecond) //nolint:forbidigo // until it waits in the database
		}
		fmt.Println("inside")
		if how == "statement" {
			if _, err := tx.Exec(map[string]string{kindPostgreSQL: `SELECT pg_sleep(60)`, kindMySQL: `SELECT SLEEP(60)`}[kind]); err != nil {
				return err
			}
		}
		if _, err := io.ReadAll(os.Stdin); err != nil {
			return err
		}
		_, err := tx.Exec(`UPDATE fencing_test SET state = 'late'`)
		return err
	})
	fmt.Println(errors.Is(err, fencing.ErrBound), errors.Is(err, context.DeadlineExceeded), err)
}

// A holder is a process that calls Do.
type holder struct {
	*exec.Cmd
	in  io.Closer // when it closes, the holder writes
	out *bufio.Reader
}

// startHolder starts a holder, and waits until it is inside of Do.
func startHolder(d *database, address, how string) *holder {
	h := &holder{Cmd: exec.CommandContext(d.ctx, os.Args[0])}
	h.Env = append(os.Environ(), envHolder+"="+strings.Join([]string{d.kind, address, d.id, how}, "\n"))
	h.SysProcAttr = realredis.EndWithParent()
	in, err := h.StdinPipe()
	require.NoError(d, err)
	out, err := h.StdoutPipe()
	require.NoError(d, err)
	h.in, h.out = in, bufio.NewReader(out)
	require.NoError(d, h.Start())
	d.Cleanup(func() {
		h.Process.Kill()
		h.Wait()
	})
	line, err := h.out.ReadString('\n')
	require.NoError(d, err)
	require.Equal(d, "inside\n", line)
	return h
}

// isolated returns the address of a proxy to a server. When a client of it dies, the server is not told.
func isolated(t *testing.T, server string) string {
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { proxy.Close() })
	go func() {
		for {
			client, err := proxy.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				return
			}
			t.Cleanup(func() { client.Close(); upstream.Close() })
			go io.Copy(upstream, client) // it returns at the end of client, and upstream stays open
			go io.Copy(client, upstream)
		}
	}()
	return proxy.Addr().String()
}

// A holder stops inside of Do, and stays stopped until the next holder's Do has returned. So without the bound the next
// holder would wait for ever. Then the stopped one goes on, and is told. SQLite cannot end its transaction.
func TestStoppedHolder(t *testing.T) {
	for _, how := range []string{"stopped", "deadline", "statement", "waiting call", "dead"} {
		for _, kind := range []string{kindSQLite, kindPostgreSQL, kindMySQL} {
			if kind == kindSQLite && how != "stopped" && how != "deadline" {
				continue
			}
			t.Run(kind+" "+how, func(t *testing.T) {
				t.Parallel()
				d := empty(t, kind, session{}).create()
				require.NoError(d, d.Do(d.ctx, d.id, 1, nothing))
				address := d.address
				if how == "dead" {
					address = strings.Replace(address, d.server, isolated(t, d.server), 1)
				}
				h := startHolder(d, address, how)
				stop := realredis.Pause
				if how == "dead" {
					stop = (*os.Process).Kill
				}
				require.NoError(d, stop(h.Process))
				start := time.Now()
				if kind == kindSQLite {
					err := guards[kind](d.db).Within(2*bound).Do(d.ctx, d.id, 2, nothing)
					// A slow machine may have stopped the holder too late, when its Do had ended.
					require.True(d, err == nil || fencing.Repeatable(err), err)
				} else {
					require.NoError(d, d.write(2, "newer"))
				}
				t.Logf("%s, %s: the next holder waited for %v", kind, how, time.Since(start))
				// The goal is bound + 1 s. The rest is for a machine that stands still, and for a bound that applies twice.
				assert.Less(d, time.Since(start), 2*bound+10*time.Second)
				if how == "dead" {
					return
				}
				require.NoError(d, realredis.Resume(h.Process))
				h.in.Close()
				line, err := h.out.ReadString('\n')
				require.NoError(d, err)
				assert.Regexp(d, fmt.Sprintf("^true %v fencing: the transaction took longer than its bound", how == "deadline"), line)
				require.NoError(d, fencing.Repeat(d.ctx, func() error { return d.write(2, "newer") }))
				assert.Equal(d, "newer", d.state())
			})
		}
	}
}

// A queryer is a transaction or a DB.
type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// boundsOf returns what bounds a transaction in the database: how long it may be idle, and how long it may wait.
func (d *database) boundsOf(conn queryer) (bounds string) {
	query := map[string]string{
		kindPostgreSQL: `SELECT concat_ws(' ', current_setting('idle_in_transaction_session_timeout'),
			current_setting('statement_timeout'), current_setting('lock_timeout'))`,
		kindMySQL: `SELECT CONCAT_WS(' ', @@idle_transaction_timeout, @@idle_write_transaction_timeout, @@max_statement_time,
			@@innodb_lock_wait_timeout)`,
		kindSQLite: `PRAGMA busy_timeout`,
	}[d.kind]
	require.NoError(d, conn.QueryRowContext(context.Background(), query).Scan(&bounds))
	return bounds
}

// The bound is that of the guard, or the deadline if it is earlier. It loosens nothing, and the connection is afterwards as it
// was, also if Do has failed.
func TestBoundOfASession(t *testing.T) {
	const short, mysqlShort = "idle_in_transaction_session_timeout", "idle_transaction_timeout"
	for _, c := range []struct {
		within, deadline time.Duration // 0: the default, none; -1: no bound
		set              string        // what the session has before: a timeout in seconds
		postgres, maria  string
		sqlite           string
	}{
		{0, 0, "", "8250ms 8s 9s", "8 8 8.000000 9", "8000"},
		{41500 * time.Millisecond, 0, "", "41750ms 41500ms 42500ms", "42 42 42.000000 43", "41500"},
		{0, time.Hour, "", "8250ms 8s 9s", "8 8 8.000000 9", "8000"},
		{-1, 0, "", "0 0 0", "0 0 0.000000 50", "10000"},
		{0, 0, "7", "7s 8s 9s", "7 8 8.000000 9", "8000"},
		{10 * time.Minute, 0, "7", "7s 10min 601s", "7 600 600.000000 50", "600000"},
	} {
		for kind, want := range map[string]string{kindPostgreSQL: c.postgres, kindMySQL: c.maria, kindSQLite: c.sqlite} {
			t.Run(fmt.Sprint(c.within, c.deadline, c.set, kind), func(t *testing.T) {
				d := empty(t, kind, session{}).create()
				params := map[string]string{}
				if c.set != "" {
					params = map[string]map[string]string{kindPostgreSQL: {short: c.set + "s"}, kindMySQL: {mysqlShort: c.set}}[kind]
				}
				d.db = d.again(t, session{params: params})
				d.db.SetMaxOpenConns(1)
				before, guard := d.boundsOf(d.db), guards[kind](d.db)
				if c.within != 0 {
					guard = guard.Within(c.within)
				}
				ctx := d.ctx
				if c.deadline == 0 {
					ctx = context.WithoutCancel(ctx)
				}
				var inside string
				for _, fails := range []error{nil, errWrite} {
					err := guard.Do(ctx, d.id, 2, func(tx *sql.Tx) error {
						inside = d.boundsOf(tx)
						return fails
					})
					require.Equal(t, fails, err)
					assert.Equal(t, want, inside)
					assert.Equal(t, before, d.boundsOf(d.db))
				}
				requireStale(t, guard.Do(ctx, d.id, 1, nothing), 1, 2)
				assert.Equal(t, before, d.boundsOf(d.db))
			})
		}
	}
}

// A holder that goes on for longer than the bound loses its transaction, too, whatever its function returns.
func TestHolderBeyondItsBound(t *testing.T) {
	onDatabases(t, func(d *database) {
		for _, fails := range []error{nil, errWrite} {
			guard := guards[d.kind](d.db).Within(20 * time.Millisecond)
			var err error
			for range 20 { // the server may end it before the token is admitted, and the driver not say why
				err = guard.Do(d.ctx, d.id, 2, func(tx *sql.Tx) error {
					for d.save("late")(tx) == nil { //nolint:revive // until the transaction has ended
					}
					return fails
				})
				if errors.Is(err, fencing.ErrBound) && errors.Is(err, errWrite) == (fails != nil) {
					break
				}
			}
			require.ErrorIs(d, err, fencing.ErrBound)
			assert.Equal(d, fails != nil, errors.Is(err, errWrite))
			assert.False(d, fencing.Repeatable(err))
			assert.Equal(d, "new", d.state())
		}
		require.NoError(d, d.write(1, "newer")) // the token 2 was not committed
	})
}

// Connections of the pool have ended meanwhile, as after a restart of the server: Do takes others.
func TestStaleConnections(t *testing.T) {
	onServers(t, func(d *database) {
		d.db.SetMaxIdleConns(5)
		other := d.again(d.T, session{})
		var conns []*sql.Conn
		for range 5 {
			conn, err := d.db.Conn(d.ctx)
			require.NoError(d, err)
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			id, kill := `SELECT pg_backend_pid()`, `SELECT pg_terminate_backend(%d)`
			if d.kind == kindMySQL {
				id, kill = `SELECT CONNECTION_ID()`, `KILL %d`
			}
			var number int
			require.NoError(d, conn.QueryRowContext(d.ctx, id).Scan(&number))
			require.NoError(d, conn.Close())
			_, err := other.ExecContext(d.ctx, fmt.Sprintf(kill, number))
			require.NoError(d, err)
		}
		require.NoError(d, d.write(2, "saved"))
	})
}
