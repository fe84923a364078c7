package redsync_test

import (
	"crypto/rand"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// All connections end with the first command of a call, as after the process was frozen. The call asks again on new
// connections, and succeeds. Whatever the lost commands have done, or do later, nothing stays behind.
func TestFirstCallAfterTheConnectionsWereClosed(t *testing.T) {
	parallelComputing(t)
	fair, users := withFair, redsync.WithGenValueFunc(func() (string, error) { return rand.Text(), nil })
	options := map[string]redsync.Option{
		"plainly": redsync.WithTries(1), "fenced": withFencing, "fair": fair, "user's values": users,
		"set again": withSetNXOnExtend, "all nodes": hearsAll, "with an owner": redsync.WithOwner("me"),
		"a minimal hold": redsync.WithMinHold(time.Second),
	}
	calls := map[string]func(f field, m *redsync.Mutex) error{
		"TryLock": func(_ field, m *redsync.Mutex) error { return m.TryLock() },
		"Extend":  func(_ field, m *redsync.Mutex) error { return second(m.Extend()) },
		"Valid":   func(_ field, m *redsync.Mutex) error { return second(m.Valid()) },
		"Inspect": func(f field, m *redsync.Mutex) error { _, err := m.Inspect(f.Context()); return err },
	}
	at, every := 0, testlength.InGate(29, 9, 1, 1)
	for _, kind := range lockKinds {
		for _, how := range slices.Sorted(maps.Keys(options)) {
			option := options[how]
			if kind.permit && how == "fenced" || kind.shared && how == "a minimal hold" {
				continue // they exclude each other
			}
			for _, call := range slices.Sorted(maps.Keys(calls)) {
				do := calls[call]
				first := "evalsha"
				if call == "TryLock" && kind.column == "plain lock" && how != "fenced" && how != "fair" {
					first = "set"
				}
				faults := map[string]embedded.Fault{"not executed": {LoseCommand: true}, "executed": {LoseReply: true}}
				if call == "TryLock" && (how == "fair" && !kind.shared && !kind.permit || how == "user's values") {
					delete(faults, "executed") // the node cannot tell whose value it has
				}
				for _, fault := range slices.Sorted(maps.Keys(faults)) {
					what := faults[fault]
					if at++; at%every != 0 {
						continue
					}
					playMet(t, func(f field) {
						m := kind.lock(f.Redsync, option)
						if call != "TryLock" {
							locked(f, m)
							time.Sleep(time.Second)
						}
						for _, n := range f.nodes {
							if first == "set" && fault == "not executed" {
								what.Then = func(args []string) { time.AfterFunc(1500*ms, func() { late(n, args) }) }
							}
							n.On(first, 1, what)
						}
						start := time.Now()
						require.NoError(f, do(f, m), "%s %s %s, %s", kind.column, how, call, fault)
						assert.Less(f, time.Since(start), patience)
						time.Sleep(time.Second)
						f.unlock(m)
						time.Sleep(4 * time.Second)
						for _, key := range kind.keys {
							assert.Zero(f, f.nodes.Keys(key), "%s %s %s, %s", kind.column, how, call, fault)
						}
					})
				}
			}
		}
	}
}

// late executes a SET NX PX that was on its way.
func late(n *embedded.Node, args []string) {
	if name := args[0]; !n.Exists(name) {
		_ = n.Set(name, args[1])
		n.SetTTL(name, guard)
	}
}
