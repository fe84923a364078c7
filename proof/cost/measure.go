package cost

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/seed14bd9ef4/redsync"
)

// A Run is a row that has been prepared.
type Run struct {
	Redsync *redsync.Redsync
	nodes   *Nodes
	call    func()
	end     func()
}

// Begin prepares a row that has a Call. Calls makes as many calls as the caller wants, and End ends it.
func (r Row) Begin() *Run {
	run := &Run{}
	run.Redsync, run.nodes = r.Open()
	run.call, run.end = r.Call(run.Redsync)
	run.Calls(1000) // what is made once is there now
	return run
}

// Calls makes n calls.
func (r *Run) Calls(n int) {
	for range n {
		r.call()
	}
}

// End ends the run.
func (r *Run) End() {
	if r.end != nil {
		r.end()
	}
	must(r.Redsync.Close(context.Background()))
}

// A Cost is what one call needs on average, or what one held lock keeps.
type Cost struct {
	Mallocs, Bytes float64
	Commands       float64 // to all nodes together; of a held lock, to acquire it
}

// Measure returns the cost of n calls, each.
func (r *Run) Measure(n int) Cost {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection would empty each sync.Pool
	runtime.GC()
	var before, after runtime.MemStats
	sent := r.nodes.sent.Load()
	runtime.ReadMemStats(&before)
	r.Calls(n)
	runtime.ReadMemStats(&after)
	return Cost{
		Mallocs:  float64(after.Mallocs-before.Mallocs) / float64(n),
		Bytes:    float64(after.TotalAlloc-before.TotalAlloc) / float64(n),
		Commands: float64(r.nodes.sent.Load()-sent) / float64(n),
	}
}

// Weigh returns what each lock of a row that has a Hold keeps. while, which may be nil, is called while n locks are
// held, beside one that is not counted.
func (r Row) Weigh(n int, while func(*redsync.Redsync)) Cost {
	rs, nodes := r.Open()
	names, locks := make([]string, n), make([]*redsync.Mutex, n)
	for i := range names {
		names[i] = fmt.Sprintf("%08d", i)
	}
	first := r.Hold(rs, "first") // makes what all locks share
	sent, before := nodes.sent.Load(), inUse()
	for i, name := range names {
		locks[i] = r.Hold(rs, name)
	}
	after := inUse()
	c := Cost{
		Mallocs:  (float64(after.HeapObjects) - float64(before.HeapObjects)) / float64(n),
		Bytes:    (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(n),
		Commands: float64(nodes.sent.Load()-sent) / float64(n),
	}
	if while != nil {
		while(rs)
	}
	runtime.KeepAlive(locks)
	runtime.KeepAlive(first)
	must(rs.Close(context.Background()))
	return c
}

// inUse returns the memory in use after two collections, which empty each sync.Pool.
func inUse() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}
