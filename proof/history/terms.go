package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// This file finds the times in which clients believed that they held a lock.

// A Term is a time without interruption in which a client believed that it held a lock. It begins when
// Lock succeeds, when an extension is confirmed after the last Until, or when the client downgrades the lock (see
// Again).
type Term struct {
	Client   string
	Number   int
	Name     string
	More     []string // the other names of a lock on several names
	Token    uint64
	Called   time.Duration // Lock was called
	From, To time.Duration // for at least this time the client believed that it held the lock
	Until    time.Duration // the last Until that the client was given
	Lost     time.Duration // when the client was told of the loss; 0 if it was not
	Paused   bool          // see Event.Paused
	Again    bool          // it goes on with a hold of an earlier term of the client
	Reads    bool          // the client believed that the lock was shared
	Permits  int           // the client believed that the name had so many permits; 0: it is a lock
	Weight   int           // how many of them the client believed that it held; 0 for a lock
	Keeps    time.Duration // nobody else may begin to hold the lock until so long after Called
	Leads    bool          // the client was the leader
	Within   bool          // the client held the lock within a function
	Left     time.Duration // if Within: when the function returned, or its context was seen to end; 0 if neither happened
	Hold     string        // the ID of the term that began the hold; terms with the same Hold count as one holder
	Ended    bool          // another term that shares the hold has called Unlock
	Value    string        // the ID of the value, if the client has noted it
	Forced   time.Duration // when the first ForceUnlock of the value began; 0: there was none
	promises []promise
}

func (t Term) String() string {
	mode := ""
	switch {
	case t.Permits != 0:
		mode = fmt.Sprintf(" with %d of %d permits", t.Weight, t.Permits)
	case t.Reads:
		mode = " reading"
	}
	return fmt.Sprintf("%s #%d%s [%v, %v)", t.Client, t.Number, mode, t.From, t.To)
}

// Of reports whether the client believed that it held the lock name, alone or among others.
func (t Term) Of(name string) bool { return t.Name == name || slices.Contains(t.More, name) }

// each returns a copy of t for each of its names.
func (t Term) each() []Term {
	terms := []Term{t}
	for _, name := range t.More {
		one := t
		one.Name = name
		terms = append(terms, one)
	}
	return terms
}

// excludes reports whether t and another term of its name must not overlap. Readers exclude only writers.
func (t Term) excludes(other Term) bool { return t.Hold != other.Hold && !(t.Reads && other.Reads) }

// leaves records in t that its function ended with e, unless an earlier end is recorded.
func leaves(t *Term, e Event) {
	if t.Within && t.Left == 0 {
		t.Left, t.Paused = e.At, e.Paused
	}
}

// told returns when the client had learned that the hold of t was over, 0 if that is not known. If the client was not
// told of a loss, the end of its function counts: after that there is nothing to tell it.
func (t Term) told() time.Duration { return cmp.Or(t.Lost, t.Left) }

// forcedBefore reports whether a ForceUnlock of the value began before then.
func (t Term) forcedBefore(then time.Duration) bool { return t.Forced != 0 && t.Forced < then }

// untilForced returns t with the belief that others must respect: it ends when a ForceUnlock of its value begins. From
// then on, until the client learns of it, others may hold the lock. When the client has learned of it, it believes
// nothing any more.
func (t Term) untilForced() Term {
	if t.Forced != 0 {
		t.To, t.Keeps = max(t.From, min(t.To, t.Forced)), 0
	}
	return t
}

// again returns a new term of the same client, which goes on with the hold of t.
func (t Term) again(from, to time.Duration) *Term {
	t.From, t.To, t.Until, t.Token, t.Again = from, to, to, 0, true
	t.promises = []promise{{from, to}}
	return &t
}

// Terms returns the terms of a history. Its events must be in the order of time.
//
// A client believes that it holds the lock from the return of Lock until it calls Unlock, gives the
// hold away, learns of a loss, or its last known Until passes. If an extension is confirmed only after
// that Until, the client believes again from the confirmation on, and that is a new term. The clients
// choose the time of each event so that a recorded belief is never longer than the real one.
//
// When the client calls Downgrade, its belief in an exclusive lock ends, and a new term begins: it reads.
//
// Several terms may share a hold: their clients know its value. They count as one holder. When one of
// them calls Unlock, all their beliefs end, even those of terms that are still adopting the value. The
// clients must agree among themselves when to unlock. A term that begins to adopt the value after an
// Unlock has succeeded keeps its belief.
func Terms(events []Event) []Term {
	type id struct {
		client string
		number int
	}
	var terms []*Term
	called, open, over := map[id]time.Duration{}, map[id]*Term{}, map[id]bool{}
	shared, forced := shares{}, map[string]time.Duration{}
	for _, e := range events {
		of := id{e.Client, e.Term}
		t := open[of]
		switch e.Kind {
		case Call:
			called[of] = e.At
		case Held:
			t = &Term{Client: e.Client, Number: e.Term, Name: e.Name, More: e.More, Token: e.Token, Called: called[of], From: e.At, To: e.Until, Until: e.Until, Hold: e.hold(), Reads: e.Reads, Keeps: e.Keeps, Leads: e.Leads, Within: e.Within, Value: e.Value}
			t.promises = []promise{{e.At, e.Until}}
			if e.Permits != 0 {
				t.Permits, t.Weight = e.Permits, max(e.Weight, 1)
			}
			open[of], terms = t, append(terms, t)
			over[of] = shared.begins(t)
		case Extended:
			switch {
			case t == nil || over[of]:
			case e.At < t.To:
				t.To, t.Until = e.Until, e.Until
				t.promises = append(t.promises, promise{e.At, e.Until})
			default:
				again := t.again(e.At, e.Until)
				open[of], terms = again, append(terms, again)
				shared.begins(again)
			}
		case Downgrade:
			if t == nil || over[of] {
				break
			}
			reads := t.again(e.At, max(t.To, e.At))
			t.To, reads.Reads = min(t.To, e.At), true
			open[of], terms = reads, append(terms, reads)
			shared.begins(reads)
		case Lost:
			over[of] = true
			if t != nil {
				t.To, t.Lost, t.Paused = min(t.To, e.At), e.At, e.Paused
				leaves(t, e)
			}
		case Unlock:
			for _, other := range shared.unlocks(e) {
				over[id{other.Client, other.Number}] = true
				other.To, other.Ended = min(other.To, e.At), true
			}
			fallthrough
		case Gave:
			over[of] = true
			if t != nil {
				t.To = min(t.To, e.At)
				leaves(t, e)
			}
		case Unlocked:
			shared.unlocked(e)
		case Forcing:
			if _, before := forced[e.Value]; !before {
				forced[e.Value] = e.At
			}
		}
	}
	result := make([]Term, len(terms))
	for i, t := range terms {
		t.To, t.Forced = max(t.To, t.From), forced[t.Value]
		result[i] = *t
	}
	return result
}

// A share holds the terms of one hold, and whether one of them has called Unlock.
type share struct {
	terms    []*Term
	unlocks  bool          // Unlock was called
	unlocked time.Duration // when the first successful Unlock returned; 0: none has
}

// shares maps the ID of a hold to its share.
type shares map[string]*share

func (s shares) of(hold string) *share {
	if s[hold] == nil {
		s[hold] = &share{}
	}
	return s[hold]
}

// begins adds t to the terms of its hold. If a term of the hold has called Unlock, and no Unlock had
// succeeded when t began to adopt the hold, the belief of t ends at once, and begins returns true.
func (s shares) begins(t *Term) (over bool) {
	of := s.of(t.Hold)
	of.terms = append(of.terms, t)
	if over = of.unlocks && (of.unlocked == 0 || t.Called < of.unlocked); over {
		t.To, t.Ended = t.From, true
	}
	return over
}

// unlocks notes that Unlock is called, and returns the other terms that share the hold.
func (s shares) unlocks(e Event) (others []*Term) {
	of := s.of(e.hold())
	of.unlocks = true
	return slices.DeleteFunc(slices.Clone(of.terms), func(t *Term) bool { return t.Client == e.Client && t.Number == e.Term })
}

// unlocked notes the result of Unlock.
func (s shares) unlocked(e Event) {
	if of := s.of(e.hold()); e.Err == "" && of.unlocked == 0 {
		of.unlocked = e.At
	}
}

// A promise is a time for which a client was promised its lock.
type promise struct{ from, to time.Duration }

// isPromised reports whether the client had t from from to to, as it had been promised before from.
func (t Term) isPromised(from, to time.Duration) bool {
	return t.From <= from && to <= t.To && slices.ContainsFunc(t.promises, func(p promise) bool { return p.from <= from && to <= p.to })
}
