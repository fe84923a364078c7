package wire

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hook is a hook that does nothing.
type hook struct{}

func (hook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// hookable returns a client of each type whose hooks the pool does not call. Nothing listens at its address.
func hookable(t *testing.T) map[string]redis.UniversalClient {
	t.Helper()
	refused := func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
	all := map[string]redis.UniversalClient{
		"*redis.Client":        redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: refused}),
		"*redis.ClusterClient": redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, Dialer: refused}),
		"*redis.Ring":          redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}, Dialer: refused}),
	}
	for _, c := range all {
		t.Cleanup(func() { _ = c.Close() })
	}
	return all
}

// TestHooksAreFound fails if another version of go-redis keeps its hooks elsewhere.
func TestHooksAreFound(t *testing.T) {
	for name, client := range hookable(t) {
		require.Empty(t, hooksOf(client), name)
		client.AddHook(hook{})
		client.AddHook(&hook{})
		require.Equal(t, []string{"wire.hook", "*wire.hook"}, hooksOf(client), name)
	}
	for _, client := range []redis.UniversalClient{&redis.Client{}, struct{ redis.UniversalClient }{}, nil} {
		require.Empty(t, hooksOf(client), "it does not panic")
	}
}

// logTo makes w the log of the program until the end of the test.
func logTo(t *testing.T, w io.Writer) {
	t.Helper()
	def := slog.Default()
	t.Cleanup(func() { slog.SetDefault(def) })
	slog.SetDefault(slog.New(slog.NewTextHandler(w, nil)))
}

func TestNewWarnsOnceOfHooks(t *testing.T) {
	var log bytes.Buffer
	logTo(t, &log)
	for name, client := range hookable(t) {
		log.Reset()
		_ = New(client, Config{})
		client.AddHook(hook{})
		_ = New(client, Config{HooksAreKnown: true})
		_ = New(client, Config{ViaClient: true})
		require.Empty(t, log.String(), name)
		p := New(client, Config{})
		for _, want := range []string{
			"level=WARN", "redsync: locks do not call the hooks of the client", name, "wire.hook",
			"redsync.WithPrefix", "pool.ViaClient", "pool.WithoutHooks",
		} {
			assert.Contains(t, log.String(), want)
		}
		log.Reset()
		_ = New(client, Config{})
		ask(t, p, "get", "a")
		_ = p.Close()
		require.Empty(t, log.String(), "%s: once for each client", name)
	}
}

// The streams to the nodes of a Cluster have the options of its pool.
func TestStreamsOfAClusterHaveItsOptions(t *testing.T) {
	var log bytes.Buffer
	logTo(t, &log)
	bubble(t, func(s *scene) {
		client := cast{}.client(func(o *redis.ClusterOptions) { o.Dialer = s.Dial })
		client.AddHook(hook{})
		p := New(client, Config{HooksAreKnown: true, Anonymous: true})
		answer(s, p, "get", "a")
		require.NoError(s, p.Close())
		require.NoError(s, client.Close())
		require.Zero(s, s.Commands("info"))
	})
	require.Empty(t, log.String())
}

// A hook that comes after New is found when the pool begins to send.
func TestFirstStreamWarnsOfHooks(t *testing.T) {
	lines := make(writer, 10)
	logTo(t, lines)
	client := hookable(t)["*redis.Client"]
	p := New(client, Config{})
	client.AddHook(hook{})
	ask(t, p, "get", "a")
	assert.Contains(t, <-lines, "redsync: locks do not call the hooks")
	_ = p.Close()
}

// writer hands over what is written.
type writer chan string

func (w writer) Write(text []byte) (int, error) {
	w <- strings.TrimSpace(string(text))
	return len(text), nil
}

func TestViaClientExcludesTheRestartGuard(t *testing.T) {
	for name, client := range hookable(t) {
		p := New(client, Config{ViaClient: true, Guard: 1})
		require.ErrorContains(t, p.(Failing).Err(), "WithRestartGuard excludes ViaClient", name)
		require.False(t, p.(Closable).ClientClosed())
		p = New(client, Config{ViaClient: true})
		require.NoError(t, p.(Failing).Err())
		require.Equal(t, New(client, Config{}).(Located).Destination(), p.(Located).Destination(), "%s: it is the same node", name)
		require.Equal(t, New(client, Config{}).String(), p.String())
		require.NoError(t, client.Close())
		require.True(t, p.(Closable).ClientClosed())
	}
}
