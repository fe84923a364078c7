package redsync_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows what Open waits for, and what its errors say.

// closedPort returns an address on which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	addr, err := realredis.FreeAddr()
	noError(t, err)
	return addr
}

func TestOpenBadAddressesAreErrors(t *testing.T) {
	for want, addresses := range map[string][]string{
		"no pools":                               nil,
		`address #1: "x" is not of`:              {"127.0.0.1:1", "x"},
		`"" is not of the form`:                  {""},
		"#0 and #2 are one server (127.0.0.1:1)": {"127.0.0.1:1", "127.0.0.1:2", "redis://127.0.0.1:1/3"},
		"contains a space":                       {" 127.0.0.1:1"},
		`port "1\n" is not`:                      {"127.0.0.1:1", "127.0.0.1:1\n"},
		`port "0" is not`:                        {"127.0.0.1:0"},
		`port "65536" is not`:                    {"127.0.0.1:65536"},
		`port "99999" is not`:                    {"redis://127.0.0.1:99999"},
		"http://h:1":                             {"http://h:1"},
	} {
		_, err := redsync.Open(t.Context(), addresses)
		says(t, err, want)
	}
	for address, want := range map[string]string{
		"redis://user:secret@host:x/":             `"redis://...@host:x/" cannot be parsed as a URL: characters such as @ / # %`,
		"redis://user:secret/x@host:1":            `"redis://...@host:1" cannot be parsed as a URL: characters such as @ / # %`,
		"redis://user:sec%ret@host:1":             "must be percent-encoded (url.UserPassword does that)",
		"user:secret@host:1":                      `"...@host:1" is not of the form`,
		"redis://host:1?password=secret":          `"redis://host:1?..." cannot be parsed as a URL: user and password stand before the host`,
		"redis://?password=secret":                `"redis://?..." cannot be parsed as a URL`,
		"?secret":                                 `"?..." is not of the form`,
		"redis://host:1?password=x@secret":        `"redis://..." cannot be parsed as a URL`,
		"redis://host:1?secret":                   "an option after the ? is unknown",
		"redis://host:1?db=secret":                "an option after the ? is unknown, or its value is bad",
		"rediss://user:p?secret@host:1?no=secret": `"rediss://..." cannot be parsed as a URL`,
		"host:1?password=secret":                  "",
		"redis://:secret":                         `"redis://...@" cannot be parsed as a URL: the port is not a number`,
		"redis://user:secret:6379":                "cannot be parsed as a URL",
		"host:6379:secret":                        `"host:..." is not of the form`,
		"host:6379:pa]s/secret:x":                 `"host:..." is not of the form`,
		"[::1]:6379:secret":                       `"[::1]:..." is not of the form`,
		"host:6379:secret://x":                    `"host:..." cannot be parsed as a URL: the password stands before the host`,
		"redis://host:6379:secret?db=1":           `"redis://host:...?..." cannot be parsed`,
		"redis://user:x@host:6379:secret":         `"redis://...@host:..." cannot be parsed`,
	} {
		_, err := redsync.Open(t.Context(), []string{address})
		erred(t, err)
		assert.NotContains(t, err.Error(), "secret")
		says(t, err, want)
	}
	_, err := redsync.Open(t.Context(), []string{"127.0.0.1:1", "127.0.0.1:1"})
	errorIs(t, err, redsync.ErrDuplicateNode)
}

func TestOpenEndedByItsContextNamesWhatNodesSaid(t *testing.T) {
	testlength.NotShort(t)
	t.Parallel()
	addresses := []string{closedPort(t)}
	for range 2 {
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		noError(t, err)
		defer func() { _ = silent.Close() }()
		addresses = append(addresses, silent.Addr().String())
	}
	_, err := redsync.Open(limited(t, 3*sec), addresses) // Open itself waits for 5 s
	errorIs(t, err, context.DeadlineExceeded)
	says(t, err, "refused")
	require.NotErrorIs(t, err, redsync.ErrNoQuorum) // the context has cut the round
	for i := range 3 {
		says(t, err, fmt.Sprintf("node #%d (", i))
	}
}

// Open waits for a node that is just starting, and says so. It does not wait where no later answer can help.
func TestOpenWaitsForANodeThatStarts(t *testing.T) {
	testlength.NotShort(t)
	t.Parallel()
	for _, password := range []string{"", "secret"} {
		log, late, address := &safeLog{}, miniredis.NewMiniRedis(), closedPort(t)
		late.RequireAuth(password)
		time.AfterFunc(700*ms, func() { _ = late.StartAddr(address) })
		ctx := limited(t, minute)
		rs, err := redsync.Open(ctx, []string{address}, redsync.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		noError(t, ctx.Err())
		text := log.String()
		assert.Contains(t, text, `level=WARN msg="redsync: waiting for nodes" answered="0 of 1" at_most=`)
		assert.Contains(t, text, "refused")
		assert.Equal(t, 1, strings.Count(text, "\n"), text)
		if password == "" {
			noError(t, err)
			shut(t, rs)
		} else {
			errorIs(t, err, redsync.ErrNoQuorum)
			says(t, err, "redsync: Open: the only node failed; this will not pass by itself: node #0 ("+address+"): NOAUTH")
		}
		late.Close()
	}
}

func TestNewOnAnAddressThatNobodyCanDialFailsAtOnce(t *testing.T) {
	for addr := range strings.SplitSeq(" h:1,h:1\n,h:0,h:65536,h:-1,h,h:no-such-service,h:1:secret,[::1]:1:secret,[::1:secret,x:h:1:secret", ",") {
		client := redis.NewClient(&redis.Options{Addr: addr})
		p := pool.New(client)
		err := redsync.New(p).NewMutex("lock").Lock()
		if strings.Contains(addr, "secret") {
			says(t, err, `:...": `) // too many colons, and no more is said
		} else {
			says(t, err, fmt.Sprintf("pool #0: address %q: ", addr))
		}
		require.NotContains(t, err.Error()+p.String(), "secret")
		noError(t, client.Close())
	}
}

// pinging plays f with a log of what is written at level Info or above.
func pinging(t *testing.T, f func(f field, log *safeLog)) {
	t.Helper()
	play(t, func(pl field) {
		log := &safeLog{}
		pl.Redsync = pl.With(logsTo(log))
		f(pl, log)
	})
}

// A safeLog keeps what is written to it.
type safeLog struct{ safeBuffer }

// take returns the lines since the last call.
func (l *safeLog) take() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return strings.Split(strings.TrimSuffix(l.text.String(), "\n"), "\n")
}

func TestPingNamesTheNodesThatDoNotAnswer(t *testing.T) {
	pinging(t, func(f field, log *safeLog) {
		logs := func(want string) string {
			noError(f, f.Ping(f.Context()))
			text := strings.Join(log.take(), "\n")
			assert.Contains(f, text, want)
			assert.Zero(f, strings.Count(text, "\n"))
			return text
		}
		noError(f, f.Ping(nil)) //nolint:staticcheck // a nil context stands for context.Background
		assert.Empty(f, logs(""))

		f.freeze(3)
		start := time.Now()
		logs(`level=WARN msg="redsync: some nodes do not answer" answered="4 of 5" may_fail=1 error="redsync: node #3 (127.0.0.1:7004): no answer within 250ms"`)
		took(f, start, 250*ms)
		f.kill(4)
		logs(`answered="3 of 5" may_fail=0 error="redsync: node #3 (127.0.0.1:7004): no answer within 250ms; node #4 (127.0.0.1:7005): `)

		// A readiness probe does not flood the log, not even if nodes come and go.
		f.thaw(3)
		assert.Empty(f, logs(""))
		f.freeze(3)
		for range 10 {
			assert.Empty(f, logs(""))
			time.Sleep(sec - 250*ms)
		}
		logs("some nodes do not answer")
		f.thaw(3)
		f.restart(4)
		assert.Empty(f, logs(""))
	})
}

func TestPingSaysWhatIsWrongWithTheRedsync(t *testing.T) {
	play(t, func(f field) {
		var none *redsync.Redsync
		errorIs(f, none.Ping(f.Context()), redsync.ErrNoPools)
		errorIs(f, none.With(lasting).NewMutex("x").Lock(), redsync.ErrNoPools)
		errorIs(f, redsync.New().Ping(f.Context()), redsync.ErrNoPools)
		says(f, f.With(withExpiry(-1)).Ping(f.Context()), "redsync: Ping: WithExpiry(-1ns) is out of range")
		clients := clientsOf(f.nodes)
		errorIs(f, on(append(clients, clients[0])).Ping(f.Context()), redsync.ErrDuplicateNode)
		short := f.process(pool.WithRestartGuard(sec)) // shorter than the expiry, so every Lock fails
		f.closes(short)
		says(f, short.Ping(f.Context()), "together at most 1s, which pool #0 guards")
		f.freeze(0, 1, 2)
		f.nodes[3].On("ping", 9, embedded.Fault{Err: "NOAUTH"})
		says(f, f.Ping(f.Context()), named(3)+"NOAUTH")
		f.thaw(0, 1, 2)
		sleep(sec)
		f.freeze(0, 1, 2)
		ctx, cancel := context.WithCancel(f.Context())
		time.AfterFunc(ms, cancel)
		err := f.Ping(ctx)
		errorIs(f, err, context.Canceled)
		require.NotErrorIs(f, err, redsync.ErrNoQuorum)
		shut(f, f.Redsync)
		errorIs(f, f.Ping(f.Context()), redsync.ErrClosed)
	})
}

// A call that no node answers, and during which the Redsync is closed, says so.
func TestCallsThatCloseInterruptsSaySo(t *testing.T) {
	for name, call := range map[string]func(f field) error{
		"Ping":    func(f field) error { return f.Ping(f.Context()) },
		"Unlock":  nil,
		"Extend":  nil,
		"Valid":   nil,
		"Lock":    func(f field) error { return f.NewMutex("y").Lock() },
		"TryLock": func(f field) error { return f.NewMutex("y").TryLock() },
		"Lead":    func(f field) error { return f.Lead(f.Context(), "y", nothing) },
	} {
		playAs(t, name, func(f field) {
			m := f.held()
			f.freeze(allNodes...)
			start := time.Now()
			time.AfterFunc(10*ms, func() { _ = f.Close(f.Context()) })
			if call != nil {
				errorIs(f, call(f), redsync.ErrClosed)
			} else {
				failsWith(f, operations(m)[name], redsync.ErrClosed)
			}
			if name == "Ping" {
				took(f, start, 10*ms)
			}
		})
	}
}

func TestPingOfJointSetsNeedsBoth(t *testing.T) {
	play(t, func(f field) {
		pools := f.pools()
		log := &safeLog{}
		joint := redsync.NewJoint(pools, pools[:3]).With(logsTo(log))
		f.closes(joint)
		f.kill(0)
		noError(f, joint.Ping(f.Context()))
		lines := log.take()
		require.Len(f, lines, 1)
		assert.Contains(f, lines[0], "answered=\"before: 4 of 5; after: 2 of 3\" may_fail=0")
		f.kill(1)
		errorIs(f, joint.Ping(f.Context()), redsync.ErrNoQuorum)
	})
}

// Open returns once a quorum has answered.
func TestOpenNamesNodesThatDoNotAnswer(t *testing.T) {
	testlength.NotShort(t)
	t.Parallel()
	log, refuses := &safeLog{}, miniredis.RunT(t)
	refuses.RequireAuth("secret")
	addresses := []string{closedPort(t), refuses.Addr(), "redis://" + miniredis.RunT(t).Addr() + "/0"}
	for range 2 {
		addresses = append(addresses, miniredis.RunT(t).Addr())
	}
	_, err := redsync.Open(t.Context(), addresses, withExpiry(-1))
	says(t, err, "redsync: Open: WithExpiry(-1ns) is out of range")
	assert.Zero(t, refuses.CurrentConnectionCount()) // Open checks its options first
	rs, err := redsync.Open(t.Context(), addresses, lasting, redsync.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	noError(t, err)
	text := log.String()
	assert.Contains(t, text, `level=WARN msg="redsync: some nodes do not answer" answered="3 of 5" may_fail=0 error="redsync: node #0 (`+addresses[0])
	assert.Contains(t, text, "NOAUTH")
	assert.Equal(t, 1, strings.Count(text, "\n"), text)
	m := locked(t, rs.NewMutex("lock"))
	assert.Greater(t, m.Remaining(), 30*sec)
	confirmed(t, m.Unlock)
	shut(t, rs)
}

// One server with two names counts once. Ping says so also without WithLogger.
func TestPingFindsOneServerWithTwoNames(t *testing.T) {
	log := &safeLog{}
	alone(t) // it sets the default of package slog
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	defer slog.SetDefault(before)
	play(t, func(f field) {
		rs := on(append(clientsOf(f.nodes[:4]), f.nodes[0].Client(func(o *redis.Options) { o.Addr = "also-redis-1:6379" })))
		f.closes(rs)
		noError(f, rs.Ping(f.Context()))
		lines := log.take()
		require.Len(f, lines, 1)
		assert.Contains(f, lines[0], "level=WARN msg=\"redsync: some nodes are one server\" answered=\"4 of 5\" may_fail=1")
		assert.Contains(f, lines[0], "nodes #0 (127.0.0.1:7001) and #4 (also-redis-1:6379) are one server, which counts once")
		assert.NotContains(f, lines[0], "node #4") // it is not said twice
		f.kill(3)
		noError(f, rs.Ping(f.Context()))
		assert.Contains(f, log.take()[0], "msg=\"redsync: some nodes do not answer\" answered=\"3 of 5\" may_fail=0")
		f.kill(2)
		errorIs(f, rs.Ping(f.Context()), redsync.ErrNoQuorum)
	})
}
