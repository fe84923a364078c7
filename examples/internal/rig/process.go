package rig

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// A Process is this program again, as a process of its own.
type Process struct {
	child *realredis.Child
	lines *bufio.Scanner
}

// Start starts this program again. The new process calls the Child of its Program with the job. It is killed when ctx is
// done.
func Start(ctx context.Context, job any) (*Process, error) {
	child, err := realredis.StartChild(ctx, envJob, job)
	if err != nil {
		return nil, err
	}
	return &Process{child, bufio.NewScanner(child.Stdout)}, nil
}

// Line waits for the next line that the process tells, and returns it: "" if the process has ended.
func (p *Process) Line() string {
	p.lines.Scan()
	return p.lines.Text()
}

// Go ends a call of Ready in the process.
func (p *Process) Go() error {
	_, err := io.WriteString(p.child.Stdin, "\n")
	return err
}

// Pause stops the process with SIGSTOP.
func (p *Process) Pause() error { return realredis.Pause(p.child.Cmd.Process) }

// Resume continues the process with SIGCONT.
func (p *Process) Resume() error { return realredis.Resume(p.child.Cmd.Process) }

// Wait waits until the process has ended.
func (p *Process) Wait() error { return p.child.Cmd.Wait() }

// Kill kills the process with SIGKILL, and waits until it has ended. It does nothing if the process has ended already.
func (p *Process) Kill() {
	_ = p.child.Cmd.Process.Kill()
	_ = p.Wait()
}

// Tell sends a line to the process that has started this one: see Line.
func Tell(line any) {
	_, _ = fmt.Println(line) // if nobody reads it any more, this process is about to be killed
}

// Ready waits until the process that has started this one calls Go. It returns an error if that process has ended.
func Ready() error {
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	return err
}

// Serve lets other processes call the methods of a receiver by net/rpc, at a loopback address, until stop is called.
func Serve(receiver any) (address string, stop func(), err error) {
	server := rpc.NewServer()
	if err := server.Register(receiver); err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go server.ServeConn(conn)
		}
	}()
	return listener.Addr().String(), func() { _ = listener.Close() }, nil
}
