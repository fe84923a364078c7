package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"time"
)

var oneNodeScene = scene{
	name: "one-node",
	about: "The load of distinct keys on one node, for all libraries. Each measurement is a process of its own, so client " +
		"CPU is that of the library alone. Sent is the commands of a Lock and an Unlock, as in the scene commands. A run " +
		"fails if they are not 2. With GOMAXPROCS 1 that process executes Go code on one thread at a time.",
	variant: "GOMAXPROCS",
	columns: []column{
		{title: "pairs/s", key: "rate", format: whole},
		{title: "p50 µs", key: "pair_p50", format: whole},
		{title: "p99 µs", key: "pair_p99", format: whole},
		{title: "client CPU µs", key: "client_cpu", format: tenth},
		{title: "server CPU µs", key: "server_cpu", format: tenth},
		{title: "x bsm/redislock", key: "rate", format: cents, base: toLibrary(oneNode)},
		{title: "x rueidislock", key: "rate", format: cents, base: toLibrary(oneKey)},
		{title: "sent", key: "sent", format: cents},
		{title: "keys left", key: "left", format: whole},
		{title: "failed", key: "failed", format: whole},
	},
	cells: func(p plan) []cell {
		widths := []int{1, 16, 128, 1024}
		if p.quick {
			widths = []int{1, 128}
		}
		rivals := named(ours, defaults, oneNode, oneKey)
		cells := slices.Concat(grid("one-node", "default", widths, rivals, measureOneNode(0)),
			grid("one-node", "default", []int{1, 128}, named(oursClients, oursFunc), measureOneNode(0)),
			grid("one-node", "1", widths[:1], rivals, measureOneNode(1)))
		for i, c := range cells {
			if !c.contender.single {
				cells[i].Library += onOne
			}
		}
		return cells
	},
	apart: true,
}

// onOne marks in the report that a library which takes several nodes has one.
const onOne = ", one node"

// An oneNodeOrder tells a child process to measure a contender on the node at Addr.
type oneNodeOrder struct {
	Library, Addr     string
	Goroutines, Procs int // Procs 0 leaves GOMAXPROCS as it is

	Expiry, WarmUp, Cell, Grace time.Duration // of the plan
}

func measureOneNode(procs int) measuring {
	return func(ctx context.Context, l *lab, c cell) (f figures, err error) {
		p := l.plan
		order := oneNodeOrder{c.contender.name, l.addrs[0], c.Goroutines, procs, p.expiry, p.warmUp, p.cell, p.grace}
		one, err := startChild(ctx, "one-node", order)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, one.end()) }()
		if err := one.receive(&f); err != nil {
			return nil, err
		}
		if math.Abs(f["sent"]-2) > 0.1 {
			err = fmt.Errorf("it sends %.2f commands for a Lock and an Unlock, want 2", f["sent"])
		}
		return f, err
	}
}

func oneNodeChild(ctx context.Context, order oneNodeOrder, _ io.Reader, out io.Writer) (err error) {
	list := named(order.Library)
	if len(list) == 0 {
		return fmt.Errorf("no library %q", order.Library)
	}
	if order.Procs > 0 {
		runtime.GOMAXPROCS(order.Procs)
	}
	addrs := []string{order.Addr}
	p := plan{expiry: order.Expiry, warmUp: order.WarmUp, cell: order.Cell, grace: order.Grace}
	l := &lab{plan: p, addrs: addrs, look: dial(addrs)}
	defer func() { err = errors.Join(err, l.close()) }()
	c := cell{id: id{Goroutines: order.Goroutines}, contender: list[0]}
	f, err := measureDistinct(ctx, l, c)
	if err != nil {
		return err
	}
	counted, err := measureCommands(ctx, l, c)
	if err != nil {
		return err
	}
	f["sent"] = counted["sent"]
	return json.NewEncoder(out).Encode(f)
}
