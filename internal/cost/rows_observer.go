package cost

import (
	"context"
	"log/slog"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
)

// watcher observes all that a plain lock does.
type watcher struct{}

func (watcher) ObserveAttempt(context.Context, observe.Attempt)         {}
func (watcher) ObserveVote(context.Context, observe.Vote)               {}
func (watcher) ObserveAcquired(context.Context, observe.Acquired)       {}
func (watcher) ObserveNotAcquired(context.Context, observe.NotAcquired) {}
func (watcher) ObserveReleased(context.Context, observe.Released)       {}

func init() {
	add(
		Row{Name: "Lock + Unlock, one observer", Call: pairs(redsync.WithObserver(watcher{}))},
		Row{Name: "Lock + Unlock, a log without Debug", Call: pairs(redsync.WithLogger(slog.New(slog.DiscardHandler)))},
	)
}
