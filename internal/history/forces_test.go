package history_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/history"
)

// forces judges releases by force, of which clients hear within 5. Nodes lose nothing.
var forces = history.Rules{LostSlop: 1, Sights: history.Sights{Stands: 10}, Forces: history.Forces{Hears: 5, Well: true}}

// force returns the events of a ForceUnlock of the value v. It has released it if err is "".
func force(v string, began, ended int, err string) []history.Event {
	return []history.Event{
		{At: time.Duration(began), Kind: history.Forcing, Client: "o", Name: "a", Value: v},
		{At: time.Duration(ended), Kind: history.Forced, Client: "o", Name: "a", Value: v, Err: err},
	}
}

// told returns what an observer of a client is told.
func told(client string, at int, byForce bool) []history.Event {
	return []history.Event{{At: time.Duration(at), Kind: history.Told, Client: client, ByForce: byForce}}
}

// changed returns a copy of events in which change has changed each one of a kind.
func changed(kind history.Kind, events []history.Event, change func(*history.Event)) []history.Event {
	events = slices.Clone(events)
	for i := range events {
		if events[i].Kind == kind {
			change(&events[i])
		}
	}
	return events
}

func TestCheckOfForces(t *testing.T) {
	const nobody, stays, once = "lock gone that nobody has forced", "forced lock stays held", "observer not told once of a loss"
	// x locks from 10 on, and holds from 12 on with an expiry of 20. It hears of a force, and is told at 24. The force is from
	// 20 to 22. y holds from 22 on.
	x := changed(history.Held, owned("x", "v", term("x", 10, 12, 31, 0, 1)), func(e *history.Event) { e.Expiry, e.Hears, e.Observed = 20, true, true })
	f := force("v", 20, 22, "")
	forcedAt := func(at int) []history.Event {
		return slices.Concat(changed(history.Lost, lost("x", at, false), func(e *history.Event) { e.ByForce = true }), told("x", at, true))
	}
	next := func(token int) []history.Event { return owned("y", "w", term("y", 15, 22, 60, 50, uint64(token))) }
	deaf := changed(history.Held, x, func(e *history.Event) { e.Hears = false })
	heals := func(events []history.Event) []history.Event {
		return changed(history.Held, events, func(e *history.Event) { e.Heals = true })
	}

	// Here x holds for more than a second. Its next extension begins at 1e9+23.
	long := changed(history.Held, x, func(e *history.Event) { e.Until = 1e9 + 37 })

	for name, c := range map[string]struct {
		logs [][]history.Event
		want string
	}{
		"forced":                                         {logs: [][]history.Event{x, f, forcedAt(24), next(2)}},
		"the next one comes as the force begins":         {logs: [][]history.Event{x, force("v", 22, 23, ""), forcedAt(24), next(2)}},
		"the next one comes before the force begins":     {logs: [][]history.Event{x, force("v", 23, 23, ""), forcedAt(24), next(2)}, want: "exclusion"},
		"the next one comes, and another one was forced": {logs: [][]history.Event{x, force("u", 20, 22, ""), next(2)}, want: "exclusion"},
		"nobody was forced":                              {logs: [][]history.Event{x, next(2)}, want: "exclusion"},
		"forced, of readers and of a writer":             {logs: [][]history.Event{reading(slices.Clone(x)), f, forcedAt(24), next(2)}},
		"permits, forced":                                {logs: [][]history.Event{permit(1, 1, slices.Clone(x)), f, forcedAt(24), permit(1, 1, next(0))}},
		"permits, and nobody was forced":                 {logs: [][]history.Event{permit(1, 1, slices.Clone(x)), permit(1, 1, next(0))}, want: "more permits held than there are"},
		"two come after the force":                       {logs: [][]history.Event{x, f, forcedAt(24), next(2), owned("z", "u", term("z", 15, 23, 60, 50, 3))}, want: "exclusion"},
		"the one that was told goes on":                  {logs: [][]history.Event{x, f, forcedAt(24), extended("x", 25, 45), next(2)}, want: stays},
		"the next token is lower":                        {logs: [][]history.Event{changed(history.Held, x, func(e *history.Event) { e.Token = 9 }), f, forcedAt(24), next(2)}, want: "token order"},
		"the next token is the same":                     {logs: [][]history.Event{x, f, forcedAt(24), next(1)}, want: "token used twice"},
		"the next one has been asked since before":       {logs: [][]history.Event{x, f, forcedAt(24), next(3), owned("z", "u", term("z", 51, 52, 60, 55, 2))}, want: "token order"},

		"told that it was forced, by nobody":                        {logs: [][]history.Event{x, forcedAt(24)}, want: nobody},
		"told that it was forced, before":                           {logs: [][]history.Event{x, forcedAt(19), f}, want: nobody},
		"lost, by nobody":                                           {logs: [][]history.Event{x, lost("x", 24, false), told("x", 24, false)}, want: nobody},
		"lost, and another one was forced":                          {logs: [][]history.Event{x, force("u", 20, 22, ""), lost("x", 24, false), told("x", 24, false)}, want: nobody},
		"lost at the end":                                           {logs: [][]history.Event{x, lost("x", 31, false), told("x", 31, false)}},
		"lost at the end of an extension":                           {logs: [][]history.Event{x, extended("x", 20, 40), lost("x", 39, false), told("x", 39, false)}, want: nobody},
		"lost when another one has released it":                     {logs: [][]history.Event{x, sharing("x", unlockedBy("z", 20)), lost("x", 24, false), told("x", 24, false)}},
		"told that it was forced, when another one has released it": {logs: [][]history.Event{x, sharing("x", unlockedBy("z", 20)), forcedAt(24)}},
		"forced in vain":                                            {logs: [][]history.Event{x, force("v", 20, 22, "taken"), extended("x", 30, 50)}},
		"forced in vain, and lost":                                  {logs: [][]history.Event{x, force("v", 20, 22, "no quorum"), forcedAt(24)}},
		"forced, and never told":                                    {logs: [][]history.Event{x, f}, want: stays},
		"forced, and told in time":                                  {logs: [][]history.Event{x, f, forcedAt(27)}},
		"forced, and told late":                                     {logs: [][]history.Event{x, f, forcedAt(28)}, want: stays},
		"forced, and told late because it paused":                   {logs: [][]history.Event{x, f, changed(history.Lost, forcedAt(28), func(e *history.Event) { e.Paused = true })}},
		"forced, and unlocked in time":                              {logs: [][]history.Event{x, f, unlockedBy("x", 27)}},
		"forced, and unlocked late":                                 {logs: [][]history.Event{x, f, unlockedBy("x", 28)}, want: stays},
		"forced, and does not hear":                                 {logs: [][]history.Event{deaf, f}},
		"forced twice":                                              {logs: [][]history.Event{deaf, f, force("v", 25, 26, "not held"), next(2)}},
		"forced twice, and told after the first":                    {logs: [][]history.Event{x, f, force("v", 23, 24, ""), forcedAt(28)}, want: stays},
		"forced, and unlocked after its time":                       {logs: [][]history.Event{changed(history.Held, x, func(e *history.Event) { e.Until = 26 }), f, unlockedBy("x", 40)}},

		"extended before the force ends":                          {logs: [][]history.Event{deaf, f, extended("x", 23, 42)}},
		"extended after the force":                                {logs: [][]history.Event{deaf, f, extended("x", 30, 43)}, want: stays},
		"extended after the force, and set again":                 {logs: [][]history.Event{heals(deaf), f, extended("x", 30, 43)}},
		"extended after the force, and set again by another":      {logs: [][]history.Event{deaf, heals(sharing("x", owned("z", "v", term("z", 13, 14, 31, 0, 0)))), f, extended("x", 30, 43)}},
		"extended after the force by one that sets nothing again": {logs: [][]history.Event{heals(deaf), sharing("x", owned("z", "v", term("z", 13, 14, 31, 0, 0))), f, extended("x", 30, 43)}},
		"set again, and adopted by one that hears":                {logs: [][]history.Event{heals(deaf), f, sharing("x", changed(history.Held, owned("z", "v", term("z", 25, 26, 60, 0, 0)), func(e *history.Event) { e.Hears = true }))}},
		"set again by one that hears":                             {logs: [][]history.Event{heals(x), f, extended("x", 25, 43)}, want: stays},
		"set again for a while by one that hears":                 {logs: [][]history.Event{heals(x), f, extended("x", 25, 43), forcedAt(27)}},
		"an observer is told nothing":                             {logs: [][]history.Event{x, f, lost("x", 24, false)}, want: once},
		"an observer is told twice":                               {logs: [][]history.Event{x, f, forcedAt(24), told("x", 25, true)}, want: once},
		"an observer is told twice of a loss":                     {logs: [][]history.Event{x, lost("x", 31, false), told("x", 31, false), told("x", 32, false)}, want: once},
		"an observer is not told that it was a force":             {logs: [][]history.Event{x, f, forcedAt(24)[:1], told("x", 25, false)}, want: once},
		"an observer is told of a loss that the client did not":   {logs: [][]history.Event{x, told("x", 31, false)}},

		"told of another reason than the force":         {logs: [][]history.Event{long, force("v", 1e9+20, 1e9+21, ""), lost("x", 1e9+22, false), told("x", 1e9+22, false)}, want: once},
		"told of the force, after long":                 {logs: [][]history.Event{long, force("v", 1e9+20, 1e9+21, ""), forcedAt(1e9 + 22)}},
		"told of another reason, when it was to extend": {logs: [][]history.Event{long, force("v", 1e9+20, 1e9+21, ""), lost("x", 1e9+25, false), told("x", 1e9+25, false)}},
		"told of another reason, before it hears":       {logs: [][]history.Event{long, force("v", 1e9+11, 1e9+21, ""), lost("x", 1e9+22, false), told("x", 1e9+22, false)}},
		"told of another reason, and does not hear":     {logs: [][]history.Event{changed(history.Held, long, func(e *history.Event) { e.Hears = false }), force("v", 1e9+20, 1e9+21, ""), lost("x", 1e9+22, false), told("x", 1e9+22, false)}},
		"told of another reason, after a pause":         {logs: [][]history.Event{long, force("v", 1e9+20, 1e9+21, ""), lost("x", 1e9+22, true), told("x", 1e9+22, false)}},

		"free when it was forced":                                  {logs: [][]history.Event{x, f, forcedAt(24), saw(22, 23, "free")}},
		"free before the force begins":                             {logs: [][]history.Event{x, f, forcedAt(24), saw(15, 19, "free")}, want: "look contradicts a holder"},
		"begun within the minimal hold":                            {logs: [][]history.Event{keeping(40, slices.Clone(x)), next(2)}, want: "begun too soon exclusion"},
		"begun after a forced one's end":                           {logs: [][]history.Event{keeping(40, slices.Clone(x)), f, forcedAt(24), next(2)}},
		"the forced one knows nothing for long, and does not hear": {logs: [][]history.Event{deaf, f, lost("x", 30, false), told("x", 30, false), next(2)}},
	} {
		t.Run(name, func(t *testing.T) {
			var broken []string
			for _, v := range history.Check(history.Merge(c.logs...), forces) {
				broken = append(broken, v.Rule)
			}
			slices.Sort(broken)
			assert.Equal(t, c.want, strings.Join(broken, " "))
		})
	}
}

// unlockedBy returns the events of an Unlock that a client calls.
func unlockedBy(client string, at int) []history.Event {
	return []history.Event{{At: time.Duration(at), Kind: history.Unlock, Client: client, Name: "a"}}
}

// The zero value of Forces judges no time, and no loss that may have another reason.
func TestForcesThatAreNotJudged(t *testing.T) {
	held := changed(history.Held, owned("x", "v", term("x", 10, 12, 31, 0, 1)), func(e *history.Event) { e.Hears = true })
	assert.Empty(t, history.Check(history.Merge(held, lost("x", 24, false)), history.Rules{}))
	assert.Empty(t, history.Check(history.Merge(held, force("v", 13, 14, "")), history.Rules{}))
	byForce := changed(history.Lost, lost("x", 24, false), func(e *history.Event) { e.ByForce = true })
	assert.Len(t, history.Check(history.Merge(held, byForce), history.Rules{}), 1)
}
