package fencing

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// DefaultBound is how long a transaction of SQL.Do may take, unless Within or the deadline of the
// context says otherwise. It is the default expiry of a lock: when the lock of a stopped holder has
// expired, its transaction has ended, too.
const DefaultBound = 8 * time.Second

// ErrBound means that a transaction of SQL.Do took longer than its bound, and was rolled back by Do or
// ended by the server: nothing was written. If the commit had begun, the text of the error says "commit",
// and the writes may have been made.
var ErrBound = errors.New("fencing: the transaction took longer than its bound")

// Within returns a guard like s whose transactions of Do may take as long as bound, from the
// admission of the token to the beginning of the commit. A deadline of the context that comes earlier
// ends them earlier. 0 or less means no bound.
//
// Where a process is stopped, or its host is dead, only the database can end the transaction. Do asks it
// to, for this transaction alone, and never loosens what the session has already:
//
//   - PostgreSQL ends the session if bound and a quarter of a second pass without a statement
//     (idle_in_transaction_session_timeout), and each statement that takes longer than bound
//     (statement_timeout). It waits for other transactions at most a second longer (lock_timeout).
//   - MariaDB 10.3 and later does the same, in whole seconds, rounded up (idle_transaction_timeout,
//     idle_write_transaction_timeout, max_statement_time, innodb_lock_wait_timeout). A statement that takes
//     too long is ended, but what the transaction has locked stays locked until it has also been
//     idle for bound.
//   - MySQL 5.7 and later has wait_timeout and innodb_lock_wait_timeout, and nothing that bounds a
//     statement which works. This package has not been tested on MySQL.
//   - SQLite cannot end the transaction of another process. Do sets busy_timeout to bound. If the
//     holder is stopped for longer, Do fails with SQLITE_BUSY: see [Repeat].
//
// MariaDB and MySQL need two more statements for that, one before the transaction and one after it.
func (s *SQL) Within(bound time.Duration) *SQL {
	bounded := *s
	bounded.bound = bound
	return &bounded
}

// limit returns how long a transaction that begins now may take, 0 for any time. In a context that has
// ended it is short, and does not matter.
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

// A term is the time in which a transaction has the row of its token, and others wait for it.
type term struct {
	ctx   context.Context //nolint:containedctx // of one call of Do
	start clock.Instant
	limit time.Duration // 0: any time
	timer *time.Timer   // ends the transaction
}

// startTerm calls end when the term is over.
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

// isOver reports whether the term is over. It also asks the wall clock, because the timer stands still
// while a machine is suspended.
func (t *term) isOver() bool {
	return t.limit > 0 && clock.Now().Since(t.start) >= t.limit || errors.Is(t.ctx.Err(), context.DeadlineExceeded)
}

// exceeded returns the error of Do if the term is over. err may be nil. If not, it often says only that the connection
// has ended.
func (t *term) exceeded(err error) error {
	bound := fmt.Errorf("%w of %v", ErrBound, t.limit.Round(time.Millisecond))
	// The context may not know of its deadline yet: its timer is late after a stop.
	if deadline, ok := t.ctx.Deadline(); ok && !time.Now().Before(deadline) && !errors.Is(err, context.DeadlineExceeded) {
		bound = fmt.Errorf("%w: %w", bound, context.DeadlineExceeded)
	}
	if err == nil {
		return bound
	}
	return fmt.Errorf("%w: %w", bound, err)
}

// outlived makes err match ErrBound if the server says that the transaction was idle for too long.
func outlived(err error) error {
	if sqlState(err) == "25P03" && !errors.Is(err, ErrBound) {
		return fmt.Errorf("%w: %w", ErrBound, err)
	}
	return err
}

// begin begins a transaction that may take as long as limit, where that is a setting of the session. The caller
// calls restore when the transaction has ended.
func (s *SQL) begin(ctx context.Context, limit time.Duration) (tx *sql.Tx, restore func(), err error) {
	if s.session == nil || limit == 0 {
		tx, err = s.db.BeginTx(ctx, nil)
		return tx, func() {}, err
	}
	// Each connection of the pool may have ended meanwhile. A DB tries others by itself, a Conn does not.
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
		// The connection goes back to others. If it cannot be as it was, it is not used again.
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

// raiseWithin sets the settings of the transaction before it waits for the row. So they hold as soon as it has
// the row, even if the process has been stopped by then. lock_timeout is for the wait of this statement;
// statement_timeout is for the next statements. The server gives a transaction that is idle a little more
// time, so that a process that runs can roll back, and keep its connection.
var raiseWithin = fmt.Sprintf(`INSERT INTO fencing_tokens (name, token)
	SELECT $1::text, $2::text WHERE %s AND %s AND %s
	ON CONFLICT (name) DO UPDATE SET token = GREATEST(fencing_tokens.token, excluded.token)`,
	setLocal("idle_in_transaction_session_timeout", "250"), setLocal("statement_timeout", "0"), setLocal("lock_timeout", "1000"))

// setLocal is true, and sets a timeout for the transaction to the third argument and more milliseconds, unless the session has a
// shorter one.
func setLocal(name, more string) string {
	return fmt.Sprintf(`set_config('%[1]s', LEAST($3::bigint + %[2]s,
		NULLIF((extract(epoch FROM current_setting('%[1]s')::interval) * 1000)::bigint, 0))::text, true) <> ''`, name, more)
}

// sessionMySQL has one statement for all servers. MariaDB executes the comment M!100300, and MySQL the comment
// !50700, which is in the range of versions that MariaDB ignores.
func sessionMySQL(ctx context.Context, conn *sql.Conn, limit time.Duration) (string, error) {
	seconds := int64((limit + time.Second - 1) / time.Second)
	set := func(name string) string {
		return fmt.Sprintf("@fencing_%[1]s = @@SESSION.%[1]s, SESSION %[1]s = IF(@@SESSION.%[1]s = 0, %[2]d, LEAST(@@SESSION.%[1]s, %[2]d))", name, seconds)
	}
	_, err := conn.ExecContext(ctx, fmt.Sprintf(`SET @fencing_lock = @@SESSION.innodb_lock_wait_timeout,
		SESSION innodb_lock_wait_timeout = LEAST(@@SESSION.innodb_lock_wait_timeout, %d)
		/*M!100300 , %s, %s, %s */ /*!50700 , %s */`, seconds+1, set("idle_transaction_timeout"),
		set("idle_write_transaction_timeout"), set("max_statement_time"), set("wait_timeout")))
	return `SET SESSION innodb_lock_wait_timeout = @fencing_lock
		/*M!100300 , SESSION idle_transaction_timeout = @fencing_idle_transaction_timeout,
		SESSION idle_write_transaction_timeout = @fencing_idle_write_transaction_timeout,
		SESSION max_statement_time = @fencing_max_statement_time */
		/*!50700 , SESSION wait_timeout = @fencing_wait_timeout */`, err
}

func sessionSQLite(ctx context.Context, conn *sql.Conn, limit time.Duration) (string, error) {
	var before int64
	if err := conn.QueryRowContext(ctx, `PRAGMA busy_timeout`).Scan(&before); err != nil {
		return "", err
	}
	_, err := conn.ExecContext(ctx, fmt.Sprintf(`PRAGMA busy_timeout = %d`, limit.Milliseconds()))
	return fmt.Sprintf(`PRAGMA busy_timeout = %d`, before), err
}
