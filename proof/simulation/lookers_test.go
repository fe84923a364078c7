package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file plays clients that look who holds a lock (Inspect), and draws the owners that other clients have then.

// A simLooker looks at locks on a goroutine of its own.
type simLooker struct{ player }

func (l *simLooker) run() {
	for !l.over() {
		l.pause(0, 30*time.Millisecond)
		l.look()
	}
}

// look looks once. It has no time to say what it saw if its process has ended meanwhile.
func (l *simLooker) look() {
	p, names := l.current(l.process), l.someNames(l.random)
	options, n := l.lasting(l.expiry), 0
	switch {
	case len(names) > 1:
	case l.class[permits] && l.oneIn(2):
		n = l.permits[l.process]
		options = append(options, l.permitOptions(n, 1)...)
	case l.class[ticks] && l.oneIn(4):
		names = []string{onTicks}
	case l.class[readers] && l.oneIn(2):
		options = append(options, redsync.WithShared())
	}
	most := time.Second
	if l.oneIn(4) {
		most = 5 * time.Millisecond
	}
	m := newMutex(p.Redsync, names, options)
	ctx, cancel := p.call(between(l.random, 0, most))
	defer cancel()
	began := l.now()
	status, err := l.inspect(ctx, m)
	if p.hasEnded() {
		return
	}
	l.term++
	l.saw(began, n, status, err)
}

// saw notes what an Inspect has said of each name.
func (l *simLooker) saw(began time.Duration, permits int, all redsync.Status, err error) {
	if err != nil && !errors.Is(err, redsync.ErrNoQuorum) {
		assert.Equal(l, redsync.Status{}, all, "it has asked nobody: %v", err)
		return
	}
	at, silent := l.now(), 0
	for _, n := range all.Nodes {
		if n.Err != nil {
			silent++
		}
	}
	parts := all.Names
	if len(parts) == 0 {
		parts = []redsync.Status{all}
	}
	unknown := func(s redsync.Status) bool { return s.State == redsync.StateUnknown }
	assert.False(l, err != nil && !slices.ContainsFunc(parts, unknown), "all is known, but: %v", err)
	for _, s := range parts {
		sight := &history.Sight{Began: began, State: s.State, NoQuorum: err != nil, Silent: silent}
		for _, h := range s.Holders {
			seen := history.Holder{ID: h.ID, Owner: h.Owner, Reads: h.Shared}
			if !h.Since.IsZero() {
				seen.Since = h.Since.Sub(l.start)
			}
			sight.Holders = append(sight.Holders, seen)
		}
		l.log.Note(history.Event{At: at, Kind: history.Saw, Client: l.name, Term: l.term, Name: s.Name, Permits: permits, Sight: sight})
	}
}

// inspect returns what an Inspect says, or what it would say with the mistake of the scene.
func (l *simLooker) inspect(ctx context.Context, m *redsync.Mutex) (redsync.Status, error) {
	s, err := m.Inspect(ctx)
	if err != nil && !errors.Is(err, redsync.ErrNoQuorum) || len(m.Names()) > 1 {
		return s, err
	}
	switch l.asked.mistake {
	case silentIsFree:
		if s.State == redsync.StateUnknown {
			s.State = redsync.StateFree
		}
		return s, nil
	case anyLabel:
		for i := range s.Holders {
			s.Holders[i].Owner = "somebody"
		}
	}
	return s, err
}

// labels gives a term a label, if there are clients that look or release by force: that of this term alone, the one of its process, or none.
func (t *simTerm) labels(options []redsync.Option) []redsync.Option {
	c := t.client
	if !c.class[lookers] && !c.class[forcers] {
		return options
	}
	switch t.owner = ""; c.term % 3 {
	case 0:
		t.owner = fmt.Sprintf("%s #%d", c.name, t.number)
	case 1:
		t.owner = "process " + strconv.Itoa(c.process)
	}
	if t.owner != "" {
		options = append(options, redsync.WithOwner(t.owner))
	}
	return options
}

// tellLookers adds to an event what looks are judged by.
func (t *simTerm) tellLookers(e history.Event) history.Event {
	if !t.client.class[lookers] && !t.client.class[forcers] {
		return e
	}
	e.Owner = t.owner
	switch e.Kind {
	case history.Call:
		e.Process = strconv.Itoa(t.client.process)
	case history.Held:
		e.Value = history.IDOf(fortests.Value(t.Mutex))
	default:
	}
	return e
}

// sights returns the bounds of looks.
func (s *simulation) sights() history.Sights {
	if !s.class[lookers] {
		return history.Sights{}
	}
	bounds := history.Sights{Stands: s.longest + time.Duration(s.drift*float64(s.longest)) + 2*time.Second, Joint: s.realm.changes()}
	if s.clocks == "" {
		bounds.Since = 2 * time.Millisecond // a value has whole milliseconds
	}
	return bounds
}
