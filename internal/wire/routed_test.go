package wire

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A cast is a cluster of peers, by address. Its client believes that the first peer has every
// slot.
type cast map[string]peer

const firstOfCast = "10.0.0.1:7000"

// slotsAt are all slots, at one node.
func slotsAt(addr string) []redis.ClusterSlot {
	return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}
}

func (c cast) client(changes ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	options := &redis.ClusterOptions{
		ReadTimeout: readTimeout, WriteBufferSize: handshakeSize, MaintNotificationsConfig: noNotifications,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return slotsAt(firstOfCast), nil },
		Dialer: func(_ context.Context, _, addr string) (net.Conn, error) {
			p := c[addr]
			if p == nil {
				return nil, fmt.Errorf("nobody is at %s", addr)
			}
			return p.connect(1), nil
		},
	}
	for _, change := range changes {
		change(options)
	}
	return redis.NewClusterClient(options)
}

func (c cast) pool(t *testing.T, with ...Config) Pool {
	t.Helper()
	return newOf(t, c.client(), with...)
}

// newOf returns a Pool of the client. The end of the test closes both.
func newOf(t *testing.T, client redis.UniversalClient, with ...Config) Pool {
	t.Helper()
	p := New(client, only(with))
	t.Cleanup(func() {
		assert.NoError(t, p.Close())
		assert.NoError(t, client.Close())
	})
	return p
}

// says returns a peer that answers every request with the same reply.
func says(words string) peer {
	return greeted(func(_ int, k *talk) {
		for range k.all {
			k.say("%s\r\n", words)
		}
	})
}

// A node that a redirection names is opened as the client would open it.
func TestRedirectionAsksNewClient(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := newOf(t, cast{firstOfCast: says("-MOVED 5 announced:1"), secondOfCast: says("+here")}.client(func(o *redis.ClusterOptions) {
			o.NewClient = func(node *redis.Options) *redis.Client {
				if node.Addr == "announced:1" {
					node.Addr = secondOfCast
				}
				return redis.NewClient(node)
			}
		}))
		require.Equal(t, "here", ask(t, p, "get", "key").Value)
	})
}

// The user closes the client while it looks for the nodes.
func TestRoutedClientClosedMeanwhile(t *testing.T) {
	virtual(t, func(t *testing.T) {
		looks, ends := make(chan struct{}), make(chan struct{})
		client := cast{}.client(func(o *redis.ClusterOptions) {
			o.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) {
				close(looks)
				<-ends
				return nil, errors.New("cut off")
			}
		})
		p := New(client, Config{})
		var closing sync.WaitGroup
		closing.Go(func() {
			<-looks
			assert.NoError(t, client.Close())
			close(ends)
		})
		require.ErrorIs(t, unsent(t, p), ErrClientClosed)
		closing.Wait()
		require.NoError(t, p.Close())
	})
}

func TestRoutedRedirections(t *testing.T) {
	const other = "10.0.0.2:7000"
	for words, want := range map[string]struct {
		fate  Fate
		value any
		text  string
	}{
		"-MOVED 5 10.0.0.2:7000":   {Answered, "here", ""},
		"-ASK 5 10.0.0.2:7000":     {Answered, "asked", ""},
		"-MOVED 5 10.0.0.1:7000":   {Answered, nil, "MOVED 5 10.0.0.1:7000"}, // the node redirects to itself; the client gives up after MaxRedirects
		"-MOVED 5 10.0.0.9:7000":   {NotSent, nil, "nobody is at 10.0.0.9:7000"},
		"-ASK 5 10.0.0.9:7000":     {NotSent, nil, "nobody is at 10.0.0.9:7000"},
		"-MOVED 5 :7001":           {Answered, "same host", ""},
		"-MOVED a b c d":           {Answered, nil, "MOVED a b c d"},
		"-ASK 5 :":                 {Answered, nil, "ASK 5 :"},
		"-TRYAGAIN Multiple keys":  {Answered, nil, "TRYAGAIN Multiple keys"},
		"$9223372036854775807":     {Unknown, nil, "no reply"},
		"*2147483647\r\n*99999999": {Unknown, nil, "no reply"},
	} {
		virtually(t, words, func(t *testing.T) {
			p := cast{
				firstOfCast:     says(words),
				"10.0.0.1:7001": says("+same host"),
				other: greeted(func(_ int, k *talk) {
					for cmd := range k.all {
						if cmd[0] != "ASKING" {
							k.say("+here\r\n")
							continue
						}
						k.say("+OK\r\n")
						k.next()
						k.say("+asked\r\n")
					}
				}),
			}.pool(t)
			for range 5 {
				r := ask(t, p, "get", "key")
				require.Equal(t, want.fate, r.Fate, "%v", r.Err)
				require.Equal(t, want.value, r.Value)
				require.Zero(t, r.Conn)
				require.Nil(t, r.Server)
				if want.text == "" {
					require.NoError(t, r.Err)
				} else {
					require.ErrorContains(t, r.Err, want.text)
				}
			}
		})
	}
}

// Many requests follow an ASK at once. Each needs its own ASKING just before it, although the connection
// carries other requests too. A request that goes where the client expects the slot must have no ASKING.
func TestRoutedAskingStandsBeforeItsRequest(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := cast{
			firstOfCast: greeted(func(_ int, k *talk) {
				for cmd := range k.all {
					assert.NotEqual(t, "ASKING", cmd[0])
					if cmd[0] == "get" {
						k.say("-ASK 5 10.0.0.2:7000\r\n")
					} else {
						k.say("-MOVED 5 10.0.0.2:7000\r\n")
					}
				}
			}),
			"10.0.0.2:7000": greeted(func(_ int, k *talk) {
				asking := false
				for cmd := range k.all {
					k.say("+%v %v\r\n", cmd[0], asking)
					asking = cmd[0] == "ASKING"
				}
			}),
		}.pool(t)
		gets, sets := make(replies, 200), make(replies, 200)
		for i := range 100 {
			send(t, p, gets, "get", i)
			send(t, p, sets, "set", i, "v")
		}
		for range 100 {
			require.Equal(t, "get true", gets.wait(t).Value)
			require.Equal(t, "set false", sets.wait(t).Value)
		}
	})
}

// A request is redirected to a node that already owes as many replies as the limit allows. The limit
// must not refuse it, because the first node has already accepted it.
func TestRoutedRedirectedRequestHasItsRoom(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const limit = 3
		p, in := cast{
			firstOfCast: says("-MOVED 5 10.0.0.2:7000"),
			"10.0.0.2:7000": greeted(func(_ int, k *talk) {
				for range 2 * limit { // all of them are outstanding at once
					k.next()
				}
				for range 2 * limit {
					k.say("+here\r\n")
				}
			}),
		}.pool(t, Config{Outstanding: limit}), make(replies, 2*limit)
		for range 2 {
			for range limit {
				send(t, p, in, "get", "key")
			}
			synctest.Wait() // they have left the first node
		}
		for range 2 * limit {
			require.Equal(t, "here", in.wait(t).Value)
		}
	})
}

// The pool forgets nodes whose streams have ended, so that a cluster whose nodes come and go costs no
// memory. It keeps the nodes in use.
func TestRoutedForgetsIdleNodes(t *testing.T) {
	virtual(t, func(t *testing.T) {
		nodes := cast{firstOfCast: greeted(func(_ int, k *talk) {
			for cmd := range k.all {
				k.say("-MOVED 5 %s\r\n", cmd[1])
			}
		})}
		const others = 5
		addr := func(i int) string { return fmt.Sprintf("10.0.0.2:%d", i) }
		for i := range others {
			nodes[addr(i)] = says("+here")
		}
		p := nodes.pool(t).(*routedPool)
		kept := func() []string {
			p.mu.Lock()
			defer p.mu.Unlock()
			return slices.Sorted(maps.Keys(p.nodes))
		}
		for i := range others - 1 {
			answer(t, p, "get", addr(i))
		}
		require.Len(t, kept(), others, "all of them have been used just now")
		time.Sleep(2 * idleTimeout)
		answer(t, p, "get", addr(others-1))
		require.Equal(t, []string{firstOfCast, addr(others - 1)}, kept())

		p.mu.Lock()
		p.addLocked(firstOfCast, p.nodes[firstOfCast].client) // the client has made a new one
		p.mu.Unlock()
		synctest.Wait()
		require.Equal(t, 1, runningStreams(), "nobody else would end the former stream soon")
	})
}

// An opening that has not ended tells more than an open connection.
func TestRoutedLink(t *testing.T) {
	client, now := redis.NewClient(&redis.Options{MaintNotificationsConfig: noNotifications}), time.Now()
	link := func(l Link) *streamPool {
		s, p := &stream{}, newStreamPool(Config{}, client, client)
		if p.last.Store(s); l.Open {
			s.conn.Store(&conn{ready: l.Since})
		} else if !l.Since.IsZero() {
			s.opening.Store(&progress{since: l.Since})
		}
		return p
	}
	never, open, opening := Link{}, Link{Open: true, Since: now}, Link{Since: now}
	later := func(l Link) Link { l.Since = now.Add(1); return l }
	for want, other := range map[Link]Link{open: never, later(open): open, opening: later(open), later(opening): opening} {
		for range 20 { // a map has no order
			p := &routedPool{nodes: map[string]*streamPool{"a": link(want), "b": link(other)}}
			got := p.Link()
			require.Equal(t, want, Link{Open: got.Open, Since: got.Since})
		}
	}
	require.NoError(t, client.Close())
}

// The pool is closed while a node thinks about a request, and then the node redirects it. The request is executed, and the
// connection to the other node ends with it: nobody else would end it soon. If the client is closed, the request fails with
// NotSent: nobody has executed it.
func TestRoutedRedirectionAfterClose(t *testing.T) {
	for _, closesClient := range []bool{false, true} {
		virtual(t, func(t *testing.T) {
			ended := make(chan struct{})
			client := cast{
				firstOfCast: greeted(func(_ int, k *talk) {
					for range k.all {
						time.Sleep(lookPause / 2)
						k.say("-MOVED 5 %s\r\n", secondOfCast)
					}
				}),
				secondOfCast: func(_ int, k *talk) {
					defer close(ended)
					says("+here")(0, k)
				},
			}.client()
			p, start := New(client, Config{}), time.Now()
			in := sent(t, p, "get", "key")
			synctest.Wait()
			if closesClient {
				require.NoError(t, client.Close())
				r := in.wait(t)
				require.ErrorIs(t, r.Err, ErrClientClosed)
				require.Equal(t, NotSent, r.Fate)
				require.NoError(t, p.Close())
				return
			}
			require.NoError(t, p.Close())
			require.Equal(t, "here", in.wait(t).Value)
			<-ended
			require.Less(t, time.Since(start), time.Second)
			require.NoError(t, client.Close())
		})
	}
}

// The client cannot load the state of the cluster. Requests must fail with NotSent, and Send must not
// wait for the client.
func TestRoutedClusterThatIsNotKnown(t *testing.T) {
	virtual(t, func(t *testing.T) {
		away := errors.New("nobody knows")
		var known atomic.Bool
		client := cast{firstOfCast: says("+here")}.client(func(o *redis.ClusterOptions) {
			slots := o.ClusterSlots
			o.ClusterSlots = func(ctx context.Context) ([]redis.ClusterSlot, error) {
				time.Sleep(time.Second)
				if !known.Load() {
					panic(away) // the user's function
				}
				return slots(ctx)
			}
		})
		p, start := newOf(t, client, Config{Outstanding: 10}), time.Now()
		in := make(replies, 100)
		for range 10 {
			send(t, p, in, "get", "key")
		}
		var full *OutstandingError
		require.ErrorAs(t, p.Send(request(in, "get", "key")), &full)
		require.NoError(t, p.Send(Request{Args: []any{"get", "key"}, To: in, Reserved: true}))
		require.ErrorContains(t, p.Send(Request{Args: []any{"get", 1.5}, To: in, Reserved: true}), "float64")
		require.Zero(t, time.Since(start))
		for range 11 {
			r := in.wait(t)
			require.Equal(t, NotSent, r.Fate)
			require.ErrorIs(t, r.Err, away)
		}
		require.Equal(t, time.Second, time.Since(start))
		known.Store(true)
		require.Equal(t, "here", answer(t, p, "get", "key").Value)
	})
}

// A Ring without a shard sends nothing.
func TestRingWithoutAShard(t *testing.T) {
	p := newOf(t, redis.NewRing(&redis.RingOptions{}))
	require.ErrorContains(t, unsent(t, p), "all ring shards are down")
}

func TestKeyOf(t *testing.T) {
	for want, args := range map[string][]any{
		"a": {"set", "a", "v"}, "b": {"evalsha", "x", 1, "b", "v"}, "c": {"EVAL", "x", 2, "c", "d"},
		"": {"ping"}, "7": {"echo", 7}, "channel": {"publish", "channel", "x"},
	} {
		require.Equal(t, want, keyOf(args))
	}
	require.Empty(t, keyOf([]any{"eval", "x", 0, "v"}))
	require.Empty(t, keyOf([]any{"eval", "x"}))
}

// A server writes an IPv6 address without brackets.
func TestRedirectionToAnIPv6Address(t *testing.T) {
	for text, want := range map[string]string{
		"MOVED 3999 2001:db8::1:6381":   "[2001:db8::1]:6381",
		"ASK 3999 [2001:db8::1]:6381":   "[2001:db8::1]:6381",
		"MOVED 3999 10.0.0.1:6381":      "10.0.0.1:6381",
		"MOVED 3999 :6381":              "[2001:db8::2]:6381",
		"MOVED 3999 ?:6381":             "",
		"MOVED 3999 6381":               "",
		"MOVED 3999 node.example.com:1": "node.example.com:1",
	} {
		addr, _, is := redirection(refusal(text), "[2001:db8::2]:6379")
		require.Equal(t, want, addr, text)
		require.Equal(t, want != "", is, text)
	}
}
