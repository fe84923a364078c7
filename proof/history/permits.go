package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// This file checks the terms of clients that hold permits of a name: a semaphore.

// Clients may disagree about how many permits a name has. A client that knows of n permits holds permits only among the
// first n. So for every n, the clients that know of n permits or fewer can hold at most n together, whatever the other
// clients hold. With the largest n, this limits all clients.

// overfull finds the moments at which a term begins and more permits are held than there are. It sorts terms by From.
func overfull(terms []Term) (found []Violation) {
	slices.SortStableFunc(terms, func(a, b Term) int { return cmp.Compare(a.From, b.From) })
	var now []Term // the earlier terms that have not ended
	for _, t := range terms {
		now = slices.DeleteFunc(now, func(earlier Term) bool { return earlier.To <= t.From })
		if t.From >= t.To {
			continue
		}
		now = append(now, t)
		if held := tooMany(now, t); held != nil {
			found = append(found, Violation{TooMany, t.Name, t.From, tellTerms(held)})
		}
	}
	return found
}

// tooMany returns terms, among them t, that hold more permits together than any of their clients knows of. It returns
// nil if there are none. All terms must hold at the same time. The permits of a shared hold count once.
func tooMany(terms []Term, t Term) []Term {
	for _, widest := range terms {
		if widest.Permits < t.Permits {
			continue
		}
		held, holds, sum := []Term(nil), map[string]bool{}, 0
		for _, other := range terms {
			if other.Permits > widest.Permits || holds[other.Hold] {
				continue
			}
			held, sum = append(held, other), sum+other.Weight
			holds[other.Hold] = true
		}
		if sum > widest.Permits {
			return held
		}
	}
	return nil
}

func tellTerms(terms []Term) string {
	texts := make([]string, len(terms))
	for i, t := range terms {
		texts[i] = t.String()
	}
	return strings.Join(texts, " and ")
}

// permitToldLate checks that each loss was reported in time: at most rules.LostSlop after the beginning of the first
// term that leaves no room for the lost permits. It skips the same terms as toldLate.
func permitToldLate(terms []Term, rules Rules) (found []Violation) {
	if rules.LostSlop == 0 {
		return nil
	}
	for i, t := range terms { // overfull has sorted them by From
		if t.Lost == 0 || t.Paused || t.Ended || t.forcedBefore(t.Lost) {
			continue
		}
		believed := t
		believed.To = t.Lost
		for next := i + 1; next < len(terms) && terms[next].From+rules.LostSlop < t.Lost; next++ {
			if held := heldAt(terms, next, believed); held != nil && tooMany(held, terms[next]) != nil {
				found = append(found, Violation{LateLost, t.Name, t.Lost, fmt.Sprintf("%v was told at %v, %v had come", t, t.Lost, terms[next])})
				break
			}
		}
	}
	return found
}

// heldAt returns the terms that hold when the term terms[at] begins. believed stands for all terms of its hold. heldAt
// returns nil if terms[at] is empty or of the hold of believed.
func heldAt(terms []Term, at int, believed Term) []Term {
	next := terms[at]
	if next.From >= next.To || next.Hold == believed.Hold {
		return nil
	}
	held := []Term{believed}
	for _, t := range terms[:at+1] {
		if t.To > next.From && t.From < t.To && t.Hold != believed.Hold {
			held = append(held, t)
		}
	}
	return held
}
