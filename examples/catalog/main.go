// Catalog shows readers and a writer of one lock. Several readers read the prices of a catalog again and
// again. A writer replaces the prices one by one, so without the lock a reader could see old and new prices
// together.
//
//	go run ./examples/catalog                                  # five nodes inside the process, 3 s
//	go run ./examples/catalog -nodes host1:6379,host2:6379,... # on nodes of your own
//	go run ./examples/catalog -unlocked                        # the control: without the lock
//
// Each reader has connections of its own, like a separate process. The writer downgrades its lock after the
// reload: it checks the new prices as a reader, and the others read them at the same time.
//
// The program ends with status 1 if a reader has seen half of a reload. Status 2 means bad flags.
//
// The methods read and reload in catalog.go show all that a program needs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/cli"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

const readers = 3

func main() {
	logging.Disable() // silences go-redis
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := cli.Status("catalog", command(ctx, os.Args[1:], os.Stdout), os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// errHalf means that a reader has seen old and new prices together.
var errHalf = errors.New("a reader has seen half of a reload")

func command(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("catalog", flag.ContinueOnError)
	list := flags.String("nodes", "", "`addresses` of Redis nodes, host:port,host:port,... (default: five nodes inside the process)")
	unlocked := flags.Bool("unlocked", false, "leave the lock out")
	runFor := flags.Duration("for", 3*time.Second, "how long to run; more than 0")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if *runFor <= 0 {
		return cli.Misusef("-for must be more than 0, not %v", *runFor)
	}
	var open func() (*redsync.Redsync, error)
	if *list != "" {
		open = func() (*redsync.Redsync, error) { return redsync.Open(ctx, strings.Split(*list, ",")) }
	} else {
		nodes := redsynctest.New(5)
		defer nodes.Close()
		open = func() (*redsync.Redsync, error) { return nodes.Process(), nil }
	}
	return run(ctx, *runFor, *unlocked, open, out)
}

// run lets readers and a writer work for a while, and prints what they have done. Each of them has a Redsync
// of its own.
func run(ctx context.Context, runFor time.Duration, unlocked bool, open func() (*redsync.Redsync, error), out io.Writer) error {
	var clients []*client
	defer func() {
		for _, c := range clients {
			_ = c.rs.Close(context.WithoutCancel(ctx))
		}
	}()
	shelf := &catalog{}
	for range readers + 1 {
		rs, err := open()
		if err != nil {
			return err
		}
		clients = append(clients, &client{rs: rs, catalog: shelf, unlocked: unlocked})
	}
	working, stop := context.WithTimeout(ctx, runFor)
	defer stop()
	var group sync.WaitGroup
	errs := make([]error, len(clients))
	for i, c := range clients {
		work := c.read
		if i == readers {
			work = c.reload
		}
		group.Go(func() {
			for errs[i] == nil && working.Err() == nil {
				errs[i] = work(working)
			}
			if working.Err() != nil { // an error now only says that the time was up
				errs[i] = nil
			}
			stop()
		})
	}
	group.Wait()
	_, err := fmt.Fprintf(out, "%d reads, up to %d at once; %d reloads, %d reads beside the downgraded writer; "+
		"reads that saw half of a reload: %d\n",
		shelf.reads.Load(), shelf.most.Load(), shelf.reloads.Load(), shelf.early.Load(), shelf.halves.Load())
	if shelf.halves.Load() > 0 {
		err = errors.Join(err, errHalf)
	}
	return errors.Join(append(errs, err)...)
}
