package main

import (
	"context"
	"errors"

	"github.com/hashicorp/go-multierror"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
)

// denials ends a wait without limit if no node is silent and too many refuse for a reason that only a change of settings
// takes away, such as a missing permission. Nodes that are down may come back, so they do not end it.
type denials struct {
	end context.CancelCauseFunc
}

func (d *denials) hooks() *observe.Hooks { return &observe.Hooks{Attempt: d.attempted} }

func (d *denials) attempted(_ context.Context, a observe.Attempt) {
	var nodes *multierror.Error
	if !errors.Is(a.Err, redsync.ErrNoQuorum) || !errors.As(a.Err, &nodes) {
		return
	}
	var denied *redsync.RedisError
	for _, err := range nodes.Errors {
		if !errors.As(err, &denied) || !pool.IsPermanent(denied.Err) {
			return
		}
	}
	d.end(denied)
}
