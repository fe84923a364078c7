// Leader shows three processes of which one leads, and what happens when a leader dies, is stopped, or resigns.
//
//	go run ./examples/leader                                  # needs redis-server; takes 10 s
//	go run ./examples/leader -nodes host1:6379,host2:6379,... # on nodes of your own
//	go run ./examples/leader -unfenced                        # the control: the journal does not look at the term
//
// The leader writes entries into a journal. The first leader is killed (SIGKILL). When its expiry of four seconds has
// passed, another one leads. The second leader is stopped in the middle of an entry (SIGSTOP), until a third one leads.
// Then the second continues (SIGCONT), and writes its entry with the number of its old term. The journal refuses the
// entry. The process learns that it no longer leads, and becomes a candidate again. When the third leader resigns, the
// second leads again at once.
//
// The program prints a timeline. It ends with status 1 if the journal has an entry of an old term after one of a newer
// term, or if there is no redis-server. Status 2 means bad flags.
//
// candidate.go shows all that a program needs. The journal in journal.go stands for a database. The rest is this scene.
package main

import (
	"context"
	"flag"
	"io"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
)

var program = rig.Program{Name: "leader", Command: command, Child: rig.Child(child)}

func main() { program.Main() }

func command(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("leader", flag.ContinueOnError)
	unfenced := flags.Bool("unfenced", false, "let the journal accept entries of old terms")
	nodes, err := rig.WithServers(ctx, flags, args)
	if err != nil {
		return err
	}
	defer nodes.Close()
	return play(ctx, nodes.Addresses, newJournal(*unfenced, out))
}
