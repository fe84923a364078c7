// Package lease implements one term of holding a claim: from the attempt that acquires it to its release on every node.
//
// Everything that may come late (a reply, an extension, a release, a timer) names its lease, so that it cannot hurt a
// newer one.
//
// Locks are taken in this order:
//
//	redsync.Mutex.mu, redsync.nest.mu, queue.lines.mu, queue.subscriber.mu, watchdog.mu, quorum.Round.mu, valueLog.mu, sharing.mu,
//	Lease.mu, alarm.Schedule.mu
//
// Before all of these come alarm.Schedule.firing, then Lease.extending; and the lock of queue's keepTicket. All other
// locks (unsettled.mu, rareWrites.mu, drain.mu, those of events, nodes and tokens) come last. Under one of them no
// further lock is taken, except rareWrites.mu under unsettled.mu, and the queue of events under quorum.Health.mu.
//
// No lock of the list is held while a pool or an observer is called, except that the subscriber opens a subscription,
// the watchdog sends its round, and a round sends again, each under its own mu.
package lease

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/alarm"
	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
)

// A State says where a lease is in its life. No transition goes back, whatever the clocks do.
type State uint8

// The states of a lease.
const (
	Acquiring State = iota // not begun: being acquired, or just handed over or adopted
	Held                   // the holder may rely on it
	Past                   // its validity was seen to have ended: a clock set back does not revive it
	Over                   // was held, and has ended
	Dropped                // ended without having been held
)

// A Lease is one term of holding a claim.
type Lease struct {
	First clock.Instant // of its attempt, or of the hand-over
	Try   int32         // retry delays that had elapsed, plus 1; 0 if adopted or handed over
	seat  int32         // index in sharing.leases; guarded by sharing.mu

	terms *Terms
	chain time.Duration // for how long the lock had been handed on before l got it

	// extending makes End wait for extensions under way, so that a release follows the last. Extend holds it for reading,
	// End takes it for writing.
	extending atomic.Pointer[sync.RWMutex] // see extensions

	mu       sync.Mutex // guards what follows
	state    State
	fills    uint8 // see fill.go
	outlived bool  // the keys stay for a minimal hold after Unlock
	isLost   bool
	hears    bool
	value    exposure
	claim    claim.Claim
	validity Validity
	rareEnd  *rareEnd    // noRareEnd until needEndLocked
	expiry   alarm.Alarm // in Keeper.expiries
	watchdog *watchdog   // nil without Terms.Watchdog

	shares    atomic.Pointer[sharing] // nil if nobody can join l; not guarded
	writes    *writes                 // shared with the lease that l continues
	ownWrites writes
	room      claim.Room
	rare      *rareLease // noRareLease until it is needed
}

// A rareEnd is what a lease has that was lost, or whose end somebody waits for. Lease.mu guards it.
type rareEnd struct {
	cause     error // why it is over; nil after Unlock and Detach
	loss      error // the error of Err, made once
	missed    *quorum.Result
	ended     signal // closed when Past, Over or Dropped
	lost      signal // closed when Past, or Over or Dropped for a cause
	listeners listeners
	doubts    *doubts
	room      [1]Listener // for listeners
}

// noRareEnd is shared, and never changes.
var noRareEnd rareEnd

func (l *Lease) needEndLocked() *rareEnd {
	if l.rareEnd == &noRareEnd {
		l.rareEnd = &rareEnd{}
	}
	return l.rareEnd
}

// New returns a lease with a value, for an attempt that counts from start.
func New(t *Terms, value string, start clock.Instant) *Lease {
	l, nodes, _ := claim.WithRoom[Lease, atomic.Int64, struct{}](len(t.Keeper.Set.Nodes))
	l.First, l.terms, l.rareEnd, l.rare = start, t, &noRareEnd, &noRareLease
	l.claim = t.Claim.With(value, &l.room)
	_, validity := t.Timing.AtAge(0)
	l.validity = Validity{Start: start, Length: validity}
	l.value.shown = t.UserValues
	l.writes = &l.ownWrites
	l.writes.nodes = nodes
	return l
}

// Adopt returns a lease whose value was acquired elsewhere: any node may hold it, or be about to. The former holder has
// sent each node one command that sets it, or several if it heals or takes a fencing token.
func Adopt(t *Terms, value string, start clock.Instant) *Lease {
	l := New(t, value, start)
	l.value.shown = true
	left := int64(oneSent | anyLost)
	if t.Heals || t.Fencing {
		left += oneSent
	}
	for i := range l.writes.nodes {
		l.writes.nodes[i].Store(left)
	}
	return l
}

// Terms returns the terms of l.
func (l *Lease) Terms() *Terms { return l.terms }

// Claim returns what l writes on the nodes.
func (l *Lease) Claim() claim.Claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.claim
}

// Replace gives l another claim, which all later commands use.
func (l *Lease) Replace(c claim.Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claim = c
}

// Begun reports whether l was ever held.
func (l *Lease) Begun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begunLocked()
}

func (l *Lease) begunLocked() bool { return l.state == Held || l.state == Past || l.state == Over }

func (l *Lease) sharing() *sharing { return l.shares.Load() }

// spoil keeps others from joining. The caller may hold Lease.mu.
func (l *Lease) spoil() {
	if s := l.sharing(); s != nil {
		s.spoiled.Store(true)
	}
}

// moveLocked alone changes the state.
func (l *Lease) moveLocked(to State, cause error) {
	if l.state == Past || l.state == Over {
		l.validity = Validity{}
	}
	l.state = to
	if cause != nil {
		l.needEndLocked().cause = cause
		l.spoil()
	}
	if to == Held {
		return
	}
	l.rareEnd.ended.close()
	if to == Past || cause != nil {
		l.tellLostLocked()
	}
	if to == Past && len(l.rareEnd.listeners) > 0 {
		go slices.Clone(l.rareEnd.listeners).tell(l.rareEnd.loss) // the caller has locked l.mu, and perhaps more
	}
}

func (l *Lease) tellLostLocked() {
	if l.isLost {
		return
	}
	l.isLost = true
	l.rareEnd.lost.close()
	if !l.begunLocked() {
		return
	}
	loss := l.lossLocked() // even without observers: a later cause must not change it
	if l.terms.Events != nil {
		l.terms.Events.Lost(l, clock.Now().Since(l.First), loss)
	}
}

// NotHeld returns why l may not be relied upon at now, nil while it may. If the time is up, it makes a held lease past,
// or drops an attempt. That closes Lost.
func (l *Lease) NotHeld(now clock.Instant) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.notHeldLocked(now)
}

func (l *Lease) notHeldLocked(now clock.Instant) error {
	switch {
	case (l.state == Over || l.state == Dropped) && l.rareEnd.cause == nil:
		return l.terms.Keeper.Errors.NotHeld
	case l.state == Over || l.state == Dropped:
		return l.rareEnd.cause
	case l.state != Past && l.validity.Holds(now):
		return nil
	case l.state == Acquiring:
		l.moveLocked(Dropped, l.expiredLocked())
	case l.state == Held:
		l.moveLocked(Past, nil)
	}
	return l.expiredLocked()
}

func (l *Lease) expiredLocked() error {
	if l.spentLocked() {
		return l.terms.Keeper.Errors.MaxHold
	}
	return l.terms.Keeper.Errors.Expired
}

func (l *Lease) spentLocked() bool {
	limit := l.terms.Timing.MaxHold
	return limit != 0 && l.validity.Length >= limit-l.validity.Start.Since(l.First)
}

func (l *Lease) lossLocked() error {
	w := l.needEndLocked()
	if w.loss == nil {
		why := l.rareEnd.cause
		if why == nil {
			why = l.expiredLocked()
		}
		w.loss = l.terms.Keeper.Errors.Lost(why, w.missed)
	}
	return w.loss
}

// noteMissed notes the watchdog's last round, nil if it was won, for the error of a loss.
func (l *Lease) noteMissed(res *quorum.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if res != nil || l.rareEnd != &noRareEnd {
		l.needEndLocked().missed = res
	}
}

// Loss returns why l was lost, nil if nobody has found that yet; even after Unlock, unlike Err.
func (l *Lease) Loss() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begunLocked() {
		return nil
	}
	return l.rareEnd.loss
}

// NoteLoss notes a loss that the release after Unlock has found.
func (l *Lease) NoteLoss(loss error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begunLocked() && l.rareEnd.loss == nil {
		l.needEndLocked().loss = loss
	}
}

// Err returns the error of Mutex.Err at now: nil while l is held.
func (l *Lease) Err(now clock.Instant) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.notHeldLocked(now)
	if err == nil || (l.state == Over || l.state == Dropped) && l.rareEnd.cause == nil {
		return err
	}
	return l.lossLocked()
}

// End ends l for a cause, and reports whether it had not ended before. A nil cause, as for Unlock and Detach, also
// hides the value. When End returns, the Listeners have been told, and no command that could set the value is on its
// way to a pool. Only alarm.Schedule.firing may be held.
func (l *Lease) End(cause error) (first bool) {
	l.mu.Lock()
	if cause == nil {
		l.value.hidden = true
	}
	first = l.endLocked(cause)
	all, loss := l.rareEnd.listeners, l.rareEnd.loss
	if len(all) > 0 {
		l.rareEnd.listeners = nil
	}
	l.mu.Unlock()
	if len(all) > 0 {
		all.tell(loss)
		clear(all)
	}
	l.terms.Keeper.expiries.Drop(&l.expiry)
	if x := l.extending.Load(); x != nil { // otherwise a later extension finds that l is over
		x.Lock()
		x.Unlock() //nolint:staticcheck // waits for extensions, which give up once l has ended
	}
	if l.watchdog != nil {
		l.watchdog.stop()
	}
	return first
}

// extensions returns extending, and makes it if need be. An earlier End has not waited for it: look whether l has ended
// once you have locked it.
func (l *Lease) extensions() *sync.RWMutex {
	if l.extending.Load() == nil {
		l.extending.CompareAndSwap(nil, &sync.RWMutex{})
	}
	return l.extending.Load()
}

// EndHeld ends l for Unlock or Detach, or returns why l may not be relied upon at now. No loss comes in between. End
// must follow: it waits for extensions, and drops the alarms.
func (l *Lease) EndHeld(now clock.Instant) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.notHeldLocked(now); err != nil {
		return err
	}
	l.value.hidden = true
	l.endLocked(nil)
	return nil
}

func (l *Lease) endLocked(cause error) (first bool) {
	switch l.state {
	case Over, Dropped:
		return false
	case Acquiring:
		l.moveLocked(Dropped, cause)
	case Held, Past:
		l.outlived = l.state == Held && cause == nil && l.terms.Timing.MinHold > 0
		l.fills = 0
		l.moveLocked(Over, cause)
	}
	return true
}

// EndLate makes l, which Detach has ended, lost if the validity has ended at now. It returns how long l is still valid,
// or why not.
func (l *Lease) EndLate(now clock.Instant) (left time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if left := l.validity.Remaining(now); left > 0 {
		return left, nil
	}
	if l.state == Over && l.rareEnd.cause == nil {
		l.moveLocked(Over, l.terms.Keeper.Errors.Lost(l.expiredLocked(), nil))
	}
	return 0, l.notHeldLocked(now)
}

// Lose ends l because the nodes have disproved it, or cannot be asked. It nudges the waiters of its lines, and returns
// why.
func (l *Lease) Lose(why error) error {
	l.End(why)
	l.terms.Keeper.Waiters.Nudge(l.Claim().Lines())
	return why
}

// Abandon ends l for a cause. The Waiters release it, because they admit the next waiter with that.
func (l *Lease) Abandon(cause error) {
	l.End(cause)
	l.terms.Keeper.Waiters.ReleaseAndAdmit(l)
}

// A Listener is told when a lease is past or has ended.
type Listener interface {
	// Ended must not wait. loss is nil after Unlock and Detach.
	Ended(loss error)
}

type listeners []Listener

func (all listeners) tell(loss error) {
	for _, to := range all {
		to.Ended(loss)
	}
}

// Listen makes l, which has begun, tell the Listener when it is past, and when it ends; at once if it is so already.
// End tells it before anything is sent that releases l.
func (l *Lease) Listen(to Listener) {
	l.mu.Lock()
	over := l.notHeldLocked(clock.Now()) != nil
	if !over {
		w := l.needEndLocked()
		if w.listeners == nil {
			w.listeners = w.room[:0]
		}
		w.listeners = append(w.listeners, to)
	}
	loss := l.rareEnd.loss
	l.mu.Unlock()
	if over {
		to.Ended(loss)
	}
}

// Forget undoes Listen.
func (l *Lease) Forget(to Listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.rareEnd
	if w.listeners == nil {
		return // End has taken them
	}
	w.listeners = slices.DeleteFunc(w.listeners, func(other Listener) bool { return other == to })
	if w.room[0] == to {
		w.room[0] = nil
	}
}

// Remaining returns for how much longer l may be relied upon.
func (l *Lease) Remaining(now clock.Instant) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.notHeldLocked(now) != nil {
		return 0
	}
	return l.validity.Remaining(now)
}

// Until returns the end of the validity, the zero time once l is over.
func (l *Lease) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == Over || l.state == Dropped {
		return time.Time{}
	}
	return l.validity.Until()
}

// WasValid reports whether the validity of l, which has ended, had not ended at now: NotHeld does not look at the
// clocks then. A lease that was never held has none to end.
func (l *Lease) WasValid(now clock.Instant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.begunLocked() || l.state != Past && l.validity.Holds(now)
}

// Done returns a channel that is closed when l is past or has ended.
func (l *Lease) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.needEndLocked().ended.channel(l.state != Acquiring && l.state != Held)
}

// Lost returns a channel that is closed when l is past, or has ended for a cause; already if that is so at now.
func (l *Lease) Lost(now clock.Instant) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.notHeldLocked(now)
	return l.needEndLocked().lost.channel(l.isLost)
}

// Token returns the fencing token of l, 0 if there is none.
func (l *Lease) Token() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rare.token
}

func (l *Lease) takeToken(token uint64) {
	l.mu.Lock()
	if l.rare == &noRareLease {
		l.rare = &rareLease{}
	}
	l.rare.token = token
	l.mu.Unlock()
	l.terms.Keeper.Tokens.Raise(l.terms.Claim.Lines(), token)
}

// An exposure says whether the user may have seen the value. If so, other code may rely on it: the lease is not handed
// over, and no later Lock releases its keys. A lease hides its value before that is decided.
type exposure struct {
	shown  bool
	hidden bool
}

// Value returns the value for the nodes. Show is for the user.
func (l *Lease) Value() string { return l.Claim().Value() }

// Show returns the value for the user; "" once it is hidden.
func (l *Lease) Show() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.showLocked()
}

// ShowHeld is Show while l may be relied upon, otherwise "".
func (l *Lease) ShowHeld(now clock.Instant) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.notHeldLocked(now) != nil {
		return ""
	}
	return l.showLocked()
}

func (l *Lease) showLocked() string {
	if l.value.hidden {
		return ""
	}
	l.value.shown = true
	l.spoil()
	return l.claim.Value()
}

// Hide stops the value from being shown, and reports whether nobody has seen it.
func (l *Lease) Hide() (private bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.value.hidden = true
	return !l.value.shown
}

// ClearAway releases what l, which has ended, left on the nodes, unless another Mutex may have the value.
func (l *Lease) ClearAway() {
	if l.Hide() {
		l.terms.Keeper.Waiters.ReleaseAndAdmit(l)
	}
}

// ClearUnlessDelayed is ClearAway for a lease whose time was up. With a lock delay, the keys are meant to stay.
func (l *Lease) ClearUnlessDelayed() {
	if l.terms.Timing.TTL == l.terms.Timing.Expiry {
		l.ClearAway()
	}
}

// Begin makes l held. From then on the Keeper's alarms extend, end and release it. An error says that the validity has
// ended, or Close has begun: observers hear of no loss.
func (l *Lease) Begin() error {
	if err := l.begin(); err != nil {
		return err
	}
	l.terms.Keeper.expiries.CompareClocks(max(min(l.terms.Timing.Expiry/10, time.Second), minCompare), l.First)
	if l.watchdog != nil {
		l.watchdog.start()
	}
	return nil
}

// minCompare bounds how often the clocks are compared. A shorter lease has its alarm soon anyway.
const minCompare = 10 * time.Millisecond

func (l *Lease) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.notHeldLocked(clock.Now()); err != nil {
		return err
	}
	l.expiry.What = l
	if l.terms.Watchdog {
		l.watchdog = newWatchdog(l)
	}
	at := l.validity.Start.After(l.validity.Length)
	var nodes nodeWrites
	for i := range l.writes.nodes {
		nodes |= nodeWrites(l.writes.nodes[i].Load())
	}
	// If l was handed over, a node may still refuse the acquire.
	if nodes&lacking != 0 || l.writes != &l.ownWrites && nodes.awaits() {
		at = l.nextFillLocked(at)
	}
	if l.terms.Owner != "" {
		at = l.hearByLocked(at)
	}
	if !l.terms.Keeper.expiries.Set(&l.expiry, at) { // from here on Close may end l
		return l.terms.Keeper.Errors.Closed
	}
	l.moveLocked(Held, nil)
	return nil
}

// Fire implements alarm.Firer: at the end of the validity, for a fill, to listen, after a step of the wall clock, and
// on Close.
func (l *Lease) Fire(closing bool) {
	if closing {
		l.close()
		return
	}
	left := l.Remaining(clock.Now())
	if left == 0 {
		l.fillOutlived()
		return
	}
	k := l.terms.Keeper
	if why := k.severed.Load(); why != nil {
		_ = l.Lose(*why)
		return
	}
	l.fillUp()
	if l.terms.Owner != "" {
		l.hear(clock.Now())
	}
	switch {
	case !l.setAlarm(time.Now().Add(left)): // Close came meanwhile
		l.close()
	case l.watchdog != nil: // a step of the wall clock may have left it little time
		l.watchdog.hasten(time.Now().Add(left / 2))
	}
}

func (l *Lease) setAlarm(at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == Held && l.fillsLocked() {
		at = l.nextFillLocked(at)
	}
	if l.state == Held && l.terms.Owner != "" {
		at = l.hearByLocked(at)
	}
	return l.terms.Keeper.expiries.Set(&l.expiry, at)
}

// close ends and releases l on Close, unless its time is up: another lease may have the lock with the same value, and
// with a lock delay the keys are meant to stay.
func (l *Lease) close() {
	k := l.terms.Keeper
	if l.Remaining(clock.Now()) == 0 {
		return
	}
	if !l.End(k.Errors.Lost(k.Errors.Closed, nil)) {
		return
	}
	k.Waiters.ReleaseAndAdmit(l)
}

// A signal is a channel that is closed at most once. Callers hold the mutex that guards it.
type signal struct{ c chan struct{} }

func (s *signal) close() {
	select {
	case <-s.c:
	default:
		if s.c != nil {
			close(s.c)
		}
	}
}

// channel returns the channel. closed says that close was called, perhaps before there was one.
func (s *signal) channel(closed bool) <-chan struct{} {
	if s.c == nil {
		s.c = make(chan struct{})
	}
	if closed {
		s.close()
	}
	return s.c
}
