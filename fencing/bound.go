package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// DefaultBound is how long a transaction of SQL.Do may take, unless Within or the deadline of the context says
// otherwise. It is the default expiry of a lock: when that of a stopped holder has expired, its transaction has ended.
const DefaultBound = 8 * time.Second

// A term is the time in which a transaction has the row of its token, and others wait for it.
type term struct {
	ctx   context.Context //nolint:containedctx // of one call of Do
	start clock.Instant
	limit time.Duration // 0: any time
	timer *time.Timer   // ends the transaction
}

// isOver also asks the wall clock, because the timer stands still while a machine is suspended.
func (t *term) isOver() bool {
	return t.limit > 0 && clock.Now().Since(t.start) >= t.limit || errors.Is(t.ctx.Err(), context.DeadlineExceeded)
}

// exceeded returns the error of Do if the term is over. err, which may be nil, often says only that the connection has
// ended.
func (t *term) exceeded(err error) error {
	bound := fmt.Errorf("%w of %v", ErrBound, t.limit.Round(time.Millisecond))
	// The timer of the context is late after a stop, so the context may not know of its deadline yet.
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

// raiseWithin sets the timeouts of the transaction before it waits for the row, so they hold even if the process is
// stopped by then. lock_timeout is for this statement, statement_timeout for the next ones. An idle transaction gets a
// little more time, so that a running process can roll back and keep its connection.
var raiseWithin = fmt.Sprintf(`INSERT INTO fencing_tokens (name, token)
	SELECT $1::text, $2::text WHERE %s AND %s AND %s
	ON CONFLICT (name) DO UPDATE SET token = GREATEST(fencing_tokens.token, excluded.token)`,
	setLocal("idle_in_transaction_session_timeout", "250"), setLocal("statement_timeout", "0"), setLocal("lock_timeout", "1000"))

// setLocal is true. It sets a timeout of the transaction to the third argument plus more milliseconds, unless the
// session has a shorter one.
func setLocal(name, more string) string {
	return fmt.Sprintf(`set_config('%[1]s', LEAST($3::bigint + %[2]s,
		NULLIF((extract(epoch FROM current_setting('%[1]s')::interval) * 1000)::bigint, 0))::text, true) <> ''`, name, more)
}

// sessionMySQL has one statement for all servers. MariaDB executes the comment M!100300, and MySQL the comment !50700,
// which MariaDB ignores.
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
