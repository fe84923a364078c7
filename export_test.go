package redsync

// KnowsToken lets r know a fencing token, as if a register had shown it: its proposals
// are then those of a clock that is ahead.
func KnowsToken(r *Redsync, token uint64) { raise(&r.core.highestToken, token) }
