// Package notice delivers events on a goroutine of its own, for callers that must not wait for the receiver.
package notice

import (
	"sync"
	"sync/atomic"
	"time"
)

// Max bounds how many notices wait.
const Max = 1 << 16

// A Receiver is whom a notice is for: a pointer, as a map key.
type Receiver interface {
	// Dropped tells how many notices were dropped because too many waited.
	Dropped(notices int)
}

// A Queue delivers notices in order, by a goroutine that runs only while there are any.
type Queue struct {
	silent atomic.Bool // nothing more is delivered

	mu      sync.Mutex // guards what follows
	waiting []func()
	running bool
	dropped map[Receiver]int // since Dropped was last called
	closed  bool
	idle    chan struct{} // closed when the goroutine of a closed queue ends; nil unless Close waits
}

// Add queues a notice for a receiver.
func (q *Queue) Add(to Receiver, notice func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	if len(q.waiting) >= Max {
		q.dropLocked(to)
		return
	}
	q.waiting = append(q.waiting, notice)
	if !q.running {
		q.running = true
		go q.run()
	}
}

// dropLocked counts a dropped notice, for Max receivers at most: others are not told.
func (q *Queue) dropLocked(to Receiver) {
	if q.dropped == nil {
		q.dropped = make(map[Receiver]int)
	}
	if _, known := q.dropped[to]; known || len(q.dropped) < Max {
		q.dropped[to]++
	}
}

func (q *Queue) run() {
	for {
		q.mu.Lock()
		now, dropped := q.waiting, q.dropped
		q.waiting, q.dropped = nil, nil
		q.running = len(now) > 0
		if !q.running && q.idle != nil {
			close(q.idle)
			q.idle = nil
		}
		q.mu.Unlock()
		if len(now) == 0 {
			return
		}
		q.tell(now, dropped)
	}
}

// Close waits until all notices have been delivered, for timeout at most: a receiver may block, or call Close. The rest
// is dropped.
func (q *Queue) Close(timeout time.Duration) {
	q.mu.Lock()
	q.closed = true
	if !q.running {
		q.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	q.idle = idle
	q.mu.Unlock()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
		q.silent.Store(true)
	}
}

// IsSilent reports whether Close has given up waiting: nothing more may be told.
func (q *Queue) IsSilent() bool { return q.silent.Load() }

// tell calls the notices, and then tells receivers what was dropped. If a notice ends the goroutine, as runtime.Goexit
// does, another one goes on.
func (q *Queue) tell(now []func(), dropped map[Receiver]int) {
	told, done := 0, false
	defer func() {
		if !done {
			go func() {
				q.tell(now[told:], dropped)
				q.run()
			}()
		}
	}()
	for _, notice := range now {
		told++
		if !q.IsSilent() {
			notice()
		}
	}
	for to, notices := range dropped {
		if q.IsSilent() {
			break
		}
		delete(dropped, to) // first: a receiver that ends the goroutine is not told again
		to.Dropped(notices)
	}
	done = true
}
