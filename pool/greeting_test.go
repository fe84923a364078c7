package pool

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/foreign"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// refusedGreetings holds the refusals that a greeting may meet. Send and Subscribe must report the text of each.
var refusedGreetings = map[string]struct {
	change  func(*redis.Options)
	refuses string // the command that the node refuses
	answer  string // the text of the refusal
}{
	"SELECT is not allowed": {func(o *redis.Options) { o.DB = 3 }, "select", "NOPERM this user has no permissions to run the 'select' command"},
	"no such database":      {func(o *redis.Options) { o.DB = 3 }, "select", "ERR DB index is out of range"},
	"CLIENT is not allowed": {func(o *redis.Options) { o.ClientName = "app" }, "client", "NOPERM this user has no permissions to run the 'client|setname' command"},
	"a wrong password":      {func(o *redis.Options) { o.Password = "x" }, "auth", "WRONGPASS invalid username-password pair or user is disabled."},
	"the node refuses OnConnect": {func(o *redis.Options) {
		o.OnConnect = func(ctx context.Context, cn *redis.Conn) error { return cn.Do(ctx, "incr", "greeted").Err() }
	}, "incr", "NOPERM this user has no permissions to run the 'incr' command"},
}

// The pool must not send a request on a connection whose greeting the node refuses. The node would
// execute it as another user, or in another database.
func TestARefusedGreetingIsNoConnection(t *testing.T) {
	for name, c := range refusedGreetings {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, node *embedded.Node) {
				if c.refuses == "auth" { // HELLO carries the password; go-redis tries AUTH only if HELLO fails
					node.On("hello", 1000, embedded.Fault{Err: c.answer})
				}
				node.On(c.refuses, 1000, embedded.Fault{Err: c.answer})
				p := New(clientOf(t, node, c.change))
				for range 10 {
					r := ask(t, p, "set", "key", "value")
					require.Equal(t, NotSent, r.Fate)
					require.Nil(t, r.Server)
					require.False(t, IsDenied(r.Err), "the node refused another command, not this one")
					time.Sleep(redialPause)
				}
				require.Zero(t, node.Commands("set"))

				e := NewEar()
				listenTo(t, p, e)
				require.ErrorContains(t, e.Hears(t, "unsubscribed").Err, c.answer)
				require.Zero(t, node.Commands("subscribe"))

				node.Heal()
				for h := e.Next(t); h.What != "subscribed"; h = e.Next(t) {
					require.Equal(t, "unsubscribed", h.What, "the subscription keeps trying")
				}
				answer(t, p, "set", "key", "value")
			})
		})
	}
}

// The pool reports the error of the user's OnConnect unchanged. go-redis would report only the error
// that is wrapped inside.
func TestOnConnectFailsInItsOwnWords(t *testing.T) {
	bubble(t, func(t *testing.T, node *embedded.Node) {
		mine := fmt.Errorf("no connection today: %w", errors.New("it is Sunday"))
		p := New(clientOf(t, node, func(o *redis.Options) {
			o.OnConnect = func(context.Context, *redis.Conn) error { return mine }
		}))
		r := ask(t, p, "set", "key", "value")
		require.ErrorIs(t, r.Err, mine)
		require.EqualError(t, r.Err, "pool: handshake: no connection today: it is Sunday")
		require.Zero(t, node.Commands("set"))
	})
}

// go-redis connects only for a command, but the pool keeps that command from the node: the
// user may be denied PING, and every other command that the pool does not need.
func TestGreetingSendsNoCommandOfItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, node *embedded.Node) {
		p, e := New(clientOf(t, node, nil)), NewEar()
		answer(t, p, "set", "key", "value")
		listenTo(t, p, e)
		e.Hears(t, "subscribed")
		require.Zero(t, node.Commands("ping"))
		require.Equal(t, 1, node.Commands("info"))
	})
}

// If a node sends more replies during the greeting than it was asked for, the pool drops the
// connection. Otherwise the pool would take the extra reply for the answer to the first request.
func TestGreetingWithAReplyTooMany(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := peer(func(n int, k *talk) {
			for cmd := k.next(); cmd != nil; cmd = k.next() {
				k.say("%s", usual(cmd))
				if n == 1 && cmd[0] == "info" {
					k.say("+OK\r\n")
				}
			}
		}).pool(nil)
		r := ask(t, p, "echo", "1")
		require.NotEqual(t, "OK", r.Value)
		for range 3 {
			require.Equal(t, "2", answer(t, p, "echo", "2").Value, "the next connection answers")
		}
	})
}

// tokens is a StreamingCredentialsProvider. Its method renew replaces the credentials.
type tokens struct {
	followers atomic.Int64
	eager     bool // Subscribe tells a new listener the credentials at once

	mu        sync.Mutex
	now       auth.Credentials
	listeners map[auth.CredentialsListener]bool
}

func (s *tokens) Subscribe(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	s.followers.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listeners == nil {
		s.listeners = make(map[auth.CredentialsListener]bool)
	}
	s.listeners[l] = true
	if s.eager {
		l.OnNext(s.now)
	}
	return s.now, func() error {
		s.followers.Add(-1)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, l)
		return nil
	}, nil
}

// renew replaces the credentials.
func (s *tokens) renew(name, password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = auth.NewBasicCredentials(name, password)
	for l := range s.listeners {
		l.OnNext(s.now)
	}
}

// When the provider replaces the credentials, the pool opens a connection with the new ones. The old
// connection first answers all requests that it carries, so none is lost.
func TestCredentialsAreRenewed(t *testing.T) {
	for _, eager := range []bool{false, true} {
		bubble(t, func(t *testing.T, node *embedded.Node) {
			node.RequireUserAuth("app", "1")
			s := &tokens{eager: eager}
			s.renew("app", "1")
			p := New(clientOf(t, node, func(o *redis.Options) { o.StreamingCredentialsProvider = s }))
			e := NewEar()
			listenTo(t, p, e)
			e.Hears(t, "subscribed")
			first := answer(t, p, "get", "key").Conn
			require.Equal(t, int64(2), s.followers.Load())
			s.renew("app", "1")
			require.Equal(t, first, answer(t, p, "get", "key").Conn, "with the same credentials the pool must keep its connection")

			in := make(replies, 100)
			for i := range 100 {
				require.NoError(t, p.Send(Request{Args: []any{"get", i}, To: in}))
				if i == 50 {
					time.Sleep(2 * time.Second) // a connection serves for a while first
					node.RequireUserAuth("app", "2")
					s.renew("app", "2")
				}
			}
			for range 100 {
				require.Equal(t, Answered, in.wait(t).Fate)
			}
			require.Greater(t, answer(t, p, "get", "key").Conn, first)
			e.Hears(t, "unsubscribed", "subscribed")
			require.Equal(t, int64(2), s.followers.Load(), "former connections no longer follow the credentials")
			require.NoError(t, p.Close())
			synctest.Wait()
			require.Zero(t, s.followers.Load())
		})
	}
}

// If the provider fails or gives no credentials, the requests fail, and later requests ask the provider again.
func TestCredentialsThatCannotBeHad(t *testing.T) {
	bubble(t, func(t *testing.T, node *embedded.Node) {
		s := &tokens{}
		p := New(clientOf(t, node, func(o *redis.Options) { o.StreamingCredentialsProvider = s }))
		require.ErrorContains(t, ask(t, p, "get", "key").Err, "no credentials")
		synctest.Wait()
		require.Zero(t, s.followers.Load())
		s.renew("app", "")
		require.ErrorContains(t, ask(t, p, "get", "key").Err, "without a password", "the request must fail: go-redis would log in as the default user")
		s.renew("default", "")
		answer(t, p, "get", "key")

		away := errors.New("the vault is closed")
		p = New(clientOf(t, node, func(o *redis.Options) { o.StreamingCredentialsProvider = failing{away} }))
		require.ErrorIs(t, ask(t, p, "get", "key").Err, away)
	})
}

// The pool asks the provider once it has reached the node, as go-redis does it: a provider may make credentials for that
// address, and a node that is down needs none.
func TestCredentialsAreAskedForAfterTheDial(t *testing.T) {
	bubble(t, func(t *testing.T, node *embedded.Node) {
		var done []string
		p := New(clientOf(t, node, func(o *redis.Options) {
			dial := o.Dialer
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				if err == nil {
					done = append(done, "reached")
				}
				return conn, err
			}
			o.StreamingCredentialsProvider = providerFunc(func(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
				done = append(done, "asked")
				return auth.NewBasicCredentials("default", ""), func() error { return nil }, nil
			})
		}))
		node.Kill()
		require.Error(t, ask(t, p, "ping").Err)
		require.Empty(t, done)
		node.Restart(true)
		time.Sleep(time.Second) // the pool pauses after a failure
		answer(t, p, "ping")
		require.Equal(t, []string{"reached", "asked"}, done)
	})
}

// The provider replaces the credentials every millisecond. Each connection must still serve for a
// while: if new credentials ended it at once, no request would ever be answered.
func TestCredentialsThatNeverSettle(t *testing.T) {
	bubble(t, func(t *testing.T, node *embedded.Node) {
		node.On("hello", 1e6, embedded.Fault{Delay: 2 * time.Millisecond})
		var n atomic.Int64
		ended := make(chan struct{})
		p := New(clientOf(t, node, func(o *redis.Options) {
			o.StreamingCredentialsProvider = providerFunc(func(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
				go func() {
					for i := range 100 {
						select {
						case <-time.After(time.Millisecond): //nolint:forbidigo // in virtual time
							l.OnNext(auth.NewBasicCredentials("default", strings.Repeat("x", i)))
						case <-ended:
						}
					}
				}()
				return auth.NewBasicCredentials("default", fmt.Sprint(n.Add(1))), func() error { return nil }, nil
			})
		}))
		for range 20 {
			answer(t, p, "get", "key")
			time.Sleep(500 * time.Millisecond)
		}
		close(ended)
		require.LessOrEqual(t, opened(node), 11)
	})
}

// A provider answers after the pool has given up. The pool ends that subscription, which no connection uses: otherwise
// the provider would renew credentials for it for ever.
func TestCredentialsThatComeTooLate(t *testing.T) {
	bubble(t, func(t *testing.T, node *embedded.Node) {
		s, slow := &tokens{}, true
		s.renew("default", "")
		p := New(clientOf(t, node, func(o *redis.Options) {
			o.StreamingCredentialsProvider = providerFunc(func(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
				if slow {
					time.Sleep(time.Hour)
				}
				return s.Subscribe(l)
			})
		}))
		require.ErrorContains(t, ask(t, p, "get", "key").Err, "the provider has not answered")
		require.Zero(t, s.followers.Load())
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Zero(t, s.followers.Load())
		slow = false
		answer(t, p, "get", "key")
		require.Equal(t, int64(1), s.followers.Load())
		require.NoError(t, p.Close())
	})
}

// Whatever a function of the user's does while the pool opens or closes a connection, no request may hang,
// no connection may stay open, and the process must continue. A panic becomes an error, and says so.
func TestFunctionsOfTheUserThatMisbehave(t *testing.T) {
	gives := func(wait time.Duration, unsubscribe auth.UnsubscribeFunc) func(*redis.Options) {
		return func(o *redis.Options) {
			o.StreamingCredentialsProvider = providerFunc(func(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
				time.Sleep(wait)
				return auth.NewBasicCredentials("default", ""), unsubscribe, nil
			})
		}
	}
	dials := func(dial func() (net.Conn, error)) func(*redis.Options) {
		return func(o *redis.Options) {
			o.Dialer = func(context.Context, string, string) (net.Conn, error) { return dial() }
		}
	}
	for name, c := range map[string]struct {
		change func(*redis.Options)
		text   string // of the error, if there is one in any case
	}{
		"an unsubscribe that panics":        {gives(0, func() error { panic("oops") }), ""},
		"an unsubscribe that takes an hour": {gives(0, func() error { time.Sleep(time.Hour); return nil }), ""},
		"a provider that takes an hour":     {gives(time.Hour, func() error { return nil }), ""},
		"a nil connection":                  {dials(func() (net.Conn, error) { var c *net.TCPConn; return c, nil }), ""},
		"no connection":                     {dials(func() (net.Conn, error) { return nil, nil }), ""},
		"a nil error":                       {dials(func() (net.Conn, error) { var e *nilError; return nil, e }), ""},
		"an error that cannot be compared":  {dials(func() (net.Conn, error) { return nil, listError{"oops"} }), "oops"},
		"a panic with such an error":        {dials(func() (net.Conn, error) { panic(listError{"oops"}) }), "oops"},
		"a Dialer that ends its goroutine":  {dials(func() (net.Conn, error) { runtime.Goexit(); return nil, nil }), ""},
		"a Dialer that panics":              {dials(func() (net.Conn, error) { panic("oops") }), "oops"},
		"an OnConnect that panics": {func(o *redis.Options) {
			o.OnConnect = func(context.Context, *redis.Conn) error { panic("oops") }
		}, "pool: handshake: "},
		"credentials that panic": {func(o *redis.Options) { o.CredentialsProvider = func() (string, string) { panic("oops") } }, "pool: handshake: "},
		"a provider that panics": {func(o *redis.Options) {
			o.StreamingCredentialsProvider = providerFunc(func(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) { panic("oops") })
		}, "pool: handshake: "},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, node *embedded.Node) {
				p, e := New(clientOf(t, node, c.change)), NewEar()
				for i := range 3 {
					r := ask(t, p, "get", "key") // fails the test if there is no reply
					if r.Err != nil {
						_ = map[error]bool{r.Err: true}
						require.NotEmpty(t, r.Err.Error())
					}
					if c.text != "" {
						require.ErrorContains(t, r.Err, c.text)
						require.ErrorContains(t, r.Err, "oops")
						require.Equal(t, NotSent, r.Fate)
					}
					if i == 1 {
						node.Freeze()
						got := make(replies, 1)
						require.NoError(t, p.Send(Request{Args: []any{"get", "key"}, To: got}))
						got.wait(t)
						node.Thaw()
					}
				}
				if c.text != "" {
					listenTo(t, p, e)
					require.ErrorContains(t, e.Hears(t, "unsubscribed").Err, "oops")
				}
				require.NoError(t, p.Close())
				time.Sleep(2 * time.Hour)
				require.Zero(t, node.CurrentConnectionCount())
			})
		})
	}
}

type providerFunc func(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error)

func (f providerFunc) Subscribe(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	return f(l)
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

type listError []string

func (e listError) Error() string { return strings.Join(e, ", ") }

type failing struct{ err error }

func (f failing) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	return nil, nil, f.err
}

// nonsense holds data that no healthy node sends. A node sends the text begin once, and then repeats the
// text more, up to 20 MiB or until the client stops reading.
var nonsense = []struct{ begin, more string }{
	{"$9223372036854775807\r\n", ""},
	{"$9223372036854775800\r\n", "x"},
	{"$999999999999999\r\n", ""},
	{"$9999999999\r\n", "x"},
	{"$1073741824\r\n", "x"},
	{"$16777217\r\n", "x"},
	{"$-5\r\n", ""},
	{"*9223372036854775807\r\n", ""},
	{"*2147483647\r\n", "$-1\r\n"},
	{"*1048576\r\n*1048576\r\n*1048576\r\n", "*1048576\r\n"},
	{"*400000000\r\n", ""},
	{"*-7\r\n", ""},
	{"", "*1\r\n"},
	{"", "%1\r\n"},
	{"%9223372036854775800\r\n", "+a\r\n"},
	{"%9999999\r\n", "+a\r\n"},
	{"~2147483647\r\n", ":1\r\n"},
	{">2147483647\r\n", ":1\r\n"},
	{"", ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n"},
	{"", "|1\r\n+a\r\n+b\r\n"},
	{"=2\r\nab\r\n", ""},
	{"!2147483647\r\n", "x"},
	{"(", "9"},
	{"+", "a"},
	{"-", "a"},
	{"-ERR ", "a"},
	{"", "-ERR you are wrong\r\n"},
	{"", "+OK\r\n"},
	{"", ":5\r\n"},
	{"", "$-1\r\n"},
	{"", "*0\r\n"},
	{"", "\x00\xff\r\n"},
	{"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n", ""},
	{"$100\r\nabc", ""},
	{"", "a"},
	{"*340000\r\n", ":1\r\n"},
	{"-ERR \x1b[31mRED\x1b]0;title\a\x00\x7f\t\u009b\x9b\u202e\r\n", ""},
	{"!20\r\nERR \x1b[2J\r\nredsync: \r\n", ""},
}

// utter sends begin once and then repeats more, until the client stops reading or 20 MiB are sent.
func (k *talk) utter(begin, more string) {
	if _, err := io.WriteString(k, begin); err != nil || more == "" {
		return
	}
	chunk := []byte(strings.Repeat(more, 1+65536/len(more)))
	for range 20 << 20 / len(chunk) {
		if _, err := k.Write(chunk); err != nil {
			return
		}
	}
}

// moments are the commands that the node may answer with nonsense: the commands of a greeting, the
// commands that a stream sends first, a request, and the commands of a subscription.
var moments = []string{"hello", "client", "select", "info", "script", "echo", "subscribe", "ping"}

// Whatever a node answers, at any moment in the life of a connection, the process must continue and
// use little memory, and each request must get one reply.
func FuzzNonsense(f *testing.F) {
	for i, c := range nonsense {
		for moment := range testlength.InGate(2, 3, len(moments), len(moments)) { // at least each text, and each moment
			f.Add(uint8(i+3*moment), c.begin, c.more)
		}
	}
	f.Fuzz(func(t *testing.T, moment uint8, begin, more string) {
		command := moments[int(moment)%len(moments)]
		virtual(t, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			p := peer(func(n int, k *talk) {
				for cmd := k.next(); len(cmd) > 0; cmd = k.next() {
					if cmd[0] == command && n <= 2 { // on the stream's first connection and the subscription's
						k.utter(begin, more)
						return
					}
					k.say("%s", usual(cmd))
				}
			}).pool(func(o *redis.Options) { o.DB, o.ClientName = 1, "app" })
			defer p.Close()
			e := NewEar()
			listenTo(t, p, e)
			got := make(replies, 1)
			require.NoError(t, p.Send(Request{Args: []any{"echo", "first"}, To: got}))
			checkErrorText(t, got.wait(t).Err)
			h := e.Next(t)
			for ; h.What == "unsubscribed"; h = e.Next(t) {
				checkErrorText(t, h.Err)
			}
			if h.What == "refused" {
				require.Equal(t, "subscribe", command)
				require.Equal(t, "-", (begin + more)[:1], "Refused was called, but the node sent no error reply")
			}
			time.Sleep(10 * time.Second)
			for range 2 { // the first may be lost with a connection
				got = make(replies, 1)
				require.NoError(t, p.Send(Request{Args: []any{"echo", "second"}, To: got}))
				checkErrorText(t, got.wait(t).Err)
			}
			require.Equal(t, "third", answer(t, p, "echo", "third").Value)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(96<<20), "bytes allocated")
		})
	})
}

// checkErrorText fails the test if the text of an error is longer than twice maxErrorText, or does something in a terminal.
func checkErrorText(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		require.LessOrEqual(t, len(err.Error()), 2*maxErrorText)
		require.Equal(t, foreign.Text(err.Error(), 2*maxErrorText), err.Error())
	}
}

// If a greeting fails, the error begins with a hint about the cause, and the node's answer follows.
func TestGreetingThatFailsSaysWhatIsWrong(t *testing.T) {
	for said, want := range map[string]string{
		"-DENIED Redis is running in protected mode because protected mode is enabled\r\n": "protected mode: it has no password",
		"-ERR max number of clients reached\r\n":                                           "no room for another connection (maxclients)",
		"-WRONGPASS invalid username-password pair or user is disabled.\r\n":               "the client's user name or password is wrong: ",
		"-NOAUTH HELLO must be called with the client already authenticated\r\n":           "the node asks for a password, and the client has none: ",
		"\x15\x03\x01\x00\x02\x02\x46":                                                     "the node speaks TLS on this port, and the client does not",
		"":                                                                                 "without a word (does it speak TLS on this port?)",
	} {
		t.Run(want, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				p := peer(func(_ int, k *talk) {
					k.next()
					k.say("%s", said)
				}).pool(func(o *redis.Options) { o.Password = "1" })
				r := ask(t, p, "set", "key", "value")
				require.ErrorContains(t, r.Err, want)
				require.Equal(t, NotSent, r.Fate)
				if strings.HasPrefix(said, "-") {
					require.ErrorContains(t, r.Err, strings.TrimSpace(said[1:20]))
				}
			})
		})
	}
}

// A Redis server without TLS waits for the end of a line, which a handshake does not have. It does answer PING.
func TestTLSToASilentPlainPortSaysSoWithinASecond(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	var open sync.WaitGroup
	var heard sync.Map // what the node has received on each connection
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				first := make([]byte, 4)
				_, _ = io.ReadFull(c, first)
				if string(first) == "PING" {
					_, _ = c.Write([]byte("-NOAUTH Authentication required.\r\n"))
				}
				more, _ := io.ReadAll(c) // until the client ends the connection
				heard.Store(string(first)+string(more), true)
				_ = c.Close()
			})
		}
	}()
	client := redis.NewClient(&redis.Options{
		Addr: l.Addr().String(), Username: "user", Password: "secret", TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12},
	})
	defer func() { _ = client.Close() }()
	p := New(client)
	start := time.Now()
	r := ask(t, p, "set", "key", "value")
	require.ErrorContains(t, r.Err, "the client speaks TLS, and the node does not on this port: it answers plain Redis")
	require.Equal(t, NotSent, r.Fate)
	require.NotErrorIs(t, r.Err, context.Canceled)
	t.Logf("after %v", time.Since(start))
	require.NoError(t, p.Close())
	open.Wait() // all connections have ended
	for text := range heard.Range {
		require.NotContains(t, text, "secret")
		require.NotContains(t, text, "user")
	}
}

// If the dial of a client with TLS fails, the error gets a hint about TLS only if TLS may be the
// cause.
func TestTLSDialThatFailsSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		failed error
		hint   string
	}{
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, ""},
		{&tls.CertificateVerificationError{Err: errors.New("unknown authority")}, ""},
		{&net.OpError{Op: "remote error", Err: tls.AlertError(40)}, "the TLS handshake failed (does the node speak TLS on this port?): "},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, "the client speaks TLS, and the node does not on this port: "},
	} {
		t.Run(c.failed.Error(), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				p := peer(nil).pool(func(o *redis.Options) {
					o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
					o.Dialer = func(context.Context, string, string) (net.Conn, error) { return nil, c.failed }
				})
				r := ask(t, p, "set", "key", "value")
				require.EqualError(t, r.Err, c.hint+c.failed.Error())
				require.ErrorIs(t, r.Err, c.failed)
				require.Equal(t, NotSent, r.Fate)
			})
		})
	}
}

// Once the pool has taken a connection back, go-redis can no longer use it, close it, or set its
// deadlines.
func TestLentConn(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() { _, _ = io.Copy(theirs, theirs) }()
	c := newLentConn(ours)
	b := make([]byte, 5)
	echo := func(rw io.ReadWriter) error {
		if _, err := io.WriteString(rw, "+ab\r\n"); err != nil {
			return err
		}
		_, err := io.ReadFull(rw, b)
		return err
	}
	require.NoError(t, echo(c))
	require.NoError(t, c.SetDeadline(time.Now().Add(-time.Second)))
	require.NoError(t, c.takeBack())
	require.NoError(t, c.Close())
	require.NoError(t, echo(ours), "takeBack must leave the connection open and without a deadline")
	require.ErrorIs(t, echo(c), net.ErrClosed)
	_, err := c.Read(b)
	require.ErrorIs(t, err, net.ErrClosed)
	for _, set := range []func(time.Time) error{c.SetDeadline, c.SetReadDeadline, c.SetWriteDeadline} {
		require.ErrorIs(t, set(time.Now()), net.ErrClosed)
	}
	require.NoError(t, echo(ours), "go-redis must set no deadline on the connection")
	require.ErrorIs(t, c.takeBack(), net.ErrClosed)
	require.NoError(t, ours.Close())

	ours, _ = net.Pipe()
	c = newLentConn(ours)
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.takeBack(), net.ErrClosed, "takeBack must fail after go-redis has closed the connection")
}
