package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file lets clients share their locks with other clients, even those of other processes.

// A gift is a lock that a client shares. It is kept in a file until another client takes it.
type gift struct {
	Sequencer string
	Shares    string // the ID of the term that began the hold
	Reads     bool   // the lock is shared
	Permits   int    // how many permits the name has; 0: it is a lock
	Weight    int    // how many of them are held
}

// gifts returns the directory for the files of gifts.
func (j job) gifts() string { return filepath.Join(filepath.Dir(j.Events), "gifts") }

// put writes s to a file, as a gift. The file appears atomically.
func (t *turn) put(s redsync.Sequencer) {
	if s.Value == "" {
		return // the lock is not held any more
	}
	text, err := json.Marshal(gift{s.String(), t.holdID(), t.on.reads, t.on.permits, t.on.weight})
	file := filepath.Join(t.gifts(), fmt.Sprintf("%d-%d-%d", t.Process, time.Now().UnixNano(), t.number))
	if err == nil {
		err = os.WriteFile(file+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file+".gift")
	}
	if err != nil {
		t.broken("the lock could not be given away: %v", err)
	}
}

// takeGift takes a gift, if there is one. Only one process gets each gift.
func (c *client) takeGift() (s redsync.Sequencer, g gift, ok bool) {
	files, err := filepath.Glob(filepath.Join(c.gifts(), "*.gift"))
	if err != nil || len(files) == 0 {
		return s, g, false
	}
	file := files[c.rand.IntN(len(files))]
	mine := fmt.Sprintf("%s.%d", file, c.Process)
	if os.Rename(file, mine) != nil {
		return s, g, false // another process has taken it
	}
	text, err := os.ReadFile(mine)
	if err == nil {
		err = json.Unmarshal(text, &g)
	}
	if err == nil {
		s, err = redsync.ParseSequencer(g.Sequencer)
	}
	_ = os.Remove(mine)
	return s, g, err == nil
}

// give locks, and shares the lock with another client. Either both clients use the lock, or the giver detaches from it
// and later tries to lock again with the same Mutex.
//
// If both clients use a reader's lock, the giver sets WithHandOver(false), so that no other reader of its process
// shares the hold. Otherwise the other client's Unlock would end the holds of these readers, too. A giver that detaches
// does not need the option, because Detach fails while other readers share the hold.
func (c *client) give() {
	together := c.chance(3)
	var options []redsync.Option
	if c.reads && together {
		options = append(options, redsync.WithHandOver(false))
	}
	t := c.beginAny(options...)
	ctx, cancel := context.WithTimeout(c.ctx, 2*lockTime)
	defer cancel()
	if !t.lock(ctx) || t.hold(c.between(0, c.Expiry/4)) {
		return
	}
	if together {
		t.put(t.m.Sequencer())
		t.hold(c.between(0, c.Expiry/2))
		t.unlock()
		return
	}
	t.note(history.Event{Kind: history.Gave})
	given, err := t.m.Detach(ctx)
	if err != nil {
		t.unlock()
		return
	}
	t.put(given)
	pause(ctx, c.between(0, 2*c.Expiry))
	again := c.begin(t.on)
	again.m, again.expiry = t.m, t.expiry
	if again.lock(ctx) {
		again.hold(c.between(0, c.Expiry/4))
		again.unlock()
	}
}

// adopt extends a lock that another client has shared, and uses it.
func (c *client) adopt() {
	s, g, ok := c.takeGift()
	if !ok {
		return
	}
	c.term++
	t := &turn{client: c, number: c.term, expiry: c.expiryNow(), shares: g.Shares, began: time.Now()}
	names := allNames()
	t.on = names[slices.IndexFunc(names, func(l lockName) bool { return l.name == s.Name })]
	t.on.reads, t.on.weight = g.Reads, g.Weight
	options := []redsync.Option{redsync.WithExpiry(t.expiry)}
	if g.Reads || g.Permits != 0 || c.chance(2) {
		options = append(options, redsync.WithSequencer(s))
	} else {
		options = append(options, redsync.WithValue(s.Value))
	}
	if c.chance(2) {
		options = append(options, redsync.WithWatchdog())
	}
	t.m = c.rs.NewMutex(s.Name, options...)
	t.note(history.Event{Kind: history.Call})
	ctx, cancel := context.WithTimeout(c.ctx, t.expiry)
	defer cancel()
	ok, err := t.m.ExtendContext(ctx)
	t.agree("Extend", ok, err)
	if !t.took(err) {
		return
	}
	if !t.hold(c.between(0, t.expiry/2)) && c.chance(2) {
		t.extend()
		t.hold(c.between(0, c.Expiry))
	}
	t.unlock()
}
