package wire

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file follows a client of many nodes: slots of a Redis Cluster move to another master, or a Ring loses or gains a
// shard. A request that waits for the key's old node is given up: a lock must know that it has no vote there.

const (
	// rerouteEvery is how often the pool compares what nodes owe with what the client says.
	rerouteEvery = 50 * time.Millisecond

	// After so many looks without a reply the pool makes the client of a Cluster reload its state, and again after so many
	// more: an unused client would not notice a failover.
	looksUntilReload = 4
	looksPerReload   = 5

	// maxReloads bounds the reloads at once. A reload asks nodes in random order, and waits up to maxReadTimeout for a
	// frozen one: with three masters, a third of the 20 that begin in that time hang.
	maxReloads = 12
)

var errRerouted = errors.New("pool: given up: the client has another node for the key now")

var errDropped = errors.New("the client does not use the node any more")

// owing holds the unanswered requests of a pool of many nodes, in order.
type owing struct {
	mu          sync.Mutex // guards what follows
	first, last *owed
	looks       int64
	looking     bool // the timer runs
	reloaded    int64
	timer       *time.Timer

	reloads atomic.Int32

	client redis.UniversalClient
	route  router
}

type owed struct {
	to  interface{ deliver(reply Reply) }
	key string

	// Guarded by the mutex of owing.
	at            *redis.Client // of the node that it was sent to last
	named         *redis.Client
	looks         int64
	waiting       bool // no reply is delivered
	before, after *owed
}

// add notes that r is sent to node, while the client perhaps names another one. It reports false if r, after a
// redirection, has been given up: its sender no longer cleans up.
func (o *owing) add(r *owed, node, named *redis.Client) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	again := r.at != nil
	r.at, r.named = node, named
	if again {
		return r.waiting
	}
	r.looks, r.waiting = o.looks, true
	if r.before = o.last; r.before == nil {
		o.first = r
	} else {
		r.before.after = r
	}
	o.last = r
	if !o.looking {
		o.looking = true
		if o.timer == nil {
			o.timer = time.AfterFunc(time.Hour, o.look)
		}
		o.timer.Reset(rerouteEvery)
	}
	return true
}

// remove reports whether nobody has delivered a reply of r. The caller does.
func (o *owing) remove(r *owed) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !r.waiting {
		return false
	}
	r.waiting = false
	if r.before == nil {
		o.first = r.after
	} else {
		r.before.after = r.after
	}
	if r.after == nil {
		o.last = r.before
	} else {
		r.after.before = r.before
	}
	r.before, r.after = nil, nil
	return true
}

type wait struct {
	*owed
	at, named *redis.Client
}

// look gives up requests whose keys have moved. It looks again while replies are owed.
func (o *owing) look() {
	o.mu.Lock()
	o.looks++
	var waits []wait
	for r := o.first; r != nil && r.looks+1 < o.looks; r = r.after {
		waits = append(waits, wait{r, r.at, r.named})
	}
	oldest := o.first
	silent := oldest != nil && o.looks-oldest.looks > looksUntilReload && o.looks-o.reloaded >= looksPerReload
	if silent {
		o.reloaded = o.looks
	}
	o.mu.Unlock()
	if silent {
		o.reloadBeside()
	}
	for _, w := range waits {
		if o.hasMoved(w) && o.remove(w.owed) {
			w.to.deliver(Reply{Err: errRerouted, Fate: Unknown})
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.looking = o.first != nil; o.looking {
		o.timer.Reset(rerouteEvery)
	}
}

// hasMoved reports whether the client has named another node for the key since the request was sent.
func (o *owing) hasMoved(w wait) bool {
	if w.key == "" { // any node will do, and a ClusterClient names one at random
		return false
	}
	now, err := o.route(context.Background(), w.key)
	if err != nil {
		return !isClosed(o.client) // no shard is left; the stream tells of a closed client
	}
	return now != w.named && now != w.at && now.Options().Addr != w.at.Options().Addr
}

// reloadBeside reloads the state of a Cluster, even while another reload waits for a node.
func (o *owing) reloadBeside() {
	cluster, is := o.client.(*redis.ClusterClient)
	if !is || o.reloads.Load() >= maxReloads { // one look at a time
		return
	}
	o.reloads.Add(1)
	go func() {
		defer o.reloads.Add(-1)
		var err error // the next reload may do better
		defer recovered(&err)
		ctx, cancel := context.WithTimeout(context.Background(), maxReadTimeout)
		defer cancel()
		err = cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil })
	}()
}

func reload(client redis.UniversalClient) {
	if cluster, is := client.(*redis.ClusterClient); is {
		cluster.ReloadState(context.Background())
	}
}

// isDropped reports whether a Ring has stopped using a shard. The stream of a Cluster's master without slots soon ends
// as idle.
func isDropped(owner redis.UniversalClient, node *redis.Client) bool {
	ring, is := owner.(*redis.Ring)
	return is && !slices.Contains(ring.GetShardClients(), node)
}

// follow ends a subscription's connection to node once the client names another node for the channel.
func (w *ownWire) follow(ctx context.Context, route router, node *redis.Client) {
	var timer *time.Timer
	timer = time.AfterFunc(time.Hour, func() {
		now, err := route(ctx, w.channel)
		switch {
		case ctx.Err() != nil:
		case err != nil || now != node && now.Options().Addr != node.Options().Addr:
			w.move("")
		default:
			timer.Reset(rerouteEvery)
		}
	})
	timer.Reset(rerouteEvery)
	context.AfterFunc(ctx, func() { timer.Stop() })
}
