package history

import (
	"fmt"
	"slices"
	"time"
)

// This file judges what clients saw who looked at locks (Inspect).
//
// A look names a holder if a quorum of nodes has its value, each at some moment of the call. So a look can name somebody
// who does not hold: a value gets to nodes before its Lock returns, an attempt may fail after it has set keys, and keys
// stay until a release has come to the nodes. These are the promises:
//
//   - A look names nobody whose Lock was called after the look had ended.
//   - It names nobody whose Unlock had succeeded before the look began, unless other clients had the value, too. Then
//     the Unlock of each of them counts. A minimal hold (Keeps) lasts longer.
//   - Otherwise it names a value only as long as nodes may have it: for Sights.Stands after the last thing that its
//     client did or was promised. That is so after an attempt that has failed, after an Unlock that has, or if the client
//     has not unlocked.
//   - The owner that it names is the one of the client that has won the value.
//   - If a client was promised a lock for the whole look, the look does not call the lock free. It names nobody whom this
//     client excludes, and does not call an exclusive holder a reader. It names this client if no node was silent.
//   - If it cannot tell, its error is ErrNoQuorum.
//
// From the moment at which a ForceUnlock of its value begins a client is promised nothing.
//
// A client was promised the lock for the whole look if it had been, before the look began, until the look had ended. An
// extension in between does not count: some nodes may have been read before it, and others after the time up to which
// they had promised the lock before.

// Sights are the bounds of looks. With the zero value no look is judged.
type Sights struct {
	// Stands is how long nodes may have a value after its client has done the last thing: the longest TTL, and the time
	// that a command may be on its way. 0: looks are not judged.
	Stands time.Duration
	// Since is how wrong the clock may be by which holders say when they began to lock; 0: that is not judged.
	Since time.Duration
	// Joint says that looks go to two sets of nodes. A holder may have a quorum of one set only, because it knows no other.
	// Then it is not named, although no node is silent, and if nobody else is named the state is unknown.
	Joint bool
}

// A stay is how long the nodes may have values of a term.
type stay struct {
	client, hold string // see Event.hold
	process      string
	owners       []string // that its events say
	names        []string
	called       time.Duration
	ended        time.Duration // when its Lock has returned; 0: it has not
	value        string        // "" if it never held
	owner        string        // when it got the value
	last         time.Duration // the last thing that it did or was promised
	keeps        time.Duration // of a minimal hold: until then the keys stay after an Unlock
	released     time.Duration // when its first successful Unlock returned; 0: none has
	joined       bool          // it has never tried to get a hold of its own, as far as its events say
}

// stays returns the stays of a history.
func stays(events []Event) (all []*stay) {
	byID := map[string]*stay{}
	for _, e := range events {
		switch e.Kind {
		case Call, Held, Refused, Extended, Lost, Downgrade, Gave, Unlock, Unlocked:
		default:
			continue
		}
		s := byID[e.ID()]
		if s == nil || e.Kind == Call { // another client may have had the name before
			s = &stay{client: e.ID(), names: append([]string{e.Name}, e.More...), called: e.At}
			byID[e.ID()], all = s, append(all, s)
		}
		s.note(e)
	}
	return all
}

func (s *stay) note(e Event) {
	s.hold, s.last = e.hold(), max(s.last, e.At, e.Until)
	if !slices.Contains(s.owners, e.Owner) {
		s.owners = append(s.owners, e.Owner)
	}
	switch e.Kind {
	case Call:
		s.process = e.Process
		s.joined = e.Shares != ""
	case Held:
		s.ended, s.value, s.owner = e.At, e.Value, e.Owner
		s.joined = e.Shares != ""
		if e.Keeps != 0 {
			s.keeps = s.called + e.Keeps
		}
	case Refused:
		s.ended = e.At
	case Unlocked:
		if e.Err == "" && s.released == 0 {
			s.released = e.At
		}
	default:
	}
}

// A looker judges looks.
type looker struct {
	Sights
	stays map[string][]*stay // by name
	held  map[string][]*stay // by value
	terms map[string][]Term  // by name
}

// misseen finds the looks that break a promise.
func misseen(events []Event, rules Sights) (found []Violation) {
	if rules.Stands == 0 {
		return nil
	}
	j := looker{Sights: rules, stays: map[string][]*stay{}, held: map[string][]*stay{}, terms: map[string][]Term{}}
	for _, s := range stays(events) {
		for _, name := range s.names {
			j.stays[name] = append(j.stays[name], s)
		}
		j.held[s.value] = append(j.held[s.value], s)
	}
	delete(j.held, "")
	for _, term := range Terms(events) {
		for _, t := range term.untilForced().each() {
			j.terms[t.Name] = append(j.terms[t.Name], t)
		}
	}
	for _, e := range events {
		if e.Kind == Saw {
			found = append(found, j.judge(e)...)
		}
	}
	return found
}

// judge returns what is wrong with a look.
func (j *looker) judge(e Event) (found []Violation) {
	wrong := func(rule, format string, args ...any) {
		found = append(found, Violation{rule, e.Name, e.At, fmt.Sprintf("%s, from %v: ", e.Client, e.Sight.Began) + fmt.Sprintf(format, args...)})
	}
	if unknown := e.Sight.State == "unknown"; unknown && !e.Sight.NoQuorum {
		wrong(Unexplained, "%+v", *e.Sight)
	}
	for _, h := range e.Sight.Holders {
		if !j.mayName(e, h) {
			wrong(WrongHolder, "%+v", h)
		}
		for _, s := range j.held[h.ID] {
			if !s.joined && s.owner != h.Owner {
				wrong(WrongOwner, "%+v, and the owner of %s is %q", h, s.client, s.owner)
			}
		}
	}
	for _, t := range j.terms[e.Name] {
		if t.Value != "" && t.isPromised(e.Sight.Began, e.At) {
			if why := j.contradicts(e, t); why != "" {
				wrong(WrongState, "%s, and %v has %s: %+v", why, t, t.Value, *e.Sight)
			}
		}
	}
	return found
}

// contradicts says how a look contradicts that t was promised the lock for all of its time, "" if it does not.
func (j *looker) contradicts(e Event, t Term) string {
	if (t.Permits != 0) != (e.Permits != 0) || t.Permits > e.Permits {
		return "" // it looks elsewhere
	}
	named := slices.IndexFunc(e.Sight.Holders, func(h Holder) bool { return h.ID == t.Value })
	switch {
	case e.Sight.State == "free":
		return "it is free"
	case named < 0 && e.Sight.Silent == 0 && !j.Joint:
		return "a holder is not named"
	case named >= 0 && e.Sight.Holders[named].Reads && !t.Reads:
		return "an exclusive holder is a reader"
	case t.Permits == 0 && slices.ContainsFunc(e.Sight.Holders, func(h Holder) bool { return h.ID != t.Value && !(h.Reads && t.Reads) }):
		return "somebody else is named"
	}
	return ""
}

// mayName reports whether a look may name h.
func (j *looker) mayName(e Event, h Holder) bool {
	won := j.held[h.ID]
	for _, s := range j.stays[e.Name] {
		if s.called > e.At {
			continue
		}
		var until time.Duration
		switch {
		case s.value == h.ID:
			until = j.standsHeld(s)
		case slices.ContainsFunc(won, func(o *stay) bool { return o.hold == s.hold }): // it adopts the value, or has tried to
			until = j.standsHeld(s)
		case s.joined || !slices.Contains(s.owners, h.Owner):
			continue
		case len(won) > 0: // its process may have handed the value to it, too late
			until = j.stands(s)
			if !slices.ContainsFunc(won, func(o *stay) bool { return s.mayTakeFrom(o) }) {
				continue
			}
		default:
			until = j.stands(s)
			if h.Since != 0 && j.Since != 0 && (h.Since < s.called-j.Since || s.ended != 0 && h.Since > s.ended+j.Since) {
				continue
			}
		}
		if e.Sight.Began <= until {
			return true
		}
	}
	return false
}

// mayTakeFrom reports whether the process of both may have handed the value of o to s.
func (s *stay) mayTakeFrom(o *stay) bool {
	return s.process == o.process && (o.released == 0 || s.called <= o.released) && (s.ended == 0 || s.ended >= o.ended)
}

// forever is later than all looks.
const forever = time.Duration(1<<63 - 1)

// stands returns how long nodes may have values of s that it has never held.
func (j *looker) stands(s *stay) time.Duration {
	switch {
	case s.ended == 0:
		return forever
	case s.value == "":
		return s.last + j.Stands
	}
	return s.ended + j.Stands
}

// standsHeld returns how long nodes may have the value that s holds or has tried to adopt.
func (j *looker) standsHeld(s *stay) time.Duration {
	switch {
	case s.released == 0:
		return s.last + j.Stands
	case s.keeps != 0:
		return max(s.released, s.keeps+j.Stands)
	}
	return s.released
}
