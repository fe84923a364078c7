package simulation

import (
	"slices"
	"strconv"
	"time"

	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file notes what package history needs to judge waits in any scene.

// waits notes that the client waits for the lock of the term from now on.
func (t *simTerm) waits() {
	e := t.event(history.Waits)
	e.Permits, e.Weight = t.drawn.permits, t.drawn.weight
	e.Wait = &history.Waiting{
		Process: strconv.Itoa(t.client.process), Sets: t.client.sets,
		Fair:     t.client.fair || t.drawn.permits != 0 && t.client.heavy,
		Unjudged: !t.drawn.defaults,
	}
	t.client.simulation.waits.Note(e)
}

// fails notes that nodes do not serve any process in time from now on.
func (s *simulation) fails(nodes ...int) { s.serve(0, false, "", nodes) }

// serves notes that nodes serve all processes again.
func (s *simulation) serves(nodes ...int) { s.serve(0, true, "", nodes) }

// failsFor notes that nodes do not serve any process in time, from now on for a time.
func (s *simulation) failsFor(d time.Duration, nodes ...int) { s.failsToward("", d, nodes...) }

// failsToward notes that nodes do not serve one process in time, from now on for a time.
func (s *simulation) failsToward(process string, d time.Duration, nodes ...int) {
	s.serve(0, false, process, nodes)
	s.serve(d, true, process, nodes)
}

func (s *simulation) serve(after time.Duration, serves bool, process string, nodes []int) {
	for _, j := range nodes {
		s.waits.Note(history.Event{At: s.now() + after, Kind: history.Ails, Node: j, Process: process, Ends: serves})
	}
}

// spent is how long a fault is taken to last that only concerns the next few commands, messages or replies.
const spent = 500 * time.Millisecond

// idle returns the bounds of waits. A node that has recovered counts only once its restart guard lets it vote.
func (s *simulation) idle() history.Idle {
	bounds := history.Idle{
		Most:     time.Second,
		Beside:   1,
		Recovers: 500 * time.Millisecond,
		Attempt:  max(s.longest/20, simNodeTimeout),
		// The keys last for the longest expiry after the last extension, also if WithMaxHold ends the hold earlier.
		Outlast: time.Second + s.longest + time.Duration(s.drift*float64(s.longest)),
	}
	if s.class[unpolled] {
		bounds.Most = 225 * time.Millisecond // who is not told tries again when its ticket must be shown, after 500 ms
	}
	if s.realm == guarded {
		bounds.Recovers = s.longest*3/2 + 1100*time.Millisecond
	}
	return bounds
}

// judged reports whether waits are judged. In a lawless realm nodes grant what is held. In a change, which nodes decide
// differs from process to process.
func (s *simulation) judged() bool {
	return s.realm != lawless && !s.realm.changes() && s.asked.mistake == ""
}

// withWaits returns events together with those by which waits are judged.
func (s *simulation) withWaits(events []history.Event) []history.Event {
	if !s.judged() || len(events) == 0 {
		return events
	}
	last := events[len(events)-1].At
	waits := slices.DeleteFunc(s.waits.Events(), func(e history.Event) bool { return e.At > last })
	return history.Merge(waits, events) // a wait may begin and end at one moment
}
