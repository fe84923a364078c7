package redsync_test

import (
	"fmt"
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
	options := map[string]redsync.Option{
		"plainly": withTries(1), "fenced": withFencing, "fair": withFair,
		"user's values": withGenValueFunc(freshValue()), "set again": withSetNXOnExtend, "all nodes": hearsAll,
		"with an owner": withOwner("me"), "a minimal hold": withMinHold(sec),
	}
	faults := map[string]embedded.Fault{"not executed": {LoseCommand: true}, "executed": {LoseReply: true}}
	at, every := 0, testlength.InGate(29, 9, 1, 1)
	for _, kind := range lockKinds {
		for how, option := range sorted(options) {
			if kind.permit && how == "fenced" || kind.shared && how == "a minimal hold" {
				continue // they exclude each other
			}
			for _, call := range []string{"Extend", "Inspect", "TryLock", "Valid"} {
				tries, first := call == "TryLock", "evalsha"
				if tries && kind.column == "plain lock" && how != "fenced" && how != "fair" {
					first = "set"
				}
				for fault, what := range sorted(faults) {
					if tries && fault == "executed" && (how == "fair" && !kind.shared && !kind.permit || how == "user's values") {
						continue // the node cannot tell whose value it has
					}
					if at++; at%every != 0 {
						continue
					}
					playMetAs(t, fmt.Sprint(kind.column, how, call, fault), func(f field) {
						m := kind.lock(f.Redsync, option)
						if !tries {
							locked(f, m)
							time.Sleep(sec)
						}
						for _, n := range f.nodes {
							if first == "set" && what.LoseCommand {
								what.Then = func(args []string) { time.AfterFunc(1500*ms, func() { late(n, args) }) }
							}
							n.On(first, 1, what)
						}
						start := time.Now()
						var err error
						if call == "Inspect" { // some nodes have not answered
							_, err = m.Inspect(f.Context())
						} else {
							err = farCalls[call](f, m, m)
						}
						require.NoError(f, err)
						assert.Less(f, time.Since(start), patience)
						time.Sleep(sec)
						f.unlock(m)
						time.Sleep(4 * sec)
						f.have(0, kind.keys...)
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
