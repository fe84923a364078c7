package main

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// envJob is the environment variable that makes this program a process of the fleet. It contains the job.
const envJob = "LIMITER_JOB"

// A job tells a process what to do.
type job struct {
	Nodes     []string
	Service   string
	Hangs     bool // one worker makes a call that never ends
	Unlimited bool // the control: without the limiter
}

const (
	// size is how many workers may call the service at once, in all processes together.
	size = 3

	// expiry is how long a process that has died keeps its part.
	expiry = 2 * time.Second

	// workers is how many goroutines a process has.
	workers = 3
)

// child is the program of a process of the fleet: workers that call the service again and again until ctx is done.
func child(ctx context.Context, text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	rs, err := redsync.Open(ctx, j.Nodes)
	if err != nil {
		return err
	}
	defer rs.Close(context.WithoutCancel(ctx))
	limiter := newWeighted(rs, "slow-service", size, redsync.WithExpiry(expiry))
	if j.Hangs {
		return callLimited(ctx, limiter, j, hang)
	}
	var group sync.WaitGroup
	errs := make([]error, workers)
	for i := range errs {
		group.Go(func() {
			for errs[i] == nil && ctx.Err() == nil {
				errs[i] = callLimited(ctx, limiter, j, "/")
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// callLimited calls the service while it holds 1 of the limiter.
func callLimited(ctx context.Context, limiter *weighted, j job, path string) error {
	if j.Unlimited {
		return call(ctx, j.Service, path)
	}
	return limiter.Do(ctx, 1, func(ctx context.Context) error { return call(ctx, j.Service, path) })
}

// A process is another process of the fleet.
type process struct{ child *realredis.Child }

func start(ctx context.Context, j job) (process, error) {
	c, err := realredis.StartChild(ctx, envJob, j)
	return process{c}, err
}

// kill kills the process, and waits until it has exited.
func (p process) kill() {
	_ = p.child.Cmd.Process.Kill() // an error means that the process has ended already
	_ = p.child.Cmd.Wait()
}
