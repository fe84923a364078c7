//go:build unix && !aix

package pool

import (
	"io"
	"syscall"
)

// peek looks at what a socket has to be read. It takes nothing, and does not wait.
func peek(fd uintptr) error {
	var first [1]byte
	n, _, err := syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	switch {
	case n > 0:
		return errUnread
	case err == syscall.EAGAIN, err == syscall.EWOULDBLOCK, err == syscall.EINTR: //nolint:errorlint // an Errno
		return nil
	}
	return io.EOF // or an error, such as a reset
}
