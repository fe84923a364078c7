package history_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/proof/history"
)

// kinds are the kinds from which eventsOf chooses. Held is there twice, so that it is chosen more often.
var kinds = []history.Kind{history.Call, history.Held, history.Extended, history.Lost, history.Unlock, history.Held, history.Unlocked, history.Downgrade}

// eventsOf makes a history from a plan. Every two bytes of the plan are an event of one of the clients x, y and z.
// Clients x and y lock the name a or b, and often read. Client z locks a or b, and mostly another one of a, b and c
// with it. If permits is set, most holds of a single name are holds of permits, the same in all events of a term.
func eventsOf(plan []byte, permits bool) (events []history.Event) {
	at := time.Duration(0)
	terms, of := map[string]int{}, map[string]byte{}
	for i := 0; i+1 < len(plan) && i < 80; i += 2 {
		a, b := plan[i], plan[i+1]
		client := string("xyz"[a>>3%3])
		e := history.Event{At: at, Kind: kinds[a%8], Client: client, Name: string("ab"[a>>7]), Until: at + time.Duration(b%16) - 2, Token: uint64(b >> 4)}
		if client == "z" {
			e.More = []string{string("abc"[b%3])}
			if e.More[0] == e.Name {
				e.More = nil
			}
		} else {
			e.Reads = b>>2%2 == 1
		}
		if e.Kind == history.Call {
			terms[client]++
		}
		e.Term = terms[client]
		if permits && e.More == nil && e.Kind == history.Held {
			if of[e.ID()] == 0 {
				of[e.ID()] = b
			}
			if n := int(of[e.ID()] >> 4 % 4); n > 0 {
				e.Permits, e.Weight, e.Token, e.Reads = n, int(of[e.ID()]>>6)%(n+1), 0, false
			}
		}
		events = append(events, e)
		at += time.Duration(a >> 5 % 4)
	}
	return events
}

// meet reports whether two terms have a name in common.
func meet(a, b history.Term) bool { return a.Of(b.Name) || slices.ContainsFunc(b.More, a.Of) }

// pairwise reports which rules are violated by some pair of terms that have a name in common. Terms of
// one hold count as one holder. Two readers do not exclude each other, and their tokens have no order.
func pairwise(terms []history.Term) (exclusion, order, unique bool) {
	for i, a := range terms {
		for j, b := range terms {
			if i == j || !meet(a, b) || a.Permits != 0 || b.Permits != 0 {
				continue
			}
			readers := a.Reads && b.Reads
			exclusion = exclusion || !readers && a.Hold != b.Hold && max(a.From, b.From) < min(a.To, b.To)
			if a.Token == 0 || b.Token == 0 {
				continue
			}
			unique = unique || a.Token == b.Token
			order = order || !readers && a.From < b.Called && a.Token > b.Token
		}
	}
	return exclusion, order, unique
}

// overfull reports whether more permits of a name are held at some time than there are: whether, for some n, the
// clients that know of n permits or fewer hold more than n. It looks at each moment at which a term begins.
func overfull(terms []history.Term) bool {
	for _, first := range terms {
		at, name := first.From, first.Name
		for n := 1; n <= 3; n++ {
			weights := map[string]int{} // by hold
			for _, t := range terms {
				if t.Name == name && t.Permits > 0 && t.Permits <= n && t.From <= at && at < t.To {
					weights[t.Hold] = t.Weight
				}
			}
			sum := 0
			for _, weight := range weights {
				sum += weight
			}
			if sum > n {
				return true
			}
		}
	}
	return false
}

// For any history, Check finds the same violations as a comparison of all pairs of terms. A belief
// never lasts longer than what was promised.
func FuzzCheck(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add([]byte{0x20, 0, 0x21, 0x1a, 0x28, 0, 0x29, 0x2a}, false)
	f.Add([]byte{0x20, 0, 0x21, 0x3a, 0x60, 0, 0x44, 0, 0x28, 0, 0x29, 0x2a, 0x2c, 0}, false)
	f.Add([]byte{0x20, 0, 0x21, 0x3f, 0x22, 0x0f, 0x23, 0, 0x28, 0, 0x29, 0x3a, 0x2c, 0, 0x30, 0, 0x31, 0x3a}, false)
	f.Add([]byte{0x30, 1, 0x31, 0x1a, 0xa8, 0, 0xa9, 0x1a}, false)
	f.Add([]byte{0x20, 0, 0xa1, 0x1a, 0x28, 0, 0x29, 0x1a, 0x30, 0, 0x31, 0x1a}, false)
	f.Add([]byte{0x20, 0, 0x21, 0x1a, 0x28, 0, 0x29, 0x2a}, true)
	f.Add([]byte{0x20, 0, 0x01, 0x1f, 0x28, 0, 0x09, 0x1f}, true)
	f.Add([]byte{0x20, 0, 0x01, 0xaf, 0x28, 0, 0x09, 0x2f, 0x0c, 0, 0x30, 0, 0x11, 0x2f}, true)
	f.Fuzz(func(t *testing.T, plan []byte, permits bool) {
		events := eventsOf(plan, permits)
		terms := history.Terms(events)
		for _, term := range terms {
			assert.LessOrEqual(t, term.From, term.To)
			assert.LessOrEqual(t, term.Called, term.From)
			assert.LessOrEqual(t, term.To, max(term.From, term.Until))
		}
		exclusion, order, unique := pairwise(terms)
		found := map[string]bool{}
		for _, v := range history.Check(events, history.Rules{}) {
			found[v.Rule] = true
		}
		assert.Equal(t, exclusion, found[history.Exclusion], "%v", terms)
		assert.Equal(t, overfull(terms), found[history.TooMany], "%v", terms)
		assert.Equal(t, unique, found[history.TokenUnique], "%v", terms)
		if !unique { // Check does not report a token that is used twice as out of order, too
			assert.Equal(t, order, found[history.TokenOrder], "%v", terms)
		}
	})
}
