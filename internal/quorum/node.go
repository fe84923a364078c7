package quorum

import (
	"errors"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// A Node is one independent Redis.
type Node struct {
	wire.Pool
	Index int

	usable   bool
	listed   string      // what stands for it in a list of addresses: see wire.Pool
	linked   wire.Linked // nil if the pool is none
	modern   wire.Modern // nil if the pool is none
	keyspace any         // see Keyspace

	guard
	denials
}

func newNode(i int, p wire.Pool, t *tenant) *Node {
	n := &Node{Pool: p, Index: i, guard: guard{tenant: t}}
	if n.usable = Unusable(p) == nil; n.usable {
		n.listed, n.keyspace = p.String(), Keyspace(p)
		if known, ok := p.(wire.Listed); ok {
			n.listed = known.Listed()
		}
	}
	n.linked, _ = p.(wire.Linked)
	n.modern, _ = p.(wire.Modern)
	if guarded, ok := p.(wire.Guarded); ok {
		n.covers = guarded.RestartGuard()
	}
	return n
}

// Address returns what the pool calls the node, "" if the pool is unusable.
func (n *Node) Address() string {
	if !n.usable {
		return ""
	}
	return n.String()
}

// Keyspace returns a value that is equal for pools with the same keys on one server, nil if p does not tell.
func Keyspace(p wire.Pool) any {
	if known, ok := p.(wire.Keyed); ok {
		return known.Keyspace()
	}
	return nil
}

// Native returns the native command for c that n may be sent now, or 0.
func (n *Node) Native(c *script.Command) wire.Native {
	if n.modern == nil {
		return 0
	}
	may, proved := n.modern.Natives()
	if may == 0 {
		return 0
	}
	return c.Native(may, proved)
}

// ScriptForm returns the form in which n takes scripts.
func (n *Node) ScriptForm() Form {
	if n.LacksSHA() {
		return InFull
	}
	return BySHA
}

// IsClosed reports whether the user has closed the client of n.
func (n *Node) IsClosed() bool {
	c, ok := n.Pool.(wire.Closable)
	return ok && c.ClientClosed()
}

func (n *Node) silent() time.Duration {
	if p, ok := n.Pool.(wire.Waiting); ok {
		return p.Silent()
	}
	return 0
}

// Unusable returns why p can never serve, nil if it may.
func Unusable(p wire.Pool) error {
	if p == nil {
		return errors.New("it is nil")
	}
	if known, ok := p.(wire.Failing); ok {
		return known.Err()
	}
	return nil
}
