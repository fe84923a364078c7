package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file defines which permits clients want, and clients of a semaphore whose permits each node counts for itself.

// pickPermits returns a random semaphore, and how many of its permits the client wants. Clients with a slow habit take
// a slow semaphore. Other clients do so in one case out of eight.
func (c *client) pickPermits() lockName {
	slow := c.slow || c.chance(8)
	for {
		l := semaphores[c.rand.IntN(len(semaphores))]
		if l.slow != slow {
			continue
		}
		if l.fair {
			l.weight = 1 + c.rand.IntN(heaviest)
		}
		return l
	}
}

// Scripts of a semaphore whose permits each node counts for itself. The key is a sorted set of values, and the score
// of a value is the time at which it expires. ARGV has the value, the number of permits, and how long the value lasts.
var (
	countIn = redis.NewScript(`
		local t = redis.call('TIME')
		local now = t[1] * 1000 + math.floor(t[2] / 1000)
		redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
		if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
		redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
		redis.call('PEXPIRE', KEYS[1], ARGV[3])
		return 1`)
	countOut = redis.NewScript(`return redis.call('ZREM', KEYS[1], ARGV[1])`)
)

// counted is the semaphore of countPermits.
var counted = lockName{name: "counted", permits: 3}

// countPermits acquires permits as a broken library would: it asks each node for a permit, and believes that it has one
// if a quorum of nodes grants it. But each node counts only the permits that it has granted itself. The requests to
// different nodes take different times, so the nodes grant permits to different clients.
func (c *client) countPermits() {
	for c.ctx.Err() == nil {
		c.term++
		t := &turn{client: c, number: c.term, on: counted}
		t.note(history.Event{Kind: history.Call})
		start := t.now()
		if t.count(c.ctx, countIn) < quorum || t.now() > start+c.Expiry/2 {
			t.count(context.Background(), countOut)
			t.note(history.Event{Kind: history.Refused})
			pause(c.ctx, c.between(0, 10*ms))
			continue
		}
		t.note(history.Event{Kind: history.Held, Until: start + c.Expiry*8/10, Permits: counted.permits})
		pause(c.ctx, c.between(0, 100*ms))
		t.note(history.Event{Kind: history.Unlock})
		t.count(context.Background(), countOut)
		t.note(history.Event{Kind: history.Unlocked})
	}
}

// count runs a script on all nodes, and returns how many of them voted for the client.
func (t *turn) count(ctx context.Context, script *redis.Script) int {
	ctx, cancel := context.WithTimeout(ctx, unlockTime)
	defer cancel()
	value := fmt.Sprintf("%s #%d", t.who, t.number)
	var votes atomic.Int64
	var asking sync.WaitGroup
	for _, node := range t.redis {
		wait := t.between(0, 3*ms)
		asking.Go(func() {
			time.Sleep(wait)
			vote, _ := script.Run(ctx, node, []string{counted.name}, value, counted.permits, t.Expiry.Milliseconds()).Int() // 0 if it fails
			votes.Add(int64(vote))
		})
	}
	asking.Wait()
	return int(votes.Load())
}
