package wiretest_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// greeted opens a connection with dial, and greets the node. Where the node has users, AUTH follows here.
func greeted(dial func(ctx context.Context, network, address string) (net.Conn, error), address string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		if deadline, bounded := ctx.Deadline(); bounded {
			_ = conn.SetDeadline(deadline)
		}
		hello, _ := wire.AppendCommand(nil, []any{"hello", 2})
		if _, err = conn.Write(hello); err == nil {
			_, err = readReply(bufio.NewReader(conn), 0)
		}
		if err != nil {
			_ = conn.Close()
			return nil, err
		}
		return conn, conn.SetDeadline(time.Time{})
	}
}

// A Refusal is an error that the node answered with. Its method RedisError makes it a redis.Error of go-redis, by which
// a Redsync knows it.
type Refusal string

func (r Refusal) Error() string { return string(r) }
func (Refusal) RedisError()     {}

var errMalformed = errors.New("the node has sent what is no reply")

// readReply reads a reply of RESP 2. It believes no length that the node could not mean.
func readReply(in *bufio.Reader, depth int) (any, error) {
	line, err := in.ReadSlice('\n') // at most the buffer of in
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || depth > 32 {
		return nil, errMalformed
	}
	kind, text := line[0], string(line[1:len(line)-2])
	switch kind {
	case '+':
		return text, nil
	case '-':
		return nil, Refusal(text)
	case ':':
		return strconv.ParseInt(text, 10, 64)
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || n < -1 || n > 16<<20 || kind != '$' && kind != '*':
		return nil, errMalformed
	case n == -1:
		return nil, nil
	case kind == '$':
		bulk := make([]byte, n+2)
		_, err = io.ReadFull(in, bulk)
		return string(bulk[:n]), err
	}
	var array []any
	for range n {
		element, err := readReply(in, depth+1)
		var refused Refusal
		if errors.As(err, &refused) {
			element, err = refused, nil
		}
		if err != nil {
			return nil, err
		}
		array = append(array, element)
	}
	return array, nil
}
