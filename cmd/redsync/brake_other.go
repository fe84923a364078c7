//go:build unix && !linux

package main

import (
	"os"
	"syscall"
)

// A brake stops this process. Here a CONT that comes while stop begins may be lost.
type brake struct{}

func newBrake() (*brake, error) { return &brake{}, nil }

// isContinued reports that each CONT of which Go tells is new.
func (*brake) isContinued() bool { return true }

// stop stops this process, and reports that Go tells of the CONT that continues it.
func (*brake) stop() bool {
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	return false
}
