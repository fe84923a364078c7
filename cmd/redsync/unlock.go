package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	terminal "golang.org/x/term"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/foreign"
)

// exitNotReleased is the exit status of unlock if nothing was released.
const exitNotReleased = 1

// A breaker is what unlock was asked to do.
type breaker struct {
	nodes   nodes
	names   []string
	permits int
	id      string
	force   bool
	yes     bool

	stdout, stderr io.Writer
}

// unlock is the command unlock.
func unlock(args []string, stdout, stderr io.Writer) (int, error) {
	b := &breaker{stdout: stdout, stderr: stderr}
	f := b.flags()
	if err := parse("unlock", f, args); err != nil {
		return 0, err
	}
	b.names = f.Args()
	if f.Changed("holder") && b.id == "" {
		return 0, wrong("--holder is empty: it is an ID that \"redsync status\" shows")
	}
	if err := cmp.Or(checkTargets("unlock", b.names, b.nodes.prefix, f), b.check(), b.nodes.read()); err != nil {
		return 0, err
	}
	b.nodes.sayUnverified(func(text string) { line(stderr, text) })
	ctx, stop := untilSignal()
	defer stop()
	return b.run(ctx)
}

// flags returns the flags of unlock, which write into b.
func (b *breaker) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("unlock", pflag.ContinueOnError)
	b.nodes.define(f)
	f.BoolVar(&b.force, "force", false, "")
	f.IntVar(&b.permits, "permits", 0, "")
	f.StringVar(&b.id, "holder", "", "")
	f.BoolVar(&b.yes, "yes", false, "")
	return f
}

// check returns an error if the flags do not go together.
func (b *breaker) check() error {
	switch {
	case !b.force:
		return wrong("unlock takes the lock from its holder, which may work on: if you mean that, give --force")
	case b.permits > 0 && len(b.names) > 1:
		return wrong("%d NAMEs: --permits takes one", len(b.names))
	case !b.yes && !terminal.IsTerminal(int(os.Stdin.Fd())):
		return wrong("there is no terminal to ask: give --yes")
	}
	return nil
}

// run shows the holder, asks, and releases the lock.
func (b *breaker) run(ctx context.Context) (int, error) {
	rs := b.nodes.open()
	defer rs.Close(ctx) //nolint:errcheck // the second one says the same
	m := mutexOf(rs, b.names, b.permits)
	before, err := m.Inspect(ctx)
	if err != nil && before.Nodes == nil {
		return 0, notAsked(ctx, err)
	}
	var text bytes.Buffer
	show(&text, before, time.Now())
	if _, err := io.WriteString(b.stdout, foreign.Lines(text.String())); err != nil {
		return 0, &failure{exitInternal, fmt.Errorf("nothing was released, because the holder cannot be shown: %w", err)}
	}
	holder, err := b.choose(before)
	if err != nil {
		return 0, err
	}
	if !b.yes {
		if err := b.ask(ctx, holder); err != nil {
			return 0, err
		}
	}
	forced := m.ForceUnlock(ctx, holder)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = rs.Close(closing) // waits for the slower nodes
	return b.report(ctx, before, holder, forced)
}

// choose returns the holder that is to be released.
func (b *breaker) choose(s redsync.Status) (redsync.Holder, error) {
	if b.id != "" {
		return b.find(s)
	}
	switch {
	case len(s.Holders) > 1:
		return redsync.Holder{}, wrong("there are %d holders: say which with --holder ID", len(s.Holders))
	case len(s.Holders) == 1:
		return s.Holders[0], nil
	case s.State == redsync.StateUnknown:
		return redsync.Holder{}, &failure{exitNoQuorum, errors.New("it is not known who holds the lock: too few nodes answered")}
	}
	return redsync.Holder{}, &failure{exitNotReleased, errors.New("nobody holds the lock")}
}

// find returns the holder with the ID, also one that only a minority of nodes has.
func (b *breaker) find(s redsync.Status) (redsync.Holder, error) {
	all := s.Holders
	for _, n := range s.Nodes {
		all = append(all[:len(all):len(all)], n.Holders...)
	}
	at := slices.IndexFunc(all, func(h redsync.Holder) bool { return h.ID == b.id })
	switch {
	case at >= 0:
		return all[at], nil
	case s.State == redsync.StateUnknown:
		return redsync.Holder{}, &failure{exitNoQuorum, fmt.Errorf("no node that answered has the holder %q, and too few answered", b.id)}
	}
	return redsync.Holder{}, &failure{exitNotReleased, fmt.Errorf("no node has the holder %q (any more)", b.id)}
}

// ask returns nil if the user says yes.
func (b *breaker) ask(ctx context.Context, h redsync.Holder) error {
	fmt.Fprintf(b.stderr, "Release %s, although it may still work? [y/N] ", h.ID)
	answers := make(chan string, 1)
	go func() { // reading from a terminal cannot be canceled: the process ends
		text, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		answers <- strings.ToLower(strings.TrimSpace(text))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(b.stderr)
		return context.Cause(ctx)
	case answer := <-answers:
		if answer == "y" || answer == "yes" {
			return nil
		}
		return &failure{exitNotReleased, errors.New("nothing was released: the answer was not yes")}
	}
}

// report says what was removed on which node, and what follows. forced is the error of ForceUnlock.
func (b *breaker) report(ctx context.Context, before redsync.Status, holder redsync.Holder, forced error) (int, error) {
	rs := b.nodes.open()
	defer rs.Close(ctx) //nolint:errcheck // it holds nothing
	after, _ := mutexOf(rs, b.names, b.permits).Inspect(ctx)
	has := func(s redsync.Status, node int) bool {
		return node < len(s.Nodes) && slices.ContainsFunc(s.Nodes[node].Holders, func(h redsync.Holder) bool { return h.ID == holder.ID })
	}
	removed, unclear := 0, 0
	for i, n := range after.Nodes {
		what := "did not have it"
		switch {
		case n.Err != nil:
			what = "silent: " + reason(n.Err)
			unclear++
		case has(after, i):
			what = "still has it"
			unclear++
		case has(before, i):
			what = "removed"
			removed++
		case before.Nodes[i].Err != nil:
			what = "does not have it"
		}
		fmt.Fprintf(b.stdout, "node #%d (%s): %s\n", n.Node, n.Address, what)
	}
	held := slices.ContainsFunc(before.Holders, func(h redsync.Holder) bool { return h.ID == holder.ID })
	switch {
	case forced == nil:
		fmt.Fprintf(b.stdout, "released: %s\n", notice(holder, time.Now()))
		return 0, nil
	case !held && removed > 0 && unclear == 0: // of a minority: ForceUnlock says that it is not held
		fmt.Fprintf(b.stdout, "removed: what was left on %s\n", counted(removed, "node"))
		return 0, nil
	case errors.Is(forced, redsync.ErrNoQuorum):
		return 0, &failure{exitNoQuorum, forced}
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	}
	return 0, &failure{exitNotReleased, forced}
}

// notice says when a holder learns that its lock is gone: see docs/operating.md, "A lock is stuck".
func notice(h redsync.Holder, now time.Time) string {
	when := "within two round trips"
	switch {
	case strings.HasPrefix(h.Library, "redsync v4"):
		return "the holder learns of it at its own Extend"
	case h.Owner == "":
		return "the holder learns of it at its next extension, after a third of its expiry at most, if it has a watchdog. " +
			"Otherwise it learns at its own Extend, Valid or Unlock, or when its lock would have expired"
	case now.Sub(h.Since) < time.Second:
		when = "within a second"
	}
	return "the holder learns of it " + when + " if it can hear the nodes, otherwise at its next extension"
}
