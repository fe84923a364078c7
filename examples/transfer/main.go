// Transfer moves money between two accounts under a lock on both, and shows what happens to a transfer whose worker is
// stopped in the middle.
//
//	go run ./examples/transfer                                  # needs redis-server; takes 5 s
//	go run ./examples/transfer -nodes host1:6379,host2:6379,... # on nodes of your own
//
// Worker A, a process of its own, locks both accounts, withdraws money from one of them, and is killed before it
// deposits. When A's lock has expired, worker B locks the accounts, sees what A has left half done, takes the money
// back, and makes a transfer of its own in the other direction. Then the same happens again, but A is only paused
// (SIGSTOP). A continues (SIGCONT) after B is done, and tries to deposit the money that B has taken back. The account
// refuses the deposit because A's token is old.
//
// The program ends with status 1 if the sum of the money is not what it was, or if there is no redis-server. Status 2
// means bad flags.
//
// The methods transfer and settle in worker.go show all that a program needs. The bank in bank.go stands for a
// database. The rest is this scene, servers and processes.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/cli"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

const (
	first, second = "account:1", "account:2"

	// balance is what each account has at first.
	balance = 100

	// patience bounds the whole run. A longer run has failed.
	patience = time.Minute
)

func main() {
	logging.Disable() // silences go-redis
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, patience)
	var err error
	if text := os.Getenv(envJob); text != "" {
		err = child(ctx, text, os.Stdin, os.Stdout)
	} else {
		err = command(ctx, os.Args[1:], os.Stdout)
	}
	cancel()
	stop()
	os.Exit(cli.Status("transfer", err, os.Stdout, os.Stderr))
}

func command(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("transfer", flag.ContinueOnError)
	list := flags.String("nodes", "", "`addresses` of Redis nodes, host:port,host:port,... (default: five redis-servers that it starts)")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if *list != "" {
		return run(ctx, strings.Split(*list, ","), out)
	}
	addresses, stop, err := realredis.LaunchAll(5)
	if err != nil {
		return err
	}
	defer stop()
	return run(ctx, addresses, out)
}

// run plays the scene with a worker A that is killed, and with one that is paused.
func run(ctx context.Context, nodes []string, out io.Writer) error {
	for _, fate := range []fate{killed, paused} {
		if _, err := fmt.Fprintf(out, "Worker A is %s in the middle of a transfer:\n", fate); err != nil {
			return err
		}
		if err := play(ctx, nodes, fate, out); err != nil {
			return err
		}
	}
	return nil
}

// A fate is what happens to worker A.
type fate string

const (
	killed fate = "killed" // SIGKILL
	paused fate = "paused" // SIGSTOP, and SIGCONT after B is done
)

// play plays the scene once. It returns an error unless all the money is there at the end.
func play(ctx context.Context, nodes []string, fate fate, out io.Writer) error {
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintf(out, "  "+format+"\n", args...)
	}
	bank := newBank(say)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	go bank.serve(listener)
	j := job{Who: "A", Nodes: nodes, Bank: listener.Addr().String()}

	a, err := start(ctx, j)
	if err != nil {
		return err
	}
	defer a.end()
	if err := a.awaitHalfway(); err != nil {
		return err
	}
	if err := a.stop(fate); err != nil {
		return err
	}
	say("A is %s. B wants both accounts", fate)

	b, closeAll, err := open(ctx, j, "B")
	if err != nil {
		return err
	}
	defer closeAll()
	if err := b.transfer(ctx, second, first, 10); err != nil { // waits until A's lock has expired
		return err
	}

	refused := 0
	if fate == paused {
		say("A goes on")
		if err := a.goOn(); err != nil {
			return err
		}
		refused = 1
	}
	if err := bank.audit(2*balance, refused); err != nil {
		return err
	}
	say("The accounts have %d and %d: %d, as before", bank.accounts[first].Balance, bank.accounts[second].Balance, 2*balance)
	return nil
}

// open returns a worker with connections of its own, and a function that closes them.
func open(ctx context.Context, j job, who string) (*worker, func(), error) {
	conn, err := rpc.Dial("tcp", j.Bank)
	if err != nil {
		return nil, nil, err
	}
	rs, err := redsync.Open(ctx, j.Nodes)
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return &worker{who: who, rs: rs, bank: &client{conn}}, func() {
		rs.Close(context.WithoutCancel(ctx))
		conn.Close()
	}, nil
}
