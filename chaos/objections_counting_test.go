package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file does what the semaphores of redis-semaphore do on several nodes, for the objections about permits. It
// follows its source (github.com/swarthy/redis-semaphore, src/redlockSemaphore and src/redlockMultiSemaphore, commit
// 44d22e8), and has scripts of its own with the same effects:
//
//   - each node has one sorted set of the holders, with the client's time of their last acquire or refresh;
//   - acquire drops holders that have not refreshed for the expiry, by the client's clock. Then it adds the caller if
//     there are fewer holders than permits;
//   - a client that a quorum of nodes has added has a permit. Otherwise all nodes remove it, and it tries again;
//   - a holder refreshes its permit until it releases it. If fewer than a quorum of nodes still have the holder, the
//     permit is lost.
//
// A client that wants several permits adds a member for each. If its attempt fails, it removes the member that a client
// with a single permit would have added. So the members that nodes have added for it stay until they expire, or until
// they are added again.
//
// The Redis clients and the timings are not those of redis-semaphore.

// Settings of redis-semaphore, by default.
const (
	countingRetry   = 10 * time.Millisecond // between two attempts
	countingRefresh = 0.8                   // of the expiry: the pause between two refreshes
)

var (
	countingAcquire = redis.NewScript(`
		redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[4] - ARGV[3])
		if redis.call('ZCARD', KEYS[1]) + #ARGV - 4 > tonumber(ARGV[2]) then return 0 end
		for i = 5, #ARGV do redis.call('ZADD', KEYS[1], ARGV[4], ARGV[i]) end
		redis.call('PEXPIRE', KEYS[1], ARGV[3])
		return 1`)
	countingExtend = redis.NewScript(`
		redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[4] - ARGV[3])
		if not redis.call('ZSCORE', KEYS[1], ARGV[5]) then return 0 end
		for i = 5, #ARGV do redis.call('ZADD', KEYS[1], ARGV[4], ARGV[i]) end
		redis.call('PEXPIRE', KEYS[1], ARGV[3])
		return 1`)
	countingRemove  = redis.NewScript(`return math.min(redis.call('ZREM', KEYS[1], ARGV[1]), 1)`)
	countingRelease = redis.NewScript(`return math.min(redis.call('ZREM', KEYS[1], unpack(ARGV, 5)), 1)`)
)

var errCountingTaken = errors.New("no quorum in one attempt")

// countingParty is a process that uses redis-semaphore.
type countingParty struct {
	clients    []*redis.Client
	set        setting
	refreshing sync.WaitGroup
	ctx        context.Context //nolint:containedctx // of the process: permits are refreshed until it ends
	end        context.CancelFunc
}

func openCounting(addrs []string, set setting) (party, error) {
	p := &countingParty{clients: dialAll(addrs), set: set}
	p.ctx, p.end = context.WithCancel(context.Background())
	return p, nil
}

func (p *countingParty) Close() {
	p.end()
	p.refreshing.Wait()
	closeAll(p.clients)
}

// Lock takes the only permit of a name.
func (p *countingParty) Lock(ctx context.Context, names ...string) (grip, error) {
	return p.Permit(ctx, names[0], 1, 1)
}

func (p *countingParty) TryLock(ctx context.Context, names ...string) (grip, error) {
	return p.newGrip(names[0], 1, 1).attempt(ctx)
}

// Permit implements permitParty.
func (p *countingParty) Permit(ctx context.Context, name string, n, weight int) (grip, error) {
	g := p.newGrip(name, n, weight)
	for {
		held, err := g.attempt(ctx)
		if err == nil {
			return held, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		pause(ctx, countingRetry)
	}
}

// A countingGrip holds permits, which are refreshed until they are released.
type countingGrip struct {
	party    *countingParty
	name     string
	n        int
	value    string
	members  []any
	released chan struct{}
	lost     chan struct{}
	once     sync.Once
}

func (p *countingParty) newGrip(name string, n, weight int) *countingGrip {
	g := &countingGrip{party: p, name: name, n: n, value: rand.Text(), released: make(chan struct{}), lost: make(chan struct{})}
	for i := range weight {
		member := g.value
		if weight > 1 {
			member = fmt.Sprintf("%s_%d", g.value, i)
		}
		g.members = append(g.members, member)
	}
	return g
}

// onAll runs a script on nodes. It returns the nodes that voted yes and those that did not.
func (g *countingGrip) onAll(ctx context.Context, script *redis.Script, nodes []*redis.Client) (yes, no []*redis.Client) {
	args := append([]any{g.value, g.n, g.party.set.Expiry.Milliseconds(), time.Now().UnixMilli()}, g.members...)
	votes := make([]int, len(nodes))
	var asking sync.WaitGroup
	for i, node := range nodes {
		asking.Go(func() {
			votes[i], _ = script.Run(ctx, node, []string{g.name}, args...).Int() // 0 if it fails
		})
	}
	asking.Wait()
	for i, node := range nodes {
		if votes[i] == 1 {
			yes = append(yes, node)
		} else {
			no = append(no, node)
		}
	}
	return yes, no
}

func (g *countingGrip) quorum() int { return len(g.party.clients)/2 + 1 }

func (g *countingGrip) attempt(ctx context.Context) (grip, error) {
	if yes, _ := g.onAll(ctx, countingAcquire, g.party.clients); len(yes) < g.quorum() {
		g.onAll(context.WithoutCancel(ctx), countingRemove, g.party.clients)
		return nil, errCountingTaken
	}
	g.party.refreshing.Go(g.refresh)
	return g, nil
}

// refresh refreshes the permits until they are released or lost.
func (g *countingGrip) refresh() {
	pause := time.NewTicker(time.Duration(countingRefresh * float64(g.party.set.Expiry)))
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-g.released:
			return
		case <-g.party.ctx.Done():
			return
		}
		if g.Extend(g.party.ctx) != nil {
			return
		}
	}
}

// Extend refreshes the permits. If it succeeds, it asks the nodes that no longer have them to add them again.
func (g *countingGrip) Extend(ctx context.Context) error {
	yes, no := g.onAll(ctx, countingExtend, g.party.clients)
	if len(yes) >= g.quorum() {
		g.onAll(ctx, countingAcquire, no)
		return nil
	}
	g.onAll(ctx, countingRelease, g.party.clients)
	g.once.Do(func() { close(g.lost) })
	return errCountingTaken
}

func (g *countingGrip) Held() bool {
	select {
	case <-g.lost:
		return false
	case <-g.released:
		return false
	default:
		return true
	}
}

func (g *countingGrip) Lost() <-chan struct{} { return g.lost }
func (*countingGrip) Token() uint64           { return 0 }

func (g *countingGrip) Unlock(ctx context.Context) error {
	close(g.released)
	g.onAll(ctx, countingRelease, g.party.clients)
	return nil
}
