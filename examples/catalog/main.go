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
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
)

const readers = 3

// errHalf means that a reader has seen old and new prices together.
var errHalf = errors.New("a reader has seen half of a reload")

var program = rig.Program{Name: "catalog", Command: command}

func main() { program.Main() }

func command(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("catalog", flag.ContinueOnError)
	unlocked := flags.Bool("unlocked", false, "leave the lock out")
	runFor := flags.Duration("for", 3*time.Second, "how long to run; more than 0")
	nodes, err := rig.WithInside(flags, args)
	if err != nil {
		return err
	}
	defer nodes.Close()
	if *runFor <= 0 {
		return cli.Misusef("-for must be more than 0, not %v", *runFor)
	}
	return run(ctx, *runFor, *unlocked, nodes, out)
}

// run lets readers and a writer work for a while, and prints what they have done. Each of them has a Redsync
// of its own.
func run(ctx context.Context, runFor time.Duration, unlocked bool, nodes *rig.Nodes, out io.Writer) error {
	shelf := &shelf{}
	var works []func(context.Context) error
	for i := range readers + 1 {
		rs, err := nodes.Open(ctx)
		if err != nil {
			return err
		}
		defer rs.Close(context.WithoutCancel(ctx))
		c := &client{rs, shelf}
		switch isWriter := i == readers; {
		case isWriter && unlocked:
			works = append(works, func(ctx context.Context) error { shelf.write(ctx); shelf.check(ctx); return nil })
		case isWriter:
			works = append(works, c.reload)
		case unlocked:
			works = append(works, func(ctx context.Context) error { shelf.look(ctx); return nil })
		default:
			works = append(works, c.read)
		}
	}
	working, stop := context.WithTimeout(ctx, runFor)
	defer stop()
	var group sync.WaitGroup
	errs := make([]error, len(works))
	for i, work := range works {
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
