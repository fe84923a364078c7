package fencing

import "sync"

// A Guard guards one resource inside the process. Its zero value is ready to use, by many
// goroutines at once. It must not be copied.
//
// It forgets its token when the process ends. Where the data stays, store the token along
// with it, and Check it after the start before anything else.
type Guard struct {
	mu     sync.Mutex
	newest uint64
}

// Check notes token, and returns a *StaleError if it is older than the newest, ErrNoToken
// if it is 0. An equal one is in order.
//
// A write that follows is not one step with it: between the two a newer holder may write.
// Check is for before a read, and for a resource with one writer at a time; else use Do.
func (g *Guard) Check(token uint64) error {
	return g.Do(token, func() error { return nil })
}

// Do calls write if token is not older than the newest, and returns its error. Otherwise
// it does not call it, and returns a *StaleError, or ErrNoToken for 0. An equal token is
// in order.
//
// Calls of Do and Check wait for each other, so write must not call them. The token counts
// as seen also if write fails: some of it may have happened.
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
// goroutines at once. It must not be copied. It keeps every name that it has been asked
// for.
type Guards struct{ guards sync.Map }

// For returns the Guard of the resource name: always the same one.
func (g *Guards) For(name string) *Guard {
	if guard, ok := g.guards.Load(name); ok {
		return guard.(*Guard)
	}
	guard, _ := g.guards.LoadOrStore(name, new(Guard))
	return guard.(*Guard)
}
