package wire

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
				return slotsAt(addr), nil
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
	o := c.client().Options()
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
		virtually(t, name, func(t *testing.T) {
			var open, gets atomic.Int32 // connections to the first peer, and requests to the second
			asked := make(chan *talk, 1)
			plays := func(k *talk, name string, get func()) {
				for cmd := range k.all {
					switch cmd[0] {
					case "get":
						get()
					case "subscribe":
						k.say("%s*3\r\n$7\r\nmessage\r\n$7\r\nchannel\r\n$1\r\n%s\r\n", usual(cmd), name)
					default:
						k.reply(cmd)
					}
				}
			}
			r := begin(cast{
				firstOfCast: func(_ int, k *talk) {
					open.Add(1)
					defer open.Add(-1)
					plays(k, "1", func() { asked <- k })
				},
				secondOfCast: func(_ int, k *talk) {
					plays(k, "2", func() {
						gets.Add(1)
						k.say("+here\r\n")
					})
				},
			})
			p, ear := New(r.client, Config{}), NewEar(t)
			sub := listenTo(t, p, ear)
			ear.Hears("subscribed", "message 1")
			in := sent(t, p, "get", "key")
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
			ear.Hears("unsubscribed", "subscribed", "message 2")
			require.LessOrEqual(t, time.Since(start), r.soon+rerouteEvery)
			sub.Close()
			require.NoError(t, p.Close())
			time.Sleep(maxReadTimeout)
			require.Zero(t, open.Load())
			require.NoError(t, r.client.Close())
		})
	}
}

// A shard that is down, or has left the Ring, keeps no connection, although it answers.
func TestConnectionToADroppedShardEnds(t *testing.T) {
	for _, name := range []string{"a Ring, a shard is down", "a Ring, other addresses"} {
		virtually(t, name, func(t *testing.T) {
			var open atomic.Int32
			r := reroutings[name](cast{firstOfCast: func(_ int, k *talk) {
				open.Add(1)
				defer open.Add(-1)
				says("+here")(0, k)
			}})
			p := New(r.client, Config{})
			answer(t, p, "get", "key")
			require.EqualValues(t, 1, open.Load())
			r.leave()
			time.Sleep(r.soon + 2*lookPause)
			require.Zero(t, open.Load())
			require.NoError(t, p.Close())
			require.NoError(t, r.client.Close())
		})
	}
}

// A request is redirected to a node that the client does not know yet, and which answers late. It is not given up, neither
// before the client knows the node nor afterwards.
func TestRedirectedRequestIsNotGivenUp(t *testing.T) {
	virtual(t, func(t *testing.T) {
		client := cast{
			firstOfCast: says("-MOVED 5 " + secondOfCast),
			secondOfCast: greeted(func(_ int, k *talk) {
				k.next()
				time.Sleep(readTimeout / 2)
				k.say("+here\r\n")
				k.next()
			}),
		}.client(func(o *redis.ClusterOptions) {
			begin := time.Now()
			o.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) {
				addr := firstOfCast
				if time.Since(begin) > readTimeout/4 {
					addr = secondOfCast
				}
				return slotsAt(addr), nil
			}
		})
		p := newOf(t, client)
		require.Equal(t, "here", answer(t, p, "get", "key").Value)
	})
}
