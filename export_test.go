package redsync

import (
	"log/slog"

	"github.com/seed14bd9ef4/redsync/internal/journal"
	"github.com/seed14bd9ef4/redsync/internal/notice"
	"github.com/seed14bd9ef4/redsync/internal/peek"
	"github.com/seed14bd9ef4/redsync/internal/queue"
)

// KnowsToken lets r know a fencing token of a lock, as if a register had shown it. From then on, r proposes tokens as
// if its clock were ahead.
func KnowsToken(r *Redsync, name string, token uint64) { peek.KnowsToken(r, name, token) }

// PeekValue returns what Value does, but the value does not count as shown to the user.
func PeekValue(m *Mutex) string {
	if m.current() != nil {
		return peek.Value(m)
	}
	return ""
}

// SequencerOfNames returns the Sequencer of a hold on these names.
func SequencerOfNames(names []string, token uint64, value string) Sequencer {
	return sequencerOfNames(names, token, value)
}

// Ended returns a channel that is closed when the current hold of m has ended, even if Unlock or Detach has ended it.
func Ended(m *Mutex) <-chan struct{} { return m.current().Done() }

// SameProcess reports whether two Redsyncs are one process to the nodes.
func SameProcess(a, b *Redsync) bool { return a.core.member.Group == b.core.member.Group }

// Groups returns the number of groups. Redsyncs on the same list of clients are one group.
func Groups() int { return queue.Groups() }

// LogObserver returns the observer of WithLogger, for a Redsync without locks.
func LogObserver(log *slog.Logger) any {
	return (*observers)(nil).withLogger(log, journal.New(&notice.Queue{})).all[0]
}
