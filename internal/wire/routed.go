package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file implements the pool of a client of many nodes. The client tells which node has a key, and a stream to that
// node carries the request: a frozen node delays no other.

// routeTimeout is how long the pool waits for the client to load the state of its cluster.
const routeTimeout = 5 * time.Second

// maxRedirects bounds how many redirections one request follows, even if the client allows more.
const maxRedirects = 16

// A router returns the client of the node that has a key.
type router func(ctx context.Context, key string) (*redis.Client, error)

// A routedPool promises no order of execution.
//
// A Cluster's node without the slot executes nothing. It names the node that has the slot (MOVED) or will have it
// (ASK), and the pool sends the request there.
type routedPool struct {
	clientPool
	route     router
	cluster   *redis.ClusterClient // nil for a Ring
	redirects int
	owing     owing

	// ready means that route does no I/O: a ClusterClient first loads the state of the cluster.
	ready atomic.Bool

	// delivering holds a token while a reply of any node is delivered.
	delivering chan struct{}

	mu      sync.Mutex             // guards what follows
	nodes   map[string]*streamPool // by address
	queue   []*routed              // until the client is ready
	running bool                   // a goroutine is in run
	loading time.Time              // when it began to load the state of the cluster
	closed  bool
}

func newRoutedPool(cfg Config, client redis.UniversalClient) *routedPool {
	p := &routedPool{
		clientPool: clientPool{Config: cfg, owner: client},
		delivering: make(chan struct{}, 1), nodes: make(map[string]*streamPool),
	}
	p.dial = p.dialChannel
	switch client := client.(type) {
	case *redis.ClusterClient:
		p.route, p.cluster = client.MasterForKey, client
		p.redirects = min(max(client.Options().MaxRedirects, 0), maxRedirects)
	case *redis.Ring:
		p.route = func(_ context.Context, key string) (*redis.Client, error) {
			return client.GetShardClientForKey(key)
		}
		p.ready.Store(true)
	}
	p.owing.client, p.owing.route = client, p.routed
	return p
}

func (p *routedPool) routed(ctx context.Context, key string) (client *redis.Client, err error) {
	defer recovered(&err)
	return p.route(ctx, key)
}

func (p *routedPool) CloseIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, node := range p.nodes {
		node.CloseIdle()
	}
}

func (p *routedPool) Close() error {
	p.subs.close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.CloseIdle()
	return nil
}

func (p *routedPool) dialChannel(ctx context.Context, channel, at string) (_ wire, err error) {
	defer recovered(&err)
	node, err := p.route(ctx, channel)
	if err != nil {
		return nil, err
	}
	w, err := dialWire(ctx, node, channel, at)
	if err != nil {
		reload(p.owner) //nolint:contextcheck // it goes on after this dial
		return nil, err
	}
	w.follow(ctx, p.routed, node)
	return w, nil
}

// Together compares hash tags on a Ring: other keys lie together only until it loses or gains a shard.
func (p *routedPool) Together(a, b string) bool {
	if p.cluster == nil {
		return hashed(a) == hashed(b)
	}
	return slot(a) == slot(b)
}

// hashed returns the part of a key that decides where it lies: its hash tag, or else the whole key. See
// https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags.
func hashed(key string) string {
	_, after, open := strings.Cut(key, "{")
	if tag, _, closed := strings.Cut(after, "}"); open && closed && tag != "" {
		return tag
	}
	return key
}

// slot returns the slot of a key in a Redis Cluster: CRC-16/XMODEM of what is hashed, modulo 16384.
func slot(key string) uint16 {
	var crc uint16
	for _, b := range []byte(hashed(key)) {
		crc ^= uint16(b) << 8
		for range 8 {
			high := crc&0x8000 != 0
			crc <<= 1
			if high {
				crc ^= 0x1021
			}
		}
	}
	return crc % 16384
}

func (p *routedPool) Sibling() Pool { return newRoutedPool(p.Config, p.owner) }

func (p *routedPool) MetBefore() bool { return true }

func (p *routedPool) Send(req Request) error {
	if err := p.usable(&req); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	r := &routed{pool: p, req: req}
	r.owed.to, r.owed.key = r, keyOf(req.Args)
	if p.ready.Load() && !p.running {
		if node, err := p.nodeOfLocked(r.owed.key); err == nil {
			return r.sendLocked(node, node.client, false)
		}
	}
	if isClosed(p.owner) {
		return ErrClientClosed
	}
	if err := admit(len(p.queue), p.Outstanding, req.Reserved); err != nil {
		return err
	}
	if _, err := AppendCommand(nil, req.Args); err != nil {
		return err
	}
	r.req.RESP = nil
	p.queue = append(p.queue, r)
	if !p.running {
		p.running, p.loading = true, time.Now()
		go p.run()
	}
	return nil
}

// run sends the queued requests once the client can route them. Meanwhile every request is queued, to keep the order.
func (p *routedPool) run() {
	for p.hasQueued() {
		err := p.load()
		if err != nil && isClosed(p.owner) { // meanwhile
			err = ErrClientClosed
		}
		p.mu.Lock()
		batch := p.queue
		p.queue = nil
		p.mu.Unlock()
		for _, r := range batch {
			failed := p.forward(r, err)
			switch {
			case failed == nil:
				continue
			case !errors.Is(failed, ErrClientClosed):
				failed = noAnswer("", failed)
			}
			r.deliver(Reply{Err: failed, Fate: NotSent})
		}
	}
}

func (p *routedPool) hasQueued() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = len(p.queue) > 0
	return p.running
}

func (p *routedPool) load() error {
	if p.ready.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), routeTimeout)
	defer cancel()
	if _, err := p.routed(ctx, ""); err != nil {
		return fmt.Errorf("pool: the nodes are not known: %w", err)
	}
	p.ready.Store(true)
	return nil
}

func (p *routedPool) forward(r *routed, err error) error {
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	node, err := p.nodeOfLocked(r.owed.key)
	if err != nil {
		return err
	}
	return r.sendLocked(node, node.client, false)
}

func (p *routedPool) nodeOfLocked(key string) (node *streamPool, err error) {
	defer recovered(&err)
	client, err := p.route(context.Background(), key)
	if err != nil {
		return nil, err
	}
	addr := client.Options().Addr
	if node := p.nodes[addr]; node != nil && node.client == client {
		return node, nil
	}
	return p.addLocked(addr, client), nil
}

// addLocked adds a node, and forgets nodes whose stream has ended.
func (p *routedPool) addLocked(addr string, client *redis.Client) *streamPool {
	for addr, old := range p.nodes {
		if old.isIdle() {
			delete(p.nodes, addr)
		}
	}
	if old := p.nodes[addr]; old != nil {
		old.CloseIdle()
	}
	node := newStreamPool(p.Config, client, p.owner)
	p.nodes[addr] = node
	return node
}

// nodeAtLocked returns the target of a redirection, with the options of the redirecting node, like.
func (p *routedPool) nodeAtLocked(addr string, like *streamPool) *streamPool {
	if node := p.nodes[addr]; node != nil {
		return node
	}
	opt := ownOptions(like.client.Options())
	opt.Addr = addr
	client := p.cluster.Options().NewClient(opt)
	_ = client.Close()
	return p.addLocked(addr, client)
}

type routed struct {
	pool  *routedPool
	req   Request
	owed  owed
	at    *streamPool
	moves int
}

// sendLocked sends r to node. asking: the slot is still moving there. No limit applies after a redirection.
func (r *routed) sendLocked(node *streamPool, named *redis.Client, asking bool) error {
	r.at = node
	if !r.pool.owing.add(&r.owed, node.client, named) {
		return errRerouted
	}
	req := r.req
	req.To, req.Tag, req.asking = r, 0, asking
	req.Reserved = req.Reserved || r.moves > 0
	r.req.RESP = nil // must not be read after Send
	err := node.Send(req)
	if err != nil && r.moves == 0 {
		r.pool.owing.remove(&r.owed) // the caller tells of err
	}
	if r.pool.closed {
		node.CloseIdle()
	}
	return err
}

func (r *routed) Receive(_ int, reply Reply) {
	p := r.pool
	if reply.Fate != Answered && reply.Err != ErrClientClosed || answers(reply.Err, "MOVED ") { //nolint:errorlint // a sentinel
		reload(p.owner) // the node may have been replaced, or lost the slot
	}
	addr, ask, is := redirection(reply.Err, r.at.client.Options().Addr)
	if is && reply.Fate == Answered && r.moves < p.redirects {
		err := r.follow(addr, ask)
		if err == nil {
			return
		}
		reply = Reply{Err: noAnswer("", err), Fate: NotSent}
	}
	reply.Conn, reply.Server = 0, nil
	if p.owing.remove(&r.owed) {
		r.deliver(reply)
	}
}

func (r *routed) follow(addr string, ask bool) (err error) {
	defer recovered(&err)
	p := r.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	r.moves++
	named, _ := p.routed(context.Background(), r.owed.key)
	return r.sendLocked(p.nodeAtLocked(addr, r.at), named, ask)
}

func (r *routed) deliver(reply Reply) {
	r.pool.delivering <- struct{}{}
	defer func() { <-r.pool.delivering }()
	r.req.To.Receive(r.req.Tag, reply)
}

// redirection returns the address that a redirection names. from is the address of the node that answered.
func redirection(err error, from string) (addr string, ask, is bool) {
	if !isElsewhere(err) {
		return "", false, false
	}
	words := strings.Fields(err.Error())
	if len(words) != 3 {
		return "", false, false
	}
	// A server writes an IPv6 address without brackets.
	colon := strings.LastIndexByte(words[2], ':')
	if colon < 0 {
		return "", false, false
	}
	host, port := strings.Trim(words[2][:colon], "[]"), words[2][colon+1:]
	switch {
	case port == "" || host == "?":
		return "", false, false
	case host == "": // the host of the node that answered
		host, _, _ = net.SplitHostPort(from)
	}
	return net.JoinHostPort(host, port), words[0] == "ASK", true
}

func keyOf(args []any) string {
	at := 1
	if name, _ := args[0].(string); strings.EqualFold(name, "evalsha") || strings.EqualFold(name, "eval") {
		if at = 3; len(args) > at && fmt.Sprint(args[2]) == "0" {
			return ""
		}
	}
	if at >= len(args) {
		return ""
	}
	if key, is := args[at].(string); is {
		return key
	}
	return fmt.Sprint(args[at])
}

// Link tells of the node whose connection was opened, or began to open, last.
func (p *routedPool) Link() (l Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) > 0 && !p.loading.IsZero() { // the client learns which nodes there are
		return Link{Since: p.loading, Sign: p.loading, Limit: routeTimeout}
	}
	for _, node := range p.nodes {
		if of := node.Link(); of.Open == l.Open && of.Since.After(l.Since) || !of.Open && !of.Since.IsZero() && l.Open || l.Since.IsZero() {
			l = of
		}
	}
	return l
}
