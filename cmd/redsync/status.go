package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/foreign"
)

// statusExits are the exit statuses of a lock's state.
var statusExits = map[string]int{redsync.StateHeld: 0, redsync.StateFree: 1, redsync.StateUnknown: exitNoQuorum}

// A view is what status was asked to show.
type view struct {
	nodes   nodes
	names   []string
	permits int
	json    bool
	watch   bool

	mu  sync.Mutex // a line at a time
	out io.Writer
}

// status is the command status.
func status(args []string, stdout, stderr io.Writer) (int, error) {
	v := &view{out: stdout}
	f := v.flags()
	if err := parse("status", f, args); err != nil {
		return 0, err
	}
	v.names = f.Args()
	if err := cmp.Or(checkTargets("status", v.names, v.nodes.prefix, f), v.nodes.read()); err != nil {
		return 0, err
	}
	v.nodes.sayUnverified(func(text string) { line(stderr, text) })
	ctx, stop := untilSignal()
	defer stop()
	rs := v.nodes.open()
	defer rs.Close(ctx) //nolint:errcheck // it holds nothing
	if v.watch {
		return v.watchAll(ctx, rs)
	}
	return v.showAll(ctx, rs)
}

// flags returns the flags of status, which write into v.
func (v *view) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("status", pflag.ContinueOnError)
	v.nodes.define(f)
	f.IntVar(&v.permits, "permits", 0, "")
	f.BoolVar(&v.json, "json", false, "")
	f.BoolVar(&v.watch, "watch", false, "")
	return f
}

// checkTargets puts the prefix before the names. It returns an error if there are no names, or a bad one, or bad permits.
func checkTargets(command string, names []string, prefix string, f *pflag.FlagSet) error {
	if len(names) == 0 {
		return wrong("there is no NAME. See redsync %s --help", command)
	}
	for i, name := range names {
		if name == "" || slices.Contains(names[:i], prefix+name) {
			return wrong("NAME #%d is empty or given twice", i+1)
		}
		names[i] = prefix + name
	}
	if !f.Changed("permits") {
		return nil
	}
	n, _ := f.GetInt("permits")
	return checkPermits(n)
}

// untilSignal returns a context that a signal ends, with a cause that has its exit status.
func untilSignal() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case s := <-signals:
			number, _ := s.(syscall.Signal)
			cancel(&failure{exitSignalBase + int(number), fmt.Errorf("ended by the signal %q", s)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() { signal.Stop(signals); cancel(nil) }
}

// mutex returns one that reads a lock or a semaphore. A longer expiry makes the node deadline longer: 1.5 s.
func mutexOf(rs *redsync.Redsync, names []string, permits int) *redsync.Mutex {
	options := []redsync.Option{redsync.WithExpiry(defaultTTL)}
	if permits > 0 {
		options = append(options, redsync.WithPermits(permits))
	}
	return newMutex(rs, names, options...)
}

// showAll shows each lock once.
func (v *view) showAll(ctx context.Context, rs *redsync.Redsync) (int, error) {
	greatest := 0
	for _, name := range v.names {
		s, err := mutexOf(rs, []string{name}, v.permits).Inspect(ctx)
		if err != nil && s.Nodes == nil { // nothing was asked
			return 0, notAsked(ctx, err)
		}
		if err := v.print(s, func(out io.Writer, now time.Time) { show(out, s, now) }); err != nil {
			return 0, err
		}
		greatest = max(greatest, statusExits[s.State])
	}
	return greatest, nil
}

// notAsked returns the failure of a call that has asked no node.
func notAsked(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return &failure{exitUsage, err}
}

// print writes s as JSON, or by text.
func (v *view) print(s redsync.Status, text func(out io.Writer, now time.Time)) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	if !v.json {
		var all bytes.Buffer
		text(&all, now)
		_, err := io.WriteString(v.out, foreign.Lines(all.String()))
		return err
	}
	return json.NewEncoder(v.out).Encode(jsonOf(s, now))
}

// watchAll shows the changes of all locks until ctx ends.
func (v *view) watchAll(ctx context.Context, rs *redsync.Redsync) (int, error) {
	failed := make(chan error, len(v.names))
	for _, name := range v.names {
		go func() { failed <- v.watchOne(ctx, mutexOf(rs, []string{name}, v.permits)) }()
	}
	return 0, <-failed
}

// watchOne shows the changes of the lock of m, and returns why it has ended.
func (v *view) watchOne(ctx context.Context, m *redsync.Mutex) error {
	for s, err := range m.Watch(ctx) {
		if err == nil {
			err = v.print(s, func(out io.Writer, now time.Time) { fmt.Fprintln(out, change(s, now)) })
		} else {
			err = notAsked(ctx, err)
		}
		if err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}
