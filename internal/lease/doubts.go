package lease

import (
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// This file keeps what leases have that listen: see forced.go.

// doubters are the leases of a Keeper that listen. To keep the files apart, it knows no Lease.
type doubters struct {
	mu sync.Mutex // guards what follows; it comes last
	by map[any]doubts
}

// doubts are those of one lease.
type doubts struct {
	asks chan struct{} // somebody doubts; nil if nothing is asked
	gone time.Duration // see noteGone; 0 if it was not called
}

// change changes what a lease has, and returns it. It reports false if the lease does not listen.
func (d *doubters) change(of any, change func(*doubts)) (now doubts, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now, ok = d.by[of]; ok {
		change(&now)
		d.by[of] = now
	}
	return now, ok
}

func (d *doubters) add(of any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.by == nil {
		d.by = make(map[any]doubts)
	}
	d.by[of] = doubts{}
}

func (d *doubters) remove(of any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.by, of)
}

// noteGone notes that the nodes have proved the claim of a lease missing, although extensions set it again.
func (d *doubters) noteGone(of any) {
	d.change(of, func(d *doubts) { d.gone = clock.Now().Mono })
}

// wasGoneSince reports whether noteGone was called since then, by the monotonic clock.
func (d *doubters) wasGoneSince(of any, then time.Duration) bool {
	now, _ := d.change(of, func(*doubts) {})
	return now.gone != 0 && now.gone >= then
}
