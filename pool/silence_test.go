package pool

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

const within = 100 * time.Millisecond

// sendWithin is sendAll with Request.Within set.
func sendWithin(t *testing.T, p Pool, within time.Duration, to Receiver, first, last int) {
	t.Helper()
	for i := first; i <= last; i++ {
		require.NoError(t, p.Send(Request{Args: []any{"echo", i}, Within: within, To: to, Tag: i}))
	}
}

// forgotten returns a peer whose first connection falls silent after some answers, like a connection
// that a firewall has forgotten. Later connections work. opened counts all of them.
func forgotten(answers int, opened *atomic.Int64) peer {
	return func(n int, k *talk) {
		opened.Add(1)
		k.greet(whole)
		if n > 1 {
			k.echo()
			return
		}
		for range answers {
			cmd := k.next()
			k.say("+%s\r\n", cmd[1])
		}
		_, _ = io.Copy(io.Discard, k)
	}
}

func TestSilentConnectionIsReplaced(t *testing.T) {
	for _, timeout := range []time.Duration{0, 500 * time.Millisecond} {
		virtual(t, func(t *testing.T) {
			var opened atomic.Int64
			in := newLedger(t)
			p := forgotten(1, &opened).pool(func(o *redis.Options) { o.ReadTimeout = timeout })
			sendWithin(t, p, within, in, 1, 1)
			synctest.Wait()
			require.Equal(t, "a", in.fates())
			time.Sleep(10 * time.Second)
			sendWithin(t, p, within, in, 2, 3)
			time.Sleep(within + lastLook - time.Nanosecond)
			synctest.Wait()
			require.Equal(t, "a", in.fates())
			sendWithin(t, p, within, in, 4, 4)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			require.Equal(t, "auuu", in.fates(), "the pool must give up all requests that the first connection has not answered")
			require.ErrorIs(t, in.replies[2].Err, os.ErrDeadlineExceeded)
			sendWithin(t, p, within, in, 5, 100)
			synctest.Wait()
			require.Equal(t, "auuu"+strings.Repeat("a", 96), in.fates())
			require.Equal(t, in.replies[4].Conn+1, in.replies[5].Conn)
			require.Equal(t, int64(2), opened.Load())
			require.NoError(t, p.Close())
			synctest.Wait()
			streams.Lock()
			defer streams.Unlock()
			require.Empty(t, streams.running)
		})
	}
}

// Requests that are still queued when the connection is replaced go out on the next one.
func TestSilentConnectionThatHangsInAWriteIsReplaced(t *testing.T) {
	virtual(t, func(t *testing.T) {
		in := newLedger(t)
		p := peer(func(n int, k *talk) {
			if k.greet(whole); n == 1 {
				time.Sleep(time.Minute) // nothing is read
			}
			k.echo()
		}).pool(nil)
		sendWithin(t, p, within, in, 1, 1)
		synctest.Wait()
		sendWithin(t, p, within, in, 2, 9)
		time.Sleep(within + lastLook)
		synctest.Wait()
		require.Equal(t, "uaaaaaaaa", in.fates())
	})
}

// The patience with a connection is the shortest Within among the requests in flight. Answered requests, and
// requests without a Within, do not count.
func TestPatienceIsThatOfTheRequestsInFlight(t *testing.T) {
	virtual(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			within []time.Duration // of the requests, sent in one go
			later  time.Duration   // Within of a request that is sent after 10 ms; 0: none is sent
			want   time.Duration
		}{
			"one":                 {within: []time.Duration{within}, want: within + lastLook},
			"the least":           {within: []time.Duration{time.Second, within, 0}, want: within + lastLook},
			"says nothing":        {within: []time.Duration{0}, want: readTimeout},
			"not below the floor": {within: []time.Duration{1}, want: minPatience + lastLook},
			"beyond the timeout":  {within: []time.Duration{time.Minute}, want: readTimeout},
			"a later one":         {within: []time.Duration{time.Second}, later: within, want: within + lastLook},
		} {
			var opened atomic.Int64
			p, in := forgotten(1, &opened).pool(nil), newLedger(t)
			sendWithin(t, p, 1, in, 1, 1) // answered, so its Within must not count
			synctest.Wait()
			start := time.Now()
			for i, w := range c.within {
				sendWithin(t, p, w, in, i+2, i+2)
			}
			if c.later > 0 {
				time.Sleep(10 * time.Millisecond)
				sendWithin(t, p, c.later, in, len(c.within)+2, len(c.within)+2)
			}
			for len(in.fates()) == 1 {
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
			require.Equal(t, c.want, time.Since(start), name)
			require.NoError(t, p.Close())
		}
	})
}

// A frozen node answers on neither connection. When the node continues, the pool keeps the first
// connection, so no request is lost, and closes the second. Meanwhile one second connection follows another, one at a time.
func TestFrozenNodeKeepsItsConnection(t *testing.T) {
	for _, frozen := range []time.Duration{200 * time.Millisecond, 3 * time.Second, 4900 * time.Millisecond} {
		bubble(t, func(t *testing.T, node *embedded.Node) {
			var dials, open atomic.Int64
			p := New(clientOf(t, node, func(o *redis.Options) {
				o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					dials.Add(1)
					assert.LessOrEqual(t, open.Load(), int64(1))
					c, err := node.Dial(ctx, network, addr)
					return counted(c, &open), err
				}
			}))
			in := newLedger(t)
			sendWithin(t, p, within, in, 1, 1)
			synctest.Wait()
			node.Freeze()
			n := 1
			for start := time.Now(); time.Since(start) < frozen; time.Sleep(50 * time.Millisecond) {
				n++
				sendWithin(t, p, within, in, n, n)
			}
			require.Equal(t, "a", in.fates())
			node.Thaw()
			time.Sleep(time.Second)
			require.Equal(t, strings.Repeat("a", n), in.fates())
			require.Equal(t, in.replies[1].Conn, in.replies[n].Conn)
			require.Equal(t, 2+int64((frozen-within)/minPace), dials.Load())
			require.Equal(t, 1, node.CurrentConnectionCount())
		})
	}
}

// Silent tells for how long a reply has been owed, or a connection been opened. It tells 0 as long as nothing is owed.
func TestSilent(t *testing.T) {
	bubble(t, func(t *testing.T, node *embedded.Node) {
		hang := make(chan struct{})
		p := New(clientOf(t, node, func(o *redis.Options) {
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				<-hang
				return node.Dial(ctx, network, addr)
			}
		})).(interface {
			Pool
			Silent() time.Duration
		})
		in := newLedger(t)
		require.Zero(t, p.Silent(), "nothing was sent")
		sendWithin(t, p, 0, in, 1, 1)
		time.Sleep(time.Second)
		require.Equal(t, time.Second, p.Silent(), "a connection is opened")
		close(hang)
		synctest.Wait()
		time.Sleep(time.Second)
		require.Zero(t, p.Silent(), "all is answered")
		node.Freeze()
		sendWithin(t, p, 0, in, 2, 2)
		time.Sleep(time.Second)
		sendWithin(t, p, 0, in, 3, 3)
		time.Sleep(time.Second)
		require.InDelta(t, 2*time.Second, p.Silent(), float64(time.Microsecond))
		node.Thaw()
		synctest.Wait()
		require.Zero(t, p.Silent())
		node.Close()
		synctest.Wait()
		time.Sleep(time.Second)
		require.Zero(t, p.Silent(), "the connection was lost, and nothing is owed")
		require.NoError(t, p.Close())
	})
}

// The round trip of the link is longer than the Within of the requests. The stream opens a few second
// connections, and then, because its patience has doubled, none for a while. No request may be lost.
func TestSlowLinkKeepsItsConnection(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const trip = 300 * time.Millisecond
		var opened atomic.Int64
		p := peer(func(_ int, k *talk) {
			opened.Add(1)
			for cmd := k.next(); cmd != nil; cmd = k.next() {
				if cmd[0] != "script" {
					time.Sleep(trip)
				}
				k.say("%s", usual(cmd))
			}
		}).pool(nil)
		first := answer(t, p, "echo", "0").Conn
		rounds := func(d time.Duration) {
			for start := time.Now(); time.Since(start) < d; {
				in := make(replies, 1)
				require.NoError(t, p.Send(Request{Args: []any{"echo", 1}, Within: minPatience, To: in}))
				r := in.wait(t)
				require.Equal(t, Answered, r.Fate)
				require.Equal(t, first, r.Conn)
			}
		}
		rounds(forgetAfter)
		require.Equal(t, int64(4), opened.Load(), "after silences of 50, 100 and 200 ms")
		rounds(10 * forgetAfter)
		require.LessOrEqual(t, opened.Load(), int64(4+10))
	})
}

// A lingerer is a ledger whose Receive is slow.
type lingerer struct{ *ledger }

func (l lingerer) Receive(tag int, r Reply) {
	time.Sleep(10 * lastLook)
	l.ledger.Receive(tag, r)
}

// A reply arrives on the first connection just before the second would replace it, and its Receiver is
// still busy. The first connection must be kept, because it is not silent.
func TestConnectionThatSpeaksAtTheLastMomentIsKept(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var opened atomic.Int64
		p := peer(func(n int, k *talk) {
			opened.Add(1)
			k.greet(whole)
			k.next()
			if n == 1 {
				time.Sleep(within + lastLook/2)
			}
			k.say("+1\r\n")
			k.echo()
		}).pool(nil)
		in := newLedger(t)
		sendWithin(t, p, within, lingerer{in}, 1, 1)
		synctest.Wait()
		sendWithin(t, p, within, lingerer{in}, 2, 2)
		time.Sleep(within + 50*lastLook)
		synctest.Wait()
		require.Equal(t, "aa", in.fates())
		require.Equal(t, in.replies[1].Conn, in.replies[2].Conn)
		require.Equal(t, int64(2), opened.Load())
	})
}

// A countedConn counts itself until it is closed.
type countedConn struct {
	net.Conn
	close func()
}

func counted(c net.Conn, open *atomic.Int64) net.Conn {
	open.Add(1)
	return countedConn{c, sync.OnceFunc(func() { open.Add(-1) })}
}

func (c countedConn) Close() error { c.close(); return c.Conn.Close() }

// The machine at address A stops, and its name leads to B from moved on. The stream must find B soon after that, both
// while its connection is silent and while it has none. Only one connection may be opened at a time, unless the Dialer
// ignores its context. Then a few dials may hang, and the stream must close what they return.
func TestStreamFollowsTheNameOfAStoppedMachine(t *testing.T) {
	const moved = 2100 * time.Millisecond
	type dial = func(ctx context.Context, peer func(peer) net.Conn) (net.Conn, error)
	silentPeer := func(answers int) dial {
		return func(_ context.Context, to func(peer) net.Conn) (net.Conn, error) {
			return to(func(_ int, k *talk) { k.greet(answers); _, _ = io.Copy(io.Discard, k) }), nil
		}
	}
	for name, a := range map[string]struct {
		dial dial
		pace time.Duration // of the tries
		most int64         // how many may be under way
	}{
		"accepts and is silent": {silentPeer(0), minPace, 1},
		"accepts nothing": {func(ctx context.Context, _ func(peer) net.Conn) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, minPace, 1},
		"the Dialer ignores its context": {func(_ context.Context, to func(peer) net.Conn) (net.Conn, error) {
			time.Sleep(4 * time.Second)
			return to(func(_ int, k *talk) { _, _ = io.Copy(io.Discard, k) }), nil
		}, maxPace, 5},
		"the Dialer ends its goroutine": {func(context.Context, func(peer) net.Conn) (net.Conn, error) {
			runtime.Goexit()
			return nil, nil
		}, minPace, 1},
	} {
		for _, connected := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, connected %v", name, connected), func(t *testing.T) {
				virtual(t, func(t *testing.T) {
					var stopped time.Time
					var mu sync.Mutex
					var dials []time.Duration // since the machine stopped; guarded by mu
					var open, hang atomic.Int64
					connect := func(to peer) net.Conn {
						ours, theirs := net.Pipe()
						go func() {
							defer func() { _ = theirs.Close() }()
							to(1, newTalk(theirs))
						}()
						return counted(ours, &open)
					}
					b := peer(func(_ int, k *talk) { k.greet(whole); k.echo() })
					p := peer(nil).pool(func(o *redis.Options) {
						o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
							if stopped.IsZero() {
								return connect(func(_ int, k *talk) { k.greet(whole); k.next(); k.say("+1\r\n"); _, _ = io.Copy(io.Discard, k) }), nil
							}
							since := time.Since(stopped)
							mu.Lock()
							dials = append(dials, since)
							mu.Unlock()
							if since >= moved {
								return connect(b), nil
							}
							hang.Add(1)
							defer hang.Add(-1)
							assert.LessOrEqual(t, hang.Load()+open.Load(), a.most+1)
							return a.dial(ctx, connect)
						}
					})
					in, next, pace := newLedger(t), 1, maxPace
					if connected {
						pace = a.pace
						sendWithin(t, p, within, in, 1, 1)
						synctest.Wait()
						require.Equal(t, "a", in.fates())
						next = 2
					}
					stopped = time.Now()
					lastOf := func() string { f := in.fates(); return f[max(0, len(f)-1):] }
					for ; lastOf() != "a" || time.Since(stopped) < moved; next++ { // somebody waits all the time, as a lock does
						sendWithin(t, p, within, in, next, next)
						time.Sleep(10 * time.Millisecond)
						synctest.Wait()
						require.Less(t, time.Since(stopped), moved+pace+50*time.Millisecond)
					}
					mu.Lock()
					defer mu.Unlock()
					for i, at := range dials[1:] {
						require.LessOrEqual(t, at-dials[i], pace+lastWord+lastLook)
					}
					require.NoError(t, p.Close())
					time.Sleep(time.Minute)
					require.Zero(t, open.Load()+hang.Load(), "all connections are closed")
				})
			})
		}
	}
}

// A far node has silent phases when a connection is opened: each trip, and the whole dial if a Dialer of the user's does TLS.
// The stream knows them from its first connection, so the second one needs a single try.
func TestFarNodeGetsASecondConnectionInOneTry(t *testing.T) {
	for _, dial := range []time.Duration{0, 750 * time.Millisecond, 1500 * time.Millisecond} {
		virtual(t, func(t *testing.T) {
			const trip = 250 * time.Millisecond
			var dials, forgotten atomic.Int64
			p := peer(func(_ int, k *talk) {
				for cmd := k.next(); cmd != nil; cmd = k.next() {
					if cmd[0] != "script" {
						time.Sleep(trip)
					}
					if forgotten.Load() == 1 {
						forgotten.Add(1)
						_, _ = io.Copy(io.Discard, k)
						return
					}
					k.say("%s", usual(cmd))
				}
			}).pool(func(o *redis.Options) {
				o.ReadTimeout = maxReadTimeout
				direct := o.Dialer
				o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					dials.Add(1)
					sleep(ctx, dial)
					return direct(ctx, network, addr)
				}
			})
			answer(t, p, "echo", "0")
			require.Equal(t, 1+int64(dial/maxPace), dials.Load(), "nothing is known yet, so further dials follow the first")
			time.Sleep(time.Second)
			dials.Store(0)
			forgotten.Store(1)
			start, in := time.Now(), make(replies, 1)
			require.NoError(t, p.Send(Request{Args: []any{"echo", 1}, Within: within, To: in}))
			require.Equal(t, Unknown, in.wait(t).Fate)
			require.Less(t, time.Since(start), within+dial+5*trip)
			require.Equal(t, int64(1), dials.Load())
			answer(t, p, "echo", "2")
			require.Equal(t, int64(1), dials.Load())
		})
	}
}

// The stream is closed while its connection is silent. When the connection is given up, the stream must
// end, and must close the second connection too, which has nothing to carry.
func TestClosedStreamEndsWithItsSilentConnection(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var opened, ended atomic.Int64
		p := peer(func(n int, k *talk) {
			defer ended.Add(1)
			forgotten(0, &opened)(n, k)
		}).pool(nil)
		in := newLedger(t)
		sendWithin(t, p, within, in, 1, 1)
		require.NoError(t, p.Close())
		time.Sleep(within + lastLook)
		synctest.Wait()
		require.Equal(t, "u", in.fates())
		require.Equal(t, int64(2), opened.Load())
		require.Equal(t, int64(2), ended.Load())
		streams.Lock()
		defer streams.Unlock()
		require.Empty(t, streams.running)
	})
}

// The first connection ends by itself while the second is being opened.
func TestSilentConnectionEndsMeanwhile(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var opened atomic.Int64
		p := peer(func(n int, k *talk) {
			opened.Add(1)
			switch n {
			case 1:
				k.greet(whole)
				k.next()
				time.Sleep(within + 10*time.Millisecond)
			case 2:
				_, _ = io.Copy(io.Discard, k)
			default:
				k.greet(whole)
				k.echo()
			}
		}).pool(nil)
		in := newLedger(t)
		sendWithin(t, p, within, in, 1, 1)
		time.Sleep(within + 20*time.Millisecond)
		sendWithin(t, p, within, in, 2, 2)
		synctest.Wait()
		require.Equal(t, "ua", in.fates())
		require.Equal(t, int64(3), opened.Load())
		require.Equal(t, in.replies[1].Conn+2, in.replies[2].Conn)
	})
}
