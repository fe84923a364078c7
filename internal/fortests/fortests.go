// Package fortests gives tests of other packages access to internals of the library. The root of the library sets the
// variables. Only tests call the functions, so that no program without tests contains them.
package fortests

import (
	"log/slog"

	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/queue"
)

var (
	// Lease returns the current hold of a *redsync.Mutex, nil if there is none.
	Lease func(mutex any) *lease.Lease

	// Keeper returns what the leases of a *redsync.Redsync share.
	Keeper func(r any) *lease.Keeper

	// Exclusions returns the pairs of options and calls that do not go together.
	Exclusions func() [][2]string

	// LogHooks returns the *observe.Hooks of redsync.WithLogger, for a Redsync without locks.
	LogHooks func(log *slog.Logger) any
)

// Value returns the value of the current hold of a *redsync.Mutex, without marking it as shown. It returns "" if there is
// no hold.
func Value(mutex any) string {
	if h := Lease(mutex); h != nil {
		return h.Value()
	}
	return ""
}

// Ended returns a channel that is closed when the current hold of a *redsync.Mutex has ended, even if Unlock or Detach
// has ended it.
func Ended(mutex any) <-chan struct{} { return Lease(mutex).Done() }

// SameProcess reports whether two *redsync.Redsync are one process to the nodes.
func SameProcess(a, b any) bool { return Keeper(a).Waiters == Keeper(b).Waiters }

// KnowsToken makes a *redsync.Redsync know a fencing token of a lock, as if a node had reported it. The Redsync then
// proposes greater tokens, as if its clock were ahead.
func KnowsToken(r any, name string, token uint64) { Keeper(r).Tokens.Raise([]string{name}, token) }

// ForgetValues makes the library forget which values of users it has used.
func ForgetValues() { lease.ForgetValues() }

// WaitOutSplits makes a *redsync.Redsync that has not been used wait for the node deadline where votes are split, as if
// nodes that are late might still decide.
func WaitOutSplits(r any) { Keeper(r).Set.WaitOutSplits() }

// BeRash switches rules against haste off for a *redsync.Redsync that has not been used.
func BeRash(r any, rules queue.Rash) {
	if g, ok := Keeper(r).Waiters.(*queue.Group); ok {
		g.Rash = rules
	}
}

// Alarms returns how many alarms the locks of a *redsync.Redsync have set, and how many they wait for now.
func Alarms(r any) (set, now int) { return Keeper(r).CountAlarms() }
