// Package watch reads who holds a lock, for those who watch it. Between reads it listens to leaders.
package watch

import (
	"context"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

const (
	readEvery = time.Second

	// runOut is how long after a TTL a lock is read: nodes count milliseconds.
	runOut = time.Millisecond

	// newInspection is after how many reads nodes that deny the queue and the register are asked for them again.
	newInspection = 60
)

// A Lock is what somebody watches.
type Lock struct {
	Terms   *lease.Terms                 // of the reads
	Led     string                       // the name that leaders may have, if any
	Holders func(lease.Inspected) string // a text that differs if the holders do, never empty
}

// A Watcher reads a lock for one goroutine.
type Watcher struct {
	lock       Lock
	inspection *lease.Inspection
	hints      chan struct{} // has room for one: something may have changed
	reads      int           // begun
	pace       pace
	next       time.Time // when the next read is due
	holders    string    // the text of what Next returned last

	// Leave ends the subscriptions, as Close does. Any goroutine may call it, even twice.
	Leave func()
}

// Begin returns a Watcher of l. Close must not hold up the caller meanwhile: see lease.Keeper.BeginCall.
func Begin(l Lock) *Watcher {
	w := &Watcher{lock: l, hints: make(chan struct{}, 1), Leave: func() {}}
	if l.Led != "" && l.Terms.Keeper.BeginCall() { // Close waits for the end of the subscriptions
		left := make(chan struct{})
		ended := listen(l.Terms.Keeper, l.Led, w.hint, left)
		w.Leave = sync.OnceFunc(func() {
			close(left)
			<-ended
		})
	}
	return w
}

// hint makes w read soon, without blocking.
func (w *Watcher) hint() {
	select {
	case w.hints <- struct{}{}:
	default: // w will read anyway
	}
}

// Next reads until the holders differ from those that it returned last, the first time once, and returns what it has
// seen. ok is false when ctx is done or Close has begun.
func (w *Watcher) Next(ctx context.Context) (seen lease.Inspected, ok bool) {
	keeper := w.lock.Terms.Keeper
	for keeper.Pause(ctx, time.Until(w.next), w.hints) && keeper.Pause(ctx, w.pace.wait(time.Now()), nil) {
		select {
		case <-w.hints: // this read follows it
		default:
		}
		start := time.Now()
		w.pace.note(start)
		if seen, ok = w.read(ctx); !ok {
			break
		}
		w.next = start.Add(readEvery)
		for _, h := range seen.Holdings() {
			if end := time.Now().Add(h.TTL + runOut); h.TTL != script.Endless && end.Before(w.next) {
				w.next = end
			}
		}
		if holders := w.lock.Holders(seen); holders != w.holders {
			w.holders = holders
			return seen, true
		}
	}
	return lease.Inspected{}, false
}

// read reports false if Close or the end of ctx has cut it short.
func (w *Watcher) read(ctx context.Context) (seen lease.Inspected, ok bool) {
	keeper := w.lock.Terms.Keeper
	if !keeper.BeginCall() {
		return seen, false
	}
	defer keeper.EndCall()
	if w.reads%newInspection == 0 {
		w.inspection = lease.NewInspection(w.lock.Terms)
	}
	w.reads++
	seen = w.inspection.Run(ctx, false, w.inspection.Limits())
	return seen, ctx.Err() == nil && !keeper.IsClosed()
}

// A pace spaces reads: mostInARow at once, then one every spacing, so at most 20 in a second.
type pace struct{ spent time.Time }

const (
	mostInARow = 10
	spacing    = 100 * time.Millisecond
)

// wait returns how long a read must wait; it may be negative.
func (p *pace) wait(now time.Time) time.Duration {
	if p.spent.Before(now) {
		return 0
	}
	return p.spent.Sub(now) - (mostInARow-1)*spacing
}

func (p *pace) note(now time.Time) {
	if p.spent.Before(now) {
		p.spent = now
	}
	p.spent = p.spent.Add(spacing)
}

// The messages of leaders. Nobody relies on them: they make a watcher read.
const (
	Leads  = "leads"
	Leaves = "leaves"
)

// Tell publishes a message to those who watch the name. It waits for no node, and sends nothing after Close has begun.
func Tell(k *lease.Keeper, name, message string) {
	if !k.BeginCall() {
		return
	}
	defer k.EndCall()
	k.Set.Publish(script.LeaderChannel(name), message)
}

// listen subscribes to the messages for a name on all nodes, without waiting, until left is closed or Close has begun.
// It ends the call of k that has begun. hint must not block.
func listen(k *lease.Keeper, name string, hint func(), left <-chan struct{}) (ended <-chan struct{}) {
	var all []*wire.Subscription
	for _, n := range k.Set.Nodes {
		if p, ok := n.Pool.(wire.Subscriber); ok {
			if s, err := p.Subscribe(script.LeaderChannel(name), listener{hint}); err == nil {
				all = append(all, s)
			}
		}
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		defer k.EndCall()
		select {
		case <-left:
		case <-k.Closing():
		}
		for _, s := range all {
			s.Close()
		}
	}()
	return closed
}

// A listener receives what a node sends.
type listener struct{ hint func() }

// Subscribed implements wire.Listener. Earlier messages may be lost.
func (l listener) Subscribed() { l.hint() }

// Message implements wire.Listener.
func (l listener) Message(string) { l.hint() }

// Unsubscribed implements wire.Listener.
func (listener) Unsubscribed(error) {}

// Refused implements wire.Listener.
func (listener) Refused(error) {}
