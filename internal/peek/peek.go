// Package peek gives tests of other packages access to internals of the library. The library sets
// its variables.
package peek

import "log/slog"

var (
	// Value returns the value of the current hold of a *redsync.Mutex, without marking it as
	// shown. It returns "" if there is no hold.
	Value func(mutex any) string

	// KnowsToken makes a *redsync.Redsync know a fencing token of a lock, as if a node had
	// reported it. The Redsync then proposes greater tokens, as if its clock were ahead.
	KnowsToken func(r any, name string, token uint64)

	// WaitOutSplits makes a *redsync.Redsync that has not been used wait for the node deadline where votes are split, as if
	// nodes that are late might still decide.
	WaitOutSplits func(r any)

	// Exclusions returns the pairs of options and calls that do not go together.
	Exclusions func() [][2]string

	// Alarms returns how many alarms the locks of a *redsync.Redsync have set, and how many they wait for now.
	Alarms func(r any) (set, now int)

	// Ended returns a channel that is closed when the current hold of a *redsync.Mutex has ended, even if Unlock or
	// Detach has ended it.
	Ended func(mutex any) <-chan struct{}

	// SameProcess reports whether two *redsync.Redsync are one process to the nodes.
	SameProcess func(a, b any) bool

	// SequencerOfNames returns the redsync.Sequencer of a hold on these names.
	SequencerOfNames func(names []string, token uint64, value string) any

	// LogObserver returns the observer of redsync.WithLogger, for a Redsync without locks.
	LogObserver func(log *slog.Logger) any
)
