// Leader shows three processes of which one leads, and what happens when a leader dies, is stopped, or resigns.
//
//	go run ./examples/leader                                  # needs redis-server; takes 6 s
//	go run ./examples/leader -nodes host1:6379,host2:6379,... # on nodes of your own
//	go run ./examples/leader -unfenced                        # the control: the journal does not look at the term
//
// The leader writes entries into a journal. The first leader is killed (SIGKILL). When its expiry of two seconds has
// passed, another one leads. The second leader is stopped in the middle of an entry (SIGSTOP), until a third one leads.
// Then the second continues (SIGCONT), and writes its entry with the number of its old term. The journal refuses the
// entry. The process learns that it no longer leads, and becomes a candidate again. When the third leader resigns, the
// second leads again at once.
//
// The program prints a timeline. It ends with status 1 if the journal has an entry of an old term after one of a newer
// term, or if there is no redis-server. Status 2 means bad flags.
//
// candidate.go shows all that a program needs. The journal in journal.go stands for a database. The rest is this scene,
// servers and processes.
package main

import (
	"context"
	"flag"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/seed14bd9ef4/redsync/internal/cli"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// patience bounds the whole run. A longer run has failed.
const patience = time.Minute

func main() {
	logging.Disable() // silences go-redis
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, patience)
	var err error
	if text := os.Getenv(envJob); text != "" {
		err = child(ctx, text, os.Stdin)
	} else {
		err = command(ctx, os.Args[1:], os.Stdout)
	}
	cancel()
	stop()
	os.Exit(cli.Status("leader", err, os.Stdout, os.Stderr))
}

func command(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("leader", flag.ContinueOnError)
	list := flags.String("nodes", "", "`addresses` of Redis nodes, host:port,host:port,... (default: five redis-servers that it starts)")
	unfenced := flags.Bool("unfenced", false, "let the journal accept entries of old terms")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if *list != "" {
		return play(ctx, strings.Split(*list, ","), *unfenced, out)
	}
	addresses, stop, err := realredis.LaunchAll(5)
	if err != nil {
		return err
	}
	defer stop()
	return play(ctx, addresses, *unfenced, out)
}
