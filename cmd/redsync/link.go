//go:build unix

package main

import (
	"encoding/json"
	"net"
	"os"
	"syscall"
	"time"
)

// This file has the link between the two processes of a redsync.
//
// The front is the process that the user has started: it stands before the shell, gets the signals, and ends with the exit
// status. The holder, its child, holds the lock and has COMMAND as its child. There are two for three reasons:
//
//   - If one of them is killed, the other one kills COMMAND. Nobody can do that for itself.
//   - If the front is stopped together with COMMAND (^Z), the holder goes on extending the lock: it has a process group of
//     its own.
//   - If the holder is stopped, the front kills COMMAND before the lock can be lost.
//
// Each learns of the end of the other by the end of the link.

// A report goes from the holder to the front.
type report struct {
	Say      string        `json:",omitempty"` // a line for stderr
	Begins   bool          `json:",omitempty"` // COMMAND is about to be started, and Left counts
	Command  int           `json:",omitempty"` // COMMAND has started: whom to kill, a negative number for a process group
	Ended    bool          `json:",omitempty"` // COMMAND has ended
	Lost     bool          `json:",omitempty"` // with Ended: because of the lock
	Left     time.Duration `json:",omitempty"` // how long the lock is valid
	Until    time.Time     `json:",omitzero"`  // the same by the wall clock
	Stopped  bool          `json:",omitempty"` // COMMAND has been stopped, or the holder stops itself: stop, too
	Still    bool          `json:",omitempty"` // with Stopped: the answer to an order that asks
	Itself   bool          `json:",omitempty"` // with Stopped: the holder stops itself
	Orders   int           `json:",omitempty"` // with Stopped: how many orders the holder had got by then
	Finished bool          `json:",omitempty"` // the holder ends
	Status   int           `json:",omitempty"` // with Finished: the exit status

	sent chan struct{} // not nil: closed when the report has been sent
}

// An order goes from the front to the holder.
type order struct {
	Signal   syscall.Signal // what the front has got
	Keyboard bool           // it comes from the terminal, which has sent it to COMMAND, too, if that is in the foreground
	Asks     bool           // no signal: the holder shall say how long the lock is valid, and whether COMMAND is stopped
}

// A link is one end of the connection.
type link struct{ conn net.Conn }

// newLinks returns the end of the front, and the file of the end of the holder, which the holder inherits at the same number:
// so the files 3 and above that redsync was started with stay COMMAND's.
func newLinks() (*link, *os.File, error) {
	syscall.ForkLock.RLock()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(pair[0])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	near, err := openLink(pair[0])
	return near, os.NewFile(uintptr(pair[1]), "link"), err
}

// openLink returns the link on the file with this number, which it takes over.
func openLink(fd int) (*link, error) {
	syscall.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), "link")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	return &link{conn}, nil
}

// send sends a report or an order. If the other process has ended, received says so.
func (l *link) send(message any) { _ = json.NewEncoder(l.conn).Encode(message) }

// maxReports is how many reports an outbox keeps while the front is stopped.
const maxReports = 1024

// An outbox sends reports to the front, and does not wait: the front may be stopped.
type outbox struct{ reports chan report }

func newOutbox(l *link) *outbox {
	o := &outbox{make(chan report, maxReports)}
	go func() {
		for r := range o.reports {
			l.send(r)
			if r.sent != nil {
				close(r.sent)
			}
		}
	}()
	return o
}

// put sends a report. It drops what only says how things are if the front has been stopped for so long that many reports
// wait: the front asks anew when it is continued.
func (o *outbox) put(r report) {
	if (r.Command == 0 && !r.Begins && r.Left != 0 || r.Say != "") && len(o.reports) > maxReports/2 {
		return
	}
	o.reports <- r
}

// putNow sends a report, and waits until it has been sent.
func (o *outbox) putNow(r report) {
	r.sent = make(chan struct{})
	o.put(r)
	given := time.NewTimer(time.Second)
	defer given.Stop()
	select {
	case <-r.sent:
	case <-given.C: // the front has been stopped for hours
	}
}

// finish sends the last report, and waits until it has been sent.
func (o *outbox) finish(status int) {
	o.putNow(report{Finished: true, Status: status})
}

// received returns the orders of the front. The channel is closed when that process has ended.
func received(l *link) <-chan order {
	orders := make(chan order)
	go func() {
		defer close(orders)
		for from := json.NewDecoder(l.conn); ; {
			var o order
			if from.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	return orders
}
