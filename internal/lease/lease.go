// Package lease implements one term of holding a claim: from the attempt that acquires it to its release on
// every node.
//
// The state is in terms.go, keeper.go, lease.go and writes.go. Each operation can be read alone: acquire.go, extend.go,
// watchdog.go, release.go and so on. How replies count is in judge.go.
//
// Everything that may come late (a reply, an extension, a release, a timer) names its lease, so that
// it cannot hurt a newer one.
//
// Locks are taken in this order, from the first to the last:
//
//	redsync.Mutex.mu, redsync.nest.mu, queue.lines.mu, queue.subscriber.mu, watchdog.mu, quorum.Round.mu, valueLog.mu, sharing.mu,
//	Lease.mu, alarm.Schedule.mu
//
// Two locks come before all of these: alarm.Schedule.firing, and then Lease.extending. All other locks
// (unsettled.mu, rareWrites.mu, drain.mu, and those of events, nodes and tokens) come last: a goroutine that holds
// one of them takes no further lock, except that unsettled.mu comes before rareWrites.mu, and that a node's health queues
// an event under quorum.Health.mu. The lock of queue's keepTicket comes before all, too.
//
// No lock of the list above is held while a pool or an observer is called, with three exceptions. The
// subscriber opens a subscription under subscriber.mu. The watchdog sends its round under watchdog.mu. A
// round sends again under Round.mu.
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
	Acquiring State = iota // it has not begun: it is being acquired, or was just handed over or adopted
	Held                   // the holder may rely on it
	Past                   // its validity was seen to have ended: sticky, a clock set back does not revive it
	Over                   // it was held, and has ended
	Dropped                // it has ended without having been held
)

// A Lease is one term of holding a claim.
type Lease struct {
	First clock.Instant // the start of the attempt that acquired the lock, or when it was handed over
	Try   int32         // retry delays that had elapsed, plus 1; 0 if adopted or handed over; short, like seat, to save memory
	seat  int32         // the index of l in sharing.leases; guarded by sharing.mu

	terms *Terms
	chain time.Duration // for how long the lock had been handed over from lease to lease when this one got it

	// extending makes End wait for the extensions under way, so that a release is sent after the last
	// extension. Extend holds it for reading while it sends and waits; End takes it for writing. An
	// acquire does not hold it: its release starts only after its round is closed.
	extending atomic.Pointer[sync.RWMutex] // nil until it is needed: see extensions

	mu       sync.Mutex // guards what follows
	state    State
	fills    uint8 // how often l was filled up since it began, since a node refused, or since Unlock: see fill.go
	outlived bool  // the keys stay for a minimal hold, although Unlock has ended l
	isLost   bool  // the signal lost is closed
	hears    bool  // see hear
	value    exposure
	claim    claim.Claim
	validity Validity
	rareEnd  *rareEnd    // noRareEnd until something of it is set: see needEndLocked
	expiry   alarm.Alarm // at the end of the validity, in Keeper.expiries
	watchdog *watchdog   // nil without Terms.Watchdog; set by Begin

	shares    atomic.Pointer[sharing] // see sharing; nil if nobody can join l; not guarded
	writes    *writes                 // of the value; a lease that was handed over shares them with the lease before it
	ownWrites writes                  // room for writes
	room      claim.Room
	rare      *rareLease // noRareLease until something of it is needed
}

// A rareEnd is what a lease has that was lost, or whose end somebody waits for. Lease.mu guards it.
type rareEnd struct {
	cause     error          // why it is over; nil after Unlock and Detach
	loss      error          // the error of Err, made once
	missed    *quorum.Result // see noteMissed
	ended     signal         // closed when Past, Over or Dropped
	lost      signal         // closed when Past, or Over or Dropped for a cause
	listeners listeners      // see Listen
	doubts    *doubts        // see forced.go; nil if there are none
	room      [1]Listener    // for listeners
}

// noRareEnd is that of all leases that need none. It never changes.
var noRareEnd rareEnd

// needEndLocked returns the rareEnd of l, to be changed.
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
	l.value.shown = t.UserValues // the user made the value
	l.writes = &l.ownWrites
	l.writes.nodes = nodes
	return l
}

// Adopt returns a lease whose value was acquired elsewhere: any node may hold the value, or be about to. Adopt
// assumes that the former holder had the options of t. A holder that neither heals nor takes a fencing token
// has sent each node one command that sets the value. Any other holder may have sent several.
func Adopt(t *Terms, value string, start clock.Instant) *Lease {
	l := New(t, value, start)
	l.value.shown = true
	left := int64(oneSent | anyLost)
	if t.Heals || t.Fencing {
		left += oneSent
	}
	asked := t.Keeper.Set.Rule().All()
	for i := range l.writes.nodes {
		if asked.Has(i) {
			l.writes.nodes[i].Store(left)
		}
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

// Begun reports whether l was ever held. The lease of a failed attempt was never held, and neither was a lease
// that is adopted for a single Unlock or Valid.
func (l *Lease) Begun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begunLocked()
}

func (l *Lease) begunLocked() bool { return l.state == Held || l.state == Past || l.state == Over }

// sharing returns what l has in common with others, nil if it is not to be shared. It never changes once
// BeginSharing has set it.
func (l *Lease) sharing() *sharing { return l.shares.Load() }

// spoil keeps others from joining the hold of l. The caller may hold Lease.mu, so spoil does not lock
// sharing.mu.
func (l *Lease) spoil() {
	if s := l.sharing(); s != nil {
		s.spoiled.Store(true)
	}
}

// moveLocked moves l to a state, and closes the signals that belong to it. Nothing else changes the state.
func (l *Lease) moveLocked(to State, cause error) {
	if l.state == Past || l.state == Over {
		l.validity = Validity{} // it never becomes valid again
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

// tellLostLocked closes the signal lost. If l was held, it also tells the observers that l is lost. Only the
// first call has an effect.
func (l *Lease) tellLostLocked() {
	if l.isLost {
		return
	}
	l.isLost = true
	l.rareEnd.lost.close()
	if !l.begunLocked() {
		return
	}
	loss := l.lossLocked() // even without observers, so that a later cause does not change the loss
	if l.terms.Events != nil {
		l.terms.Events.Lost(l, clock.Now().Since(l.First), loss)
	}
}

// NotHeld returns why l may not be relied upon at now, nil while it may. It also changes l: the first call
// that finds the time up makes a held lease past and tells the observers, or drops an attempt. That closes
// Lost.
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

// expiredLocked returns the error of a lease whose time is up.
func (l *Lease) expiredLocked() error {
	if l.spentLocked() {
		return l.terms.Keeper.Errors.MaxHold
	}
	return l.terms.Keeper.Errors.Expired
}

// spentLocked reports whether the validity already lasts as long as MaxHold allows.
func (l *Lease) spentLocked() bool {
	limit := l.terms.Timing.MaxHold
	return limit != 0 && l.validity.Length >= limit-l.validity.Start.Since(l.First)
}

// lossLocked returns why l was lost. It is for a lost lease, and returns the same error each time.
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

// noteMissed notes the result of the last extension by the watchdog, or of a round that goes on, for the error of a loss.
// It is nil for a round that was won.
func (l *Lease) noteMissed(res *quorum.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if res != nil || l.rareEnd != &noRareEnd {
		l.needEndLocked().missed = res
	}
}

// Loss returns why l was lost, nil if nobody has found that yet. Unlike Err it also says so once Unlock has ended l.
func (l *Lease) Loss() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begunLocked() {
		return nil
	}
	return l.rareEnd.loss
}

// NoteLoss notes the loss that the release of l, which Unlock has ended, has found.
func (l *Lease) NoteLoss(loss error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begunLocked() && l.rareEnd.loss == nil {
		l.needEndLocked().loss = loss
	}
}

// Err returns the error of Mutex.Err for l at now: nil while it is held.
func (l *Lease) Err(now clock.Instant) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.notHeldLocked(now)
	if err == nil || (l.state == Over || l.state == Dropped) && l.rareEnd.cause == nil {
		return err
	}
	return l.lossLocked()
}

// End ends l for a cause and reports whether it had not ended before. A nil cause, as for Unlock and
// Detach, also hides the value. End tells the Listeners, so the caller must hold no lock, except
// alarm.Schedule.firing. When End returns, they have been told, and no command that could set the value is on its
// way to a pool any more.
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
		clear(all) // the room of the first one would keep it until every node has settled the release
	}
	l.terms.Keeper.expiries.Drop(&l.expiry)
	if x := l.extending.Load(); x != nil { // otherwise a later extension finds that l is over
		x.Lock()
		x.Unlock() //nolint:staticcheck // waits for extensions: the end of l makes them give up their rounds
	}
	if l.watchdog != nil {
		l.watchdog.stop()
	}
	return first
}

// extensions returns the mutex extending. Only Extend, Downgrade and a fill need it. A caller that locks it
// must look afterwards whether l has ended: End does not wait for a mutex that is made after End has looked for it.
func (l *Lease) extensions() *sync.RWMutex {
	if l.extending.Load() == nil {
		l.extending.CompareAndSwap(nil, &sync.RWMutex{})
	}
	return l.extending.Load()
}

// EndHeld ends l for Unlock or Detach, and hides its value, if l may be relied upon at now. Otherwise it
// returns why l may not. It holds l.mu from the check to the end, so that no loss and no Close comes between
// them. The caller must call End, too.
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

// EndLate is for a lease that Detach has ended. If the validity has ended at now, it makes l lost. It
// returns how long l is still valid, or why it is not. It does not change a lease that has ended for
// another reason.
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

// Lose ends l because the nodes have disproved it, or cannot be asked any more. It lets the first waiter in each of its
// lines try, and returns why.
func (l *Lease) Lose(why error) error {
	l.End(why)
	l.terms.Keeper.Waiters.Nudge(l.Claim().Lines())
	return why
}

// Abandon ends l for a cause, and releases what it left on the nodes. The Waiters send the release, because
// they admit the next waiter with it.
func (l *Lease) Abandon(cause error) {
	l.End(cause)
	l.terms.Keeper.Waiters.ReleaseAndAdmit(l)
}

// A Listener is told when a lease is past or has ended.
type Listener interface {
	// Ended must not wait. loss says why the lease was lost; it is nil after Unlock and Detach.
	Ended(loss error)
}

// listeners are those of one lease.
type listeners []Listener

func (all listeners) tell(loss error) {
	for _, to := range all {
		to.Ended(loss)
	}
}

// Listen makes l, which has begun, tell the Listener when it is past or has ended, and at once if it is or has already.
// If time makes l past, a goroutine of its own tells the Listener. If l ends, End tells the Listener before it returns,
// so before anything is sent that releases l. A Listener that was told before, because l was past, is told again.
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

// Forget makes l keep a Listener no longer.
func (l *Lease) Forget(to Listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.rareEnd
	if w.listeners == nil {
		return // End has taken them, with the room, and tells them without l.mu
	}
	w.listeners = slices.DeleteFunc(w.listeners, func(other Listener) bool { return other == to })
	if w.room[0] == to { // listeners may have outgrown it
		w.room[0] = nil
	}
}

// Remaining returns for how much longer l may be relied upon; 0 if it is not held.
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

// WasValid reports whether the validity had not ended at now, judged by time alone. It is for a lease that
// has ended: for such a lease NotHeld does not look at the clocks.
func (l *Lease) WasValid(now clock.Instant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state != Past && l.validity.Holds(now)
}

// Done returns a channel that is closed when l is past or has ended.
func (l *Lease) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.needEndLocked().ended.channel(l.state != Acquiring && l.state != Held)
}

// Lost returns a channel that is closed when l is past, or has ended for a cause. If that is so at now, the
// channel is closed already.
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

// takeToken gives l a fencing token that a quorum has stored.
func (l *Lease) takeToken(token uint64) {
	l.mu.Lock()
	if l.rare == &noRareLease { // it is adopted
		l.rare = &rareLease{}
	}
	l.rare.token = token
	l.mu.Unlock()
	l.terms.Keeper.Tokens.Raise(l.terms.Claim.Lines(), token)
}

// An exposure says whether the user may have seen the value of a lease, and whether the user may still see it. If somebody
// has seen it, other code may rely on it: then the lease is not handed over to a waiter, and no later Lock releases its keys.
// Before a lease is handed over or released, it hides its value, so that nobody sees the value after that check.
type exposure struct {
	shown  bool // the user may have seen it
	hidden bool // nobody is shown it any more
}

// Value returns the value. It is for what is sent to nodes, not for the user.
func (l *Lease) Value() string { return l.Claim().Value() }

// Show returns the value for the user, who may pass it on; "" once it is hidden.
func (l *Lease) Show() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.showLocked()
}

// ShowHeld does what Show does while l may be relied upon; otherwise it returns "".
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

// Hide stops the value from being shown, and reports whether nobody has seen it. If somebody may have seen it,
// l must not be handed over, and only the user's own Unlock may release l.
func (l *Lease) Hide() (private bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.value.hidden = true
	return !l.value.shown
}

// ClearAway releases what l, which has ended, left on the nodes, unless the user may have seen the value.
// In that case another Mutex may hold the lock with the value, and only an Unlock releases the lock.
func (l *Lease) ClearAway() {
	if l.Hide() {
		l.terms.Keeper.Waiters.ReleaseAndAdmit(l)
	}
}

// ClearUnlessDelayed does what ClearAway does, for a lease that has ended because its time was up. With a
// lock delay it does nothing: the keys are meant to stay.
func (l *Lease) ClearUnlessDelayed() {
	if l.terms.Timing.TTL == l.terms.Timing.Expiry {
		l.ClearAway()
	}
}

// Begin makes l held. From now on the alarms of the Keeper make l past at the end of its validity, extend it
// before that if it has a watchdog, and release it on Close. An error of Begin says why l cannot begin: its
// validity has ended since the attempt, or Close has begun. In that case l was never held, and observers are
// not told of a loss.
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

// minCompare is the shortest interval at which Begin makes the Keeper's schedule compare the wall clock with
// the monotonic clock. A lease with an expiry of less than 100 ms needs no shorter interval, because its
// alarm fires soon in any case.
const minCompare = 10 * time.Millisecond

// begin checks the time and makes l held without unlocking l.mu in between. If another goroutine finds the
// time up before that, l does not begin. If one finds it up later, observers are told of the loss.
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
	var nodes nodeWrites // of all nodes
	for i := range l.writes.nodes {
		nodes |= nodeWrites(l.writes.nodes[i].Load())
	}
	// A node that has not answered the acquire of the lease that was handed over may still refuse it.
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

// Fire implements alarm.Firer. It runs at the end of the validity that was known when the alarm was set (an
// extension does not move the alarm), when it is time to fill l up, after a step of the wall clock, and on Close.
func (l *Lease) Fire(closing bool) {
	if closing {
		l.close()
		return
	}
	left := l.Remaining(clock.Now())
	if left == 0 { // Remaining has just made l Past and told the holder, or l was over before
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
	case !l.setAlarm(time.Now().Add(left)): // Close came while this was firing
		l.close()
	case l.watchdog != nil: // a step of the wall clock may have left it little time
		l.watchdog.hasten(time.Now().Add(left / 2))
	}
}

// setAlarm sets the alarm of l for the time at, or for the next fill if that comes first. It reports false if Close has
// begun.
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

// close ends and releases l because of Close, unless it has ended before. A lease whose time is up is left alone, even
// if its alarm has not fired yet: another lease may hold the lock with the same value by now, and with a lock delay the
// keys are meant to stay.
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

// A signal is a channel that is closed at most once. It is created by the first call of channel. The caller of a method
// must hold the mutex that guards the signal.
type signal struct{ c chan struct{} }

// close closes the channel, if there is one.
func (s *signal) close() {
	select {
	case <-s.c: // it is closed
	default:
		if s.c != nil {
			close(s.c)
		}
	}
}

// channel returns the channel. closed says that close has been called, perhaps before there was a channel.
func (s *signal) channel(closed bool) <-chan struct{} {
	if s.c == nil {
		s.c = make(chan struct{})
	}
	if closed {
		s.close()
	}
	return s.c
}
