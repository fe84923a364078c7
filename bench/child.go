package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// A child is another process of this program. It gets an order as an argument and answers in
// lines of JSON. When its input ends, it finishes its current step and ends.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// childArg marks the command line of a child.
const childArg = "child"

// childLife is the time after which a child cancels its own work.
const childLife = 2 * time.Minute

func startChild(ctx context.Context, task string, order any) (*child, error) {
	text, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, childArg, task, string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &child{cmd: cmd, in: in, out: json.NewDecoder(bufio.NewReader(out))}, nil
}

// receive waits for the child's next answer.
func (c *child) receive(to any) error { return c.out.Decode(to) }

// begin lets the child continue.
func (c *child) begin() error {
	_, err := io.WriteString(c.in, "\n")
	return err
}

// end closes the input of the child and waits until the child ends. It kills the child after 5 s.
func (c *child) end() error {
	defer time.AfterFunc(5*time.Second, func() { _ = c.cmd.Process.Kill() }).Stop()
	_ = c.in.Close()
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("child process: %w", err)
	}
	return nil
}

// runChild executes the parent's order in the child. args are the task and the order as JSON.
func runChild(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(childLife, cancel).Stop()
	if len(args) != 2 {
		return fmt.Errorf("a child takes a task and an order, not %q", args)
	}
	switch task, text := args[0], []byte(args[1]); task {
	case "contend":
		return obey(ctx, text, in, out, contendChild)
	case "transfers":
		return obey(ctx, text, in, out, transfersChild)
	case "wakeup":
		return obey(ctx, text, in, out, wakeupChild)
	case "visits":
		return obey(ctx, text, in, out, visitsChild)
	case "permits":
		return obey(ctx, text, in, out, permitsChild)
	case "waiters":
		return obey(ctx, text, in, out, waitersChild)
	case "one-node":
		return obey(ctx, text, in, out, oneNodeChild)
	case "client":
		return obey(ctx, text, in, out, clientChild)
	case "proxy":
		return obey(ctx, text, in, out, proxyChild)
	default:
		return fmt.Errorf("no task %q", task)
	}
}

// obey decodes an order and calls do with it.
func obey[T any](ctx context.Context, text []byte, in io.Reader, out io.Writer,
	do func(ctx context.Context, order T, in io.Reader, out io.Writer) error,
) error {
	var order T
	if err := json.Unmarshal(text, &order); err != nil {
		return err
	}
	return do(ctx, order, in, out)
}

// inProcesses starts some processes with one task, lets them begin at the same time when all are ready, and
// collects their answers. order(i) is the order for the process with the index i. If ready is not nil, inProcesses
// calls it before the processes begin.
func inProcesses[T any](
	ctx context.Context, processes int, task string, order func(process int) any, ready func() error,
) (each []T, err error) {
	var children []*child
	defer func() {
		for _, c := range children {
			err = errors.Join(err, c.end())
		}
	}()
	for process := range processes {
		c, err := startChild(ctx, task, order(process))
		if err != nil {
			return nil, err
		}
		children = append(children, c)
	}
	if _, err := answers[string](children, false); err != nil { // each says that it is ready
		return nil, err
	}
	if ready != nil {
		if err := ready(); err != nil {
			return nil, err
		}
	}
	return answers[T](children, true)
}

// whenAllAreReady is the child's part of inProcesses: it says that the child is ready, waits until all are, and
// answers with what do returns.
func whenAllAreReady[T any](in io.Reader, out io.Writer, do func() T) error {
	enc := json.NewEncoder(out)
	if err := enc.Encode("ready"); err != nil {
		return err
	}
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return err // the parent is gone
	}
	return enc.Encode(do())
}
