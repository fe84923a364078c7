package history_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/history"
)

// bounds are the bounds of waits in these tests.
var bounds = history.Idle{Most: 10, Beside: 1, Recovers: 3, Attempt: 7, Place: 5, Outlast: 2}

// five is how a client on five nodes waits.
var five = history.Waiting{Process: "p", Sets: [][]int{{0, 1, 2, 3, 4}}, Deadline: 20}

// waiting returns the events of a client that waits for a in the times [from, to), and gets nothing.
func waiting(client string, from, to int, how history.Waiting) []history.Event {
	return []history.Event{
		{At: time.Duration(from), Kind: history.Waits, Client: client, Name: "a", Wait: &how},
		{At: time.Duration(to), Kind: history.Refused, Client: client, Name: "a"},
	}
}

// ails returns the events of nodes that do not serve a process in the times [from, to), or that answer late.
func ails(from, to, late int, process string, nodes ...int) (events []history.Event) {
	for _, node := range nodes {
		e := history.Event{At: time.Duration(from), Kind: history.Ails, Node: node, Process: process, Late: time.Duration(late)}
		events = append(events, e)
		e.At, e.Ends = time.Duration(to), true
		events = append(events, e)
	}
	return events
}

// left returns the events of keys that a client has left on nodes in the times [from, to).
func left(from, to int, nodes ...int) (events []history.Event) {
	for _, node := range nodes {
		events = append(events, history.Event{At: time.Duration(from), Kind: history.Left, Node: node, Name: "a", Until: time.Duration(to)})
	}
	return events
}

func fairly(how history.Waiting) history.Waiting {
	how.Fair = true
	return how
}

func TestRests(t *testing.T) {
	hold := func(held, until, unlock int) []history.Event { // it has been waited for by a client that is not noted
		events := term("y", held-1, held, until, unlock, 0)
		return slices.Concat(events, unlocked("y", unlock+1, ""))
	}
	unjudged := five
	unjudged.Unjudged = true
	joint := five
	joint.Sets = [][]int{{0, 1, 2}, {2, 3, 4}}
	x := waiting("x", 100, 200, five)
	for _, test := range []struct {
		name   string
		events [][]history.Event
		want   []int // pairs: when a rest begins and ends
	}{
		{"nobody waits", [][]history.Event{hold(100, 150, 120)}, nil},
		{"free all the time", [][]history.Event{x}, []int{100, 200}},
		{"its delays are its own", [][]history.Event{waiting("x", 100, 200, unjudged)}, nil},
		{"it gets the lock", [][]history.Event{x[:1], term("x", 99, 150, 190, 170, 0), unlocked("x", 171, "")}, []int{100, 150}},
		{"somebody holds", [][]history.Event{x, hold(120, 150, 140)}, []int{100, 120, 141, 200}},
		{"somebody else gets it", [][]history.Event{x, hold(120, 150, 120)}, []int{100, 120, 121, 200}},
		{"an Unlock that fails: until the keys have run out", [][]history.Event{x, term("y", 119, 120, 150, 140, 0), unlocked("y", 141, "no")}, []int{100, 120, 152, 200}},
		{"nobody unlocks", [][]history.Event{x, term("y", 119, 120, 150, 0, 0), extended("y", 140, 170)}, []int{100, 120, 172, 200}},
		{"a minimal hold", [][]history.Event{x, keeping(50, hold(120, 150, 140))}, []int{100, 120, 172, 200}},
		{"another name", [][]history.Event{x, named("b", hold(120, 150, 140))}, []int{100, 200}},
		{"one of several names is taken", [][]history.Event{several(waiting("x", 100, 200, five), "b"), named("b", hold(120, 150, 140))}, []int{100, 120, 141, 200}},
		{"permits of the name are no lock", [][]history.Event{x, permit(1, 1, hold(120, 150, 140))}, []int{100, 200}},
		{"enough permits", [][]history.Event{permit(2, 3, waiting("x", 100, 200, five)), permit(1, 3, hold(120, 150, 140))}, []int{100, 120, 120, 200}},
		{"too few permits", [][]history.Event{permit(2, 3, waiting("x", 100, 200, five)), permit(2, 3, hold(120, 150, 140))}, []int{100, 120, 141, 200}},
		{"a reader beside readers", [][]history.Event{reading(waiting("x", 100, 200, five)), reading(hold(120, 150, 140))}, []int{100, 120, 120, 200}},
		{"a reader beside a writer", [][]history.Event{reading(waiting("x", 100, 200, five)), hold(120, 150, 140)}, []int{100, 120, 141, 200}},
		{"a reader behind a writer", [][]history.Event{reading(waiting("x", 100, 200, five)), waiting("w", 130, 160, unjudged), reading(hold(120, 150, 140))}, []int{100, 120, 120, 130, 141, 200}},
		{"a writer beside readers", [][]history.Event{x, reading(hold(120, 150, 140))}, []int{100, 120, 141, 200}},
		{"fair, and the first waits for another name", [][]history.Event{
			waiting("x", 100, 200, fairly(five)), several(waiting("w", 110, 190, unjudged), "b"), named("b", hold(120, 150, 140)),
		}, []int{100, 120, 141, 200}},
		{"not fair, and another one waits for another name", [][]history.Event{
			x, several(waiting("w", 110, 190, unjudged), "b"), named("b", hold(120, 150, 140)),
		}, []int{100, 200}},
		{"fair, and the first has no quorum", [][]history.Event{
			waiting("x", 100, 200, fairly(five)), waiting("w", 110, 190, history.Waiting{Process: "q", Sets: five.Sets, Unjudged: true}), ails(120, 150, 0, "q", 0, 1, 2),
		}, []int{100, 120, 160, 200}},
		{"another one has no quorum, and its attempt lasts on", [][]history.Event{
			x, waiting("w", 110, 190, history.Waiting{Process: "q", Sets: five.Sets, Unjudged: true}), ails(120, 150, 0, "q", 0, 1, 2),
		}, []int{100, 120, 160, 200}},
		{"a minority fails", [][]history.Event{x, ails(120, 150, 0, "", 0, 1)}, []int{100, 200}},
		{"a majority fails", [][]history.Event{x, ails(120, 150, 0, "", 0, 1, 2)}, []int{100, 120, 153, 200}},
		{"a majority fails for its process", [][]history.Event{x, ails(120, 150, 0, "", 0, 1), ails(120, 140, 0, "p", 2)}, []int{100, 120, 143, 200}},
		{"a majority fails for another process", [][]history.Event{x, ails(120, 150, 0, "q", 0, 1, 2)}, []int{100, 200}},
		{"a majority answers late", [][]history.Event{x, ails(120, 150, 1, "", 0, 1, 2)}, []int{100, 120, 153, 200}},
		{"one set of two has no quorum", [][]history.Event{waiting("x", 100, 200, joint), ails(120, 150, 0, "", 3, 4)}, []int{100, 120, 153, 200}},
		{"a node fails again before it has recovered", [][]history.Event{x, ails(120, 150, 0, "", 0, 1, 2), ails(151, 160, 0, "", 0, 1, 2)}, []int{100, 120, 163, 200}},
		{"keys were left on a minority", [][]history.Event{x, left(120, 150, 0, 1)}, []int{100, 120, 120, 150, 150, 200}},
		{"fair, and the client that left keys keeps its place", [][]history.Event{waiting("x", 100, 200, fairly(five)), left(120, 150, 0, 1)}, []int{100, 120, 125, 150, 150, 200}},
		{"keys were left on a majority", [][]history.Event{x, left(120, 150, 0, 1, 2)}, []int{100, 120, 150, 200}},
		{"keys were left, and a late node is needed", [][]history.Event{x, left(120, 150, 0, 1), ails(130, 140, 15, "", 2)}, []int{100, 120, 120, 150, 150, 200}},
		{"keys were left, and a node is too late", [][]history.Event{x, left(120, 150, 0, 1), ails(130, 137, 16, "", 2)}, []int{100, 120, 120, 130, 140, 150, 150, 200}},
	} {
		t.Run(test.name, func(t *testing.T) {
			events := history.Merge(test.events...)
			var got []int
			for _, r := range history.Rests(events, bounds) {
				if r.Client == "x" {
					got = append(got, int(r.From), int(r.To))
				}
			}
			assert.Equal(t, test.want, got)
		})
	}
}

func TestCheckOfWaits(t *testing.T) {
	for _, test := range []struct {
		name   string
		events [][]history.Event
		idle   bool
	}{
		{"as long as a free lock may rest", [][]history.Event{waiting("x", 100, 110, five)}, false},
		{"longer", [][]history.Event{waiting("x", 100, 111, five)}, true},
		{"beside keys that were left", [][]history.Event{left(90, 200, 0), waiting("x", 100, 130, five)}, false},
		{"longer beside keys that were left", [][]history.Event{left(90, 200, 0), waiting("x", 100, 131, five)}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			events := history.Merge(test.events...)
			assert.Empty(t, history.Check(events, history.Rules{}), "waits are not judged")
			found := history.Check(events, history.Rules{Idle: bounds})
			if !test.idle {
				assert.Empty(t, found)
				return
			}
			if assert.Len(t, found, 1) {
				assert.Equal(t, history.Idled, found[0].Rule)
				assert.Equal(t, time.Duration(100), found[0].At)
			}
		})
	}
}
