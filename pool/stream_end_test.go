package pool

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The end of a stream, and what comes after it.

// runningStreams counts the streams of all clients.
func runningStreams() int {
	streams.Lock()
	defer streams.Unlock()
	return len(streams.running)
}

// A stream that has ended takes no request. The pool goes on with another stream, which
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
				require.Equal(t, next.Conn, answer(t, sibling, "echo", 4).Conn, "it finds the stream that runs")
				require.Equal(t, 1, runningStreams())
			})
		})
	}
}

// Close comes between the check and the start of a stream in a Send. That Send must not start one:
// nobody would end it until it has been idle for idleTimeout.
func TestStreamPoolStartsNothingOnceClosed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := peer(func(int, *talk) {}).pool(nil).(*streamPool)
		require.NoError(t, p.Close())
		require.Nil(t, p.running(), "as for a Send that had looked before")
		require.Zero(t, runningStreams())
		require.ErrorIs(t, p.Send(Request{Args: []any{"echo", 1}, To: newLedger(t), Tag: 1}), ErrClosed)
	})
}
