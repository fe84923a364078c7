package quorum

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
)

// This file is the deadline of a round, and how long an acquire waits for late nodes.

// origin is what the times of a roundTimer count from. The time since then needs one clock, and time.Now reads two.
var origin = time.Now()

// Limits say how long a round may take.
type Limits struct {
	Decide time.Duration   // after this an undecided round is given up
	Node   time.Duration   // the node deadline
	Over   <-chan struct{} // the round is given up when this is closed; may be nil

	// An undecided round waits for connections that are being opened until Open, and for an answer to a greeting until
	// Reach. Far bounds the node deadline of a node that is known to be far. If Open is 0, the round does none of that.
	Open, Reach, Far time.Duration
}

// A roundTimer lets a caller wait for a round, and is used again for others. Its timer is left alone for as long as it
// fires early enough: most rounds end long before their deadline, and resetting a timer is expensive.
type roundTimer struct {
	decided chan struct{} // has room for one

	mu       sync.Mutex    // guards what follows
	round    expirer       // nil while unused
	began    time.Duration // when the caller began to wait; zero until then
	hastened time.Duration // the deadline is not later; zero for none
	patient  time.Duration // hastened is not later; it is earlier while nodes are silent
	took     time.Duration // from began until the round was hastened
	deadline time.Duration // zero until the round is waited for
	limits   Limits        // of the round
	timer    *time.Timer
	fires    time.Duration // when timer does; zero when it is not running
}

// Decided tells the caller that the round is decided, or its deadline has come.
func (t *roundTimer) Decided() { t.decided <- struct{}{} }

func (t *roundTimer) start(l Limits) {
	t.mu.Lock()
	defer t.mu.Unlock()
	after := l.Decide
	t.limits = l
	t.began = time.Since(origin)
	t.deadline = t.began + min(after, math.MaxInt64/2) // the sum must not overflow
	t.patient = min(t.patient, t.deadline)
	t.armInTimeLocked(after)
}

// hasten makes the deadline come soon, because the votes are split, or nobody has proved a loss yet. All missing nodes
// have been silent for that long. It returns how soon the deadline is at the latest, and whether that is sooner than
// before.
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
	// An earlier request may have been sent to these nodes.
	t.hastened = min(t.hastened, now+max(t.took+late.patience(t.took)-silent, 0))
	soon, sooner = max(t.hastened-now, 0), t.hastened != before
	if sooner && t.deadline != 0 {
		t.armInTimeLocked(soon)
	}
	return soon, sooner
}

// postpone makes the deadline come later if a missing node has answered since hasten. It returns for how much longer
// the round is patient: 0 if its patience is over, or if the deadline has come without hasten, because patient is no
// later then.
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

// limitsOfRound returns the limits, and how long ago the caller began to wait.
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

// armInTimeLocked makes the timer fire at the deadline, which is after from now, or earlier if the round is hastened.
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

// stop retires a roundTimer whose caller has given up the round, which may still call Decided. A timer that ran on
// would keep the round in memory until its deadline, perhaps for hours.
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

// due returns the round if its deadline has come. Otherwise it keeps the timer running while the round is waited for.
func (t *roundTimer) due() expirer {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fires = 0
	if t.round == nil || t.deadline == 0 {
		return nil
	}
	if left := t.deadline - time.Since(origin); left > 0 {
		t.armLocked(left)
		return nil
	}
	return t.round
}

// An expirer is a round that expire gives up at its deadline.
type expirer interface{ expire() }

// roundTimers keeps timers that can be used again.
type roundTimers struct{ unused sync.Pool }

func (ts *roundTimers) get(r expirer) *roundTimer {
	t, ok := ts.unused.Get().(*roundTimer)
	if !ok {
		t = &roundTimer{decided: make(chan struct{}, 1)}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.round, t.began, t.hastened, t.patient, t.took, t.deadline = r, 0, 0, 0, 0, 0
	return t
}

// put takes back a roundTimer whose round has called Decided, and will not call it again.
func (ts *roundTimers) put(t *roundTimer) {
	t.mu.Lock()
	t.round, t.limits = nil, Limits{}
	t.mu.Unlock()
	ts.unused.Put(t)
}

// An acquire whose votes are split waits for nodes that are not late: patienceFactor times as long as a quorum took to
// answer, within these limits. So it does not give up on nodes that are as far away as others. A longer wait would
// delay everybody while each process learns which node is late.
//
// A node that answers within maxFar is not late either: acquires wait for it a little longer than its answer took.
const (
	patienceFactor = 4
	minPatience    = 20 * time.Millisecond
	maxPatience    = 250 * time.Millisecond
	maxFar         = 100 * time.Millisecond
)

// patience returns how long an acquire waits for late nodes after a quorum has answered in the time took.
func (l *lateNodes) patience(took time.Duration) time.Duration {
	far := time.Duration(l.far.Load())
	return min(max(patienceFactor*took, far+far/4-took, minPatience), maxPatience)
}

// lateNodes are the nodes for which a round has waited in vain, or whose connection has failed. A node is late until it
// answers a round before the decision, or soon after it.
type lateNodes struct {
	nodes atomic.Uint64
	far   atomic.Int64 // the longest answer of a node that is not late, but came after an acquire's patience
}

func (l *lateNodes) load() claim.Nodes     { return claim.Nodes(l.nodes.Load()) }
func (l *lateNodes) add(nodes claim.Nodes) { l.nodes.Or(uint64(nodes)) }

// answered notes an answer of node i that long after the acquire began, when nobody waited for it any more.
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
