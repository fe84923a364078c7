// Package peek shows tests of other packages what the library keeps to itself. The library sets
// its variables.
package peek

var (
	// Value returns the Value of a *redsync.Mutex that has a hold. The value does not count as
	// shown.
	Value func(mutex any) string

	// KnowsToken lets a *redsync.Redsync know a fencing token of a lock, as if a register had
	// shown it: the proposals of the Redsync are then those of a clock that is ahead.
	KnowsToken func(r any, name string, token uint64)
)
