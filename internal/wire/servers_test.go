package wire_test

import (
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/pool"
)

// clientOf returns a client of the server; change edits its options.
func clientOf(t *testing.T, addr string, changes ...func(*redis.Options)) *redis.Client {
	t.Helper()
	options := &redis.Options{Addr: addr, MaintNotificationsConfig: wire.NoNotifications}
	for _, change := range changes {
		change(options)
	}
	return wire.Unused(t, options)
}

// poolOf returns a Pool that the end of the test closes.
func poolOf(t *testing.T, client redis.UniversalClient) wire.Pool {
	t.Helper()
	p := pool.New(client)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// lockOnce sends the commands of a lock's whole life for key: acquire, check, extend and release.
func lockOnce(t *testing.T, p wire.Pool, key string) {
	t.Helper()
	ours, theirs := lockOf(key, "v"), lockOf(key, "w")
	require.Equal(t, "OK", wire.Answer(t, p, script.Acquire(ours, 60000).Args...).Value)
	require.Nil(t, wire.Answer(t, p, script.Acquire(theirs, 60000).Args...).Value)
	require.Equal(t, script.Mine, run(t, p, script.Valid(ours)))
	require.Equal(t, script.Mine, run(t, p, script.Extend(ours, 90000, false)))
	require.Equal(t, script.Other, run(t, p, release(theirs)))
	require.Equal(t, script.Mine, run(t, p, release(ours)))
	require.Equal(t, script.Created, run(t, p, script.Extend(ours, 60000, true)))
	require.Equal(t, script.Mine, run(t, p, release(ours)))
}

func lockOf(key, value string) script.Lock {
	k := script.KeysOf(key)
	return k.Lock(value)
}

// run executes a script. If the node does not have it, run sends its source.
func run(t *testing.T, p wire.Pool, c script.Command) any {
	t.Helper()
	r := wire.Ask(t, p, c.Args...)
	if wire.IsNoScript(r.Err) {
		r = wire.Ask(t, p, c.InFull()...)
	}
	require.NoError(t, r.Err)
	return r.Value
}

// eventually polls until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) { //nolint:forbidigo // servers do not signal
		require.True(t, time.Now().Before(end), "%s: not within a minute", what)
	}
}

// smallestACL holds the permissions that a user of plain locks needs besides those for the keys. A
// script needs permission for the commands that it calls. HELLO and AUTH need no permission.
var smallestACL = []any{"+set", "+get", "+del", "+pttl", "+pexpire", "+eval", "+evalsha"}

func TestServerWithSmallestACL(t *testing.T) {
	server := realredis.Start(t, 1)[0]
	as := func(name string, rules []any) wire.Pool {
		return asUser(t, server, name, append([]any{"~lock:*"}, rules...)...)
	}
	p := as("smallest", smallestACL)
	lockOnce(t, p, "lock:a")
	r := wire.Ask(t, p, "set", "other", "v")
	require.ErrorContains(t, r.Err, "NOPERM")
	require.Equal(t, wire.Answered, r.Fate)
	lockOnce(t, as("loading", append(smallestACL[:6:6], "+evalsha", "+script|load")), "lock:b")

	for i, rule := range smallestACL {
		realredis.Must(t, server, "flushall") // remove what the previous user left
		realredis.Must(t, server, "script", "flush")
		p := as("without", slices.Delete(slices.Clone(smallestACL), i, i+1))
		require.True(t, refusesSomething(t, p), "locks work without %s", rule)
		require.NoError(t, p.Close())
		realredis.Must(t, server, "acl", "deluser", "without")
	}
}

// refusesSomething reports whether the node refuses one of the commands of a lock's life.
func refusesSomething(t *testing.T, p wire.Pool) bool {
	t.Helper()
	refused := false
	send := func(args []any) wire.Reply {
		r := wire.Ask(t, p, args...)
		refused = refused || r.Err != nil && !wire.IsNoScript(r.Err)
		return r
	}
	lock := lockOf("lock:c", "v")
	send(script.Acquire(lock, 60000).Args)
	for _, c := range []script.Command{script.Valid(lock), script.Extend(lock, 90000, false), release(lock)} {
		if wire.IsNoScript(send(c.Args).Err) {
			send(c.InFull())
		}
	}
	return refused
}

func TestServerWithTLS(t *testing.T) {
	addr, config := startTLS(t)
	p := poolOf(t, clientOf(t, addr, func(o *redis.Options) { o.TLSConfig = config }))
	lockOnce(t, p, "lock")

	stranger := poolOf(t, clientOf(t, addr, func(o *redis.Options) { o.TLSConfig = &tls.Config{} }))
	r := wire.Ask(t, stranger, "set", "k", "v")
	require.Equal(t, wire.NotSent, r.Fate, "a failed handshake: %v", r.Err)
	var unknown *tls.CertificateVerificationError
	require.ErrorAs(t, r.Err, &unknown)
}

// startTLS returns the address of a server that speaks TLS, and the TLS configuration of its clients.
// It skips the test if the server was built without TLS.
func startTLS(t *testing.T) (addr string, config *tls.Config) {
	t.Helper()
	server := realredis.Start(t, 1)[0] // also skips where there is no server
	keys := realredis.NewCertificates(t, t.TempDir())
	_, port, _ := net.SplitHostPort(freeAddr(t))
	for _, setting := range [][2]string{ // one by one, for Redis 6.2
		{"tls-cert-file", keys.Cert},
		{"tls-key-file", keys.Key},
		{"tls-ca-cert-file", keys.Authority},
		{"tls-auth-clients", "no"},
		{"tls-port", port},
	} {
		if _, err := server.Do("config", "set", setting[0], setting[1]); err != nil {
			if strings.Contains(err.Error(), "Unknown option") || strings.Contains(err.Error(), "Unsupported CONFIG") {
				t.Skipf("this server was built without TLS: %v", err)
			}
			t.Fatal(err)
		}
	}
	return "127.0.0.1:" + port, keys.Client
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := realredis.FreeAddr()
	require.NoError(t, err)
	return addr
}

func release(l script.Lock) script.Command {
	return script.Release(l, script.Process{}, script.Turnover{Quietly: true}, script.Fence{})
}
