package redsync

import (
	"context"
	"errors"
	"slices"

	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// A bond is a context from which one is derived that ends with a hold: an ending or a scope.
type bond interface {
	parent() context.Context

	// held returns the hold, nil once it has ended the derived context.
	held() *lease.Lease
}

type bondKey struct{}

// apart returns a context like ctx that does not end with holds for which own returns true, because the call with ctx
// may end them itself. Of a ctx that has ended so only the deadline still counts. The caller must call stop.
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

// outlasting returns the context of apart. bonds are from the inside to the outside.
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

func apartFrom(ctx context.Context, h *lease.Lease) (waiting context.Context, stop func()) {
	return apart(ctx, func(other *lease.Lease) bool { return other == h })
}

func contextErrors(ctx context.Context) error {
	cause := context.Cause(ctx)
	if i, is := cause.(interrupt); is { //nolint:errorlint // nobody wraps it
		return contextErrors(i.of) //nolint:contextcheck // ctx has ended with that one
	}
	if errors.Is(cause, ctx.Err()) {
		return cause
	}
	return fail("", "", ctx.Err(), cause)
}

// An interrupt is the cause of a context that has ended with another one.
type interrupt struct{ of context.Context } //nolint:containedctx // it is read, and nothing runs under it

func (i interrupt) Error() string { return i.Unwrap().Error() }

func (i interrupt) Unwrap() error { return context.Cause(i.of) }
