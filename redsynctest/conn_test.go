package redsynctest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A racing connection brings the answer to an earlier request just before it takes the next one.
type racing struct {
	net.Conn // not used

	answer chan struct{} // closed when the earlier answer arrives
	closed atomic.Bool
	early  bool // it was closed before the request was sent
}

func (r *racing) Read(p []byte) (int, error) {
	<-r.answer
	return copy(p, "+OK\r\n"), nil
}

func (r *racing) Write(p []byte) (int, error) {
	close(r.answer)
	time.Sleep(time.Second)
	r.early = r.closed.Load()
	return len(p), nil
}

func (r *racing) Close() error {
	r.closed.Store(true)
	return nil
}

// The answer to an earlier request may arrive while the request is sent whose answer is to be lost. The connection breaks only
// when the node has got that request.
func TestLoseReplySendsTheRequestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, node := &racing{answer: make(chan struct{})}, &Node{set: &Nodes{}}
		node.losing.Store(1)
		c := &conn{Conn: inner, node: node, of: &network{}, changed: make(chan struct{}, 1), closed: make(chan struct{})}
		var reading sync.WaitGroup
		reading.Go(func() {
			_, err := c.Read(make([]byte, 100))
			assert.Error(t, err)
		})
		_, err := c.Write([]byte("*3\r\n$3\r\nset\r\n$1\r\na\r\n$1\r\nb\r\n"))
		require.NoError(t, err)
		reading.Wait()
		assert.False(t, inner.early)
		assert.True(t, inner.closed.Load())
	})
}

func TestRequestsOfLocks(t *testing.T) {
	for command, of := range map[string]bool{
		"$3\r\nset": true, "$7\r\nevalsha": true, "$5\r\ndelex": true, "$7\r\ndelifeq": true, "$6\r\nmsetex": true,
		"$3\r\nget": false, "$5\r\nhello": false,
	} {
		assert.Equal(t, of, isOfLock([]byte("*2\r\n"+command+"\r\n$4\r\nname\r\n")), command)
	}
}
