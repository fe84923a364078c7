//go:build !linux

package realredis

import "syscall"

// endWithParent can promise nothing here.
func endWithParent() *syscall.SysProcAttr { return nil }
