package lease

import (
	"errors"
	"sync"

	"github.com/seed14bd9ef4/redsync/pool"
)

// closeWindow bounds how many releases may be unanswered at one node during Close. So many keep a
// connection busy. It is far below the limit at which a pool refuses even reserved requests, because
// several Redsyncs on the same clients may close at once.
const closeWindow = 1024

// A drain sends the releases of a closing Redsync to one node: at most closeWindow of them
// are unanswered at any time. The others wait in the order in which they came. Without a
// drain the pool would refuse most of fifty thousand releases that are sent at once.
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

// leave frees the place of a release that has been answered or refused, and sends a release that has waited
// for it. It loops, because a pool may refuse all of them one after another; a recursion would be as deep.
func (d *drain) leave(i int) {
	for rel := d.replace(); rel != nil; rel = d.replace() {
		if rel.transmit(i, nil) {
			return
		}
	}
}

// replace gives the place of a release to the next one that waits, and returns that one.
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

// putBack puts rel back at the head of the waiting releases if the pool has refused it because too many
// replies are outstanding. It gives up the place of rel and reports true. That needs another release under
// way, whose reply sends rel. Without one putBack reports false.
func (d *drain) putBack(rel *Release, refusal error) bool {
	if outstanding := (*pool.OutstandingError)(nil); !errors.As(refusal, &outstanding) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sent < 2 {
		return false
	}
	d.sent--
	d.waiting = append([]*Release{rel}, d.waiting...)
	return true
}
