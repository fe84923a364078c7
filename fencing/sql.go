package fencing

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// SQL guards data in any tables of a database. It keeps the newest token of each name in its own table fencing_tokens,
// and raises it in the transaction that makes the writes. Until that ends, all others with the same name wait for the
// row. Many goroutines may use an SQL at once. Names are compared byte by byte, and have at most 255 bytes, in
// PostgreSQL of UTF-8 without the byte 0.
//
// A token is a text of 20 digits: database/sql accepts no uint64 above 2^63-1, BIGINT ends there, and SQLite's NUMERIC
// is a float beyond.
//
// With Read the text has two tokens: the newest of all, and that of a write.
//
// # A column of your own
//
// If a lock protects one row, that row can hold the token, in a column for 20 digits (in PostgreSQL TEXT COLLATE "C",
// in SQLite TEXT, in MySQL CHAR(20) CHARACTER SET ascii):
//
//	UPDATE orders SET state = ?, fence = ? WHERE id = ? AND fence <= ?
//
// Refuse the token 0 first, as [Admit](token, 0) does. Pass [Text] of the token for fence in both places. If no row is
// affected, the row has a newer token or does not exist. In MySQL set clientFoundRows=true, or a statement that changes
// nothing affects no row either.
//
// With readers the row needs a second column for the newest token of a write, which the statement above sets too. A
// reader first raises fence, and commits that:
//
//	UPDATE orders SET fence = ? WHERE id = ? AND fence < ?
//
// Then it reads the row in one statement. It must not use it if the second column has a newer token than its own.
type SQL struct {
	db            *sql.DB
	create        string
	raise, newest string
	lock          string        // ends newest in a write
	longest       int           // name in bytes, 0 for any
	bound         time.Duration // of a transaction of Do; 0 or less: none
	// Do executes raiseWithin, if any, in place of raise. Its third argument is the limit in milliseconds.
	raiseWithin string
	// session sets up a session for one transaction. restore undoes that, "" for nothing.
	session func(ctx context.Context, conn *sql.Conn, limit time.Duration) (restore string, err error)
	// A read executes raiseRead in place of raise. Its argument is a readText whose second token is 0: the statement puts
	// the newest token of a write there, from the table.
	raiseRead string
	snapshot  *sql.TxOptions // for Read: all statements see the data of one point in time
}

// NewPostgreSQL returns a guard of the data in db, a PostgreSQL database. [SQL.Create] or a migration creates its
// table:
//
//	CREATE TABLE IF NOT EXISTS fencing_tokens (name TEXT PRIMARY KEY, token TEXT COLLATE "C" NOT NULL);
func NewPostgreSQL(db *sql.DB) *SQL {
	return &SQL{
		db:    db,
		bound: DefaultBound,
		create: `CREATE TABLE IF NOT EXISTS fencing_tokens
			(name TEXT PRIMARY KEY, token TEXT COLLATE "C" NOT NULL)`,
		raise: `INSERT INTO fencing_tokens (name, token) VALUES ($1, $2)
			ON CONFLICT (name) DO UPDATE SET token = GREATEST(fencing_tokens.token, excluded.token)`,
		raiseWithin: raiseWithin,
		newest:      `SELECT token FROM fencing_tokens WHERE name = $1`,
		raiseRead: `INSERT INTO fencing_tokens (name, token) VALUES ($1, $2)
			ON CONFLICT (name) DO UPDATE
			SET token = left(excluded.token, 21) || right(fencing_tokens.token, 20)
			WHERE fencing_tokens.token < left(excluded.token, 21)`,
		snapshot: &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
	}
}

// NewSQLite returns a guard of the data in db, an SQLite database of version 3.24 or later. Do waits for other writers
// as long as its bound. Set a busy timeout for Read and other writes, or they fail instead of waiting. [SQL.Create] or
// a migration creates the table:
//
//	CREATE TABLE IF NOT EXISTS fencing_tokens (name TEXT PRIMARY KEY NOT NULL, token TEXT NOT NULL);
func NewSQLite(db *sql.DB) *SQL {
	return &SQL{
		db:      db,
		bound:   DefaultBound,
		session: sessionSQLite,
		create: `CREATE TABLE IF NOT EXISTS fencing_tokens
			(name TEXT PRIMARY KEY NOT NULL, token TEXT NOT NULL)`,
		raise: `INSERT INTO fencing_tokens (name, token) VALUES (?, ?)
			ON CONFLICT (name) DO UPDATE SET token = max(token, excluded.token)`,
		newest: `SELECT token FROM fencing_tokens WHERE name = ?`,
		raiseRead: `INSERT INTO fencing_tokens (name, token) VALUES (?, ?)
			ON CONFLICT (name) DO UPDATE
			SET token = substr(excluded.token, 1, 21) || substr(token, -20)
			WHERE token < substr(excluded.token, 1, 21)`,
		snapshot: &sql.TxOptions{ReadOnly: true}, // in SQLite every transaction is a snapshot
	}
}

// NewMySQL returns a guard of the data in db, a MySQL or MariaDB database with InnoDB. [SQL.Create] or a migration
// creates the table:
//
//	CREATE TABLE IF NOT EXISTS fencing_tokens (name VARBINARY(255) PRIMARY KEY, token VARCHAR(41) CHARACTER SET ascii COLLATE ascii_bin NOT NULL) ENGINE = InnoDB;
func NewMySQL(db *sql.DB) *SQL {
	return &SQL{
		db:      db,
		bound:   DefaultBound,
		session: sessionMySQL,
		create: `CREATE TABLE IF NOT EXISTS fencing_tokens
			(name VARBINARY(255) PRIMARY KEY, token VARCHAR(41) CHARACTER SET ascii COLLATE ascii_bin NOT NULL)
			ENGINE = InnoDB`,
		// Outside its strict mode MySQL cuts a longer name off, and takes it for another.
		longest: 255,
		raise: `INSERT INTO fencing_tokens (name, token) VALUES (?, ?)
			ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))`,
		newest: `SELECT token FROM fencing_tokens WHERE name = ?`,
		lock:   ` FOR UPDATE`, // reads the current row: the transaction's snapshot may be older
		raiseRead: `INSERT INTO fencing_tokens (name, token) VALUES (?, ?)
			ON DUPLICATE KEY UPDATE token = IF(token < LEFT(VALUES(token), 21),
			CONCAT(LEFT(VALUES(token), 21), RIGHT(token, 20)), token)`,
		snapshot: &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
	}
}

// Create creates the table if it does not exist. Several processes may call it at once. It needs the privilege CREATE,
// also if the table exists. Do, Check and Read need SELECT, INSERT and UPDATE.
func (s *SQL) Create(ctx context.Context) error {
	ctx = orBackground(ctx)
	_, err := s.db.ExecContext(ctx, s.create)
	if err != nil {
		// In PostgreSQL, IF NOT EXISTS fails when another process creates the table. That has committed by then.
		_, err = s.db.ExecContext(ctx, s.create)
	}
	if err != nil {
		return fmt.Errorf("fencing: create the table: %w", err)
	}
	return nil
}

// Do calls write with a transaction and commits it, if token is not older than the newest token of that name. Otherwise
// it returns a *StaleError, or ErrNoToken if token is 0.
//
// If write returns an error, Do returns it and rolls everything back, the newest token included. If the commit returns
// an error, the writes may or may not have been made.
//
// The transaction has a bound, DefaultBound, which Within or an earlier deadline of ctx changes. It begins when token
// is admitted. If the commit has not begun by then, Do rolls back and returns an error that matches ErrBound. If the
// process is stopped or its host is dead, the server does that.
//
// Any other error says nothing about the token. If the database has ended the transaction because of others, the error
// is [Repeatable]: [Repeat] calls Do again with the same token. That happens after a deadlock, in MySQL also among
// calls that wait for a name's first write, and in PostgreSQL after a wait for another call, at REPEATABLE READ or
// SERIALIZABLE.
//
// write must return the errors of its statements: in MySQL a deadlock rolls the transaction back, and what follows is
// not part of one. Nor may it execute what commits implicitly, such as CREATE TABLE.
func (s *SQL) Do(ctx context.Context, name string, token uint64, write func(tx *sql.Tx) error) error {
	if token == 0 {
		return ErrNoToken
	}
	ctx = orBackground(ctx)
	limit := s.limit(ctx)
	txCtx, end := context.WithCancel(ctx)
	defer end()
	tx, restore, err := s.begin(txCtx, limit)
	if err != nil {
		return fmt.Errorf("fencing: begin: %w", err)
	}
	defer restore()
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := s.raiseToken(ctx, tx, name, token, limit); err != nil {
		return outlived(err)
	}
	t := s.startTerm(ctx, end)
	if err = s.judge(ctx, tx, name, token); err == nil {
		err = write(tx)
	}
	// A timer that is stopped does not cut off the commit: the outcome is the server's now.
	switch stopped := t.timer.Stop(); {
	case !stopped || t.isOver():
		return t.exceeded(err)
	case err != nil:
		return outlived(err)
	}
	if err = tx.Commit(); err == nil {
		return nil
	}
	err = fmt.Errorf("fencing: commit: %w", err)
	if t.isOver() {
		return t.exceeded(err)
	}
	return outlived(err)
}

// Check does in a transaction of your own what Do does before it calls write, with the same errors: roll back after
// any. Call it before any other statement. The token counts as seen once you commit. Check sets no bound: set what
// Within names, or call Check inside Do.
//
// Check several names always in the same order, for example sorted, or two transactions may wait for each other, and
// the database ends one.
func (s *SQL) Check(ctx context.Context, tx *sql.Tx, name string, token uint64) error {
	if token == 0 {
		return ErrNoToken
	}
	ctx = orBackground(ctx)
	if err := s.raiseToken(ctx, tx, name, token, 0); err != nil {
		return err
	}
	return s.judge(ctx, tx, name, token)
}

// raiseToken stores token if it is newer. From then on other transactions wait. A limit above 0 bounds this one.
func (s *SQL) raiseToken(ctx context.Context, tx *sql.Tx, name string, token uint64, limit time.Duration) error {
	if err := s.checkName(name); err != nil {
		return err
	}
	raise, args := s.raise, []any{name, Text(token)}
	if s.raiseWithin != "" && limit > 0 {
		raise, args = s.raiseWithin, append(args, limit.Milliseconds())
	}
	if _, err := tx.ExecContext(ctx, raise, args...); err != nil {
		return fmt.Errorf("fencing: raise the token of %q: %w", name, err)
	}
	return nil
}

// judge returns nil if token is admitted. Affected rows do not show that: in MySQL an equal token affects none.
func (s *SQL) judge(ctx context.Context, tx *sql.Tx, name string, token uint64) error {
	var newest string
	if err := tx.QueryRowContext(ctx, s.newest+s.lock, name).Scan(&newest); err != nil {
		return fmt.Errorf("fencing: read the token of %q: %w", name, err)
	}
	if newest == Text(token) {
		return nil
	}
	if seen, _, err := parseSeen(newest); err == nil && seen > token {
		return &StaleError{Token: token, Newest: seen}
	}
	return noToken(newest)
}

func (s *SQL) checkName(name string) error {
	if s.longest > 0 && len(name) > s.longest {
		return fmt.Errorf("fencing: a name of %d bytes: the table keeps %d", len(name), s.longest)
	}
	return nil
}

// Read calls read with a transaction, and returns its error, if token is not older than the newest token of a write to
// that name. Otherwise it returns a *StaleError, or ErrNoToken if token is 0. From then on the guard refuses writes
// with older tokens, even if read fails. For errors of the database see Do.
//
// Everything that read selects is of one point in time, at which no newer holder had written. The transaction is
// read-only, in PostgreSQL and MySQL with REPEATABLE READ, and Read rolls it back. To note token first, Read waits for
// a Do with that name. Then no Do or Read waits for it. In MySQL this needs InnoDB.
func (s *SQL) Read(ctx context.Context, name string, token uint64, read func(tx *sql.Tx) error) error {
	if token == 0 {
		return ErrNoToken
	}
	if err := s.checkName(name); err != nil {
		return err
	}
	ctx = orBackground(ctx)
	// This is committed before the transaction begins. So an older write that the transaction does not see is refused.
	if _, err := s.db.ExecContext(ctx, s.raiseRead, name, readText(token, 0)); err != nil {
		return fmt.Errorf("fencing: raise the token of %q: %w", name, err)
	}
	tx, err := s.db.BeginTx(ctx, s.snapshot)
	if err != nil {
		return fmt.Errorf("fencing: begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	var text string
	if err := tx.QueryRowContext(ctx, s.newest, name).Scan(&text); err != nil {
		return fmt.Errorf("fencing: read the token of %q: %w", name, err)
	}
	newest, written, err := parseSeen(text)
	switch {
	case err != nil:
		return noToken(text)
	case newest < token:
		return fmt.Errorf("fencing: the table keeps %q of the token %d: is the column wide enough?", text, token)
	}
	if err := Admit(token, written); err != nil {
		return err
	}
	return read(tx)
}

// readText is what the table keeps if the newest token is that of a read: token - 1, and the newest token of a write.
// As the table keeps the greatest text, it refuses all older writes, but not one with token.
func readText(token, written uint64) string { return Text(token-1) + "r" + Text(written) }

const readTextLen = 41

// parseSeen returns the newest token of all, and the newest of a write, from what the table keeps.
func parseSeen(text string) (newest, written uint64, err error) {
	if len(text) != readTextLen || text[20] != 'r' {
		n, err := strconv.ParseUint(text, 10, 64)
		return n, n, err
	}
	if newest, err = strconv.ParseUint(text[:20], 10, 64); err != nil {
		return 0, 0, err
	}
	written, err = strconv.ParseUint(text[21:], 10, 64)
	return newest + 1, written, err
}

// Text returns token as 20 digits: such texts sort like their numbers.
func Text(token uint64) string { return fmt.Sprintf("%020d", token) }

// Within returns a guard like s whose transactions of Do may take as long as bound, from the admission of the token to
// the beginning of the commit, or until an earlier deadline of the context. 0 or less means no bound.
//
// If a process is stopped or its host is dead, only the database can end the transaction. Do asks it to, for this
// transaction alone, and never loosens what the session has:
//
//   - PostgreSQL ends the session after bound and 250 ms without a statement (idle_in_transaction_session_timeout), and
//     a statement after bound (statement_timeout). It waits for other transactions at most a second longer
//     (lock_timeout).
//   - MariaDB 10.3 and later does the same, in whole seconds, rounded up (idle_transaction_timeout,
//     idle_write_transaction_timeout, max_statement_time, innodb_lock_wait_timeout). After a statement that took too
//     long, locks stay until the transaction has also been idle for bound.
//   - MySQL 5.7 and later has wait_timeout and innodb_lock_wait_timeout, but bounds no statement that works. This
//     package has not been tested on MySQL.
//   - SQLite cannot end the transaction of another process. Do sets busy_timeout to bound. If the holder is stopped for
//     longer, Do fails with SQLITE_BUSY: see [Repeat].
//
// In MariaDB and MySQL that costs one statement more before the transaction and one after it.
func (s *SQL) Within(bound time.Duration) *SQL {
	bounded := *s
	bounded.bound = bound
	return &bounded
}

// limit returns how long a transaction that begins now may take, 0 for any time.
func (s *SQL) limit(ctx context.Context) time.Duration {
	limit := max(s.bound, 0)
	if deadline, ok := ctx.Deadline(); ok {
		left := max(time.Until(deadline), time.Millisecond)
		if limit == 0 || left < limit {
			limit = left
		}
	}
	if limit == 0 {
		return 0
	}
	return max(limit, time.Millisecond)
}

func (s *SQL) startTerm(ctx context.Context, end func()) term {
	t := term{ctx: ctx, limit: s.limit(ctx)}
	t.start = clock.Now() // after limit: when that much has passed, the deadline has passed, too
	after := t.limit
	if after == 0 {
		after = math.MaxInt64
	}
	t.timer = time.AfterFunc(after, end)
	return t
}

// begin begins a transaction that may take as long as limit, if the session has that setting. Call restore after it.
func (s *SQL) begin(ctx context.Context, limit time.Duration) (tx *sql.Tx, restore func(), err error) {
	if s.session == nil || limit == 0 {
		tx, err = s.db.BeginTx(ctx, nil)
		return tx, func() {}, err
	}
	// The pool's connections may have ended meanwhile. A DB tries others by itself, a Conn does not.
	for tries := s.db.Stats().OpenConnections; ; tries-- {
		tx, restore, err = s.beginOne(ctx, limit)
		if tries <= 0 || !errors.Is(err, driver.ErrBadConn) {
			return tx, restore, err
		}
	}
}

func (s *SQL) beginOne(ctx context.Context, limit time.Duration) (*sql.Tx, func(), error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	query, err := s.session(ctx, conn, limit)
	restore := func() {
		defer conn.Close()
		if query == "" {
			return
		}
		// The connection goes back to others. If it cannot be restored, it is not used again.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if _, err := conn.ExecContext(ctx, query); err != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
	}
	if err != nil {
		restore()
		return nil, nil, err
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		restore()
		return nil, nil, err
	}
	return tx, restore, nil
}
