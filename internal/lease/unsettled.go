package lease

import (
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// unsettled is the list of the releases that some node has not settled. Close waits for them, and says which are left.
type unsettled struct {
	mu  sync.Mutex // guards what follows, and the seats of the releases
	all []unended  // in no order

	// While Close counts them:
	counts  bool
	open    int           // releases that no quorum has confirmed, and that have not ended
	partial int           // releases that some node has not confirmed, and that have not ended
	changed chan struct{} // has an element when open or partial may have become 0
	left    []left        // releases that have ended, although not all nodes have confirmed them
	errs    []error       // by node: why its last release failed
}

// An unended is a release that has not ended.
type unended struct {
	*Release
	won, complete bool // a quorum, and all nodes, have confirmed it: known only while Close counts
}

// A seat is the index of a release in unsettled.all, which guards it; noSeat once the release has ended.
type seat int32

const noSeat seat = -1

// A left is a release that has ended, with the nodes that have not confirmed it.
type left struct {
	*Release
	nodes     claim.Nodes
	confirmed bool // by a quorum
}

func (u *unsettled) add(rel *Release) {
	u.mu.Lock()
	defer u.mu.Unlock()
	rel.seat = seat(len(u.all)) //nolint:gosec // so many do not fit into the memory
	u.all = append(u.all, unended{Release: rel})
	if u.counts {
		u.open++
		u.partial++
		u.countLocked(&u.all[rel.seat])
	}
}

// remove takes off a release. Every node has settled it, or it has given up the others.
func (u *unsettled) remove(rel *Release) {
	u.mu.Lock()
	defer u.mu.Unlock()
	end := len(u.all) - 1
	was := u.all[rel.seat]
	u.all[rel.seat] = u.all[end] // the last release gets its seat
	u.all[rel.seat].seat = rel.seat
	rel.seat = noSeat
	u.all[end] = unended{}
	u.all = u.all[:end]
	if !u.counts {
		return
	}
	if nodes := rel.unconfirmed(); nodes != 0 {
		u.left = append(u.left, left{rel, nodes, rel.isConfirmed()})
	}
	u.noteLocked(&was, true, true)
}

// noteLocked notes that Close need not wait any more for a quorum to confirm rel, or for all nodes.
func (u *unsettled) noteLocked(rel *unended, won, complete bool) {
	if won && !rel.won {
		rel.won = true
		u.open--
	}
	if complete && !rel.complete {
		rel.complete = true
		u.partial--
	}
	if u.open == 0 || u.partial == 0 {
		select {
		case u.changed <- struct{}{}:
		default:
		}
	}
}

// begin begins to count for what Close waits.
func (u *unsettled) begin(nodes int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.counts, u.changed, u.errs = true, make(chan struct{}, 1), make([]error, nodes)
	for i := range u.all {
		u.open++
		u.partial++
		u.countLocked(&u.all[i])
	}
}

// progressed notes that one more node may have confirmed a release, which may have ended.
func (u *unsettled) progressed(rel *Release) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.counts && rel.seat != noSeat {
		u.countLocked(&u.all[rel.seat])
	}
}

// countLocked notes who has confirmed rel.
func (u *unsettled) countLocked(rel *unended) {
	u.noteLocked(rel, rel.isConfirmed(), rel.unconfirmed() == 0)
}

// failed notes why a release has failed on node i.
func (u *unsettled) failed(i int, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.counts && err != nil {
		u.errs[i] = err
	}
}

// count returns how many releases some node has not settled.
func (u *unsettled) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.all)
}

// partials returns how many releases some node has not confirmed.
func (u *unsettled) partials() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.partial
}

// keepTimes begins to keep the times that say when the keys of all releases have run out.
func (u *unsettled) keepTimes() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.all {
		u.all[i].lease.writes.keepTime()
	}
}

// opens returns how many releases no quorum has confirmed, and for how much longer a key of them may last. lasts is negative
// if all of these keys must have run out.
func (u *unsettled) opens(now clock.Instant) (open int, lasts time.Duration) {
	lasts = -1
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.all {
		if rel := &u.all[i]; !rel.won {
			lasts = max(lasts, rel.lasts(now))
		}
	}
	return u.open, lasts
}

// rest returns what is left of all releases: those that have ended without all nodes, and those that go on.
func (u *unsettled) rest() (all []left, errs []error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.counts = false // what ends now has its place in all
	all = u.left
	for _, rel := range u.all {
		if nodes := rel.unconfirmed(); nodes != 0 {
			all = append(all, left{rel.Release, nodes, rel.isConfirmed()})
		}
	}
	u.left = nil
	return all, u.errs
}
