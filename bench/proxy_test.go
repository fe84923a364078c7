package main

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo returns the address of a server that sends back what it gets.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// through returns a connection through a proxy.
func through(t *testing.T, addr string) net.Conn {
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	return c
}

func TestProxyDelaysDoNotAddUp(t *testing.T) {
	const delay, chunks = time.Second, 40
	p, err := startProxy(echo(t), delay)
	require.NoError(t, err)
	defer p.close()
	c := through(t, p.addr())
	start := time.Now()
	for range chunks {
		_, err = c.Write([]byte("x"))
		require.NoError(t, err)
		time.Sleep(time.Millisecond) // so that each byte is a chunk of its own
	}
	_, err = io.ReadFull(c, make([]byte, chunks))
	require.NoError(t, err)
	require.Less(t, time.Since(start), chunks*delay/2)
}

func TestRemoteIsAProcessThatChangesItsDelaysAndEnds(t *testing.T) {
	r, err := startRemote(t.Context(), []string{echo(t)}, []time.Duration{time.Millisecond})
	require.NoError(t, err)
	c := through(t, r.addrs[0])
	trip := func() time.Duration {
		start := time.Now()
		_, err := c.Write([]byte("x"))
		require.NoError(t, err)
		_, err = io.ReadFull(c, make([]byte, 1))
		require.NoError(t, err)
		return time.Since(start)
	}
	trip()
	const delay = 50 * time.Millisecond
	require.NoError(t, r.change([]time.Duration{delay}))
	for trip() < 2*delay { // until the change has arrived, or the deadline of c has passed
	}
	require.NoError(t, r.close())
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err)
}
