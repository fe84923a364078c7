package lease

import (
	"sync"
	"sync/atomic"
)

// An inFlight counts what is under way. Close waits until that is none.
type inFlight struct {
	count   atomic.Int64
	waiting atomic.Bool // somebody waits, on none
	none    chan struct{}
	once    sync.Once
}

func (f *inFlight) add(n int) {
	if f.count.Add(int64(n)) == 0 && f.waiting.Load() {
		f.once.Do(func() { close(f.none) })
	}
}

func (f *inFlight) n() int { return int(f.count.Load()) }

// zero returns a channel that is closed once nothing is under way. It is called
// once in the life of f.
func (f *inFlight) zero() <-chan struct{} {
	f.none = make(chan struct{})
	f.waiting.Store(true)
	f.add(0)
	return f.none
}
