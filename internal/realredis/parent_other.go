//go:build !linux

package realredis

import "syscall"

// EndWithParent can promise nothing here.
func EndWithParent() *syscall.SysProcAttr { return nil }
