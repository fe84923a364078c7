// Package rig is what the programs in examples share: flags, nodes, further processes, and a timeline. So a program
// has little beside its idea.
package rig

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
)

// Patience bounds a program that starts processes. A longer run has failed.
const Patience = 2 * time.Minute

// envJob is the environment variable that makes a program the process of a Start. It contains the job.
const envJob = "REDSYNC_EXAMPLE_JOB"

// A Program is one of the examples.
type Program struct {
	Name    string
	Command func(ctx context.Context, args []string, out io.Writer) error
	Child   func(ctx context.Context) error // what a process of Start does, see Child; nil if there is none
}

// Main runs the program, and exits.
func (p Program) Main() {
	logging.Disable() // go-redis logs every failed dial; the programs report what matters
	cli.Main(func(ctx context.Context) int { return p.Run(ctx, os.Args[1:], os.Stdout, os.Stderr) })
}

// Run runs the program, and returns its exit status.
func (p Program) Run(ctx context.Context, args []string, out, errs io.Writer) int {
	if p.Child != nil {
		bounded, cancel := context.WithTimeout(ctx, Patience)
		defer cancel()
		ctx = bounded
	}
	if IsChild() {
		return cli.Status(p.Name, p.Child(ctx), out, errs)
	}
	return cli.Status(p.Name, p.Command(ctx, args, out), out, errs)
}

// IsChild reports whether this process comes from Start.
func IsChild() bool { return os.Getenv(envJob) != "" }

// Child returns the Child of a Program: it calls run with the job of Start.
func Child[J any](run func(ctx context.Context, job J) error) func(context.Context) error {
	return func(ctx context.Context) error {
		var job J
		if err := json.Unmarshal([]byte(os.Getenv(envJob)), &job); err != nil {
			return err
		}
		return run(ctx, job)
	}
}
