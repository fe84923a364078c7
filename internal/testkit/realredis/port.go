package realredis

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
)

// reserving is a loopback address on which no server listens. A process that has been given a port listens there, so that no
// other takes the port while the server is down. A system that does not have it reserves nothing.
const reserving = "127.0.0.99:"

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
	ports map[int]net.Listener // at reserving, or nil
}{ports: map[int]net.Listener{}}

// FreeAddr returns a loopback address on which nobody listens. No two calls in a process return
// the same.
func FreeAddr() (string, error) {
	return freeAddr(take)
}

// busDistance is how far above its port a node of a cluster listens to other nodes, before Redis 7.0.
const busDistance = 10000

// freeAddrWithBus is FreeAddr for such a node.
func freeAddrWithBus() (string, error) {
	return freeAddr(func(port int) error {
		if port+busDistance >= maxPort {
			return errTaken
		}
		if err := take(port + busDistance); err != nil {
			return err
		}
		return take(port)
	})
}

// freeAddr returns a loopback address with a port that suits.
func freeAddr(suits func(port int) error) (string, error) {
	var errs []error
	for range portTries {
		port := minPort + rand.IntN(maxPort-minPort) //nolint:gosec // not a secret
		switch err := suits(port); {
		case err == nil:
			return fmt.Sprint("127.0.0.1:", port), nil
		case !errors.Is(err, errTaken):
			errs = append(errs, err)
		}
	}
	return "", fmt.Errorf("no free port in %d tries: %w", portTries, errors.Join(errs...))
}

var errTaken = errors.New("the port cannot be used or was given away")

// take makes a port one that was given away, unless it was or somebody listens there.
func take(port int) error {
	given.Lock()
	defer given.Unlock()
	if _, was := given.ports[port]; was {
		return errTaken
	}
	reserved, err := net.Listen("tcp", fmt.Sprint(reserving, port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return errTaken
	}
	l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		if reserved != nil {
			_ = reserved.Close()
		}
		return err
	}
	given.ports[port] = reserved
	return l.Close()
}
