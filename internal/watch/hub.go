// Package watch reads who holds locks, for those who watch them. Each lock is read once for all of its watchers. Between
// these reads the package listens to what new leaders tell: see Tell.
package watch

import (
	"context"
	"sync"
)

// A Hub has the watchers of one Redsync. The zero Hub is ready.
type Hub struct {
	running sync.WaitGroup // the readings that have not ended, also those that nobody watches any more

	mu       sync.Mutex // guards what follows, and reading.watchers
	readings map[string]*reading
}

// A Watcher is told when the holders of a lock change. Only one goroutine may call Next.
type Watcher struct {
	reading *reading
	from    uint64    // the first read that counts for this watcher
	last    *Snapshot // what Next has returned last; nil before

	// Leave ends the watcher. With the last watcher of a lock, the reads and the subscriptions end before Leave returns.
	// Any goroutine may call it, and call it again.
	Leave func()
}

// Join adds a watcher of l. The caller must not be held up by Close meanwhile: see lease.Keeper.BeginCall.
func (h *Hub) Join(l Lock) *Watcher {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.readings[l.Key]
	isFirst := r == nil
	if isFirst {
		if h.readings == nil {
			h.readings = make(map[string]*reading)
		}
		r = newReading(l)
		h.readings[l.Key] = r
	}
	r.watchers++
	w := &Watcher{reading: r, from: r.nextRead(), Leave: sync.OnceFunc(func() { h.leave(r) })}
	if isFirst {
		r.begin(&h.running) // only now: its first read counts for w
	}
	return w
}

func (h *Hub) leave(r *reading) {
	h.mu.Lock()
	r.watchers--
	last := r.watchers == 0
	if last {
		delete(h.readings, r.lock.Key)
	}
	h.mu.Unlock()
	if last {
		r.stop()
		<-r.ended
	}
}

// AwaitEnds waits until all reads and subscriptions have ended, after Close has begun.
func (h *Hub) AwaitEnds() { h.running.Wait() }

// Next waits until the holders are others than in the Snapshot that it has returned last, and then returns the latest
// Snapshot. The first call waits for any Snapshot. Next returns nil when ctx is done, when Close has begun, or after Leave.
func (w *Watcher) Next(ctx context.Context) *Snapshot {
	r := w.reading
	for ctx.Err() == nil {
		last, newer := r.latest()
		if r.lock.Terms.Keeper.IsClosed() { // asked after latest: what Close has cut is no Snapshot to tell
			return nil
		}
		if last != nil && last.number >= w.from && (w.last == nil || last.holders != w.last.holders) {
			w.last = last
			return last
		}
		select {
		case <-newer:
		case <-ctx.Done():
		case <-r.ended:
			return nil
		}
	}
	return nil
}
