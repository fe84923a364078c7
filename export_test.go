package redsync

// KnowsToken lets r know a fencing token of a lock, as if a register had shown it: its
// proposals are then those of a clock that is ahead.
func KnowsToken(r *Redsync, name string, token uint64) { r.core.known.raise(name, token) }

// PeekValue returns what Value does, for a test alone: the value does not count as shown.
func PeekValue(m *Mutex) string {
	if h := m.current(); h != nil {
		return h.value()
	}
	return ""
}

// SameProcess reports whether two Redsyncs are one process to the nodes.
func SameProcess(a, b *Redsync) bool { return a.core.group == b.core.group }

// Groups returns of how many lists of clients there are groups.
func Groups() int {
	groups.Lock()
	defer groups.Unlock()
	return len(groups.byClients)
}
