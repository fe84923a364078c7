// Replacing shows how to change the nodes of a fleet while it locks: in two deployments, with a wait
// after each. It follows docs/replacing-nodes.md.
//
//	go run ./examples/replacing                          # node 6 in place of node 5; takes 12 s
//	go run ./examples/replacing -after 6,7,8,9,10        # all nodes move
//	go run ./examples/replacing -before 1,2,3 -after 1,2,3,4,5
//	go run ./examples/replacing -wrong                   # in one deployment: two holders of one lock
//
// It starts a redis-server for each node on a free loopback port, or nodes inside the process where there is no
// redis-server. Each process of the fleet has a Redsync and connections of its own, and locks all the time. A
// deployment replaces one process after the other. The last process that it replaces ends without unlocking, so
// its keys outlive it. The wait lasts until they have expired. Requests arrive up to 2 ms late, as in a network.
//
// The program checks that a lock never has two holders, and that fencing tokens rise. It ends with status 1 if a
// check fails, or if a lock or a queue is left on a node before it is switched off. With -wrong it ends with
// status 1 if no lock had two holders. Status 2 means bad flags.
//
// change.go shows what changes in a program (connect), and what its operator does (rightWay).
package main

import (
	"context"
	"io"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
)

var program = rig.Program{Name: "replacing", Command: command}

func main() { program.Main() }

func command(ctx context.Context, args []string, out io.Writer) error {
	cfg, err := parseFlags(args)
	if err != nil {
		return err
	}
	n, err := startNodes(cfg.numbers())
	if err != nil {
		return err
	}
	defer n.Close()
	return play(ctx, cfg, n, out)
}
