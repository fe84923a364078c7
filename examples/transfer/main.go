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
// transfer.go and settle.go show all that a program needs. The bank in bank.go stands for a database. The rest is this
// scene.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/rpc"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
)

var program = rig.Program{Name: "transfer", Command: command, Child: rig.Child(child)}

func main() { program.Main() }

func command(ctx context.Context, args []string, out io.Writer) error {
	nodes, err := rig.WithServers(ctx, flag.NewFlagSet("transfer", flag.ContinueOnError), args)
	if err != nil {
		return err
	}
	defer nodes.Close()
	timeline := rig.NewTimeline(out)
	timeline.Say("Worker A is killed in the middle of a transfer:")
	if err := play(ctx, nodes.Addresses, false, timeline.Say); err != nil {
		return err
	}
	timeline.Say("Worker A is paused in the middle of a transfer:")
	return play(ctx, nodes.Addresses, true, timeline.Say)
}

// play plays the scene once, with a worker A that is killed or paused. It returns an error unless all the money is there
// at the end.
func play(ctx context.Context, nodes []string, paused bool, say func(format string, args ...any)) error {
	bank := newBank(say)
	address, closeBank, err := rig.Serve(bank)
	if err != nil {
		return err
	}
	defer closeBank()
	a, err := rig.Start(ctx, job{nodes, address})
	if err != nil {
		return err
	}
	defer a.Kill()
	if line := a.Line(); line != isHalfway {
		return fmt.Errorf("worker A: %s", line)
	}
	if paused {
		err = a.Pause()
		say("A is paused. B wants both accounts")
	} else {
		a.Kill()
		say("A is killed. B wants both accounts")
	}
	if err != nil {
		return err
	}

	b, closeAll, err := open(ctx, job{nodes, address}, "B")
	if err != nil {
		return err
	}
	defer closeAll()
	if err := b.transfer(ctx, second, first, 10); err != nil { // waits until A's lock has expired
		return err
	}

	refused := 0
	if paused {
		say("A goes on")
		if err := errors.Join(a.Resume(), a.Go()); err != nil {
			return err
		}
		if line := a.Line(); line == isDone || line == "" {
			return errors.New("worker A has finished its transfer")
		}
		refused = 1
	}
	if err := bank.audit(2*balance, refused); err != nil {
		return err
	}
	say("The accounts have %d and %d: %d, as before", bank.accounts[first].Balance, bank.accounts[second].Balance, 2*balance)
	return nil
}

// A job tells worker A which nodes and which bank it has.
type job struct {
	Nodes []string
	Bank  string
}

// What worker A tells, besides the text of an error.
const (
	isHalfway = "halfway"
	isDone    = "done"
)

// child is the program of worker A: one transfer. In the middle it tells so, and waits.
func child(ctx context.Context, j job) error {
	w, closeAll, err := open(ctx, j, "A")
	if err == nil {
		defer closeAll()
		w.halfway = func() error {
			rig.Tell(isHalfway)
			return rig.Ready()
		}
		err = w.transfer(ctx, first, second, 30)
	}
	if err != nil {
		rig.Tell(err)
		return nil
	}
	rig.Tell(isDone)
	return nil
}

// open returns a worker with connections of its own, and a function that closes them.
func open(ctx context.Context, j job, who string) (*worker, func(), error) {
	conn, err := rpc.Dial("tcp", j.Bank)
	if err != nil {
		return nil, nil, err
	}
	rs, err := redsync.Open(ctx, j.Nodes, redsync.WithTimeoutFactor(0.45)) // the machine may be busy
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return &worker{who, rs, conn, func() error { return nil }}, func() {
		rs.Close(context.WithoutCancel(ctx))
		conn.Close()
	}, nil
}
