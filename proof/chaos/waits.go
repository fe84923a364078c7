package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file notes what package history needs to judge waits, and defines the clients and the faults of the scene
// bad-node. A node counts as bad from the beginning of a fault until processes have had time to connect again.
//
// On a busy machine a wait may be long because a process, a proxy or a server does not run in time. A ticker does not
// notice that: its process may run while another one does not. So each process of clients pings each node through the
// proxies. A node whose answer is late counts as bad for that process.

// waiters are the clients of the scene bad-node. They always unlock, so that locks are free again and again. A lock on
// several names has no fair name: it would keep its place in the queues of the others while it waits for one of them.
var waiters = []habit{
	{name: "plain", clients: 3, pace: 30 * ms, do: (*client).plain},
	{name: "priority", clients: 1, pace: 60 * ms, do: (*client).prior},
	{name: "try", clients: 1, pace: 60 * ms, do: (*client).try},
	{name: "cancel", clients: 1, pace: 60 * ms, do: (*client).cancel},
	{name: "several", clients: 1, several: true, alike: true, pace: 150 * ms, do: (*client).plain},
	{name: "reader", clients: 2, meets: true, reads: true, pace: 60 * ms, do: (*client).plain},
	{name: "downgrading", clients: 1, meets: true, pace: 60 * ms, do: (*client).downgradingShort},
	{name: "permit", clients: 3, permits: true, pace: 30 * ms, do: (*client).plain},
	{name: "candidate", clients: 2, slow: true, pace: 60 * ms, do: (*client).resign},
	{name: "looker", clients: 1, pace: 40 * ms, do: (*client).look},
}

// habits returns the habits of the clients of the process.
func (c *crowd) habits() []habit {
	if c.scene.clients != nil {
		return c.scene.clients
	}
	return habits
}

var errResigned = errors.New("resigned")

// resign campaigns for a name. If it is elected, it leads for some milliseconds and resigns.
func (c *client) resign() {
	l := c.pickOffice()
	l.owner = c.label()
	t := c.begin(l)
	t.leads, t.within = true, true
	ctx, cancel := context.WithTimeout(c.ctx, lockTime)
	defer cancel()
	t.waits()
	led := false
	err := c.rs.Lead(ctx, l.name, func(ctx context.Context) error {
		led = true
		t.m = redsync.FromContext(ctx)
		t.took(nil)
		t.hold(t.between(0, 15*ms), ctx.Done())
		t.leaveFunc(history.Unlock)
		return errResigned
	}, append(l.options(), redsync.WithExpiry(t.expiry))...)
	switch {
	case !led:
		t.took(err)
	case err.Error() == errResigned.Error(): //nolint:errorlint // otherwise the release has failed, too
		t.note(history.Event{Kind: history.Unlocked})
	default:
		t.note(history.Event{Kind: history.Unlocked, Err: text(err)})
	}
}

// waits notes that the client waits from now on, with the default retry delays, if the scene judges waits.
//
// Where a lock on several names may be fair because one of its names is, it keeps its place in the queues of the other
// names. So clients of these names step back, as fair ones do.
func (t *turn) waits() {
	if !t.scene.waits {
		return
	}
	stepsBack := t.on.fair || t.mixes && t.on.permits == 0
	t.note(history.Event{
		Kind: history.Waits, Reads: t.on.reads, Permits: t.on.permits, Weight: t.on.weight,
		Wait: &history.Waiting{
			Process: strconv.Itoa(t.Process), Sets: [][]int{t.Before},
			Deadline: nodeDeadline(t.expiry, t.Factor), Fair: stepsBack,
		},
	})
}

// nodeDeadline returns the node deadline of a lock. If factor is 0, it is the default one.
func nodeDeadline(expiry time.Duration, factor float64) time.Duration {
	return max(time.Duration(float64(expiry)*cmp.Or(factor, 0.05)), 50*ms)
}

// idle returns the bounds of waits.
func (s scene) idle() history.Idle {
	if !s.waits {
		return history.Idle{}
	}
	return history.Idle{
		Most:     mostRest,
		Beside:   3, // as in the simulation, with a bad minority
		Recovers: 1500 * ms,
		Attempt:  nodeDeadline(longestExpiry(s.expiry), s.timeoutFactor) + 300*ms,
		// An extension that was not confirmed makes keys last for the longest TTL.
		Outlast: longestTTL(s.expiry) + margin,
	}
}

// mostRest is how long a free lock may rest: 1 s is what the library promises. The other 500 ms are for a busy machine.
// They are the time of two answers in the scene bad-node that are almost late: see watchNodes.
const mostRest = time.Second + 500*ms

// ails notes that the nodes of f do not serve clients in time. The returned function notes that they do again, but not
// before a restart guard lets them vote.
func (w *world) ails(f fault) (end func()) {
	nodes := f.Nodes
	switch {
	case f.untold || f.Kind == crash:
		nodes = nil
	case f.Kind == otherType: // clients poll where they have no queue
		nodes = nodes[:1]
	case f.Kind == stopped || f.Kind == forgotten: // keys of attempts stay on any node, until the process goes on or has connected again
		nodes = span(0, nodeCount)
	}
	note := func(at time.Duration, ends bool) {
		for _, i := range nodes {
			w.log.Note(history.Event{At: at, Kind: history.Ails, Node: i, Ends: ends})
		}
	}
	note(w.now(), false)
	return func() { note(w.now()+max(0, f.out-f.For), true) }
}

// pingEvery is the pause between two pings of a node.
const pingEvery = 100 * ms

// watchNodes pings all nodes on connections of its own, until stop is called. It notes where an answer comes late by
// more than half of the shortest node deadline. The pause before the ping counts, too: the whole machine may have stood
// still. It pings through pools, because an answer that makes no sense can end a process in which go-redis reads it.
func (c *crowd) watchNodes() (stop func()) {
	if !c.scene.waits {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	limit := nodeDeadline(c.Expiry-c.Expiry/3, c.Factor) / 2
	var pinging sync.WaitGroup
	for node, address := range c.Nodes {
		client := redis.NewClient(optionsFor(address))
		pinging.Go(func() {
			defer func() { _ = client.Close() }()
			c.watchNode(ctx, node, pool.New(client), limit)
		})
	}
	return func() {
		cancel()
		pinging.Wait()
	}
}

func (c *crowd) watchNode(ctx context.Context, node int, p pool.Pool, limit time.Duration) {
	defer func() { _ = p.Close() }()
	for last := c.now(); ctx.Err() == nil; {
		pause(ctx, pingEvery)
		err := pool.Ping(ctx, p)
		now := c.now()
		if err != nil || now-last > pingEvery+limit {
			e := history.Event{At: last, Kind: history.Ails, Node: node, Process: strconv.Itoa(c.Process)}
			c.log.Note(e)
			e.At, e.Ends = now, true
			c.log.Note(e)
		}
		last = now
	}
}

// leaveKeys sets the keys of locks on a node, as a client does that crashes before other nodes have its requests.
func (w *world) leaveKeys(ctx context.Context, n *node) error {
	for _, l := range lockNames {
		at := w.now()
		set, err := n.direct.SetNX(ctx, l.name, rand.Text(), badNodeExpiry).Result() //nolint:staticcheck // Set tells less
		if err != nil {
			return err
		}
		if set {
			w.log.Note(history.Event{At: at, Kind: history.Left, Node: n.index, Name: l.name, Until: w.now() + badNodeExpiry})
		}
	}
	return nil
}

// A repeated is a fault that comes again and again. Each call of the function ends soon.
type repeated func(context.Context, *mathrand.Rand, fault) error

// repeat repeats a fault until heal is called.
func (w *world) repeat(ctx context.Context, f fault, once repeated) (heal func() error) {
	over, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		r := mathrand.New(mathrand.NewPCG(f.Seed, 7))
		var err error
		for err == nil && over.Err() == nil {
			err = once(ctx, r, f)
		}
		done <- err
	}()
	return func() error {
		stop()
		return <-done
	}
}

// flap makes a node silent, or lets it refuse writes, for a short time.
func (w *world) flap(ctx context.Context, r *mathrand.Rand, f fault) error {
	kinds := []kind{freeze, cutBoth, outOfMemory}
	f.Kind = kinds[r.IntN(len(kinds))]
	heal, err := w.begin(ctx, f)
	if err != nil {
		return err
	}
	pause(ctx, between(r, 20*ms, 600*ms))
	if err := heal(); err != nil {
		return err
	}
	pause(ctx, between(r, 20*ms, 300*ms))
	return nil
}

// breakOnce cuts the connections to a node. In one case out of three neither end notices.
func (w *world) breakOnce(ctx context.Context, r *mathrand.Rand, f fault) error {
	f.Kind = reset
	if r.IntN(3) == 0 {
		f.Kind = forgotten
	}
	_ = all(w.linksOf(f), func(l *link) func() { return l.begin(f) })
	pause(ctx, between(r, 5*ms, 300*ms))
	return nil
}

// failDials cuts the connections to a node. Then dials of some processes hang, and those of the others fail.
func (w *world) failDials(f fault) (heal func() error) {
	return all(w.linksOf(f), func(l *link) func() { return l.failDials((uint64(l.process)+f.Seed)%2 == 0) })
}
