//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"sync"
	"syscall"
)

// An inbox has the reports of the holder. Unlike a channel it can tell that there is none: what the holder has sent is taken
// before COMMAND is killed, however late this process is.
type inbox struct {
	raw  syscall.RawConn
	news chan struct{} // has something if there is something to take

	mu    sync.Mutex // guards what follows
	text  []byte     // what was read, and not taken
	ended bool       // the holder has ended
}

// newInbox returns the inbox for what l receives.
func newInbox(l *link) (*inbox, error) {
	raw, err := l.conn.(syscall.Conn).SyscallConn() //nolint:forcetypeassert // of package net
	if err != nil {
		return nil, err
	}
	b := &inbox{raw: raw, news: make(chan struct{}, 1)}
	go func() {
		err := raw.Read(func(fd uintptr) bool {
			ended := b.read(fd)
			select {
			case b.news <- struct{}{}:
			default:
			}
			return ended
		})
		if err != nil { // cannot be: the link stays open
			close(b.news)
		}
	}()
	return b, nil
}

// read reads what has come, and reports whether the holder has ended.
func (b *inbox) read(fd uintptr) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	buffer := make([]byte, 4096)
	for !b.ended {
		n, err := syscall.Read(int(fd), buffer)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return false
		case n <= 0:
			b.ended = true
		default:
			b.text = append(b.text, buffer[:n]...)
		}
	}
	return true
}

// take returns all that the holder has sent, also in this moment. Without ok nothing follows, because it has ended.
func (b *inbox) take() (reports []report, ok bool) {
	ended := true
	_ = b.raw.Control(func(fd uintptr) { ended = b.read(fd) })
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		line, rest, whole := bytes.Cut(b.text, []byte("\n"))
		if !whole {
			return reports, !ended
		}
		b.text = rest
		var r report
		if json.Unmarshal(line, &r) != nil { // cannot be
			return reports, false
		}
		reports = append(reports, r)
	}
}
