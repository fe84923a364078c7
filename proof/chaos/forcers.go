package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file defines the scene forced, in which clients release the locks of others by force (ForceUnlock).

// forcers and their victims are the clients of the scene. All locks have fencing tokens.
var forcers = []habit{
	{name: "forcer", clients: 3, pace: 300 * ms, do: (*client).force},
	{name: "looker", clients: 1, pace: 40 * ms, do: (*client).look},
	{name: "plain", clients: 2, pace: 60 * ms, do: (*client).plain},
	{name: "watchdog", clients: 2, slow: true, pace: 100 * ms, do: (*client).keep},
	{name: "healing", clients: 2, slow: true, pace: 100 * ms, do: (*client).keepAndHeal},
	{name: "do", clients: 1, slow: true, pace: 100 * ms, do: (*client).doIt},
	{name: "overstaying", clients: 1, slow: true, pace: 100 * ms, do: (*client).overstay},
	{name: "several-long", clients: 1, several: true, slow: true, pace: 500 * ms, do: anyOf((*client).keep, (*client).keepAndHeal)},
	{name: "reader-long", clients: 2, meets: true, reads: true, slow: true, pace: 200 * ms, do: anyOf((*client).keep, (*client).keepAndHeal, (*client).overstay)},
	{name: "permit-long", clients: 4, permits: true, slow: true, pace: 100 * ms, do: anyOf((*client).keep, (*client).keepAndHeal, (*client).overstay)},
}

// planForced stops one process of clients at a time.
func planForced(seed uint64, length time.Duration) (plan []fault) {
	r := rand.New(rand.NewPCG(seed, 8))
	for at := lull; ; at += between(r, 100*ms, 300*ms) {
		f := fault{At: at, For: between(r, 800*ms, 1800*ms), Kind: stopped, Process: 1 + r.IntN(processCount)}
		if at += f.For; at > length-lull {
			return plan
		}
		plan = append(plan, f)
	}
}

// keep holds a lock with a watchdog, for up to four times the job's expiry.
func (c *client) keep() { c.holdFor(c.between(c.Expiry, 4*c.Expiry), redsync.WithWatchdog()) }

// keepAndHeal is keep with WithSetNXOnExtend.
func (c *client) keepAndHeal() {
	c.holdFor(c.between(c.Expiry, 4*c.Expiry), redsync.WithWatchdog(), redsync.WithSetNXOnExtend())
}

// aShortTTL is less than a watchdog mostly leaves. So it seems that nobody extends keys with a shorter TTL.
const aShortTTL = shortExpiry / 2

// force looks who holds a lock or a permit, and releases one by force: mostly only a holder that seems stuck. It looks at
// all names of locks at once, because a look at one name does not show which others its holder has.
func (c *client) force() {
	ctx, cancel := context.WithTimeout(c.ctx, unlockTime)
	defer cancel()
	l := together(lockNames)
	if c.chance(2) {
		l = semaphores[c.rand.IntN(len(semaphores))]
	}
	m := l.mutex(c.rs, append(l.options(), redsync.WithExpiry(c.Expiry))...)
	s, _ := m.Inspect(ctx) // if it does not know all, it may know some
	if len(s.Holders) == 0 {
		return
	}
	h := s.Holders[len(s.Holders)-1]
	switch {
	case c.blunt || c.chance(9):
		h = s.Holders[c.rand.IntN(len(s.Holders))]
	case h.TTL > aShortTTL:
		return
	}
	if l.permits == 0 && len(h.Names) == 1 && c.chance(2) {
		m = c.rs.NewMutex(h.Names[0], redsync.WithExpiry(c.Expiry))
	}
	c.forceOut(m, l, h)
}

// forceOut releases a holder by force, and notes that.
func (c *client) forceOut(m *redsync.Mutex, l lockName, h redsync.Holder) {
	c.term++
	e := history.Event{
		At: c.now(), Kind: history.Forcing, Client: c.who, Term: c.term, Name: h.Names[0], More: h.Names[1:], Permits: l.permits, Value: h.ID,
	}
	c.log.Note(e)
	ctx, cancel := context.WithTimeout(context.Background(), unlockTime)
	defer cancel()
	var err error
	if c.blunt {
		c.deleteKeys(ctx, h)
	} else {
		err = m.ForceUnlock(ctx, h)
	}
	e.At, e.Kind, e.Err = c.now(), history.Forced, outcomeOf(err)
	c.log.Note(e)
	if !slices.Contains([]string{"", wasTaken, wasNotHeld, wasNoQuorum}, e.Err) {
		e.Kind = history.Broken
		c.log.Note(e)
	}
}

// The outcomes of a ForceUnlock. Any other error breaks a promise.
const (
	released    = "released" // in counts; an event says ""
	wasTaken    = "taken"
	wasNotHeld  = "not held"
	wasNoQuorum = "no quorum"
)

// outcomeOf returns which of its errors a ForceUnlock has returned, "" for none.
func outcomeOf(err error) string {
	var taken *redsync.ErrTaken
	switch {
	case err == nil:
		return ""
	case errors.As(err, &taken):
		return wasTaken
	case errors.Is(err, redsync.ErrNoQuorum):
		return wasNoQuorum
	case errors.Is(err, redsync.ErrNotHeld):
		return wasNotHeld
	}
	return err.Error()
}

// deleteKeys deletes the keys of the names of a holder without a look at their values, after some time. So it deletes
// the lock of another holder if that has come meanwhile.
func (c *client) deleteKeys(ctx context.Context, h redsync.Holder) {
	pause(ctx, c.between(0, 400*ms))
	for _, node := range c.redis {
		_ = node.Del(ctx, h.Names...).Err() // what is left expires
	}
}

// observer returns the hooks of the turn, in the scene forced.
func (t *turn) observer() []redsync.Option {
	if !t.scene.forces {
		return nil
	}
	return []redsync.Option{redsync.WithHooks(&observe.Hooks{Lost: t.hears})}
}

// hears is the hook for losses: it notes what it is told.
func (t *turn) hears(_ context.Context, l observe.Lost) {
	t.note(history.Event{Kind: history.Told, ByForce: errors.Is(l.Err, redsync.ErrForced), Err: text(l.Err)})
}

// forForcers adds to an event of the turn what releases by force are judged by.
func (t *turn) forForcers(e history.Event) history.Event {
	if !t.scene.forces {
		return e
	}
	switch e.Kind {
	case history.Held:
		e.Expiry, e.Observed = t.expiry, true
		if l := fortests.Lease(t.m); l != nil { // otherwise it is over
			e.Heals = l.Terms().Heals
			e.Hears = l.Terms().Owner != "" && script.IsOf(l.Value(), l.Terms().Keeper.Process)
		}
	case history.Lost:
		e.ByForce = errors.Is(t.m.Err(), redsync.ErrForced)
	case history.Extended, history.Unlock:
		e.Paused = t.beat.pausedSince(t.began)
	default:
	}
	return e
}

// forcesRules returns the bounds of releases by force. A holder hears of one within a second. The other second is for a busy
// machine.
func (s scene) forcesRules() history.Forces {
	if !s.forces {
		return history.Forces{}
	}
	return history.Forces{Hears: 2 * time.Second, Well: true}
}

// A forcing is a ForceUnlock, and whose lock it was meant for.
type forcing struct {
	Outcome string // "" if it has released the lock
	Stopped bool   // the process of the holder was stopped
}

// forcings returns all calls of ForceUnlock.
func (r *result) forcings() (all []forcing) {
	process, began, isStopped := map[string]string{}, map[string]bool{}, map[string]bool{}
	for _, e := range r.Events {
		switch e.Kind {
		case history.Fault:
			if strings.HasPrefix(e.What, string(stopped)) {
				isStopped[e.Where] = !e.Ends
			}
		case history.Held:
			number, _, _ := strings.Cut(e.Client, "/")
			process[e.Value] = "process " + number
		case history.Forcing:
			began[e.ID()] = isStopped[process[e.Value]]
		case history.Forced:
			all = append(all, forcing{e.Err, began[e.ID()]})
		default:
		}
	}
	return all
}

// forced counts what ForceUnlock has returned, and how often it has released the lock of a holder that was stopped.
func (r *result) forced() map[string]int {
	counts := map[string]int{}
	for _, f := range r.forcings() {
		switch f.Outcome {
		case "", wasTaken, wasNotHeld, wasNoQuorum:
			counts[cmp.Or(f.Outcome, released)]++
		default:
			counts["other"]++
		}
		if f.Outcome == "" && f.Stopped {
			counts[string(stopped)]++
		}
	}
	r.countTold(counts)
	return counts
}

// countTold counts the holders that have lost a lock before their time, by force, and that hear: those that were told of the
// force, and those whose own extension has found out first.
func (r *result) countTold(counts map[string]int) {
	hears, forced := map[string]history.Event{}, map[string]time.Duration{}
	for _, e := range r.Events {
		held := hears[e.ID()]
		switch e.Kind {
		case history.Held:
			if e.Hears {
				hears[e.ID()] = e
			}
		case history.Forcing:
			forced[e.Value] = cmp.Or(forced[e.Value], e.At)
		case history.Lost:
			switch {
			case e.ByForce:
				counts["told"]++
			case forced[held.Value] != 0 && forced[held.Value] > held.At+time.Second && !e.Paused:
				counts["found out"]++
			}
		default:
		}
	}
}

// leastForced is how many locks must be released by force in a minute, a third of them while their holder is stopped.
const leastForced = 200

// unforced returns why a run of the scene forced proves nothing, or nil.
func (r *result) unforced() error {
	counts := r.forced()
	done, need := counts[released], int(leastForced*r.Length.Minutes())
	switch {
	case !r.Scene.forces:
	case done < need:
		return fmt.Errorf("only %d locks were released by force: %d are needed to show something", done, need)
	case counts[string(stopped)]*3 < need:
		return fmt.Errorf("only %d locks of stopped holders were released by force: %d are needed to show something", counts[string(stopped)], need/3)
	}
	return nil
}
