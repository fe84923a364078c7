//go:build unix && !aix

package wire

import (
	"io"
	"syscall"
)

// peek reports whether a socket has something to be read, without waiting. Its error says that nothing more will come.
func peek(fd uintptr) (unread bool, err error) {
	var first [1]byte
	n, _, err := syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	switch {
	case n > 0:
		return true, nil
	case err == syscall.EAGAIN, err == syscall.EWOULDBLOCK, err == syscall.EINTR: //nolint:errorlint // an Errno
		return false, nil
	case err == nil:
		return false, io.EOF
	case err == syscall.ENOTSOCK, err == syscall.EOPNOTSUPP, err == syscall.EINVAL, err == syscall.ENOSYS, err == syscall.EPERM: //nolint:errorlint // an Errno
		return false, nil // it does not tell
	}
	return false, err
}
