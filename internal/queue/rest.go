package queue

// This file decides when a waiter need not poll. A waiter that the nodes can wake rests: its retry delays pass without an
// attempt, and it shows its ticket every half second. The reply tells whether the lock is free. So it also sees the
// release of a client that wakes nobody. A waiter whose retry delay the user has chosen does not rest.

// earlyShows is how many of its first retry delays make a waiter show its ticket at once, if it rests: so it learns soon
// if somebody releases the lock without a message.
const earlyShows = 2

// isWakableLocked reports whether w, the first in its line, can wait for the nodes to wake it: they have its ticket, a
// quorum of them can be heard, none denies the queue, and the lock was not released silently of late.
func (g *Group) isWakableLocked(w *waiter) bool {
	if !w.isQueued() || w.heardTooFew || g.lines.silent.hasLocked(w.names[w.at]) || !g.subscriber.wakes(w.unfit) {
		return false
	}
	for _, n := range w.terms.Keeper.Set.Nodes {
		if n.DeniesQueues(w.names) {
			return false
		}
	}
	return true
}
