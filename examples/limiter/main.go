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
// The program ends with status 1 if more than three workers have called the service at once, or if there is no
// redis-server. Status 2 means bad flags.
//
// limiter.go shows all that a program needs. The rest is this scene, servers and processes.
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
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/cli"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// patience bounds the whole run. A longer run has failed.
const patience = time.Minute

// processes is how many processes call the service, without the one that is killed.
const processes = 3

func main() {
	logging.Disable() // silences go-redis
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, patience)
	var err error
	if text := os.Getenv(envJob); text != "" {
		err = child(ctx, text)
	} else {
		err = command(ctx, os.Args[1:], os.Stdout)
	}
	cancel()
	stop()
	os.Exit(cli.Status("limiter", err, os.Stdout, os.Stderr))
}

// errTooMany means that the limiter did not limit.
var errTooMany = errors.New("too many workers called the service at once")

func command(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("limiter", flag.ContinueOnError)
	list := flags.String("nodes", "", "`addresses` of Redis nodes, host:port,host:port,... (default: five redis-servers that it starts)")
	unlimited := flags.Bool("unlimited", false, "leave the limiter out")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if *list != "" {
		return run(ctx, job{Nodes: strings.Split(*list, ","), Unlimited: *unlimited}, out)
	}
	addresses, stop, err := realredis.LaunchAll(5)
	if err != nil {
		return err
	}
	defer stop()
	return run(ctx, job{Nodes: addresses, Unlimited: *unlimited}, out)
}

// run plays the scene.
func run(ctx context.Context, j job, out io.Writer) error {
	rs, err := redsync.Open(ctx, j.Nodes) // only to check that the nodes can be reached
	if err != nil {
		return err
	}
	defer rs.Close(context.WithoutCancel(ctx))
	slow, err := startService()
	if err != nil {
		return err
	}
	defer slow.close()
	j.Service = slow.addr

	hanging := j
	hanging.Hangs = true
	victim, err := start(ctx, hanging)
	if err != nil {
		return err
	}
	defer victim.kill()
	if err := slow.await(ctx, "the first process calls", func() bool { return slow.hung > 0 }); err != nil {
		return err
	}
	for range processes {
		p, err := start(ctx, j)
		if err != nil {
			return err
		}
		defer p.kill()
	}
	busy := func() bool { return slow.now >= size }
	if err := slow.await(ctx, "the service is busy", busy); err != nil {
		return err
	}

	victim.kill()
	killed := time.Now()
	if err := slow.await(ctx, "the call of the first process has ended", func() bool { return slow.gone > 0 }); err != nil {
		return err
	}
	if err := slow.await(ctx, "the service is busy again", busy); err != nil {
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
