// Package puppet provides a pool.Pool whose replies a test decides.
package puppet

import (
	"sync"

	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A Puppet is a pool.Pool. Answer returns the reply to a request, or nil for no reply, or an
// error for Send to return.
type Puppet struct {
	Answer func(req pool.Request) (*pool.Reply, error)

	mu   sync.Mutex // guards sent
	sent []pool.Request
}

// Send implements pool.Pool.
func (p *Puppet) Send(req pool.Request) error {
	p.mu.Lock()
	p.sent = append(p.sent, req)
	p.mu.Unlock()
	reply, err := p.Answer(req)
	if reply != nil {
		go req.To.Receive(req.Tag, *reply)
	}
	return err
}

// CloseIdle implements pool.Pool.
func (p *Puppet) CloseIdle() {}

// Close implements pool.Pool.
func (p *Puppet) Close() error { return nil }

// String implements pool.Pool.
func (p *Puppet) String() string { return "puppet" }

// Sent returns the requests sent so far.
func (p *Puppet) Sent() []pool.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent[:len(p.sent):len(p.sent)]
}

// Count returns how many of the requests sent so far have the command called name.
func (p *Puppet) Count(name string) (n int) {
	for _, req := range p.Sent() {
		if req.Args[0] == name {
			n++
		}
	}
	return n
}

// Yes is the Answer of a node on which everything succeeds.
func Yes(req pool.Request) (*pool.Reply, error) {
	if req.Args[0] == "set" {
		return &pool.Reply{Value: "OK", Fate: pool.Answered, Conn: 1}, nil
	}
	return &pool.Reply{Value: script.Mine, Fate: pool.Answered, Conn: 1}, nil
}
