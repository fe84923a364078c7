package redsyncgocron_test

import (
	"fmt"
	"slices"
	"time"
)

// This file judges what three schedulers have told. On a slow machine they may ask for a lock so late that the promise does
// not hold. Such a tick is excused, but only if the times that they have told prove it.

// margin is what the check allows for the drift of a minimal hold, and for the time between an event and its record.
const margin = heldFor/100 + 20*time.Millisecond

// A fault says when a process was killed or frozen.
type fault struct {
	process int
	at      time.Time
}

// A run is a run of a job. Its record is that of Lock.
type run struct {
	record
	ended   time.Time // zero if the process has not told that
	faulted *fault    // the process was killed or frozen meanwhile
	lost    bool      // the process has reported that the lock was lost
}

// A check is what the processes have told, and how to judge it.
type check struct {
	records     []record
	faults      []fault
	first, last time.Time // ticks between these times count

	runs    []int // the last job's, by tick
	excused int
}

// of returns what is wrong with a job.
func (c *check) of(job string) (wrong []string) {
	runs, calls := c.history(job)
	for i := range runs {
		for j := range i {
			wrong = append(wrong, between(&runs[j], &runs[i])...)
		}
	}
	c.runs, c.excused = nil, 0
	for tick := c.first.Add(2*apart).UnixNano()/int64(second) + 1; time.Unix(0, tick*int64(second)).Add(heldFor).Before(c.last); tick++ {
		of := inTick(runs, tick)
		c.runs = append(c.runs, len(of))
		switch {
		case len(of) == 1:
		case len(of) > 1 && of[1].Asked.Sub(of[0].Asked) > heldFor:
			c.excused++ // the spread is too large
		case len(of) > 1:
			wrong = append(wrong, fmt.Sprintf("tick %d has %d runs", tick, len(of)))
		case c.hasExcuse(tick, calls, runs):
			c.excused++
		default:
			wrong = append(wrong, fmt.Sprintf("tick %d has no run", tick))
		}
	}
	return wrong
}

// history returns the runs of a job and all calls of Lock for it, in the order of these calls.
func (c *check) history(job string) (runs []run, calls []record) {
	for _, r := range c.records {
		if r.Job != job {
			continue
		}
		switch r.What {
		case saysLocked:
			runs, calls = append(runs, run{record: r}), append(calls, r)
		case saysRefused, saysFailed:
			calls = append(calls, r)
		}
	}
	slices.SortFunc(runs, func(a, b run) int { return a.Asked.Compare(b.Asked) })
	for i := range runs {
		c.complete(&runs[i])
	}
	return runs, calls
}

// complete notes what has become of a run.
func (c *check) complete(of *run) {
	for _, r := range c.records {
		if r.Process != of.Process || r.Job != of.Job || r.At.Before(of.At) {
			continue
		}
		switch {
		case r.What == saysEnded && r.Asked.Equal(of.Asked):
			of.ended = r.At
		case r.What == saysLost && (of.ended.IsZero() || r.At.Before(of.ended)):
			of.lost = true
		}
	}
	for i, f := range c.faults {
		if f.process == of.Process && of.At.Before(f.at) && (of.ended.IsZero() || of.ended.After(f.at)) {
			of.faulted = &c.faults[i]
		}
	}
}

// between returns what is wrong between two runs, a and a later one. It holds however slow the machine is.
func between(a, b *run) (wrong []string) {
	if gap := b.At.Sub(a.Asked); gap < heldFor {
		wrong = append(wrong, fmt.Sprintf("process %d runs %v after process %d has asked", b.Process, gap, a.Process))
	}
	if a.faulted == nil && !a.lost && b.At.Before(a.ended.Add(-margin)) {
		wrong = append(wrong, fmt.Sprintf("process %d runs while process %d does", b.Process, a.Process))
	}
	return wrong
}

func inTick(runs []run, tick int64) (of []run) {
	for _, r := range runs {
		if r.Tick == tick {
			of = append(of, r)
		}
	}
	return of
}

// hasExcuse reports whether each process that has asked in a tick could not get the lock, even if all is well: it came so
// late or so early that the lock of an earlier run was still there, or too few nodes answered.
func (c *check) hasExcuse(tick int64, calls []record, runs []run) bool {
	for _, call := range calls {
		barred := func(r run) bool { return r.Asked.Before(call.At) && r.stays().After(call.Asked) }
		if call.Tick == tick && call.What == saysRefused && !slices.ContainsFunc(runs, barred) {
			return false
		}
	}
	return true
}

// stays returns until when the lock of a run may stay on the nodes.
func (r *run) stays() time.Time {
	until := r.At.Add(heldFor)
	switch {
	case r.faulted != nil:
		until = later(until, r.faulted.at.Add(expiry))
	case r.ended.IsZero():
		until = later(until, time.Now())
	default:
		until = later(until, r.ended)
	}
	return until.Add(margin)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
