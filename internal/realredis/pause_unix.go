//go:build unix

package realredis

import (
	"os"
	"syscall"
)

// Pause stops a process with SIGSTOP; its connections stay open.
func Pause(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// Resume continues a process that Pause has stopped, with SIGCONT.
func Resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
