package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Rules are the limits that a history must keep. With the zero value Check looks only for holders at
// the same time, more permits held than there are, holds that begin while an earlier one keeps the
// lock, tokens out of order or used twice, leaders' terms out of order, keys without a TTL, locks set
// in part, and Broken events.
type Rules struct {
	MaxTTL   time.Duration // of a lock's key; 0: no limit
	LostSlop time.Duration // how long after the next hold began a loss may be reported; 0: no limit
	Settled  time.Duration // from then on no key of a lock may exist; 0: not checked

	// SettledOn replaces Settled for nodes that clients have left earlier.
	SettledOn map[int]time.Duration
	// Gone lists the suffixes of keys that are not a lock's own, and that may not exist from Settled on either.
	Gone []string
	// MaxSideTTL limits the TTLs of keys that are not a lock's own, by the suffix of the key (":queue").
	MaxSideTTL map[string]time.Duration
	// SetBack says how far the clock of each node was set back in total. Setting a clock back
	// lengthens the TTLs of the node's keys by as much.
	SetBack map[int]time.Duration

	Idle   Idle   // of waits
	Sights Sights // of looks
	Forces Forces // of releases by force
}

// Check returns the violations in a history. Its events must be in the order of time. A lock on several names
// counts as a lock on each of them. Readers exclude writers, but not each other. The permits of a name and the lock of
// that name are independent of each other.
func Check(events []Event, rules Rules) []Violation {
	byName, permits := map[string][]Term{}, map[string][]Term{}
	for _, term := range Terms(events) {
		term = term.untilForced()
		if term.Permits != 0 {
			permits[term.Name] = append(permits[term.Name], term)
			continue
		}
		for _, t := range term.each() {
			byName[t.Name] = append(byName[t.Name], t)
		}
	}
	var found []Violation
	for _, terms := range permits {
		found = append(found, overfull(terms)...)
		found = append(found, permitToldLate(terms, rules)...)
	}
	for _, terms := range byName {
		found = append(found, overlaps(terms)...)
		found = append(found, misordered(terms)...)
		found = append(found, toldLate(terms, rules)...)
		found = append(found, tooSoon(terms)...)
		found = append(found, leadsBack(terms)...)
	}
	for _, e := range events {
		switch e.Kind {
		case Key:
			found = append(found, lasting(e, rules)...)
		case Broken:
			found = append(found, Violation{Promise, e.Name, e.At, fmt.Sprintf("%s #%d: %s", e.Client, e.Term, e.Err)})
		}
	}
	found = append(found, inPart(events)...)
	found = append(found, idle(events, rules.Idle)...)
	found = append(found, misseen(events, rules.Sights)...)
	found = append(found, misforced(events, rules.Forces)...)
	slices.SortStableFunc(found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.At, b.At), strings.Compare(a.Rule, b.Rule))
	})
	return found
}

// inPart checks that a lock on several names is set on a node as a whole. In every look at a node, the keys with one
// value must be the same as in the first look that found the value, because a value belongs to one attempt, and so to
// one set of names. All keys that a look at a node found must have the same At.
func inPart(events []Event) (found []Violation) {
	type look struct {
		at    time.Duration
		node  int
		value string
	}
	var looks []look
	seen, whole := map[look][]string{}, map[string][]string{}
	for _, e := range events {
		if e.Kind != Key || e.Value == "" {
			continue
		}
		of := look{e.At, e.Node, e.Value}
		if seen[of] == nil {
			looks = append(looks, of)
		}
		seen[of] = append(seen[of], e.Name)
	}
	for _, of := range looks {
		names := slices.Sorted(slices.Values(seen[of]))
		if whole[of.value] == nil {
			whole[of.value] = names
		}
		if first := whole[of.value]; !slices.Equal(names, first) {
			found = append(found, Violation{InPart, names[0], of.at, fmt.Sprintf("%q is at %q on node %d, and was at %q", of.value, names, of.node, first)})
		}
	}
	return found
}

// overlaps finds overlapping beliefs of different holders in one name, unless both are readers. It sorts terms by
// From.
func overlaps(terms []Term) (found []Violation) {
	slices.SortStableFunc(terms, func(a, b Term) int { return cmp.Compare(a.From, b.From) })
	var all, writers latest // of the earlier terms
	for _, t := range terms {
		earlier := all.but(t.Hold)
		if t.Reads {
			earlier = writers.but(t.Hold)
		}
		if t.From < earlier.To && t.From < t.To {
			found = append(found, Violation{Exclusion, t.Name, t.From, fmt.Sprintf("%v and %v", earlier, t)})
		}
		all.add(t)
		if !t.Reads {
			writers.add(t)
		}
	}
	return found
}

// A latest has the term with the latest To (last), and the one with the latest To among all other holds (other).
type latest struct{ last, other Term }

// but returns the term with the latest To that does not have this hold.
func (l *latest) but(hold string) Term {
	if l.last.Hold == hold {
		return l.other
	}
	return l.last
}

func (l *latest) add(t Term) {
	switch {
	case t.To > l.last.To && t.Hold == l.last.Hold:
		l.last = t
	case t.To > l.last.To:
		l.last, l.other = t, l.last
	case t.To > l.other.To && t.Hold != l.last.Hold:
		l.other = t
	}
}

// misordered checks the tokens of one name. No two may be equal, and each must be greater than the
// tokens of all terms whose Lock returned before this term's Lock was called. The token of a reader need not be greater
// than those of other readers.
func misordered(terms []Term) (found []Violation) {
	terms = slices.DeleteFunc(slices.Clone(terms), func(t Term) bool { return t.Token == 0 })
	byToken := map[uint64]Term{}
	byReturn := slices.Clone(terms)
	slices.SortFunc(terms, func(a, b Term) int { return cmp.Compare(a.Called, b.Called) })
	slices.SortFunc(byReturn, func(a, b Term) int { return cmp.Compare(a.From, b.From) })
	var all, writers Term // among the terms that returned before t was called, those with the highest tokens
	for _, t := range terms {
		for len(byReturn) > 0 && byReturn[0].From < t.Called {
			returned := byReturn[0]
			if returned.Token > all.Token {
				all = returned
			}
			if returned.Token > writers.Token && !returned.Reads {
				writers = returned
			}
			byReturn = byReturn[1:]
		}
		highest := all
		if t.Reads {
			highest = writers
		}
		if other, used := byToken[t.Token]; used {
			found = append(found, Violation{TokenUnique, t.Name, t.From, fmt.Sprintf("%d: %v and %v", t.Token, other, t)})
		} else if t.Token <= highest.Token {
			found = append(found, Violation{TokenOrder, t.Name, t.From, fmt.Sprintf(
				"%v was called at %v and got %d, %v had %d", t, t.Called, t.Token, highest, highest.Token)})
		}
		byToken[t.Token] = t
	}
	return found
}

// tooSoon checks that no hold begins while an earlier one keeps the lock: see Event.Keeps. A term that is over when the
// client learns of it begins no hold.
func tooSoon(terms []Term) (found []Violation) {
	var keeper Term           // the earlier term that keeps the lock for longest
	for _, t := range terms { // overlaps has sorted them by From
		if t.From < t.To && t.Hold != keeper.Hold && keeper.Keeps > 0 && t.From < keeper.Called+keeper.Keeps {
			found = append(found, Violation{TooSoon, t.Name, t.From, fmt.Sprintf(
				"%v, and %v was called at %v and keeps the lock for %v", t, keeper, keeper.Called, keeper.Keeps)})
		}
		if t.Keeps > 0 && t.Called+t.Keeps > keeper.Called+keeper.Keeps {
			keeper = t
		}
	}
	return found
}

// leadsBack checks that the numbers of the leaders' terms rise in the order in which the terms began.
func leadsBack(terms []Term) (found []Violation) {
	var last Term
	for _, t := range terms { // overlaps has sorted them by From
		if !t.Leads || t.Again || t.From >= t.To { // a term that goes on keeps its earlier number
			continue
		}
		if last.Leads && t.Token <= last.Token {
			found = append(found, Violation{TermOrder, t.Name, t.From, fmt.Sprintf("%v has %d, and %v had %d", t, t.Token, last, last.Token)})
		}
		last = t
	}
	return found
}

// toldLate checks that each loss was reported in time: at most rules.LostSlop after the beginning of the next hold that
// the lost one excludes. If the client holds the lock within a function, that function must have returned by then, or
// its context must have ended. toldLate skips terms that may have been paused and terms that another term ended. It skips
// those that were released by force, too: see Forces.
func toldLate(terms []Term, rules Rules) (found []Violation) {
	if rules.LostSlop == 0 {
		return nil
	}
	for i, t := range terms { // overlaps has sorted them by From
		if t.told() == 0 || t.Paused || t.Ended || t.forcedBefore(t.told()) {
			continue
		}
		after := terms[i+1:]
		at := slices.IndexFunc(after, func(next Term) bool { return next.excludes(t) && next.From < next.To })
		if at < 0 {
			continue
		}
		if next := after[at]; t.told() > next.From+rules.LostSlop {
			found = append(found, Violation{LateLost, t.Name, t.told(), fmt.Sprintf("%v was told at %v, %v had come", t, t.told(), next)})
		}
	}
	return found
}

// lasting checks the TTL of a key, and that no key is left behind.
func lasting(e Event, rules Rules) []Violation {
	what := fmt.Sprintf("%q on node %d, TTL %v", e.Key, e.Node, e.TTL)
	bound := rules.maxTTL(e)
	switch {
	case e.TTL == NoTTL:
		return []Violation{{Endless, e.Name, e.At, what}}
	case rules.leftBehind(e):
		return []Violation{{LeftBehind, e.Name, e.At, what}}
	case bound != 0 && e.TTL > bound+rules.SetBack[e.Node]:
		return []Violation{{TooLong, e.Name, e.At, what}}
	}
	return nil
}

// leftBehind reports whether the key of e should have vanished earlier.
func (r Rules) leftBehind(e Event) bool {
	settled := cmp.Or(r.SettledOn[e.Node], r.Settled)
	if settled == 0 || e.At <= settled {
		return false
	}
	return e.Name != "" || slices.ContainsFunc(r.Gone, func(end string) bool { return strings.HasSuffix(e.Key, end) })
}

// maxTTL returns the longest TTL that a key may have, 0 for no limit.
func (r Rules) maxTTL(e Event) time.Duration {
	if e.Name != "" {
		return r.MaxTTL
	}
	for end, ttl := range r.MaxSideTTL {
		if strings.HasSuffix(e.Key, end) {
			return ttl
		}
	}
	return 0
}
