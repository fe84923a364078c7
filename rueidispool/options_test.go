package rueidispool

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// at returns options for an address, with changes.
func at(address string, change func(o *rueidis.ClientOption)) rueidis.ClientOption {
	option := rueidis.ClientOption{InitAddress: []string{address}}
	if change != nil {
		change(&option)
	}
	return option
}

func TestOptionsRefusesWhatNoConnectionCanHave(t *testing.T) {
	const secret = "hush"
	sentinel := rueidis.SentinelOption{MasterSet: "main"}
	for want, option := range map[string]rueidis.ClientOption{
		"InitAddress is empty: it must have the node's address":                     {InitAddress: []string{}},
		"InitAddress[0] is empty":                                                   {InitAddress: []string{""}},
		"InitAddress[0] is not of the form host:port":                               {InitAddress: []string{secret}},
		"InitAddress[0] is not of the form host:port; rueidis.ParseURL reads a URL": {InitAddress: []string{"redis://:" + secret + "@node:6379"}},
		"InitAddress[1] is not of the form host:port; rueidis.ParseURL reads a URL": {
			InitAddress: []string{"node:6379", secret + "@node:6379"}, Sentinel: sentinel,
		},
		"InitAddress has 2 addresses: each node of a lock is one server, so call Options once for each (a node is one server; " +
			"for a Redis Cluster, give redis.NewClusterClient to pool.New; for Sentinels, set Sentinel.MasterSet)": {
			InitAddress: []string{"node:1", "node:2"},
		},
		"InitAddress[1] is empty": {
			InitAddress: []string{"node:1", ""}, Sentinel: sentinel,
			DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return nil, nil },
		},
		"SelectDB is -1: it must be 0 or more":                           {SelectDB: -1},
		"Dialer.Timeout is -1s: it must be 0 (for 5 s) or more":          {Dialer: net.Dialer{Timeout: -time.Second}},
		"Sentinel.Dialer.Timeout is -1s: it must be 0 (for 5 s) or more": {Sentinel: rueidis.SentinelOption{Dialer: net.Dialer{Timeout: -time.Second}}},
		"Username is set without Password: go-redis would log in as the default user; a user with nopass accepts any password": {
			Username: secret,
		},
		"Sentinel.Username is set without Sentinel.Password: go-redis would log in as the default user; a user with nopass accepts any password": {
			Sentinel: rueidis.SentinelOption{Username: secret},
		},
		"Standalone.EnableRedirect (bool) cannot be carried over: a pool does not follow REDIRECT; " +
			"ReplicaOnly (bool) cannot be carried over: a lock is set on the primary": {
			ReplicaOnly: true, Standalone: rueidis.StandaloneOption{EnableRedirect: true},
		},
	} {
		if option.InitAddress == nil {
			option.InitAddress = []string{"node:6379"}
		}
		if option.Username == "" {
			option.Password = secret
		}
		opt, err := Options(option)
		require.EqualError(t, err, "rueidispool: "+want)
		require.NotContains(t, err.Error(), secret)
		require.Nil(t, opt)
	}
}

// rueidis has the function's credentials in place of these.
func TestAuthCredentialsFnHasPriority(t *testing.T) {
	opt, err := Options(at("node:6379", func(o *rueidis.ClientOption) {
		o.Username, o.Sentinel.Username = "nobody", "nobody"
		o.AuthCredentialsFn = nobody
	}))
	require.NoError(t, err)
	require.Empty(t, opt.Username)
	require.NotNil(t, opt.StreamingCredentialsProvider)
}

// While go-redis can dial as rueidis would, a pool knows its address, and refuses a second pool of the same node.
func TestAPoolKnowsItsAddressIfGoRedisDials(t *testing.T) {
	destination := func(change func(o *rueidis.ClientOption)) any {
		return poolOf(t, at("node:6379", change)).(wire.Located).Destination()
	}
	plain := func(o *rueidis.ClientOption) {
		o.Dialer.Timeout, o.TLSConfig = time.Second, &tls.Config{MinVersion: tls.VersionTLS13}
	}
	require.Equal(t, destination(nil), destination(plain))
	for _, own := range []func(o *rueidis.ClientOption){
		func(o *rueidis.ClientOption) { o.Dialer.KeepAlive = time.Minute },
		func(o *rueidis.ClientOption) { o.Dialer.LocalAddr = &net.TCPAddr{} },
		func(o *rueidis.ClientOption) { o.Dialer.Resolver = &net.Resolver{} },
	} {
		require.NotEqual(t, destination(nil), destination(own))
	}
}

func TestTimesAreCarriedOver(t *testing.T) {
	opt, err := Options(at("node:6379", func(o *rueidis.ClientOption) {
		o.Dialer.Timeout, o.ConnWriteTimeout, o.ConnLifetime = 1, 2, 3
	}))
	require.NoError(t, err)
	require.Equal(t, [4]time.Duration{1, 2, 2, 3}, [4]time.Duration{opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout, opt.ConnMaxLifetime})
	opt, err = Options(at("node:6379", func(o *rueidis.ClientOption) { o.ConnWriteTimeout, o.ConnLifetime = -2, -2 }))
	require.NoError(t, err)
	client := redis.NewClient(opt) // to which -2 means something else
	defer func() { _ = client.Close() }()
	require.Zero(t, client.Options().ReadTimeout)
	require.Zero(t, client.Options().WriteTimeout)
	require.Zero(t, client.Options().ConnMaxLifetime)
}

// A dial function gets what rueidis would give it: the address, a Dialer with the defaults of rueidis, the TLSConfig. What
// it does with that Dialer has no effect on the next connection.
func TestADialFunctionGetsWhatRueidisGivesIt(t *testing.T) {
	errRefused := errors.New("refused by the function")
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	calls := 0
	fn := func(address string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		calls++
		require.Equal(t, "some where", address)
		require.Same(t, config, c)
		require.Equal(t, net.Dialer{Timeout: rueidis.DefaultDialTimeout, KeepAlive: rueidis.DefaultTCPKeepAlive}, *d)
		d.Timeout = 1
		return nil, errRefused
	}
	for _, change := range []func(o *rueidis.ClientOption){
		func(o *rueidis.ClientOption) { o.DialFn = fn },
		func(o *rueidis.ClientOption) {
			o.DialFn = func(string, *net.Dialer, *tls.Config) (net.Conn, error) { panic("the other one has priority") }
			o.DialCtxFn = func(ctx context.Context, address string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
				_, bounded := ctx.Deadline()
				require.True(t, bounded)
				return fn(address, d, c)
			}
		},
	} {
		calls = 0
		p := poolOf(t, at("some where", func(o *rueidis.ClientOption) {
			o.TLSConfig = config
			change(o)
		}))
		for i := range 2 {
			reply := ask(t, p, "ping")
			require.ErrorIs(t, reply.Err, errRefused)
			require.Equal(t, wire.NotSent, reply.Fate)
			require.Equal(t, i+1, calls)
		}
	}
	nothing := poolOf(t, at("node", func(o *rueidis.ClientOption) {
		o.DialFn = func(string, *net.Dialer, *tls.Config) (net.Conn, error) { return nil, nil }
	}))
	require.ErrorIs(t, ask(t, nothing, "ping").Err, errNoConnection)
}

// Like rueidis, a connection tells its library only if ClientSetInfo does not turn that off, and then as it says.
func TestClientSetInfo(t *testing.T) {
	server := startRecorder(t)
	for _, c := range []struct{ info, want []string }{
		{rueidis.DisableClientSetInfo, nil},
		{[]string{"mine", "1"}, []string{"client setinfo lib-name mine", "client setinfo lib-ver 1"}},
	} {
		trace, err := server.trace(t, at(server.addr(), func(o *rueidis.ClientOption) { o.ClientSetInfo = c.info }))
		require.NoError(t, err)
		var told []string
		for _, line := range trace {
			if strings.HasPrefix(line, "client setinfo") {
				told = append(told, line)
			}
		}
		require.Equal(t, c.want, told)
	}
}

// A server that does not know what ClientNoTouch demands is refused, as by rueidis; one without CLIENT SETINFO is not.
func TestAServerMayRefuseTheGreeting(t *testing.T) {
	server := startRecorder(t)
	option := at(server.addr(), func(o *rueidis.ClientOption) { o.ClientSetInfo = []string{"mine", "1"} })
	server.refuse("client")
	require.Equal(t, wire.Answered, ask(t, poolOf(t, option), "ping").Fate)
	option.ClientNoTouch = true
	reply := ask(t, poolOf(t, option), "ping")
	require.Equal(t, wire.NotSent, reply.Fate)
	require.ErrorContains(t, reply.Err, "[client no-touch on]: ERR unknown command")
}
