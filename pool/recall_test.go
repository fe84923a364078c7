package pool

import (
	"errors"
	"testing"

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
