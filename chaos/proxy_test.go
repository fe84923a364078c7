package main

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync/internal/nonsense"
)

// generous is how long to wait for an event that comes at once unless the machine is busy.
const generous = 10 * time.Second

// wired returns both ends of a connection through a link.
func wired(t *testing.T) (l *link, client, node net.Conn) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	l, err = newLink(listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(l.close)
	client, err = dial(t.Context(), "tcp", l.addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	node, err = listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = node.Close() })
	return l, client, node
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(t, err)
}

// requireReads requires that c receives text next.
func requireReads(t *testing.T, c net.Conn, text string) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(generous)))
	got := make([]byte, len(text))
	_, err := io.ReadFull(c, got)
	require.NoError(t, err)
	assert.Equal(t, text, string(got))
}

// requireSilent requires that c receives nothing for a moment.
func requireSilent(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*ms)))
	n, err := c.Read(make([]byte, 1))
	assert.Zero(t, n)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// requireEnded requires that c receives nothing more and ends.
func requireEnded(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(generous)))
	n, err := c.Read(make([]byte, 1))
	assert.Zero(t, n)
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestLinkPassesBothDirections(t *testing.T) {
	_, client, node := wired(t)
	send(t, client, "request")
	requireReads(t, node, "request")
	send(t, node, "reply")
	requireReads(t, client, "reply")
	_ = client.Close()
	requireEnded(t, node)
}

func TestLinkCutHoldsOneDirectionBack(t *testing.T) {
	l, client, node := wired(t)
	heal := l.cut(toNode)
	send(t, client, "one ")
	send(t, client, "two")
	requireSilent(t, node)
	send(t, node, "reply")
	requireReads(t, client, "reply")
	heal()
	requireReads(t, node, "one two")
}

func TestLinkCutTwiceIsHealedTwice(t *testing.T) {
	l, client, node := wired(t)
	first, second := l.cut(toNode), l.cut(toNode)
	send(t, client, "x")
	first()
	requireSilent(t, node)
	second()
	requireReads(t, node, "x")
}

// TestLinkSlowDelaysAndKeepsTheOrder runs in virtual time, so that synctest.Wait can wait
// until the link has read the data.
func TestLinkSlowDelaysAndKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, near := net.Pipe()
		far, node := net.Pipe()
		l := &link{changed: make(chan struct{}), wires: map[*wire]bool{}}
		w := &wire{client: near, node: far, ended: make(chan struct{})}
		l.done.Go(func() { l.relay(w, toNode) })
		heal := l.slow(toNode, time.Second)
		start := time.Now()
		send(t, client, "slow ")
		synctest.Wait() // until the link has read the data
		heal()
		send(t, client, "fast")
		requireReads(t, node, "slow fast")
		assert.Equal(t, time.Second, time.Since(start))
		_ = client.Close()
		requireEnded(t, node)
		l.done.Wait()
	})
}

func TestLinkLosesRepliesAndThenBreaks(t *testing.T) {
	l, client, node := wired(t)
	heal := l.lose()
	send(t, client, "request")
	requireReads(t, node, "request")
	send(t, node, "lost")
	requireSilent(t, client)
	heal()
	_, _ = io.WriteString(node, "late") // must not arrive in place of the lost reply
	requireEnded(t, client)
}

func TestLinkResetBreaksBothEnds(t *testing.T) {
	l, client, node := wired(t)
	send(t, client, "x")
	requireReads(t, node, "x")
	l.reset()
	requireEnded(t, client)
	requireEnded(t, node)
}

func TestLinkForgetSilencesTheConnectionsThatThereAre(t *testing.T) {
	l, client, node := wired(t)
	l.forget()
	send(t, client, "request")
	send(t, node, "reply")
	requireSilent(t, node)
	requireSilent(t, client)
	l.reset()
	requireSilent(t, client)
	_ = client.Close()
	requireSilent(t, node)
}

func TestLinkPassesWhatANewConnectionSendsAfterForget(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	l, err := newLink(listener.Addr().String())
	require.NoError(t, err)
	defer l.close()
	l.forget()
	client, err := dial(t.Context(), "tcp", l.addr())
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	node, err := listener.Accept()
	require.NoError(t, err)
	defer func() { _ = node.Close() }()
	send(t, client, "request")
	requireReads(t, node, "request")
}

func TestLinkTurnedOffLetsDialsHang(t *testing.T) {
	l, client, node := wired(t)
	_, heal := l.turnOff(), l.turnOff()
	send(t, client, "request")
	requireSilent(t, node)
	hangs := func() {
		ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
		defer cancel()
		_, err := dial(ctx, "tcp", l.addr())
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	hangs()
	heal()
	again, err := dial(t.Context(), "tcp", l.addr())
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

func TestLinkFailsDials(t *testing.T) {
	for name, fail := range map[string]bool{"they fail": true, "they hang": false} {
		t.Run(name, func(t *testing.T) {
			l, client, _ := wired(t)
			heal := l.failDials(fail)
			_, err := client.Read(make([]byte, 1))
			require.Error(t, err, "the open connection must break")
			ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
			defer cancel()
			_, err = dial(ctx, "tcp", l.addr())
			require.Error(t, err)
			if !fail {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			heal()
			again, err := dial(t.Context(), "tcp", l.addr())
			require.NoError(t, err)
			require.NoError(t, again.Close())
		})
	}
}

func TestLinkTellsNonsenseOnce(t *testing.T) {
	for seed := range uint64(20) {
		want := nonsense.Draw(rand.New(rand.NewPCG(seed, 4)))
		t.Run(want.String(), func(t *testing.T) {
			l, client, node := wired(t)
			heal := l.babble(seed)
			send(t, node, "reply")
			if want.After {
				requireReads(t, client, "reply")
			}
			requireReads(t, client, want.Bytes)
			if want.Then == nonsense.Close {
				requireEnded(t, client)
				return
			}
			send(t, node, "more")
			if want.Then == nonsense.Hang || want.Whole {
				requireSilent(t, client)
				heal()
				requireEnded(t, client)
				return
			}
			requireReads(t, client, "more")
			heal()
		})
	}
}
