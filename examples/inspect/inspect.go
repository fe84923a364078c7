package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/seed14bd9ef4/redsync"
)

// show prints who holds the lock on a name, who waits for it, and which nodes are silent or have something else. It returns
// an error if too few nodes answer to tell.
func show(ctx context.Context, rs *redsync.Redsync, name string, out io.Writer) error {
	s, err := rs.NewMutex(name).Inspect(ctx)
	if s.Nodes == nil {
		return err // no node was asked
	}
	var text strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	say("%s: %v", s.Name, s.State)
	for _, h := range s.Holders {
		say("  holder %s: %s", h.ID, who(h))
	}
	for _, w := range s.Waiters {
		say("  process %016d waits", w.Process)
	}
	for _, n := range s.Nodes {
		switch {
		case n.Err != nil:
			say("  silent: %v", n.Err)
		case ids(n.Holders) != ids(s.Holders):
			say("  differs: node #%d (%s) has %s", n.Node, n.Address, cmp.Or(ids(n.Holders), "no holder"))
		case n.Denied:
			say("  partly denied: node #%d (%s) does not show its waiters", n.Node, n.Address)
		}
	}
	_, failed := io.WriteString(out, text.String())
	return errors.Join(err, failed)
}

// who names a holder by its label, or else by the library that has made its value, and says how long the nodes keep its keys.
func who(h redsync.Holder) string {
	text := "without a label, of " + cmp.Or(h.Library, "an unknown library")
	if h.Owner != "" {
		text = fmt.Sprintf("%s since %s, process %016d", h.Owner, h.Since.UTC().Format(time.RFC3339), h.Process)
	}
	if h.TTL < 0 {
		return text + ", for ever"
	}
	return fmt.Sprintf("%s, for another %v unless extended", text, h.TTL.Round(100*time.Millisecond))
}
