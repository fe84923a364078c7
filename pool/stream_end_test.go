package pool

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// These tests cover the end of a stream, and the stream that follows it.

// runningStreams counts the streams of all clients.
func runningStreams() int {
	streams.Lock()
	defer streams.Unlock()
	return len(streams.running)
}

// A stream that has ended takes no requests. The pool continues with another stream, which
// all pools of the client share.
func TestSendStartsAStreamAfterTheLastHasEnded(t *testing.T) {
	for name, ends := range map[string]func(p Pool){
		"CloseIdle":        func(p Pool) { p.CloseIdle() },
		"idle for so long": func(Pool) { time.Sleep(idleTimeout) },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				p := peer(func(_ int, k *talk) {
					k.greet(whole)
					k.echo()
				}).pool(nil).(*streamPool)
				sibling := p.Sibling()
				first := answer(t, p, "echo", 1)
				require.Equal(t, first.Conn, answer(t, sibling, "echo", 2).Conn)
				ends(p)
				synctest.Wait()
				require.Zero(t, runningStreams())

				next := answer(t, p, "echo", 3)
				require.Equal(t, "3", next.Value)
				require.Greater(t, next.Conn, first.Conn)
				require.Equal(t, next.Conn, answer(t, sibling, "echo", 4).Conn, "the sibling pool must use the running stream")
				require.Equal(t, 1, runningStreams())
			})
		})
	}
}

// Close runs after a Send has found the pool open, and before that Send starts a stream. The Send must
// not start a stream, because the stream would stay until it has been idle for idleTimeout.
func TestStreamPoolStartsNothingOnceClosed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := peer(func(int, *talk) {}).pool(nil).(*streamPool)
		require.NoError(t, p.Close())
		_, err := p.running()
		require.ErrorIs(t, err, ErrClosed, "a Send that found the pool open before Close must start no stream")
		require.Zero(t, runningStreams())
		require.ErrorIs(t, p.Send(Request{Args: []any{"echo", 1}, To: newLedger(t), Tag: 1}), ErrClosed)
	})
}
