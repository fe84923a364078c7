// Package scripted provides a wire.Pool whose replies a test decides.
package scripted

import (
	"sync"

	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// A Node is a wire.Pool. Answer returns the reply to a request, or nil for no reply, or an
// error for Send to return.
type Node struct {
	Answer func(req wire.Request) (*wire.Reply, error)

	mu   sync.Mutex // guards sent
	sent []wire.Request
}

// Send implements wire.Pool.
func (p *Node) Send(req wire.Request) error {
	p.mu.Lock()
	p.sent = append(p.sent, req)
	p.mu.Unlock()
	reply, err := p.Answer(req)
	if reply != nil {
		go req.To.Receive(req.Tag, *reply)
	}
	return err
}

// CloseIdle implements wire.Pool.
func (p *Node) CloseIdle() {}

// Close implements wire.Pool.
func (p *Node) Close() error { return nil }

// String implements wire.Pool.
func (p *Node) String() string { return "scripted" }

// Sent returns the requests sent so far.
func (p *Node) Sent() []wire.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent[:len(p.sent):len(p.sent)]
}

// Count returns how many of the requests sent so far have the command called name.
func (p *Node) Count(name string) (n int) {
	for _, req := range p.Sent() {
		if req.Args[0] == name {
			n++
		}
	}
	return n
}

// Yes is the Answer of a node on which everything succeeds.
func Yes(req wire.Request) (*wire.Reply, error) {
	if req.Args[0] == "set" {
		return &wire.Reply{Value: "OK", Fate: wire.Answered, Conn: 1}, nil
	}
	return &wire.Reply{Value: script.Mine, Fate: wire.Answered, Conn: 1}, nil
}
