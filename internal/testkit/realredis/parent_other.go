//go:build !linux

package realredis

import "syscall"

// EndWithParent has no effect on this system.
func EndWithParent() *syscall.SysProcAttr { return nil }
