package lease

import (
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// This file keeps what forced.go must know of a lease.

// doubters are the leases of a Keeper that listen, or whose claim was found missing on a node.
type doubters struct {
	mu sync.Mutex // guards what follows; it comes last
	by map[*Lease]doubts
}

// doubts are those of one lease.
type doubts struct {
	asks chan struct{} // somebody doubts; nil if nothing is asked
	cut  func()        // ends the question under way, so that it is asked anew; nil if it must not end
	told bool          // a message says that the lease was released by force, or may have said so; see Doubt
	gone claim.Nodes   // see noteGone
	when time.Duration // noteGone was last called then, by the monotonic clock
}

// change changes what a lease has, and returns it. It changes nothing if the lease does not listen.
func (d *doubters) change(of *Lease, change func(*doubts)) doubts {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, ok := d.by[of]
	if ok {
		change(&now)
		d.by[of] = now
	}
	return now
}

// add reports false if the lease is there already.
func (d *doubters) add(of *Lease) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, there := d.by[of]; there {
		return false
	}
	if d.by == nil {
		d.by = make(map[*Lease]doubts)
	}
	d.by[of] = doubts{}
	return true
}

func (d *doubters) remove(of *Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.by, of)
}

// goneBefore is how long before a question an answer counts that found the claim missing. If no such answer came for that
// long, noteGone forgets those before.
const goneBefore = time.Second

// noteGone notes that the claim of a lease was missing on a node, although an extension may have set it again there.
func (d *doubters) noteGone(of *Lease, node int) {
	d.change(of, func(d *doubts) {
		now := clock.Now().Mono
		if d.when < now-goneBefore {
			d.gone = 0
		}
		d.gone, d.when = d.gone.With(node), now
	})
}

// goneSince returns the nodes of noteGone, if it was called since then, by the monotonic clock, and told.
func (d *doubters) goneSince(of *Lease, then time.Duration) (nodes claim.Nodes, told bool) {
	now := d.change(of, func(*doubts) {})
	if now.when < then {
		return 0, now.told
	}
	return now.gone, now.told
}
