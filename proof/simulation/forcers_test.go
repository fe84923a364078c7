package simulation

import (
	"errors"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file plays clients that release the locks of others by force (ForceUnlock).

// deletesBlindly: a forced release does not compare the values.
const deletesBlindly mistake = "deleted without comparing"

// A simForcer looks who holds a lock, and releases it by force, on a goroutine of its own.
type simForcer struct{ player }

func (f *simForcer) run() {
	rest := 200 * time.Millisecond
	if f.class[unpolled] { // some holders must have held for a second, so that they hear
		rest = 3 * time.Second
	}
	for !f.over() {
		f.pause(0, rest)
		f.force()
	}
}

// force looks at all names that may be locked together, and releases one of the holders.
func (f *simForcer) force() {
	p, names := f.current(f.process), f.names
	options := f.lasting(f.expiry)
	if !f.class[several] {
		names = []string{f.names[f.random.IntN(len(f.names))]}
	}
	if f.class[permits] && len(names) == 1 && f.oneIn(2) {
		options = append(options, f.permitOptions(f.permits[f.process], 1)...)
	}
	m := newMutex(p.Redsync, names, options)
	ctx, cancel := p.call(between(f.random, 0, time.Second))
	defer cancel()
	s, _ := m.Inspect(ctx) // if it does not know all, it may know some
	if len(s.Holders) == 0 || p.hasEnded() {
		return
	}
	h := s.Holders[f.random.IntN(len(s.Holders))]
	f.pause(0, 30*time.Millisecond) // the operator thinks
	f.term++
	e := history.Event{At: f.now(), Kind: history.Forcing, Client: f.name, Term: f.term, Name: h.Names[0], More: h.Names[1:], Value: h.ID}
	f.log.Note(e)
	if f.asked.mistake == deletesBlindly {
		f.deleteKeys(h.Names)
		return
	}
	err := m.ForceUnlock(ctx, h)
	var taken *redsync.ErrTaken
	if err != nil && ctx.Err() == nil && !errors.Is(err, redsync.ErrClosed) {
		assert.True(f, errors.As(err, &taken) || errors.Is(err, redsync.ErrNotHeld) || errors.Is(err, redsync.ErrNoQuorum), "%v", err)
	}
	e.At, e.Kind, e.Err = f.now(), history.Forced, errorOf(err)
	f.log.Note(e)
}

func (f *simForcer) deleteKeys(names []string) {
	for _, n := range f.nodes {
		for _, name := range names {
			n.Del(name)
		}
	}
}

// tellForcers adds to an event what releases by force are judged by. Where the clocks of clients step, nobody knows when an
// extension began.
func (t *simTerm) tellForcers(e history.Event) history.Event {
	if !t.client.class[forcers] {
		return e
	}
	switch e.Kind {
	case history.Held:
		if t.client.clocks == "" {
			e.Expiry = t.expiry
		}
		if l := fortests.Lease(t.Mutex); l != nil { // otherwise it is over
			e.Heals = l.Terms().Heals
			e.Hears = l.Terms().Owner != "" && script.IsOf(l.Value(), l.Terms().Keeper.Process)
		}
	case history.Lost:
		e.ByForce = errors.Is(t.Err(), redsync.ErrForced)
	default:
	}
	return e
}

// staysForLong keeps the lock for so long that the process hears if it is released by force.
func (t *simTerm) staysForLong() {
	if c := t.client; c.class[forcers] && c.class[unpolled] && c.oneIn(3) {
		c.pause(0, 4*time.Second)
	}
}

// forces returns the bounds of releases by force. Where nothing fails a client hears after a second, or within two round
// trips. It asks the nodes at most every 50 ms.
func (s *simulation) forces() history.Forces {
	if s.class[forcers] && s.class[unpolled] {
		return history.Forces{Hears: time.Second + 200*time.Millisecond}
	}
	return history.Forces{}
}

// isForced reports whether an event is a ForceUnlock that has released a lock.
func isForced(e history.Event) bool { return e.Kind == history.Forced && e.Err == "" }
