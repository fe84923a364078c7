package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// floorLibrary shows about the least that Redlock on several nodes can cost a Go client. It writes
// SET NX PX and a compare-and-delete as RESP by hand, on one connection per node, and only counts the
// replies. It handles neither retries nor faults nor clock drift. It serves for comparison, not for
// locking.
type floorLibrary struct {
	wires  []*wire
	quorum int
	ttl    string // in ms
	sha    string // of compareAndDelete

	command string // in place of the script: delex or delifeq; or ""
	ops     sync.Pool
}

// compareAndDelete is the release script of redsync v4.
const compareAndDelete = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) else return 0 end`

func openFloor(addrs []string, ttl time.Duration) (library, error) {
	l := &floorLibrary{quorum: len(addrs)/2 + 1, ttl: strconv.FormatInt(ttl.Milliseconds(), 10)}
	l.ops.New = func() any { return &floorOp{done: make(chan bool, 1)} }
	for _, addr := range addrs {
		w, sha, err := dialWire(addr)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l.sha, l.wires = sha, append(l.wires, w)
	}
	return l, nil
}

func (l *floorLibrary) Close() error {
	var errs []error
	for _, w := range l.wires {
		errs = append(errs, w.close())
	}
	return errors.Join(errs...)
}

// floorLock is a lock that is held.
type floorLock struct {
	l     *floorLibrary
	name  string
	value [32]byte
}

var errFloorRefused = errors.New("no quorum")

// Lock tries once.
func (l *floorLibrary) Lock(ctx context.Context, name string) (held, error) {
	lock := &floorLock{l: l, name: name}
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	hex.Encode(lock.value[:], random[:])
	op := l.newOp()
	op.cmd = appendCommand(op.cmd[:0], "SET", name, string(lock.value[:]), "NX", "PX", l.ttl)
	ok, err := l.do(ctx, op)
	if err == nil && !ok {
		_, _ = lock.UnlockContext(ctx) // deletes the keys that a minority of nodes may have set
		err = errFloorRefused
	}
	return lock, err
}

func (f *floorLock) UnlockContext(ctx context.Context) (bool, error) {
	op := f.l.newOp()
	switch value := string(f.value[:]); f.l.command {
	case "delex":
		op.cmd = appendCommand(op.cmd[:0], "DELEX", f.name, "IFEQ", value)
	case "delifeq":
		op.cmd = appendCommand(op.cmd[:0], "DELIFEQ", f.name, value)
	default:
		op.cmd = appendCommand(op.cmd[:0], "EVALSHA", f.l.sha, "1", f.name, value)
	}
	return f.l.do(ctx, op)
}

// floorOp is one command on all nodes. It is reused when neither the caller nor any node needs it
// any more.
type floorOp struct {
	cmd            []byte
	yes, no, users atomic.Int32
	done           chan bool // receives the outcome once
}

func (l *floorLibrary) newOp() *floorOp {
	op := l.ops.Get().(*floorOp)
	op.yes.Store(0)
	op.no.Store(0)
	op.users.Store(int32(len(l.wires)) + 1)
	return op
}

// do sends op's command to all nodes and returns once a quorum agrees or no quorum can agree any more.
func (l *floorLibrary) do(ctx context.Context, op *floorOp) (bool, error) {
	for _, w := range l.wires {
		if !w.send(l, op) {
			l.answer(op, false)
		}
	}
	select {
	case ok := <-op.done:
		l.drop(op)
		return ok, nil
	case <-ctx.Done():
		return false, ctx.Err() // op is left to the garbage collector
	}
}

// answer is called for each answer of a node. It ends op as soon as a quorum has said yes, or can no longer do so.
func (l *floorLibrary) answer(op *floorOp, ok bool) {
	if ok && int(op.yes.Add(1)) == l.quorum {
		op.done <- true
	}
	if !ok && int(op.no.Add(1)) == len(l.wires)-l.quorum+1 {
		op.done <- false
	}
	l.drop(op)
}

func (l *floorLibrary) drop(op *floorOp) {
	if op.users.Add(-1) == 0 {
		l.ops.Put(op)
	}
}

// wire is the connection to one node. One goroutine writes the queued commands, another reads the
// replies.
type wire struct {
	conn *net.TCPConn
	wake chan struct{} // buffers one signal: out is not empty, or closed is set

	mu      sync.Mutex
	out     []byte    // queued commands
	waiting []pending // the commands that read has not taken yet, oldest first
	closed  bool      // nothing more is queued

	ended sync.WaitGroup
}

type pending struct {
	l  *floorLibrary
	op *floorOp
}

// dialWire connects, and loads the script.
func dialWire(addr string) (*wire, string, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil, "", err
	}
	w := &wire{conn: conn.(*net.TCPConn), wake: make(chan struct{}, 1)}
	r := bufio.NewReaderSize(conn, 1<<16)
	sha, err := w.load(r)
	if err != nil {
		return nil, "", errors.Join(err, conn.Close())
	}
	w.ended.Go(w.write)
	w.ended.Go(func() { w.read(r) })
	return w, sha, nil
}

func (w *wire) load(r *bufio.Reader) (string, error) {
	if _, err := w.conn.Write(appendCommand(nil, "SCRIPT", "LOAD", compareAndDelete)); err != nil {
		return "", err
	}
	line, err := readLine(r)
	if err != nil {
		return "", err
	}
	if string(line) != "$40" {
		return "", fmt.Errorf("SCRIPT LOAD: %s", line)
	}
	sha, err := readLine(r)
	return string(sha), err
}

// send queues op's command. It reports false if the connection has ended.
func (w *wire) send(l *floorLibrary, op *floorOp) bool {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return false
	}
	first := len(w.out) == 0
	w.out = append(w.out, op.cmd...)
	w.waiting = append(w.waiting, pending{l, op})
	w.mu.Unlock()
	if first {
		w.signal()
	}
	return true
}

func (w *wire) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// write sends all queued commands in one write, then those queued meanwhile, and so on.
func (w *wire) write() {
	var buf []byte
	for range w.wake {
		w.mu.Lock()
		buf, w.out = w.out, buf[:0]
		closed := w.closed
		w.mu.Unlock()
		if _, err := w.conn.Write(buf); err != nil {
			return // the reader ends too
		}
		if closed {
			_ = w.conn.CloseWrite() // the node answers what it has been sent, and then closes
			return
		}
	}
}

// read counts replies until the connection ends. Missing replies then count as negative answers.
func (w *wire) read(r *bufio.Reader) {
	var batch []pending
	next := 0
	for {
		line, err := readLine(r)
		if err != nil {
			break
		}
		if next == len(batch) {
			batch, next = w.take(batch), 0
		}
		p := batch[next]
		next++
		p.l.answer(p.op, len(line) > 1 && (line[0] == '+' || string(line) == ":1"))
	}
	w.mu.Lock()
	w.closed = true
	rest := w.waiting
	w.mu.Unlock()
	w.signal()
	for _, p := range append(batch[next:], rest...) {
		p.l.answer(p.op, false)
	}
}

// take returns w.waiting and empties it. Later commands are stored in the memory of spare.
func (w *wire) take(spare []pending) []pending {
	w.mu.Lock()
	defer w.mu.Unlock()
	batch := w.waiting
	w.waiting = spare[:0]
	return batch
}

// close sends what is queued, and waits until the node has read it: an unlock returns at a quorum.
func (w *wire) close() error {
	err := w.conn.SetDeadline(time.Now().Add(overtime))
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.signal()
	w.ended.Wait()
	return errors.Join(err, w.conn.Close())
}

// appendCommand appends a command as RESP.
func appendCommand(b []byte, args ...string) []byte {
	b = append(b, '*')
	b = strconv.AppendInt(b, int64(len(args)), 10)
	for _, arg := range args {
		b = append(b, "\r\n$"...)
		b = strconv.AppendInt(b, int64(len(arg)), 10)
		b = append(b, "\r\n"...)
		b = append(b, arg...)
	}
	return append(b, "\r\n"...)
}

// readLine returns a line without its end, valid until the next call.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 2 || line[len(line)-2] != '\r' {
		return nil, io.ErrUnexpectedEOF
	}
	return line[:len(line)-2], nil
}
