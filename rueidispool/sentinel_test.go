package rueidispool

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// A pool finds the master, of which only Sentinels know the address, and the next one when it dies. The Sentinel has a
// password and TLS, and the nodes have neither: go-redis has one TLSConfig for both.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	primary := realredis.Start(t, 1, "--repl-diskless-sync-delay", "0")[0]
	host, port, _ := net.SplitHostPort(primary.Addr())
	replica := realredis.Start(t, 1, "--replicaof", host, port, "--repl-diskless-sync-delay", "0")[0]
	keys := realredis.NewCertificates(t, t.TempDir())
	sentinel, watch := startSentinel(t, keys, host, port)
	nobodyThere, err := realredis.FreeAddr()
	require.NoError(t, err)
	dials := atomic.Int32{}
	option := rueidis.ClientOption{
		InitAddress: []string{nobodyThere, sentinel},
		Sentinel: rueidis.SentinelOption{
			MasterSet: "main", Password: "sentinels", TLSConfig: keys.Client, ClientName: "locks",
			Dialer: net.Dialer{Control: func(string, string, syscall.RawConn) error { dials.Add(1); return nil }},
		},
	}
	p := poolOf(t, option)
	require.Equal(t, "main", p.String())
	first := answered(t, p, "set", "k", "v")
	require.NotZero(t, first.Conn)
	require.Equal(t, primary.Addr(), p.String())
	require.NotZero(t, dials.Load())

	unknown := option
	unknown.Sentinel.MasterSet = "other"
	refusedWith(t, poolOf(t, unknown), saying("InitAddress[1]: it does not know this name"))
	refused := option
	refused.Sentinel.Password = "wrong"
	refusedWith(t, poolOf(t, refused), saying("WRONGPASS"))

	require.Eventually(t, func() bool {
		replicas, err := watch.Do(t.Context(), "sentinel", "replicas", "main").Result()
		return err == nil && strings.Contains(fmt.Sprint(replicas), "master-link-status:ok")
	}, time.Minute, 20*time.Millisecond)
	primary.Kill()
	require.Eventually(t, func() bool { return ask(t, p, "set", "k", "w").Err == nil }, time.Minute, 50*time.Millisecond)
	second := answered(t, p, "ping")
	require.Greater(t, second.Conn, first.Conn)
	require.NotEqual(t, first.Server.RunID, second.Server.RunID)
	require.Equal(t, replica.Addr(), p.String())
	got := realredis.Must(t, replica, "get", "k")
	require.Equal(t, "w", got)
}

// startSentinel starts a Sentinel with TLS and a password that watches one primary. It returns the Sentinel's address, and
// a client of it.
func startSentinel(t *testing.T, keys realredis.Certificates, host, port string) (address string, client *redis.Client) {
	t.Helper()
	address, err := realredis.FreeAddr()
	require.NoError(t, err)
	_, own, _ := net.SplitHostPort(address)
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("port 0\ntls-port %s\nbind 127.0.0.1\nrequirepass sentinels\n"+
		"tls-cert-file %s\ntls-key-file %s\ntls-ca-cert-file %s\ntls-auth-clients no\n"+
		"sentinel monitor main %s %s 1\nsentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 5000\n",
		own, keys.Cert, keys.Key, keys.Authority, host, port)
	require.NoError(t, os.WriteFile(conf, []byte(text), 0o600))
	var log bytes.Buffer
	cmd := exec.Command("redis-server", conf, "--sentinel")
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = realredis.EndWithParent()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the Sentinel printed: %s", &log)
		}
	})
	client = redis.NewClient(&redis.Options{
		Addr: address, Password: "sentinels", TLSConfig: keys.Client,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = client.Close() })
	require.Eventually(t, func() bool { return client.Ping(t.Context()).Err() == nil }, time.Minute, 50*time.Millisecond)
	return address, client
}

// played returns options with Sentinels of which each plays a part, and a node.
func played(parts map[string]func(ctx context.Context) (net.Conn, error), names ...string) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: names,
		Sentinel:    rueidis.SentinelOption{MasterSet: "main:1"}, // it looks like an address on purpose
		DialCtxFn: func(ctx context.Context, address string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return parts[address](ctx)
		},
	}
}

// naming is a Sentinel that names a master.
func naming(master string) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		r := &recorder{master: master}
		go r.serve(ours)
		return theirs, nil
	}
}

// A Sentinel that is silent, or whose answer is nonsense, delays nothing while another one answers.
func TestSentinelsAreAskedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := embedded.Start(1)
		defer nodes.Close()
		parts := map[string]func(context.Context) (net.Conn, error){
			"silent": func(ctx context.Context) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
			"slow":      func(context.Context) (net.Conn, error) { time.Sleep(time.Hour); return nil, errAway },
			"away":      func(context.Context) (net.Conn, error) { return nil, errAway },
			"strange":   func(context.Context) (net.Conn, error) { panic("oops") },
			"nothing":   func(context.Context) (net.Conn, error) { return nil, nil },
			"good":      naming("node:6379"),
			"node:6379": func(ctx context.Context) (net.Conn, error) { return nodes[0].Dial(ctx, "", "") },
		}
		opened := func(names ...string) (reply wire.Reply, took time.Duration) {
			p, start := poolOf(t, played(parts, names...)), time.Now()
			return ask(t, p, "ping"), time.Since(start)
		}
		reply, took := opened("silent", "slow", "away", "strange", "nothing", "good")
		require.NoError(t, reply.Err)
		require.Zero(t, took)

		reply, took = opened("away", "strange", "nothing")
		require.Zero(t, took)
		require.Equal(t, wire.NotSent, reply.Fate)
		require.ErrorIs(t, reply.Err, errAway)
		for _, want := range []string{`no Sentinel names the master of "main:1"`, "InitAddress[0]: away", "InitAddress[1]: panic: oops", "InitAddress[2]: "} {
			require.ErrorContains(t, reply.Err, want)
		}

		reply, took = opened("silent", "slow")
		require.ErrorIs(t, reply.Err, context.DeadlineExceeded)
		require.Equal(t, rueidis.DefaultDialTimeout, took)
		time.Sleep(time.Hour) // in which the slow ones end
	})
}

var errAway = errors.New("away")

// Sentinels get the credentials of the function, too, for their own address.
func TestSentinelsGetTheCredentialsOfTheFunction(t *testing.T) {
	node, sentinel := startRecorder(t), startRecorder(t)
	sentinel.master = node.addr()
	p := poolOf(t, at(sentinel.addr(), func(o *rueidis.ClientOption) {
		o.Sentinel.MasterSet = "main"
		o.AuthCredentialsFn = func(c rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
			return rueidis.AuthCredentials{Username: "app", Password: "for " + c.Address.String()}, nil
		}
	}))
	answer(t, p, "ping")
	for _, r := range []*recorder{node, sentinel} {
		r.mu.Lock()
		require.Contains(t, strings.Join(r.seen, "\n"), " auth app for "+r.addr())
		r.mu.Unlock()
	}
}
