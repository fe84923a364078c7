package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file does what node-redlock does, for the objections about several names. It follows the source of version 5
// (github.com/mike-marcacci/node-redlock, src/index.ts, commit 09fd36a), and has scripts of its own with the same
// effects:
//
//   - acquire sets all keys on a node if none of them exists there, not even with the caller's own value;
//   - extend sets all keys again if all have the caller's value;
//   - release deletes the keys that have the caller's value, and succeeds on a node if all keys had it.
//
// An operation ends as soon as a quorum of nodes has voted for it or against it. If it fails, it is repeated up to ten
// times with the same value. Keys that failed attempts have set stay until the last attempt has failed. The validity
// counts from before the first attempt.

// Settings of node-redlock, by default.
const (
	redlockRetries   = 10
	redlockDelay     = 200 * time.Millisecond
	redlockJitter    = 100 * time.Millisecond
	redlockThreshold = 500 * time.Millisecond // an extension begins this long before the lock ends
	redlockDrift     = 0.01
)

var (
	redlockAcquire = redis.NewScript(`
		if redis.call('EXISTS', unpack(KEYS)) > 0 then return 0 end
		for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1], 'PX', ARGV[2]) end
		return #KEYS`)
	redlockExtend = redis.NewScript(`
		for _, key in ipairs(KEYS) do
			if redis.call('GET', key) ~= ARGV[1] then return 0 end
		end
		for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1], 'PX', ARGV[2]) end
		return #KEYS`)
	redlockRelease = redis.NewScript(`
		local deleted = 0
		for _, key in ipairs(KEYS) do
			if redis.call('GET', key) == ARGV[1] then deleted = deleted + redis.call('DEL', key) end
		end
		return deleted`)
)

var (
	errRedlockNoQuorum = errors.New("no quorum within the retries")
	errRedlockExpired  = errors.New("the lock has expired")
)

// redlockParty is a process that uses node-redlock.
type redlockParty struct {
	clients []*redis.Client
	queues  []chan func() // by node: what its client has to send, in order
	set     setting
	workers sync.WaitGroup
	ctx     context.Context //nolint:containedctx // of the process: calls of node-redlock have none
	end     context.CancelFunc
}

func openRedlock(addrs []string, set setting) (party, error) {
	p := &redlockParty{set: set}
	p.ctx, p.end = context.WithCancel(context.Background())
	for _, addr := range addrs {
		// By default ioredis waits for a reply without a limit, and sends a command again when the connection breaks.
		p.clients = append(p.clients, redis.NewClient(&redis.Options{
			Addr: addr, ReadTimeout: -1, WriteTimeout: -1, MaxRetries: 20, ContextTimeoutEnabled: true,
		}))
		// It has one connection to each node, on which commands stay in order.
		queue := make(chan func(), 1024)
		p.queues = append(p.queues, queue)
		p.workers.Go(func() { p.work(queue) })
	}
	return p, nil
}

func (p *redlockParty) work(queue <-chan func()) {
	for {
		select {
		case do := <-queue:
			do()
		case <-p.ctx.Done():
			return
		}
	}
}

func (p *redlockParty) Close() {
	p.end()
	p.workers.Wait()
	closeAll(p.clients)
}

// Lock repeats acquire when it has failed. In node-redlock the caller must do so.
func (p *redlockParty) Lock(ctx context.Context, names ...string) (grip, error) {
	for {
		g, err := p.acquire(names, redlockRetries)
		if err == nil || ctx.Err() != nil || p.ctx.Err() != nil {
			return g, err
		}
	}
}

func (p *redlockParty) TryLock(_ context.Context, names ...string) (grip, error) {
	return p.acquire(names, 0)
}

func (p *redlockParty) acquire(names []string, retries int) (grip, error) {
	start := time.Now()
	g := &redlockGrip{party: p, names: names, value: rand.Text(), aborted: make(chan struct{}), released: make(chan struct{})}
	if err := p.execute(redlockAcquire, retries, names, g.value, p.set.Expiry.Milliseconds()); err != nil {
		_ = p.execute(redlockRelease, 0, names, g.value)
		return nil, err
	}
	g.expires = p.expiration(start)
	if p.set.Auto {
		g.using.Go(g.extendAgainAndAgain)
	}
	return g, nil
}

// expiration returns the end of a lock whose acquire or extend began at start.
func (p *redlockParty) expiration(start time.Time) time.Time {
	drift := time.Duration(redlockDrift*float64(p.set.Expiry)) + 2*time.Millisecond
	return start.Add(p.set.Expiry - drift)
}

// execute repeats attempts until one succeeds, or until the retries are used up.
func (p *redlockParty) execute(script *redis.Script, retries int, names []string, args ...any) error {
	for try := 0; ; try++ {
		if p.attempt(script, names, args) {
			return nil
		}
		if try == retries || p.ctx.Err() != nil {
			return errRedlockNoQuorum
		}
		pause(p.ctx, redlockDelay+time.Duration(mathrand.Int64N(int64(2*redlockJitter)))-redlockJitter)
	}
}

// attempt runs a script on all nodes, and reports whether a quorum voted for it. It returns as soon as a quorum has
// voted for it or against it.
func (p *redlockParty) attempt(script *redis.Script, names []string, args []any) bool {
	votes := make(chan bool, len(p.clients))
	for i, c := range p.clients {
		p.queues[i] <- func() {
			n, err := script.Run(p.ctx, c, names, args...).Int()
			votes <- err == nil && n == len(names)
		}
	}
	quorum, in := len(p.clients)/2+1, map[bool]int{}
	for in[true] < quorum && in[false] < quorum {
		select {
		case vote := <-votes:
			in[vote]++
		case <-p.ctx.Done():
			return false
		}
	}
	return in[true] >= quorum
}

// redlockGrip is a lock of node-redlock. If the setting says Auto, it is a lock of node-redlock's function using, which
// extends the lock and has a signal for its loss.
type redlockGrip struct {
	party    *redlockParty
	names    []string
	value    string
	mu       sync.Mutex
	expires  time.Time // guarded by mu
	using    sync.WaitGroup
	aborted  chan struct{} // the signal: closed when the lock is lost
	released chan struct{} // closed when the function has returned
}

func (g *redlockGrip) end() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.expires
}

// Held implements grip. Within using a holder sees only the signal, not the time at which the lock ends.
func (g *redlockGrip) Held() bool {
	if !g.party.set.Auto {
		return time.Now().Before(g.end())
	}
	select {
	case <-g.aborted:
		return false
	default:
		return true
	}
}

func (g *redlockGrip) Lost() <-chan struct{} {
	if !g.party.set.Auto {
		return nil
	}
	return g.aborted
}

func (*redlockGrip) Token() uint64 { return 0 }

func (g *redlockGrip) Extend(context.Context) error {
	start := time.Now()
	if start.After(g.end()) {
		return errRedlockExpired
	}
	err := g.party.execute(redlockExtend, redlockRetries, g.names, g.value, g.party.set.Expiry.Milliseconds())
	if err == nil {
		g.mu.Lock()
		g.expires = g.party.expiration(start)
		g.mu.Unlock()
	}
	return err
}

// extendAgainAndAgain extends the lock shortly before its end. It repeats an extension that fails until the lock has
// expired, and only then gives the signal.
func (g *redlockGrip) extendAgainAndAgain() {
	for {
		timer := time.NewTimer(time.Until(g.end()) - redlockThreshold)
		select {
		case <-timer.C:
		case <-g.released:
			timer.Stop()
			return
		case <-g.party.ctx.Done():
			timer.Stop()
			return
		}
		for g.Extend(g.party.ctx) != nil {
			if time.Now().After(g.end()) {
				close(g.aborted)
				return
			}
		}
	}
}

func (g *redlockGrip) Unlock(context.Context) error {
	close(g.released)
	g.using.Wait()
	return g.party.execute(redlockRelease, redlockRetries, g.names, g.value)
}

// One lock after another, with redsync v4.

// chain is a lock on each of several names.
type chain []grip

// lockEach locks names in this order. If it cannot lock one, it unlocks those that it has locked.
func lockEach(ctx context.Context, lock func(context.Context, string) (grip, error), names []string) (grip, error) {
	if len(names) == 1 {
		return lock(ctx, names[0])
	}
	var all chain
	for _, name := range names {
		g, err := lock(ctx, name)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", name, err), all.Unlock(context.WithoutCancel(ctx)))
		}
		all = append(all, g)
	}
	return all, nil
}

func (c chain) Held() bool {
	return !slices.ContainsFunc(c, func(g grip) bool { return !g.Held() })
}

func (chain) Lost() <-chan struct{} { return nil }
func (chain) Token() uint64         { return 0 }

func (c chain) Extend(ctx context.Context) (err error) {
	for _, g := range c {
		err = errors.Join(err, g.Extend(ctx))
	}
	return err
}

func (c chain) Unlock(ctx context.Context) (err error) {
	for _, g := range slices.Backward(c) {
		err = errors.Join(err, g.Unlock(ctx))
	}
	return err
}
