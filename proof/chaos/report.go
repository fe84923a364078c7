package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file reports the result of a run, as text and as data.

// least is how many locks the clients must acquire per second of traffic. A run with fewer locks proves
// nothing.
const least = 3

// verdict returns why the run has failed, or nil if it has passed.
func (r *result) verdict() error {
	if err := r.violated(); err != nil {
		return err
	}
	return r.unproved()
}

// violated returns which promises the run has broken, or nil. It leaves out the violations that the scene allows.
func (r *result) violated() error {
	var broken []string
	for _, v := range r.Violations {
		if !r.Scene.allowed(v) {
			broken = append(broken, v.Rule)
		}
	}
	if len(broken) == 0 {
		return nil
	}
	slices.Sort(broken)
	return fmt.Errorf("%d violations: %s", len(broken), strings.Join(slices.Compact(broken), ", "))
}

// unproved returns why the run proves nothing, or nil. The reason may be chance or a slow machine, so another run of
// the same scene may prove something.
func (r *result) unproved() error {
	found := slices.ContainsFunc(r.Violations, func(v history.Violation) bool { return v.Rule == history.Exclusion })
	enough := int(r.Length.Seconds() * least)
	switch {
	case r.Scene.excluded && !found:
		return fmt.Errorf("exclusion was not broken, as it must be in the scene %q", r.Scene.name)
	case len(r.Terms) < enough:
		return fmt.Errorf("only %d locks were acquired: %d are needed to show something", len(r.Terms), enough)
	case r.Scene.clients != nil && r.Scene.waits && len(r.Rests) < enough:
		return fmt.Errorf("only %d waits were judged: %d are needed to show something", len(r.Rests), enough)
	}
	if r.Deleters > 0 && r.Deletions == 0 {
		return fmt.Errorf("%d nodes have DELEX or DELIFEQ, and none was sent one", r.Deleters)
	}
	return cmp.Or(r.unserved(), r.unforced())
}

// replay returns the command that plays the same plan again. The history differs, because the
// clients depend on timing.
func (r *result) replay() string {
	return fmt.Sprintf("go run ./proof/chaos -scene %s -for %v -seed %d", r.Scene.name, r.Length, r.Seed)
}

// summary writes the result for a human reader.
func (r *result) summary(out io.Writer) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	say("scene %s: %s", r.Scene.name, r.Scene.about)
	say("again: %s", r.replay())
	say("\n%d faults", len(r.Plan))
	for _, c := range r.faultCounts() {
		say("%7d  %s", c.Count, c.What)
	}
	if r.LeftOut > 0 {
		say("%7d  left out: %v", r.LeftOut, errNoFakeTime)
	}
	say("\n%d locks acquired, of %d tried, by clients in %d processes", len(r.Terms), r.calls(), len(r.Processes))
	for _, c := range r.clientCounts() {
		say("%7d  %s", c.Count, c.What)
	}
	for _, s := range r.served() {
		say("%7d  by %s, from %.1f s to %.1f s; %d outlived their process", s.Locks, s.Nodes, s.From.Seconds(), s.To.Seconds(), s.Cut)
	}
	say("%7d  were told of a loss, %d extensions seen, %d looks at keys",
		r.count(history.Lost), r.count(history.Extended), r.count(history.Key))
	if r.Deleters > 0 {
		say("%7d  times DELEX or DELIFEQ in place of a script, on the %d nodes that have it, since their last start", r.Deletions, r.Deleters)
	}
	if looks := r.looks(); len(looks) > 0 {
		say("%7d  looks who holds a name: %d held (%d owners seen), %d free, %d unknown",
			r.count(history.Saw), looks["held"], looks["owners"], looks["free"], looks["unknown"])
	}
	if f := r.forced(); r.Scene.forces {
		say("%7d  locks released by force, %d of them of stopped holders; %d taken, %d not held, %d without a quorum, %d other errors; %d holders told of it, %d that hear found out first",
			f[released], f[string(stopped)], f[wasTaken], f[wasNotHeld], f[wasNoQuorum], f["other"], f["told"], f["found out"])
	}
	if r.Scene.waits {
		say("%7d  waits judged, for %v; a free lock rested at most %v, beside keys of crashed clients %v",
			len(r.Rests), r.judged(), r.longestRest(false), r.longestRest(true))
	}
	say("\n%d violations", len(r.Violations))
	for i, v := range r.Violations {
		if i == maxShown {
			say("... and %d more", len(r.Violations)-maxShown)
			break
		}
		say("\n%v", v)
		for _, e := range r.around(v) {
			say("  %s", describe(e))
		}
	}
	if err := r.verdict(); err != nil {
		say("\nFAILED: %v", err)
	} else {
		say("\nPASS")
	}
}

// judged returns for how long waits were judged, in total.
func (r *result) judged() (total time.Duration) {
	for _, rest := range r.Rests {
		total += rest.To - rest.From
	}
	return total.Round(ms)
}

// longestRest returns how long a free lock rested at most.
func (r *result) longestRest(beside bool) (longest time.Duration) {
	for _, rest := range r.Rests {
		if rest.Beside == beside {
			longest = max(longest, rest.To-rest.From)
		}
	}
	return longest.Round(ms)
}

// maxShown is the most violations that the summary and the page tell in detail.
const maxShown = 5

func (r *result) calls() int { return r.count(history.Call) }

func (r *result) count(k history.Kind) (n int) {
	for _, e := range r.Events {
		if e.Kind == k {
			n++
		}
	}
	return n
}

// A tallied counts the faults of one kind, or the locks that clients of one habit have acquired.
type tallied struct {
	What  string `json:"what"`
	Count int    `json:"count"`
}

func tally(counts map[string]int) (list []tallied) {
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, tallied{what, counts[what]})
	}
	slices.SortStableFunc(list, func(a, b tallied) int { return cmp.Compare(b.Count, a.Count) })
	return list
}

func (r *result) faultCounts() []tallied {
	counts := map[string]int{}
	for _, f := range r.Plan {
		counts[string(f.Kind)]++
	}
	return tally(counts)
}

func (r *result) clientCounts() []tallied {
	counts := map[string]int{}
	for _, t := range r.Terms {
		counts[habitOf(t.Client)]++
	}
	return tally(counts)
}

// habitOf returns the habit in the name of a client: process/habit/number.
func habitOf(who string) string {
	parts := strings.Split(who, "/")
	return parts[min(1, len(parts)-1)]
}

const (
	// aroundIt is how long before and after a violation an event counts as near it.
	aroundIt = 700 * ms
	// maxAround is the most events that around returns. It leaves out those farthest from the violation.
	maxAround = 40
)

// around returns the events near v: the events of its lock, and the faults.
func (r *result) around(v history.Violation) (events []history.Event) {
	for _, e := range r.Events {
		if concerns(e, v) {
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(a, b history.Event) int {
		return cmp.Compare((a.At - v.At).Abs(), (b.At - v.At).Abs())
	})
	events = events[:min(len(events), maxAround)]
	return history.Merge(events)
}

// concerns reports whether e is near v in time, and about the same lock or a fault.
func concerns(e history.Event, v history.Violation) bool {
	if (e.At - v.At).Abs() > aroundIt {
		return false
	}
	switch e.Kind {
	case history.Call, history.Refused: // these are too many to show
		return false
	case history.Fault:
		return strings.HasSuffix(e.What, ": "+e.Where) || strings.Contains(e.What, ": "+e.Where+", ") // show a fault of several rows once
	case history.Saw:
		return e.Name == v.Name && isOfLooks(v.Rule)
	case history.Key:
		return e.Name == v.Name || beside(e.Key) == v.Name
	default:
		return e.Of(v.Name)
	}
}

// describe returns an event in words.
func describe(e history.Event) string {
	text := fmt.Sprintf("%11.6f ", e.At.Seconds())
	switch e.Kind {
	case history.Fault:
		if e.Ends {
			return text + "ends: " + e.What
		}
		return text + "begins: " + e.What
	case history.Key:
		return text + fmt.Sprintf("node %d has %s for %v", e.Node, e.Key, e.TTL)
	case history.Forcing, history.Forced:
		return text + fmt.Sprintf("%s #%d %s value %s %s", e.Client, e.Term, e.Kind, e.Value, e.Err) + others(e)
	case history.Saw:
		return text + fmt.Sprintf("%s #%d %s %+v", e.Client, e.Term, e.Kind, *e.Sight)
	case history.Held, history.Extended:
		text += fmt.Sprintf("%s #%d %s, until %.6f", e.Client, e.Term, e.Kind, e.Until.Seconds())
		if e.Token != 0 {
			text += fmt.Sprintf(", token %d", e.Token)
		}
		if e.Permits != 0 {
			text += fmt.Sprintf(", %d of %d permits", max(e.Weight, 1), e.Permits)
		}
		if e.Value != "" {
			text += fmt.Sprintf(", value %s of %q", e.Value, e.Owner)
		}
		return text + others(e)
	default:
		text += fmt.Sprintf("%s #%d %s", e.Client, e.Term, e.Kind)
		if e.Err != "" {
			text += ": " + e.Err
		}
		return text + others(e)
	}
}

// others tells all names of a lock that has several.
func others(e history.Event) string {
	if e.More == nil {
		return ""
	}
	return fmt.Sprintf(" (%s, %s)", e.Name, strings.Join(e.More, ", "))
}

// An account is the report as data.
type account struct {
	Scene      string         `json:"scene"`
	Seed       uint64         `json:"seed"`
	For        time.Duration  `json:"for"`
	Again      string         `json:"again"`
	Failed     string         `json:"failed,omitempty"`
	Faults     []tallied      `json:"faults"`
	LeftOut    int            `json:"left_out"` // because libfaketime is missing
	Plan       []fault        `json:"plan"`
	Tried      int            `json:"tried"`
	Acquired   int            `json:"acquired"`
	ByClient   []tallied      `json:"acquired_by_client"`
	Looks      map[string]int `json:"looks,omitempty"`  // by state, and how many owners were seen
	Forced     map[string]int `json:"forced,omitempty"` // calls of ForceUnlock, by result
	Served     []served       `json:"served,omitempty"` // by deployment
	Violations []told         `json:"violations"`
}

// told is a violation with the events near it.
type told struct {
	Rule   string          `json:"rule"`
	Name   string          `json:"name"`
	At     time.Duration   `json:"at"`
	What   string          `json:"what"`
	Events []history.Event `json:"events"`
}

func (r *result) account() account {
	a := account{
		Scene: r.Scene.name, Seed: r.Seed, For: r.Length, Again: r.replay(),
		Faults: r.faultCounts(), LeftOut: r.LeftOut, Plan: r.Plan,
		Tried: r.calls(), Acquired: len(r.Terms), ByClient: r.clientCounts(), Served: r.served(), Looks: r.looks(), Forced: r.forced(),
	}
	if err := r.verdict(); err != nil {
		a.Failed = err.Error()
	}
	for _, v := range r.Violations {
		a.Violations = append(a.Violations, told{v.Rule, v.Name, v.At, v.What, r.around(v)})
	}
	return a
}
