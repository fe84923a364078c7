package pool

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// A Heard is one call of a Listener.
type Heard struct {
	At   time.Time
	What string // the method in lower case; a message's payload in "message x"
	Err  error
}

// An Ear is a Listener that a test reads from.
type Ear struct {
	calls chan Heard
	then  func(Heard) // called with every call, if set
}

// NewEar returns an Ear that has heard nothing.
func NewEar() *Ear { return &Ear{calls: make(chan Heard, 100_000)} }

func (e *Ear) hear(what string, err error) {
	h := Heard{time.Now(), what, err}
	e.calls <- h
	if e.then != nil {
		e.then(h)
	}
}

func (e *Ear) Subscribed()             { e.hear("subscribed", nil) }
func (e *Ear) Message(payload string)  { e.hear("message "+payload, nil) }
func (e *Ear) Unsubscribed(err error)  { e.hear("unsubscribed", err) }
func (e *Ear) Refused(err error)       { e.hear("refused", err) }
func (e *Ear) Next(t *testing.T) Heard { t.Helper(); return e.within(t, 2*time.Minute) }

func (e *Ear) within(t *testing.T, limit time.Duration) Heard {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case h := <-e.calls:
		return h
	case <-timer.C:
		t.Fatalf("the Listener is not called within %v", limit)
		return Heard{}
	}
}

// Hears fails unless the next calls are these.
func (e *Ear) Hears(t *testing.T, calls ...string) (last Heard) {
	t.Helper()
	for _, want := range calls {
		last = e.Next(t)
		require.Equal(t, want, last.What, "%v", last.Err)
	}
	return last
}

// silent fails if there is a call that was not read, or one in the next hour.
func (e *Ear) silent(t *testing.T) {
	t.Helper()
	time.Sleep(time.Hour)
	select {
	case h := <-e.calls:
		t.Fatalf("the Listener is called: %+v", h)
	default:
	}
}

// listenTo subscribes to "channel" until the end of the test.
func listenTo(t *testing.T, p Pool, to Listener) Subscription {
	t.Helper()
	s, err := p.(Subscriber).Subscribe("channel", to)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// opened counts the connections that have been opened to node so far.
func opened(node *embedded.Node) int {
	return node.TotalConnectionCount() - 1 // without the one that the node opened itself when it started
}

// ofBoth runs f twice, with the pool of a *redis.Client and with that of another client. Each time the
// node has no other connections.
func ofBoth(t *testing.T, f func(t *testing.T, node *embedded.Node, p Pool)) {
	t.Helper()
	bothPools(t, func(t *testing.T, node *embedded.Node, of func(*redis.Client, ...Option) Pool) {
		p := of(clientOf(t, node, nil))
		t.Cleanup(func() { _ = p.Close() })
		f(t, node, p)
	})
}

// The pauses between attempts double from 50 ms to 1 s, and up to half a pause is added at random.
func TestSubscribeBacksOff(t *testing.T) {
	ofBoth(t, func(t *testing.T, node *embedded.Node, p Pool) {
		node.Kill()
		start, e := time.Now(), NewEar()
		listenTo(t, p, e)
		first := e.Hears(t, "unsubscribed")
		require.Equal(t, start, first.At)
		require.ErrorContains(t, first.Err, "pool: not subscribed: ")
		require.ErrorContains(t, first.Err, "connection refused")
		last, jittered := first.At, 0
		backsOff := func(pause time.Duration, then string) {
			t.Helper()
			h := e.Hears(t, then)
			took := h.At.Sub(last)
			require.GreaterOrEqual(t, took, pause)
			require.Less(t, took, pause*3/2)
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
		require.Greater(t, jittered, 20)
		require.Less(t, jittered, 80)
		node.Restart(true)
		backsOff(time.Second, "subscribed")

		time.Sleep(time.Second) // the connection lasts long enough for the pauses to start over
		node.Kill()
		last = e.Hears(t, "unsubscribed").At
		require.Equal(t, time.Now(), last, "the end of the connection is noticed at once")
		backsOff(50*time.Millisecond, "unsubscribed")
		backsOff(100*time.Millisecond, "unsubscribed")
		node.Restart(true)
		backsOff(200*time.Millisecond, "subscribed")
	})
}

// A node confirms and ends the connection at once, every time. The pauses must not start over after
// such a short connection, or the node would get more than ten attempts a second.
func TestSubscribeBacksOffFromShortConnections(t *testing.T) {
	ofBoth(t, func(t *testing.T, node *embedded.Node, p Pool) {
		e := NewEar()
		e.then = func(h Heard) {
			if h.What == "subscribed" {
				node.Disconnect()
			}
		}
		listenTo(t, p, e)
		time.Sleep(time.Minute)
		require.Greater(t, opened(node), 60/2)
		require.Less(t, opened(node), 60+6)
	})
}

// Each attempt opens one connection, even if the dial ignores its context, as that of go-redis does
// with TLS.
func TestSubscribeOpensOneConnectionPerAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, node *embedded.Node) {
		e := NewEar()
		listenTo(t, New(clientOf(t, node, func(o *redis.Options) {
			o.Dialer = func(context.Context, string, string) (net.Conn, error) {
				return node.Dial(context.Background(), "", "")
			}
		})), e)
		for i := range 10 {
			e.Hears(t, "subscribed")
			synctest.Wait()
			require.Equal(t, i+1, opened(node))
			node.Disconnect()
			e.Hears(t, "unsubscribed")
		}
	})
}

// An idle connection stays open, and a PING is sent every 2 s.
func TestSubscribePingsIdleConnection(t *testing.T) {
	ofBoth(t, func(t *testing.T, node *embedded.Node, p Pool) {
		e := NewEar()
		listenTo(t, p, e)
		e.Hears(t, "subscribed")
		before := node.Commands("ping")
		e.silent(t)
		require.InDelta(t, 1800, node.Commands("ping")-before, 1)
		require.Equal(t, 1, opened(node))

		before = node.Commands("ping")
		for range 1000 { // messages are signs of life
			node.Publish("channel", "x")
			time.Sleep(2*time.Second - time.Millisecond)
			e.Hears(t, "message x")
		}
		require.LessOrEqual(t, node.Commands("ping")-before, 1)
	})
}

// A user without permission for PING gets an error as the answer, which also shows that the node is alive.
func TestSubscribeWithoutPing(t *testing.T) {
	ofBoth(t, func(t *testing.T, node *embedded.Node, p Pool) {
		node.On("ping", 1e6, embedded.Fault{Err: "NOPERM this user has no permissions to run the 'ping' command"})
		e := NewEar()
		listenTo(t, p, e)
		e.Hears(t, "subscribed")
		e.silent(t)
		require.Equal(t, 1, opened(node))
		node.Publish("channel", "x")
		e.Hears(t, "message x")
	})
}

// The connection to a frozen node is given up 5 s after the last data from it.
func TestSubscribeNoticesFrozenNode(t *testing.T) {
	for _, quiet := range []time.Duration{0, 500 * time.Millisecond, 1999 * time.Millisecond} {
		ofBoth(t, func(t *testing.T, node *embedded.Node, p Pool) {
			e := NewEar()
			listenTo(t, p, e)
			e.Hears(t, "subscribed")
			time.Sleep(time.Minute + 100*time.Millisecond)
			node.Publish("channel", "x")
			heard := e.Hears(t, "message x").At
			time.Sleep(quiet)
			node.Freeze()
			h := e.Hears(t, "unsubscribed")
			require.Equal(t, heard.Add(5*time.Second), h.At)
			require.ErrorContains(t, h.Err, "pool: connection lost: ")
			var timeout net.Error
			require.ErrorAs(t, h.Err, &timeout)
			require.True(t, timeout.Timeout())
		})
	}
}

// A node that is unreachable for less than 3 s does not lose the connection.
func TestSubscribeRidesOutPause(t *testing.T) {
	ofBoth(t, func(t *testing.T, node *embedded.Node, p Pool) {
		e := NewEar()
		listenTo(t, p, e)
		e.Hears(t, "subscribed")
		for i := range 20 {
			time.Sleep(time.Duration(i) * 100 * time.Millisecond)
			node.Freeze()
			time.Sleep(3*time.Second - time.Millisecond)
			node.Thaw()
			time.Sleep(time.Second)
		}
		e.silent(t)
		require.Equal(t, 1, opened(node))
	})
}

// A subscription that is not confirmed within 5 s is given up, whichever step hangs.
func TestSubscribeOpeningIsBounded(t *testing.T) {
	attempts := func(t *testing.T, node *embedded.Node, p Pool) {
		t.Helper()
		e, last := NewEar(), time.Now()
		listenTo(t, p, e)
		for i := range 5 {
			h := e.Hears(t, "unsubscribed")
			took := h.At.Sub(last)
			pause := min(50*time.Millisecond<<i, time.Second) / 2 // the shortest pause before this attempt
			if i == 0 {
				require.Equal(t, 5*time.Second, took)
			} else {
				require.GreaterOrEqual(t, took, 5*time.Second+pause)
				require.Less(t, took, 5*time.Second+pause*3/2)
			}
			last = h.At
		}
		node.Thaw()
		for h := e.Next(t); h.What != "subscribed"; h = e.Next(t) {
			require.Equal(t, "unsubscribed", h.What)
		}
	}
	t.Run("the greeting", func(t *testing.T) {
		bubble(t, func(t *testing.T, node *embedded.Node) {
			node.Freeze()
			attempts(t, node, New(clientOf(t, node, func(o *redis.Options) { o.ReadTimeout = -1 })))
		})
	})
	t.Run("the dial", func(t *testing.T) {
		bubble(t, func(t *testing.T, node *embedded.Node) {
			hanging := 5
			attempts(t, node, New(clientOf(t, node, func(o *redis.Options) {
				o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if hanging--; hanging >= 0 {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return node.Dial(ctx, network, addr)
				}
			})))
		})
	})
	t.Run("SUBSCRIBE", func(t *testing.T) {
		ofBoth(t, func(t *testing.T, node *embedded.Node, p Pool) {
			node.On("subscribe", 5, embedded.Fault{Delay: 6 * time.Second})
			attempts(t, node, p)
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
		ofBoth(t, func(t *testing.T, node *embedded.Node, p Pool) {
			node.On("subscribe", 1e6, embedded.Fault{Err: text})
			e := NewEar()
			s := listenTo(t, p, e)
			h := e.Hears(t, "refused")
			var answer redis.Error
			require.ErrorAs(t, h.Err, &answer)
			require.Equal(t, text, answer.Error())
			require.EqualError(t, h.Err, `pool: subscribing to "channel" is refused: `+text)
			e.silent(t)
			require.Equal(t, 1, node.Commands("subscribe"))
			require.Zero(t, node.CurrentConnectionCount())
			s.Close()
			e.silent(t)
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
	ofBoth(t, func(t *testing.T, node *embedded.Node, p Pool) {
		for _, text := range texts {
			node.On("subscribe", 1, embedded.Fault{Err: text})
		}
		e := NewEar()
		listenTo(t, p, e)
		for _, text := range texts {
			require.ErrorContains(t, e.Hears(t, "unsubscribed").Err, text)
		}
		e.Hears(t, "subscribed")
		e.silent(t)
	})
}

func TestSubscriptionCloseFromListener(t *testing.T) {
	for method, prepare := range map[string]func(*embedded.Node){
		"subscribed":   func(*embedded.Node) {},
		"message x":    func(*embedded.Node) {},
		"unsubscribed": func(n *embedded.Node) { n.On("subscribe", 1, embedded.Fault{LoseCommand: true}) },
		"refused":      func(n *embedded.Node) { n.On("subscribe", 1, embedded.Fault{Err: "NOPERM no"}) },
	} {
		t.Run(method, func(t *testing.T) {
			ofBoth(t, func(t *testing.T, node *embedded.Node, p Pool) {
				prepare(node)
				e, ready := NewEar(), make(chan struct{})
				var s Subscription
				e.then = func(h Heard) {
					if <-ready; h.What == method {
						s.Close()
						node.Publish("channel", "late")
						node.Disconnect()
						s.Close()
					}
				}
				s = listenTo(t, p, e)
				close(ready)
				if method == "message x" {
					e.Hears(t, "subscribed")
					node.Publish("channel", "x")
					node.Publish("channel", "y")
				}
				e.Hears(t, method)
				e.silent(t)
				require.Zero(t, node.CurrentConnectionCount())
				most := 1
				if method == "unsubscribed" {
					most = 2 // go-redis may subscribe again by itself before it reports that a connection has ended
				}
				require.LessOrEqual(t, node.Commands("subscribe"), most)
			})
		})
	}
}

// Two listeners that close each other's subscription must not wait for each other: they would wait for ever.
func TestSubscriptionsCloseEachOther(t *testing.T) {
	ofBoth(t, func(t *testing.T, node *embedded.Node, p Pool) {
		var meet sync.WaitGroup
		meet.Add(2)
		var subs [2]Subscription
		var ears [2]*Ear
		for i := range ears {
			ears[i] = NewEar()
			ears[i].then = func(h Heard) {
				if h.What == "message x" {
					meet.Done()
					meet.Wait()
					deep(100, subs[1-i].Close)
				}
			}
			subs[i] = listenTo(t, p, ears[i])
			ears[i].Hears(t, "subscribed")
		}
		require.Equal(t, 2, node.Publish("channel", "x"))
		synctest.Wait()
		require.Zero(t, node.CurrentConnectionCount())
		for i := range ears {
			ears[i].Hears(t, "message x")
			ears[i].silent(t)
		}
	})
}

// deep calls f with that many more frames on the stack, so that inListener has to look far.
//
//go:noinline
func deep(frames int, f func()) {
	if frames > 0 {
		deep(frames-1, f)
		return
	}
	f()
}

// Close does not wait for the node, and a connection that is being opened ends too.
func TestSubscriptionCloseWhileOpening(t *testing.T) {
	for name, prepare := range map[string]func(*embedded.Node){
		"frozen at the greeting": func(n *embedded.Node) { n.Freeze() },
		"SUBSCRIBE unanswered":   func(n *embedded.Node) { n.On("subscribe", 1, embedded.Fault{Delay: time.Hour}) },
		"dead":                   func(n *embedded.Node) { n.Kill() },
		"dial hangs":             nil,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, node *embedded.Node) {
				p := New(clientOf(t, node, func(o *redis.Options) {
					if prepare == nil {
						o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
							<-ctx.Done()
							return nil, ctx.Err()
						}
					}
				}))
				if prepare != nil {
					prepare(node)
				}
				e := NewEar()
				s, start := listenTo(t, p, e), time.Now()
				time.Sleep(20 * time.Millisecond)
				s.Close()
				synctest.Wait()
				require.Equal(t, start.Add(20*time.Millisecond), time.Now())
				subs := &p.(*streamPool).subs
				subs.mu.Lock()
				require.Empty(t, subs.open, "the goroutine has ended")
				subs.mu.Unlock()
				node.Thaw()
				synctest.Wait()
				if name == "dead" {
					e.Hears(t, "unsubscribed")
				}
				e.silent(t)
				require.Zero(t, node.CurrentConnectionCount())
			})
		})
	}
}

func TestPoolCloseEndsSubscriptions(t *testing.T) {
	ofBoth(t, func(t *testing.T, node *embedded.Node, p Pool) {
		ears := make([]*Ear, 20)
		for i := range ears {
			ears[i] = NewEar()
			listenTo(t, p, ears[i])
			ears[i].Hears(t, "subscribed")
		}
		p.CloseIdle()
		node.Publish("channel", "x")
		for _, e := range ears {
			e.Hears(t, "message x")
		}
		require.Equal(t, 20, node.CurrentConnectionCount(), "CloseIdle leaves them")
		start := time.Now()
		require.NoError(t, p.Close())
		require.NoError(t, p.Close())
		synctest.Wait()
		require.Zero(t, node.CurrentConnectionCount())
		require.Equal(t, start, time.Now())
		_, err := p.(Subscriber).Subscribe("channel", ears[0])
		require.ErrorIs(t, err, ErrClosed)
		for _, e := range ears {
			e.silent(t)
		}
	})
}

// The Pool's Close does not wait for any method of a Listener, and such a method may call Close.
func TestPoolCloseFromListener(t *testing.T) {
	ofBoth(t, func(t *testing.T, node *embedded.Node, p Pool) {
		e, slow := NewEar(), NewEar()
		release := make(chan struct{})
		slow.then = func(Heard) { <-release }
		listenTo(t, p, slow)
		synctest.Wait()
		e.then = func(Heard) { _ = p.Close() }
		listenTo(t, p, e)
		e.Hears(t, "subscribed")
		close(release)
		slow.Hears(t, "subscribed")
		e.silent(t)
		slow.silent(t)
		require.Zero(t, node.CurrentConnectionCount())
	})
}

func TestPoolCloseDoesNotWaitForListener(t *testing.T) {
	ofBoth(t, func(t *testing.T, node *embedded.Node, p Pool) {
		e := NewEar()
		e.then = func(Heard) { time.Sleep(time.Second) }
		s := listenTo(t, p, e)
		start := e.Hears(t, "subscribed").At
		node.Publish("channel", "x")
		require.NoError(t, p.Close())
		require.Equal(t, start, time.Now())
		s.Close()
		require.Equal(t, start.Add(time.Second), time.Now(), "the Close of the Subscription waits")
		e.silent(t)
	})
}

// Subscribe and Close race, and must leave no connection behind in either order.
func TestSubscribeRacesWithClose(t *testing.T) {
	ofBoth(t, func(t *testing.T, node *embedded.Node, p Pool) {
		stream, isStream := p.(*streamPool)
		for i := range 40 {
			q := New(clientOf(t, node, nil))
			if !isStream {
				q = New(p.(*batchPool).client)
			}
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					s, err := q.(Subscriber).Subscribe("channel", NewEar())
					if err == nil && i%2 == 0 {
						s.Close()
					}
				})
			}
			wg.Go(func() { _ = q.Close() })
			wg.Wait()
			synctest.Wait()
			require.Zero(t, node.CurrentConnectionCount())
		}
		require.False(t, isStream && stream.closed.Load())
	})
}

// A proxy ends each connection at SUBSCRIBE. After three, the next ones come half a minute later, and the Listener can tell.
func TestSubscribeWhereTheConnectionEnds(t *testing.T) {
	bubble(t, func(t *testing.T, node *embedded.Node) {
		node.Lacks(embedded.Closing, "subscribe")
		e := NewEar()
		listenTo(t, New(clientOf(t, node, nil)), e)
		before := e.Hears(t, "unsubscribed")
		for i := 2; i < 6; i++ {
			h := e.Hears(t, "unsubscribed")
			require.ErrorContains(t, h.Err, "in place of an answer to SUBSCRIBE: EOF")
			require.Equal(t, i >= hangUps, HangsUp(h.Err))
			require.Equal(t, HangsUp(before.Err), h.At.Sub(before.At) >= hungUpPause)
			before = h
		}
		node.Lacks(embedded.Has, "subscribe")
		e.Hears(t, "subscribed")
	})
}
