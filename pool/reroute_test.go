package pool

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"
)

const secondOfCast = "10.0.0.2:7000"

// A rerouting is a client of the two peers of a cast, of which the first is silent, and the ways in which the client stops
// using it.
type rerouting struct {
	client redis.UniversalClient
	leave  func() // the client leads every key to the second peer from now on
	soon   time.Duration
}

var reroutings = map[string]func(cast) rerouting{
	"a Cluster, another master": func(c cast) rerouting {
		const hang = 4 // reloads ask the silent peer first, and wait for it
		var second atomic.Bool
		var reloads atomic.Int32
		client := c.client(func(o *redis.ClusterOptions) {
			o.ReadTimeout = maxReadTimeout
			o.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) {
				addr := firstOfCast
				if second.Load() {
					if reloads.Add(1) <= hang {
						time.Sleep(maxReadTimeout)
					}
					addr = secondOfCast
				}
				return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
			}
		})
		// Nobody tells the client: the pool asks it to look.
		return rerouting{client, func() { second.Store(true) }, (hang*looksPerReload + looksUntilReload + 2) * rerouteEvery}
	},
	"a Ring, a shard is down": func(c cast) rerouting {
		var down atomic.Bool
		ring := c.ring(func(_ context.Context, node *redis.Client) bool {
			return (node.Options().Addr == secondOfCast) == down.Load()
		})
		time.Sleep(3 * time.Second) // until the second is down, so that every key is on the first
		return rerouting{ring, func() { down.Store(true) }, 3 * time.Second}
	},
	"a Ring, other addresses": func(c cast) rerouting {
		ring := c.ring(func(context.Context, *redis.Client) bool { return true })
		ring.SetAddrs(map[string]string{"a": firstOfCast})
		return rerouting{ring, func() { ring.SetAddrs(map[string]string{"b": secondOfCast}) }, 2 * rerouteEvery}
	},
}

func (c cast) ring(beat func(context.Context, *redis.Client) bool) *redis.Ring {
	o := c.client(nil).Options()
	return redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"a": firstOfCast, "b": secondOfCast}, HeartbeatFn: beat, Dialer: o.Dialer,
		ReadTimeout: maxReadTimeout, WriteBufferSize: handshakeSize,
		NewClient: func(o *redis.Options) *redis.Client {
			o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
			return redis.NewClient(o)
		},
	})
}

// A node is silent, and the client goes to another one. What the node owes is given up, long before its ReadTimeout. New
// requests and subscriptions go to the other node, and the connections to the first one end.
func TestReroute(t *testing.T) {
	for name, begin := range reroutings {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var open, gets atomic.Int32 // connections to the first peer, and requests to the second
				asked := make(chan *talk, 1)
				listens := func(k *talk, cmd []any, name string) {
					if cmd[0] == "subscribe" {
						k.say("*3\r\n$9\r\nsubscribe\r\n$7\r\nchannel\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$7\r\nchannel\r\n$1\r\n%s\r\n", name)
					}
				}
				r := begin(cast{
					firstOfCast: func(_ int, k *talk) {
						open.Add(1)
						defer open.Add(-1)
						for cmd := k.next(); cmd != nil; cmd = k.next() {
							k.handshake(cmd)
							listens(k, cmd, "1")
							if cmd[0] == "get" {
								asked <- k
							}
						}
					},
					secondOfCast: func(_ int, k *talk) {
						for cmd := k.next(); cmd != nil; cmd = k.next() {
							if !k.handshake(cmd) {
								listens(k, cmd, "2")
								if cmd[0] == "get" {
									gets.Add(1)
									k.say("+here\r\n")
								}
							}
						}
					},
				})
				p, in, ear := New(r.client), make(replies, 1), NewEar()
				sub, err := p.(Subscriber).Subscribe("channel", ear)
				require.NoError(t, err)
				for _, want := range []string{"subscribed", "message 1"} {
					require.Equal(t, want, ear.Next(t).What)
				}
				require.NoError(t, p.Send(Request{Args: []any{"get", "key"}, To: in}))
				time.Sleep(3 * rerouteEvery)
				require.Empty(t, in)
				start := time.Now()
				r.leave()
				reply := in.wait(t)
				require.True(t, errors.Is(reply.Err, errRerouted) || errors.Is(reply.Err, errDropped), "%v", reply.Err) // whichever looks first
				require.Equal(t, Unknown, reply.Fate)
				require.LessOrEqual(t, time.Since(start), r.soon)
				(<-asked).say("-MOVED 5 %s\r\n", secondOfCast) // too late: nobody cleans up after the request any more
				time.Sleep(time.Millisecond)
				require.Zero(t, gets.Load())
				require.Equal(t, "here", answer(t, p, "get", "key").Value)
				for _, want := range []string{"unsubscribed", "subscribed", "message 2"} {
					require.Equal(t, want, ear.Next(t).What)
				}
				require.LessOrEqual(t, time.Since(start), r.soon+rerouteEvery)
				sub.Close()
				require.NoError(t, p.Close())
				time.Sleep(maxReadTimeout)
				require.Zero(t, open.Load())
				require.NoError(t, r.client.Close())
			})
		})
	}
}

// A shard that is down, or has left the Ring, keeps no connection, although it answers.
func TestConnectionToADroppedShardEnds(t *testing.T) {
	for _, name := range []string{"a Ring, a shard is down", "a Ring, other addresses"} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var open atomic.Int32
				r := reroutings[name](cast{firstOfCast: func(_ int, k *talk) {
					open.Add(1)
					defer open.Add(-1)
					says("+here")(0, k)
				}})
				p := New(r.client)
				answer(t, p, "get", "key")
				require.EqualValues(t, 1, open.Load())
				r.leave()
				time.Sleep(r.soon + 2*lookPause)
				require.Zero(t, open.Load())
				require.NoError(t, p.Close())
				require.NoError(t, r.client.Close())
			})
		})
	}
}

// A request is redirected to a node that the client does not know yet, and which answers late. It is not given up, neither
// before the client knows the node nor afterwards.
func TestRedirectedRequestIsNotGivenUp(t *testing.T) {
	virtual(t, func(t *testing.T) {
		client := cast{
			firstOfCast: says("-MOVED 5 " + secondOfCast),
			secondOfCast: func(_ int, k *talk) {
				k.greet(whole)
				k.next()
				time.Sleep(readTimeout / 2)
				k.say("+here\r\n")
				k.next()
			},
		}.client(func(o *redis.ClusterOptions) {
			begin := time.Now()
			o.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) {
				addr := firstOfCast
				if time.Since(begin) > readTimeout/4 {
					addr = secondOfCast
				}
				return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
			}
		})
		p := newOf(t, client)
		require.Equal(t, "here", answer(t, p, "get", "key").Value)
	})
}

// handshake answers cmd if it belongs to a greeting, and reports whether it does.
func (k *talk) handshake(cmd []any) bool {
	switch cmd[0] {
	case "hello":
		k.say("-ERR unknown command 'HELLO'\r\n")
	case "client":
		k.say("+OK\r\n")
	case "info":
		k.say("$0\r\n\r\n")
	case "script":
		k.say("$40\r\n%040d\r\n", 0)
	default:
		return false
	}
	return true
}
