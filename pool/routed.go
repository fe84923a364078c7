package pool

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
)

// This file is the pool of a client of many nodes: a Redis Cluster or a Ring. The client
// says which node has a key. The request goes through a stream of that node, as with a
// *redis.Client: what holds for a stream (greeting, bounded replies, silence, the limit of
// outstanding requests) holds for each node, and a frozen node delays no other.

// routeTimeout is how long the pool waits until the client knows its cluster.
const routeTimeout = 5 * time.Second

// maxRedirects bounds how many redirections of one request are followed, whatever the
// user's client allows.
const maxRedirects = 16

// A router says which node has a key.
type router func(ctx context.Context, key string) (*redis.Client, error)

// routedPool sends each request through the stream of the node that has its key.
//
// A node of a cluster that does not have the slot has not executed the request, and says
// who has it: MOVED for good, ASK while the slot moves. The pool sends the request there.
// So it promises no order of execution: Conn is 0.
type routedPool struct {
	config
	client    redis.UniversalClient
	route     router
	cluster   *redis.ClusterClient // nil for a Ring
	redirects int                  // how many of one request are followed
	subs      subscriptions

	// ready says that route does no I/O. A ClusterClient loads the cluster with the first
	// call, and never forgets it.
	ready atomic.Bool

	// told holds a token while a reply is delivered: one at a time, whichever node sent it.
	told chan struct{}

	mu      sync.Mutex             // guards what follows
	nodes   map[string]*streamPool // by address
	queue   []*routed              // until the client is ready
	running bool                   // a goroutine is in run
	closed  bool
}

var _ Subscriber = (*routedPool)(nil)

func newRoutedPool(cfg config, client redis.UniversalClient) *routedPool {
	p := &routedPool{
		config: cfg, client: client,
		told: make(chan struct{}, 1), nodes: make(map[string]*streamPool),
	}
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
	return p
}

func (p *routedPool) String() string { return fmt.Sprintf("%T", p.client) }

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

// Subscribe implements Subscriber.
func (p *routedPool) Subscribe(channel string, to Listener) (Subscription, error) {
	return p.subs.start(&p.config, channel, to, p.dialChannel)
}

// dialChannel listens to a channel of the node that the client chooses for it.
func (p *routedPool) dialChannel(ctx context.Context, channel string) (w wire, err error) {
	defer recovered(&err)
	node, err := p.route(ctx, channel)
	if err != nil {
		return nil, err
	}
	return dialWire(ctx, node.Options(), channel)
}

// Destination returns the client.
func (p *routedPool) Destination() any { return p.client }

// Client returns what tells the client of p from all others, as for a *redis.Client.
func (p *routedPool) Client() any {
	switch client := p.client.(type) {
	case *redis.ClusterClient:
		return weak.Make(client)
	case *redis.Ring:
		return weak.Make(client)
	}
	return nil
}

// Sibling returns another pool of the same client, with the same options.
func (p *routedPool) Sibling() Pool { return newRoutedPool(p.config, p.client) }

// MetBefore reports true: the pool never tells which server answers, so that nobody need
// wait to hear it.
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
	if p.ready.Load() && !p.running {
		if node, err := p.nodeOfLocked(keyOf(req.Args)); err == nil {
			return r.sendLocked(node, false)
		}
	}
	if err := admit(len(p.queue), p.outstanding, req.Reserved); err != nil {
		return err
	}
	if _, err := AppendCommand(nil, req.Args); err != nil {
		return err
	}
	r.req.RESP = nil
	p.queue = append(p.queue, r)
	if !p.running {
		p.running = true
		go p.run()
	}
	return nil
}

// outdated makes the client ask for the cluster anew, in the background.
func (p *routedPool) outdated() {
	if p.cluster != nil {
		p.cluster.ReloadState(context.Background())
	}
}

// run sends what is queued once the client knows who has the keys. Until nothing is left
// in the queue all that is sent goes through it, in order.
func (p *routedPool) run() {
	for p.hasQueued() {
		err := p.load()
		p.mu.Lock()
		batch := p.queue
		p.queue = nil
		p.mu.Unlock()
		for _, r := range batch {
			if failed := p.forward(r, err); failed != nil {
				r.deliver(Reply{Err: noAnswer("", failed), Fate: NotSent})
			}
		}
	}
}

// hasQueued reports whether something waits. Else run ends.
func (p *routedPool) hasQueued() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = len(p.queue) > 0
	return p.running
}

// load waits until the client can route.
func (p *routedPool) load() (err error) {
	defer recovered(&err)
	if p.ready.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), routeTimeout)
	defer cancel()
	if _, err := p.route(ctx, ""); err != nil {
		return fmt.Errorf("pool: the nodes are not known: %w", err)
	}
	p.ready.Store(true)
	return nil
}

// forward sends r, unless there is an error already.
func (p *routedPool) forward(r *routed, err error) error {
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	node, err := p.nodeOfLocked(keyOf(r.req.Args))
	if err != nil {
		return err
	}
	return r.sendLocked(node, false)
}

// nodeOfLocked returns the node that has a key, as far as the client knows.
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

// addLocked adds a node, and forgets those that nothing is sent to any more.
func (p *routedPool) addLocked(addr string, client *redis.Client) *streamPool {
	for addr, old := range p.nodes {
		if old.isIdle() {
			delete(p.nodes, addr)
		}
	}
	if old := p.nodes[addr]; old != nil {
		old.CloseIdle()
	}
	node := newStreamPool(config{outstanding: p.outstanding}, client)
	p.nodes[addr] = node
	return node
}

// nodeAtLocked returns the node at an address that another node has named. The client may
// not know it yet: then it is a node like that other one.
func (p *routedPool) nodeAtLocked(addr string, like *streamPool) *streamPool {
	if node := p.nodes[addr]; node != nil {
		return node
	}
	opt := ownOptions(like.client.Options())
	opt.Addr = addr
	client := redis.NewClient(opt)
	_ = client.Close() // its options are used, nothing else
	return p.addLocked(addr, client)
}

// A routed is a request on its way to the node that has its key.
type routed struct {
	pool  *routedPool
	req   Request
	at    *streamPool // where it is
	moves int         // how many redirections it has followed
}

// sendLocked sends r to a node; asking where the slot is on its way there. One that has been
// sent before has had its room.
func (r *routed) sendLocked(node *streamPool, asking bool) error {
	r.at = node
	req := r.req
	req.To, req.Tag, req.asking = r, 0, asking
	req.Reserved = req.Reserved || r.moves > 0
	r.req.RESP = nil // it is not to be read again
	err := node.Send(req)
	if r.pool.closed {
		node.CloseIdle()
	}
	return err
}

// Receive takes the reply of a node.
func (r *routed) Receive(_ int, reply Reply) {
	p := r.pool
	if reply.Fate != Answered || answers(reply.Err, "MOVED ") {
		p.outdated() // the node may have been replaced, or has lost the slot
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
	r.deliver(reply)
}

// follow sends r to the node that another one has named.
func (r *routed) follow(addr string, ask bool) (err error) {
	defer recovered(&err)
	p := r.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	r.moves++
	return r.sendLocked(p.nodeAtLocked(addr, r.at), ask)
}

func (r *routed) deliver(reply Reply) {
	r.pool.told <- struct{}{}
	defer func() { <-r.pool.told }()
	r.req.To.Receive(r.req.Tag, reply)
}

// redirection returns the address of the node that a node has named instead of itself, which
// is at the address from.
func redirection(err error, from string) (addr string, ask, is bool) {
	if !answers(err, "MOVED ") && !answers(err, "ASK ") {
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
	case host == "": // it does not know how it is called, and the other is called the same
		host, _, _ = net.SplitHostPort(from)
	}
	return net.JoinHostPort(host, port), words[0] == "ASK", true
}

// keyOf returns the key by which a command is routed, "" if it has none.
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
