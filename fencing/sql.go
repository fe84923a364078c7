package fencing

import (
	"context"
	"database/sql"
	"fmt"
)

// SQL guards data in any tables of a database. It keeps the newest token of each resource in a
// table of its own, fencing_tokens, and raises it in the transaction that makes the writes. Until
// that transaction ends, all others with the same name wait for the row. Many goroutines may use an
// SQL at once. Names have at most 255 bytes.
//
// A token is kept as a text of 20 digits, because BIGINT ends at 2^63-1, SQLite's NUMERIC is a
// float beyond that, and database/sql does not accept a greater uint64. As text every token is
// exact, and texts sort like their numbers.
//
// # A column of your own
//
// If a lock protects one row, that row can hold the token, in a column for 20 digits (in
// PostgreSQL TEXT COLLATE "C", in SQLite TEXT, in MySQL CHAR(20) CHARACTER SET ascii):
//
//	UPDATE orders SET state = ?, fence = ? WHERE id = ? AND fence <= ?
//
// Refuse the token 0 before the statement, as [Admit](token, 0) does. Pass [Text] of the token for fence in both
// places. If the statement affects no row, the row has a
// newer token or does not exist. In MySQL without clientFoundRows=true, a statement that writes what
// is there already also affects no row.
type SQL struct {
	db                    *sql.DB
	create, raise, newest string
}

// NewPostgreSQL returns a guard of the data in db, a PostgreSQL database.
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

// NewSQLite returns a guard of the data in db, an SQLite database of version 3.24 or later. Set a
// busy timeout, or concurrent calls fail instead of waiting.
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

// NewMySQL returns a guard of the data in db, a MySQL or MariaDB database with InnoDB.
func NewMySQL(db *sql.DB) *SQL {
	return &SQL{
		db: db,
		create: `CREATE TABLE IF NOT EXISTS fencing_tokens
			(name VARBINARY(255) PRIMARY KEY, token CHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL)
			ENGINE = InnoDB`,
		raise: `INSERT INTO fencing_tokens (name, token) VALUES (?, ?)
			ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))`,
		// FOR UPDATE reads the current row, not the snapshot of the transaction, which may be
		// older.
		newest: `SELECT token FROM fencing_tokens WHERE name = ? FOR UPDATE`,
	}
}

// Create creates the table if it does not exist. Call it during deployment, or when the program
// starts.
func (s *SQL) Create(ctx context.Context) error {
	if _, err := s.db.ExecContext(orBackground(ctx), s.create); err != nil {
		return fmt.Errorf("fencing: create the table: %w", err)
	}
	return nil
}

// Do calls write with a transaction and commits it, if token is not older than the newest of the
// resource with that name. Otherwise it does not call write, and returns a *StaleError, or
// ErrNoToken if token is 0. An equal token is admitted.
//
// If write returns an error, Do returns it and rolls everything back, the newest token included.
// If the commit returns an error, the writes may or may not have been made.
func (s *SQL) Do(ctx context.Context, name string, token uint64, write func(tx *sql.Tx) error) error {
	if token == 0 {
		return ErrNoToken
	}
	ctx = orBackground(ctx)
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

// Check does in a transaction of your own what Do does before it calls write: it compares token with
// the newest token of the resource with that name, and stores token if it is newer. Call it before any
// other statement in the transaction. It returns a *StaleError if token is older than the newest,
// ErrNoToken if token is 0. Roll the transaction back after any error. An equal token is admitted.
//
// The token counts as seen once the transaction is committed.
func (s *SQL) Check(ctx context.Context, tx *sql.Tx, name string, token uint64) error {
	if token == 0 {
		return ErrNoToken
	}
	ctx = orBackground(ctx)
	// The number of affected rows does not show whether the token is admitted: in MySQL an equal token
	// affects no row.
	if _, err := tx.ExecContext(ctx, s.raise, name, Text(token)); err != nil {
		return fmt.Errorf("fencing: raise the token of %q: %w", name, err)
	}
	var newest string
	if err := tx.QueryRowContext(ctx, s.newest, name).Scan(&newest); err != nil {
		return fmt.Errorf("fencing: read the token of %q: %w", name, err)
	}
	return admitText(token, Text(token), newest)
}

// Text returns token as 20 digits. Texts of that form sort like their numbers.
func Text(token uint64) string { return fmt.Sprintf("%020d", token) }
