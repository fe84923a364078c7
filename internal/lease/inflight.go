package lease

import (
	"sync"
	"sync/atomic"
)

// An inFlight counts the operations that are under way. Close waits until the count is 0.
type inFlight struct {
	count   atomic.Int64
	waiting atomic.Bool   // zero has been called
	none    chan struct{} // made by zero, and closed once count is 0 after that
	once    sync.Once
}

func (f *inFlight) add(n int) {
	if f.count.Add(int64(n)) == 0 && f.waiting.Load() {
		f.once.Do(func() { close(f.none) })
	}
}

// zero returns a channel that is closed once nothing is under way. It may be called only once on each f.
func (f *inFlight) zero() <-chan struct{} {
	f.none = make(chan struct{})
	f.waiting.Store(true)
	f.add(0)
	return f.none
}
