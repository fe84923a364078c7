package queue

import "time"

// This file decides when a waiter need not poll. A waiter that the nodes can wake rests: its retry delays pass without an
// attempt, and it shows its ticket every half second. The reply tells whether the lock is free. So it also sees the
// release of a client that wakes nobody. A waiter whose retry delay the user has chosen does not rest.

const (
	// earlyShows is how many of its first retry delays make a waiter show its ticket at once, if it rests: so it learns soon
	// if somebody releases the lock without a message.
	earlyShows = 2

	// silentFor is how long the waiters for a lock poll after it was found free although no message had said so.
	silentFor = 10 * time.Second

	// maxSilent is how many such locks a silent remembers at most.
	maxSilent = 1000
)

// isWakableLocked reports whether w, the first in its line, can wait for the nodes to wake it: they have its ticket, a
// quorum of them can be heard, none denies the queue, and the lock was not released silently of late.
func (g *Group) isWakableLocked(w *waiter) bool {
	if !w.isQueued() || w.heardTooFew || g.lines.silent.hasLocked(w.names[w.at]) || !g.subscriber.wakes() {
		return false
	}
	for _, n := range w.terms.Keeper.Set.Nodes {
		if n.DeniesQueues(w.names) {
			return false
		}
	}
	return true
}

// silent remembers the locks that somebody has released without a message, and when that was seen. redsync v4 does so, and
// a node whose user may not publish. lines.mu guards it.
type silent map[string]time.Time

func (s *silent) noteLocked(name string) {
	now := time.Now()
	if len(*s) >= maxSilent {
		for name, at := range *s {
			if now.Sub(at) >= silentFor {
				delete(*s, name)
			}
		}
	}
	if *s == nil || len(*s) >= maxSilent {
		*s = make(silent)
	}
	(*s)[name] = now
}

func (s *silent) hasLocked(name string) bool {
	at, noted := (*s)[name]
	if noted && time.Since(at) >= silentFor {
		delete(*s, name)
		return false
	}
	return noted
}

// isUntoldLocked reports whether the attempt that c is about to make has no reason but its own questions: no message, no
// release of this process, and nothing that has run out.
func (c *call) isUntoldLocked() bool {
	a := c.agenda
	ranOut := !a.runsOut.IsZero() && !a.runsOut.After(time.Now())
	return c.isQueued() && !a.ready && !a.followsRelease && !ranOut && !c.news[c.at].told
}
