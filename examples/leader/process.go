package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/rpc"
	"os"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// envJob is the environment variable that makes this program a candidate. It contains the job.
const envJob = "LEADER_JOB"

// A job tells a candidate its name, the nodes and the journal.
type job struct {
	Who     string
	Nodes   []string
	Journal string
}

// child is the program of a candidate. A line that arrives on in makes the candidate resign.
func child(ctx context.Context, text string, in io.Reader) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	conn, err := rpc.Dial("tcp", j.Journal)
	if err != nil {
		return err
	}
	defer conn.Close()
	rs, err := redsync.Open(ctx, j.Nodes)
	if err != nil {
		return err
	}
	defer rs.Close(context.WithoutCancel(ctx))
	resign := make(chan struct{})
	go func() {
		if _, err := bufio.NewReader(in).ReadString('\n'); err == nil {
			close(resign)
		}
	}()
	return (&candidate{j.Who, rs, &client{conn}, resign}).run(ctx)
}

// processes are the candidates by name.
type processes map[string]*realredis.Child

// start starts this program again, as a candidate.
func (ps processes) start(ctx context.Context, j job) error {
	p, err := realredis.StartChild(ctx, envJob, j)
	if err != nil {
		return err
	}
	ps[j.Who] = p
	return nil
}

func (ps processes) process(who string) *os.Process { return ps[who].Cmd.Process }

// resign makes a candidate resign, and waits until it has ended.
func (ps processes) resign(who string) error {
	if _, err := io.WriteString(ps[who].Stdin, "\n"); err != nil {
		return err
	}
	return ps[who].Cmd.Wait()
}

// end kills all candidates that have not ended, and waits until they have.
func (ps processes) end() {
	for _, p := range ps {
		if p.Cmd.ProcessState == nil {
			_ = p.Cmd.Process.Kill() // an error means that it has ended already
			_ = p.Cmd.Wait()
		}
	}
}
