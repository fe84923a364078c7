package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

func init() { roles["bereft"], roles["starter"] = bereftMain, starterMain }

// bereftMain is a front whose holder, a starter, has started COMMAND and is killed before it reports that. Its arguments are
// those of a probe.
func bereftMain() {
	adopts()
	starter := exec.Command("starter", os.Args[1:]...)
	if err := starter.Start(); err != nil {
		panic(err)
	}
	f := &frontProcess{job: &job{}, stderr: newLineWriter(os.Stderr), holder: starter.Process.Pid}
	f.note(report{Begins: true})
	for note(os.Args[1]).lines()[0] == "" {
		time.Sleep(time.Millisecond)
	}
	f.signalHolder(syscall.SIGKILL)
	status := f.alone()
	f.stderr.flush(time.Second)
	os.Exit(status)
}

// starterMain starts a probe as a holder starts COMMAND.
func starterMain() {
	runtime.LockOSThread()
	command := exec.Command(probeName, os.Args[1:]...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	diesWithHolder(command.SysProcAttr)
	panic(command.Run())
}

// TestLossOfACommandThatIsNotKnown: what COMMAND has started dies, too, if the holder is killed before it has reported COMMAND.
func TestLossOfACommandThatIsNotKnown(t *testing.T) {
	t.Parallel()
	n := newNote(t)
	said, err := exec.Command("bereft", string(n), "child").CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", said)
	assert.Equal(t, exitLost, exit.ExitCode(), "%s", said)
	awaitDead(t, n.pids(t)...)
}
