package redsync

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/alarm"
	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// A hold is one term of holding a lock: from the attempt that acquired it to
// Unlock, Detach, loss or expiry. Everything that may come late (a reply, an extend, a
// release, a timer) names its hold, so that it cannot hurt a newer one.
//
//	attempt --won: begin--> held --time--> past
//	   |                      |             |
//	not won               end(cause)    end(cause)
//	   v                      v             v
//	released               over <-----------+
//
// An attempt that is not won is released without having begun. The cause of over is
// nil for Unlock and Detach; else it is the loss: the time was up, the nodes proved it, Close,
// or a newer hold of the same Mutex. ended is closed when the hold is past or over;
// lost when it is past, or over for a cause. No transition goes back, whatever the clocks
// do.
//
//	whyNotHeld(now)  nil while it may be relied upon; else makes it past, if the time is up
//	stood(now)       whether time alone had not ended it, of a hold already ended
//	begun()          whether it was ever held by a Mutex
//	cleared(now)     whether its keys have run out on every node, while a release is repeated
//
// The value belongs to one hold. Once the user has seen it, somebody else may rely on it:
// the hold is not handed over then, and no later Lock releases it. So a hold that is
// handed over or released is withdrawn first: from then on it shows its value to nobody.
//
//	show()           the value, for the user; "" of a hold that is withdrawn
//	withdraw()       withdraws it, and reports whether the value is known here alone
type hold struct {
	core     *core
	set      *settings
	claim    claim.Claim // what it writes on the nodes
	timing   timing
	first    clock.Instant // the start of the attempt that acquired the lock, or when it was handed over
	acquired clock.Instant // the start of the attempt that acquired the lock, before any hand-over
	try      int           // see Attempt.Try; 0 if adopted or handed over

	tokens *tokens // nil without WithFencing

	// rounds is held for reading while an extend sends and waits, for writing by
	// end: a release goes behind the last extension. An acquire needs none: its
	// release starts after its round is closed.
	rounds sync.RWMutex

	started atomic.Bool // see begun; set with mu held

	mu        sync.Mutex
	validity  validity
	past      bool        // the validity was seen to have ended, which no step of a clock takes back
	over      bool        // ended by Unlock, Detach, loss or Close
	shown     bool        // the user may have seen the value
	withdrawn bool        // the value is not shown any more
	cause     error       // why it is over, nil after Unlock and Detach
	loss      error       // what Err returns of it, made once
	ended     signal      // past or over
	lost      signal      // past, or over for a cause
	expiry    alarm.Alarm // at the end of validity, while core.holds has it
	watchdog  *watchdog   // nil without WithWatchdog; set by begin

	*trail       // of the value; a hold that was handed over shares that of the former
	own    trail // the trail, unless it was handed over

	exclusive claim.Exclusive // room for the claim
}

// A signal is a channel that is closed once, made when somebody asks for it. It
// is used with a lock held.
type signal struct {
	c     chan struct{}
	given bool
}

func (s *signal) give() {
	if s.c != nil && !s.given {
		close(s.c)
	}
	s.given = true
}

func (s *signal) channel() <-chan struct{} {
	if s.c == nil {
		s.c = make(chan struct{})
		if s.given {
			close(s.c)
		}
	}
	return s.c
}

// newHold starts a term with an attempt at start.
func (m *Mutex) newHold(value string, t timing, start clock.Instant) *hold {
	h := &hold{
		core:     m.core,
		set:      m.set,
		timing:   t,
		first:    start,
		acquired: start,
		shown:    m.set.customValues, // the user made it
	}
	h.exclusive = claim.NewExclusive(m.name, value)
	h.claim = &h.exclusive
	_, span := t.atAge(0)
	h.validity = validity{start: start, span: span}
	h.trail = &h.own
	h.own.nodes = room(h.own.spare[:], len(m.core.nodes))
	return h
}

// adoptedHold is a term whose value was acquired elsewhere: any node may hold
// it, or be about to. The giver has sent each node one command that sets the value, or
// several where it heals or takes a fencing token; it has the same options as m then.
func (m *Mutex) adoptedHold(value string, t timing, start clock.Instant) *hold {
	h := m.newHold(value, t, start)
	h.shown = true
	left := int64(oneSent | anyLost)
	if m.set.heals || m.set.fencing {
		left += oneSent
	}
	for i := range h.nodes {
		h.nodes[i].Store(left)
	}
	return h
}

// value returns what the nodes hold for h.
func (h *hold) value() string { return h.claim.Value() }

// show returns the value for the user, who may pass it on; "" once h is withdrawn.
func (h *hold) show() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.showLocked()
}

// showHeld does what show does while h may be relied upon; otherwise it returns "".
func (h *hold) showHeld(now clock.Instant) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.whyNotHeldLocked(now) != nil {
		return ""
	}
	return h.showLocked()
}

func (h *hold) showLocked() string {
	if h.withdrawn {
		return ""
	}
	h.shown = true
	return h.value()
}

// withdraw lets nobody see the value any more, and reports whether nobody has: then h
// may be handed over, or released on behalf of somebody who does not know of it.
func (h *hold) withdraw() (private bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.withdrawn = true
	return !h.shown
}

// whyNotWon returns why h was not acquired, nil if it was. If not, nothing is held,
// and what the round may have set must be released.
func (h *hold) whyNotWon(res result) error {
	duplicate := h.core.duplicate()
	if res.tally.won() && duplicate == nil && h.whyNotHeld(clock.Now()) == nil {
		return nil
	}
	if duplicate != nil {
		return duplicate
	}
	if res.tally.won() {
		return fmt.Errorf("%w: the nodes answered after the validity of %v", ErrLockAlreadyExpired, h.validity.span)
	}
	return res.notAcquired()
}

// whyNotHeld returns nil while h may be relied upon at now, else why it may not. It
// is more than a question: the first call that finds the time up makes h past,
// closes lost and tells observers.
func (h *hold) whyNotHeld(now clock.Instant) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.whyNotHeldLocked(now)
}

func (h *hold) whyNotHeldLocked(now clock.Instant) error {
	if h.over && h.cause == nil {
		return ErrNotHeld
	}
	if h.over {
		return h.cause
	}
	if !h.past && h.validity.held(now) {
		return nil
	}
	h.past = true
	h.ended.give()
	h.tellLostLocked()
	return h.expiryErrorLocked()
}

// expiryErrorLocked returns why a hold is over whose time is up.
func (h *hold) expiryErrorLocked() error {
	if h.spentLocked() {
		return because(ErrLockAlreadyExpired, ErrMaxHold)
	}
	return ErrLockAlreadyExpired
}

// tellLostLocked tells that the hold is over, and not by Unlock.
func (h *hold) tellLostLocked() {
	if h.lost.given {
		return
	}
	h.lost.give()
	if h.begun() {
		tellLater(h.core, h.set.observers, LostObserver.ObserveLost,
			Lost{Name: h.claim.Name(), Held: clock.Now().Since(h.first), Err: h.lossLocked()})
	}
}

// lossLocked returns why h was lost, which it is. It is the same error each time.
func (h *hold) lossLocked() error {
	if h.loss != nil {
		return h.loss
	}
	h.loss = h.cause
	if h.loss == nil {
		h.loss = h.expiryErrorLocked()
	}
	if !errors.Is(h.loss, ErrLockLost) {
		h.loss = because(ErrLockLost, h.loss)
	}
	return h.loss
}

// spentLocked reports whether the validity lasts as long as WithMaxHold allows.
func (h *hold) spentLocked() bool {
	limit := h.timing.maxHold
	return limit != 0 && h.validity.span >= limit-h.validity.start.Since(h.first)
}

// err returns why h is not held at now, nil while it is.
func (h *hold) err(now clock.Instant) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.whyNotHeldLocked(now)
	if err == nil || h.over && h.cause == nil {
		return err
	}
	return h.lossLocked()
}

// end ends the term for cause and reports whether it was not over before. A nil cause, as
// for Unlock and Detach, withdraws the hold as well. When end returns, nothing that could
// set the value is on its way to a pool any more.
func (h *hold) end(cause error) bool {
	h.mu.Lock()
	first := !h.over
	h.withdrawn = h.withdrawn || cause == nil
	if first {
		h.over, h.cause = true, cause
		h.ended.give()
		if cause != nil {
			h.tellLostLocked()
		}
	}
	h.mu.Unlock()
	h.core.holds.Drop(&h.expiry)
	h.rounds.Lock()
	h.rounds.Unlock() //nolint:staticcheck // waits for the rounds that end abandoned
	if h.watchdog != nil {
		h.watchdog.stop()
	}
	return first
}

// endHeld ends the term for Unlock or Detach, and withdraws it, if it may be relied upon at
// now; otherwise it returns why it may not. It looks and ends in one step, so that no loss
// and no Close comes between. The caller calls end.
func (h *hold) endHeld(now clock.Instant) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.whyNotHeldLocked(now); err != nil {
		return err
	}
	h.over, h.withdrawn = true, true
	h.ended.give()
	return nil
}

// detachLate makes h, which has been detached, lost if its validity has ended at now, and
// returns how long it is left.
func (h *hold) detachLate(now clock.Instant) (left time.Duration, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if left := h.validity.remaining(now); left > 0 {
		return left, nil
	}
	h.past, h.cause = true, because(ErrLockLost, h.expiryErrorLocked())
	h.tellLostLocked()
	return 0, h.cause
}

// abandon ends the term for cause and releases what it left on the nodes.
func (h *hold) abandon(cause error) {
	h.end(cause)
	h.letGo(releasing{})
}

// lose ends the term, which was found to be over, and returns why.
func (h *hold) lose(why error) error {
	err := lost(why)
	h.end(err)
	h.core.lines.tryFirst(h.claim.Name()) // it has waited for the end of h
	return err
}

// lost returns the error of a hold that was found to be over.
func lost(why error) error {
	return because(ErrLockLost, ErrLockAlreadyExpired, why)
}

// lostBy reports whether the votes prove that no quorum holds the value. Where
// extends set missing keys again, only another value proves it.
func (h *hold) lostBy(res result) bool {
	if h.set.heals {
		return res.tally.blocks(len(res.taken))
	}
	return res.tally.refuted()
}

// done returns a channel that is closed when h is past or over.
func (h *hold) done() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended.channel()
}

// gone returns a channel that is closed when h is past, or over for a cause: at
// once if that is so at now.
func (h *hold) gone(now clock.Instant) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.whyNotHeldLocked(now)
	return h.lost.channel()
}

// begin makes h known to its core, which tells when its time is up, releases it
// on Close, and extends it until then if the settings say so. Its error is why h cannot
// begin: its validity has ended since the attempt, or the core is closed. Nobody is told
// then that it was held.
func (h *hold) begin() error {
	if err := h.beginLocked(); err != nil {
		return err
	}
	h.core.holds.CompareClocks(max(min(h.timing.expiry/10, time.Second), minCompare), h.first)
	if h.watchdog != nil {
		h.watchdog.start()
	}
	return nil
}

// beginLocked is the part of begin that decides, with h.mu held: a look from elsewhere
// finds the time up either before, so that h does not begin, or after, so that it is told.
func (h *hold) beginLocked() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.whyNotHeldLocked(clock.Now()); err != nil {
		return err
	}
	h.expiry.What = h
	if h.set.watchdog {
		h.watchdog = newWatchdog(h)
	}
	if !h.core.holds.Set(&h.expiry, h.validity.until()) { // from here on Close may end h
		return ErrClosed
	}
	h.started.Store(true)
	return nil
}

// minCompare is the least time between two comparisons of the clocks. A hold with
// so short an expiry is looked at soon in any case.
const minCompare = 10 * time.Millisecond

// begun reports whether h was ever the current term of a Mutex: not the hold of an
// attempt that failed, nor one that is adopted for a single Unlock or Valid.
func (h *hold) begun() bool { return h.started.Load() }

// Fire runs at what was once the end of the validity, when a clock was stepped,
// and on Close.
func (h *hold) Fire(closing bool) {
	if closing && h.end(because(ErrLockLost, ErrClosed)) {
		h.letGo(releasing{})
	}
	left := h.remaining(clock.Now())
	switch {
	case left == 0: // it is over, or past, and the holder has been told
	case !h.core.holds.Set(&h.expiry, time.Now().Add(left)):
		h.Fire(true) // Close came while this was firing
	case h.watchdog != nil: // a step of the wall clock may have left it little time
		h.core.extends.Hasten(&h.watchdog.alarm, time.Now().Add(left/2))
	}
}

// until returns the end of the validity, the zero time once h is over.
func (h *hold) until() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return time.Time{}
	}
	return h.validity.until()
}

// stood reports whether the validity had not ended at now, by time alone. It is for
// a hold already ended, which whyNotHeld does not ask the clocks about.
func (h *hold) stood(now clock.Instant) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.past && h.validity.held(now)
}

func (h *hold) remaining(now clock.Instant) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.whyNotHeldLocked(now) != nil {
		return 0
	}
	return h.validity.remaining(now)
}

// extension returns the round that prolongs h, which has begun, from start on. Its error
// is why h is not held, or ErrExtendFailed with ErrMaxHold: then it is held, but not for
// longer.
func (h *hold) extension(start clock.Instant) (extension, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.whyNotHeldLocked(start); err != nil {
		return extension{}, err
	}
	e := h.extensionFrom(start)
	if e.span <= h.validity.remaining(start) && h.spentLocked() {
		return extension{}, because(ErrExtendFailed, ErrMaxHold)
	}
	e.heals = h.set.heals
	return e, nil
}

// extensionFrom returns the round that prolongs h from start on, and sets no missing key.
func (h *hold) extensionFrom(start clock.Instant) extension {
	if h.set.customValues {
		usedValues.keep(h.value())
	}
	ttl, span := h.timing.atAge(start.Since(h.first))
	return extension{hold: h, start: start, ttl: ttl, span: span}
}

// prolong moves the validity to e's, if the old one stood at the time when a
// quorum was seen to have confirmed: else somebody may have held the lock in
// between.
func (h *hold) prolong(e extension, confirmed clock.Instant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	span := e.span
	if limit := h.timing.maxHold; limit != 0 { // e may be of a hold that began later: see takeOver
		span = min(span, limit-e.start.Since(h.first))
	}
	if h.whyNotHeldLocked(confirmed) == nil && span > h.validity.remaining(e.start) {
		h.validity = validity{start: e.start, span: span}
	}
}

// cleared reports whether every key that h set has run out by the nodes' clocks,
// as far as anybody can tell. It is for a release that is repeated: see keepTime. It goes
// by the monotonic clock alone: a step of the wall clock must not end what is still to be
// done.
func (h *hold) cleared(now clock.Instant) bool {
	drift := h.timing.expiry - h.timing.span
	return now.Mono-h.lastRenewed()-h.timing.ttl > drift
}

// bounds is how long a round for h may take: the node deadline.
func (h *hold) bounds() bounds {
	return bounds{decide: h.timing.nodeTimeout, node: h.timing.nodeTimeout}
}
