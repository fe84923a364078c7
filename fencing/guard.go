package fencing

import "sync"

// A Guard guards one resource inside the process. Its zero value is ready to use, by many
// goroutines at once. It must not be copied.
//
// A Guard forgets its token when the process ends. If the data outlives the process, store the
// token with the data, and after a restart pass it to Check before any other call.
type Guard struct {
	mu     sync.Mutex
	newest uint64
}

// Check notes token, and returns a *StaleError if it is older than the newest, ErrNoToken if it
// is 0. An equal token is admitted.
//
// Check and a later write are not one atomic step: a newer holder may write in between. Use Check
// before a read, or for a resource with one writer at a time. Otherwise use Do.
func (g *Guard) Check(token uint64) error {
	return g.Do(token, func() error { return nil })
}

// Do calls write if token is not older than the newest, and returns the error of write. Otherwise
// it does not call write, and returns a *StaleError, or ErrNoToken if token is 0. An equal token
// is admitted.
//
// Calls of Do and Check wait for each other, so write must not call them. The token counts as
// seen even if write fails, because write may have changed some of the data.
func (g *Guard) Do(token uint64, write func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := Admit(token, g.newest); err != nil {
		return err
	}
	g.newest = token
	return write()
}

// Newest returns the newest token that g has seen, 0 for none.
func (g *Guard) Newest() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.newest
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
