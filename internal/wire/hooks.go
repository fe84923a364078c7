package wire

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// This file finds the hooks of a client, which the pool does not call. Without a hook that puts a prefix before keys,
// locks have other keys.

// warnOfHooks writes a line, once for each client, if the pool will not call its hooks. node, which may be nil, is one
// of the client.
func (c *Config) warnOfHooks(client redis.UniversalClient, node *redis.Client, name string, write func(line func())) {
	if c.HooksAreKnown || c.ViaClient || c.Wrong != nil {
		return
	}
	hooks := hooksOf(client)
	if node != nil && client != redis.UniversalClient(node) {
		hooks = append(hooks, hooksOf(node)...)
	}
	if len(hooks) == 0 || !warned.put(client, struct{}{}) {
		return
	}
	write(func() {
		slog.Default().Warn("redsync: locks do not call the hooks of the client",
			"client", fmt.Sprintf("%T", client), "address", name, "hooks", hooks,
			"help", "redsync.WithPrefix puts a prefix before keys; pool.ViaClient sends through the client, hooks included; "+
				"pool.WithoutHooks silences this line")
	})
}

// hooksOf returns the types of a client's hooks, from unexported fields.
func hooksOf(client redis.UniversalClient) (types []string) {
	var err error // another version may have other fields
	defer recovered(&err)
	state := reflect.ValueOf(client).Elem().FieldByName("hooksMixin").FieldByName("state") // an *atomic.Pointer
	if state.IsNil() {
		return nil
	}
	// The copy of the pointer is not marked as unexported, so its method may be called.
	loaded := reflect.NewAt(state.Type().Elem(), state.UnsafePointer()).MethodByName("Load").Call(nil)[0]
	hooks := loaded.Elem().FieldByName("slice")
	for i := range hooks.Len() {
		types = append(types, hooks.Index(i).Elem().Type().String())
	}
	return types
}

// errMock is for a client whose hooks answer in place of a server: redismock's has the address of a local Redis.
var errMock = errors.New("pool: the client is a mock of redismock, and only its hooks answer: use pool.Func, or pool.ViaClient and " +
	"expect the commands of locks")

func isMock(client redis.UniversalClient) bool {
	return slices.ContainsFunc(hooksOf(client), func(hook string) bool { return strings.HasPrefix(hook, "redismock.") })
}

var warned perClient[struct{}]
