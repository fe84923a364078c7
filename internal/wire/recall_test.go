package wire

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// told notes the replies that it is told, by tag.
type told map[int]Reply

func (t told) Receive(tag int, r Reply) { t[tag] = r }

// What is taken back leaves the bytes of the other requests as they were, and takes its ASKING with it.
func TestRecall(t *testing.T) {
	why := errors.New("closing")
	for mask := range 1 << 4 { // the requests that are taken back
		q, to := &queue{wake: make(chan struct{}, 1)}, told{}
		var want []byte
		owed := int64(0)
		for i, args := range [][]any{{"set", "k\r\n$3", 17, "nx"}, {"ping"}, {"evalsha", "", 1000}, {"get", "é"}} {
			asking := i%2 == 1
			require.NoError(t, q.submit(&Request{Args: args, To: to, Tag: i, asking: asking}, 10, nil))
			if mask>>i&1 == 1 {
				continue
			}
			if owed++; asking {
				want, owed = append(want, "*1\r\n$6\r\nASKING\r\n"...), owed+1
			}
			want, _ = AppendCommand(want, args)
		}
		q.recall(func(_ Receiver, tag int) bool { return mask>>tag&1 == 1 }, why)
		assert.Equal(t, string(want), string(q.encoded), "%04b", mask)
		assert.Equal(t, owed, q.owed.Load())
		assert.Len(t, q.requests, int(owed))
		for i := range 4 {
			reply, back := to[i]
			require.Equal(t, mask>>i&1 == 1, back)
			if back {
				require.Equal(t, Reply{Err: why, Fate: NotSent}, reply)
			}
		}
	}
}

// A request may come just between two attempts to open a connection.
func TestRecallBetweenTwoConnections(t *testing.T) {
	s, p, to, why := &stream{queue: queue{wake: make(chan struct{}, 1)}}, &streamPool{}, told{}, errors.New("closing")
	p.last.Store(s)
	require.NoError(t, s.submit(&Request{Args: []any{"ping"}, To: to}, 10, nil))
	p.Recall(func(Receiver, int) bool { return true }, why)
	assert.Equal(t, told{0: {Err: why, Fate: NotSent}}, to)
}

// A pool takes requests back while it looks for the nodes, and while it opens the connection to one.
func TestRecallWhileAConnectionIsOpened(t *testing.T) {
	for name, of := range map[string]func() redis.UniversalClient{
		"a client":  func() redis.UniversalClient { return redis.NewClient(&redis.Options{Dialer: hangs}) },
		"a Cluster": func() redis.UniversalClient { return cast{}.client(func(o *redis.ClusterOptions) { o.Dialer = hangs }) },
		"a Cluster that is not known": func() redis.UniversalClient {
			return cast{}.client(func(o *redis.ClusterOptions) {
				o.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) {
					time.Sleep(time.Second)
					return nil, errors.New("cut off")
				}
			})
		},
	} {
		virtually(t, name, func(t *testing.T) {
			p, in, why := newOf(t, of()), make(replies, 4), errors.New("closing")
			for tag := range 4 {
				require.NoError(t, p.Send(Request{Args: []any{"get", "key"}, To: in, Tag: tag}))
			}
			synctest.Wait()
			p.(Recalling).Recall(func(_ Receiver, tag int) bool { return tag < 2 }, why)
			require.Len(t, in, 2)
			require.Equal(t, Reply{Err: why, Fate: NotSent}, <-in)
		})
	}
}
