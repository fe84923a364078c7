package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// This file judges waits: a free lock must not rest while somebody waits for it.
//
// A lock is free from the end of a hold on, although attempts that have not won may have keys on nodes: that such keys
// give way soon is what is judged. A hold ends when an Unlock of it has succeeded. Otherwise it ends when its keys have
// run out, because until then they keep a quorum of nodes from others. That is later than its Until by the drift and
// the lock delay (Idle.Outlast), and a minimal hold (Keeps) may last longer. A hold that several terms share ends with
// the first Unlock that succeeds. A client that has crashed may have left keys on some nodes (Left): there the lock is
// taken until these keys run out.
//
// A wait counts only while all of the following is true. It begins anew whenever somebody gets one of the names.
//
//   - The client waits, with the default retry delays. If it chose longer ones, it gets what it asked for.
//   - A quorum of each set of nodes serves the client's process in time. A node that has recovered counts only a while
//     later (Idle.Recovers), because processes first have to connect again and to repeat releases there. A node whose
//     votes the restart guard does not count yet does not serve anybody.
//   - What the client wants is free: all of several names; enough permits; for a reader there is no writer.
//   - For a fair client, no client has crashed just before and keeps its place in the queues (Idle.Place).
//   - Nobody who wants one of its names is without a quorum, or was within a node deadline (Idle.Attempt). The attempt
//     of such a client ends only with its node deadline, because no refusal is in its sight, and keeps what it was
//     granted until then. In that time a majority fails, from where that client stands.
//   - Nobody before whom it must step back waits for something that is not free. Such are, for a fair client, all who
//     want one of its names, and for a reader the writers among them.
//
// If keys of a crashed client are on too many of the nodes that serve the client, nodes that answer late but within
// three quarters of the node deadline count, too, and the wait may last longer (Idle.Beside).

// Idle are the bounds of waits. With the zero value nothing is judged.
type Idle struct {
	Most     time.Duration // for so long a free lock may rest
	Beside   int           // beside keys that were left, for so many node deadlines longer
	Recovers time.Duration // so long after it has recovered a node counts again
	Attempt  time.Duration // so long an attempt lasts at most: the longest node deadline
	Place    time.Duration // so long a client that has crashed keeps its place in the queues
	Outlast  time.Duration // keys outlast the last Until of their hold, and its Keeps, by this at most
}

// A Rest is a time in which a client waited for a lock that was free, and nobody got the lock.
type Rest struct {
	Client   string
	Term     int
	Name     string // the first of the names
	From, To time.Duration
	Beside   bool          // keys of a crashed client were on some node
	Most     time.Duration // how long it may be
}

func (r Rest) String() string {
	beside := ""
	if r.Beside {
		beside = ", beside keys of a crashed client"
	}
	return fmt.Sprintf("%s #%d waited from %v to %v, %v%s", r.Client, r.Term, r.From, r.To, r.To-r.From, beside)
}

// idle finds the rests that are too long.
func idle(events []Event, rules Idle) (found []Violation) {
	if rules.Most == 0 {
		return nil
	}
	for _, r := range Rests(events, rules) {
		if r.To-r.From > r.Most {
			found = append(found, Violation{Idled, r.Name, r.From, r.String()})
		}
	}
	return found
}

// Rests returns the times in which waits were judged. The events must be in the order of time.
func Rests(events []Event, rules Idle) []Rest {
	w := &waits{
		rules: rules,
		holds: map[string]map[*hold]bool{}, left: map[string]map[*Event]bool{}, calls: map[string]map[*wait]bool{},
		byID: map[string]*wait{}, ails: ailments{}, ailed: ailments{}, stale: map[string]bool{}, won: map[string]bool{},
	}
	last := time.Duration(0)
	if len(events) > 0 {
		last = events[len(events)-1].At
	}
	for _, s := range stepsOf(events, rules) {
		if s.at > last {
			break
		}
		w.judgeUntil(s.at)
		s.do(w)
	}
	w.judgeUntil(last + 1)
	for _, id := range slices.Sorted(maps.Keys(w.byID)) {
		w.ends(id)
	}
	slices.SortStableFunc(w.rests, func(a, b Rest) int {
		return cmp.Or(cmp.Compare(a.From, b.From), strings.Compare(a.Client, b.Client))
	})
	return w.rests
}

// A step is a change of what is known.
type step struct {
	at time.Duration
	do func(*waits)
}

// stepsOf returns the changes in a history, in the order of time.
func stepsOf(events []Event, rules Idle) (steps []step) {
	add := func(at time.Duration, do func(*waits)) { steps = append(steps, step{at, do}) }
	for _, h := range holdsOf(events, rules) {
		add(h.from, func(w *waits) { w.takes(h) })
		add(h.to, func(w *waits) { w.frees(h) })
	}
	for i := range events {
		switch e := &events[i]; e.Kind {
		case Waits:
			add(e.At, func(w *waits) { w.begins(e) })
		case Held, Refused:
			add(e.At, func(w *waits) { w.ends(e.ID()) })
		case Left:
			add(e.At, func(w *waits) { w.leaves(e) })
			add(e.Until, func(w *waits) { w.expires(e) })
			add(e.At+rules.Place, func(w *waits) { w.changed(spaces(e)) })
		case Ails:
			if !e.Ends {
				add(e.At, func(w *waits) { w.fails(e) })
				continue
			}
			add(e.At+rules.Recovers, func(w *waits) { w.recovers(w.ails, e) })
			add(e.At+rules.Recovers+rules.Attempt, func(w *waits) { w.recovers(w.ailed, e) })
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return steps
}

// A hold is a claim that somebody has, from the first Held of one of its terms until its end.
type hold struct {
	Event    // the first Held
	from, to time.Duration
	until    time.Duration // the last one that a term was given
	unlocked bool
}

// holdsOf returns the holds in a history.
func holdsOf(events []Event, rules Idle) (holds []*hold) {
	of := map[string]*hold{}
	for _, e := range events {
		h := of[e.hold()]
		switch e.Kind {
		case Held:
			if h == nil {
				h = &hold{Event: e, from: e.At}
				of[e.hold()], holds = h, append(holds, h)
			}
			h.until = max(h.until, e.Until, e.At+e.Keeps)
		case Extended:
			if h != nil {
				h.until = max(h.until, e.Until)
			}
		case Unlocked:
			if h != nil && e.Err == "" && !h.unlocked {
				h.unlocked, h.to = true, e.At
			}
		}
	}
	for _, h := range holds {
		switch {
		case !h.unlocked:
			h.to = h.until + rules.Outlast
		case h.Keeps > 0:
			h.to = max(h.to, h.from+h.Keeps+rules.Outlast)
		}
	}
	return holds
}

// spaces returns the names of an event. Permits of a name are apart from its lock.
func spaces(e *Event) (names []string) {
	if e.Permits != 0 {
		return []string{e.Name + "\x00permits"}
	}
	return append([]string{e.Name}, e.More...)
}

// An ailment is a node that does not serve a process in time; "" is all processes.
type ailment struct {
	node    int
	process string
}

// ailments say how late the answers come, for each fault; 0 if none comes.
type ailments map[ailment][]time.Duration

// waits is what is known at one moment, while the events are read.
type waits struct {
	rules Idle
	at    time.Duration // the moment
	holds map[string]map[*hold]bool
	left  map[string]map[*Event]bool
	calls map[string]map[*wait]bool // by name
	byID  map[string]*wait          // by term
	ails  ailments
	ailed ailments        // as ails, but each lasts longer by Idle.Attempt
	stale map[string]bool // the names of which something has changed at this moment
	won   map[string]bool // those that somebody got
	rests []Rest
}

// A wait is a call that waits now.
type wait struct {
	*Event
	names []string
	state state
	since time.Duration // since when it is in this state
}

// A state says whether a wait counts.
type state uint8

const (
	unjudged state = iota
	judged
	beside // judged, beside keys of a crashed client
)

func put[T comparable](in map[string]map[T]bool, names []string, t T) {
	for _, name := range names {
		if in[name] == nil {
			in[name] = map[T]bool{}
		}
		in[name][t] = true
	}
}

func remove[T comparable](from map[string]map[T]bool, names []string, t T) {
	for _, name := range names {
		delete(from[name], t)
	}
}

// changed notes that something has changed about names. It may also change whether those who want one of the names let
// others pass.
func (w *waits) changed(names []string) {
	for _, name := range names {
		w.stale[name] = true
		for other := range w.calls[name] {
			for _, name := range other.names {
				w.stale[name] = true
			}
		}
	}
}

func (w *waits) takes(h *hold) {
	names := spaces(&h.Event)
	put(w.holds, names, h)
	w.changed(names)
	for _, name := range names {
		w.won[name] = true
	}
}

func (w *waits) frees(h *hold) {
	names := spaces(&h.Event)
	remove(w.holds, names, h)
	w.changed(names)
}

func (w *waits) begins(e *Event) {
	c := &wait{Event: e, names: spaces(e)}
	w.byID[e.ID()] = c
	put(w.calls, c.names, c)
	w.changed(c.names)
}

// ends ends the wait of a term, if it has not ended.
func (w *waits) ends(id string) {
	c := w.byID[id]
	if c == nil {
		return
	}
	w.changed(c.names)
	w.close(c, unjudged)
	delete(w.byID, id)
	remove(w.calls, c.names, c)
}

func (w *waits) leaves(e *Event) {
	put(w.left, spaces(e), e)
	w.changed(spaces(e))
}

func (w *waits) expires(e *Event) {
	remove(w.left, spaces(e), e)
	w.changed(spaces(e))
}

func (w *waits) fails(e *Event) {
	of := ailment{e.Node, e.Process}
	w.ails[of] = append(w.ails[of], e.Late)
	w.ailed[of] = append(w.ailed[of], e.Late)
	w.changed(slices.Collect(maps.Keys(w.calls)))
}

func (w *waits) recovers(ails ailments, e *Event) {
	of := ailment{e.Node, e.Process}
	if len(ails[of]) > 0 {
		ails[of] = ails[of][1:]
	}
	w.changed(slices.Collect(maps.Keys(w.calls)))
}

// judgeUntil judges the waits after all changes of the present moment, and then goes on to the moment at.
func (w *waits) judgeUntil(at time.Duration) {
	if at == w.at {
		return
	}
	for _, c := range w.byID {
		in := func(names map[string]bool) bool {
			return slices.ContainsFunc(c.names, func(name string) bool { return names[name] })
		}
		if !in(w.stale) {
			continue
		}
		if is := w.stateOf(c); is != c.state || in(w.won) {
			w.close(c, is)
		}
	}
	clear(w.stale)
	clear(w.won)
	w.at = at
}

// close ends the time in which c was in one state, and begins that of the next.
func (w *waits) close(c *wait, next state) {
	if c.state != unjudged && c.since < w.at {
		r := Rest{Client: c.Client, Term: c.Term, Name: c.Name, From: c.since, To: w.at, Most: w.rules.Most}
		r.Beside = c.state == beside
		if r.Beside {
			r.Most += time.Duration(w.rules.Beside) * c.Wait.Deadline
		}
		w.rests = append(w.rests, r)
	}
	c.state, c.since = next, w.at
}

func (w *waits) stateOf(c *wait) state {
	if c.Wait.Unjudged || !w.isFree(c) || w.stepsBack(c) {
		return unjudged
	}
	left := map[int]bool{}
	for _, name := range c.names {
		for e := range w.left[name] {
			if left[e.Node] = true; c.Wait.Fair && w.at < e.At+w.rules.Place {
				return unjudged
			}
		}
	}
	switch {
	case len(left) == 0 && w.ails.hasQuorum(c, left, 0):
		return judged
	case len(left) > 0 && w.ails.hasQuorum(c, left, c.Wait.Deadline*3/4):
		return beside
	}
	return unjudged
}

// isFree reports whether all that c wants is free.
func (w *waits) isFree(c *wait) bool {
	for _, name := range c.names {
		taken := 0
		for h := range w.holds[name] {
			if c.Permits == 0 && !(c.Reads && h.Reads) {
				return false
			}
			taken += max(h.Weight, 1)
		}
		if c.Permits != 0 && taken+max(c.Weight, 1) > c.Permits {
			return false
		}
	}
	return true
}

// stepsBack reports whether somebody is, or was, without a quorum, or whether somebody before whom c must step back may
// have to wait for something else than c.
func (w *waits) stepsBack(c *wait) bool {
	for _, name := range c.names {
		for other := range w.calls[name] {
			before := c.Wait.Fair || c.Reads && !other.Reads
			if other != c && (before && !w.isFree(other) || !w.ailed.hasQuorum(other, nil, 0)) {
				return true
			}
		}
	}
	return false
}

// hasQuorum reports whether a quorum of nodes serves c, not counting those that are taken. Nodes that answer late but
// within the time late count, too.
func (a ailments) hasQuorum(c *wait, taken map[int]bool, late time.Duration) bool {
	for _, set := range c.Wait.Sets {
		n := 0
		for _, node := range set {
			if !taken[node] && a.serves(node, "", late) && a.serves(node, c.Wait.Process, late) {
				n++
			}
		}
		if n <= len(set)/2 {
			return false
		}
	}
	return true
}

func (a ailments) serves(node int, process string, late time.Duration) bool {
	for _, d := range a[ailment{node, process}] {
		if d == 0 || d > late {
			return false
		}
	}
	return true
}
