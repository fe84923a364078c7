//go:build unix

package main

import (
	"syscall"
	"time"
)

// A leash decides when COMMAND is ended because of the lock. It is a pure value: the caller tells the time.
type leash struct {
	killAfter time.Duration
	valid     deadline // until when the lock was valid when it was seen last
	kill      deadline // when COMMAND gets KILL; zero before it has got TERM
	killed    bool
}

// margin is how long before the end of the validity COMMAND gets KILL.
func (l *leash) margin() time.Duration { return killMargin(l.killAfter) }

// killMargin is the margin for a --kill-after. See vigil.
func killMargin(killAfter time.Duration) time.Duration {
	return min(killAfter/10, 500*time.Millisecond)
}

// look returns the signal that COMMAND gets now, 0 for none. left is how long the lock is valid, 0 if it is lost.
//
// COMMAND gets TERM when killAfter of the validity is left, and KILL before its end. A lock can also be lost before its
// end, if the nodes prove that another has it. Then COMMAND gets TERM at once, and KILL after killAfter, but not later than
// it would have got it otherwise. An extension that succeeds after TERM changes nothing: COMMAND is ending.
func (l *leash) look(now time.Time, left time.Duration) syscall.Signal {
	switch {
	case l.killed:
		return 0
	case l.isEnding():
		if l.kill.left(now) > 0 {
			return 0
		}
	case left > l.killAfter:
		l.valid = deadlineIn(now, left)
		return 0
	default:
		if left > 0 {
			l.valid = deadlineIn(now, left)
		}
		// If it was never seen valid, left is the least number, from which nothing can be subtracted.
		if rest := min(l.killAfter, max(l.valid.left(now), 0)-l.margin()); rest > 0 {
			l.kill = deadlineIn(now, rest)
			return syscall.SIGTERM
		}
	}
	l.end(now)
	return syscall.SIGKILL
}

// end notes that COMMAND gets KILL at now.
func (l *leash) end(now time.Time) { l.kill, l.killed = deadlineIn(now, 0), true }

// isEnding reports whether COMMAND has got TERM or KILL.
func (l *leash) isEnding() bool { return !l.kill.at.IsZero() }

// wait returns how long to wait at now until it is time to look again.
func (l *leash) wait(now time.Time) time.Duration {
	if l.isEnding() {
		return l.kill.wait(now)
	}
	return min(max(l.valid.left(now)-l.killAfter, time.Millisecond), patience)
}
