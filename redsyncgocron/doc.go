// Package redsyncgocron lets the schedulers of several processes share their jobs, with the locks and leaders of package
// redsync. The scheduler is that of github.com/go-co-op/gocron/v2.
//
// With a Locker, each tick of each job runs in one of the processes. With an Elector, one process runs all jobs while it
// leads. README.md says which one to choose, and has a program with each.
//
// # What gocron does not tell
//
// gocron skips a job if Lock or IsLeader returns an error, whatever the error is, and drops the error of Unlock. So a locker
// that can never lock looks like one whose jobs run elsewhere. This package reports every such error that is not the normal
// outcome: see WithReport.
//
// # What happens after a loss
//
// The lock of a running job may be lost, because no quorum of nodes confirms it in time, or because the process is paused.
// gocron gives a Locker no way to stop the job. So the job goes on, and another process may run it, too. Only the report
// tells of that. A job that must stop then, or that must send a fencing token, calls redsync.Do or TryDo itself instead.
//
// This package is experimental (docs/versions.md).
package redsyncgocron
