package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// The load of the scenes node-silent and node-slow.
const (
	badNodeClients = 6
	badNodeHold    = time.Millisecond
	farDelay       = 1500 * time.Microsecond // per direction, between a client and a node in the other zone
	slowDelay      = time.Second             // per direction, between a client and the slow node
	patientTimeout = 3 * time.Second         // of oursPatient
)

// A badNode is what becomes of the first node when the load begins.
type badNode struct {
	name        string
	delay       time.Duration // per direction, by a proxy before the node; 0 means no proxy
	set, repair func(s *servers)
}

// refuses is the name of the bad node with which the others are compared.
const refuses = "refuses"

var (
	silentNode   = badNode{name: "silent", set: func(s *servers) { s.freeze(1) }, repair: func(s *servers) { s.thaw(1) }}
	slowNode     = badNode{name: "slow", delay: slowDelay, set: func(*servers) {}, repair: func(*servers) {}}
	refusingNode = badNode{
		name: refuses, set: func(s *servers) { s.list[0].Kill() }, repair: func(s *servers) { s.list[0].Restart() },
	}
	healthyNode = badNode{name: healthy, set: func(*servers) {}, repair: func(*servers) {}}
)

var badNodeLoad = fmt.Sprintf("%d clients want one lock. Each has connections of its own, like a process. It "+
	"holds the lock for %v, unlocks it and begins again. In one place all nodes are near. Each of two zones has two "+
	"nodes and half of the clients, and a message to the other zone takes %v; the first node is near to all clients. "+
	"The fault sets in when the load begins, so its first moments count. For comparison the first node refuses "+
	"connections, or is healthy. A healthy one decides when each zone has locked its own two nodes. Free is the "+
	"longest time for which nobody had the lock: from a call of Unlock until the next Lock returned, or until the "+
	"measurement ended. Wait is the time from the call of Lock until the lock is held; if Lock fails, the client "+
	"calls it again, and the wait goes on. max includes the waits that the end of the measurement cut off; p50 and "+
	"p99 leave them out.",
	badNodeClients, badNodeHold, farDelay)

var nodeSilentScene = scene{
	name:    "node-silent",
	about:   "The first of five nodes is frozen: it keeps its connections and answers nothing. " + badNodeLoad,
	variant: "place, expiry, first node",
	columns: badNodeColumns,
	cells:   func(p plan) []cell { return badNodeCells(p, "node-silent", silentNode, ours) },
}

var nodeSlowScene = scene{
	name: "node-slow",
	about: fmt.Sprintf("The first of five nodes answers after %v. At an expiry of 1m0s that is within the node deadline "+
		"of 3s, which redsync v4 has by default, and this library by its option. At 8s the deadline of both is 400ms, the "+
		"default. ",
		2*slowDelay) + badNodeLoad,
	variant: "place, expiry, first node",
	columns: badNodeColumns,
	cells:   func(p plan) []cell { return badNodeCells(p, "node-slow", slowNode, oursPatient) },
}

var badNodeColumns = []column{
	{title: "locks/s", key: "rate", format: digits},
	{title: "x " + refuses, key: "rate", format: cents, base: toRefusing},
	{title: "free max ms", key: "free_max", format: millis},
	{title: "wait p50 ms", key: "wait_p50", format: millis},
	{title: "p99 ms", key: "wait_p99", format: millis},
	{title: "max ms", key: "wait_max", format: millis},
	{title: "failed", key: "failed", format: whole},
}

// toRefusing is the base of columns that compare each fault of the first node with a node that refuses connections.
func toRefusing(i id) id {
	i.Variant = i.Variant[:strings.LastIndex(i.Variant, " ")+1] + refuses
	return i
}

const twoZones = "two zones"

// badNodeCells returns the cells of a scene. long is the configuration of this library at the expiry of a minute. Other
// libraries are measured in one round. A quick run has two cells.
func badNodeCells(p plan, sc string, bad badNode, long string) (cells []cell) {
	for _, place := range []string{"one place", twoZones} {
		for _, expiry := range []time.Duration{8 * time.Second, time.Minute} {
			add := func(bad badNode, rounds int, names ...string) {
				variant := fmt.Sprintf("%s, %v, %s", place, expiry, bad.name)
				more := grid(sc, variant, []int{badNodeClients}, named(names...), measureBadNode(bad, place == twoZones, expiry))
				for i := range more {
					more[i].rounds = rounds
				}
				cells = append(cells, more...)
			}
			mine := ours
			if expiry == time.Minute {
				mine = long
			}
			add(bad, 0, mine)
			add(refusingNode, 0, mine)
			add(healthyNode, 0, mine)
			add(bad, 1, defaults, failFast)
		}
	}
	if p.quick {
		cells = cells[len(cells)-5:][:2]
	}
	return cells
}

func measureBadNode(bad badNode, zones bool, expiry time.Duration) measuring {
	return func(ctx context.Context, l *lab, c cell) (f figures, err error) {
		delays := append([]time.Duration{0}, slices.Repeat([]time.Duration{farDelay}, nodes-1)...)
		var r *remote
		if zones || bad.delay > 0 {
			if r, err = startRemote(ctx, l.addrs, delays); err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, r.close()) }()
		}
		libs := make([]library, c.Goroutines)
		for i := range libs {
			addrs := slices.Clone(l.addrs)
			for node := range addrs {
				if node == 0 && bad.delay > 0 || zones && node > 0 && (node-1)/2 != i%2 {
					addrs[node] = r.addrs[node]
				}
			}
			if libs[i], err = c.contender.start(ctx, addrs, expiry); err != nil {
				return nil, err
			}
			defer func() { _ = libs[i].Close() }() // may fail because of the fault
		}
		if delays[0] = bad.delay; bad.delay > 0 {
			if err := r.change(delays); err != nil {
				return nil, err
			}
		}
		bad.set(l.servers)
		repaired := make(chan struct{})
		w, free, err := shareOne(ctx, libs, l.plan.badNode, func() {
			bad.repair(l.servers)
			close(repaired)
		})
		<-repaired
		if err != nil {
			return nil, err
		}
		f = w.figures(l.plan.badNode)
		f["free_max"] = micros(free)
		return f, nil
	}
}

// shareOne lets each library lock one key, hold it and unlock it, again and again until d has passed. It also returns
// the longest time for which nobody had the lock. Once d has passed, over is called in a goroutine of its own. shareOne
// does not wait for that goroutine. It waits for calls of Lock and Unlock, and what over does may let them return.
func shareOne(
	ctx context.Context, libs []library, d time.Duration, over func(),
) (*waits, time.Duration, error) {
	key, start := freshKey(), time.Now()
	free := vacancy{since: start}
	w, err := together(ctx, len(libs), d, func(ctx context.Context, i int) (w waits, err error) {
		if i == 0 {
			context.AfterFunc(ctx, over)
		}
		count := 0
		for ctx.Err() == nil {
			lock := w.await(ctx, func() (held, error) { return libs[i].Lock(ctx, key) })
			if lock == nil {
				break
			}
			count++
			free.end(time.Now())
			time.Sleep(badNodeHold)
			free.begin()
			_, _ = lock.UnlockContext(context.WithoutCancel(ctx)) // a key that stays lowers the measured rate
		}
		w.Counts = []int{count}
		return w, nil
	})
	return w, free.end(start.Add(d)), err
}

// A vacancy notes for how long nobody has a lock.
type vacancy struct {
	mu      sync.Mutex
	since   time.Time
	longest time.Duration
}

// begin notes that the holder is about to unlock.
func (v *vacancy) begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.since = time.Now()
}

// end notes that somebody has the lock at a time, or that the measurement ends then. It returns the longest time for
// which nobody had the lock.
func (v *vacancy) end(at time.Time) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.longest = max(v.longest, at.Sub(v.since))
	return v.longest
}
