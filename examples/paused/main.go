// Paused shows what no lock with an expiry can prevent, and what a fencing token does
// about it.
//
//	go run ./examples/paused     # needs redis-server; takes 5 s
//
// It starts five redis-servers for the lock and a sixth for the data, on free loopback ports, and
// two holders as processes of their own. A holds the lock, sees that there is time left, and is
// about to write. At that moment SIGSTOP stops A, as a garbage collection, a full disk or a moved
// virtual machine would. A's lock expires, B acquires it, and writes. Then SIGCONT continues A,
// and A writes.
//
// With this library and a guard at the data, A's write is refused. The control is redsync v4,
// which has no tokens: A's write succeeds, and B's is overwritten unnoticed. The program ends
// with status 1 if the outcome differs, or if there is no redis-server.
//
// fenced.go shows all that a program needs. The rest is this scene, and the control.
package main

import (
	"context"
	"errors"
	"flag"
	"io"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
)

const (
	nodes   = 5
	servers = nodes + 1 // the last server holds the data
)

var program = rig.Program{Name: "paused", Command: command, Child: rig.Child(hold)}

func main() { program.Main() }

// command has no flags. It plays the scene with each library, and returns an error if it does not end as it should.
func command(ctx context.Context, args []string, out io.Writer) error {
	if err := cli.Parse(flag.NewFlagSet("paused", flag.ContinueOnError), args); err != nil {
		return err
	}
	all, err := rig.Servers(servers)
	if err != nil {
		return err
	}
	defer all.Close()
	timeline := rig.NewTimeline(out)
	timeline.Say("This library, and fencing.Redis where the data is:")
	o, err := play(ctx, thisLibrary, all.Addresses, timeline.Say)
	switch {
	case err != nil:
		return err
	case !o.refused() || o.Data != "written by B":
		return errors.New("the write of the paused holder was not refused")
	}
	timeline.Say("The control: redsync v4, which has no tokens, and SET:")
	o, err = play(ctx, redsyncV4, all.Addresses, timeline.Say)
	switch {
	case err != nil:
		return err
	case o.refused() || o.Data != "written by A":
		return errors.New("the control: the write of the paused holder did not go through")
	}
	return nil
}
