package lease

import (
	"errors"
	"sync"

	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// closeWindow bounds how many releases may be unanswered at one node during Close. That many keep a
// connection busy. It is far below the limit at which a pool refuses even reserved requests, because
// several Redsyncs on the same clients may close at once.
const closeWindow = 1024

// A drain sends the releases of a closing Redsync to one node: at most closeWindow of them
// are unanswered at any time. The others wait in the order in which they came or were put back. Without a
// drain the pool would refuse a third of fifty thousand releases that are sent at once.
type drain struct {
	mu      sync.Mutex // guards what follows
	sent    int        // unanswered
	waiting []*Release
}

// enter reports whether rel may be sent at once. Otherwise rel waits until leave sends it.
func (d *drain) enter(rel *Release) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sent >= closeWindow || len(d.waiting) > 0 {
		d.waiting = append(d.waiting, rel)
		return false
	}
	d.sent++
	return true
}

// leave frees the place of a release that has been answered or refused, and sends the next waiting release.
// It is a loop, because the pool may refuse every waiting release in turn: a recursion would get too deep.
func (d *drain) leave(i int) {
	for rel := d.replace(); rel != nil; rel = d.replace() {
		if rel.transmit(i, nil) {
			return
		}
	}
}

// replace gives the freed place to the next waiting release, and returns that release. If none waits,
// replace returns nil.
func (d *drain) replace() *Release {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) == 0 {
		d.sent--
		return nil
	}
	rel := d.waiting[0]
	d.waiting[0] = nil
	d.waiting = d.waiting[1:]
	return rel
}

// putBack is for a release that the pool has refused because too many replies are outstanding. It puts rel
// behind the waiting releases, gives up its place and reports true. The reply to another
// release of the drain then sends the first of them. If no other release is under way, or if the pool refused
// for another reason, putBack does nothing and reports false.
func (d *drain) putBack(rel *Release, refusal error) bool {
	if outstanding := (*wire.OutstandingError)(nil); !errors.As(refusal, &outstanding) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sent < 2 {
		return false
	}
	d.sent--
	d.waiting = append(d.waiting, rel)
	return true
}
