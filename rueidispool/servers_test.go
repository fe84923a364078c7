package rueidispool

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/pool/pooltest"
)

// The options that a node of TestPoolConforms is reached with.
const (
	appName     = "app"
	appPassword = "secret"
	database    = 3
)

// appUser are the arguments of a server that has this user.
var appUser = []string{"--user", appName, "on", ">" + appPassword, "~*", "&*", "+@all"}

// TestPoolConforms runs the checks of pooltest on real servers, once through options with nothing but an address, and once
// through options with TLS, a user of the node's, a database and a dial function.
func TestPoolConforms(t *testing.T) {
	for name, env := range map[string]func(*testing.T) (rueidis.ClientOption, pooltest.Env){
		"address":    plainEnv,
		"everything": fullEnv,
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "address" {
				t.Skip("-short leaves out what the tests of pool show, too")
			}
			pooltest.RunParallel(t, func(t *testing.T, check func(*testing.T, pooltest.Env)) {
				option, env := env(t)
				opt, err := Options(option)
				require.NoError(t, err)
				client := redis.NewClient(opt)
				t.Cleanup(func() { _ = client.Close() })
				env.Pool = func(limit int) pool.Pool { return pool.New(client, pool.WithOutstanding(limit)) }
				env.Slack = 4 * time.Second
				check(t, env)
			})
		})
	}
	t.Parallel() // the checks that count goroutines are done
}

func plainEnv(t *testing.T) (rueidis.ClientOption, pooltest.Env) {
	t.Helper()
	server := realredis.Start(t, 1)[0]
	return at(server.Addr(), nil), envOf(server, server.Do)
}

func fullEnv(t *testing.T) (rueidis.ClientOption, pooltest.Env) {
	t.Helper()
	keys := realredis.NewCertificates(t, t.TempDir())
	server := startWith(t, keys, appUser...)
	link := pooltest.NewLink(func(ctx context.Context, network, address string) (net.Conn, error) {
		return (&tls.Dialer{Config: keys.Client}).DialContext(ctx, network, address)
	})
	env := envOf(server.Server, func(args ...any) (any, error) {
		client := redis.NewClient(&redis.Options{
			Addr: server.Addr(), DB: database,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		defer func() { _ = client.Close() }()
		return client.Do(context.Background(), args...).Result()
	})
	env.LoseReply = link.LoseReply
	return at(server.secure, func(o *rueidis.ClientOption) {
		o.Username, o.Password, o.SelectDB = appName, appPassword, database
		o.TLSConfig = keys.Client
		o.DialCtxFn = func(ctx context.Context, address string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return link.Dial(ctx, "tcp", address)
		}
	}), env
}

func envOf(s *realredis.Server, do func(args ...any) (any, error)) pooltest.Env {
	return pooltest.Env{
		Do:      do,
		Freeze:  s.Freeze,
		Thaw:    s.Thaw,
		Kill:    s.Kill,
		Restart: s.Restart,
		Connections: func() int {
			list, err := s.Do("client", "list")
			if err != nil {
				return -1
			}
			return strings.Count(list.(string), "\n") - 1 // without the connection of Do
		},
	}
}

// A secureServer also listens with TLS.
type secureServer struct {
	*realredis.Server
	secure string
}

// startWith starts a server with TLS on a port of its own. It skips the test if the server was built without TLS.
func startWith(t *testing.T, keys realredis.Certificates, args ...string) secureServer {
	t.Helper()
	realredis.Start(t, 0) // skips where there is no server
	address, err := realredis.FreeAddr()
	require.NoError(t, err)
	_, port, _ := net.SplitHostPort(address)
	server, err := realredis.Launch(t.TempDir(), append([]string{
		"--tls-port", port, "--tls-auth-clients", "no",
		"--tls-cert-file", keys.Cert, "--tls-key-file", keys.Key, "--tls-ca-cert-file", keys.Authority,
	}, args...)...)
	if err != nil && strings.Contains(err.Error(), "tls-") {
		t.Skipf("this server was built without TLS: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(server.Kill)
	return secureServer{server, address}
}

// What the options say is what the server sees.
func TestTheServerSeesTheOptions(t *testing.T) {
	t.Parallel()
	server := realredis.Start(t, 1, appUser...)[0]
	var from atomic.Value // the address that AuthCredentialsFn was asked for
	for name, change := range map[string]func(o *rueidis.ClientOption){
		"fields": func(o *rueidis.ClientOption) { o.Username, o.Password = appName, appPassword },
		"function": func(o *rueidis.ClientOption) {
			o.AuthCredentialsFn = func(c rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
				from.Store(c.Address.String())
				return rueidis.AuthCredentials{Username: appName, Password: appPassword}, nil
			}
		},
		"DialFn": func(o *rueidis.ClientOption) {
			o.Username, o.Password = appName, appPassword
			o.DialFn = func(address string, d *net.Dialer, _ *tls.Config) (net.Conn, error) { return d.Dial("tcp", address) }
		},
		"Dialer": func(o *rueidis.ClientOption) {
			o.Username, o.Password, o.Dialer.KeepAlive = appName, appPassword, time.Minute
		},
	} {
		option := at(server.Addr(), func(o *rueidis.ClientOption) {
			change(o)
			o.SelectDB, o.ClientName, o.ClientNoEvict, o.ClientSetInfo = database, "locks", true, []string{"mine", "1"}
		})
		p := poolOf(t, option)
		info := answered(t, p, "client", "info").Value.(string)
		for _, want := range []string{" user=" + appName + " ", " db=3 ", " name=locks ", " flags=e "} {
			require.Contains(t, info, want, name)
		}
		if strings.Contains(info, " lib-name=") { // since Redis 7.2
			require.Contains(t, info, " lib-name=mine lib-ver=1", name)
		}
		require.Equal(t, server.Addr(), p.String())

		option.Password = "wrong"
		option.AuthCredentialsFn = nil
		option.Username = appName
		refusedWith(t, poolOf(t, option), pool.IsPermanent)
	}
	require.Equal(t, server.Addr(), from.Load())
	missing := poolOf(t, at(server.Addr(), func(o *rueidis.ClientOption) { o.SelectDB = 1000 }))
	refusedWith(t, missing, saying("DB index is out of range"))
}

func TestTLS(t *testing.T) {
	t.Parallel()
	keys := realredis.NewCertificates(t, t.TempDir())
	server := startWith(t, keys)
	for name, change := range map[string]func(o *rueidis.ClientOption){
		"by go-redis":          func(*rueidis.ClientOption) {},
		"by a Dialer":          func(o *rueidis.ClientOption) { o.Dialer.KeepAlive = time.Minute },
		"a function for names": func(o *rueidis.ClientOption) { o.AuthCredentialsFn = nobody },
	} {
		option := at(server.secure, func(o *rueidis.ClientOption) {
			o.TLSConfig = keys.Client
			change(o)
		})
		require.Equal(t, "PONG", answered(t, poolOf(t, option), "ping").Value, name)

		option.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		refusedWith(t, poolOf(t, option), func(err error) bool {
			var unknown *tls.CertificateVerificationError
			return errors.As(err, &unknown)
		})
	}
}

// nobody leaves the default user.
func nobody(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
	return rueidis.AuthCredentials{}, nil
}

// onServers returns a Redsync with the restart guard, on options for rueidis.
func onServers(t *testing.T, servers []*realredis.Server, options ...pool.Option) *redsync.Redsync {
	t.Helper()
	var pools []pool.Pool
	for _, s := range servers {
		pools = append(pools, poolOf(t, at(s.Addr(), func(o *rueidis.ClientOption) {
			o.Username, o.Password, o.SelectDB, o.ConnWriteTimeout = appName, appPassword, database, time.Second
		}), options...))
	}
	rs := redsync.New(pools...).With(redsync.WithExpiry(time.Minute))
	t.Cleanup(func() { _ = rs.Close(context.Background()) })
	return rs
}

// A lock on five nodes. Nodes that restart without their keys grant it to nobody else, because the pools have a restart
// guard. The release of the lock wakes a waiter, because they are Subscribers: it would look only after an hour.
func TestALockOnFiveNodes(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 5, appUser...)
	for _, s := range servers {
		require.Eventually(t, func() bool { return uptime(t, s) >= 3 }, time.Minute, 100*time.Millisecond)
	}
	guarded := []pool.Option{pool.WithRestartGuard(2 * time.Minute), pool.WithNoLocksBefore(time.Now().Round(0))}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, b := onServers(t, servers, guarded...), onServers(t, servers, guarded...)
	m := a.NewMutex("lock")
	require.NoError(t, m.LockContext(ctx))
	require.Eventually(t, func() bool { return holding(t, servers, "lock") == 5 }, time.Minute, 10*time.Millisecond,
		"each node must have the key in its database")

	var taken *redsync.ErrTaken
	require.Eventually(t, func() bool { // a slow machine may answer too late
		return errors.As(b.NewMutex("lock").TryLockContext(ctx), &taken)
	}, time.Minute, 10*time.Millisecond)
	got := make(chan error)
	go func() {
		next := b.NewMutex("lock", redsync.WithTries(0), redsync.WithRetryDelay(time.Hour))
		err := next.LockContext(ctx)
		if err == nil {
			_, err = next.UnlockContext(ctx)
		}
		got <- err
	}()
	require.Eventually(t, func() bool { return subscribers(t, servers) >= 3 }, time.Minute, 10*time.Millisecond)
	ok, err := m.UnlockContext(ctx)
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, <-got)

	require.NoError(t, m.LockContext(ctx))
	for _, s := range servers[:3] {
		s.Kill()
		s.Restart()
	}
	require.Eventually(t, func() bool { // the first request on a connection may meet its end
		err = b.NewMutex("lock").TryLockContext(ctx)
		return err == nil || strings.Contains(err.Error(), "the restart guard (")
	}, time.Minute, 10*time.Millisecond)
	require.Error(t, err)
	unguarded := onServers(t, servers).NewMutex("lock")
	require.NoError(t, unguarded.LockContext(ctx), "without the guard, two would have the lock")
}

// holding counts the servers that have a key.
func holding(t *testing.T, servers []*realredis.Server, key string) (n int) {
	t.Helper()
	for _, s := range servers {
		client := redis.NewClient(&redis.Options{
			Addr: s.Addr(), DB: database,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		if found, err := client.Exists(t.Context(), key).Result(); err == nil {
			n += int(found)
		}
		require.NoError(t, client.Close())
	}
	return n
}

// subscribers counts the servers that have a subscriber.
func subscribers(t *testing.T, servers []*realredis.Server) (n int) {
	t.Helper()
	for _, s := range servers {
		channels := realredis.Must(t, s, "pubsub", "channels").([]any)
		if len(channels) > 0 {
			n++
		}
	}
	return n
}

func uptime(t *testing.T, s *realredis.Server) int {
	t.Helper()
	for line := range strings.Lines(fmt.Sprint(realredis.Must(t, s, "info", "server"))) {
		if text, found := strings.CutPrefix(strings.TrimSpace(line), "uptime_in_seconds:"); found {
			n, err := strconv.Atoi(text)
			require.NoError(t, err)
			return n
		}
	}
	return 0
}

// Two pools that lead to one server count once, however they are dialed.
func TestTwoPoolsOfOneServer(t *testing.T) {
	t.Parallel()
	server := realredis.Start(t, 1)[0]
	direct := func() pool.Pool { return poolOf(t, at(server.Addr(), nil)) }
	dialed := func() pool.Pool {
		return poolOf(t, at(server.Addr(), func(o *rueidis.ClientOption) { o.Dialer.KeepAlive = time.Minute }))
	}
	for _, pools := range [][]pool.Pool{{direct(), direct()}, {direct(), dialed()}, {dialed(), dialed()}} {
		rs := redsync.New(pools...)
		require.Eventually(t, func() bool { // a slow machine may answer too late
			return errors.Is(rs.NewMutex("lock").TryLock(), redsync.ErrDuplicateNode)
		}, time.Minute, 10*time.Millisecond)
		require.NoError(t, rs.Close(context.Background()))
	}
}

// The dial function decides where an address leads: here to a unix socket, as rueidis.ParseURL does it.
func TestUnixSocket(t *testing.T) {
	t.Parallel()
	socket := t.TempDir() + "/s"
	realredis.Start(t, 1, "--unixsocket", socket)
	option, err := rueidis.ParseURL("unix://" + socket + "?db=3")
	require.NoError(t, err)
	p := poolOf(t, option)
	require.Contains(t, answered(t, p, "client", "info").Value, " db=3 ")
	require.Equal(t, socket, p.String())
}
