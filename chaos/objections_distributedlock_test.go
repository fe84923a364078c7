package main

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file does what the reader-writer lock of DistributedLock does on Redis, for the objections about readers. It
// follows its source (github.com/madelson/DistributedLock, src/DistributedLock.Redis, commit 08c6404), and has scripts
// of its own with the same effects:
//
//   - the readers are a set under one key with one TTL. Acquire and extend raise the TTL, release does not lower it;
//   - the writer is a value under another key;
//   - a writer that waits sets that key to a mark, which keeps new readers out.
//
// An attempt asks all nodes, and succeeds if a quorum grants it. After a failed attempt the client releases what nodes
// have granted, and tries again after a random pause. A lock is extended until it is released. The Redis clients and
// the timings are not those of DistributedLock.

// Settings of DistributedLock, by default.
const (
	oneSetShortest = 10 * time.Millisecond // pauses between two attempts
	oneSetLongest  = 800 * time.Millisecond
	oneSetValid    = 0.9 // of the expiry: the least that must be left of it after an attempt
)

const oneSetWaiting = "_WAITING"

var (
	oneSetRead = redis.NewScript(`
		if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
		redis.call('SADD', KEYS[1], ARGV[1])
		if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
		return 1`)
	oneSetExtendRead = redis.NewScript(`
		if redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 0 then return 0 end
		if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
		return 1`)
	oneSetReleaseRead = redis.NewScript(`return redis.call('SREM', KEYS[1], ARGV[1])`)

	// oneSetWait sets the mark of a writer that waits.
	oneSetWait = redis.NewScript(`
		if redis.call('SET', KEYS[2], ARGV[1] .. '` + oneSetWaiting + `', 'NX', 'PX', ARGV[2]) then return 1 end
		return 0`)
	oneSetWrite = redis.NewScript(`
		local writer = redis.call('GET', KEYS[2])
		if writer and writer ~= ARGV[1] .. '` + oneSetWaiting + `' then return 0 end
		if redis.call('SCARD', KEYS[1]) == 0 then
			redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
			return 1
		end
		if writer then redis.call('PEXPIRE', KEYS[2], ARGV[2]) end
		return 0`)
	oneSetExtendWrite = redis.NewScript(`
		if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
		return redis.call('PEXPIRE', KEYS[2], ARGV[2])`)
	oneSetReleaseWrite = redis.NewScript(`
		local writer = redis.call('GET', KEYS[2])
		if writer ~= ARGV[1] and writer ~= ARGV[1] .. '` + oneSetWaiting + `' then return 0 end
		return redis.call('DEL', KEYS[2])`)
)

var errOneSetTaken = errors.New("no quorum in one attempt")

// oneSetParty is a process that uses DistributedLock.
type oneSetParty struct {
	clients   []*redis.Client
	set       setting
	extending sync.WaitGroup
	ctx       context.Context //nolint:containedctx // of the process: locks are extended until it ends
	end       context.CancelFunc
}

func openOneSet(addrs []string, set setting) (party, error) {
	p := &oneSetParty{clients: dialAll(addrs), set: set}
	p.ctx, p.end = context.WithCancel(context.Background())
	return p, nil
}

func (p *oneSetParty) Close() {
	p.end()
	p.extending.Wait()
	closeAll(p.clients)
}

// onAll runs a script on all nodes, and returns how many voted yes.
func (p *oneSetParty) onAll(ctx context.Context, script *redis.Script, name, value string) int {
	votes := make([]int, len(p.clients))
	var asking sync.WaitGroup
	for i, c := range p.clients {
		asking.Go(func() {
			keys := []string{name + ".readers", name + ".writer"}
			votes[i], _ = script.Run(ctx, c, keys, value, p.set.Expiry.Milliseconds()).Int() // 0 if it fails
		})
	}
	asking.Wait()
	count := 0
	for _, v := range votes {
		count += v
	}
	return count
}

func (p *oneSetParty) quorum() int { return len(p.clients)/2 + 1 }

// attempt makes one attempt with a script. If it fails, it releases what nodes have granted.
func (p *oneSetParty) attempt(ctx context.Context, name string, g *oneSetGrip, acquire *redis.Script) bool {
	start := time.Now()
	if p.onAll(ctx, acquire, name, g.value) >= p.quorum() && time.Since(start) < time.Duration((1-oneSetValid)*float64(p.set.Expiry)) {
		g.party, g.name, g.until = p, name, start.Add(p.set.Expiry)
		return true
	}
	if acquire != oneSetWrite { // a writer that waits keeps its mark
		p.onAll(context.WithoutCancel(ctx), g.release, name, g.value)
	}
	return false
}

func newReader() *oneSetGrip {
	return &oneSetGrip{value: rand.Text(), extend: oneSetExtendRead, release: oneSetReleaseRead, released: make(chan struct{})}
}

func newWriter() *oneSetGrip {
	return &oneSetGrip{value: rand.Text(), extend: oneSetExtendWrite, release: oneSetReleaseWrite, released: make(chan struct{})}
}

// again repeats attempts until one succeeds, or until ctx is done.
func (p *oneSetParty) again(ctx context.Context, attempt func() bool) error {
	for !attempt() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		pause(ctx, oneSetShortest+time.Duration(mathrand.Int64N(int64(oneSetLongest-oneSetShortest))))
	}
	return nil
}

// Read implements readingParty.
func (p *oneSetParty) Read(ctx context.Context, name string) (grip, error) {
	var g *oneSetGrip
	err := p.again(ctx, func() bool { g = newReader(); return p.attempt(ctx, name, g, oneSetRead) })
	if err != nil {
		return nil, err
	}
	return g.begin(), nil
}

// WithRead implements readingParty.
func (p *oneSetParty) WithRead(ctx context.Context, name string, read func(context.Context) error) error {
	g, err := p.Read(ctx, name)
	if err != nil {
		return err
	}
	return errors.Join(read(ctx), g.Unlock(context.WithoutCancel(ctx)))
}

// Lock acquires the lock as a writer. If the first attempt fails, Lock sets the mark of a writer that waits.
func (p *oneSetParty) Lock(ctx context.Context, names ...string) (grip, error) {
	name, g := names[0], newWriter()
	if p.attempt(ctx, name, g, oneSetWrite) {
		return g.begin(), nil
	}
	waiting := false
	err := p.again(ctx, func() bool {
		waiting = waiting || p.attempt(ctx, name, g, oneSetWait)
		return waiting && p.attempt(ctx, name, g, oneSetWrite)
	})
	if err != nil {
		p.onAll(context.WithoutCancel(ctx), g.release, name, g.value)
		return nil, err
	}
	return g.begin(), nil
}

func (p *oneSetParty) TryLock(ctx context.Context, names ...string) (grip, error) {
	g := newWriter()
	if p.attempt(ctx, names[0], g, oneSetWrite) {
		return g.begin(), nil
	}
	p.onAll(ctx, g.release, names[0], g.value)
	return nil, errOneSetTaken
}

// oneSetGrip is a lock, which is extended until it is released.
type oneSetGrip struct {
	party           *oneSetParty
	name, value     string
	extend, release *redis.Script
	released        chan struct{}
	mu              sync.Mutex
	until           time.Time // guarded by mu
}

func (g *oneSetGrip) begin() grip {
	g.party.extending.Go(func() {
		for {
			timer := time.NewTimer(g.party.set.Expiry / 3)
			select {
			case <-timer.C:
			case <-g.released:
			case <-g.party.ctx.Done():
			}
			timer.Stop()
			select {
			case <-g.released:
				return
			case <-g.party.ctx.Done():
				return
			default:
				_ = g.Extend(g.party.ctx) // after an error the loop tries again
			}
		}
	})
	return g
}

func (g *oneSetGrip) Held() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Now().Before(g.until)
}

func (*oneSetGrip) Lost() <-chan struct{} { return nil }
func (*oneSetGrip) Token() uint64         { return 0 }

func (g *oneSetGrip) Extend(ctx context.Context) error {
	start := time.Now()
	if g.party.onAll(ctx, g.extend, g.name, g.value) < g.party.quorum() {
		return errOneSetTaken
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = start.Add(g.party.set.Expiry)
	return nil
}

func (g *oneSetGrip) Unlock(ctx context.Context) error {
	close(g.released)
	if g.party.onAll(ctx, g.release, g.name, g.value) < g.party.quorum() {
		return errOneSetTaken
	}
	return nil
}
