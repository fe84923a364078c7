package redsynctest

import (
	"context"
	"net"
)

// Dial opens a connection of a process to the node.
func (n *Node) Dial(ctx context.Context) (net.Conn, error) {
	return n.dial(ctx, "tcp", n.server.addr())
}

// ServersEnv is the environment variable for real servers.
const ServersEnv = serversEnv
