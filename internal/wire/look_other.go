//go:build !unix || aix

package wire

// peek finds nothing: the system has no simple way to look at a socket.
func peek(uintptr) (unread bool, err error) { return false, nil }
