package watch

import (
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file lets leaders tell those who watch a name that they lead, or do not lead any more. Nobody relies on what a
// message says: it makes a watcher read the lock.

// The messages.
const (
	Leads  = "leads"
	Leaves = "leaves"
)

// Tell publishes a message to those who watch the name. It waits for no node, and sends nothing after Close has begun. If
// a node does not answer, or denies PUBLISH, those who listen there find out by their next read.
func Tell(k *lease.Keeper, name, message string) {
	if !k.BeginCall() {
		return
	}
	defer k.EndCall()
	k.Set.Publish(script.LeaderChannel(name), message)
}

// listen subscribes to the messages for a name on all nodes. It does not wait for them. A node that refuses is not asked
// again. hint is called when the leader may have changed. It must not block.
func listen(k *lease.Keeper, name string, hint func()) (end func()) {
	var all []wire.Subscription
	for _, n := range k.Set.Nodes {
		if p, ok := n.Pool.(wire.Subscriber); ok {
			if s, err := p.Subscribe(script.LeaderChannel(name), listener{hint}); err == nil {
				all = append(all, s)
			}
		}
	}
	return func() {
		for _, s := range all {
			s.Close()
		}
	}
}

// A listener receives what a node sends.
type listener struct{ hint func() }

// Subscribed implements wire.Listener. Messages of the time before may be lost.
func (l listener) Subscribed() { l.hint() }

// Message implements wire.Listener.
func (l listener) Message(string) { l.hint() }

// Unsubscribed implements wire.Listener.
func (listener) Unsubscribed(error) {}

// Refused implements wire.Listener.
func (listener) Refused(error) {}
