package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// envJob is the environment variable that makes this program a holder. It contains the job.
const envJob = "PAUSED_JOB"

// A process is a child process with one holder.
type process struct {
	who     string
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	reports chan report // closed when the process has ended
}

// start starts the program again, as the holder of j.
func start(ctx context.Context, j job) (*process, error) {
	child, err := realredis.StartChild(ctx, envJob, j)
	if err != nil {
		return nil, err
	}
	p := &process{j.Who, child.Cmd, child.Stdin, make(chan report, 2)} // a holder sends two reports
	go p.listen(child.Stdout)
	return p, nil
}

// listen passes the reports on, until the process ends.
func (p *process) listen(stdout io.Reader) {
	defer close(p.reports)
	for decoder := json.NewDecoder(stdout); ; {
		var r report
		if decoder.Decode(&r) != nil {
			break
		}
		p.reports <- r
	}
	_ = p.cmd.Wait() // its error does not matter
}

// next returns the next report. Its step must be one of steps.
func (p *process) next(ctx context.Context, steps ...step) (report, error) {
	select {
	case r, ok := <-p.reports:
		for _, s := range steps {
			if ok && r.Step == s {
				return r, nil
			}
		}
		return report{}, fmt.Errorf("%s: %s", p.who, r)
	case <-ctx.Done():
		return report{}, fmt.Errorf("%s does not go on: %w", p.who, ctx.Err())
	}
}

// write makes the process write, and returns its report.
func (p *process) write(ctx context.Context) (report, error) {
	if _, err := io.WriteString(p.stdin, "\n"); err != nil {
		return report{}, err
	}
	return p.next(ctx, wrote, refused)
}

func (p *process) pause() error  { return realredis.Pause(p.cmd.Process) }
func (p *process) resume() error { return realredis.Resume(p.cmd.Process) }

// end closes the input of the process, kills the process, and waits until it has exited. Closing
// the input is not enough, because pause may have suspended the process.
func (p *process) end() {
	_ = p.stdin.Close()
	_ = p.cmd.Process.Kill() // an error means that the process has ended already
	for range p.reports {
		continue
	}
}
