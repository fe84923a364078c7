// Package fencing is the resource's side of fencing tokens: it refuses the writes of a
// holder whose lock has ended without its knowing, because it was paused, or its
// request was late.
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
//		// somebody else has had the lock since: nothing was written
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
// It keeps the newest token that it has seen.
//
//   - A greater token is let in, and is the newest from then on.
//   - An equal one is let in: the same holder writes again.
//   - An older one is refused with a [*StaleError], which matches [ErrStale]. Nothing is
//     written.
//   - 0 is refused with [ErrNoToken]: it is what Fence returns without WithFencing, or
//     when the lock is not held.
//
// Every uint64 is compared exactly, also where the database has no such type.
//
// # What it needs
//
//   - Every write of what the lock protects goes through the guard. One that goes round
//     it is as dangerous as before.
//   - The newest token lives as long as the data. A guard that has forgotten it lets an
//     old holder in. Tokens are of one lock: two names have two guards.
//   - A holder that reads before it writes calls Check first. Else an older holder may
//     still write between the two, and be overwritten unseen.
//   - The token is that of the hold under which the write was prepared: take it once,
//     after Lock. Fence of a Mutex that has been locked again returns the next one's.
package fencing

import (
	"errors"
	"fmt"
)

var (
	// ErrStale says that a write came with an older token than the resource has
	// seen: somebody else has had the lock since. It comes as a *StaleError.
	ErrStale = errors.New("fencing: stale token")

	// ErrNoToken says that a write came with the token 0: its lock was taken without
	// redsync.WithFencing, or was not held when Fence was called.
	ErrNoToken = errors.New("fencing: token 0: lock with WithFencing, and call Fence while the lock is held")
)

// A StaleError refuses a write with Token: the resource has seen Newest, which is
// greater. It matches ErrStale.
type StaleError struct{ Token, Newest uint64 }

func (e *StaleError) Error() string {
	return fmt.Sprintf("fencing: token %d is stale: the resource has seen %d", e.Token, e.Newest)
}

// Unwrap makes e match ErrStale.
func (e *StaleError) Unwrap() error { return ErrStale }

// Admit is the rule of every guard, for a resource that keeps its newest token itself: it
// returns nil if a write with token may be made where newest has been seen, 0 for none;
// else ErrNoToken or a *StaleError. The write must then store token along with the data,
// and nothing may come between.
func Admit(token, newest uint64) error {
	switch {
	case token == 0:
		return ErrNoToken
	case token < newest:
		return &StaleError{Token: token, Newest: newest}
	}
	return nil
}
