package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/history"
)

// lookAtKeys returns all keys of a node and their TTLs, of one moment.
const lookAtKeys = `
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  found[#found + 1] = key
  found[#found + 1] = redis.call('PTTL', key)
end
return found`

// sampleEvery is how often the keys of a node are looked at.
const sampleEvery = 200 * ms

// sample looks at the keys of n now and then until ctx is done, past the proxies, and
// notes them. A node that does not answer is looked at later.
func (w *world) sample(ctx context.Context, n *node) {
	for ctx.Err() == nil {
		w.look(ctx, n)
		pause(ctx, sampleEvery)
	}
}

func (w *world) look(ctx context.Context, n *node) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	at := w.now()
	found, err := n.direct.Eval(ctx, lookAtKeys, nil).Slice()
	if err != nil {
		return
	}
	for i := 0; i+1 < len(found); i += 2 {
		key, _ := found[i].(string)
		ttl, _ := found[i+1].(int64)
		w.log.Note(keyEvent(at, n.index, key, ttl))
	}
	w.lookForStrays(ctx, n)
}

// lookForStrays notes when clients whose greeting n has refused have set keys all the same.
func (w *world) lookForStrays(ctx context.Context, n *node) {
	keys, err := n.direct.Info(ctx, "keyspace").Result()
	if err == nil && strings.Contains(keys, "db0:") && !n.strayed {
		n.strayed = true
		w.log.Note(history.Event{At: w.now(), Kind: history.Broken, Client: nodeRow(n.index), Err: "it has keys in database 0"})
	}
}

// keyEvent is a look at a key, which lasts for so many milliseconds; -1: for ever.
func keyEvent(at time.Duration, node int, key string, ttl int64) history.Event {
	e := history.Event{At: at, Kind: history.Key, Node: node, Key: key, TTL: time.Duration(ttl) * ms}
	if ttl < 0 {
		e.TTL = history.NoTTL
	}
	if slices.ContainsFunc(lockNames, func(l lockName) bool { return l.name == key }) {
		e.Name = key
	}
	return e
}

// beside returns the name of the lock that a key stands beside: {name}:queue, say.
func beside(key string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(key, "{"), "}:")
	return name
}
