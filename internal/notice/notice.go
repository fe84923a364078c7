// Package notice delivers events on a goroutine of its own, for callers that must not wait until the
// receiver returns.
package notice

import "sync"

// Max bounds how many notices wait to be delivered.
const Max = 1 << 16

// A Receiver is what notices are for. It must be a pointer, because it is used as a map key.
type Receiver interface {
	// Dropped tells how many notices were dropped, because too many waited.
	Dropped(notices int)
}

// A Queue keeps notices until its goroutine delivers them, in order. The goroutine runs only while there
// are notices.
type Queue struct {
	mu      sync.Mutex // guards what follows
	waiting []func()
	running bool
	dropped map[Receiver]int // since Dropped was last called
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

// dropLocked counts a dropped notice. It counts for Max receivers at most: further ones are not told that
// they missed a notice.
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
		q.tell(now, dropped)
	}
}

// tell calls the notices in order, and then tells receivers how many of theirs were dropped. If a notice ends
// the goroutine, as runtime.Goexit does, another goroutine goes on with the rest.
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
		notice()
	}
	for to, notices := range dropped {
		delete(dropped, to) // before it is told: a receiver that ends the goroutine is not told again
		to.Dropped(notices)
	}
	done = true
}
