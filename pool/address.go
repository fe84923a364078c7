package pool

import (
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"sync"
	"unicode"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// This file is what a client's options say of its node without asking it.

// A destination is the address of a node. Clients with equal ones lead to one node.
type destination struct{ network, addr string }

// destinationOf returns what client leads to, as a value that can be compared: the address,
// unless the client's own Dialer decides where an address leads; then the client.
func destinationOf(client *redis.Client) any {
	opt := client.Options()
	switch {
	case !dialsItself(opt):
		return client
	case opt.Network == "unix":
		return destination{opt.Network, opt.Addr}
	}
	return destination{opt.Network, strings.ToLower(opt.Addr)}
}

// defaultDialer returns the code of the Dialer that go-redis gives a client that has none.
var defaultDialer = sync.OnceValue(dialerOfClient)

// dialerOfClient asks a client for it, because the compiler may make several copies of a
// closure.
func dialerOfClient() uintptr {
	client := redis.NewClient(&redis.Options{
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer func() { _ = client.Close() }()
	return reflect.ValueOf(client.Options().Dialer).Pointer()
}

// dialsItself reports whether go-redis dials Addr, and no function of the user's.
func dialsItself(opt *redis.Options) bool {
	return reflect.ValueOf(opt.Dialer).Pointer() == defaultDialer()
}

// badAddress returns why go-redis can never dial the address of opt, nil if it may.
func badAddress(opt *redis.Options) error {
	if !dialsItself(opt) || opt.Network == "unix" {
		return nil
	}
	host, port, err := net.SplitHostPort(opt.Addr)
	if err == nil && strings.ContainsFunc(host, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		err = errors.New("the host contains a space or a control character")
	}
	if err == nil {
		err = badPort(port)
	}
	if err != nil {
		return fmt.Errorf("pool: address %q: %w", opt.Addr, err)
	}
	return nil
}

// badPort returns why port is neither a number of a port nor the name of a service.
func badPort(port string) error {
	if n, err := net.LookupPort("tcp", port); err != nil || n == 0 {
		return fmt.Errorf("port %q is not in the range 1 to 65535", port)
	}
	return nil
}
