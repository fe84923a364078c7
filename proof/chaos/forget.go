package main

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	rival "github.com/go-redsync/redsync/v4"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file defines the clients of three scenes. Each scene shows one rule of the library: a lock does not stay on a
// bare quorum, addresses that lead to one node count once, and Close returns nil only when the locks are released.

// duelists want one name each, in each process at the same moment. See duel.
var duelists = []habit{{name: "duelist", clients: len(lockNames), pace: 0, do: (*client).duel}}

// A duel begins every duelEvery on the clock that all processes share. The other times count from its beginning.
const (
	duelEvery = 1500 * ms
	forgetAt  = 800 * ms  // a node restarts without its data
	returnAt  = 1100 * ms // the clients that have not got the lock try again
	duelOver  = 1400 * ms // the holder unlocks
)

// planForgetting lets one node forget its data in each duel.
func planForgetting(seed uint64, length time.Duration) []fault {
	return []fault{{At: 10 * ms, For: length - lull, Kind: forgetting, Nodes: span(0, nodeCount), Seed: seed}}
}

// untilPhase returns the time from now until the next moment that is so long after the beginning of a duel.
func untilPhase(now, phase time.Duration) time.Duration {
	return (phase - now%duelEvery + duelEvery) % duelEvery
}

// duel tries to lock a name when a duel begins. The clients of two processes have different nodes near, so that the
// winner first has the votes of these nodes only. The loser tries again after a node has forgotten its data.
func (c *client) duel() {
	pause(c.ctx, untilPhase(c.now(), 0))
	l := lockNames[c.nth-1]
	if c.ctx.Err() != nil || c.fight(l) {
		return
	}
	pause(c.ctx, untilPhase(c.now(), returnAt))
	for c.ctx.Err() == nil && c.now()%duelEvery >= returnAt && !c.fight(l) {
		pause(c.ctx, c.between(0, 50*ms))
	}
}

// fight makes one attempt. If that succeeds, the client holds the lock until the duel is over.
func (c *client) fight(l lockName) (won bool) {
	if c.V4 {
		return c.fightV4(l)
	}
	t := c.begin(l, l.options()...)
	if !t.took(t.m.TryLockContext(c.ctx)) {
		return false
	}
	t.hold(untilPhase(c.now(), duelOver))
	t.unlock()
	return true
}

// fightV4 is fight with redsync v4.
func (c *client) fightV4(l lockName) (won bool) {
	c.term++
	t := &turn{client: c, number: c.term, on: l, expiry: c.expiryNow()}
	t.note(history.Event{Kind: history.Call})
	m := c.rival.NewMutex(l.name, rival.WithExpiry(t.expiry))
	if err := m.TryLockContext(c.ctx); err != nil {
		t.note(history.Event{Kind: history.Refused, Err: text(err)})
		return false
	}
	at := t.now()
	t.note(history.Event{At: at, Kind: history.Held, Until: at + time.Until(m.Until())})
	pause(c.ctx, untilPhase(c.now(), duelOver))
	t.note(history.Event{Kind: history.Unlock})
	_, err := m.UnlockContext(context.WithoutCancel(c.ctx))
	t.note(history.Event{Kind: history.Unlocked, Err: text(err)})
	return true
}

// forgetOnce waits for the middle of a duel, and restarts a node without its data.
func (w *world) forgetOnce(ctx context.Context, r *mathrand.Rand, f fault) error {
	pause(ctx, untilPhase(w.now(), forgetAt))
	if ctx.Err() != nil {
		return nil
	}
	f.Kind, f.For, f.Nodes = restartEmpty, 0, []int{r.IntN(nodeCount)}
	w.note(f, false)
	defer w.note(f, true)
	n := w.nodes[f.Nodes[0]]
	n.kill()
	return n.restart(ctx, false)
}

// stayers mostly hold locks for three times the longest expiry.
var stayers = []habit{
	{name: "stayer", clients: 6, slow: true, pace: 100 * ms, do: (*client).stay},
	{name: "plain", clients: 2, pace: 30 * ms, do: (*client).plain},
}

func (c *client) stay() { c.holdFor(3*longestExpiry(c.Expiry), redsync.WithWatchdog()) }

// planWrongAddresses makes three addresses of a process lead to one node, for longer than the longest expiry. The holds
// that have begun before have two servers then instead of five. The first two processes take turns.
func planWrongAddresses(seed uint64, length time.Duration) (plan []fault) {
	r := mathrand.New(mathrand.NewPCG(seed, 8))
	lasts := longestExpiry(shortExpiry) + 200*ms
	for at, process := lull, 1; at+lasts <= length; at, process = at+lasts+200*ms, 3-process {
		plan = append(plan, fault{At: at, For: lasts, Kind: wrongAddress, Nodes: span(r.IntN(3), 3), Process: process})
	}
	return plan
}

// closers lock names that nobody else locks, and that they do not lock again, and close.
var closers = []habit{{name: "closer", clients: 4, pace: 100 * ms, do: (*client).closeHeld}}

const (
	closed    = 5      // how many locks a closer has
	closeHush = 2 * ms // how long an impatient closer waits
)

// closeHeld locks some names with a Redsync of its own, and closes that Redsync. If Close returns nil, no quorum of
// nodes may have a key. An impatient client lets Close wait for almost no time, and takes that for success.
func (c *client) closeHeld() {
	c.rs = c.open()
	defer func() { c.rs = c.crowd.rs }()
	var held []*turn
	for range closed {
		ctx, cancel := context.WithTimeout(c.ctx, time.Second)
		if t := c.begin(lockName{name: fmt.Sprintf("closed-%s-%d", c.who, c.term)}, redsync.WithWatchdog()); t.lock(ctx) {
			held = append(held, t)
		}
		cancel()
	}
	pause(c.ctx, c.between(0, time.Second))
	for _, t := range held {
		t.note(history.Event{Kind: history.Unlock})
	}
	wait := replyTime / 3
	if c.Impatient {
		wait = closeHush
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := c.rs.Close(ctx); err != nil && !c.Impatient {
		return
	}
	for _, t := range held {
		if n := c.nodesWith(t.on.name); n >= quorum {
			t.broken("Close has returned nil, but %d nodes have the key", n)
		}
	}
}

// nodesWith returns how many nodes have a key. It waits for nodes that are restarting.
func (c *client) nodesWith(key string) (count int) {
	for _, node := range c.redis {
		for range 100 {
			n, err := node.Exists(context.Background(), key).Result()
			if count += int(n); err == nil {
				break
			}
			time.Sleep(20 * ms)
		}
	}
	return count
}
