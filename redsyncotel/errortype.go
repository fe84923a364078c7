package redsyncotel

import (
	"cmp"
	"context"
	"errors"

	"github.com/seed14bd9ef4/redsync"
)

// The values of error.type: README.md says what each means.
const (
	typeTaken            = "taken"
	typeMaxHold          = "max_hold"
	typeClosed           = "closed"
	typeNested           = "nested"
	typeDuplicateNode    = "duplicate_node"
	typeNoPools          = "no_pools"
	typeNoQuorum         = "no_quorum"
	typeCanceled         = "canceled"
	typeDeadlineExceeded = "deadline_exceeded"
	typeNotHeld          = "not_held"
	typeExpired          = "expired"
	typeLost             = "lost"
	typeExtendFailed     = "extend_failed"
	typeOther            = "_OTHER" // as the semantic conventions have it
)

// sentinels are the errors of package redsync that say why a call failed or a lock ended, the more telling ones first.
// They come before the error of the context, which an error may also match.
var sentinels = []sentinel{
	{redsync.ErrMaxHold, typeMaxHold},
	{redsync.ErrClosed, typeClosed},
	{redsync.ErrNested, typeNested},
	{redsync.ErrDuplicateNode, typeDuplicateNode},
	{redsync.ErrNoPools, typeNoPools},
	{redsync.ErrNoQuorum, typeNoQuorum},
}

// endings are what remains if nothing more telling is known.
var endings = []sentinel{
	{redsync.ErrNotHeld, typeNotHeld}, // it also matches the next one
	{redsync.ErrLockAlreadyExpired, typeExpired},
	{redsync.ErrLockLost, typeLost},
	{redsync.ErrExtendFailed, typeExtendFailed},
}

type sentinel struct {
	err  error
	kind string
}

// errorType returns the error.type of err, "" for nil. ctx is that of the call: an error of a node may match
// context.DeadlineExceeded, too, so the context itself must be done.
func errorType(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return ""
	case ctx.Err() == nil && errors.Is(err, redsync.ErrFailed): // in most cases; it comes with none of the sentinels
		return typeTaken
	}
	if kind := find(sentinels, err); kind != "" {
		return kind
	}
	if kind := contextType(ctx, err); kind != "" {
		return kind
	}
	if isTaken(err) {
		return typeTaken
	}
	if kind := find(endings, err); kind != "" {
		return kind
	}
	return typeOther
}

// reason is errorType for what has an error in any case.
func reason(ctx context.Context, err error) string {
	return cmp.Or(errorType(ctx, err), typeOther)
}

func find(all []sentinel, err error) string {
	for _, s := range all {
		if errors.Is(err, s.err) {
			return s.kind
		}
	}
	return ""
}

// contextType returns the error.type of an err that the end of ctx has caused, or "".
func contextType(ctx context.Context, err error) string {
	switch why := ctx.Err(); {
	case why == nil || !errors.Is(err, why):
		return ""
	case errors.Is(why, context.DeadlineExceeded):
		return typeDeadlineExceeded
	}
	return typeCanceled
}

// isTaken reports whether others have the lock.
func isTaken(err error) bool {
	taken := (*redsync.ErrTaken)(nil)
	return errors.Is(err, redsync.ErrFailed) || errors.As(err, &taken)
}

// isOver reports whether err proves that a lock has ended before its Unlock. ErrNotHeld, which matches
// ErrLockAlreadyExpired, does not.
func isOver(err error) bool {
	if errors.Is(err, redsync.ErrNotHeld) {
		return false
	}
	return errors.Is(err, redsync.ErrLockLost) || errors.Is(err, redsync.ErrLockAlreadyExpired)
}
