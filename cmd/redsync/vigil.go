//go:build unix

package main

import "time"

// A vigil decides when the front kills COMMAND, because the holder does not. It is a pure value: the caller tells the time, and
// has read all that the holder has sent before it looks.
//
// A holder that runs reports each extension, and otherwise ends COMMAND itself. If it does neither, COMMAND is killed with the
// margin of a leash: before the end of the validity. The machine may let this process run later than it wants to. So the
// vigil looks often enough to know how late that is, and kills COMMAND if the next look might come within the margin.
type vigil struct {
	killAfter time.Duration
	valid     deadline      // of the lock, as the holder has told it last
	next      deadline      // when the next look is due; zero before the holder has told anything
	late      time.Duration // how late the looks were; it fades from look to look
	answer    deadline      // until when a holder that was asked may answer; zero if it was not asked
}

// A decision is what a vigil wants.
type decision int

const (
	goOn decision = iota
	ask           // ask the holder how long the lock is valid
	kill          // kill COMMAND
)

const (
	// absence is by how much a look is late if this process, or the machine, was stopped.
	absence = time.Second

	// grace is how long the holder may take to answer after that.
	grace = 250 * time.Millisecond

	// minBeat is the least time between two looks.
	minBeat = 10 * time.Millisecond
)

// told notes until when the lock is valid.
func (v *vigil) told(now time.Time, valid deadline) {
	v.valid = valid
	if p := v.pause(now); v.next.at.IsZero() || v.next.left(now) > p {
		v.next = deadlineIn(now, p)
	}
}

// look returns what is to be done now.
//
// After an absence the validity may have passed without harm: the holder has gone on, but there was no room for all of its
// reports. So it is asked. If it was away, too, there was nobody to kill COMMAND in time.
func (v *vigil) look(now time.Time) decision {
	late := max(-v.next.left(now), 0)
	wasAway := late > absence
	v.late -= v.late / 8
	if !wasAway {
		v.late = max(v.late, late)
	}
	v.next = deadlineIn(now, v.pause(now))
	switch left := v.valid.left(now); {
	case left > v.margin():
		v.answer = deadline{}
		return goOn
	case wasAway && left <= 0:
		v.answer = deadlineIn(now, grace)
		return ask
	case !v.answer.at.IsZero() && v.answer.left(now) > 0:
		return goOn
	}
	return kill
}

// margin is how much of the validity is left when COMMAND is killed.
func (v *vigil) margin() time.Duration { return killMargin(v.killAfter) + v.late }

// pause returns how long after now the next look is due.
func (v *vigil) pause(now time.Time) time.Duration {
	beat := min(max(killMargin(v.killAfter), minBeat), patience)
	return min(max(v.valid.left(now)-v.margin(), time.Millisecond), beat)
}
