package rueidispool

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/stall"
	"github.com/seed14bd9ef4/redsync/internal/testkit/wiretest"
	"github.com/seed14bd9ef4/redsync/pool"
)

// The options that a node of TestPoolConforms is reached with.
const (
	appName     = "app"
	appPassword = "secret"
	database    = 3
)

// appUser are the arguments of a server that has this user.
var appUser = []string{"--user", appName, "on", ">" + appPassword, "~*", "&*", "+@all"}

// TestPoolConforms runs the checks of wiretest on real servers, through options with TLS, a user of the node's, a database and a
// dial function.
func TestPoolConforms(t *testing.T) {
	wiretest.RunParallel(t, func(t *testing.T, check func(*testing.T, wiretest.Env)) {
		option, env := fullEnv(t)
		opt, err := Options(option)
		require.NoError(t, err)
		client := redis.NewClient(opt)
		t.Cleanup(func() { _ = client.Close() })
		env.Pool = func(limit int) pool.Pool { return pool.New(client, pool.WithOutstanding(limit)) }
		env.Slack, env.Machine = 4*time.Second, stall.Begin(t)
		check(t, env)
	})
}

func fullEnv(t *testing.T) (rueidis.ClientOption, wiretest.Env) {
	t.Helper()
	keys := realredis.NewCertificates(t, t.TempDir())
	server := startWith(t, keys, appUser...)
	link := wiretest.NewLink(func(ctx context.Context, network, address string) (net.Conn, error) {
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

func envOf(s *realredis.Server, do func(args ...any) (any, error)) wiretest.Env {
	return wiretest.Env{
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
		"fields": func(*rueidis.ClientOption) {},
		"function": func(o *rueidis.ClientOption) {
			o.AuthCredentialsFn = func(c rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
				from.Store(c.Address.String())
				return rueidis.AuthCredentials{Username: appName, Password: appPassword}, nil
			}
		},
		"DialFn": func(o *rueidis.ClientOption) {
			o.DialFn = func(address string, d *net.Dialer, _ *tls.Config) (net.Conn, error) { return d.Dial("tcp", address) }
		},
		"Dialer": func(o *rueidis.ClientOption) { o.Dialer.KeepAlive = time.Minute },
	} {
		option := at(server.Addr(), func(o *rueidis.ClientOption) {
			o.Username, o.Password = appName, appPassword
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

		option.Password, option.AuthCredentialsFn = "wrong", nil
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
