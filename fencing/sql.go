package fencing

import (
	"context"
	"database/sql"
	"fmt"
)

// SQL guards what is in a database, whatever tables that is in: it keeps the newest token
// of each resource in a table of its own, fencing_tokens, and raises it in the transaction
// that makes the writes. Until that ends, everybody else with the same name waits for the
// row. It may be used by many goroutines at once. Names have at most 255 bytes.
//
// A token is kept as a text of 20 digits: BIGINT ends at 2^63-1, SQLite's NUMERIC is a
// float beyond that, and database/sql passes on no greater uint64 either. As text every
// token is exact, and the order is that of the numbers.
//
// # A column of your own
//
// Where a lock protects one row, that row can hold the token, in a column for 20 digits
// (in PostgreSQL TEXT COLLATE "C", in SQLite TEXT, in MySQL CHAR(20) CHARACTER SET ascii):
//
//	UPDATE orders SET state = ?, fence = ? WHERE id = ? AND fence <= ?
//
// with [Text] of the token in both places. If it affects no row, then there is a newer
// token, or no such row, or, in MySQL without clientFoundRows=true, nothing to change.
type SQL struct {
	db                    *sql.DB
	create, raise, newest string
}

// NewPostgreSQL returns a guard of what is in db, a PostgreSQL.
func NewPostgreSQL(db *sql.DB) *SQL {
	return &SQL{
		db: db,
		create: `CREATE TABLE IF NOT EXISTS fencing_tokens
			(name TEXT PRIMARY KEY, token TEXT COLLATE "C" NOT NULL)`,
		raise: `INSERT INTO fencing_tokens (name, token) VALUES ($1, $2)
			ON CONFLICT (name) DO UPDATE SET token = GREATEST(fencing_tokens.token, excluded.token)`,
		newest: `SELECT token FROM fencing_tokens WHERE name = $1`,
	}
}

// NewSQLite returns a guard of what is in db, an SQLite 3.24 or later. Set a busy timeout,
// or concurrent calls fail in place of waiting.
func NewSQLite(db *sql.DB) *SQL {
	return &SQL{
		db: db,
		create: `CREATE TABLE IF NOT EXISTS fencing_tokens
			(name TEXT PRIMARY KEY NOT NULL, token TEXT NOT NULL)`,
		raise: `INSERT INTO fencing_tokens (name, token) VALUES (?, ?)
			ON CONFLICT (name) DO UPDATE SET token = max(token, excluded.token)`,
		newest: `SELECT token FROM fencing_tokens WHERE name = ?`,
	}
}

// NewMySQL returns a guard of what is in db, a MySQL or MariaDB with InnoDB.
func NewMySQL(db *sql.DB) *SQL {
	return &SQL{
		db: db,
		create: `CREATE TABLE IF NOT EXISTS fencing_tokens
			(name VARBINARY(255) PRIMARY KEY, token CHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL)
			ENGINE = InnoDB`,
		raise: `INSERT INTO fencing_tokens (name, token) VALUES (?, ?)
			ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))`,
		// Not the snapshot of the transaction, which may be older than the row.
		newest: `SELECT token FROM fencing_tokens WHERE name = ? FOR UPDATE`,
	}
}

// Create creates the table if it is not there. It is for the deployment, or the start of
// the program.
func (s *SQL) Create(ctx context.Context) error {
	if _, err := s.db.ExecContext(ctx, s.create); err != nil {
		return fmt.Errorf("fencing: create the table: %w", err)
	}
	return nil
}

// Do calls write with a transaction, and commits it, if token is not older than the newest
// of the resource name. Otherwise it does not call it, and returns a *StaleError, or
// ErrNoToken for 0. An equal token is in order.
//
// If write returns an error, Do returns that, and nothing is changed, the newest token
// included. After an error of the commit the writes may have been made.
func (s *SQL) Do(ctx context.Context, name string, token uint64, write func(tx *sql.Tx) error) error {
	if token == 0 {
		return ErrNoToken
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("fencing: begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := s.Check(ctx, tx, name, token); err != nil {
		return err
	}
	if err := write(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("fencing: commit: %w", err)
	}
	return nil
}

// Check is Do for a transaction of your own: the first statement in it, before any read. It
// returns a *StaleError if token is older than the newest of the resource name, ErrNoToken
// if it is 0; then roll the transaction back. An equal token is in order.
//
// The token counts once the transaction is committed.
func (s *SQL) Check(ctx context.Context, tx *sql.Tx, name string, token uint64) error {
	if token == 0 {
		return ErrNoToken
	}
	// The number of affected rows would not do: in MySQL an equal token affects none.
	if _, err := tx.ExecContext(ctx, s.raise, name, Text(token)); err != nil {
		return fmt.Errorf("fencing: raise the token of %q: %w", name, err)
	}
	var newest string
	if err := tx.QueryRowContext(ctx, s.newest, name).Scan(&newest); err != nil {
		return fmt.Errorf("fencing: read the token of %q: %w", name, err)
	}
	return admitText(token, Text(token), newest)
}

// Text returns token as 20 digits: texts of that form have the order of their numbers.
func Text(token uint64) string { return fmt.Sprintf("%020d", token) }
