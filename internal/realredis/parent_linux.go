package realredis

import "syscall"

// EndWithParent makes a process end when this one does, even if it is killed.
func EndWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
