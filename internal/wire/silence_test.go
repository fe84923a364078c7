package wire

import (
	"context"
	"fmt"
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
)

const within = 100 * time.Millisecond

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
		k.drain()
	}
}

func TestSilentConnectionIsReplaced(t *testing.T) {
	for _, timeout := range []time.Duration{0, 500 * time.Millisecond} {
		virtual(t, func(t *testing.T) {
			var opened atomic.Int64
			in := newLedger(t)
			p := forgotten(1, &opened).pool(func(o *redis.Options) { o.ReadTimeout = timeout })
			in.sendWithin(p, within, 1)
			in.has("a")
			time.Sleep(10 * time.Second)
			in.sendWithin(p, within, 2)
			time.Sleep(within + lastLook - time.Nanosecond)
			in.has("a")
			in.sendWithin(p, within, 1)
			time.Sleep(time.Nanosecond)
			in.has("auuu", "the pool must give up all requests that the first connection has not answered")
			require.ErrorIs(t, in.replies[2].Err, os.ErrDeadlineExceeded)
			in.sendWithin(p, within, 96)
			in.has("auuu" + strings.Repeat("a", 96))
			require.Equal(t, in.replies[4].Conn+1, in.replies[5].Conn)
			require.EqualValues(t, 2, opened.Load())
			require.NoError(t, p.Close())
			synctest.Wait()
			require.Zero(t, runningStreams())
		})
	}
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
			p, in := forgotten(1, &opened).pool(), newLedger(t)
			in.sendWithin(p, 1, 1) // answered, so its Within must not count
			synctest.Wait()
			start := time.Now()
			for _, w := range c.within {
				in.sendWithin(p, w, 1)
			}
			if c.later > 0 {
				time.Sleep(10 * time.Millisecond)
				in.sendWithin(p, c.later, 1)
			}
			for len(in.fates()) == 1 {
				settle(time.Millisecond)
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
		bubble(t, func(s *scene) {
			var dials, open atomic.Int64
			p := s.with(dialing(func() {
				dials.Add(1)
				assert.LessOrEqual(s, open.Load(), int64(1))
			}, func(c net.Conn) net.Conn { return counted(c, &open) }))
			in := newLedger(s)
			in.sendWithin(p, within, 1)
			synctest.Wait()
			s.Freeze()
			for start := time.Now(); time.Since(start) < frozen; time.Sleep(50 * time.Millisecond) {
				in.sendWithin(p, within, 1)
			}
			in.has("a")
			s.Thaw()
			time.Sleep(time.Second)
			in.has(strings.Repeat("a", in.sent))
			require.Equal(s, in.replies[1].Conn, in.replies[in.sent].Conn)
			require.Equal(s, 2+int64((frozen-within)/minPace), dials.Load())
			s.connected(1)
		})
	}
}

// Silent tells for how long a reply has been owed, or a connection been opened. It tells 0 as long as nothing is owed.
func TestSilent(t *testing.T) {
	bubble(t, func(s *scene) {
		hang := make(chan struct{})
		p := s.with(dialing(func() { <-hang }, nil)).(*streamPool)
		in := newLedger(s)
		require.Zero(s, p.Silent(), "nothing was sent")
		in.sendWithin(p, 0, 1)
		time.Sleep(time.Second)
		require.Equal(s, time.Second, p.Silent(), "a connection is opened")
		close(hang)
		synctest.Wait()
		time.Sleep(time.Second)
		require.Zero(s, p.Silent(), "all is answered")
		s.Freeze()
		in.sendWithin(p, 0, 1)
		time.Sleep(time.Second)
		in.sendWithin(p, 0, 1)
		time.Sleep(time.Second)
		require.InDelta(s, 2*time.Second, p.Silent(), float64(time.Microsecond))
		s.Thaw()
		synctest.Wait()
		require.Zero(s, p.Silent())
		s.Close()
		synctest.Wait()
		time.Sleep(time.Second)
		require.Zero(s, p.Silent(), "the connection was lost, and nothing is owed")
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
			for cmd := range k.all {
				if cmd[0] != "script" {
					time.Sleep(trip)
				}
				k.reply(cmd)
			}
		}).pool()
		first, in := answer(t, p, "echo", "0").Conn, newLedger(t)
		rounds := func(d time.Duration) {
			for start := time.Now(); time.Since(start) < d; {
				in.sendWithin(p, minPatience, 1)
				time.Sleep(trip)
				in.has(strings.Repeat("a", in.sent))
				require.Equal(t, first, in.conn)
			}
		}
		rounds(forgetAfter)
		require.EqualValues(t, 4, opened.Load(), "after silences of 50, 100 and 200 ms")
		rounds(2 * forgetAfter)
		require.LessOrEqual(t, opened.Load(), int64(4+2))
	})
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
		}).pool()
		in := newLedger(t)
		in.slow = 10 * lastLook
		in.sendWithin(p, within, 1)
		synctest.Wait()
		in.sendWithin(p, within, 1)
		time.Sleep(within + 50*lastLook)
		in.has("aa")
		require.Equal(t, in.replies[1].Conn, in.replies[2].Conn)
		require.EqualValues(t, 2, opened.Load())
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
	silent := peer(func(_ int, k *talk) { k.drain() })
	for name, a := range map[string]struct {
		dial func(context.Context) peer
		pace time.Duration // of the tries
		most int64         // how many may be under way
	}{
		"accepts and is silent":          {func(context.Context) peer { return silent }, minPace, 1},
		"accepts nothing":                {func(ctx context.Context) peer { <-ctx.Done(); return nil }, minPace, 1},
		"the Dialer ignores its context": {func(context.Context) peer { time.Sleep(4 * time.Second); return silent }, maxPace, 5},
		"the Dialer ends its goroutine":  {func(context.Context) peer { runtime.Goexit(); return nil }, minPace, 1},
	} {
		for _, connected := range []bool{true, false} {
			virtually(t, fmt.Sprintf("%s, connected %v", name, connected), func(t *testing.T) {
				var stopped time.Time
				var mu sync.Mutex
				var dials []time.Duration // since the machine stopped; guarded by mu
				var open, hang atomic.Int64
				connect := func(to peer) (net.Conn, error) { return counted(to.connect(1), &open), nil }
				p := peer(nil).pool(func(o *redis.Options) {
					o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
						if stopped.IsZero() {
							return connect(forgotten(1, new(atomic.Int64)))
						}
						since := time.Since(stopped)
						mu.Lock()
						dials = append(dials, since)
						mu.Unlock()
						if since >= moved {
							return connect(func(_ int, k *talk) { k.greet(whole); k.echo() })
						}
						hang.Add(1)
						defer hang.Add(-1)
						assert.LessOrEqual(t, hang.Load()+open.Load(), a.most+1)
						if to := a.dial(ctx); to != nil {
							return connect(to)
						}
						return nil, ctx.Err()
					}
				})
				in, pace := newLedger(t), maxPace
				if connected {
					pace = a.pace
					in.sendWithin(p, within, 1)
					in.has("a")
				}
				stopped = time.Now()
				for !strings.HasSuffix(in.fates(), "a") || time.Since(stopped) < moved { // somebody waits all the time, as a lock does
					in.sendWithin(p, within, 1)
					settle(10 * time.Millisecond)
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
				for cmd := range k.all {
					if cmd[0] != "script" {
						time.Sleep(trip)
					}
					if forgotten.Load() == 1 {
						forgotten.Add(1)
						k.drain()
						return
					}
					k.reply(cmd)
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
			in := newLedger(t)
			in.sendWithin(p, within, 1)
			time.Sleep(within + dial + 5*trip - 1)
			in.has("u")
			require.EqualValues(t, 1, dials.Load())
			answer(t, p, "echo", "2")
			require.EqualValues(t, 1, dials.Load())
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
		}).pool()
		in := newLedger(t)
		in.sendWithin(p, within, 1)
		require.NoError(t, p.Close())
		time.Sleep(within + lastLook)
		in.has("u")
		require.EqualValues(t, 2, opened.Load())
		require.EqualValues(t, 2, ended.Load())
		require.Zero(t, runningStreams())
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
				k.drain()
			default:
				k.greet(whole)
				k.echo()
			}
		}).pool()
		in := newLedger(t)
		in.sendWithin(p, within, 1)
		time.Sleep(within + 20*time.Millisecond)
		in.sendWithin(p, within, 1)
		in.has("ua")
		require.EqualValues(t, 3, opened.Load())
		require.Equal(t, in.replies[1].Conn+2, in.replies[2].Conn)
	})
}
