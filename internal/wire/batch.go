package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// maxBatch bounds the number of requests that a batchPool sends in one Pipeline.
const maxBatch = 512

// A pipelined is a request in the form of a command of go-redis.
type pipelined struct {
	*redis.Cmd
	req   Request
	again bool // the client may send it again, as it does with the commands of its user: see pool.ViaClient
	asked int  // how often the client has asked whether it may: once for each error, and perhaps for one that it passes on, or a null
}

// NoRetry reports whether go-redis must not send the command again. go-redis calls it wherever it would otherwise retry.
func (p *pipelined) NoRetry() bool {
	p.asked++
	return !p.again
}

// Clone keeps the promise of NoRetry on the copy.
func (p *pipelined) Clone() redis.Cmder {
	return &pipelined{Cmd: p.Cmd.Clone().(*redis.Cmd), req: p.req, again: p.again}
}

// batchPool serves a client for which the pool cannot open a stream, and any client with pool.ViaClient. It sends through the
// client's Pipeline: while one batch is under way, further requests gather for the next. With pool.ViaClient it sends single
// commands, by calls: a hook may know single commands alone, because redsync v4 sends no others. No goroutine
// runs while nothing is outstanding. The pool promises no order of execution, because the client may
// spread a pipeline over several connections and follow redirects.
type batchPool struct {
	calls
	client redis.UniversalClient
	subs   subscriptions
	share  share       // of a *redis.Client, whose node may belong to a Cluster
	asked  atomic.Bool // that node has told that it is no part of a Cluster
}

func newBatchPool(cfg Config, client redis.UniversalClient) *batchPool {
	p := &batchPool{calls: calls{Config: cfg}, client: client}
	p.then = p.load
	if p.batch = p.sendBatch; cfg.ViaClient {
		p.each = p.process
	}
	return p
}

var _ Subscriber = (*batchPool)(nil)

// A *redis.Client leads to one node, whose address tells more than the type.

func (p *batchPool) String() string {
	if client, ok := p.usableClient(); ok && p.Name == "" {
		return addressOf(client)
	}
	return cmp.Or(p.Name, fmt.Sprintf("%T", p.client))
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

func (p *batchPool) Close() error {
	p.subs.close()
	p.close()
	return nil
}

// Subscribe implements Subscriber.
func (p *batchPool) Subscribe(channel string, to Listener) (Subscription, error) {
	return p.subs.start(&p.Config, p.client, channel, to, p.dialChannel)
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
	return p.severed || p.Wrong == nil && isClosed(p.client)
}

// MetBefore reports true. The pool never knows which server answers, so waiting for that would be
// useless.
func (p *batchPool) MetBefore() bool { return true }

// pipelinedOf returns a request in the form of a command. A hook may change the arguments, which other nodes share.
func pipelinedOf(ctx context.Context, req *Request) *pipelined {
	return &pipelined{Cmd: redis.NewCmd(ctx, slices.Clone(req.Args)...), req: *req}
}

// process sends a single request and waits for its reply.
func (p *batchPool) process(ctx context.Context, req *Request) Reply {
	cmd := pipelinedOf(ctx, req)
	cmd.again = true
	reply := p.seen(replyOf(cmd.Cmd, p.client.Process(ctx, cmd)))
	isNull := reply.Err == nil && reply.Value == nil
	if reply.Resent = cmd.asked > 1 || cmd.asked == 1 && reply.Value != nil; reply.Resent && isNull && req.Args[0] == "set" {
		reply.Err, reply.Fate = errResent, Unknown
	}
	if client, ok := p.usableClient(); ok {
		reply.Err = p.share.heard(reply.Err)
		if name, _ := req.Args[0].(string); name == "ping" && reply.Err == nil {
			p.learn(ctx, client)
		}
	}
	return reply
}

// errResent is the error of a SET with NX that the client has sent again.
var errResent = errors.New("pool: the client has sent SET again, and the key was there: it may be the lock's own")

// sendBatch sends requests in one Pipeline, and delivers the replies.
func (p *batchPool) sendBatch(batch []waiting) {
	cmds := make([]*pipelined, len(batch))
	for i := range batch {
		cmds[i] = pipelinedOf(context.Background(), &batch[i].Request)
	}
	err := p.execute(cmds)
	for _, cmd := range cmds {
		p.deliver(&cmd.req, p.seen(replyOf(cmd.Cmd, err)))
	}
}

// seen returns a reply in which the end of the client is ErrClientClosed.
func (p *batchPool) seen(reply Reply) Reply {
	if errors.Is(reply.Err, redis.ErrClosed) {
		reply.Err = ErrClientClosed
	}
	return reply
}

// load makes the node know the script of a command that it has answered with NOSCRIPT, if streams load that script, too.
// The sender may not send the source: it does not when other nodes have decided. Without the script, a node that always
// answers last would run no extension.
func (p *batchPool) load(req *Request, reply Reply) {
	if !IsNoScript(reply.Err) {
		return
	}
	var err error // the next NOSCRIPT tries again
	defer recovered(&err)
	if s := scriptOf(req.Args); s != nil {
		p.client.ScriptLoad(context.Background(), s.source) // on a Cluster or a Ring, on all nodes
	}
}

// learn asks a node that has answered PING whether it serves every key, until it is known to be no part of a Cluster.
func (p *batchPool) learn(ctx context.Context, client *redis.Client) {
	var err error // the next PING tries again
	defer recovered(&err)
	if p.asked.Load() {
		return
	}
	info, _ := client.Do(ctx, "info", "server").Text()
	mode := field(info, "redis_mode")
	if err = p.share.learn(ctx, mode, client.Do); err == nil {
		p.asked.Store(mode != "" && mode != clusterMode)
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
