package wire

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/badreply"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
)

// A Heard is one call of a Listener.
type Heard struct {
	At   time.Time
	What string // the method in lower case; a message's payload in "message x"
	Err  error
}

// An Ear is a Listener that a test reads from.
type Ear struct {
	tb    testing.TB
	calls chan Heard
	Then  func(Heard) // called with every call, if set
}

// NewEar returns an Ear that has heard nothing.
func NewEar(tb testing.TB) *Ear { //nolint:thelper // a Listener
	return &Ear{tb: tb, calls: make(chan Heard, 100_000)}
}

func (e *Ear) hear(what string, err error) {
	h := Heard{time.Now(), what, err}
	e.calls <- h
	if e.Then != nil {
		e.Then(h)
	}
}

func (e *Ear) Subscribed()            { e.hear("subscribed", nil) }
func (e *Ear) Message(payload string) { e.hear("message "+payload, nil) }
func (e *Ear) Unsubscribed(err error) { e.hear("unsubscribed", err) }
func (e *Ear) Refused(err error)      { e.hear("refused", err) }

func (e *Ear) Next() Heard {
	e.tb.Helper()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	select {
	case h := <-e.calls:
		return h
	case <-limit.C:
		e.tb.Fatal("the Listener is not called within 2 minutes")
		return Heard{}
	}
}

// Hears fails unless the next calls are these.
func (e *Ear) Hears(calls ...string) (last Heard) {
	e.tb.Helper()
	for _, want := range calls {
		last = e.Next()
		require.Equal(e.tb, want, last.What, "%v", last.Err)
	}
	return last
}

// Again waits until Subscribed is called, after any number of calls of Unsubscribed: a slow server may not confirm in time.
func (e *Ear) Again() {
	e.tb.Helper()
	for h := e.Next(); h.What != "subscribed"; h = e.Next() {
		require.Equal(e.tb, "unsubscribed", h.What, "%v", h.Err)
	}
}

// silent fails if there is a call that was not read, or one in the next hour.
func (e *Ear) silent() {
	e.tb.Helper()
	time.Sleep(time.Hour)
	require.Empty(e.tb, e.calls)
}

// listenTo subscribes to "channel" until the end of the test.
func listenTo(tb testing.TB, p Pool, to Listener) *Subscription {
	tb.Helper()
	s, err := p.(Subscriber).Subscribe("channel", to)
	require.NoError(tb, err)
	tb.Cleanup(s.Close)
	return s
}

// listening returns a Listener of "channel".
func listening(tb testing.TB, p Pool) *Ear {
	tb.Helper()
	e := NewEar(tb)
	listenTo(tb, p, e)
	return e
}

// subscribed returns a Listener of "channel" that is subscribed.
func subscribed(tb testing.TB, p Pool) *Ear {
	tb.Helper()
	e := listening(tb, p)
	e.Hears("subscribed")
	return e
}

// ofBoth plays a scene twice, with the pool of a *redis.Client and with that of another client. Each time the
// node has no other connections.
func ofBoth(t *testing.T, play func(s *scene, p Pool)) {
	t.Helper()
	bothPools(t, func(s *scene) {
		p := s.pool()
		s.Cleanup(func() { _ = p.Close() })
		play(s, p)
	})
}

// The pauses between attempts double from 50 ms to 1 s, and up to half a pause is added at random.
func TestSubscribeBacksOff(t *testing.T) {
	ofBoth(t, func(s *scene, p Pool) {
		s.Kill()
		start, e := time.Now(), listening(s, p)
		first := e.Hears("unsubscribed")
		require.Equal(s, start, first.At)
		require.ErrorContains(s, first.Err, "pool: not subscribed: ")
		require.ErrorContains(s, first.Err, "connection refused")
		last, jittered := first.At, 0
		backsOff := func(pause time.Duration, then string) {
			s.Helper()
			h := e.Hears(then)
			took := h.At.Sub(last)
			require.GreaterOrEqual(s, took, pause)
			require.Less(s, took, pause*3/2)
			if took > pause*5/4 {
				jittered++
			}
			last = h.At
		}
		for pause := 50 * time.Millisecond; pause < time.Second; pause *= 2 {
			backsOff(pause, "unsubscribed")
		}
		for range 100 {
			backsOff(time.Second, "unsubscribed")
		}
		require.Greater(s, jittered, 20)
		require.Less(s, jittered, 80)
		s.Restart(true)
		backsOff(time.Second, "subscribed")

		time.Sleep(time.Second) // the connection lasts long enough for the pauses to start over
		s.Kill()
		last = e.Hears("unsubscribed").At
		require.Equal(s, time.Now(), last, "the end of the connection is noticed at once")
		backsOff(50*time.Millisecond, "unsubscribed")
		backsOff(100*time.Millisecond, "unsubscribed")
		s.Restart(true)
		backsOff(200*time.Millisecond, "subscribed")
	})
}

// A node confirms and ends the connection at once, every time. The pauses must not start over after
// such a short connection, or the node would get more than ten attempts a second.
func TestSubscribeBacksOffFromShortConnections(t *testing.T) {
	ofBoth(t, func(s *scene, p Pool) {
		e := NewEar(s)
		e.Then = func(h Heard) {
			if h.What == "subscribed" {
				s.Disconnect()
			}
		}
		listenTo(s, p, e)
		time.Sleep(time.Minute)
		require.Greater(s, s.opened(), 60/2)
		require.Less(s, s.opened(), 60+6)
	})
}

// Each attempt opens one connection, even if the dial ignores its context, as that of go-redis does
// with TLS.
func TestSubscribeOpensOneConnectionPerAttempt(t *testing.T) {
	bubble(t, func(s *scene) {
		e := listening(s, s.with(func(o *redis.Options) {
			o.Dialer = func(context.Context, string, string) (net.Conn, error) { return s.Dial(s.Context(), "", "") }
		}))
		for i := range 10 {
			e.Hears("subscribed")
			synctest.Wait()
			require.Equal(s, i+1, s.opened())
			s.Disconnect()
			e.Hears("unsubscribed")
		}
	})
}

// An idle connection stays open, and a PING is sent every 2 s. A user without permission for PING gets an error as the answer,
// which also shows that the node is alive.
func TestSubscribePingsIdleConnection(t *testing.T) {
	for denied := range 2 {
		ofBoth(t, func(s *scene, p Pool) {
			s.refuses("ping", denied*1e6, "NOPERM this user has no permissions to run the 'ping' command")
			e := subscribed(s, p)
			before := s.Commands("ping")
			e.silent()
			require.InDelta(s, 1800, s.Commands("ping")-before, 1)
			require.Equal(s, 1, s.opened())

			before = s.Commands("ping")
			for range 1000 { // messages are signs of life
				s.Publish("channel", "x")
				time.Sleep(2*time.Second - time.Millisecond)
				e.Hears("message x")
			}
			require.LessOrEqual(s, s.Commands("ping")-before, 1)
		})
	}
}

// The connection to a frozen node is given up 5 s after the last data from it.
func TestSubscribeNoticesFrozenNode(t *testing.T) {
	for _, quiet := range []time.Duration{0, 500 * time.Millisecond, 1999 * time.Millisecond} {
		ofBoth(t, func(s *scene, p Pool) {
			e := subscribed(s, p)
			time.Sleep(time.Minute + 100*time.Millisecond)
			s.Publish("channel", "x")
			heard := e.Hears("message x").At
			time.Sleep(quiet)
			s.Freeze()
			h := e.Hears("unsubscribed")
			require.Equal(s, heard.Add(5*time.Second), h.At)
			require.ErrorContains(s, h.Err, "pool: connection lost: ")
			var timeout net.Error
			require.ErrorAs(s, h.Err, &timeout)
			require.True(s, timeout.Timeout())
		})
	}
}

// A node that is unreachable for less than 3 s does not lose the connection.
func TestSubscribeRidesOutPause(t *testing.T) {
	ofBoth(t, func(s *scene, p Pool) {
		e := subscribed(s, p)
		for i := range 20 {
			time.Sleep(time.Duration(i) * 100 * time.Millisecond)
			s.Freeze()
			time.Sleep(3*time.Second - time.Millisecond)
			s.Thaw()
			time.Sleep(time.Second)
		}
		e.silent()
		require.Equal(s, 1, s.opened())
	})
}

// A subscription that is not confirmed within 5 s is given up, whichever step hangs.
func TestSubscribeOpeningIsBounded(t *testing.T) {
	attempts := func(s *scene, p Pool) {
		s.Helper()
		e, last := listening(s, p), time.Now()
		for i := range 5 {
			h := e.Hears("unsubscribed")
			took := h.At.Sub(last)
			pause := min(50*time.Millisecond<<i, time.Second) / 2 // the shortest pause before this attempt
			if i == 0 {
				pause = 0
			}
			require.GreaterOrEqual(s, took, 5*time.Second+pause)
			require.LessOrEqual(s, took, 5*time.Second+pause*3/2)
			last = h.At
		}
		s.Thaw()
		e.Again()
	}
	named(t, "the greeting", func(s *scene) {
		s.Freeze()
		attempts(s, s.with(func(o *redis.Options) { o.ReadTimeout = -1 }))
	})
	named(t, "the dial", func(s *scene) {
		hanging := 5
		attempts(s, s.with(func(o *redis.Options) {
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if hanging--; hanging >= 0 {
					return hangs(ctx, network, addr)
				}
				return s.Dial(ctx, network, addr)
			}
		}))
	})
	t.Run("SUBSCRIBE", func(t *testing.T) {
		ofBoth(t, func(s *scene, p Pool) {
			s.On("subscribe", 5, embedded.Fault{Delay: 6 * time.Second})
			attempts(s, p)
		})
	})
}

func TestSubscribeRefusedIsFinal(t *testing.T) {
	for _, text := range []string{
		"NOPERM this user has no permissions to access one of the channels used as arguments",
		"NOPERM this user has no permissions to run the 'subscribe' command",
		"NOAUTH Authentication required.",
		"ERR unknown command 'subscribe'",
	} {
		ofBoth(t, func(s *scene, p Pool) {
			s.refuses("subscribe", 1e6, text)
			e := NewEar(s)
			sub := listenTo(s, p, e)
			h := e.Hears("refused")
			var answer redis.Error
			require.ErrorAs(s, h.Err, &answer)
			require.Equal(s, text, answer.Error())
			require.EqualError(s, h.Err, `pool: subscribing to "channel" is refused: `+text)
			e.silent()
			require.Equal(s, 1, s.Commands("subscribe"))
			s.connected(0)
			sub.Close()
			e.silent()
		})
	}
}

func TestSubscribeErrorsThatPass(t *testing.T) {
	texts := []string{
		"LOADING Redis is loading the dataset in memory",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"CLUSTERDOWN The cluster is down",
		"MASTERDOWN Link with MASTER is down",
		"READONLY You can't write against a read only replica.",
		"OOM command not allowed when used memory > 'maxmemory'.",
		"ERR max number of clients reached",
	}
	ofBoth(t, func(s *scene, p Pool) {
		for _, text := range texts {
			s.refuses("subscribe", 1, text)
		}
		e := listening(s, p)
		for _, text := range texts {
			require.ErrorContains(s, e.Hears("unsubscribed").Err, text)
		}
		e.Hears("subscribed")
		e.silent()
	})
}

// Close does not wait for the node, and a connection that is being opened ends too.
func TestSubscriptionCloseWhileOpening(t *testing.T) {
	for name, prepare := range map[string]func(*scene, *redis.Options){
		"frozen at the greeting": func(s *scene, _ *redis.Options) { s.Freeze() },
		"SUBSCRIBE unanswered":   func(s *scene, _ *redis.Options) { s.On("subscribe", 1, embedded.Fault{Delay: time.Hour}) },
		"dead":                   func(s *scene, _ *redis.Options) { s.Kill() },
		"dial hangs":             func(_ *scene, o *redis.Options) { o.Dialer = hangs },
	} {
		named(t, name, func(s *scene) {
			p, e := s.with(func(o *redis.Options) { prepare(s, o) }), NewEar(s)
			sub, start := listenTo(s, p, e), time.Now()
			time.Sleep(20 * time.Millisecond)
			sub.Close()
			synctest.Wait()
			require.Equal(s, start.Add(20*time.Millisecond), time.Now())
			subs := &p.(*streamPool).subs
			subs.mu.Lock()
			require.Empty(s, subs.open, "the goroutine has ended")
			subs.mu.Unlock()
			s.Thaw()
			synctest.Wait()
			if name == "dead" {
				e.Hears("unsubscribed")
			}
			e.silent()
			s.connected(0)
		})
	}
}

func TestPoolCloseEndsSubscriptions(t *testing.T) {
	ofBoth(t, func(s *scene, p Pool) {
		ears := make([]*Ear, 20)
		for i := range ears {
			ears[i] = subscribed(s, p)
		}
		p.CloseIdle()
		s.Publish("channel", "x")
		for _, e := range ears {
			e.Hears("message x")
		}
		s.connected(20)
		start := time.Now()
		require.NoError(s, p.Close())
		require.NoError(s, p.Close())
		s.connected(0)
		require.Equal(s, start, time.Now())
		_, err := p.(Subscriber).Subscribe("channel", ears[0])
		require.ErrorIs(s, err, ErrClosed)
		for _, e := range ears {
			e.silent()
		}
	})
}

// The Pool's Close does not wait for any method of a Listener, and such a method may call Close.
func TestPoolCloseFromListener(t *testing.T) {
	ofBoth(t, func(s *scene, p Pool) {
		e, slow := NewEar(s), NewEar(s)
		release := make(chan struct{})
		slow.Then = func(Heard) { <-release }
		listenTo(s, p, slow)
		synctest.Wait()
		e.Then = func(Heard) { _ = p.Close() }
		listenTo(s, p, e)
		e.Hears("subscribed")
		close(release)
		slow.Hears("subscribed")
		e.silent()
		slow.silent()
		s.connected(0)
	})
}

func TestPoolCloseDoesNotWaitForListener(t *testing.T) {
	ofBoth(t, func(s *scene, p Pool) {
		e := NewEar(s)
		e.Then = func(Heard) { time.Sleep(time.Second) }
		sub := listenTo(s, p, e)
		start := e.Hears("subscribed").At
		s.Publish("channel", "x")
		require.NoError(s, p.Close())
		require.Equal(s, start, time.Now())
		sub.Close()
		require.Equal(s, start.Add(time.Second), time.Now(), "the Close of the Subscription waits")
		e.silent()
	})
}

// Subscribe and Close race, and must leave no connection behind in either order.
func TestSubscribeRacesWithClose(t *testing.T) {
	bothPools(t, func(s *scene) {
		client := s.client()
		for i := range 40 {
			q := s.of(client, Config{})
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					sub, err := q.(Subscriber).Subscribe("channel", NewEar(s))
					if err == nil && i%2 == 0 {
						sub.Close()
					}
				})
			}
			wg.Go(func() { _ = q.Close() })
			wg.Wait()
			s.connected(0)
		}
	})
}

// A proxy ends each connection at SUBSCRIBE. After three, the next ones come half a minute later, and the Listener can tell.
func TestSubscribeWhereTheConnectionEnds(t *testing.T) {
	bubble(t, func(s *scene) {
		s.Lacks(embedded.Closing, "subscribe")
		e := NewEar(s)
		listenTo(s, s.pool(), e)
		before := e.Hears("unsubscribed")
		for i := 2; i < 6; i++ {
			h := e.Hears("unsubscribed")
			require.ErrorContains(s, h.Err, "in place of an answer to SUBSCRIBE: EOF")
			require.Equal(s, i >= 3, HangsUp(h.Err))
			require.Equal(s, HangsUp(before.Err), h.At.Sub(before.At) >= hungUpPause)
			before = h
		}
		s.Lacks(embedded.Has, "subscribe")
		e.Hears("subscribed")
		s.Lacks(embedded.Closing, "ping")
		require.ErrorContains(s, e.Hears("unsubscribed").Err, "in place of an answer to PING: EOF")
	})
}

// An array of three elements that is neither a message nor a confirmation is taken for neither. A client used directly
// passes over the end of a subscription.
func TestSubscribeHearsNothingElse(t *testing.T) {
	ofBoth(t, func(s *scene, p Pool) {
		e, says := subscribed(s, p), func(what string) {
			s.Babble(badreply.Outburst{Saying: badreply.Saying{Bytes: "*3\r\n" + what}, Then: badreply.GoOn})
			s.Publish("channel", "x")
		}
		says("+pmessage\r\n+channel\r\n+x\r\n")
		e.Hears("unsubscribed", "subscribed")
		says("+unsubscribe\r\n+channel\r\n:0\r\n")
		if _, is := p.(*streamPool); is {
			e.Hears("unsubscribed", "subscribed")
		}
		e.silent()
	})
}
