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
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/seed14bd9ef4/redsync/internal/cli"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

const (
	nodes   = 5
	servers = nodes + 1 // the last server holds the data

	// patience bounds the whole run. A longer run has failed.
	patience = 2 * time.Minute
)

func main() {
	logging.Disable() // silences go-redis
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, cancel := context.WithTimeout(ctx, patience)
	var err error
	if text := os.Getenv(envJob); text != "" {
		err = hold(ctx, text, os.Stdin, os.Stdout)
	} else {
		err = command(ctx, os.Args[1:], os.Stdout)
	}
	cancel()
	stop()
	os.Exit(cli.Status("paused", err, os.Stdout, os.Stderr))
}

// command is the program. It has no flags.
func command(ctx context.Context, args []string, out io.Writer) error {
	if err := cli.Parse(flag.NewFlagSet("paused", flag.ContinueOnError), args); err != nil {
		return err
	}
	return run(ctx, out)
}

// run starts the servers, and plays the scene with both libraries.
func run(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "paused")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var addresses []string
	for i := range servers {
		s, err := launch(filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			return err
		}
		defer s.Kill()
		addresses = append(addresses, s.Addr())
	}
	return playBoth(ctx, addresses, out)
}

func launch(dir string) (*realredis.Server, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return realredis.Launch(dir)
}

// playBoth plays the scene with each library, and returns an error if it does not end as
// it should.
func playBoth(ctx context.Context, addresses []string, out io.Writer) error {
	_, _ = fmt.Fprintln(out, "This library, and fencing.Redis where the data is:")
	o, err := play(ctx, thisLibrary, addresses, out)
	switch {
	case err != nil:
		return err
	case !o.refused() || o.Data != "written by B":
		return errors.New("the write of the paused holder was not refused")
	}
	_, _ = fmt.Fprintln(out, "\nThe control: redsync v4, which has no tokens, and SET:")
	o, err = play(ctx, redsyncV4, addresses, out)
	switch {
	case err != nil:
		return err
	case o.refused() || o.Data != "written by A":
		return errors.New("the control: the write of the paused holder did not go through")
	}
	return nil
}
