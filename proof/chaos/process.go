package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// processCount is the number of client processes.
const processCount = 3

// envJob is the environment variable that makes this program a process of clients.
const envJob = "CHAOS_JOB"

// A job configures a process of clients.
type job struct {
	Process int           // its number, from 1
	Nodes   []string      // the addresses of its links
	Before  []int         // indices in Nodes: all of them, or the nodes before a change
	After   []int         // indices in Nodes: the nodes after a change; nil: there is no change
	Servers int           // number of distinct servers behind Nodes, without those that are dead or off
	Origin  time.Time     // events count their times from here
	Seed    uint64        // of the clients' random choices
	Guard   time.Duration // the longest TTL, for the restart guard; 0: no guard
	Expiry  time.Duration // the clients choose their expiries near this one
	Factor  float64       // of the node deadline; 0: the default
	Fresh   time.Time     // nobody held a lock before
	Events  string        // the file for its events
	Idle    int           // see settings
	Fake    int           // number of clients that claim locks without asking; for tests
	Partial int           // number of clients that lock one of several names and claim all; for tests
	V4      bool          // clients of redsync v4 lock as well
	Scene   string        // the name of the scene

	FakeReaders int // number of clients that claim shared locks without asking; for tests
	Stubborn    int // number of clients that believe in an exclusive lock after Downgrade; for tests
	Counting    int // number of clients that use a semaphore whose permits each node counts; for tests
	Blunt       int // number of clients that delete the keys of others; for tests

	Anonymous bool // clients do not know which server a node is; for tests
	Impatient bool // clients do not let Close wait, and take it for complete; for tests
}

// The orders to a process of clients. When the process has executed an order, it answers with the same word.
const (
	sayReady   = "ready" // not an order: the process knows all nodes
	sayGo      = "go"    // lock and unlock
	sayStop    = "stop"
	sayProbe   = "probe" // check that each lock can be acquired
	sayGoodbye = "goodbye"
)

// replyTime is how long a process may take to execute an order.
const replyTime = 30 * time.Second

// A process is a child process with clients.
type process struct {
	number  int
	version int           // the index of its deployment
	killed  time.Duration // when it was killed by a deployment; 0: it was not
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	said    chan string   // lines of its output; closed at the end of the output
	ended   chan struct{} // closed when it has ended
	err     error         // its exit status; set before ended is closed
	events  string

	fault sync.Mutex // inflict holds it while the process has an exclusive fault
}

// startProcess starts a process, which lives until it is told to end or is killed.
func startProcess(ctx context.Context, dir string, j job) (*process, error) {
	j.Events = filepath.Join(dir, fmt.Sprintf("process%d.jsonl", j.Process))
	child, err := realredis.StartChild(context.WithoutCancel(ctx), envJob, j)
	if err != nil {
		return nil, err
	}
	p := &process{
		number: j.Process, cmd: child.Cmd, stdin: child.Stdin, events: j.Events,
		said: make(chan string), ended: make(chan struct{}),
	}
	go p.listen(child.Stdout)
	return p, nil
}

// listen passes on the lines of the process until it ends.
func (p *process) listen(stdout io.Reader) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		p.said <- lines.Text()
	}
	close(p.said)
	p.err = p.cmd.Wait()
	close(p.ended)
}

// tell gives an order, and waits until it is executed.
func (p *process) tell(ctx context.Context, word string) error {
	if _, err := io.WriteString(p.stdin, word+"\n"); err != nil {
		return fmt.Errorf("process %d: %w", p.number, err)
	}
	return p.await(ctx, word)
}

// await waits until the process says word.
func (p *process) await(ctx context.Context, word string) error {
	ctx, cancel := context.WithTimeout(ctx, replyTime)
	defer cancel()
	select {
	case said, ok := <-p.said:
		if said == word {
			return nil
		}
		if !ok {
			said = "nothing, and has ended"
		}
		return fmt.Errorf("process %d says %s, not %s", p.number, said, word)
	case <-ctx.Done():
		return fmt.Errorf("process %d does not say %s: %w", p.number, word, ctx.Err())
	}
}

func (p *process) pause() error  { return realredis.Pause(p.cmd.Process) }
func (p *process) resume() error { return realredis.Resume(p.cmd.Process) }

// finish waits until the process ends. The caller must have told it sayGoodbye.
func (p *process) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replyTime)
	defer cancel()
	select {
	case <-p.ended:
	case <-ctx.Done():
		return fmt.Errorf("process %d does not end: %w", p.number, ctx.Err())
	}
	if p.err != nil {
		return fmt.Errorf("process %d: %w", p.number, p.err)
	}
	return nil
}

// read returns the events of the process, which has ended.
func (p *process) read() ([]history.Event, error) {
	f, err := os.Open(p.events)
	if err != nil {
		return nil, err
	}
	events, err := history.Read(f)
	return events, errors.Join(err, f.Close())
}

// kill ends the process, if it has not ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.stdin.Close()
	for range p.said {
		continue
	}
	<-p.ended
}
