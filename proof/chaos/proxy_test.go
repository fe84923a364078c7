package main

import (
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// An end is one end of a connection through a link.
type end struct {
	net.Conn
	*testing.T
}

// wired returns both ends of a connection through a link. dial opens another connection, within 50 ms.
func wired(t *testing.T) (l *link, client, node end, again func() error) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	l, err = newLink(listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(l.close)
	c, err := dial(t.Context(), "tcp", l.addr())
	require.NoError(t, err)
	n, err := listener.Accept()
	require.NoError(t, err)
	for _, conn := range []net.Conn{c, n} {
		t.Cleanup(func() { conn.Close() })
	}
	return l, end{c, t}, end{n, t}, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
		defer cancel()
		c, err := dial(ctx, "tcp", l.addr())
		if err == nil {
			c.Close()
		}
		return err
	}
}

func (e end) send(text string) {
	_, err := io.WriteString(e, text)
	require.NoError(e, err)
}

// gets requires that e receives text next. It waits for long, because the machine may be busy.
func (e end) gets(text string) {
	require.NoError(e, e.SetReadDeadline(time.Now().Add(10*time.Second)))
	got := make([]byte, len(text))
	_, err := io.ReadFull(e, got)
	require.NoError(e, err)
	assert.Equal(e, text, string(got))
}

// getsNothing requires that e receives nothing for a moment.
func (e end) getsNothing() {
	require.NoError(e, e.SetReadDeadline(time.Now().Add(50*ms)))
	_, err := e.Read(make([]byte, 1))
	require.ErrorIs(e, err, os.ErrDeadlineExceeded)
}

// hasEnded requires that e receives nothing more and ends.
func (e end) hasEnded() {
	require.NoError(e, e.SetReadDeadline(time.Now().Add(10*time.Second)))
	n, err := e.Read(make([]byte, 1))
	assert.Zero(e, n)
	require.Error(e, err)
	require.NotErrorIs(e, err, os.ErrDeadlineExceeded)
}

func TestLink(t *testing.T) {
	for name, play := range map[string]func(l *link, client, node end, again func() error){
		"passes both directions": func(_ *link, client, node end, _ func() error) {
			client.send("request")
			node.gets("request")
			node.send("reply")
			client.gets("reply")
			client.Close()
			node.hasEnded()
		},
		"is cut in one direction, twice": func(l *link, client, node end, _ func() error) {
			first, second := l.cut(toNode), l.cut(toNode)
			client.send("one ")
			client.send("two")
			first()
			node.getsNothing()
			node.send("reply")
			client.gets("reply")
			second()
			node.gets("one two")
		},
		"loses replies, and then breaks": func(l *link, client, node end, _ func() error) {
			heal := l.lose()
			client.send("request")
			node.gets("request")
			node.send("lost")
			client.getsNothing()
			heal()
			io.WriteString(node, "late") // must not arrive in place of the lost reply
			client.hasEnded()
		},
		"breaks both ends": func(l *link, client, node end, _ func() error) {
			client.send("x")
			node.gets("x")
			l.reset()
			client.hasEnded()
			node.hasEnded()
		},
		"silences the connections that there are": func(l *link, client, node end, again func() error) {
			l.forget()
			client.send("request")
			node.send("reply")
			node.getsNothing()
			l.reset()
			client.getsNothing()
			client.Close()
			node.getsNothing()
			assert.NoError(t, again())
		},
		"lets dials hang": func(l *link, client, node end, again func() error) {
			_, heal := l.turnOff(), l.turnOff()
			client.send("request")
			node.getsNothing()
			require.ErrorIs(t, again(), context.DeadlineExceeded)
			heal()
			assert.NoError(t, again())
		},
		"breaks, and lets dials fail": func(l *link, client, _ end, again func() error) {
			heal := l.failDials(true)
			client.hasEnded()
			err := again()
			require.Error(t, err)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			heal()
			assert.NoError(t, again())
		},
	} {
		t.Run(name, func(t *testing.T) { play(wired(t)) })
	}
}
