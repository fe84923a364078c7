package redsync

import (
	"context"
	"errors"
	"slices"

	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// This file has the contexts of callers: which of them a hold ends, and what their end says.

// A bond is a context from which one is derived that ends with a hold: an ending or a scope.
type bond interface {
	// parent returns the context around it.
	parent() context.Context

	// held returns the hold, nil once it has ended the context that is derived from the bond.
	held() *lease.Lease
}

type bondKey struct{}

// apart returns a context that does not end because a hold ends that the call with ctx may end itself: one for which own
// returns true. It ends if what is around such a hold's contexts ends, and if ctx ends for another reason. Of a context
// that has ended with the hold nothing but its deadline is known any more. Once ctx has ended, apart returns it. The caller
// must call stop.
func apart(ctx context.Context, own func(*lease.Lease) bool) (waiting context.Context, stop func()) {
	if ctx.Done() == nil || ctx.Err() != nil {
		return ctx, func() {}
	}
	var bonds []bond
	for at := ctx; at != nil; {
		b, _ := at.Value(bondKey{}).(bond)
		if at = nil; b != nil {
			at = b.parent()
			if h := b.held(); h != nil && own(h) {
				bonds = append(bonds, b)
			}
		}
	}
	if len(bonds) == 0 {
		return ctx, func() {}
	}
	return outlasting(ctx, bonds)
}

// outlasting returns a context that ends as apart says. The holds of the bonds, from the inside to the outside, may end ctx.
func outlasting(ctx context.Context, bonds []bond) (context.Context, func()) {
	around := bonds[len(bonds)-1].parent()
	isOver := func(b bond) bool { return b.held() == nil }
	waiting, end, stop := lease.Outlasting(ctx, func(waiting context.Context) error {
		if !slices.ContainsFunc(bonds, isOver) {
			return interrupt{ctx}
		}
		last, has := around.Deadline()
		if limit, is := ctx.Deadline(); is && (!has || limit.Before(last)) {
			return interrupt{lease.Linger(waiting, limit)}
		}
		return nil
	})
	stopAround := context.AfterFunc(around, func() { end(interrupt{around}) })
	return waiting, func() {
		stopAround()
		stop()
	}
}

// apartFrom is apart for a call that may end h.
func apartFrom(ctx context.Context, h *lease.Lease) (waiting context.Context, stop func()) {
	return apart(ctx, func(other *lease.Lease) bool { return other == h })
}

// contextErrors returns the error of ctx and its cause, nil if ctx is not done.
func contextErrors(ctx context.Context) error {
	cause := context.Cause(ctx)
	if i, is := cause.(interrupt); is { //nolint:errorlint // nobody wraps it
		return contextErrors(i.of) //nolint:contextcheck // ctx has ended with that one
	}
	if errors.Is(cause, ctx.Err()) { // true also if ctx is not done, because then both are nil
		return cause
	}
	return fail("", "", ctx.Err(), cause)
}

// An interrupt is the cause of a context that has ended with another one, which may have ended at a deadline.
type interrupt struct{ of context.Context } //nolint:containedctx // it is read, and nothing runs under it

func (i interrupt) Error() string { return i.Unwrap().Error() }

// Unwrap returns the cause of that one.
func (i interrupt) Unwrap() error { return context.Cause(i.of) }
