//go:build linux

package realredis

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// A frozen server answers nothing any more. Here it is busy when it is frozen.
func TestFreezeReturnsOnceTheServerHasStopped(t *testing.T) {
	s := Start(t, 1)[0]
	for range testlength.InGate(1, 2, 10, 10) {
		done := make(chan error, 1)
		go func() {
			_, err := s.Do("eval", "for i = 1, 100000 do redis.sha1hex(i) end return 1", 0)
			done <- err
		}()
		for stateOf(s.cmd.Process) != "R" && len(done) == 0 {
			continue
		}
		s.Freeze()
		require.Equal(t, "T", stateOf(s.cmd.Process))
		s.Thaw()
		require.NoError(t, <-done)
	}
}
