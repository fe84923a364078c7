// Package cost measures what the library itself costs: on nodes that answer at once and allocate nothing. Its tests
// compare the memory, the commands, the readings of the clocks and the alarms of each row with a bound. The scene
// own-cost of package bench measures the time of each row, beside another checkout.
//
// Files rows*.go, node.go and time_test.go use only what the library exports, because that scene builds them in other
// checkouts. What a checkout does not have, such as a mode that is younger, stands in a file of its own.
package cost

import (
	"cmp"
	"context"
	"testing/synctest"
	"time"

	"github.com/seed14bd9ef4/redsync"
)

// A Row is one thing that users do. It has a Call to measure or a Hold, whose locks are held and weighed.
type Row struct {
	Name string

	// Virtual says that the call waits for timers or for other goroutines. Such a row is prepared and called in a
	// testing/synctest bubble.
	Virtual bool

	// Call returns what is measured, on locks of r. end, which may be nil, must be called at last.
	Call func(r *redsync.Redsync) (call, end func())

	// Hold returns a lock of r, which is not kept by anything else.
	Hold func(r *redsync.Redsync, name string) *redsync.Mutex

	nodes            int                                 // 0 means five
	refusing         int                                 // of the Nodes
	taken, exclusive bool                                // of the Nodes
	on               func(nodes *Nodes) *redsync.Redsync // nil means redsync.New
}

// ImportRow is the name of the row that only tests can measure: what a program pays for the import of the library.
const ImportRow = "import of the package"

// Rows are all other rows of this build, by name.
var Rows = map[string]Row{}

func add(rows ...Row) {
	for _, r := range rows {
		Rows[r.Name] = r
	}
}

// Open returns a Redsync for the row, and its nodes.
func (r Row) Open() (*redsync.Redsync, *Nodes) {
	nodes := &Nodes{taken: r.taken, exclusive: r.exclusive, refusing: r.refusing}
	if r.on != nil {
		return r.on(nodes), nodes
	}
	return redsync.New(nodes.pools(cmp.Or(r.nodes, 5), 0)...), nodes
}

const name = "a"

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func nothing(context.Context) error { return nil }

// pair locks and unlocks m.
func pair(m *redsync.Mutex) {
	must(m.Lock())
	_, err := m.Unlock()
	must(err)
}

// pairs returns the Call of pairs on one Mutex.
func pairs(options ...redsync.Option) func(*redsync.Redsync) (func(), func()) {
	return func(r *redsync.Redsync) (call, end func()) {
		m := r.NewMutex(name, options...)
		return func() { pair(m) }, nil
	}
}

// held returns the Hold of a lock with the options.
func held(options ...redsync.Option) func(*redsync.Redsync, string) *redsync.Mutex {
	return func(r *redsync.Redsync, name string) *redsync.Mutex {
		m := r.NewMutex(name, options...)
		must(m.Lock())
		return m
	}
}

const expiry = 6 * time.Second // as an option: not the default

func init() {
	add(
		Row{Name: "Lock + Unlock", Call: pairs()},
		Row{Name: "Lock + Unlock, 1 node", nodes: 1, Call: pairs()},
		Row{Name: "Lock + Unlock, 3 nodes", nodes: 3, Call: pairs()},
		Row{Name: "Lock + Unlock, 9 nodes", nodes: 9, Call: pairs()},
		Row{Name: "Lock + Unlock, 2 nodes refuse", refusing: 2, Call: pairs()},
		Row{Name: "Lock + Unlock, watchdog", Call: pairs(redsync.WithWatchdog())},
		Row{Name: "Lock + Unlock, fenced", Call: pairs(redsync.WithFencing())},
		Row{Name: "Lock + Unlock, fair", Call: pairs(redsync.WithFair())},
		Row{Name: "NewMutex, Lock + Unlock", Call: func(r *redsync.Redsync) (call, end func()) {
			return func() { pair(r.NewMutex(name)) }, nil
		}},
		Row{Name: "NewMutex with an option, Lock + Unlock", Call: func(r *redsync.Redsync) (call, end func()) {
			return func() { pair(r.NewMutex(name, redsync.WithExpiry(expiry))) }, nil
		}},
		Row{Name: "TryLock, taken", taken: true, Call: func(r *redsync.Redsync) (call, end func()) {
			m := r.NewMutex(name)
			return func() {
				if m.TryLock() == nil {
					panic("acquired what is taken")
				}
			}, nil
		}},
		Row{Name: "Lock waits, handed over", Virtual: true, exclusive: true, Call: waits()},
		Row{
			Name: "Lock waits, by the nodes", Virtual: true, exclusive: true,
			Call: waits(redsync.WithHandOver(false)),
		},
		Row{Name: "Extend", Call: func(r *redsync.Redsync) (call, end func()) {
			m := r.NewMutex(name, redsync.WithExpiry(time.Hour))
			must(m.Lock())
			return func() {
				_, err := m.Extend()
				must(err)
			}, nil
		}},
		Row{Name: "Extend by the watchdog", Virtual: true, Call: func(r *redsync.Redsync) (call, end func()) {
			must(r.NewMutex(name, redsync.WithExpiry(expiry), redsync.WithWatchdog()).Lock())
			return func() { time.Sleep(expiry / 3) }, nil //nolint:forbidigo // in a bubble
		}},
		Row{Name: "Do", Call: func(r *redsync.Redsync) (call, end func()) {
			return func() { must(r.Do(context.Background(), name, nothing)) }, nil
		}},
		Row{Name: "a held lock", Hold: held()},
		Row{Name: "a held lock, watchdog", Hold: held(redsync.WithWatchdog())},
		Row{Name: "a held lock, fenced", Hold: held(redsync.WithFencing())},
		Row{Name: "a Mutex, not locked", Hold: func(r *redsync.Redsync, name string) *redsync.Mutex { return r.NewMutex(name) }},
	)
}

// waits returns the Call of a Lock that waits for another Mutex of the process to be unlocked. Another goroutine makes
// it, always the same one.
func waits(options ...redsync.Option) func(*redsync.Redsync) (func(), func()) {
	return func(r *redsync.Redsync) (call, end func()) {
		holder, waiter := r.NewMutex(name, options...), r.NewMutex(name, options...)
		turns := make(chan struct{})
		go func() {
			for range turns {
				pair(waiter)
			}
		}()
		call = func() {
			must(holder.Lock())
			turns <- struct{}{}
			synctest.Wait() // until the other goroutine waits in Lock
			_, err := holder.Unlock()
			must(err)
			synctest.Wait()
		}
		return call, func() { close(turns) }
	}
}
