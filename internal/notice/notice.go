// Package notice tells events later: on a goroutine of its own, for those that must not wait
// until their receiver has returned.
package notice

import "sync"

// Max bounds the notices that wait to be told.
const Max = 1 << 16

// A Receiver is whom notices are for. It is used as a key: a pointer.
type Receiver interface {
	// Dropped says that so many notices were dropped, because too many waited.
	Dropped(notices int)
}

// A Queue keeps notices until its goroutine tells them, in their order. The goroutine
// runs while there are any.
type Queue struct {
	mu      sync.Mutex // guards what follows
	waiting []func()
	running bool
	dropped map[Receiver]int // since the last that were told
}

// Add queues a notice for a receiver.
func (q *Queue) Add(to Receiver, notice func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
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

// dropLocked counts a notice that is dropped. Where every lock has a
// receiver of its own, some may not hear of it.
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
		q.mu.Unlock()
		if len(now) == 0 {
			return
		}
		for _, notice := range now {
			notice()
		}
		for to, notices := range dropped {
			to.Dropped(notices)
		}
	}
}
