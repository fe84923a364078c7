package redsynctest

import (
	"context"
	"net"
)

// Dial opens a connection of a process to the node.
func (n *Node) Dial(ctx context.Context) (net.Conn, error) {
	return n.dialer(&network{})(ctx, "tcp", n.server.addr())
}

// ServersEnv is the environment variable for real servers.
const ServersEnv = serversEnv

// Settle waits until the requests of a lock that are under way have been executed.
func (ns *Nodes) Settle(name string) { ns.settle(name) }
