package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
)

// A peer is a node whose answers the test writes. It is called for each connection, in a goroutine of
// its own, and the connection is closed when it returns. n counts the connections from 1.
type peer func(n int, k *talk)

// A talk is the peer's end of one connection. Nothing is buffered on the way, so a write of the
// client hangs until the peer reads it.
type talk struct {
	net.Conn
	r    *bufio.Reader
	bare bool // the handshake loads no script
}

const readTimeout = 2 * time.Second

// handshakeSize is larger than all scripts together. A client with such a buffer writes the handshake in one piece,
// and a peer reads all of it before it answers. With several pieces, client and peer would each wait for the other
// to read.
const handshakeSize = 1 << 17

// connect returns the other end of a connection to the peer.
func (p peer) connect(n int) net.Conn {
	ours, theirs := net.Pipe()
	go func() {
		defer func() { _ = theirs.Close() }()
		p(n, newTalk(theirs))
	}()
	return ours
}

// pool returns a Pool of the peer.
func (p peer) pool(changes ...func(*redis.Options)) Pool {
	var opened atomic.Int64
	options := &redis.Options{
		Addr: "peer:1", ReadTimeout: readTimeout, WriteBufferSize: handshakeSize, MaintNotificationsConfig: noNotifications,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return p.connect(int(opened.Add(1))), nil },
	}
	for _, change := range changes {
		change(options)
	}
	return New(redis.NewClient(options), Config{})
}

// newTalk returns a talk whose buffer holds a whole handshake.
func newTalk(c net.Conn) *talk { return &talk{Conn: c, r: bufio.NewReaderSize(c, handshakeSize)} }

// next reads a command. It returns nil at the end of the connection.
func (k *talk) next() []any {
	v, err := readReply(k.r)
	if err != nil {
		return nil
	}
	return v.([]any)
}

// drain reads until the connection ends.
func (k *talk) drain() { _, _ = io.Copy(io.Discard, k) }

func (k *talk) reply(cmd []any) { k.say("%s", usual(cmd)) }

func (k *talk) say(format string, args ...any) { _, _ = fmt.Fprintf(k, format, args...) }

// all yields the commands until the connection ends.
func (k *talk) all(yield func([]any) bool) {
	for cmd := k.next(); len(cmd) > 0 && yield(cmd); cmd = k.next() {
	}
}

// greet answers the handshake, and reports whether it was completed. It stops before it answers
// command number stop, counted from 0.
func (k *talk) greet(stop int) bool {
	for i, scripts := 0, len(knownScripts()); scripts > 0; i++ {
		cmd := k.next()
		if cmd == nil || i == stop {
			return false
		}
		if cmd[0] == "info" && k.bare {
			scripts = 0
		}
		if cmd[0] == "script" {
			scripts--
		}
		k.reply(cmd)
	}
	return true
}

const whole = -1 // for greet: answer the whole handshake

// greeted returns a peer that answers the handshake before it does more.
func greeted(more peer) peer {
	return func(n int, k *talk) {
		if k.greet(whole) {
			more(n, k)
		}
	}
}

// echo answers every command with its first argument until the connection ends.
func (k *talk) echo() {
	for cmd := range k.all {
		k.say("$%d\r\n%s\r\n", len(cmd[1].(string)), cmd[1])
	}
}

// virtual runs f in virtual time, and then waits until idle streams have ended. Streams that an earlier test in real time has
// closed end first: f may count streams.
func virtual(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	require.Eventually(t, func() bool { return runningStreams() == 0 }, time.Minute, time.Millisecond)
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) })
		f(t)
	})
}

// virtually runs f in virtual time as a subtest.
func virtually(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { virtual(t, f) })
}

// ledger is a Receiver that keeps the replies by number. It fails the test if a reply comes twice
// or out of order.
type ledger struct {
	tb   testing.TB
	sent int
	slow time.Duration // that Receive takes

	mu      sync.Mutex
	last    int
	conn    uint64
	replies map[int]Reply
}

func newLedger(tb testing.TB) *ledger { //nolint:thelper // a Receiver
	return &ledger{tb: tb, replies: make(map[int]Reply)}
}

// send sends n requests, ECHO with the next numbers, which are also the tags.
func (l *ledger) send(p Pool, n int) {
	l.tb.Helper()
	l.sendWithin(p, 0, n)
}

func (l *ledger) sendWithin(p Pool, within time.Duration, n int) {
	l.tb.Helper()
	for range n {
		l.sent++
		require.NoError(l.tb, p.Send(Request{Args: []any{"echo", l.sent}, Within: within, To: l, Tag: l.sent}))
	}
}

// has fails unless these are the fates of the replies so far.
func (l *ledger) has(want string, message ...any) {
	l.tb.Helper()
	synctest.Wait()
	require.Equal(l.tb, want, l.fates(), message...)
}

func (l *ledger) Receive(tag int, r Reply) {
	time.Sleep(l.slow)
	l.mu.Lock()
	defer l.mu.Unlock()
	if tag != l.last+1 {
		l.tb.Errorf("reply %d after %d", tag, l.last)
	}
	if r.Conn < l.conn {
		l.tb.Errorf("reply %d on connection %d after %d", tag, r.Conn, l.conn)
	}
	l.last, l.conn, l.replies[tag] = tag, r.Conn, r
}

// fates returns the fates of the replies so far, a letter for each: a for answered, n for not sent, u for
// unknown.
func (l *ledger) fates() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := ""
	for i := range l.last {
		r := l.replies[i+1]
		s += r.Fate.String()[:1]
		if r.Fate == Answered && r.Value != fmt.Sprint(i+1) {
			l.tb.Errorf("request %d was answered with %v", i+1, r.Value)
		}
		if r.Fate != Answered && (r.Err == nil || r.Value != nil || r.Server != nil) {
			l.tb.Errorf("request %d: %+v", i+1, r)
		}
	}
	return s
}

// The first connection fails at another stage in each case, with three requests under way. want holds
// their fates. Three more requests, sent after that, must all be answered on the next connection.
func TestStreamFateByStage(t *testing.T) {
	first := func(greets, reads int, says string, then ...func(k *talk)) func(k *talk) {
		return func(k *talk) {
			k.greet(greets)
			for range reads {
				k.next()
			}
			k.say("%s", says)
			for _, f := range then {
				f(k)
			}
		}
	}
	for name, c := range map[string]struct {
		first func(k *talk)
		want  string
	}{
		"before the handshake":     {func(*talk) {}, "nnn"},
		"at HELLO":                 {first(0, 0, ""), "nnn"},
		"at INFO":                  {first(3, 0, ""), "nnn"},
		"at SCRIPT LOAD":           {first(4, 0, ""), "aaa"}, // the next connection loads none
		"handshake in odd words":   {first(0, 0, "HTTP/1.1 400\r\n"), "nnn"},
		"handshake never answered": {first(1, 0, "", (*talk).drain), "aaa"},
		"before the write":         {first(whole, 0, "", func(*talk) { time.Sleep(time.Nanosecond) }), "uuu"},
		"after a byte":             {first(whole, 0, "", func(k *talk) { _, _ = k.r.ReadByte() }), "uuu"},
		"after a request":          {first(whole, 1, ""), "uuu"},
		"after all requests":       {first(whole, 3, ""), "uuu"},
		"in a reply":               {first(whole, 1, "$1\r\n"), "uuu"},
		"in the second reply":      {first(whole, 3, "$1\r\n1\r\n$1\r\n2"), "auu"},
		"after two replies":        {first(whole, 3, "$1\r\n1\r\n$1\r\n2\r\n"), "aau"},
		"after all":                {first(whole, 3, "$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n"), "aaa"},
		"nothing is answered":      {first(whole, 0, "", (*talk).drain), "uuu"},
		"nothing is read":          {first(whole, 0, "", func(*talk) { time.Sleep(time.Minute) }), "uuu"},
		"odd words":                {first(whole, 3, "$1\r\n1\r\nOK\r\n", (*talk).echo), "auu"},
		"a string too long":        {first(whole, 3, "$1\r\n12\r\n", (*talk).echo), "uuu"},
	} {
		virtually(t, name, func(t *testing.T) {
			in := newLedger(t)
			p := peer(func(n int, k *talk) {
				if n == 1 {
					time.Sleep(time.Millisecond) // all three are queued by then
					c.first(k)
				} else if k.bare = name == "at SCRIPT LOAD"; k.greet(whole) {
					k.echo()
				}
			}).pool()
			in.send(p, 3)
			time.Sleep(5 * time.Second)
			in.has(c.want)
			start := time.Now()
			in.send(p, 3)
			in.has(c.want + "aaa")
			require.Zero(t, time.Since(start), "the next requests must not wait")
			require.NoError(t, p.Close())
			time.Sleep(time.Minute)
			in.has(c.want+"aaa", "no reply comes twice")
		})
	}
}

// The requests that a connection lost get their replies, with the Fate Unknown, before any request is
// sent on the next connection. Otherwise replies could overtake each other.
func TestStreamLostRepliesComeFirst(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := peer(func(n int, k *talk) {
			if n == 1 {
				time.Sleep(time.Millisecond) // both are queued by then
			}
			if k.greet(whole); n == 1 {
				k.next()
				return
			}
			k.echo()
		}).pool()
		hold, in := make(chan struct{}), newLedger(t)
		send(t, p, holding(hold), "echo", 0)
		in.send(p, 1)
		time.Sleep(time.Second) // the connection has ended; the first Receiver blocks, so the second gets no reply yet
		in.send(p, 2)
		synctest.Wait()
		require.Empty(t, in.fates())
		close(hold)
		in.has("uaa")
	})
}

// A connection is lost after its stream was closed, or after NOAUTH retired it. The stream must
// notice the loss and go on: it ends, or opens the next connection.
func TestStreamLostWhileItIsToEnd(t *testing.T) {
	for _, noauth := range []string{"", "-NOAUTH Authentication required.\r\n"} {
		virtual(t, func(t *testing.T) {
			p := greeted(func(n int, k *talk) {
				if n == 1 {
					k.next()
					k.next()
					time.Sleep(renewPause)
					k.say("%s", noauth)
					time.Sleep(time.Second)
					return
				}
				k.echo()
			}).pool()
			in := make(replies, 10)
			send(t, p, in, "echo", 1)
			send(t, p, in, "echo", 2)
			time.Sleep(renewPause + time.Millisecond)
			want := 2
			if noauth == "" {
				require.NoError(t, p.Close())
			} else {
				send(t, p, in, "echo", 3) // for the next connection
				want = 3
			}
			settle(time.Second)
			require.Len(t, in, want)
			require.Equal(t, want-2, runningStreams())
		})
	}
}

// A peer that sends single bytes of a reply now and then is given up after the same time as a silent
// one.
func TestStreamTrickleIsSilence(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p, start := greeted(func(_ int, k *talk) {
			k.next()
			k.say("$1000\r\n")
			for range 100 {
				time.Sleep(readTimeout / 10)
				k.say("x")
			}
		}).pool(), time.Now()
		r := ask(t, p, "ping")
		require.Equal(t, Unknown, r.Fate)
		require.True(t, IsSilence(r.Err))
		require.Equal(t, readTimeout, time.Since(start))
	})
}

// A silence is measured from the last reply, or from the next request if nothing was outstanding. The
// time that a Receiver takes does not count.
func TestStreamSilence(t *testing.T) {
	virtual(t, func(t *testing.T) {
		almost := readTimeout - time.Millisecond
		in := newLedger(t)
		p := greeted(func(_ int, k *talk) {
			for i := range 10 {
				k.next()
				time.Sleep(almost)
				k.say("+%d\r\n", i+1)
			}
			for i := range 2 { // answered at once; the Receiver of the first one is slow
				k.next()
				k.say("+%d\r\n", i)
			}
			k.next()
			time.Sleep(almost)
			k.say("+2\r\n")
			k.next()
			k.next()
		}).pool()
		go in.send(p, 10)
		time.Sleep(10 * almost)
		in.has(strings.Repeat("a", 10))
		time.Sleep(20 * time.Second)

		hold, next := make(chan struct{}), make(replies, 3)
		send(t, p, holding(hold), "ping")
		for range 3 {
			send(t, p, next, "ping")
		}
		time.Sleep(3 * readTimeout)
		close(hold)
		start := time.Now()
		for range 2 {
			require.Equal(t, Answered, next.wait(t).Fate)
		}
		require.Equal(t, Unknown, next.wait(t).Fate)
		require.Equal(t, almost+readTimeout, time.Since(start), "the silence is measured from the last reply")
	})
}

// A malformed reply ends the connection even while a write hangs on it.
func TestStreamNonsenseWhileAWriteHangs(t *testing.T) {
	virtual(t, func(t *testing.T) {
		in := newLedger(t)
		p := greeted(func(n int, k *talk) {
			if n == 1 {
				k.next()
				time.Sleep(time.Second)
				k.say("+1\r\n?\r\n")
				time.Sleep(time.Minute) // nothing more is read
			}
			k.echo()
		}).pool()
		for range 3 {
			in.send(p, 1)
			synctest.Wait()
		}
		time.Sleep(time.Second)
		in.has("aua")
	})
}

// NOAUTH and READONLY suggest that the credentials are out of date, or that the host name leads to
// another server now. A new connection may help. The one in use takes no more requests, and ends
// when all that it took are answered.
func TestStreamConnectsAnewWhenOutdated(t *testing.T) {
	for text, want := range map[string]bool{
		"NOAUTH Authentication required.":                        true,
		"READONLY You can't write against a read only replica.":  true,
		"ERR READONLY You can't write against a read only slave": true,
		"LOADING Redis is loading the dataset in memory":         false,
		"NOPERM this user has no permissions":                    false,
		"READONLYX":                                              false,
	} {
		virtual(t, func(t *testing.T) {
			release := make(chan struct{})
			p := greeted(func(n int, k *talk) {
				if n == 1 {
					for range 3 {
						k.next()
					}
					time.Sleep(renewPause)
					k.say("+1\r\n-%s\r\n", text)
					<-release
					k.say("+3\r\n")
				}
				k.echo()
			}).pool()
			in := make(replies, 10)
			for i := range 3 {
				send(t, p, in, "echo", i+1)
			}
			first := in.wait(t)
			require.Equal(t, "1", first.Value)
			r := in.wait(t)
			require.EqualError(t, r.Err, text)
			require.Equal(t, Answered, r.Fate)
			send(t, p, in, "echo", 4)
			send(t, p, in, "echo", 5)
			time.Sleep(time.Second)
			require.Empty(t, in, "the third request is not answered, and the later ones wait for that")
			close(release)
			for i := 3; i <= 5; i++ {
				r := in.wait(t)
				require.Equal(t, fmt.Sprint(i), r.Value)
				require.Equal(t, want && i > 3, r.Conn > first.Conn, text)
			}
		})
	}
}

// If a new connection does not help either, the stream opens at most one a second.
func TestStreamConnectsAnewOnceASecond(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var opened atomic.Int64
		p := peer(func(_ int, k *talk) {
			opened.Add(1)
			for cmd := range k.all {
				if cmd[0] == "info" || cmd[0] == "ping" {
					k.say("-NOAUTH Authentication required.\r\n")
				} else {
					k.reply(cmd)
				}
			}
		}).pool()
		for range 1000 {
			r := ask(t, p, "ping")
			require.Equal(t, Answered, r.Fate)
			require.ErrorContains(t, r.Err, "NOAUTH")
			time.Sleep(10 * time.Millisecond)
		}
		require.EqualValues(t, 10, opened.Load())
	})
}

func TestStreamConnMaxLifetime(t *testing.T) {
	for _, used := range []bool{true, false} {
		bubble(t, func(s *scene) {
			p := s.with(func(o *redis.Options) { o.ConnMaxLifetime = 10 * time.Second })
			conn := answer(s, p, "ping").Conn
			for range 99 {
				if time.Sleep(100 * time.Millisecond); used {
					require.Equal(s, conn, answer(s, p, "ping").Conn)
				}
			}
			time.Sleep(100 * time.Millisecond)
			s.connected(0)
			require.Equal(s, conn+1, answer(s, p, "ping").Conn)
		})
	}
}

// After a few failures the stream dials a dead node at most ten times a second, and at most once in
// maxPace while dials hang, however many requests are sent.
func TestStreamDialsADeadNodeRarely(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var dials atomic.Int64
		refused, slow := errors.New("refused"), time.Duration(0)
		p := peer(nil).pool(func(o *redis.Options) {
			o.Dialer = func(context.Context, string, string) (net.Conn, error) {
				dials.Add(1)
				time.Sleep(slow)
				return nil, refused
			}
		})
		for _, most := range []int64{13, 10, 10} { // by second: so many dials at most. The first dials have no pause between them
			dials.Store(0)
			for range 1000 {
				start := time.Now()
				require.ErrorIs(t, unsent(t, p), refused)
				require.Zero(t, time.Since(start))
				time.Sleep(time.Millisecond)
			}
			require.Equal(t, most, dials.Load())
		}

		dials.Store(0)
		time.Sleep(redialPause)
		slow = 3 * time.Second
		in := make(replies, 100)
		for range 100 {
			send(t, p, in, "ping")
			time.Sleep(time.Millisecond)
		}
		require.Empty(t, in)
		time.Sleep(slow)
		require.Len(t, in, 100, "every request that waited for the dial has its reply")
		require.Equal(t, 1+int64(slow/maxPace), dials.Load())
	})
}

// Only failures in a row count: after a success the stream again dials at once.
func TestStreamDialsAgainAtOnceAfterAFewFailures(t *testing.T) {
	bubble(t, func(s *scene) {
		p := s.pool()
		for range 5 {
			s.Kill()
			synctest.Wait()
			for range redialTries - 1 {
				require.Error(s, unsent(s, p))
			}
			s.Restart(true)
			answer(s, p, "ping")
		}
	})
}

// The whole handshake has a time limit, and so have the dial and each answer. Here OnConnect and the Dialer wait until
// their context ends.
func TestStreamHandshakeIsBounded(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := greeted(func(int, *talk) {}).pool(func(o *redis.Options) {
			o.DialTimeout = 3 * time.Second
			o.OnConnect = func(ctx context.Context, _ *redis.Conn) error {
				<-ctx.Done()
				return ctx.Err()
			}
		})
		start := time.Now()
		require.Error(t, unsent(t, p))
		require.Equal(t, 3*time.Second+maxReadTimeout, time.Since(start))
		for timeout, want := range map[time.Duration]time.Duration{0: 5 * time.Second, -1: defaultDialTimeout, time.Minute: time.Minute} {
			dials := peer(nil).pool(func(o *redis.Options) { o.DialTimeout, o.Dialer = timeout, hangs })
			start = time.Now()
			require.Error(t, unsent(t, dials))
			require.Equal(t, want, time.Since(start))
		}
		p = peer(func(_ int, k *talk) { k.greet(3); k.drain() }).pool() // up to INFO
		start = time.Now()
		require.Error(t, unsent(t, p))
		require.Equal(t, readTimeout, time.Since(start))
	})
}

// The pool allocates nothing for a request and its reply.
func TestStreamAllocatesNothing(t *testing.T) {
	p := greeted(func(_ int, k *talk) {
		for b, answer := make([]byte, 1024), []byte("+OK\r\n"); ; {
			if _, err := k.Read(b); err != nil {
				return
			}
			_, _ = k.Write(answer)
		}
	}).pool()
	in := make(replies, 1)
	req := Request{Args: []any{"set", "key", "value", "nx", "px", 8000}, To: in}
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		if err := p.Send(req); err != nil {
			t.Error(err)
		}
		<-in
	}), 0.0)
	require.NoError(t, p.Close())
}

// A node is behind as long as it owes a quarter of the replies that it may owe, and has not been silent for long.
func TestNodeIsBehindWithAQuarterOfTheReplies(t *testing.T) {
	for limit, behind := range map[int]bool{2: true, 4: true, 7: true, 8: false} {
		bubble(t, func(s *scene) {
			p, in := s.pool(Config{Outstanding: limit}), make(replies, 2)
			isBehind := p.(Limited).IsBehind
			require.False(s, isBehind(), "before the first request")
			send(s, p, in, "get", "key")
			<-in
			s.On("get", 1, embedded.Fault{Delay: behindSilence + 200*time.Millisecond})
			send(s, p, in, "get", "key")
			time.Sleep(100 * time.Millisecond)
			require.Equal(s, behind, isBehind(), "one of %d", limit)
			time.Sleep(behindSilence)
			require.False(s, isBehind(), "it is silent")
			<-in
			require.False(s, isBehind(), "it owes nothing")
		})
	}
}
