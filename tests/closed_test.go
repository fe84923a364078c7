package redsync_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// All connections end with the first command of a call, as after a process was frozen. The call asks again on new
// connections, and succeeds. What the lost commands did, or do later, is no obstacle, and nothing stays behind.
func TestFirstCallAfterTheConnectionsWereClosed(t *testing.T) {
	faults := map[string]embedded.Fault{
		"nothing is executed":           {LoseCommand: true},
		"executed":                      {LoseReply: true},
		"executed, and later once more": {LoseReply: true, Again: 2 * time.Second},
	}
	options := map[string][]redsync.Option{
		"":                 nil,
		", fenced":         {redsync.WithFencing()},
		", fair":           {redsync.WithFair()},
		", user's values":  {redsync.WithGenValueFunc(freshValue())},
		", keys set again": {redsync.WithSetNXOnExtend()},
		", all nodes":      {redsync.WithFailFast(false)},
		", a watchdog":     {redsync.WithWatchdog()},
		", with an owner":  {redsync.WithOwner("me")},
		", a minimal hold": {redsync.WithMinHold(time.Second)},
	}
	calls := map[string]func(f field, m *redsync.Mutex) error{
		"TryLock": func(_ field, m *redsync.Mutex) error { return m.TryLock() },
		"Extend":  func(_ field, m *redsync.Mutex) error { return second(m.Extend()) },
		"Valid":   func(_ field, m *redsync.Mutex) error { return second(m.Valid()) },
		"Inspect": func(f field, m *redsync.Mutex) error { _, err := m.Inspect(f.Context()); return err },
	}
	for _, kind := range lockKinds {
		for option, with := range options {
			for call, do := range calls {
				for fault, what := range faults {
					t.Run(kind.column+option+", "+call+", "+fault, func(t *testing.T) {
						play(t, func(f field) {
							f.meet()
							m := kind.lock(f.Redsync, with...)
							first := "evalsha"
							if call != "TryLock" {
								if m.Lock() != nil {
									t.Skip("excluded")
								}
								time.Sleep(time.Second)
							} else if kind.column == "plain lock" && option != ", fenced" && option != ", fair" {
								first = "set"
							}
							for _, n := range f.nodes {
								n.On(first, 1, what)
							}
							start := time.Now()
							err := do(f, m)
							require.NoError(t, err)
							assert.Less(t, time.Since(start), patience)
							f.unlock(m)
							time.Sleep(4 * time.Second)
							for _, key := range kind.keys {
								assert.Zero(t, f.nodes.Keys(key))
							}
						})
					})
				}
			}
		}
	}
}
