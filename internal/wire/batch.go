package wire

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

const maxBatch = 512

// A pipelined is a request in the form of a command of go-redis.
type pipelined struct {
	*redis.Cmd
	req   Request
	again bool // the client may send it again: see pool.ViaClient
	asked int  // how often the client has asked whether it may, also for an error or null
}

func (p *pipelined) NoRetry() bool {
	p.asked++
	return !p.again
}

func (p *pipelined) Clone() redis.Cmder {
	return &pipelined{Cmd: p.Cmd.Clone().(*redis.Cmd), req: p.req, again: p.again}
}

// batchPool serves a client without a stream. It sends through the client's Pipeline: while one batch is under way,
// further requests gather for the next. With pool.ViaClient it sends single commands, by calls, because hooks may know
// no others. It promises no order of execution, because the client may use several connections and follow redirects.
type batchPool struct {
	clientPool
	calls
	share share       // of a *redis.Client, whose node may belong to a Cluster
	asked atomic.Bool // that node is no part of a Cluster
}

func newBatchPool(cfg Config, client redis.UniversalClient) *batchPool {
	p := &batchPool{clientPool: clientPool{Config: cfg, owner: client}}
	p.cfg, p.dial, p.then = &p.Config, p.dialChannel, p.load
	if p.batch = p.sendBatch; cfg.ViaClient {
		p.each = p.process
	}
	return p
}

func (p *batchPool) Close() error {
	p.subs.close()
	return p.calls.Close()
}

func (p *batchPool) dialChannel(ctx context.Context, channel, _ string) (w wire, err error) {
	defer recovered(&err)
	return dialPubSub(ctx, p.owner, channel)
}

func (p *batchPool) ClientClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.severed || p.clientPool.ClientClosed()
}

// pipelinedOf copies the arguments: a hook may change them, and other nodes share them.
func pipelinedOf(ctx context.Context, req *Request) *pipelined {
	return &pipelined{Cmd: redis.NewCmd(ctx, slices.Clone(req.Args)...), req: *req}
}

func (p *batchPool) process(ctx context.Context, req *Request) Reply {
	cmd := pipelinedOf(ctx, req)
	cmd.again = true
	reply := replyOf(cmd.Cmd, p.owner.Process(ctx, cmd))
	isNull := reply.Err == nil && reply.Value == nil
	if reply.Resent = cmd.asked > 1 || cmd.asked == 1 && reply.Value != nil; reply.Resent && isNull && req.Args[0] == "set" {
		reply.Err, reply.Fate = errResent, Unknown
	}
	if client, ok := p.single(); ok {
		reply.Err = p.share.heard(reply.Err)
		if name, _ := req.Args[0].(string); name == "ping" && reply.Err == nil {
			p.learn(ctx, client)
		}
	}
	return reply
}

// errResent is the error of a SET with NX that the client has sent again.
var errResent = errors.New("pool: the client has sent SET again, and the key was there: it may be the lock's own")

func (p *batchPool) sendBatch(batch []waiting) {
	cmds := make([]*pipelined, len(batch))
	for i := range batch {
		cmds[i] = pipelinedOf(context.Background(), &batch[i].Request)
	}
	err := p.execute(cmds)
	for _, cmd := range cmds {
		p.deliver(&cmd.req, replyOf(cmd.Cmd, err))
	}
}

// load loads a script after NOSCRIPT, if streams load it, too. A sender does not send the source once other nodes have
// decided, so a node that is always last would never run it.
func (p *batchPool) load(req *Request, reply Reply) {
	if !IsNoScript(reply.Err) {
		return
	}
	var err error // the next NOSCRIPT tries again
	defer recovered(&err)
	if s := scriptOf(req.Args); s != nil {
		p.owner.ScriptLoad(context.Background(), s.source) // on a Cluster or a Ring, on all nodes
	}
}

func (p *batchPool) learn(ctx context.Context, client *redis.Client) {
	var err error // the next PING tries again
	defer recovered(&err)
	if p.asked.Load() || p.Anonymous {
		return
	}
	info, _ := client.Do(ctx, "info", "server").Text()
	mode := field(info, "redis_mode")
	if err = p.share.learn(ctx, mode, client.Do); err == nil {
		p.asked.Store(mode != "" && mode != clusterMode)
	}
}

func (p *batchPool) Partial() error { return p.share.Partial() }

func (p *batchPool) execute(batch []*pipelined) (err error) {
	defer recovered(&err)
	pipe := p.owner.Pipeline()
	for _, cmd := range batch {
		_ = pipe.Process(context.Background(), cmd) // only queues
	}
	_, err = pipe.Exec(context.Background())
	return err
}

// replyOf returns the reply of a command; failed is the error of its batch.
//
// Without an answer the Fate is Unknown: the client may have tried several connections. A command with neither an error
// nor a value got no answer: go-redis leaves commands untouched when a greeting fails.
func replyOf(cmd *redis.Cmd, failed error) Reply {
	value, err := cmd.Result()
	switch {
	case err == nil && value != nil:
		return Reply{Value: value, Fate: Answered}
	case err == nil:
		err = cmp.Or(failed, errNotExecuted)
	case errors.Is(err, redis.Nil):
		return Reply{Fate: Answered}
	case isAnswer(err):
		return Reply{Err: shortened(err), Fate: Answered}
	}
	if errors.Is(err, redis.ErrClosed) {
		return Reply{Err: ErrClientClosed, Fate: Unknown}
	}
	return Reply{Err: noAnswer("", err), Fate: Unknown}
}

var errNotExecuted = errors.New("pool: the client has neither executed the command nor failed")
