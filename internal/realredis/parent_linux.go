package realredis

import "syscall"

// endWithParent makes a process end when this one does, even if it is killed.
func endWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
