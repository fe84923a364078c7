package pool

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
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/embedded"
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

// pool returns a Pool of the peer.
func (p peer) pool(change func(*redis.Options)) Pool {
	var mu sync.Mutex
	opened := 0
	options := &redis.Options{
		Addr:                     "peer:1",
		ReadTimeout:              readTimeout,
		WriteBufferSize:          handshakeSize,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			mu.Lock()
			opened++
			n := opened
			mu.Unlock()
			go func() {
				defer func() { _ = theirs.Close() }()
				p(n, newTalk(theirs))
			}()
			return ours, nil
		},
	}
	if change != nil {
		change(options)
	}
	return New(redis.NewClient(options))
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

func (k *talk) say(format string, args ...any) { _, _ = fmt.Fprintf(k, format, args...) }

// greet answers the handshake, and reports whether it was completed. It stops before it answers
// command number stop, counted from 0.
func (k *talk) greet(stop int) bool {
	return k.greetWith(stop, "run_id:peer\r\nuptime_in_seconds:5\r\n")
}

func (k *talk) greetWith(stop int, info string) bool {
	for i, scripts := 0, len(knownScripts()); scripts > 0; i++ {
		cmd := k.next()
		if cmd == nil || i == stop {
			return false
		}
		switch cmd[0] {
		case "hello":
			k.say("-ERR unknown command 'HELLO'\r\n")
		case "info":
			if strings.HasPrefix(info, "-") {
				k.say("%s\r\n", info)
			} else {
				k.say("$%d\r\n%s\r\n", len(info), info)
			}
			if k.bare {
				scripts = 0
			}
		case "script":
			scripts--
			k.say("$40\r\n%040d\r\n", 0)
		default:
			k.say("+OK\r\n")
		}
	}
	return true
}

const whole = -1 // for greet: answer the whole handshake

// echo answers every command with its first argument until the connection ends.
func (k *talk) echo() {
	for cmd := k.next(); cmd != nil; cmd = k.next() {
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

// sendAll sends ECHO with each number from first to last, which is also the tag.
func sendAll(t *testing.T, p Pool, to Receiver, first, last int) {
	t.Helper()
	for i := first; i <= last; i++ {
		require.NoError(t, p.Send(Request{Args: []any{"echo", i}, To: to, Tag: i}))
	}
}

// ledger is a Receiver that keeps the replies by number. It fails the test if a reply comes twice
// or out of order.
type ledger struct {
	t *testing.T

	mu      sync.Mutex
	last    int
	conn    uint64
	replies map[int]Reply
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	return &ledger{t: t, replies: make(map[int]Reply)}
}

func (l *ledger) Receive(tag int, r Reply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if tag != l.last+1 {
		l.t.Errorf("reply %d after %d", tag, l.last)
	}
	if r.Conn < l.conn {
		l.t.Errorf("reply %d on connection %d after %d", tag, r.Conn, l.conn)
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
			l.t.Errorf("request %d was answered with %v", i+1, r.Value)
		}
		if r.Fate != Answered && (r.Err == nil || r.Value != nil || r.Server != nil) {
			l.t.Errorf("request %d: %+v", i+1, r)
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
	reads := func(k *talk) { _, _ = io.Copy(io.Discard, k) }
	for name, c := range map[string]struct {
		first func(k *talk)
		want  string
	}{
		"before the handshake":     {func(*talk) {}, "nnn"},
		"at HELLO":                 {first(0, 0, ""), "nnn"},
		"at INFO":                  {first(3, 0, ""), "nnn"},
		"at SCRIPT LOAD":           {first(4, 0, ""), "aaa"}, // the next connection loads none
		"handshake in odd words":   {first(0, 0, "HTTP/1.1 400\r\n"), "nnn"},
		"handshake never answered": {first(1, 0, "", reads), "aaa"},
		"before the write":         {first(whole, 0, "", func(*talk) { time.Sleep(time.Nanosecond) }), "uuu"},
		"after a byte":             {first(whole, 0, "", func(k *talk) { _, _ = k.r.ReadByte() }), "uuu"},
		"after a request":          {first(whole, 1, ""), "uuu"},
		"after all requests":       {first(whole, 3, ""), "uuu"},
		"in a reply":               {first(whole, 1, "$1\r\n"), "uuu"},
		"in the second reply":      {first(whole, 3, "$1\r\n1\r\n$1\r\n2"), "auu"},
		"after two replies":        {first(whole, 3, "$1\r\n1\r\n$1\r\n2\r\n"), "aau"},
		"after all":                {first(whole, 3, "$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n"), "aaa"},
		"nothing is answered":      {first(whole, 0, "", reads), "uuu"},
		"nothing is read":          {first(whole, 0, "", func(*talk) { time.Sleep(time.Minute) }), "uuu"},
		"odd words":                {first(whole, 3, "$1\r\n1\r\nOK\r\n", (*talk).echo), "auu"},
		"a string too long":        {first(whole, 3, "$1\r\n12\r\n", (*talk).echo), "uuu"},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				in := newLedger(t)
				p := peer(func(n int, k *talk) {
					if n == 1 {
						time.Sleep(time.Millisecond) // all three are queued by then
						c.first(k)
					} else if k.bare = name == "at SCRIPT LOAD"; k.greet(whole) {
						k.echo()
					}
				}).pool(nil)
				sendAll(t, p, in, 1, 3)
				time.Sleep(5 * time.Second)
				require.Equal(t, c.want, in.fates())
				start := time.Now()
				sendAll(t, p, in, 4, 6)
				synctest.Wait()
				require.Equal(t, c.want+"aaa", in.fates())
				require.Zero(t, time.Since(start), "the next requests must not wait")
				require.NoError(t, p.Close())
				time.Sleep(time.Minute)
				require.Equal(t, c.want+"aaa", in.fates(), "no reply comes twice")
			})
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
				k.greet(whole)
				k.next()
				return
			}
			k.greet(whole)
			k.echo()
		}).pool(nil)
		hold, in := make(chan struct{}), newLedger(t)
		require.NoError(t, p.Send(Request{Args: []any{"echo", 0}, To: holding(hold)}))
		sendAll(t, p, in, 1, 1)
		time.Sleep(time.Second) // the connection has ended; the first Receiver blocks, so the second gets no reply yet
		sendAll(t, p, in, 2, 3)
		synctest.Wait()
		require.Empty(t, in.fates())
		close(hold)
		synctest.Wait()
		require.Equal(t, "uaa", in.fates())
	})
}

// A connection is lost after its stream was closed, or after NOAUTH retired it. The stream must
// notice the loss and go on: it ends, or opens the next connection.
func TestStreamLostWhileItIsToEnd(t *testing.T) {
	for _, noauth := range []string{"", "-NOAUTH Authentication required.\r\n"} {
		virtual(t, func(t *testing.T) {
			p := peer(func(n int, k *talk) {
				if k.greet(whole); n == 1 {
					k.next()
					k.next()
					time.Sleep(renewPause)
					k.say("%s", noauth)
					time.Sleep(time.Second)
					return
				}
				k.echo()
			}).pool(nil)
			in := make(replies, 10)
			sendAll(t, p, in, 1, 2)
			time.Sleep(renewPause + time.Millisecond)
			if noauth == "" {
				require.NoError(t, p.Close())
			} else {
				sendAll(t, p, in, 3, 3) // for the next connection
			}
			time.Sleep(time.Second)
			synctest.Wait()
			streams.Lock()
			defer streams.Unlock()
			if noauth == "" {
				require.Len(t, in, 2)
				require.Empty(t, streams.running)
			} else {
				require.Len(t, in, 3)
			}
		})
	}
}

// A peer that sends single bytes of a reply now and then is given up after the same time as a silent
// one.
func TestStreamTrickleIsSilence(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p, start := peer(func(_ int, k *talk) {
			k.greet(whole)
			k.next()
			k.say("$1000\r\n")
			for range 100 {
				time.Sleep(readTimeout / 10)
				k.say("x")
			}
		}).pool(nil), time.Now()
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
		p := peer(func(_ int, k *talk) {
			k.greet(whole)
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
		}).pool(nil)
		go sendAll(t, p, in, 1, 10)
		time.Sleep(10 * almost)
		synctest.Wait()
		require.Equal(t, strings.Repeat("a", 10), in.fates())
		time.Sleep(20 * time.Second)

		hold, next := make(chan struct{}), make(replies, 3)
		require.NoError(t, p.Send(Request{Args: []any{"ping"}, To: holding(hold)}))
		for range 3 {
			require.NoError(t, p.Send(Request{Args: []any{"ping"}, To: next}))
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

// A connection that ends while it is idle is noticed at once, and the next request is answered on
// another one. Otherwise that request would be lost.
func TestStreamEndWhileIdle(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := peer(func(_ int, k *talk) {
			k.greet(whole)
			cmd := k.next()
			k.say("+%s\r\n", cmd[1])
		}).pool(nil)
		var last uint64
		for i := range 20 {
			r := answer(t, p, "echo", i)
			require.Equal(t, fmt.Sprint(i), r.Value)
			require.Greater(t, r.Conn, last)
			last = r.Conn
			synctest.Wait()
		}
	})
}

// A malformed reply ends the connection even while a write hangs on it.
func TestStreamNonsenseWhileAWriteHangs(t *testing.T) {
	virtual(t, func(t *testing.T) {
		in := newLedger(t)
		p := peer(func(n int, k *talk) {
			if k.greet(whole); n == 1 {
				k.next()
				time.Sleep(time.Second)
				k.say("+1\r\n?\r\n")
				time.Sleep(time.Minute) // nothing more is read
			}
			k.echo()
		}).pool(nil)
		sendAll(t, p, in, 1, 1)
		synctest.Wait()
		sendAll(t, p, in, 2, 2)
		synctest.Wait()
		sendAll(t, p, in, 3, 3)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, "aua", in.fates())
	})
}

// An unsolicited reply is not mistaken for the answer to the next request.
func TestStreamUnaskedReply(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := peer(func(n int, k *talk) {
			k.greet(whole)
			if n == 1 {
				k.next()
				k.say("+1\r\n")
				time.Sleep(time.Second)
				k.say("+OK\r\n")
			}
			k.echo()
		}).pool(nil)
		first := answer(t, p, "echo", 1)
		time.Sleep(2 * time.Second)
		r := answer(t, p, "echo", 2)
		require.Equal(t, "2", r.Value)
		require.Equal(t, first.Conn+1, r.Conn)
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
			p := peer(func(n int, k *talk) {
				if k.greet(whole); n == 1 {
					for range 3 {
						k.next()
					}
					time.Sleep(renewPause)
					k.say("+1\r\n-%s\r\n", text)
					<-release
					k.say("+3\r\n")
				}
				k.echo()
			}).pool(nil)
			in := make(replies, 10)
			sendAll(t, p, in, 1, 3)
			first := in.wait(t)
			require.Equal(t, "1", first.Value)
			r := in.wait(t)
			require.EqualError(t, r.Err, text)
			require.Equal(t, Answered, r.Fate)
			sendAll(t, p, in, 4, 5)
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
			k.greetWith(whole, "-NOAUTH Authentication required.")
			for k.next() != nil {
				k.say("-NOAUTH Authentication required.\r\n")
			}
		}).pool(nil)
		for range 1000 {
			r := ask(t, p, "ping")
			require.Equal(t, Answered, r.Fate)
			require.ErrorContains(t, r.Err, "NOAUTH")
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, int64(10), opened.Load())
	})
}

func TestStreamConnMaxLifetime(t *testing.T) {
	for _, used := range []bool{true, false} {
		bubble(t, func(t *testing.T, node *embedded.Node) {
			p := New(clientOf(t, node, func(o *redis.Options) { o.ConnMaxLifetime = 10 * time.Second }))
			conn := answer(t, p, "ping").Conn
			for range 99 {
				if time.Sleep(100 * time.Millisecond); used {
					require.Equal(t, conn, answer(t, p, "ping").Conn)
				}
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			require.Zero(t, node.CurrentConnectionCount())
			require.Equal(t, conn+1, answer(t, p, "ping").Conn)
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
				r := ask(t, p, "ping")
				require.Equal(t, NotSent, r.Fate)
				require.ErrorIs(t, r.Err, refused)
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
			require.NoError(t, p.Send(Request{Args: []any{"ping"}, To: in}))
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
	bubble(t, func(t *testing.T, node *embedded.Node) {
		p := New(clientOf(t, node, nil))
		for range 5 {
			node.Kill()
			synctest.Wait()
			for range redialTries - 1 {
				require.Equal(t, NotSent, ask(t, p, "ping").Fate)
			}
			node.Restart(true)
			answer(t, p, "ping")
		}
	})
}

// The whole handshake has a time limit, and so has the dial. Here OnConnect and the Dialer wait until
// their context ends.
func TestStreamHandshakeIsBounded(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := peer(func(_ int, k *talk) { k.greet(whole) }).pool(func(o *redis.Options) {
			o.DialTimeout = 3 * time.Second
			o.OnConnect = func(ctx context.Context, _ *redis.Conn) error {
				<-ctx.Done()
				return ctx.Err()
			}
		})
		start := time.Now()
		require.Equal(t, NotSent, ask(t, p, "ping").Fate)
		require.Equal(t, 3*time.Second+maxReadTimeout, time.Since(start))
	})
	virtual(t, func(t *testing.T) {
		for timeout, want := range map[time.Duration]time.Duration{0: 5 * time.Second, -1: defaultDialTimeout, time.Minute: time.Minute} {
			p := peer(nil).pool(func(o *redis.Options) {
				o.DialTimeout = timeout
				o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
			})
			start := time.Now()
			require.Equal(t, NotSent, ask(t, p, "ping").Fate)
			require.Equal(t, want, time.Since(start))
		}
	})
}

func TestSendOfAnOddArgumentIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T, node *embedded.Node) {
		p, in := New(clientOf(t, node, nil), WithOutstanding(1)), make(replies, 1)
		for _, odd := range []any{nil, 1.5, []byte("a"), time.Second, true} {
			require.ErrorContains(t, p.Send(Request{Args: []any{"set", "a", odd}, To: in}), fmt.Sprintf("%T", odd))
		}
		require.Equal(t, "a", answer(t, p, "echo", "a").Value)
		require.Empty(t, in)
	})
}

// The pool allocates nothing for a request and its reply.
func TestStreamAllocatesNothing(t *testing.T) {
	p := peer(func(_ int, k *talk) {
		k.greet(whole)
		for b, answer := make([]byte, 1024), []byte("+OK\r\n"); ; {
			if _, err := k.Read(b); err != nil {
				return
			}
			_, _ = k.Write(answer)
		}
	}).pool(nil)
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
	for limit, behind := range map[int]bool{4: true, 7: true, 8: false} {
		bubble(t, func(t *testing.T, node *embedded.Node) {
			p, in := New(clientOf(t, node, nil), WithOutstanding(limit)), make(replies, 2)
			isBehind := p.(Limited).IsBehind
			require.False(t, isBehind(), "before the first request")
			require.NoError(t, p.Send(Request{Args: []any{"get", "key"}, To: in}))
			<-in
			node.On("get", 1, embedded.Fault{Delay: 600 * time.Millisecond})
			require.NoError(t, p.Send(Request{Args: []any{"get", "key"}, To: in}))
			time.Sleep(100 * time.Millisecond)
			require.Equal(t, behind, isBehind(), "one of %d", limit)
			time.Sleep(behindSilence)
			require.False(t, isBehind(), "it is silent")
			<-in
			require.Equal(t, limit < 4, isBehind())
		})
	}
}
