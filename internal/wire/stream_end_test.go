package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// These tests cover the end of a stream, and the stream that follows it.

// runningStreams counts the streams of all clients.
func runningStreams() int {
	streams.Lock()
	defer streams.Unlock()
	return len(streams.running)
}

// Close runs after a Send has found the pool open, and before that Send starts a stream. The Send must
// not start a stream, because the stream would stay until it has been idle for idleTimeout.
func TestStreamPoolStartsNothingOnceClosed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		p := peer(func(int, *talk) {}).pool().(*streamPool)
		require.NoError(t, p.Close())
		_, err := p.running()
		require.ErrorIs(t, err, ErrClosed, "a Send that found the pool open before Close must start no stream")
		require.Zero(t, runningStreams())
		require.ErrorIs(t, p.Send(Request{Args: []any{"echo", 1}, To: newLedger(t), Tag: 1}), ErrClosed)
	})
}
