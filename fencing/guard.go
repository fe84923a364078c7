package fencing

import (
	"sync"
	"sync/atomic"
)

// A Guard guards one resource inside the process. Its zero value is ready to use, by many
// goroutines at once. It must not be copied.
//
// A Guard forgets its tokens when the process ends. If the data outlives the process, store each
// newest token with the data, also if it is the token of a read. After a restart pass the stored
// token to Check before any other call.
type Guard struct {
	mu      sync.RWMutex  // Read shares it
	newest  atomic.Uint64 // of all tokens; Do sets it while no other call runs, concurrent Reads raise it
	written uint64        // the newest of Do and Check
}

// Check notes token, and returns a *StaleError if it is older than the newest, ErrNoToken if it
// is 0. An equal token is admitted.
//
// Check and a later write are not one atomic step: a newer holder may write in between. Use Check
// before a read of a holder that writes later, or for a resource with one writer at a time.
// Otherwise use Do. A reader calls Read instead: Check would refuse the other readers.
func (g *Guard) Check(token uint64) error {
	return g.Do(token, func() error { return nil })
}

// Do calls write if token is not older than the newest, and returns the error of write. Otherwise
// it does not call write, and returns a *StaleError, or ErrNoToken if token is 0. An equal token
// is admitted.
//
// Do waits for all other calls, and they wait for Do, so write must not call methods of g. The
// token counts as seen even if write fails, because write may have changed some of the data.
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

// Read calls read if token is not older than the newest token of Do and Check, and returns the
// error of read. Otherwise it does not call read, and returns a *StaleError, or ErrNoToken if token
// is 0. From then on g refuses writes with older tokens, even if read fails.
//
// Calls of Read run at the same time. Do and Check wait for them, and they wait for Do and Check,
// so read must not call methods of g, and must change nothing.
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

// Newest returns the newest token that g has seen, also in a Read. It returns 0 if g has seen none.
func (g *Guard) Newest() uint64 {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.newest.Load()
}

// Guards is a Guard for each of many resources. Its zero value is ready to use, by many
// goroutines at once. It must not be copied. It keeps every name ever passed to For.
type Guards struct{ guards sync.Map }

// For returns the Guard of the resource with that name: the same Guard each time.
func (g *Guards) For(name string) *Guard {
	if guard, ok := g.guards.Load(name); ok {
		return guard.(*Guard)
	}
	guard, _ := g.guards.LoadOrStore(name, new(Guard))
	return guard.(*Guard)
}
