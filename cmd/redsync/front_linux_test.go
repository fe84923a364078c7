package main

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

func init() { roles["halts"] = haltsMain }

// haltsMain is a front that has no holder. It is told twice that COMMAND has stopped, and when it is told that this is still
// so, a CONT has come of which it does not know. Then nothing has come, and it stops.
func haltsMain() {
	b, err := newBrake()
	f := &frontProcess{brake: b, stderr: newLineWriter(os.Stderr), outgoing: make(chan order, maxOrders), gone: true}
	for _, isContinued := range []bool{true, true, false} {
		if err != nil {
			panic(err)
		}
		orders := f.orders
		f.note(report{Stopped: true, Orders: orders})
		if isContinued {
			err = syscall.Kill(os.Getpid(), syscall.SIGCONT)
		}
		f.note(report{Stopped: true, Still: true, Orders: orders + 1})
		f.got(syscall.SIGCONT) // Go tells of it now
		fmt.Printf("goes on after %d orders, continued by %d.\n", f.orders-orders, f.continued-orders)
	}
}

// TestTerminalLateStop: a front that was continued when the answer of the holder was on its way does not stop, although it does
// not know of that CONT yet. It makes COMMAND go on, once for each CONT.
func TestTerminalLateStop(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.enter("halts")
	for range 2 {
		c.expect("goes on after 2 orders, continued by 2.")
	}
	c.expect("Stopped")
	c.expect(prompt)
	c.enter("fg")
	c.expect("goes on after 2 orders, continued by 2.")
	c.wantStatus(0)
}
