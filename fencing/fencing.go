// Package fencing is the resource's side of fencing tokens. It refuses writes and reads of a holder that does not know
// yet that its lock has ended: it was paused, or its request was late.
//
// Take the token right after Lock, and send it along with each write of that hold:
//
//	mutex := rs.NewMutex("orders:17", redsync.WithFencing())
//	if err := mutex.LockContext(ctx); err != nil {
//		return err
//	}
//	token := mutex.Fence()
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
// A guard keeps the newest token that it has seen. A token that is equal or greater is admitted. An older one is
// refused with a [*StaleError], which matches [ErrStale], the token 0 with [ErrNoToken]. Then nothing is written.
//
// # Readers
//
// A reader locks with redsync.WithShared and redsync.WithFencing, and calls Read of the guard. Its token is of the same
// sequence as those of writers. The guard keeps a second token: the newest of a write.
//
//   - A read needs a token not older than the newest of a write. So a late reader does not see half of a newer write.
//   - A write needs a token not older than the newest of all. So a late writer does not change what a newer reader has
//     seen.
//
// Reads never refuse each other. A holder may read, write and read again with its own token. After a newer holder's
// read it may still read, as after Downgrade, but not write.
//
// # What it needs
//
//   - Every write to the resource goes through the guard, and every read that must not see half a write.
//   - The newest token is kept as long as the data. A guard that has forgotten it admits an old holder.
//   - Tokens of different locks cannot be compared: each name needs its own guard.
//   - A holder that reads before it writes calls Check first, or reads with Read. Otherwise an older holder may write
//     in between, and that write would be lost.
//   - Take the token once: after another Lock of the Mutex, Fence returns a new one.
//
// A nil context stands for context.Background(). This package is stable (docs/versions.md).
package fencing

import (
	"context"
	"errors"
	"fmt"
)

var (
	// ErrStale means that the resource has seen a newer token: another process has held the lock since. It is matched
	// by a *StaleError.
	ErrStale = errors.New("fencing: stale token")

	// ErrNoToken means that the token is 0. Fence returns 0 without redsync.WithFencing, before Lock and after Unlock.
	ErrNoToken = errors.New("fencing: token 0: lock with WithFencing, and call Fence while the lock is held")
)

// A StaleError refuses Token, because the resource has seen Newest, which is greater. For a read, Newest is the newest
// token of a write. It matches ErrStale.
type StaleError struct{ Token, Newest uint64 }

func (e *StaleError) Error() string {
	return fmt.Sprintf("fencing: token %d is stale: the resource has seen %d", e.Token, e.Newest)
}

// Unwrap makes e match ErrStale.
func (e *StaleError) Unwrap() error { return ErrStale }

// Admit is the rule of every guard, for a resource that keeps its newest token itself. newest is that token, 0 for
// none. Admit returns nil if a write with token may be made, otherwise ErrNoToken or a *StaleError. The write must
// store token with the data, in one atomic step with the check.
//
// A resource with readers keeps two tokens: the newest of all, and of a write. A write stores its token as both. A read
// calls Admit with the newest of a write, and in the same atomic step raises the newest of all to token. It reads the
// data in that step, or after it.
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
