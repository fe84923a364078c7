package history

import (
	"fmt"
	"time"
)

// This file judges releases by force (ForceUnlock). They name a value, and so the terms with this value are those that
// were forced. These are the promises:
//
//   - A lock that nobody has forced stays held. So a term that is over before its Until was forced, or its own hold was
//     released. That holds only if no node loses keys: see Forces.Well. An error says that a lock was forced
//     only if it was. If another client has released the hold, the client that hears may be told so, too: it knows only that
//     the lock is gone.
//   - A lock that was forced is gone. When a ForceUnlock has released it, no extension that begins later is confirmed,
//     unless a client sets keys again. A client that hears of the force stops for good, even one that sets keys again.
//   - The observer of a term is told once of its loss. If the client hears of the force before it extends the lock again, it
//     is told that it was a force.
//
// Exclusion does not hold from the moment at which a ForceUnlock begins until the former holder learns of it: Term has
// Forced. The order of tokens holds all the same.

// Forces are the bounds of releases by force. With the zero value only tokens, observers and the errors of clients are judged,
// and extensions of clients that do not set keys again.
type Forces struct {
	Hears time.Duration // how long after a ForceUnlock that has released it a client that hears may hold a lock; 0: no limit
	Well  bool          // the nodes lose no keys and no clock jumps, and no client limits its hold or ends with its process
}

// A forced is what was done with a value by force.
type forced struct {
	began time.Duration // when the first ForceUnlock began
	ended time.Duration // when the first that has released it returned; 0: none has
}

// A victim is a term of a client, from Held on, which somebody may release by force.
type victim struct {
	held     Event
	until    time.Duration // the last Until
	lost     *Event
	over     time.Duration // when it knew that it did not hold any more; 0: it had its Until
	paused   bool
	told     []Event
	extended []Event
}

// A forceJudge judges releases by force.
type forceJudge struct {
	Forces
	forced  map[string]*forced // by value
	victims []*victim
	byID    map[string]*victim       // the last one of each client and number
	heals   map[string]bool          // the values that some client sets again
	unlocks map[string]time.Duration // when a client first released a hold or gave it away
}

// misforced finds the promises that are broken for locks that were released by force, or were not.
func misforced(events []Event, rules Forces) (found []Violation) {
	j := &forceJudge{
		Forces: rules, forced: map[string]*forced{}, byID: map[string]*victim{}, heals: map[string]bool{}, unlocks: map[string]time.Duration{},
	}
	for i := range events {
		j.note(&events[i])
	}
	for _, v := range j.victims {
		found = append(found, j.judge(v)...)
	}
	return found
}

func (j *forceJudge) note(e *Event) {
	v := j.byID[e.ID()]
	switch e.Kind {
	case Forcing:
		if j.forced[e.Value] == nil {
			j.forced[e.Value] = &forced{began: e.At}
		}
	case Forced:
		if f := j.forced[e.Value]; f != nil && e.Err == "" && f.ended == 0 {
			f.ended = e.At
		}
	case Held:
		v = &victim{held: *e, until: e.Until}
		j.byID[e.ID()], j.victims = v, append(j.victims, v)
		j.heals[e.Value] = j.heals[e.Value] || e.Heals
	case Unlock, Gave:
		if _, before := j.unlocks[e.hold()]; !before {
			j.unlocks[e.hold()] = e.At
		}
	default:
	}
	if v != nil {
		v.note(e)
	}
}

func (v *victim) note(e *Event) {
	switch e.Kind {
	case Extended:
		v.until = max(v.until, e.Until)
		v.extended = append(v.extended, *e)
	case Lost:
		v.lost = e
		fallthrough
	case Unlock, Gave:
		if v.over == 0 {
			v.over = e.At
		}
	case Told:
		v.told = append(v.told, *e)
	default:
	}
	v.paused = v.paused || e.Paused
}

// judge returns what is wrong with a term.
func (j *forceJudge) judge(v *victim) (found []Violation) {
	wrong := func(rule string, at time.Duration, format string, args ...any) {
		found = append(found, Violation{rule, v.held.Name, at, fmt.Sprintf("%s, held from %v to %v: ", v.held.ID(), v.held.At, v.until) + fmt.Sprintf(format, args...)})
	}
	f := j.forced[v.held.Value]
	if v.held.Value == "" {
		f = nil
	}
	if l := v.lost; l != nil && (f == nil || f.began > l.At) && !j.wasReleased(v, l.At) {
		switch {
		case l.ByForce:
			wrong(NobodyForce, l.At, "it was told that it was forced: %s", l.Err)
		case j.Well && l.At < v.until:
			wrong(NobodyForce, l.At, "it has lost the lock: %s", l.Err)
		}
	}
	if f != nil && f.ended != 0 {
		for _, e := range v.extended {
			if began := e.Until - v.held.Expiry; v.held.Expiry != 0 && began > f.ended && !j.heals[v.held.Value] {
				wrong(StaysHeld, e.At, "forced from %v to %v, and extended from %v on", f.began, f.ended, began)
				break
			}
		}
		if knew := v.knew(); j.Hears != 0 && v.held.Hears && !v.paused && v.held.At < f.ended && knew > f.ended+j.Hears {
			wrong(StaysHeld, knew, "forced from %v to %v, and held until %v", f.began, f.ended, knew)
		}
	}
	if l := v.lost; l != nil && f != nil && !l.ByForce && v.hearsFirst(f, l.At) && j.Hears != 0 {
		wrong(ToldOnce, l.At, "forced from %v to %v, and told of another reason: %s", f.began, f.ended, l.Err)
	}
	if v.held.Observed && (len(v.told) > 1 || v.lost != nil && len(v.told) == 0) {
		wrong(ToldOnce, v.until, "told %d times", len(v.told))
	}
	if f != nil && v.lost != nil && len(v.told) == 1 && v.told[0].ByForce != v.lost.ByForce {
		wrong(ToldOnce, v.lost.At, "the client is told %q, its observer %q", v.lost.Err, v.told[0].Err)
	}
	return found
}

// hearsFirst reports whether the client of v, which lost the lock at a time, cannot have learned of f in another way than by
// hearing of it. It listens from a second after it got the lock on, and its watchdog extends a third of the expiry after the
// last time.
func (v *victim) hearsFirst(f *forced, lost time.Duration) bool {
	extends := v.until - v.held.Expiry + v.held.Expiry/3
	return v.held.Hears && !v.paused && f.began > v.held.At+time.Second && lost < min(v.until, extends)
}

// wasReleased reports whether a client had released the hold of v by then. Who adopts a hold does not know that.
func (j *forceJudge) wasReleased(v *victim, then time.Duration) bool {
	at, released := j.unlocks[v.held.hold()]
	return released && at <= then
}

// knew returns when the client of v knew that it did not hold any more.
func (v *victim) knew() time.Duration {
	if v.over != 0 {
		return min(v.over, v.until)
	}
	return v.until
}
