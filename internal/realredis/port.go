package realredis

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Addresses have ports below those that the system gives to outgoing connections (32768 and more
// on Linux, 49152 and more elsewhere). Otherwise a connection of any process could take the port
// between FreeAddr and the start of the server, or while the server is down.
const (
	minPort   = 12000
	maxPort   = 32000
	portTries = 1000
)

var given = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// FreeAddr returns a loopback address on which nobody listens. No two calls in a process return
// the same.
func FreeAddr() (string, error) {
	given.Lock()
	defer given.Unlock()
	var errs []error
	for range portTries {
		port := minPort + rand.IntN(maxPort-minPort) //nolint:gosec // not a secret
		if given.ports[port] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		given.ports[port] = true
		return l.Addr().String(), l.Close()
	}
	return "", fmt.Errorf("no free port in %d tries: %w", portTries, errors.Join(errs...))
}
