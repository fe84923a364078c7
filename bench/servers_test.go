package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

func startNodes(t *testing.T, n int) (addrs []string) {
	for _, s := range realredis.Start(t, n) {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

func TestEveryContenderLocksAndUnlocks(t *testing.T) {
	addrs := startNodes(t, nodes)
	look := dial(addrs)
	defer look.Close()
	for _, c := range everyContender() {
		t.Run(c.name, func(t *testing.T) {
			lib, err := c.start(t.Context(), addrs, patientExpiry)
			require.NoError(t, err)
			lock, err := lib.Lock(t.Context(), freshKey())
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				n, err := countKeys(t.Context(), look)
				return err == nil && (n > nodes/2 || c.single && n == 1)
			}, patientWait, time.Millisecond)
			require.NoError(t, unlock(t.Context(), lock))
			if c.name != failFast && c.name != onRueidis { // their Unlock may leave keys on a minority of nodes
				require.Eventually(t, func() bool {
					n, err := countKeys(t.Context(), look)
					return err == nil && n == countRegisters(t, look) // the registers of fenced locks remain
				}, patientWait, time.Millisecond)
			}
			require.NoError(t, lib.Close())
			require.NoError(t, flush(t.Context(), look))
		})
	}
}

// The floor closes when a node has read every command, also those that a connection did not take while the node did not read.
func TestFloorSendsWhatItOwesBeforeItCloses(t *testing.T) {
	const owed = 1 << 17
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	begin, read := make(chan struct{}), make(chan int, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.CopyN(io.Discard, conn, int64(len(appendCommand(nil, "SCRIPT", "LOAD", compareAndDelete))))
		_, _ = io.WriteString(conn, "$40\r\nsha\r\n")
		<-begin
		all, _ := io.ReadAll(conn)
		read <- bytes.Count(all, []byte("EVALSHA"))
	}()
	lib, err := openFloor([]string{listener.Addr().String()}, patientExpiry)
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range owed {
		_, err := (&floorLock{l: lib.(*floorLibrary), name: "name"}).UnlockContext(ended)
		require.ErrorIs(t, err, context.Canceled)
	}
	close(begin)
	require.NoError(t, lib.Close())
	require.Equal(t, owed, <-read)
}

func countRegisters(t *testing.T, look clients) (count int64) {
	for _, node := range look {
		keys, err := node.Keys(t.Context(), "*:fence").Result()
		require.NoError(t, err)
		count += int64(len(keys))
	}
	return count
}

// These times are long enough for a busy machine. Nodes must answer within a part of the expiry. Released
// keys must be gone within the grace, which is shorter than the expiry.
const (
	patientExpiry = 40 * time.Second
	patientGrace  = 5 * time.Second
	patientWait   = 30 * time.Second // shorter than the expiry
)
