package fencing

import (
	"sync"
	"sync/atomic"
)

// A Guard guards one resource inside the process. Its zero value is ready to use, by many goroutines at once. It must
// not be copied.
//
// If the data outlives the process, store each newest token with it, also that of a read. After a restart pass the
// stored token to Check before any other call.
type Guard struct {
	mu      sync.RWMutex  // Read shares it
	newest  atomic.Uint64 // of all tokens; Do sets it while no other call runs, concurrent Reads raise it
	written uint64        // the newest of Do and Check
}

// Check notes token, and returns a *StaleError if it is older than the newest, ErrNoToken if it is 0. Call it before a
// read of a holder that writes later.
//
// A newer holder may write between Check and a later write: use Do for the write. A reader calls Read instead: Check
// would refuse other readers.
func (g *Guard) Check(token uint64) error {
	return g.Do(token, func() error { return nil })
}

// Do calls write if token is not older than the newest, and returns the error of write. Otherwise it returns a
// *StaleError, or ErrNoToken if token is 0.
//
// Do and all other calls wait for each other, so write must not call methods of g. The token counts as seen even if
// write fails, because it may have changed some of the data.
func (g *Guard) Do(token uint64, write func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := Admit(token, g.newest.Load()); err != nil {
		return err
	}
	g.newest.Store(token)
	g.written = token
	return write()
}

// Read calls read if token is not older than the newest token of Do and Check, and returns the error of read. Otherwise
// it returns a *StaleError, or ErrNoToken if token is 0. From then on g refuses writes with older tokens, even if read
// fails.
//
// Calls of Read run at the same time. They and calls of Do and Check wait for each other, so read must not call methods
// of g, and must change nothing.
func (g *Guard) Read(token uint64, read func() error) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if err := Admit(token, g.written); err != nil {
		return err
	}
	for n := g.newest.Load(); n < token; n = g.newest.Load() {
		g.newest.CompareAndSwap(n, token) // unless another Read has just raised it
	}
	return read()
}

// Newest returns the newest token that g has seen, also in a Read, 0 for none.
func (g *Guard) Newest() uint64 {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.newest.Load()
}

// Guards is a Guard for each of many resources. Its zero value is ready to use, by many goroutines at once. It must not
// be copied. It keeps every name ever passed to For.
type Guards struct{ guards sync.Map }

// For returns the Guard of the resource with that name, the same one each time.
func (g *Guards) For(name string) *Guard {
	if guard, ok := g.guards.Load(name); ok {
		return guard.(*Guard)
	}
	guard, _ := g.guards.LoadOrStore(name, new(Guard))
	return guard.(*Guard)
}
