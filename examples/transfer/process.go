package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// envJob is the environment variable that makes this program a worker. It contains the job.
const envJob = "TRANSFER_JOB"

// A job tells a worker which nodes and which bank it has.
type job struct {
	Who   string
	Nodes []string
	Bank  string
}

// What a child process writes besides the text of an error.
const (
	isHalfway = "halfway"
	isDone    = "done"
)

// child is the program of worker A: one transfer. In the middle it writes a line, and waits for one.
func child(ctx context.Context, text string, in io.Reader, out io.Writer) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	w, closeAll, err := open(ctx, j, j.Who)
	if err == nil {
		defer closeAll()
		w.halfway = func() error {
			_, _ = fmt.Fprintln(out, isHalfway)
			_, err := bufio.NewReader(in).ReadString('\n')
			return err
		}
		err = w.transfer(ctx, first, second, 30)
	}
	if err != nil {
		_, err = fmt.Fprintln(out, err)
	} else {
		_, err = fmt.Fprintln(out, isDone)
	}
	return err
}

// A process is worker A.
type process struct {
	child *realredis.Child
	lines *bufio.Scanner
}

// start starts this program again, as a worker.
func start(ctx context.Context, j job) (*process, error) {
	started, err := realredis.StartChild(ctx, envJob, j)
	if err != nil {
		return nil, err
	}
	return &process{started, bufio.NewScanner(started.Stdout)}, nil
}

// line returns the next line of the process, "" if it has ended.
func (p *process) line() string {
	p.lines.Scan()
	return p.lines.Text()
}

func (p *process) awaitHalfway() error {
	if line := p.line(); line != isHalfway {
		return fmt.Errorf("worker A: %s", line)
	}
	return nil
}

// stop kills or pauses the process.
func (p *process) stop(fate fate) error {
	if fate == paused {
		return realredis.Pause(p.child.Cmd.Process)
	}
	return p.child.Cmd.Process.Kill()
}

// goOn lets the paused process continue with the second half of its transfer, which must fail.
func (p *process) goOn() error {
	if err := realredis.Resume(p.child.Cmd.Process); err != nil {
		return err
	}
	if _, err := io.WriteString(p.child.Stdin, "\n"); err != nil {
		return err
	}
	if line := p.line(); line == isDone || line == "" {
		return errors.New("worker A has finished its transfer")
	}
	return nil
}

// end kills the process, and waits until it has exited.
func (p *process) end() {
	_ = p.child.Cmd.Process.Kill() // an error means that the process has ended already
	_ = p.child.Cmd.Wait()
}
