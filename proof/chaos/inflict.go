package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file causes faults, and heals them.

// A world is everything that runs: nodes, client processes, and the links between them.
type world struct {
	dir    string // for files
	nodes  []*node
	log    history.Log
	origin time.Time
	fresh  time.Time // nobody holds a lock before, and no node restarts before

	// left has the time since origin from which a node must hold no key, for each node that a deployment has swapped
	// out. Only the deployment changes it.
	left map[int]time.Duration

	mu      sync.Mutex // guards the fields below: a deployment changes them while faults are inflicted
	places  []*process
	retired []*process // processes that a deployment has replaced
	links   []*link    // of all processes
}

// place returns the process that runs at place i. Places count from 1. At first, process i runs at place i.
func (w *world) place(i int) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.places[i-1]
}

func (w *world) now() time.Duration { return since(w.origin) }

// inflict causes f, waits until its time is over, and heals it.
func (w *world) inflict(ctx context.Context, f fault) error {
	unlock := w.claim(f)
	defer unlock()
	w.note(f, false)
	defer w.note(f, true)
	defer w.ails(f)()
	heal, err := w.begin(ctx, f)
	if err == nil {
		pause(ctx, f.For)
		err = heal()
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%v: %w", f, err)
	}
	return nil
}

// claim waits until no other exclusive fault affects the targets of f, if f is exclusive. Planned faults do not overlap, but
// on a busy machine a fault may last longer than planned.
func (w *world) claim(f fault) (unlock func()) {
	if !f.exclusive() {
		return func() {}
	}
	if f.Process != 0 {
		p := w.place(f.Process)
		p.fault.Lock()
		return p.fault.Unlock
	}
	for _, i := range f.Nodes { // in a fixed order, so that two faults cannot wait for each other
		w.nodes[i].fault.Lock()
	}
	return func() {
		for _, i := range f.Nodes {
			w.nodes[i].fault.Unlock()
		}
	}
}

func (w *world) note(f fault, ends bool) {
	for _, row := range f.where() {
		w.log.Note(history.Event{At: w.now(), Kind: history.Fault, Where: row, What: f.String(), Ends: ends})
	}
}

// begin causes f. heal ends the fault, and is called once.
func (w *world) begin(ctx context.Context, f fault) (heal func() error, err error) {
	switch f.Kind {
	case stopped:
		p := w.place(f.Process)
		return p.resume, p.pause()
	case partition:
		return all(w.linksOf(f), func(l *link) func() {
			there, back := l.cut(toNode), l.cut(toClient)
			return func() { there(); back() }
		}), nil
	case forgotten:
		return all(w.linksOf(f), func(l *link) func() { return l.begin(f) }), nil
	case wrongAddress:
		return w.misdirect(ctx, f)
	case otherType:
		return w.repeat(ctx, f, w.setOtherTypes), nil
	case forgetting:
		return w.repeat(ctx, f, w.forgetOnce), nil
	case flushAll, restartMost, restartMany, clockForward:
		return w.beginOnMany(ctx, f)
	default:
		return w.beginOnNode(ctx, f, w.nodes[f.Nodes[0]])
	}
}

// beginOnMany is begin for a fault of many nodes at once.
func (w *world) beginOnMany(ctx context.Context, f fault) (heal func() error, err error) {
	for _, i := range f.Nodes {
		n := w.nodes[i]
		switch f.Kind {
		case restartMost, restartMany:
			n.kill()
		case clockForward:
			err = errors.Join(err, n.clock.step(f.By))
		default:
			err = errors.Join(err, n.do(ctx, "FLUSHALL"))
		}
	}
	return func() (err error) {
		for _, i := range f.Nodes {
			if f.Kind == restartMost || f.Kind == restartMany {
				err = errors.Join(err, w.nodes[i].restart(ctx, f.Kind == restartMany))
			}
		}
		return err
	}, err
}

// beginOnNode is begin for a fault of one node.
func (w *world) beginOnNode(ctx context.Context, f fault, n *node) (heal func() error, err error) {
	switch f.Kind {
	case freeze:
		n.server.Freeze()
		return func() error { n.server.Thaw(); return nil }, nil
	case restartKept, restartEmpty, restartFlushed:
		n.kill()
		return func() error { return w.comeBack(ctx, f, n) }, nil
	case clientKill:
		return nothing, n.disconnect(ctx)
	case password:
		return n.refuse(ctx, "resetpass", ">changed")
	case noSelect:
		return n.refuse(ctx, "-select")
	case scriptFlush:
		return nothing, n.do(ctx, "SCRIPT", "FLUSH")
	case outOfMemory:
		return func() error { return n.do(ctx, "CONFIG", "SET", "maxmemory", "0") }, n.do(ctx, "CONFIG", "SET", "maxmemory", "1")
	case readOnly:
		return func() error { return n.do(ctx, "REPLICAOF", "NO", "ONE") }, n.do(ctx, "REPLICAOF", "127.0.0.1", "1") // no server
	case noReplicas:
		return func() error { return n.do(ctx, "CONFIG", "SET", "min-replicas-to-write", "0") },
			n.do(ctx, "CONFIG", "SET", "min-replicas-to-write", "1")
	case misconf:
		return n.failToSave(ctx)
	case farRegisters:
		return w.setFarRegisters(ctx, f)
	case crash:
		return nothing, w.leaveKeys(ctx, n)
	case flapping:
		return w.repeat(ctx, f, w.flap), nil
	case failingDials:
		return w.failDials(f), nil
	case breaking:
		return w.repeat(ctx, f, w.breakOnce), nil
	case clockRate:
		return func() error { return n.clock.run(1) }, n.clock.run(f.Rate)
	case clockBack:
		return nothing, n.clock.step(f.By)
	default:
		return all(w.linksOf(f), func(l *link) func() { return l.begin(f) }), nil
	}
}

func nothing() error { return nil }

// comeBack restarts a killed node. For restartFlushed it then also flushes the node, while the restart
// guard still excludes it. If the restart took longer than the expiry, the machine is too busy to flush in
// time, so comeBack does not flush.
func (w *world) comeBack(ctx context.Context, f fault, n *node) error {
	start := time.Now()
	if err := n.restart(ctx, f.Kind == restartKept); err != nil {
		return err
	}
	if f.Kind == restartFlushed && time.Since(start) < shortExpiry {
		return n.do(ctx, "FLUSHALL")
	}
	return nil
}

// begin causes a fault of the network.
func (l *link) begin(f fault) (heal func()) {
	switch f.Kind {
	case cutRequests:
		return l.cut(toNode)
	case cutReplies:
		return l.cut(toClient)
	case cutBoth:
		there, back := l.cut(toNode), l.cut(toClient)
		return func() { there(); back() }
	case slowRequests:
		return l.slow(toNode, f.By)
	case slowReplies:
		return l.slow(toClient, f.By)
	case loseReplies:
		return l.lose()
	case babble:
		return l.babble(f.Seed)
	case hostOff:
		return l.turnOff()
	case forgotten:
		l.forget()
		return func() {}
	default: // reset
		l.reset()
		return func() {}
	}
}

// linksOf returns the links to the nodes of f: those from the process of f, or from all processes if f
// names no process.
func (w *world) linksOf(f fault) (links []*link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.links {
		if slices.Contains(f.Nodes, l.node) && (f.Process == 0 || w.places[f.Process-1].number == l.process) {
			links = append(links, l)
		}
	}
	return links
}

// all calls begin for all links. The returned heal heals all of them.
func all(links []*link, begin func(*link) (heal func())) (heal func() error) {
	var heals []func()
	for _, l := range links {
		heals = append(heals, begin(l))
	}
	return func() error {
		for _, h := range heals {
			h()
		}
		return nil
	}
}
