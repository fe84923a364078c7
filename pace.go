package redsync

import (
	"errors"
	"sync"

	"github.com/seed14bd9ef4/redsync/pool"
)

// closeWindow is how many releases Close lets one node owe. It keeps a connection busy,
// and is far below the limit at which a pool refuses even reserved requests. Several
// Redsyncs on the same clients may close at once.
const closeWindow = 1024

// A pace sends the releases of a closing Redsync to one node: at most closeWindow of them
// are unanswered at any time. The others wait in the order in which they came. Without a
// pace the pool would refuse most of fifty thousand releases that are sent at once.
type pace struct {
	mu      sync.Mutex
	sent    int // unanswered
	waiting []*release
}

// enter reports whether rel may be sent at once. Otherwise rel waits: leave sends it.
func (p *pace) enter(rel *release) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent >= closeWindow || len(p.waiting) > 0 {
		p.waiting = append(p.waiting, rel)
		return false
	}
	p.sent++
	return true
}

// leave frees the room of a release that has been answered or refused, and sends those
// that have waited for it. It is a loop and not a recursion, because a pool may refuse
// every one of them.
func (p *pace) leave(i int) {
	for rel := p.replace(); rel != nil; rel = p.replace() {
		if rel.transmit(i, nil) {
			return
		}
	}
}

// replace gives the room of a release to the next one, and returns that.
func (p *pace) replace() *release {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		p.sent--
		return nil
	}
	rel := p.waiting[0]
	p.waiting[0] = nil
	p.waiting = p.waiting[1:]
	return rel
}

// putBack makes rel, which the pool has refused because the node owes too much to others,
// the next to be sent, if the reply to another release will say when. It gives up the
// room of rel then.
func (p *pace) putBack(rel *release, refusal error) bool {
	if outstanding := (*pool.OutstandingError)(nil); !errors.As(refusal, &outstanding) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent < 2 {
		return false
	}
	p.sent--
	p.waiting = append([]*release{rel}, p.waiting...)
	return true
}
