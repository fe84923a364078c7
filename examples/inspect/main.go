// Inspect prints who holds a lock, who waits for it, and which nodes are silent or have something else.
//
//	go run ./examples/inspect                                                  # a scene on five nodes inside the process
//	go run ./examples/inspect -nodes host1:6379,host2:6379,... -name orders:17 # a lock of yours; this changes nothing
//
// In the scene one process holds the lock, another one waits for it, one node has lost the key, and one node is off.
//
// The program ends with status 1 if too few nodes answer to tell who holds the lock. Status 2 means bad flags.
//
// show in inspect.go has all that a program needs.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
	"github.com/seed14bd9ef4/redsync/pool"
)

var program = rig.Program{Name: "inspect", Command: command}

func main() { program.Main() }

func command(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("inspect", flag.ContinueOnError)
	name := flags.String("name", "orders:17", "`name` of the lock; not empty")
	nodes, err := rig.WithInside(flags, args)
	if err != nil {
		return err
	}
	defer nodes.Close()
	if *name == "" {
		return cli.Misusef("-name %q is out of range: it must not be empty", *name)
	}
	if nodes.Off != nil { // they are inside the process
		return play(ctx, nodes, *name, out)
	}
	return look(ctx, nodes, *name, out)
}

// look shows the lock to a process of its own. It calls New, because Open fails without a quorum: then Inspect still says what
// the other nodes have.
func look(ctx context.Context, nodes *rig.Nodes, name string, out io.Writer) error {
	var pools []pool.Pool
	for _, client := range nodes.Clients {
		pools = append(pools, pool.New(client))
	}
	rs := redsync.New(pools...)
	defer rs.Close(context.WithoutCancel(ctx))
	return show(ctx, rs, name, out)
}

// play plays the scene, and looks at it.
func play(ctx context.Context, nodes *rig.Nodes, name string, out io.Writer) error {
	holder, err := nodes.Open(ctx, redsync.WithOwner("worker-7@host-a"), redsync.WithWatchdog())
	if err != nil {
		return err
	}
	defer holder.Close(context.WithoutCancel(ctx))
	if err := holder.NewMutex(name).LockContext(ctx); err != nil {
		return err
	}
	waiter, err := nodes.Open(ctx, redsync.WithOwner("worker-8@host-b"), redsync.WithTries(0))
	if err != nil {
		return err
	}
	defer waiter.Close(context.WithoutCancel(ctx))
	waiting, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	group.Go(func() { _ = waiter.NewMutex(name).LockContext(waiting) }) // it ends with waiting
	if err := awaitWaiter(ctx, holder.NewMutex(name)); err != nil {
		return err
	}
	if err := nodes.Clients[3].Del(ctx, name).Err(); err != nil {
		return err
	}
	nodes.Off(4)
	return look(ctx, nodes, name, out)
}

// awaitWaiter waits until somebody stands in the queue of m.
func awaitWaiter(ctx context.Context, m *redsync.Mutex) error {
	for range 1000 {
		s, err := m.Inspect(ctx)
		if err != nil || len(s.Waiters) > 0 {
			return err
		}
		rig.Sleep(ctx, 10*time.Millisecond)
	}
	return errors.New("nobody has begun to wait")
}
