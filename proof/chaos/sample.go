package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/seed14bd9ef4/redsync/proof/history"
)

// lookAtKeys is a script that returns all keys of a node and their TTLs at one moment.
const lookAtKeys = `
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  found[#found + 1] = key
  found[#found + 1] = redis.call('PTTL', key)
end
return found`

// sampleEvery is the pause between two looks at the keys of a node.
const sampleEvery = 200 * ms

// sample repeatedly notes the keys of n until ctx is done, without using a proxy. It skips a look
// if the node does not answer, and stops when the node is dead.
func (w *world) sample(ctx context.Context, n *node) {
	for ctx.Err() == nil && !n.dead.Load() { // go-redis goes on dialing a dead node for a while
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

// lookForStrays notes a broken promise, once, if n has keys in database 0. Only a client whose greeting n
// has refused can have set them.
func (w *world) lookForStrays(ctx context.Context, n *node) {
	keys, err := n.direct.Info(ctx, "keyspace").Result()
	if err == nil && strings.Contains(keys, "db0:") && !n.strayed {
		n.strayed = true
		w.log.Note(history.Event{At: w.now(), Kind: history.Broken, Client: nodeRow(n.index), Err: "it has keys in database 0"})
	}
}

// keyEvent returns the event for a look at a key. ttl is in milliseconds; -1 means no expiry.
func keyEvent(at time.Duration, node int, key string, ttl int64) history.Event {
	e := history.Event{At: at, Kind: history.Key, Node: node, Key: key, TTL: time.Duration(ttl) * ms}
	if ttl < 0 {
		e.TTL = history.NoTTL
	}
	switch {
	case slices.ContainsFunc(allNames(), func(l lockName) bool { return l.name == key }):
		e.Name = key
	case isSlot(key):
		e.Name = beside(key)
	}
	return e
}

// isSlot reports whether a key is a permit's: {name}:slot:0 and so on.
func isSlot(key string) bool {
	_, number, ok := strings.Cut(key, "}:slot:")
	return ok && number != "queue"
}

// beside returns the name of the lock to which a key such as {name}:queue belongs.
func beside(key string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(key, "{"), "}:")
	return name
}
