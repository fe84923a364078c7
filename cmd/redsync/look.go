package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/foreign"
)

// This file shows what the nodes say of a lock. No output has a value.

// show writes what s says, for people.
func show(out io.Writer, s redsync.Status, now time.Time) {
	fmt.Fprintf(out, "%s: %v\n", printable(s.Name), s.State)
	for _, h := range s.Holders {
		fmt.Fprintf(out, "  holder %s\n", describe(h, now))
	}
	for _, w := range s.Waiters {
		times := ""
		if w.Count > 1 {
			times = fmt.Sprintf(" %d times", w.Count)
		}
		fmt.Fprintf(out, "  process %016d waits%s\n", w.Process, times)
	}
	held := idsOf(s.Holders)
	for _, n := range s.Nodes {
		switch {
		case n.Err != nil:
			fmt.Fprintf(out, "  silent: %s\n", plain(n.Err))
		case !slices.Equal(idsOf(n.Holders), held):
			fmt.Fprintf(out, "  differs: node #%d (%s) has %s\n", n.Node, n.Address, leftovers(n.Holders, now))
		case n.Denied:
			fmt.Fprintf(out, "  partly denied: node #%d (%s) does not show its waiters and its fencing register\n", n.Node, n.Address)
		}
	}
}

// leftovers describes what one node has.
func leftovers(holders []redsync.Holder, now time.Time) string {
	var all []string
	for _, h := range holders {
		all = append(all, describe(h, now))
	}
	return cmp.Or(strings.Join(all, "; "), "no holder")
}

// describe returns who a holder is, how long it has had the lock, and how long the nodes keep the lock.
func describe(h redsync.Holder, now time.Time) string {
	parts := []string{fmt.Sprintf("%s: no owner in its value", h.ID)}
	if h.Owner != "" {
		parts = []string{fmt.Sprintf("%s: %s", h.ID, h.Owner), fmt.Sprintf("for %v", rounded(now.Sub(h.Since)))}
	}
	if h.Library != "" && h.Owner == "" {
		parts = append(parts, "of "+h.Library)
	}
	if h.Shared {
		parts = append(parts, "a reader")
	}
	if h.Permits > 0 {
		parts = append(parts, counted(h.Permits, "permit"))
	}
	if h.TTL < 0 {
		return strings.Join(append(parts, "kept for ever"), ", ")
	}
	return strings.Join(append(parts, fmt.Sprintf("kept for another %v unless extended", rounded(h.TTL))), ", ")
}

// rounded returns d in the precision that people need.
func rounded(d time.Duration) time.Duration {
	if d > time.Minute {
		return d.Round(time.Second)
	}
	return d.Round(100 * time.Millisecond)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// plain returns the text of an error in one line, which a terminal does not obey.
func plain(err error) string {
	return foreign.Lines(strings.ReplaceAll(strings.TrimPrefix(err.Error(), "redsync: "), "\n", " "))
}

// reason returns the text of why a node has said nothing, without the node.
func reason(err error) string {
	var node *redsync.RedisError
	if errors.As(err, &node) {
		err = node.Err
	}
	return plain(err)
}

// printable returns a name as a terminal can show it: in quotes if it has anything else than graphic characters.
func printable(name string) string {
	if quoted := strconv.QuoteToGraphic(name); quoted[1:len(quoted)-1] != name {
		return quoted
	}
	return name
}

// idsOf returns the IDs of holders, in order.
func idsOf(holders []redsync.Holder) []string {
	ids := []string{}
	for _, h := range holders {
		ids = append(ids, h.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// change returns the line of --watch for a Status.
func change(s redsync.Status, now time.Time) string {
	text := fmt.Sprintf("%s %s: %v", now.UTC().Format(time.RFC3339), printable(s.Name), s.State)
	for i, h := range s.Holders {
		text += []string{", by ", "; "}[min(i, 1)] + describe(h, now)
	}
	return text
}

// The types of --json. They are documented in usage/json.txt, which a test compares with them.
type (
	statusJSON struct {
		Name    string       `json:"name"`
		State   string       `json:"state"`
		Holders []holderJSON `json:"holders"`
		Waiters []waiterJSON `json:"waiters"`
		Fence   string       `json:"fence,omitempty"`
		Nodes   []nodeJSON   `json:"nodes"`
		Time    string       `json:"time"`
	}
	holderJSON struct {
		ID      string `json:"id"`
		Owner   string `json:"owner,omitempty"`
		Process string `json:"process,omitempty"`
		Since   string `json:"since,omitempty"`
		TTL     int64  `json:"ttl_ms"`
		Shared  bool   `json:"shared,omitempty"`
		Permits int    `json:"permits,omitempty"`
		Library string `json:"library,omitempty"`
	}
	waiterJSON struct {
		Process string `json:"process"`
		Count   int    `json:"count"`
	}
	nodeJSON struct {
		Node    int      `json:"node"`
		Address string   `json:"address"`
		Holders []string `json:"holders"`
		Waiters int      `json:"waiters"`
		Denied  bool     `json:"denied,omitempty"`
		Error   string   `json:"error,omitempty"`
	}
)

// jsonOf returns what --json shows of s.
func jsonOf(s redsync.Status, now time.Time) statusJSON {
	j := statusJSON{
		Name: s.Name, State: s.State, Time: now.UTC().Format(time.RFC3339Nano),
		Holders: []holderJSON{}, Waiters: []waiterJSON{}, Nodes: []nodeJSON{},
	}
	if s.Register > 0 {
		j.Fence = strconv.FormatUint(s.Register, 10)
	}
	for _, h := range s.Holders {
		one := holderJSON{ID: h.ID, Owner: h.Owner, TTL: h.TTL.Milliseconds(), Shared: h.Shared, Permits: h.Permits, Library: h.Library}
		if h.TTL < 0 {
			one.TTL = -1
		}
		if h.Process != 0 {
			one.Process = fmt.Sprintf("%016d", h.Process)
		}
		if !h.Since.IsZero() {
			one.Since = h.Since.UTC().Format(time.RFC3339Nano)
		}
		j.Holders = append(j.Holders, one)
	}
	for _, w := range s.Waiters {
		j.Waiters = append(j.Waiters, waiterJSON{fmt.Sprintf("%016d", w.Process), w.Count})
	}
	for _, n := range s.Nodes {
		one := nodeJSON{Node: n.Node, Address: n.Address, Holders: idsOf(n.Holders), Waiters: n.Waiters, Denied: n.Denied}
		if n.Err != nil {
			one.Error = plain(n.Err)
		}
		j.Nodes = append(j.Nodes, one)
	}
	return j
}
