package rueidispool

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/pool"
)

// If this test fails after an update of rueidis, decide on the new field: in the table and in README.md, and in Options if
// it is carried over.
func TestEveryFieldOfRueidisIsDecidedOn(t *testing.T) {
	var names []string
	for name := range leaves("", reflect.ValueOf(rueidis.ClientOption{})) {
		names = append(names, name)
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(fields)), names)
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, name := range names {
		assert.Contains(t, string(page), "`"+name+"`")
	}
}

// A field of a newer rueidis than this module knows is refused, unless it is zero.
func TestAFieldOfANewerRueidisIsRefused(t *testing.T) {
	type newer struct {
		rueidis.SentinelOption

		Username string
		Secret   string
		Limit    int
	}
	require.NoError(t, acceptable(newer{Username: "app"}))
	err := acceptable(newer{Secret: "hush", Limit: 3})
	require.EqualError(t, err, "rueidispool: Secret (string) is not known: is this rueidis newer than rueidispool?; "+
		"Limit (int) is not known: is this rueidis newer than rueidispool?")
	err = acceptable(newer{SentinelOption: rueidis.SentinelOption{MasterSet: "main"}})
	require.ErrorContains(t, err, "SentinelOption.MasterSet (string) is not known")
}

// Each field alone is set to a value that is not zero. If it is carried over, the options or what they make a connection
// send are different. If it is ignored, they are the same. If it is refused, the error names it.
func TestEachFieldAlone(t *testing.T) {
	server := startRecorder(t)
	for name := range leaves("", reflect.ValueOf(rueidis.ClientOption{})) {
		t.Run(name, func(t *testing.T) {
			base := rueidis.ClientOption{InitAddress: []string{server.addr()}, Password: "p"}
			if strings.HasPrefix(name, "Sentinel.") && name != "Sentinel.MasterSet" {
				base.Sentinel = rueidis.SentinelOption{MasterSet: "main", Password: "q"}
			}
			changed := base
			fill(t, fieldOf(&changed, name), name, server)
			got, err := server.trace(t, changed)
			if f := fields[name]; f.verdict == refused {
				require.ErrorContains(t, err, "rueidispool: "+name+" (")
				require.ErrorContains(t, err, ") cannot be carried over: "+f.why)
				return
			}
			require.NoError(t, err)
			want, err := server.trace(t, base)
			require.NoError(t, err)
			require.Contains(t, want, "get key")
			if fields[name].verdict == ignored {
				require.Equal(t, want, got)
			} else {
				require.NotEqual(t, want, got)
			}
		})
	}
}

func fieldOf(option *rueidis.ClientOption, name string) reflect.Value {
	v := reflect.ValueOf(option).Elem()
	for part := range strings.SplitSeq(name, ".") {
		v = v.FieldByName(part)
	}
	return v
}

// fill sets v to a value that is not zero.
func fill(t *testing.T, v reflect.Value, name string, server *recorder) {
	t.Helper()
	switch v.Interface().(type) {
	case *tls.Config:
		v.Set(reflect.ValueOf(&tls.Config{InsecureSkipVerify: true}))
		return
	case net.Dialer:
		v.Set(reflect.ValueOf(net.Dialer{Control: func(string, string, syscall.RawConn) error {
			server.note("%s.Control", name)
			return nil
		}}))
		return
	case time.Duration:
		v.SetInt(int64(time.Second))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int:
		v.SetInt(1)
	case reflect.String:
		v.SetString("x")
	case reflect.Slice: // of texts, two for ClientSetInfo
		texts := []string{"x", "y"}
		if name == "InitAddress" {
			texts = []string{strings.Replace(server.addr(), "127.0.0.1", "localhost", 1)}
		}
		v.Set(reflect.ValueOf(texts))
	case reflect.Func:
		v.Set(reflect.MakeFunc(v.Type(), func([]reflect.Value) (zero []reflect.Value) {
			server.note("%s is called", name)
			for i := range v.Type().NumOut() {
				zero = append(zero, reflect.Zero(v.Type().Out(i)))
			}
			return zero
		}))
	default:
		t.Fatalf("%s is a %v: fill it", name, v.Type())
	}
}

// trace returns the options, and what the server has seen of one connection of a pool.
func (r *recorder) trace(t *testing.T, option rueidis.ClientOption) ([]string, error) {
	t.Helper()
	opt, err := Options(option)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.seen = nil
	r.mu.Unlock()
	shape := shapeOf(opt)
	client := redis.NewClient(opt)
	p := pool.New(client)
	reply := ask(t, p, "get", "key")
	require.NoError(t, p.Close())
	require.NoError(t, client.Close())
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(slices.Concat(shape, r.seen), fmt.Sprint(reply.Fate)), nil
}

// shapeOf returns the fields of opt that are set. Of functions and pointers it says only that they are there.
func shapeOf(opt *redis.Options) (shape []string) {
	fields := reflect.ValueOf(opt).Elem()
	for i := range fields.NumField() {
		f, v := fields.Type().Field(i), fields.Field(i)
		switch {
		case v.IsZero():
		case v.Kind() == reflect.Func || v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface:
			shape = append(shape, f.Name)
		default:
			shape = append(shape, fmt.Sprintf("%s: %v", f.Name, v))
		}
	}
	return shape
}
