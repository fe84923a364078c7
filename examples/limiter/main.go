// Limiter shows a semaphore for a fleet of processes: at most three workers call a slow service at once.
//
//	go run ./examples/limiter                                  # needs redis-server; takes 4 s
//	go run ./examples/limiter -nodes host1:6379,host2:6379,... # on nodes of your own
//	go run ./examples/limiter -unlimited                       # the control: without the limiter
//
// Three processes with three workers each call the service again and again. A fourth process is killed in the middle
// of a call. Its part of the limiter is freed when its expiry of two seconds has passed. Then three workers call the
// service at once again.
//
// The limiter has the methods of golang.org/x/sync/semaphore: Acquire, TryAcquire, Release. That semaphore is for the
// goroutines of one process: eight processes with a semaphore of three call the service 24 times at once. It takes
// 100 ns, is never lost, and needs no nodes. Use it if there is only one process. If hundreds of goroutines of one
// process wait, use both: let them acquire that semaphore first, and then this limiter.
//
// What is the same: Acquire waits in the order of the calls, so a large request is not overtaken by small ones, and
// Release panics if nothing is held. What differs:
//
//   - All processes that use the same name and nodes share the size.
//   - What a dead process holds is freed when its expiry has passed. In x/sync the semaphore dies with it.
//   - A held part is lost if the process cannot reach a quorum of nodes until its expiry has passed. Do then ends the
//     context of its function. Use Do if the work can stop halfway.
//   - Each Acquire and Release asks the nodes: a round trip in place of 100 ns. Acquire can fail before ctx is done.
//   - Release gives back what one Acquire has taken. x/sync lets a caller acquire 3 and release 1 and 2.
//   - Acquire of more than the size fails at once. In x/sync it waits until ctx is done.
//   - The size is at most 256.
//
// The program ends with status 1 if more than three workers have called the service at once, or if there is no
// redis-server. Status 2 means bad flags.
//
// limiter.go shows all that a program needs. The rest is this scene, and the service.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
)

const (
	// size is how many workers may call the service at once, in all processes together.
	size = 3

	// expiry is how long a process that has died keeps its part.
	expiry = 2 * time.Second

	// processes is how many processes call the service, without the one that is killed.
	processes = 3

	// workers is how many goroutines a process has.
	workers = 3
)

// errTooMany means that the limiter did not limit.
var errTooMany = errors.New("too many workers called the service at once")

var program = rig.Program{Name: "limiter", Command: command, Child: rig.Child(child)}

func main() { program.Main() }

func command(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("limiter", flag.ContinueOnError)
	unlimited := flags.Bool("unlimited", false, "leave the limiter out")
	nodes, err := rig.WithServers(ctx, flags, args)
	if err != nil {
		return err
	}
	defer nodes.Close()
	slow, err := startService()
	if err != nil {
		return err
	}
	defer slow.close()
	return play(ctx, job{Nodes: nodes.Addresses, Service: slow.addr, Unlimited: *unlimited}, slow, out)
}

// play plays the scene.
func play(ctx context.Context, j job, slow *service, out io.Writer) error {
	await := func(what string, happened func() bool) error { return rig.Await(ctx, &slow.mu, what, happened) }
	busy := func() bool { return slow.now >= size }
	hanging := j
	hanging.Hangs = true
	victim, err := rig.Start(ctx, hanging)
	if err != nil {
		return err
	}
	defer victim.Kill()
	if err := await("the first process calls", func() bool { return slow.hung > 0 }); err != nil {
		return err
	}
	for range processes {
		p, err := rig.Start(ctx, j)
		if err != nil {
			return err
		}
		defer p.Kill()
	}
	if err := await("the service is busy", busy); err != nil {
		return err
	}

	victim.Kill()
	killed := time.Now()
	if err := await("the call of the first process has ended", func() bool { return slow.gone > 0 }); err != nil {
		return err
	}
	if err := await("the service is busy again", busy); err != nil {
		return err
	}
	back := time.Since(killed)
	time.Sleep(expiry / 4) // let the workers continue to call, so that a broken limit would show

	slow.mu.Lock()
	defer slow.mu.Unlock()
	_, err = fmt.Fprintf(out, "%d calls of %d workers in %d processes, up to %d at once; %d at once again %.1f s after a process "+
		"was killed\n", slow.served, processes*workers, processes, slow.most, size, back.Seconds())
	if slow.most > size {
		err = errors.Join(err, errTooMany)
	}
	return err
}

// A job tells a process what to do.
type job struct {
	Nodes     []string
	Service   string
	Hangs     bool // one worker makes a call that never ends
	Unlimited bool // the control: without the limiter
}

// child is the program of a process of the fleet: workers that call the service again and again until ctx is done.
func child(ctx context.Context, j job) error {
	rs, err := redsync.Open(ctx, j.Nodes)
	if err != nil {
		return err
	}
	defer rs.Close(context.WithoutCancel(ctx))
	limiter := newWeighted(rs, "slow-service", size, redsync.WithExpiry(expiry))
	callLimited := func(path string) error {
		if j.Unlimited {
			return call(ctx, j.Service, path)
		}
		return limiter.Do(ctx, 1, func(ctx context.Context) error { return call(ctx, j.Service, path) })
	}
	if j.Hangs {
		return callLimited(hang)
	}
	var group sync.WaitGroup
	errs := make([]error, workers)
	for i := range errs {
		group.Go(func() {
			for errs[i] == nil && ctx.Err() == nil {
				errs[i] = callLimited("/")
			}
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return nil // an error now only says that the time is up
	}
	return errors.Join(errs...)
}
