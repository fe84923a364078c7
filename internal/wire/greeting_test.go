package wire

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

	"github.com/seed14bd9ef4/redsync/internal/foreign"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/stall"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// The pool must not send a request on a connection whose greeting the node refuses. The node would
// execute it as another user, or in another database.
func TestARefusedGreetingIsNoConnection(t *testing.T) {
	for name, c := range map[string]struct {
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
	} {
		named(t, name, func(s *scene) {
			if c.refuses == "auth" { // HELLO carries the password; go-redis tries AUTH only if HELLO fails
				s.refuses("hello", 1000, c.answer)
			}
			s.refuses(c.refuses, 1000, c.answer)
			p := s.with(c.change)
			for range 10 {
				require.False(s, IsDenied(unsent(s, p)), "the node refused another command, not this one")
				time.Sleep(redialPause)
			}
			require.Zero(s, s.Commands("get"))

			e := listening(s, p)
			require.ErrorContains(s, e.Hears("unsubscribed").Err, c.answer)
			require.Zero(s, s.Commands("subscribe"))

			s.Heal()
			e.Again()
			answer(s, p, "get", "key")
		})
	}
}

// go-redis connects only for a command, but the pool keeps that command from the node: the
// user may be denied PING, and every other command that the pool does not need.
func TestGreetingSendsNoCommandOfItsOwn(t *testing.T) {
	bubble(t, func(s *scene) {
		p := s.pool()
		answer(s, p, "set", "key", "value")
		subscribed(s, p)
		require.Zero(s, s.Commands("ping"))
		require.Equal(s, 1, s.Commands("info"))
	})
}

// If a node sends more replies during the greeting than it was asked for, the pool drops the
// connection. Otherwise the pool would take the extra reply for the answer to the first request.
func TestGreetingWithAReplyTooMany(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := peer(func(n int, k *talk) {
			for cmd := range k.all {
				k.reply(cmd)
				if n == 1 && cmd[0] == "info" {
					k.say("+OK\r\n")
				}
			}
		}).pool()
		require.NotEqual(t, "OK", ask(t, p, "echo", "1").Value)
		for range 3 {
			require.Equal(t, "2", answer(t, p, "echo", "2").Value, "the next connection answers")
		}
	})
}

// tokens is a StreamingCredentialsProvider. Its method renew replaces the credentials.
type tokens struct {
	followers atomic.Int64
	eager     bool                           // Subscribe tells a new listener the credentials at once
	asked     func(auth.CredentialsListener) // called first, if set
	err       error                          // of Subscribe
	ends      func()                         // called last, if set

	mu        sync.Mutex
	now       auth.Credentials
	listeners map[auth.CredentialsListener]bool
}

// in makes a client ask for the credentials.
func (v *tokens) in(o *redis.Options) { o.StreamingCredentialsProvider = v }

func (v *tokens) Subscribe(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	if v.asked != nil {
		v.asked(l)
	}
	if v.err != nil {
		return nil, nil, v.err
	}
	v.followers.Add(1)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.listeners == nil {
		v.listeners = make(map[auth.CredentialsListener]bool)
	}
	v.listeners[l] = true
	if v.eager {
		l.OnNext(v.now)
	}
	return v.now, func() error {
		v.followers.Add(-1)
		v.mu.Lock()
		delete(v.listeners, l)
		v.mu.Unlock()
		if v.ends != nil {
			v.ends()
		}
		return nil
	}, nil
}

// renew replaces the credentials.
func (v *tokens) renew(name, password string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.now = auth.NewBasicCredentials(name, password)
	for l := range v.listeners {
		l.OnNext(v.now)
	}
}

// When the provider replaces the credentials, the pool opens a connection with the new ones. The old
// connection first answers all requests that it carries, so none is lost.
func TestCredentialsAreRenewed(t *testing.T) {
	for _, eager := range []bool{false, true} {
		bubble(t, func(s *scene) {
			s.RequireUserAuth("app", "1")
			vault := &tokens{eager: eager}
			vault.renew("app", "1")
			p := s.with(vault.in)
			e := subscribed(s, p)
			first := answer(s, p, "get", "key").Conn
			require.EqualValues(s, 2, vault.followers.Load())
			vault.renew("app", "1")
			require.Equal(s, first, answer(s, p, "get", "key").Conn, "with the same credentials the pool must keep its connection")

			in := make(replies, 100)
			for i := range 100 {
				send(s, p, in, "get", i)
				if i == 50 {
					time.Sleep(2 * time.Second) // a connection serves for a while first
					s.RequireUserAuth("app", "2")
					vault.renew("app", "2")
				}
			}
			for range 100 {
				require.Equal(s, Answered, in.wait(s).Fate)
			}
			require.Greater(s, answer(s, p, "get", "key").Conn, first)
			e.Hears("unsubscribed", "subscribed")
			require.EqualValues(s, 2, vault.followers.Load(), "former connections no longer follow the credentials")
			require.NoError(s, p.Close())
			synctest.Wait()
			require.Zero(s, vault.followers.Load())
		})
	}
}

// If the provider fails or gives no credentials, the requests fail, and later requests ask the provider again.
func TestCredentialsThatCannotBeHad(t *testing.T) {
	bubble(t, func(s *scene) {
		vault := &tokens{}
		p := s.with(vault.in)
		require.ErrorContains(s, unsent(s, p), "no credentials")
		synctest.Wait()
		require.Zero(s, vault.followers.Load())
		vault.renew("app", "")
		require.ErrorContains(s, unsent(s, p), "without a password", "the request must fail: go-redis would log in as the default user")
		vault.renew("default", "")
		answer(s, p, "get", "key")

		vault.err = errors.New("the vault is closed")
		err := unsent(s, s.with(vault.in))
		require.ErrorIs(s, err, vault.err)
		require.EqualError(s, err, "pool: handshake: no credentials: the vault is closed")
	})
}

// The pool asks the provider once it has reached the node, as go-redis does it: a provider may make credentials for that
// address, and a node that is down needs none.
func TestCredentialsAreAskedForAfterTheDial(t *testing.T) {
	bubble(t, func(s *scene) {
		var done []string
		vault := &tokens{asked: func(auth.CredentialsListener) { done = append(done, "asked") }}
		vault.renew("default", "")
		p := s.with(func(o *redis.Options) {
			vault.in(o)
			dialing(nil, func(c net.Conn) net.Conn {
				done = append(done, "reached")
				return c
			})(o)
		})
		s.Kill()
		require.Error(s, ask(s, p, "ping").Err)
		require.Empty(s, done)
		s.Restart(true)
		time.Sleep(time.Second) // the pool pauses after a failure
		answer(s, p, "ping")
		require.Equal(s, []string{"reached", "asked"}, done)
	})
}

// The provider replaces the credentials every millisecond. Each connection must still serve for a
// while: if new credentials ended it at once, no request would ever be answered.
func TestCredentialsThatNeverSettle(t *testing.T) {
	bubble(t, func(s *scene) {
		s.On("hello", 1e6, embedded.Fault{Delay: 2 * time.Millisecond})
		var n atomic.Int64
		vault, ended := &tokens{}, make(chan struct{})
		vault.asked = func(l auth.CredentialsListener) {
			vault.renew("default", fmt.Sprint(n.Add(1)))
			go func() {
				for i := range 100 {
					select {
					case <-time.After(time.Millisecond): //nolint:forbidigo // in virtual time
						l.OnNext(auth.NewBasicCredentials("default", strings.Repeat("x", i)))
					case <-ended:
					}
				}
			}()
		}
		p := s.with(vault.in)
		for range 20 {
			answer(s, p, "get", "key")
			time.Sleep(500 * time.Millisecond)
		}
		close(ended)
		require.LessOrEqual(s, s.opened(), 11)
	})
}

// A provider answers after the pool has given up. The pool ends that subscription, which no connection uses: otherwise
// the provider would renew credentials for it for ever.
func TestCredentialsThatComeTooLate(t *testing.T) {
	bubble(t, func(s *scene) {
		slow := time.Hour
		vault := &tokens{asked: func(auth.CredentialsListener) { time.Sleep(slow) }}
		vault.renew("default", "")
		p := s.with(vault.in)
		require.ErrorContains(s, unsent(s, p), "the provider has not answered")
		require.Zero(s, vault.followers.Load())
		settle(time.Hour)
		require.Zero(s, vault.followers.Load())
		slow = 0
		answer(s, p, "get", "key")
		require.EqualValues(s, 1, vault.followers.Load())
	})
}

// Whatever a function of the user's does while the pool opens or closes a connection, no request may hang,
// no connection may stay open, and the process must continue. A panic becomes an error, and says so.
func TestFunctionsOfTheUserThatMisbehave(t *testing.T) {
	gives := func(asked, ends func()) func(*redis.Options) {
		vault := &tokens{asked: func(auth.CredentialsListener) { asked() }, ends: ends}
		vault.renew("default", "")
		return vault.in
	}
	nothing, oops, hour := func() {}, func() { panic("oops") }, func() { time.Sleep(time.Hour) }
	dials := func(first func(), conn net.Conn, err error) func(*redis.Options) {
		return func(o *redis.Options) {
			o.Dialer = func(context.Context, string, string) (net.Conn, error) { first(); return conn, err }
		}
	}
	for name, c := range map[string]struct {
		change func(*redis.Options)
		text   string // of the error, if there is one in any case
	}{
		"an unsubscribe that panics":        {gives(nothing, oops), ""},
		"an unsubscribe that takes an hour": {gives(nothing, hour), ""},
		"a provider that takes an hour":     {gives(hour, nothing), ""},
		"a nil connection":                  {dials(nothing, (*net.TCPConn)(nil), nil), ""},
		"no connection":                     {dials(nothing, nil, nil), ""},
		"a nil error":                       {dials(nothing, nil, (*nilError)(nil)), ""},
		"an error that cannot be compared":  {dials(nothing, nil, listError{"oops"}), "oops"},
		"a panic with such an error":        {dials(func() { panic(listError{"oops"}) }, nil, nil), "oops"},
		"a Dialer that ends its goroutine":  {dials(runtime.Goexit, nil, nil), ""},
		"a Dialer that panics":              {dials(oops, nil, nil), "oops"},
		"an OnConnect that panics": {func(o *redis.Options) {
			o.OnConnect = func(context.Context, *redis.Conn) error { panic("oops") }
		}, "pool: handshake: "},
		"credentials that panic": {func(o *redis.Options) { o.CredentialsProvider = func() (string, string) { panic("oops") } }, "pool: handshake: "},
		"a provider that panics": {gives(oops, nothing), "pool: handshake: "},
	} {
		named(t, name, func(s *scene) {
			p := s.with(c.change)
			for i := range 3 {
				r := ask(s, p, "get", "key") // fails the test if there is no reply
				if r.Err != nil {
					_ = map[error]bool{r.Err: true}
					require.NotEmpty(s, r.Err.Error())
				}
				if c.text != "" {
					require.ErrorContains(s, r.Err, c.text)
					require.ErrorContains(s, r.Err, "oops")
					require.Equal(s, NotSent, r.Fate)
				}
				if i == 1 {
					s.Freeze()
					ask(s, p, "get", "key")
					s.Thaw()
				}
			}
			if c.text != "" {
				require.ErrorContains(s, listening(s, p).Hears("unsubscribed").Err, "oops")
			}
			require.NoError(s, p.Close())
			time.Sleep(2 * time.Hour)
			s.connected(0)
		})
	}
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

type listError []string

func (e listError) Error() string { return strings.Join(e, ", ") }

// nonsense holds data that no healthy node sends. A node sends the text before the … once, and then repeats the rest,
// up to 20 MiB or until the client stops reading.
var nonsense = []string{
	"$9223372036854775807\r\n",
	"$9223372036854775800\r\n…x",
	"$999999999999999\r\n",
	"$9999999999\r\n…x",
	"$1073741824\r\n…x",
	"$16777217\r\n…x",
	"$-5\r\n",
	"*9223372036854775807\r\n",
	"*2147483647\r\n…$-1\r\n",
	"*1048576\r\n*1048576\r\n*1048576\r\n…*1048576\r\n",
	"*400000000\r\n",
	"*-7\r\n",
	"…*1\r\n",
	"…%1\r\n",
	"%9223372036854775800\r\n…+a\r\n",
	"%9999999\r\n…+a\r\n",
	"~2147483647\r\n…:1\r\n",
	">2147483647\r\n…:1\r\n",
	"…>3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n",
	"…|1\r\n+a\r\n+b\r\n",
	"=2\r\nab\r\n",
	"!2147483647\r\n…x",
	"(…9",
	"+…a",
	"-…a",
	"-ERR …a",
	"…-ERR you are wrong\r\n",
	"…+OK\r\n",
	"…:5\r\n",
	"…$-1\r\n",
	"…*0\r\n",
	"…\x00\xff\r\n",
	"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n",
	"$100\r\nabc",
	"…a",
	"*340000\r\n…:1\r\n",
	"-ERR \x1b[31mRED\x1b]0;title\a\x00\x7f\t\u009b\x9b\u202e\r\n",
	"!20\r\nERR \x1b[2J\r\nredsync: \r\n",
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
	for i, text := range nonsense {
		begin, more, _ := strings.Cut(text, "…")
		for moment := range testlength.InGate(2, 3, len(moments), len(moments)) { // at least each text, and each moment
			f.Add(uint8(i+3*moment), begin, more)
		}
	}
	f.Fuzz(func(t *testing.T, moment uint8, begin, more string) {
		command := moments[int(moment)%len(moments)]
		virtual(t, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			p := peer(func(n int, k *talk) {
				for cmd := range k.all {
					if cmd[0] == command && n <= 2 { // on the stream's first connection and the subscription's
						k.utter(begin, more)
						return
					}
					k.reply(cmd)
				}
			}).pool(func(o *redis.Options) { o.DB, o.ClientName = 1, "app" })
			defer p.Close()
			e := listening(t, p)
			checkErrorText(t, ask(t, p, "echo", "first").Err)
			h := e.Next()
			for ; h.What == "unsubscribed"; h = e.Next() {
				checkErrorText(t, h.Err)
			}
			if h.What == "refused" {
				require.Equal(t, "subscribe", command)
				require.Equal(t, "-", (begin + more)[:1], "Refused was called, but the node sent no error reply")
			}
			time.Sleep(10 * time.Second)
			for range 2 { // the first may be lost with a connection
				checkErrorText(t, ask(t, p, "echo", "second").Err)
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
		refuses := strings.Contains(said, "DENIED") || strings.Contains(said, "max number")
		for password, silent := range map[string]bool{"1": false, "": true} {
			if silent && !refuses { // go-redis goes on after such an answer to HELLO, to the first command of the pool
				continue
			}
			virtually(t, want, func(t *testing.T) {
				p := peer(func(_ int, k *talk) {
					k.next()
					k.say("%s", said)
					if silent {
						_ = k.SetReadDeadline(time.Now().Add(time.Second))
						k.drain()
					}
				}).pool(func(o *redis.Options) { o.Password, o.DisableIdentity = password, silent })
				err := unsent(t, p)
				require.ErrorContains(t, err, want)
				if strings.HasPrefix(said, "-") {
					require.ErrorContains(t, err, strings.TrimSpace(said[1:20]))
				}
				if refuses {
					require.NotContains(t, err.Error(), "in place of", "without that command it would be the same")
				}
			})
		}
	}
}

// serving listens on a loopback port until the end of the test, and hands over the connections.
func serving(t *testing.T, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			serve(c)
		}
	}()
	return l.Addr().String()
}

// A Redis server without TLS waits for the end of a line, which a handshake does not have. It does answer PING.
func TestTLSToASilentPlainPortSaysSo(t *testing.T) {
	var open sync.WaitGroup
	var heard sync.Map // what the node has received on each connection
	addr := serving(t, func(c net.Conn) {
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
	})
	stall.Replay(t, slowHandshake/4, func() error { // the node answers in this process, which asks for slowHandshake
		client := unused(t, &redis.Options{
			Addr: addr, Username: "user", Password: "secret", TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		})
		p := New(client, Config{})
		err := unsent(t, p)
		require.NotErrorIs(t, err, context.Canceled)
		require.NoError(t, p.Close())
		if !strings.Contains(err.Error(), "the client speaks TLS, and the node does not on this port: it answers plain Redis") {
			return err
		}
		return nil
	})
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
		virtually(t, c.failed.Error(), func(t *testing.T) {
			p := peer(nil).pool(func(o *redis.Options) {
				o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
				o.Dialer = func(context.Context, string, string) (net.Conn, error) { return nil, c.failed }
			})
			err := unsent(t, p)
			require.EqualError(t, err, c.hint+c.failed.Error())
			require.ErrorIs(t, err, c.failed)
		})
	}
}

// Once the pool has taken a connection back, go-redis can no longer use it, close it, or set its
// deadlines.
func TestLentConn(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() { _, _ = io.Copy(theirs, theirs) }()
	c := newLentConn(ours, &ownConn{})
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
	c = newLentConn(ours, &ownConn{})
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.takeBack(), net.ErrClosed, "takeBack must fail after go-redis has closed the connection")
	_, _, err = c.takeAnswers(t.Context())
	require.ErrorIs(t, err, net.ErrClosed)
}
