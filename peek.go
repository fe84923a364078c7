package redsync

import (
	"log/slog"

	"github.com/seed14bd9ef4/redsync/internal/journal"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/notice"
	"github.com/seed14bd9ef4/redsync/internal/peek"
)

func init() {
	peek.Lease = func(mutex any) *lease.Lease { return mutex.(*Mutex).current() }
	peek.Keeper = func(r any) *lease.Keeper { return &r.(*Redsync).core.keeper }
	peek.Exclusions = func() (pairs [][2]string) {
		for _, x := range exclusions {
			pairs = append(pairs, [2]string{x.one.String(), x.other.String()})
		}
		return pairs
	}
	peek.LogHooks = func(log *slog.Logger) any {
		return (&logLines{log, journal.New(&notice.Queue{}, func() map[string]int { return nil })}).hooks()
	}
}
