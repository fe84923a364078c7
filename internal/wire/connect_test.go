package wire

import (
	"context"
	"net"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// changedOptions are the options that a connection of the pool does not take over from the user's client.
var changedOptions = []string{
	"ContextTimeoutEnabled", "MaxRetries", "DialerRetries", "Protocol", "ReadTimeout", "WriteTimeout",
	"PoolSize", "PipelinePoolSize", "MinIdleConns", "MaxIdleConns",
	"MaxActiveConns", "MaxConcurrentDials", "PoolTimeout", "ReadBufferSize", "WriteBufferSize", "Limiter", "AutoPipelineOptions",
	"MaintNotificationsConfig", "ClientSideCacheConfig", "ClientSideCache", "PushNotificationProcessor",
}

// TestOwnOptionsChanged compares the options of the pool's own connection with those of the
// user's client, field by field. Only the fields in changedOptions may differ. A field that a
// new version of go-redis adds must be copied unchanged.
func TestOwnOptionsChanged(t *testing.T) {
	user := new(redis.Options)
	v := reflect.ValueOf(user).Elem()
	for i := range v.NumField() {
		fill(v.Field(i))
	}
	user.Dialer = new(net.Dialer).DialContext
	user.OnConnect = func(context.Context, *redis.Conn) error { return nil }
	user.Limiter, user.ClientSideCache = limiter{}, &redis.LocalCache{}
	user.ContextTimeoutEnabled = false
	before := *user

	stream := reflect.ValueOf(ownOptions(user)).Elem()
	original := reflect.ValueOf(&before).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		require.True(t, same(original.Field(i), v.Field(i)), "ownOptions changed the user's %s", name)
		require.Equal(t, !slices.Contains(changedOptions, name), same(v.Field(i), stream.Field(i)),
			"whether ownOptions copies the user's %s unchanged", name)
	}
}

type limiter struct{ redis.Limiter }

// fill sets v to a value that is not zero, if v has a simple type.
func fill(v reflect.Value) {
	switch {
	case !v.CanSet():
	case v.CanInt():
		v.SetInt(int64(time.Hour))
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.Kind() == reflect.String:
		v.SetString("text")
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case v.Kind() == reflect.Interface && v.Type().Name() == "NotificationProcessor":
		processor := redis.NewClient(&redis.Options{}).Options().PushNotificationProcessor
		v.Set(reflect.ValueOf(processor))
	}
}

// same reports whether two fields are equal. It compares functions, pointers and the values in
// interfaces by identity.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Func, reflect.Pointer:
		return a.Pointer() == b.Pointer()
	case reflect.Interface:
		return a.IsNil() == b.IsNil() && (a.IsNil() || a.Elem().Equal(b.Elem()))
	default:
		return a.Equal(b)
	}
}
