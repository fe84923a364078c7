package rueidispool

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// A recorder is a server on a loopback port that speaks RESP 2, with and without TLS. It writes down what its clients
// send, and what the test tells it. As a Sentinel it names master, itself unless the test changes that.
type recorder struct {
	master   string
	listener net.Listener
	config   *tls.Config

	mu      sync.Mutex // guards what follows
	seen    []string
	refuses string // a command
}

func startRecorder(t *testing.T) *recorder {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &recorder{master: listener.Addr().String(), listener: listener, config: realredis.NewCertificates(t, t.TempDir()).Server}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer func() { _ = conn.Close() }()
				r.serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait() // for the clients, which the test has closed
	})
	return r
}

func (r *recorder) addr() string { return r.listener.Addr().String() }

func (r *recorder) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, fmt.Sprintf(format, args...))
}

// refuse makes the server answer a command with an error.
func (r *recorder) refuse(command string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuses = command
}

func (r *recorder) serve(conn net.Conn) {
	in := bufio.NewReader(conn)
	first, err := in.Peek(1)
	if err != nil {
		return
	}
	out := io.Writer(conn)
	if first[0] == 0x16 { // a TLS handshake
		r.note("TLS")
		secure := tls.Server(buffered{conn, in}, r.config)
		in, out = bufio.NewReader(secure), secure
	}
	for {
		args, err := readCommand(in)
		if err != nil {
			return
		}
		if args[0] != "script" { // whose text is of no interest
			r.note("%s", strings.Join(args, " "))
		}
		if _, err := io.WriteString(out, r.answer(args)); err != nil {
			return
		}
	}
}

// buffered is a connection of which something has been read already.
type buffered struct {
	net.Conn
	in *bufio.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.in.Read(p) }

func (r *recorder) answer(args []string) string {
	r.mu.Lock()
	refuses := r.refuses
	r.mu.Unlock()
	switch args[0] {
	case refuses:
		return "-ERR unknown command\r\n"
	case "hello":
		return "*2\r\n$5\r\nproto\r\n:2\r\n"
	case "sentinel":
		host, port, _ := net.SplitHostPort(r.master)
		return fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
	case "script":
		return "$40\r\n" + strings.Repeat("0", 40) + "\r\n" // a SHA1
	case "info":
		return "-ERR no information\r\n"
	}
	return "+OK\r\n"
}

// readCommand reads an array of bulk strings. The name of the command is in lower case.
func readCommand(in *bufio.Reader) ([]string, error) {
	n, err := readLength(in, '*')
	if err != nil || n < 1 {
		return nil, io.ErrUnexpectedEOF
	}
	args := make([]string, n)
	for i := range args {
		size, err := readLength(in, '$')
		if err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(in, text); err != nil {
			return nil, err
		}
		args[i] = string(text[:size])
	}
	args[0] = strings.ToLower(args[0])
	return args, nil
}

func readLength(in *bufio.Reader, kind byte) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil || line[0] != kind {
		return 0, io.ErrUnexpectedEOF
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
