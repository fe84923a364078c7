package quorum

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
)

// origin is what roundTimers count from: the time since then needs one clock, and time.Now reads two.
var origin = time.Now()

// Limits say how long a round may take.
type Limits struct {
	Decide time.Duration   // after this an undecided round is given up
	Node   time.Duration   // the node deadline
	Over   <-chan struct{} // the round is given up when it closes; or nil

	// An undecided round waits until Open for connections, and until Reach for the answer to a greeting; not if Open is
	// 0. Far bounds the node deadline of a far node.
	Open, Reach, Far time.Duration
}

// A process whose timer fires stoodStill too late was stopped, or got no processor. Answers that have come meanwhile have
// catchUp to be read.
const (
	stoodStill = 50 * time.Millisecond
	catchUp    = 100 * time.Millisecond
)

// A roundTimer lets a caller wait for a round, and is used again. Its timer is left alone while it fires early enough:
// a reset is expensive.
type roundTimer struct {
	decided chan struct{} // has room for one, so Decided does not block

	mu       sync.Mutex    // guards what follows
	round    *Round        // nil while nobody waits
	began    time.Duration // when the caller began to wait
	hastened time.Duration // the deadline is not later; zero for none
	patient  time.Duration // hastened is not later, and earlier if nodes are silent
	took     time.Duration // from began until the round was hastened
	deadline time.Duration // zero until there is a wait
	caughtUp bool          // the wait has been prolonged by catchUp
	limits   Limits
	timer    *time.Timer
	fires    time.Duration // when timer does
}

// Decided tells the caller that the round is decided, or its deadline has come.
func (t *roundTimer) Decided() { t.decided <- struct{}{} }

func (t *roundTimer) start(r *Round, l Limits) {
	t.mu.Lock()
	defer t.mu.Unlock()
	after := l.Decide
	t.round, t.limits, t.caughtUp = r, l, false
	t.began = time.Since(origin)
	t.deadline = t.began + min(after, math.MaxInt64/2) // the sum must not overflow
	t.patient = min(t.patient, t.deadline)
	t.armInTimeLocked(after)
}

// hasten makes the deadline come soon. silent is how long all missing nodes have been. It returns how soon at the
// latest, and whether that is sooner.
func (t *roundTimer) hasten(silent time.Duration, late *lateNodes) (soon time.Duration, sooner bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Since(origin)
	before := t.hastened
	if before == 0 {
		if t.began != 0 {
			t.took = now - t.began
		}
		t.patient = now + late.patience(t.took)
		if t.deadline != 0 {
			t.patient = min(t.patient, t.deadline)
		}
		t.hastened = t.patient
	}
	t.hastened = min(t.hastened, now+max(t.took+late.patience(t.took)-silent, 0))
	soon, sooner = max(t.hastened-now, 0), t.hastened != before
	if sooner && t.deadline != 0 {
		t.armInTimeLocked(soon)
	}
	return soon, sooner
}

// postpone makes the deadline come later if a missing node has answered since hasten, and returns for how much longer
// the round is patient. Without hasten it is not.
func (t *roundTimer) postpone(silent time.Duration, late *lateNodes) (left time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Since(origin)
	left = min(t.took+late.patience(t.took)-silent, t.patient-now)
	if left <= 0 {
		return 0
	}
	t.hastened = now + left
	t.deadline = t.hastened
	t.armLocked(left)
	return left
}

func (t *roundTimer) limitsOfRound() (l Limits, began time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.limits, time.Since(origin) - t.began
}

func (t *roundTimer) prolong(left time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deadline = time.Since(origin) + left
	t.armLocked(left)
}

func (t *roundTimer) armInTimeLocked(after time.Duration) {
	if t.hastened != 0 && t.hastened < t.deadline {
		t.deadline, after = t.hastened, t.hastened-time.Since(origin)
	}
	if t.fires == 0 || t.deadline < t.fires {
		t.armLocked(after)
	}
}

func (t *roundTimer) armLocked(after time.Duration) {
	t.fires = t.deadline
	if t.timer == nil {
		t.timer = time.AfterFunc(after, t.fire)
		return
	}
	t.timer.Reset(after)
}

// stop retires t: the round, which was given up, may still call Decided. A running timer would keep it in memory,
// perhaps for hours.
func (t *roundTimer) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer.Stop()
	t.round = nil
}

func (t *roundTimer) fire() {
	if r := t.due(); r != nil {
		r.expire()
	}
}

// due returns the round if its deadline has come. Otherwise the timer runs on while there is a wait.
func (t *roundTimer) due() *Round {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fires = 0
	if t.round == nil || t.deadline == 0 {
		return nil
	}
	now := time.Since(origin)
	if now-t.deadline >= stoodStill && !t.caughtUp {
		t.caughtUp, t.deadline = true, now+catchUp
	}
	if left := t.deadline - now; left > 0 {
		t.armLocked(left)
		return nil
	}
	return t.round
}

// roundTimers keeps timers that can be used again.
type roundTimers struct{ unused sync.Pool }

func (ts *roundTimers) get() *roundTimer {
	if t, ok := ts.unused.Get().(*roundTimer); ok {
		return t
	}
	return &roundTimer{decided: make(chan struct{}, 1)}
}

// put takes back a timer whose round has called Decided, and so will not again.
func (ts *roundTimers) put(t *roundTimer) {
	t.mu.Lock()
	t.round, t.began, t.hastened, t.patient, t.took, t.deadline, t.limits = nil, 0, 0, 0, 0, 0, Limits{}
	t.mu.Unlock()
	ts.unused.Put(t)
}

// A split acquire waits for nodes that are not late: patienceFactor times as long as a quorum took to answer, within
// these limits. So it does not give up on nodes as far away as others. A node that answers within maxFar is not late:
// acquires wait a little longer for it.
const (
	patienceFactor = 4
	minPatience    = 20 * time.Millisecond
	maxPatience    = 250 * time.Millisecond
	maxFar         = 100 * time.Millisecond
)

// patience returns how long to wait for missing nodes after a quorum has answered in that time.
func (l *lateNodes) patience(took time.Duration) time.Duration {
	far := time.Duration(l.far.Load())
	return min(max(patienceFactor*took, far+far/4-took, minPatience), maxPatience)
}

// lateNodes are nodes for which a round has waited in vain, or whose connection has failed. A node is late until it
// answers a round before the decision, or soon after it.
type lateNodes struct {
	nodes atomic.Uint64
	far   atomic.Int64 // the longest answer within maxFar that came after an acquire's patience
}

func (l *lateNodes) load() claim.Nodes     { return claim.Nodes(l.nodes.Load()) }
func (l *lateNodes) add(nodes claim.Nodes) { l.nodes.Or(uint64(nodes)) }

// answered notes an answer that long after the acquire began, when nobody waited.
func (l *lateNodes) answered(i int, took time.Duration) {
	if took > maxFar {
		l.add(claim.Nodes(0).With(i))
		return
	}
	for far := l.far.Load(); int64(took) > far && !l.far.CompareAndSwap(far, int64(took)); far = l.far.Load() {
	}
	l.remove(i)
}

func (l *lateNodes) remove(i int) { l.nodes.And(^uint64(claim.Nodes(0).With(i))) }
