package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A proxyOrder tells a child process which proxies to run.
type proxyOrder struct {
	Targets []string
	Delays  []time.Duration // per direction, by target
}

// proxyThreads is how many goroutines may sleep in the kernel at the same time, each in its own thread.
// The kernel's timers are more exact than those of Go.
const proxyThreads = 256

// proxyChild runs the proxies in the child process. It reads new delays, by target, from in as JSON. It returns when
// the parent closes in, or when ctx is done.
func proxyChild(ctx context.Context, order proxyOrder, in io.Reader, out io.Writer) (err error) {
	runtime.GOMAXPROCS(proxyThreads)
	var proxies []*proxy
	var addrs []string
	for i, target := range order.Targets {
		p, err := startProxy(target, order.Delays[i])
		if err != nil {
			return err
		}
		defer p.close()
		proxies, addrs = append(proxies, p), append(addrs, p.addr())
	}
	if err := json.NewEncoder(out).Encode(addrs); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		delays, changes := make([]time.Duration, len(proxies)), json.NewDecoder(in)
		for changes.Decode(&delays) == nil {
			for i, p := range proxies {
				p.delay.Store(int64(delays[i]))
			}
		}
	}()
	select {
	case <-ctx.Done():
	case <-ended:
	}
	return nil
}

// A proxy passes on the bytes of each connection, in order, from the client to a target and back. It
// sends each chunk a fixed delay after the chunk's arrival. Its buffers have no limit, so that a full
// buffer never adds to the delay.
type proxy struct {
	listener net.Listener
	target   string
	delay    atomic.Int64 // a time.Duration, which must not become shorter: chunks keep their order

	mu    sync.Mutex
	conns []net.Conn // to clients and to the target; close closes them
}

func startProxy(target string, delay time.Duration) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target}
	p.delay.Store(int64(delay))
	go p.accept()
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		node, err := net.DialTimeout("tcp", p.target, time.Second)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, node)
		p.mu.Unlock()
		go p.relay(node, client)
		go p.relay(client, node)
	}
}

// close ends the proxy and its connections.
func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
}

// A chunk is the data of one read. A chunk without bytes marks the end of the connection.
type chunk struct {
	due   time.Time
	bytes []byte
}

// relay passes on to dst each chunk that it reads from src, delayed. When src has ended, and all chunks are
// written, relay closes dst.
func (p *proxy) relay(dst, src net.Conn) {
	q := newChunkQueue()
	go func() {
		for {
			c := q.pop()
			sleepUntil(c.due)
			if len(c.bytes) == 0 {
				_ = dst.Close()
				return
			}
			if _, err := dst.Write(c.bytes); err != nil {
				_ = src.Close() // makes src.Read fail; then the last chunk ends this goroutine
			}
		}
	}()
	buf := make([]byte, 1<<16)
	for {
		n, err := src.Read(buf)
		due := time.Now().Add(time.Duration(p.delay.Load()))
		if n > 0 {
			q.push(chunk{due, append([]byte(nil), buf[:n]...)})
		}
		if err != nil {
			q.push(chunk{due: due})
			return
		}
	}
}

// chunkQueue is a queue without a limit.
type chunkQueue struct {
	mu    sync.Mutex
	some  *sync.Cond
	items []chunk
}

func newChunkQueue() *chunkQueue {
	q := &chunkQueue{}
	q.some = sync.NewCond(&q.mu)
	return q
}

func (q *chunkQueue) push(c chunk) {
	q.mu.Lock()
	q.items = append(q.items, c)
	q.mu.Unlock()
	q.some.Signal()
}

func (q *chunkQueue) pop() chunk {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 {
		q.some.Wait()
	}
	c := q.items[0]
	q.items = q.items[1:]
	return c
}

// sleepUntil returns at t, or at once if t has passed.
func sleepUntil(t time.Time) {
	const coarse = 2 * time.Millisecond // a timer of Go may be late by this much
	if rest := time.Until(t); rest > 2*coarse {
		time.Sleep(rest - coarse)
	}
	if rest := time.Until(t); rest > 0 {
		sleepExactly(rest)
	}
}

// A remote is a child process with a proxy for each node.
type remote struct {
	child *child
	addrs []string
}

// startRemote starts proxies with these delays, per direction, between client and nodes.
func startRemote(ctx context.Context, addrs []string, delays []time.Duration) (*remote, error) {
	c, err := startChild(ctx, "proxy", proxyOrder{Targets: addrs, Delays: delays})
	if err != nil {
		return nil, err
	}
	r := &remote{child: c}
	if err := c.receive(&r.addrs); err != nil {
		return nil, errors.Join(err, c.end())
	}
	return r, nil
}

// change sets new delays, per direction, for what arrives from now on. None may be shorter than before.
func (r *remote) change(delays []time.Duration) error {
	return json.NewEncoder(r.child.in).Encode(delays)
}

func (r *remote) close() error { return r.child.end() }
