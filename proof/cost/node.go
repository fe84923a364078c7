package cost

import (
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// Nodes are Redis nodes without a network. They answer inside Send and allocate nothing, so that every allocation is
// the library's. They grant everything, unless they are taken or exclusive.
type Nodes struct {
	taken     bool         // every plain acquire is refused
	refusing  int          // this many nodes, the first ones, refuse every plain acquire
	exclusive bool         // a plain lock is refused while another value has it; all locks have one name
	sent      atomic.Int64 // commands
}

// pools returns pools of n nodes. The first one has the number from: pools with the same number lead to one server.
func (ns *Nodes) pools(n, from int) []wire.Pool {
	pools := make([]wire.Pool, n)
	for i := range pools {
		id := strconv.Itoa(from + i)
		refuses := i < ns.refusing
		token := []any{zero, "", one}
		pools[i] = &node{of: ns, name: "node " + id, server: &wire.Server{RunID: "run " + id}, token: token, fenced: token, refuses: refuses}
	}
	return pools
}

// A node is one of Nodes.
type node struct {
	of     *Nodes
	name   string
	server *wire.Server
	token  []any // the reply to a fenced acquire; its second element is the token of the request
	fenced any   // token, in the type of a reply

	refuses bool // every plain acquire

	mu     sync.Mutex // guards holder
	holder any        // the value of the lock, if the nodes are exclusive; nil while it is free
}

// Replies, in the type that they have in wire.Reply, so that no reply allocates.
var (
	ok    any = "OK"
	zero  any = int64(0)  // granted, or missing
	one   any = int64(1)  // the caller's value
	two   any = int64(2)  // another value
	never any = int64(-1) // refused, until a release
)

// Send implements wire.Pool.
func (n *node) Send(q wire.Request) error {
	n.of.sent.Add(1)
	q.To.Receive(q.Tag, wire.Reply{Fate: wire.Answered, Conn: 1, Server: n.server, Value: n.answer(q.Args)})
	return nil
}

// answer tells scripts apart by their arguments: those of an acquire are the value, the TTL and more, those of an
// extension are the value and the TTL. Any other script is a release.
func (n *node) answer(command []any) any {
	switch command[0] {
	case "ping":
		return ok
	case "set":
		if n.refuses {
			return nil
		}
		return n.set(command[2])
	}
	args := command[3+command[2].(int):] // behind the name, the hash of the script, the number of keys, and the keys
	hasTTL := false
	if len(args) > 1 {
		_, hasTTL = args[1].(int64)
	}
	switch {
	case hasTTL && len(args) == 7: // an acquire with a fencing token
		n.token[1] = args[5]
		return n.fenced
	case hasTTL && len(args) > 2 && n.set(args[0]) != nil:
		return zero
	case hasTTL && len(args) > 2:
		return never
	case !hasTTL && n.of.exclusive:
		return n.release(args[0])
	}
	return one
}

func (n *node) set(value any) any {
	switch {
	case n.of.taken:
		return nil
	case !n.of.exclusive:
		return ok
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.holder != nil {
		return nil
	}
	n.holder = value
	return ok
}

func (n *node) release(value any) any {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch n.holder {
	case value:
		n.holder = nil
		return one
	case nil:
		return zero
	}
	return two
}

// CloseIdle implements wire.Pool.
func (n *node) CloseIdle() {}

// Close implements wire.Pool.
func (n *node) Close() error { return nil }

// String implements wire.Pool.
func (n *node) String() string { return n.name }

// MetBefore says that the node's identity is known, so that the first Lock does not ask for it.
func (n *node) MetBefore() bool { return true }

// Destination returns the name of the node. Pools of one node, in both sets of a joint Redsync, are one.
func (n *node) Destination() any { return n.name }
