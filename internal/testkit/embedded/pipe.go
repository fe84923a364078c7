package embedded

import (
	"bytes"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/testkit/badreply"
)

// pipe returns the two ends of a connection that behaves like TCP where net.Pipe does not. Writes
// are buffered and never wait for the reader. Data written before a Close can still be read,
// followed by io.EOF. A write to a closed end returns syscall.EPIPE. Setting a deadline never
// fails. Data can be read after its delay; a nil delay means at once.
func pipe(delay Delay) (client, srv *end) {
	up, down := newHalf(), newHalf()
	if delay != nil {
		up.delay = func() time.Duration { return delay(true) }
		down.delay = func() time.Duration { return delay(false) }
	}
	client, srv = &end{in: down, out: up}, &end{in: up, out: down}
	client.other = srv
	return client, srv
}

// end is one end of a pipe.
type end struct {
	in, out *half
	other   *end // the node's end; set on the client's end only
	onClose func()
	once    sync.Once
}

func (e *end) Read(p []byte) (int, error)  { return e.in.read(p) }
func (e *end) Write(p []byte) (int, error) { return e.out.write(p) }

// Close closes both directions. Data on its way to this end is lost; data on its way to the other
// end arrives.
func (e *end) Close() error {
	e.in.cut()
	e.in.close()
	e.out.finish()
	e.out.leave()
	e.once.Do(func() {
		if e.onClose != nil {
			e.onClose()
		}
	})
	return nil
}

func (e *end) LocalAddr() net.Addr  { return address{} }
func (e *end) RemoteAddr() net.Addr { return address{} }

// SetDeadline sets the read deadline; writes never wait.
func (e *end) SetDeadline(t time.Time) error { return e.SetReadDeadline(t) }

func (e *end) SetReadDeadline(t time.Time) error {
	e.in.setDeadline(t)
	return nil
}

func (e *end) SetWriteDeadline(time.Time) error { return nil }

type address struct{}

func (address) Network() string { return "embedded" }
func (address) String() string  { return "embedded" }

// half is one direction of a pipe.
type half struct {
	mu       sync.Mutex
	changed  *sync.Cond
	delay    func() time.Duration // nil: none
	data     []byte               // arrived, not yet read
	coming   []parcel             // not yet arrived, in order
	closed   bool
	lost     bool // nothing arrives any more, not even the close
	left     bool // lost, and the writing end is closed
	deadline time.Time
	timer    *time.Timer
}

// A parcel is data on its way.
type parcel struct {
	data []byte
	due  time.Time
}

func newHalf() *half {
	h := &half{}
	h.changed = sync.NewCond(&h.mu)
	return h
}

func (h *half) read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		h.arriveLocked()
		switch {
		case len(h.data) > 0:
			n := copy(p, h.data)
			if h.data = h.data[n:]; len(h.data) == 0 {
				h.data = nil // so that the pipe keeps no memory
			}
			return n, nil
		case h.closed && len(h.coming) == 0:
			return 0, io.EOF
		case !h.deadline.IsZero() && !time.Now().Before(h.deadline):
			return 0, os.ErrDeadlineExceeded
		}
		h.changed.Wait()
	}
}

func (h *half) write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.left, h.closed && !h.lost:
		return 0, syscall.EPIPE
	case h.lost:
		return len(p), nil
	}
	if h.delay == nil {
		h.data = append(h.data, p...)
		h.changed.Broadcast()
		return len(p), nil
	}
	h.sendLocked(slices.Clone(p))
	return len(p), nil
}

// sendLocked sends data after the data that is already on its way.
func (h *half) sendLocked(data []byte) {
	due := time.Now().Add(h.delay())
	if n := len(h.coming); n > 0 && h.coming[n-1].due.After(due) {
		due = h.coming[n-1].due
	}
	h.coming = append(h.coming, parcel{data, due})
	time.AfterFunc(time.Until(due), h.changed.Broadcast)
}

// arriveLocked moves due data from coming to data.
func (h *half) arriveLocked() {
	for len(h.coming) > 0 && !h.coming[0].due.After(time.Now()) {
		h.data = append(h.data, h.coming[0].data...)
		h.coming = h.coming[1:]
	}
}

// finish sends an empty parcel. The other end sees the close only when that parcel has arrived.
func (h *half) finish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.delay != nil && !h.closed && !h.lost {
		h.sendLocked(nil)
	}
}

// cut loses the data that has not arrived.
func (h *half) cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.coming = nil
}

// lose loses the data that has not arrived, and all data written from now on.
func (h *half) lose() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost, h.coming = true, nil
}

// leave is called when the writing end is closed. It closes the half, so that the reading end gets io.EOF
// after the last data. After lose it does not close the half: the reading end is not told, and later
// writes fail.
func (h *half) leave() {
	h.mu.Lock()
	left := h.lost
	h.left = left
	h.mu.Unlock()
	if !left {
		h.close()
	}
}

// drop loses the data that has not been read.
func (h *half) drop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.data, h.coming = nil, nil
}

func (h *half) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.timer != nil {
		h.timer.Stop()
	}
	h.changed.Broadcast()
}

func (h *half) setDeadline(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deadline = t
	if h.timer != nil {
		h.timer.Stop()
	}
	if !t.IsZero() && !h.closed {
		h.timer = time.AfterFunc(time.Until(t), h.changed.Broadcast)
	}
	h.changed.Broadcast()
}

// speaker is the node's end of a connection. It implements LoseMessages and Babble.
type speaker struct {
	*end
	node *Node
	hung atomic.Bool // set after badreply.Hang: the node sends nothing any more
}

func (s *speaker) Write(p []byte) (int, error) {
	if s.hung.Load() {
		return len(p), nil
	}
	said, then := s.node.twisted(s.node.without(p))
	if _, err := s.end.Write(said); err != nil {
		return 0, err
	}
	switch then {
	case badreply.Hang:
		s.hung.Store(true)
		s.node.hangs(s)
	case badreply.Close:
		_ = s.Close()
	}
	return len(p), nil
}

// messageHead is the beginning of a message to a subscriber, after * or >.
var messageHead = []byte("3\r\n$7\r\nmessage\r\n")

// without returns p without the messages that are to be lost.
func (n *Node) without(p []byte) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.losing > 0 {
		start := bytes.Index(p, messageHead) - 1
		if start < 0 {
			break
		}
		rest := p[start+1+len(messageHead):]
		for range 2 { // channel and payload
			head, tail, _ := bytes.Cut(rest, []byte("\r\n"))
			size, err := strconv.Atoi(string(bytes.TrimPrefix(head, []byte("$"))))
			if err != nil || len(tail) < size+2 {
				return p // the message is incomplete
			}
			rest = tail[size+2:]
		}
		n.losing--
		p = slices.Concat(p[:start], rest)
	}
	return p
}
