package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// maxBatch bounds the number of requests that a batchPool sends in one Pipeline.
const maxBatch = 512

// A pipelined is a request in the form of a command for a Pipeline.
type pipelined struct {
	*redis.Cmd
	req Request
}

// NoRetry reports true: go-redis must never send the command again. go-redis calls it wherever it
// would otherwise retry.
func (*pipelined) NoRetry() bool { return true }

// Clone keeps the promise of NoRetry on the copy.
func (p *pipelined) Clone() redis.Cmder {
	return &pipelined{Cmd: p.Cmd.Clone().(*redis.Cmd), req: p.req}
}

// batchPool serves a client for which the pool cannot open a stream, and any client with ViaClient. It sends through the
// client's Pipeline: while one batch is under way, further requests gather for the next. With ViaClient it sends the
// commands of a batch one after the other. A hook may know single commands alone: redsync v4 sends no others. No goroutine
// runs while nothing is outstanding. The pool promises no order of execution, because the client may
// spread a pipeline over several connections and follow redirects.
type batchPool struct {
	config
	client redis.UniversalClient
	subs   subscriptions
	share  share // of a *redis.Client, whose node may belong to a Cluster
	asked  bool  // that node has told that it is no part of a Cluster; only run uses it

	mu      sync.Mutex // guards what follows
	queue   []*pipelined
	owed    int
	closed  bool
	severed bool // the client has said that its user has closed it
	running bool // a goroutine is in run
}

var _ Subscriber = (*batchPool)(nil)

// A *redis.Client leads to one node, whose address tells more than the type.

func (p *batchPool) String() string {
	if client, ok := p.usableClient(); ok && p.name == "" {
		return addressOf(client)
	}
	return cmp.Or(p.name, fmt.Sprintf("%T", p.client))
}

// Listed returns what stands for the node in a list of addresses, whatever the pool is called.
func (p *batchPool) Listed() string {
	if client, ok := p.usableClient(); ok {
		return client.Options().Addr
	}
	return fmt.Sprintf("%T", p.client)
}

// Keyspace returns the number of the database that p uses, nil if it is not known.
func (p *batchPool) Keyspace() any {
	if client, ok := p.usableClient(); ok {
		return client.Options().DB
	}
	return nil
}

// usableClient returns the client if it is a *redis.Client, and not nil.
func (p *batchPool) usableClient() (client *redis.Client, ok bool) {
	client, _ = p.client.(*redis.Client)
	return client, client != nil
}

// CloseIdle has nothing to do: the client owns the connections, and run ends by itself.
func (p *batchPool) CloseIdle() {}

func (p *batchPool) Close() error {
	p.subs.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}

// Subscribe implements Subscriber.
func (p *batchPool) Subscribe(channel string, to Listener) (Subscription, error) {
	return p.subs.start(&p.config, p.client, channel, to, p.dialChannel)
}

// dialChannel subscribes to a channel through the client.
func (p *batchPool) dialChannel(ctx context.Context, channel, _ string) (w wire, err error) {
	defer recovered(&err)
	return dialPubSub(ctx, p.client, channel)
}

// Destination returns what stands for the node: the client, unless that is a *redis.Client with an address.
func (p *batchPool) Destination() any {
	if client, ok := p.usableClient(); ok {
		return destinationOf(client)
	}
	if !reflect.ValueOf(p.client).Comparable() {
		return p // a type that the user wrote
	}
	return p.client
}

// ClientClosed reports whether the client has said that its user has closed it. It sends nothing.
func (p *batchPool) ClientClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.severed || p.err == nil && isClosed(p.client)
}

// MetBefore reports true. The pool never knows which server answers, so waiting for that would be
// useless.
func (p *batchPool) MetBefore() bool { return true }

func (p *batchPool) Send(req Request) error {
	if err := p.usable(&req); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case p.severed:
		return ErrClientClosed
	}
	if err := admit(p.owed, p.outstanding, req.Reserved); err != nil {
		return err
	}
	p.owed++
	// A hook may change the arguments, which other nodes share.
	p.queue = append(p.queue, &pipelined{Cmd: redis.NewCmd(context.Background(), slices.Clone(req.Args)...), req: req})
	if !p.running {
		p.running = true
		go p.run()
	}
	return nil
}

// run executes batches until none is left.
func (p *batchPool) run() {
	for {
		batch := p.take()
		if batch == nil {
			return
		}
		if p.viaClient {
			p.runEach(batch)
			continue
		}
		err := p.execute(batch)
		for _, cmd := range batch {
			p.deliver(cmd, replyOf(cmd.Cmd, err))
		}
	}
}

// runEach executes the commands of a batch one after the other. Once one has got no answer, it sends no further one: each
// would wait as long, and its sender has given up by then.
func (p *batchPool) runEach(batch []*pipelined) {
	var silent error
	for _, cmd := range batch {
		if silent != nil {
			p.deliver(cmd, Reply{Err: silent, Fate: NotSent})
			continue
		}
		reply := replyOf(cmd.Cmd, p.process(cmd))
		if reply.Fate != Answered {
			silent = reply.Err
		}
		p.deliver(cmd, reply)
	}
}

// process sends a command and waits for its reply.
func (p *batchPool) process(cmd *pipelined) (err error) {
	defer recovered(&err)
	return p.client.Process(context.Background(), cmd)
}

// load makes the node know the script of a command that it has answered with NOSCRIPT, if streams load that script, too.
// The sender may not send the source: it does not when other nodes have decided. Without the script, a node that always
// answers last would run no extension.
func (p *batchPool) load(cmd *pipelined) {
	var err error // the next NOSCRIPT tries again
	defer recovered(&err)
	for _, s := range knownScripts() {
		if args := cmd.req.Args; len(args) > 1 && args[1] == s.sha {
			p.client.ScriptLoad(context.Background(), s.source) // on a Cluster or a Ring, on all nodes
		}
	}
}

// deliver gives the sender of a command its reply.
func (p *batchPool) deliver(cmd *pipelined, reply Reply) {
	closed := errors.Is(reply.Err, redis.ErrClosed)
	if closed {
		reply.Err = ErrClientClosed
	}
	if client, ok := p.usableClient(); ok {
		reply.Err = p.share.heard(reply.Err)
		if name, _ := cmd.req.Args[0].(string); name == "ping" && reply.Err == nil {
			p.learn(client)
		}
	}
	p.mu.Lock()
	p.owed--
	p.severed = p.severed || closed
	p.mu.Unlock()
	cmd.req.To.Receive(cmd.req.Tag, reply)
	if IsNoScript(reply.Err) {
		p.load(cmd)
	}
}

// learn asks a node that has answered PING whether it serves every key, until it is known to be no part of a Cluster.
func (p *batchPool) learn(client *redis.Client) {
	var err error // the next PING tries again
	defer recovered(&err)
	if p.asked {
		return
	}
	ctx := context.Background()
	info, _ := client.Do(ctx, "info", "server").Text()
	mode := field(info, "redis_mode")
	if err = p.share.learn(ctx, mode, client.Do); err == nil {
		p.asked = mode != "" && mode != clusterMode
	}
}

// Partial returns why the node of a *redis.Client does not serve every key, nil if that is not known.
func (p *batchPool) Partial() error { return p.share.Partial() }

// execute sends a batch and waits for the replies. It returns the error of the whole batch. Each
// command also holds an error of its own.
func (p *batchPool) execute(batch []*pipelined) (err error) {
	defer recovered(&err)
	pipe := p.client.Pipeline()
	for _, cmd := range batch {
		_ = pipe.Process(context.Background(), cmd) // only queues
	}
	_, err = pipe.Exec(context.Background())
	return err
}

// take returns the next batch. If nothing is queued, it notes that run ends and returns nil.
func (p *batchPool) take() []*pipelined {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(len(p.queue), maxBatch)
	if n == 0 {
		p.running, p.queue = false, nil
		return nil
	}
	batch := p.queue[:n:n]
	p.queue = p.queue[n:]
	return batch
}

// replyOf returns the reply of an executed command; failed is the error of its batch, if any.
//
// A command without an answer has Fate Unknown, because the client may have tried several
// connections. A command that has neither an error nor a value got no answer: go-redis reports a
// null as an error, and leaves commands untouched when the greeting of a connection fails.
func replyOf(cmd *redis.Cmd, failed error) Reply {
	value, err := cmd.Result()
	switch {
	case err == nil && value == nil:
		return Reply{Err: noAnswer("", cmp.Or(failed, errNotExecuted)), Fate: Unknown}
	case err == nil:
		return Reply{Value: value, Fate: Answered}
	case errors.Is(err, redis.Nil):
		return Reply{Fate: Answered}
	case isAnswer(err):
		return Reply{Err: shortened(err), Fate: Answered}
	default:
		return Reply{Err: noAnswer("", err), Fate: Unknown}
	}
}

var errNotExecuted = errors.New("pool: the client has neither executed the command nor failed")
