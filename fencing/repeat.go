package fencing

import (
	"context"
	"errors"
	"math/rand/v2"
	"regexp"
	"time"
)

// ErrBound means that a transaction of SQL.Do took longer than its bound. It was rolled back, unless the text of the
// error says "commit": then the writes may have been made.
var ErrBound = errors.New("fencing: the transaction took longer than its bound")

// Repeat calls call, for example with SQL.Do inside, until it returns no error that is [Repeatable], or until ctx ends.
// It returns the last error. It waits for a random time between two calls, up to 100 ms.
//
//	err := fencing.Repeat(ctx, func() error {
//		return guard.Do(ctx, "orders:17", token, write)
//	})
//
// Keep the token: a newer one could belong to a hold that knows nothing of the write.
func Repeat(ctx context.Context, call func() error) error {
	ctx = orBackground(ctx)
	for longest := 2 * time.Millisecond; ; longest = min(2*longest, 100*time.Millisecond) {
		err := call()
		if !Repeatable(err) {
			return err
		}
		timer := time.NewTimer(rand.N(longest)) //nolint:gosec // a delay is no secret
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
	}
}

// Repeatable reports whether a database has ended a transaction because of others, and SQL.Do or Read with the same
// token may succeed: a serialization failure, a deadlock, or too long a wait for a lock. These are in PostgreSQL
// SQLSTATE 40001, 40P01 and 55P03, in MySQL and MariaDB the errors 1213, 1205 and 1020, in SQLite SQLITE_BUSY.
// Repeatable is false for ErrBound.
//
// It knows the errors of pgx, lib/pq, go-sql-driver/mysql, modernc.org/sqlite, mattn/go-sqlite3 and drivers with the
// same texts, also wrapped.
func Repeatable(err error) bool {
	if err == nil || errors.Is(err, ErrBound) {
		return false
	}
	switch sqlState(err) {
	case "40001", "40P01", "55P03":
		return true
	case "":
		return repeatableText.MatchString(err.Error())
	}
	return false
}

// repeatableText matches the errors of drivers that have no method SQLState.
var repeatableText = regexp.MustCompile(`\bError (1020|1205|1213)( \(\w{5}\))?: |database is locked|\bSQLITE_BUSY`)

// sqlState returns the SQLSTATE of an error of PostgreSQL, "" for other errors.
func sqlState(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}
