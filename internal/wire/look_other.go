//go:build !unix || aix

package wire

// peek finds nothing: there is no simple way to look at a socket.
func peek(uintptr) (unread bool, err error) { return false, nil }
