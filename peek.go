package redsync

import (
	"log/slog"

	"github.com/seed14bd9ef4/redsync/internal/journal"
	"github.com/seed14bd9ef4/redsync/internal/notice"
	"github.com/seed14bd9ef4/redsync/internal/peek"
)

func init() {
	peek.Value = func(mutex any) string {
		if h := mutex.(*Mutex).current(); h != nil {
			return h.Value()
		}
		return ""
	}
	peek.Ended = func(mutex any) <-chan struct{} { return mutex.(*Mutex).current().Done() }
	peek.SameProcess = func(a, b any) bool { return a.(*Redsync).core.member.Group == b.(*Redsync).core.member.Group }
	peek.SequencerOfNames = func(names []string, token uint64, value string) any {
		return sequencerOfNames(names, token, value)
	}
	peek.LogObserver = func(log *slog.Logger) any {
		return (*observers)(nil).withLogger(log, journal.New(&notice.Queue{})).all[0]
	}
	peek.KnowsToken = func(r any, name string, token uint64) {
		r.(*Redsync).core.member.Group.Tokens.Raise([]string{name}, token)
	}
	peek.WaitOutSplits = func(r any) { r.(*Redsync).core.keeper.Set.WaitOutSplits() }
	peek.Exclusions = func() (pairs [][2]string) {
		for _, x := range exclusions {
			pairs = append(pairs, [2]string{x.one.String(), x.other.String()})
		}
		return pairs
	}
	peek.Alarms = func(r any) (set, now int) { return r.(*Redsync).core.keeper.CountAlarms() }
}
