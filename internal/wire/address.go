package wire

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

	addresses "github.com/seed14bd9ef4/redsync/internal/address"
)

// This file derives what it can about a node from the client's options.

// A destination is the address of a node.
type destination struct{ network, addr string }

// destinationOf returns a comparable value for the node of client: its address, or the client itself if a Dialer of the
// user's decides where an address leads.
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

var defaultDialer = sync.OnceValue(dialerOfClient)

// dialerOfClient takes the dialer from a new client: the compiler may copy a closure.
func dialerOfClient() uintptr {
	client := redis.NewClient(&redis.Options{
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer func() { _ = client.Close() }()
	return reflect.ValueOf(client.Options().Dialer).Pointer()
}

func dialsItself(opt *redis.Options) bool {
	return reflect.ValueOf(opt.Dialer).Pointer() == defaultDialer()
}

// badAddress returns why go-redis can never dial the address, or nil.
func badAddress(opt *redis.Options) error {
	if !dialsItself(opt) || opt.Network == "unix" {
		return nil
	}
	if strings.ContainsAny(opt.Addr, "@?/") {
		return errors.New("pool: the address is not of the form host:port; redis.ParseURL reads a URL") // it may hold a password
	}
	host, port, err := net.SplitHostPort(opt.Addr)
	var malformed *net.AddrError
	if errors.As(err, &malformed) {
		err = errors.New(malformed.Err) // without the address
	}
	if err == nil && strings.ContainsFunc(host, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		err = errors.New("the host contains a space or a control character")
	}
	if err == nil {
		err = badPort(port)
	}
	if err != nil {
		return fmt.Errorf("pool: address %q: %w", withoutUser(opt.Addr), err)
	}
	return nil
}

// hasAddress is false for a client of Sentinel, which has a word in place of an address.
func hasAddress(opt *redis.Options) bool {
	_, _, err := net.SplitHostPort(opt.Addr)
	return err == nil || opt.Network == "unix"
}

// withoutUser cuts what may be a user's name or a password out of an address.
func withoutUser(address string) string {
	if at := strings.LastIndexByte(address, '@'); at >= 0 {
		return "..." + address[at:]
	}
	return addresses.WithoutPassword(address)
}

func badPort(port string) error {
	if n, err := net.LookupPort("tcp", port); err != nil || n == 0 {
		return fmt.Errorf("port %q is not in the range 1 to 65535", port)
	}
	return nil
}
