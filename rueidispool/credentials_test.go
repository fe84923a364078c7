package rueidispool

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A vault is an AuthCredentialsFn for the user app.
type vault struct {
	lasts time.Duration // until RefreshAfter; 0 for no RefreshAfter

	began time.Time // of the test

	mu       sync.Mutex // guards what follows
	password string
	err      error
	asked    []time.Time
	from     []net.Addr
}

func (v *vault) credentials(from rueidis.AuthCredentialsContext) (got rueidis.AuthCredentials, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = append(v.asked, time.Now())
	v.from = append(v.from, from.Address)
	if v.err != nil {
		return got, v.err
	}
	got.Username, got.Password = "app", v.password
	if v.lasts != 0 {
		got.RefreshAfter = time.Now().Add(v.lasts)
	}
	return got, nil
}

func (v *vault) set(password string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.password, v.err = password, err
}

// times returns when the vault was asked, since the test began.
func (v *vault) times() (times []time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, at := range v.asked {
		times = append(times, at.Sub(v.began))
	}
	return times
}

// onNode plays a test in a bubble, with a pool of a node whose user app has the password of the vault. The vault
// counts from the first request.
func onNode(t *testing.T, v *vault, play func(t *testing.T, node *embedded.Node, p pool.Pool)) {
	t.Helper()
	v.password = "1"
	inBubble(t, v.credentials, func(t *testing.T, node *embedded.Node, _ *redis.Client, p pool.Pool) {
		node.RequireUserAuth("app", "1")
		v.began = time.Now()
		answer(t, p, "ping")
		play(t, node, p)
		asked := len(v.times())
		require.NoError(t, p.Close())
		time.Sleep(time.Hour)
		require.Len(t, v.times(), asked, "nobody may ask for the credentials of a connection that is closed")
	})
}

// credentialsFn is an AuthCredentialsFn.
type credentialsFn = func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error)

// inBubble plays a test in a bubble, with a client of a node.
func inBubble(t *testing.T, fn credentialsFn, play func(t *testing.T, node *embedded.Node, client *redis.Client, p pool.Pool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nodes := embedded.Start(1)
		defer nodes.Close()
		opt, err := Options(rueidis.ClientOption{
			InitAddress: []string{"node:6379"}, DialCtxFn: dialing(nodes[0]), AuthCredentialsFn: fn,
		})
		require.NoError(t, err)
		client := redis.NewClient(opt)
		defer func() { _ = client.Close() }()
		p := pool.New(client)
		defer func() { _ = p.Close() }()
		play(t, nodes[0], client, p)
	})
}

func dialing(node *embedded.Node) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	return func(ctx context.Context, address string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return node.Dial(ctx, "tcp", address)
	}
}

// busy sends a request every 100 ms for a time, never at a full second, so that no timer fires meanwhile. Each must be
// answered. It returns the number of the last connection.
func busy(t *testing.T, p pool.Pool, span time.Duration) (conn uint64) {
	t.Helper()
	const half = 50 * time.Millisecond
	for end := time.Now().Add(span); time.Now().Before(end); time.Sleep(half) {
		time.Sleep(half)
		conn = answer(t, p, "get", "key").Conn
	}
	return conn
}

// At RefreshAfter the pool exchanges its connection for one with the new credentials, and loses no request.
func TestCredentialsAreRefreshed(t *testing.T) {
	v := &vault{lasts: time.Minute}
	onNode(t, v, func(t *testing.T, node *embedded.Node, p pool.Pool) {
		first := busy(t, p, 50*time.Second)
		node.RequireUserAuth("app", "2")
		v.set("2", nil)
		require.Equal(t, first, busy(t, p, 9*time.Second), "before RefreshAfter the pool must keep its connection")
		require.Greater(t, busy(t, p, 10*time.Second), first)
		// The first connection asks at 0 and at a minute. The next request opens the second one, which asks, too.
		require.Equal(t, []time.Duration{0, time.Minute, time.Minute + 50*time.Millisecond}, v.times())
		busy(t, p, 55*time.Second)
		require.Len(t, v.times(), 4)
	})
}

// While the function fails, it is asked every 5 s, and the connection keeps its credentials.
func TestCredentialsThatCannotBeRefreshed(t *testing.T) {
	v := &vault{lasts: time.Minute}
	onNode(t, v, func(t *testing.T, node *embedded.Node, p pool.Pool) {
		v.set("", errors.New("the vault is closed"))
		first := busy(t, p, 71*time.Second)
		require.Equal(t, answer(t, p, "ping").Conn, first)
		require.Equal(t, []time.Duration{0, 60 * time.Second, 65 * time.Second, 70 * time.Second}, v.times())
		node.RequireUserAuth("app", "2")
		v.set("2", nil)
		require.Greater(t, busy(t, p, 10*time.Second), first)
	})
}

// A RefreshAfter that has passed would otherwise ask without a pause.
func TestCredentialsAreRefreshedOnceASecondAtMost(t *testing.T) {
	v := &vault{lasts: -time.Hour}
	onNode(t, v, func(t *testing.T, _ *embedded.Node, p pool.Pool) {
		first := busy(t, p, 10*time.Second+time.Millisecond)
		require.Equal(t, first, answer(t, p, "ping").Conn, "the same credentials need no other connection")
		require.Len(t, v.times(), 11)
	})
}

// Without a RefreshAfter the function is asked for each connection, and never else.
func TestCredentialsAreAskedForAtEachConnection(t *testing.T) {
	v := &vault{}
	onNode(t, v, func(t *testing.T, node *embedded.Node, p pool.Pool) {
		busy(t, p, time.Minute)
		require.Len(t, v.times(), 1)
		node.RequireUserAuth("app", "2")
		v.set("2", nil)
		node.Kill()
		node.Restart(true)
		_ = ask(t, p, "ping") // it may meet the end of the connection
		time.Sleep(time.Second)
		answer(t, p, "ping")
		require.Len(t, v.times(), 2)
	})
}

func TestCredentialsThatCannotBeHad(t *testing.T) {
	for want, fn := range map[string]credentialsFn{
		"no credentials: the vault is closed": func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
			return rueidis.AuthCredentials{Password: "hush"}, errors.New("the vault is closed")
		},
		"AuthCredentialsFn panicked: oops": func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) { panic("oops") },
		"returned a Username without a Password: go-redis would log in as the default user": func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
			return rueidis.AuthCredentials{Username: "app"}, nil
		},
	} {
		inBubble(t, fn, func(t *testing.T, _ *embedded.Node, client *redis.Client, p pool.Pool) {
			reply := ask(t, p, "ping")
			require.ErrorContains(t, reply.Err, want)
			require.Equal(t, wire.NotSent, reply.Fate)
			require.NotContains(t, fmt.Sprint(reply.Err), "hush")
			require.Error(t, client.Ping(t.Context()).Err(), "the client itself must fail, too")
		})
	}
}

// A panic of the function on a timer does not end the process.
func TestCredentialsWhoseRefreshPanics(t *testing.T) {
	var asked atomic.Int32
	fn := func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
		if asked.Add(1) > 1 {
			panic("oops")
		}
		return rueidis.AuthCredentials{RefreshAfter: time.Now().Add(time.Second)}, nil
	}
	inBubble(t, fn, func(t *testing.T, _ *embedded.Node, client *redis.Client, p pool.Pool) {
		first := answer(t, p, "ping").Conn
		require.Equal(t, first, busy(t, p, 12*time.Second))
		require.EqualValues(t, 4, asked.Load())
	})
}

// A listener that subscribes twice has one plan, and each function that Subscribe returned ends it.
func TestAListenerThatSubscribesTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vault{lasts: time.Minute, password: "1"}
		p := newProvider(v.credentials, func() net.Addr { return nil })
		l := &listener{}
		v.began = time.Now()
		_, first, err := p.Subscribe(l)
		require.NoError(t, err)
		time.Sleep(time.Second)
		_, _, err = p.Subscribe(l)
		require.NoError(t, err)
		time.Sleep(2*time.Minute + time.Second)
		require.Equal(t, []time.Duration{0, time.Second, 61 * time.Second, 121 * time.Second}, v.times())
		require.EqualValues(t, 2, l.told.Load())
		require.NoError(t, first())
		time.Sleep(time.Hour)
		require.Len(t, v.times(), 4)
	})
}

// New credentials that come after the end of a connection are told to nobody, and nobody asks for the next ones.
func TestARefreshThatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vault{lasts: time.Minute, password: "1"}
		p := newProvider(func(from rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
			time.Sleep(10 * time.Second)
			return v.credentials(from)
		}, func() net.Addr { return nil })
		l := &listener{}
		v.began = time.Now()
		_, end, err := p.Subscribe(l)
		require.NoError(t, err)
		time.Sleep(65 * time.Second)
		require.NoError(t, end())
		time.Sleep(time.Hour)
		require.Equal(t, []time.Duration{10 * time.Second, 80 * time.Second}, v.times())
		require.Zero(t, l.told.Load())
	})
}

// listener counts what it is told.
type listener struct{ told atomic.Int32 }

func (l *listener) OnNext(auth.Credentials) { l.told.Add(1) }

func (l *listener) OnError(error) {}
