//go:build unix

package main

import (
	"io"
	"sync"
	"time"
)

// maxLines is how many lines for people wait while nobody reads stderr. Those that come then are dropped.
const maxLines = 1024

// A lineWriter writes to a file that may be full, such as a pipe that nobody reads, and lets nobody wait for it: the front
// has to pass on signals, and to kill COMMAND in time.
type lineWriter struct {
	lines   chan []byte
	written chan chan struct{} // what comes here is closed once all lines before it are written
}

func newLineWriter(to io.Writer) *lineWriter {
	w := &lineWriter{make(chan []byte, maxLines), make(chan chan struct{})}
	go func() {
		for {
			select {
			case text := <-w.lines:
				_, _ = to.Write(text)
			case done := <-w.written:
				for len(w.lines) > 0 {
					_, _ = to.Write(<-w.lines)
				}
				close(done)
			}
		}
	}()
	return w
}

// Write takes over a line. It never waits.
func (w *lineWriter) Write(text []byte) (int, error) {
	select {
	case w.lines <- append([]byte(nil), text...):
	default:
	}
	return len(text), nil
}

// flush waits until all lines are written, for the given time at most. It reports whether they are.
func (w *lineWriter) flush(atMost time.Duration) bool {
	given := time.NewTimer(atMost)
	defer given.Stop()
	done := make(chan struct{})
	select {
	case w.written <- done:
	case <-given.C:
		return false
	}
	select {
	case <-done:
		return true
	case <-given.C:
		return false
	}
}

// keptLines says lines, or keeps them until it is known whether they are wanted.
type keptLines struct {
	say func(string)

	mu    sync.Mutex // guards what follows
	keeps bool
	lines []string // maxLines at most
}

// keep keeps the lines from now on.
func (k *keptLines) keep() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keeps = true
}

func (k *keptLines) put(text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case !k.keeps:
		k.say(text)
	case len(k.lines) < maxLines:
		k.lines = append(k.lines, text)
	}
}

// flush says the lines that were kept, and keeps no more.
func (k *keptLines) flush() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, text := range k.lines {
		k.say(text)
	}
	k.keeps, k.lines = false, nil
}
