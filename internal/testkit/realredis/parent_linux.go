package realredis

import "syscall"

// EndWithParent returns attributes that make a child process end when this process does, even if this
// process is killed.
func EndWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
