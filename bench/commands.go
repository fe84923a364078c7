package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

var commandsScene = scene{
	name: "commands",
	about: "How many commands a node executes per Lock and Unlock, by INFO commandstats: the highest " +
		"count of any node. Sent leaves out the commands that scripts call, which commandstats counts as well.",
	columns: []column{
		{title: "sent", key: "sent", format: cents},
		{title: "set", key: "set", format: cents},
		{title: "evalsha", key: "evalsha", format: cents},
		{title: "eval", key: "eval", format: cents},
		{title: "get", key: "get", format: cents},
		{title: "del", key: "del", format: cents},
		{title: "bitop", key: "bitop", format: cents},
		{title: "others", key: "others", format: cents},
		{title: "pairs", key: "pairs", format: whole},
	},
	cells: func(plan) []cell {
		cells := grid("commands", "", []int{1}, contenders, measureCommands)
		for i := range cells {
			cells[i].rounds = 1
		}
		return cells
	},
}

const commandPairs = 500

func measureCommands(ctx context.Context, l *lab, c cell) (f figures, err error) {
	lib, err := l.open(ctx, c, l.addrs)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lib.Close()) }()
	before, err := l.calls(ctx)
	if err != nil {
		return nil, err
	}
	for range commandPairs {
		lock, err := lib.Lock(ctx, freshKey())
		if err != nil {
			return nil, err
		}
		if err := unlock(ctx, lock); err != nil {
			return nil, err
		}
	}
	after, err := l.calls(ctx)
	f = figures{"pairs": commandPairs}
	for i := range after {
		f.addCommands(before[i], after[i], c.contender.inScripts)
	}
	return f, err
}

// calls returns how often each node has executed each command. It first waits 200 ms for commands
// in flight.
func (l *lab) calls(ctx context.Context) ([]map[string]int64, error) {
	time.Sleep(200 * time.Millisecond)
	list := make([]map[string]int64, len(l.look))
	for i, c := range l.look {
		text, err := c.Info(ctx, "commandstats").Result()
		if err != nil {
			return nil, fmt.Errorf("INFO commandstats: %w", err)
		}
		list[i] = parseCommandStats(text)
	}
	return list, nil
}

// addCommands computes the figures of one node: its calls of each command, divided by f["pairs"].
// It raises each figure of f to the node's figure if that is higher.
func (f figures) addCommands(before, after map[string]int64, inScripts []string) {
	node := figures{"set": 0, "evalsha": 0, "eval": 0, "get": 0, "del": 0, "bitop": 0, "others": 0, "sent": 0, "commands": 0}
	for name, n := range after {
		calls := float64(n-before[name]) / f["pairs"]
		base, _, _ := strings.Cut(name, "|")
		if base == "info" {
			continue // sent by the measurement itself
		}
		node["commands"] += calls
		if _, ok := node[name]; ok {
			node[name] += calls
		} else {
			node["others"] += calls
		}
		if !slices.Contains(inScripts, name) {
			node["sent"] += calls
		}
	}
	for key, v := range node {
		f[key] = max(f[key], v)
	}
}
