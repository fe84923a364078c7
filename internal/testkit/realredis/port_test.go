package realredis

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// A server that a test restarts finds its port as it was, although other test programs look for ports meanwhile.
func TestNoOtherProcessTakesAPort(t *testing.T) {
	addr, err := FreeAddr()
	require.NoError(t, err)
	_, text, _ := net.SplitHostPort(addr)
	port, _ := strconv.Atoi(text)
	if given.ports[port] == nil {
		t.Skip("this system has no second loopback address")
	}
	reserved := given.ports[port]
	delete(given.ports, port) // as another process sees it
	require.ErrorIs(t, take(port), errTaken)
	require.NoError(t, reserved.Close())
	require.NoError(t, take(port))
}
