package redsync

// KnowsToken lets r know a fencing token of a lock, as if a register had shown it: its
// proposals are then those of a clock that is ahead.
func KnowsToken(r *Redsync, name string, token uint64) { r.core.known.raise(name, token) }
