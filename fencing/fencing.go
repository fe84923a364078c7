// Package fencing is the resource's side of fencing tokens. It refuses writes and reads of a holder
// that does not know yet that its lock has ended, because the holder was paused or its request was
// delayed.
//
// Lock with redsync.WithFencing, take the token right after Lock, and send it along
// with each write of that hold:
//
//	mutex := rs.NewMutex("orders:17", redsync.WithFencing())
//	if err := mutex.LockContext(ctx); err != nil {
//		return err
//	}
//	defer mutex.Unlock()
//	token := mutex.Fence()
//
//	err := guard.Do(token, func() error { return write(order) })
//	if errors.Is(err, fencing.ErrStale) {
//		// another process has held the lock since: nothing was written
//	}
//
// The guard stands where the data is:
//
//   - [Guard] in the process that has the data, [Guards] for many resources;
//   - [Redis] for a value in Redis, written and checked by one script;
//   - [SQL] for PostgreSQL, SQLite and MySQL, in one transaction with the writes;
//   - [Admit] for anything else that can compare and write in one step.
//
// # What a guard does
//
// A guard keeps the newest token that it has seen.
//
//   - A greater token is admitted and becomes the newest.
//   - An equal token is admitted: the same holder writes again.
//   - An older token is refused with a [*StaleError], which matches [ErrStale]. Nothing is
//     written.
//   - The token 0 is refused with [ErrNoToken]: Fence returns 0 without WithFencing, and when the
//     Mutex has not held the lock or has unlocked it.
//
// Tokens are compared exactly as uint64, even if the database has no such type.
//
// # Readers
//
// A lock may have many readers at once: each locks with redsync.WithShared and redsync.WithFencing,
// and has a token of its own, of the same sequence as the writers. Readers call Read of the guard.
// For them the guard keeps a second token: the newest token of a write.
//
//   - A read is admitted if its token is not older than the newest token of a write. So a late
//     reader does not see half of what a newer holder writes.
//   - A write is admitted if its token is not older than the newest of all tokens, those of reads
//     included. So a late writer does not change what a newer reader has seen.
//
// A read never makes the guard refuse another read, in whatever order they come. A holder may read,
// write and read again with its own token, unless a newer holder has come in between. After a newer
// holder's read it may still read, as after Downgrade, but not write.
//
// # What it needs
//
//   - Every write to the protected resource goes through the guard, and so does every read of a
//     holder that must not see half a write. What bypasses the guard is not protected.
//   - The newest token is kept as long as the data. A guard that has forgotten the token admits
//     an old holder. Tokens of different locks cannot be compared: each name needs its own guard.
//   - A holder that reads before it writes calls Check first, or reads with Read. Otherwise an older
//     holder may still write between the read and the write, and that write would be lost unnoticed.
//   - The token belongs to the hold under which the write was prepared. Take it once, right after
//     Lock: if the Mutex is locked again, Fence returns the token of the new hold.
//
// As in package redsync, a nil context stands for context.Background(). This package is stable (docs/versions.md).
package fencing

import (
	"context"
	"errors"
	"fmt"
)

var (
	// ErrStale means that another process has held the lock since. The token of the write is
	// older than one that the resource has seen, or the token of the read is older than that of
	// a write. The error returned is a *StaleError that matches ErrStale.
	ErrStale = errors.New("fencing: stale token")

	// ErrNoToken means that the token of a write or read is 0: the Mutex has no redsync.WithFencing, or
	// had not locked, or had unlocked, when Fence was called.
	ErrNoToken = errors.New("fencing: token 0: lock with WithFencing, and call Fence while the lock is held")
)

// A StaleError is the refusal of a write or read with Token, because the resource has seen Newest,
// which is greater. For a read, Newest is the newest token of a write. It matches ErrStale.
type StaleError struct{ Token, Newest uint64 }

func (e *StaleError) Error() string {
	return fmt.Sprintf("fencing: token %d is stale: the resource has seen %d", e.Token, e.Newest)
}

// Unwrap makes e match ErrStale.
func (e *StaleError) Unwrap() error { return ErrStale }

// Admit is the rule that every guard applies, for a resource that keeps its newest token itself.
// newest is the newest token that the resource has seen, 0 if it has seen none. Admit returns nil
// if a write with token may be made; otherwise it returns ErrNoToken or a *StaleError. The write
// must store token together with the data, in one atomic step with the check.
//
// A resource with readers keeps two tokens: the newest of all, and the newest of a write. A read
// may be made if Admit(token, newest of a write) returns nil. If token is greater than the newest
// of all, the reader must store it as the newest of all, in one atomic step with the check. The
// data must be read after that, or in the same step. A write stores its token as both.
func Admit(token, newest uint64) error {
	switch {
	case token == 0:
		return ErrNoToken
	case token < newest:
		return &StaleError{Token: token, Newest: newest}
	}
	return nil
}

func orBackground(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}
