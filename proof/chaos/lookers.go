package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file defines clients that look who holds a lock (Inspect), and the owners that the values of other clients say.

// look looks at a random lock or semaphore, or at several names.
func (c *client) look() {
	names := allNames()
	l := names[c.rand.IntN(len(names))]
	if c.chance(6) {
		l = c.pickSeveral()
	}
	most := 2 * time.Second
	if c.chance(4) {
		most = 10 * ms
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.between(0, most))
	defer cancel()
	c.term++
	began := c.now()
	s, err := l.mutex(c.rs, append(l.options(), redsync.WithExpiry(c.Expiry))...).Inspect(ctx)
	c.saw(began, l, s, err)
}

// saw notes what a look has said of each name.
func (c *client) saw(began time.Duration, l lockName, all redsync.Status, err error) {
	e := history.Event{At: c.now(), Kind: history.Saw, Client: c.who, Term: c.term, Name: l.name, Permits: l.permits}
	broken := func(what string) {
		e.Kind, e.Err = history.Broken, fmt.Sprintf("%s: Inspect returns %v, %v", what, all, err)
		c.log.Note(e)
	}
	if err != nil && !errors.Is(err, redsync.ErrNoQuorum) {
		if all.State != redsync.StateUnknown || all.Nodes != nil {
			broken("nobody was asked")
		}
		return
	}
	parts := all.Names
	if parts == nil {
		parts = []redsync.Status{all}
	}
	unknown := func(s redsync.Status) bool { return s.State == redsync.StateUnknown }
	if err != nil && !slices.ContainsFunc(parts, unknown) {
		broken("all is known")
		return
	}
	silent := 0
	for _, n := range all.Nodes {
		if n.Err != nil {
			silent++
		}
	}
	for _, s := range parts {
		sight := &history.Sight{Began: began, State: s.State, NoQuorum: err != nil, Silent: silent}
		for _, h := range s.Holders {
			seen := history.Holder{ID: h.ID, Owner: h.Owner, Reads: h.Shared}
			if !h.Since.IsZero() {
				seen.Since = h.Since.Sub(c.Origin.Round(0))
			}
			sight.Holders = append(sight.Holders, seen)
		}
		e.Name, e.Sight = s.Name, sight
		c.log.Note(e)
	}
}

// label returns the owner of the client's next term: the term itself, its process, or none. Values of redsync v4 say no
// owner.
func (c *client) label() string {
	switch next := c.term + 1; {
	case c.v4:
		return ""
	case next%3 == 0:
		return history.Event{Client: c.who, Term: next}.ID()
	case next%3 == 1:
		return fmt.Sprintf("process %d", c.Process)
	}
	return ""
}

// forLookers adds to an event of the turn what looks are judged by.
func (t *turn) forLookers(e history.Event) history.Event {
	e.Owner = t.on.owner
	switch e.Kind {
	case history.Call:
		e.Process = strconv.Itoa(t.Process)
	case history.Held:
		if t.m != nil {
			e.Value = history.IDOf(fortests.Value(t.m))
		}
	default:
	}
	return e
}

// sights returns the bounds of looks. A command may be on its way for as long as the longest fault lasts.
func (s scene) sights(setBack map[int]time.Duration) history.Sights {
	const onItsWay = 10 * time.Second
	bounds := history.Sights{Stands: longestTTL(s.expiry) + onItsWay, Since: 10 * ms, Joint: s.deployments != nil}
	for _, back := range setBack {
		bounds.Stands = max(bounds.Stands, longestTTL(s.expiry)+onItsWay+back)
	}
	return bounds
}

// looks counts what looks have said.
func (r *result) looks() map[string]int {
	counts := map[string]int{}
	for _, e := range r.Events {
		if e.Kind == history.Saw {
			counts[e.Sight.State]++
			for _, h := range e.Sight.Holders {
				if h.Owner != "" {
					counts["owners"]++
				}
			}
		}
	}
	return counts
}

// isOfLooks reports whether a rule is about looks.
func isOfLooks(rule string) bool {
	return slices.Contains([]string{history.WrongHolder, history.WrongOwner, history.WrongState, history.Unexplained}, rule)
}
