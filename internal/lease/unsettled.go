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

// A cleaner is a release, as Close sees it.
type cleaner interface {
	// unconfirmed returns the nodes that have not executed it, of those that may have the value.
	unconfirmed() claim.Nodes

	// isConfirmed reports whether a quorum has executed it: no key that it releases is left there.
	isConfirmed() bool

	// keepTime begins to keep the time that lasts needs.
	keepTime()

	// lasts returns for how much longer a key that it releases may last. It is negative if all must have run out.
	lasts(now clock.Instant) time.Duration

	// of returns the name of its claim, and who is told what becomes of it; nil for nobody.
	of() (name string, to Events)

	// isAttempt reports whether it releases what a failed attempt may have left.
	isAttempt() bool
}

// An unended is a release that has not ended.
type unended struct {
	cleaner
	seat *seat

	won, complete bool // a quorum, and all nodes, have confirmed it: known only while Close counts
}

// A seat is the index of a release in unsettled.all, which guards it; noSeat once the release has ended.
type seat int32

const noSeat seat = -1

// A left is a release that has ended, with the nodes that have not confirmed it.
type left struct {
	cleaner
	nodes     claim.Nodes
	confirmed bool // by a quorum
}

// add adds a release, and keeps its seat up to date.
func (u *unsettled) add(rel cleaner, at *seat) {
	u.mu.Lock()
	defer u.mu.Unlock()
	*at = seat(len(u.all)) //nolint:gosec // so many do not fit into the memory
	u.all = append(u.all, unended{cleaner: rel, seat: at})
	if u.counts {
		u.open++
		u.partial++
		u.countLocked(&u.all[*at])
	}
}

// remove takes off the release with a seat. Every node has settled it, or it has given up the others.
func (u *unsettled) remove(at *seat) {
	u.mu.Lock()
	defer u.mu.Unlock()
	end := len(u.all) - 1
	rel := u.all[*at]
	u.all[*at] = u.all[end] // the last release gets its seat
	*u.all[*at].seat = *at
	*at = noSeat
	u.all[end] = unended{}
	u.all = u.all[:end]
	if !u.counts {
		return
	}
	if nodes := rel.unconfirmed(); nodes != 0 {
		u.left = append(u.left, left{rel.cleaner, nodes, rel.isConfirmed()})
	}
	u.noteLocked(&rel, true, true)
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

// progressed notes that one more node may have confirmed the release with a seat.
func (u *unsettled) progressed(at *seat) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.counts && *at != noSeat {
		u.countLocked(&u.all[*at])
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
		u.all[i].keepTime()
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
			rel.keepTime()
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
			all = append(all, left{rel.cleaner, nodes, rel.isConfirmed()})
		}
	}
	u.left = nil
	return all, u.errs
}
