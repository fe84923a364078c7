package redsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/queue"
)

// join lets a Do of m join the holds that the Dos around ctx have of m's names. It returns a scope for each, from the
// outside in, which the caller must leave; none if the Do must lock.
func (m *Mutex) join(ctx context.Context) (joined []*scope, err error) {
	if scopeOf(ctx) == nil {
		return nil, nil
	}
	if _, from := m.holdOrAdopted(); from != nil {
		return nil, nil // Do adopts it
	}
	t, err := m.beginCall()
	if err != nil {
		return nil, m.failure("lock", err)
	}
	defer m.core.keeper.EndCall()
	for {
		live, lines := m.around(ctx, t)
		if err = m.checkJoin(ctx, t, live, lines); err == nil {
			joined, err = m.joinAll(ctx, live)
		}
		switch {
		case err != nil:
			return nil, m.failure("lock", err)
		case len(joined) == len(live):
			return joined, nil
		}
		// A hold has ended since. Look again.
	}
}

// around finds the holds that the Dos around ctx, of the same core, have of m's names. live has the innermost live
// scope of each, from the inside out, and lines the lines of m that they have.
func (m *Mutex) around(ctx context.Context, t *lease.Terms) (live []*scope, lines []string) {
	s := scopeOf(ctx)
	if s == nil {
		return nil, nil
	}
	missing := slices.Clone(t.Claim.Lines())
	for ; s != nil; s = s.outer {
		if s.nest.mutex.core != m.core || !s.isLive() {
			continue
		}
		has := s.nest.hold.Claim().Lines()
		before := len(lines)
		missing = slices.DeleteFunc(missing, func(line string) bool {
			found := slices.Contains(has, line)
			if found {
				lines = append(lines, line)
			}
			return found
		})
		if len(lines) > before {
			live = append(live, s)
		}
	}
	return live, lines
}

func (m *Mutex) checkJoin(ctx context.Context, t *lease.Terms, live []*scope, lines []string) error {
	if len(live) == 0 {
		return nil
	}
	if err := m.checkUpgrade(live); err != nil {
		return err
	}
	if m.set.kind().alone != "" {
		return m.waitsForItself(lines, "")
	}
	if len(lines) < len(t.Claim.Lines()) {
		return m.waitsForItself(lines, " and not the other names")
	}
	for _, s := range live {
		if err := m.checkTerms(s.nest.hold, t.Timing); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return m.interruption(ctx)
	}
	return nil
}

// checkNested returns an error if a Do around ctx holds one of m's names: Lock and Do would wait for each other.
func (m *Mutex) checkNested(ctx context.Context, t *lease.Terms) error {
	live, lines := m.around(ctx, t)
	if len(live) == 0 {
		return nil
	}
	if err := m.checkUpgrade(live); err != nil {
		return err
	}
	return m.waitsForItself(lines, "")
}

func (m *Mutex) checkUpgrade(live []*scope) error {
	if m.set.kind().sharesName {
		return nil
	}
	for _, s := range live {
		if s.nest.isShared() {
			return s.nest.upgradeError()
		}
	}
	return nil
}

// waitsForItself returns the error of a call that could wait for a Do around it. missing says what that Do lacks.
func (m *Mutex) waitsForItself(lines []string, missing string) error {
	slices.Sort(lines)
	has := "holds " + quotedAll(lines)
	if alone := m.set.kind().alone; alone != "" {
		has = "has " + alone + " " + quoted(m.label())
	}
	return fmt.Errorf("%w: a Do around the call %s%s, so the call could wait for itself", ErrNested, has, missing)
}

func (m *Mutex) checkTerms(h *lease.Lease, want lease.Timing) error {
	has := h.Terms().Timing
	delay, hasDelay := want.TTL-want.Expiry, has.TTL-has.Expiry
	tell := func(option string, wants, has any) error {
		return fmt.Errorf("%w: %s(%v): the hold of %s has %v", ErrNested, option, wants, quoted(h.Claim().Name()), has)
	}
	switch {
	case m.set.ownExpiry && want.Expiry > has.Expiry:
		return tell("WithExpiry", want.Expiry, has.Expiry)
	case delay > hasDelay:
		return tell("WithLockDelay", delay, hasDelay)
	case want.MaxHold != 0 && has.MaxHold == 0:
		return tell("WithMaxHold", want.MaxHold, "no limit")
	case want.MaxHold != 0 && want.MaxHold != has.MaxHold:
		return tell("WithMaxHold", want.MaxHold, has.MaxHold)
	case m.set.minHold != 0:
		return fmt.Errorf("%w: WithMinHold(%v): the hold of %s has begun before this call, so its keys may go sooner",
			ErrNested, m.set.minHold, quoted(h.Claim().Name()))
	case m.set.fencing && h.Token() == 0:
		return tell("WithFencing", "", "no token")
	}
	return nil
}

// joinAll joins the holds of all scopes. If one can no longer be joined, it joins none, and returns fewer scopes.
func (m *Mutex) joinAll(ctx context.Context, live []*scope) (joined []*scope, err error) {
	outer := scopeOf(ctx)
	for _, caller := range slices.Backward(live) {
		s := &scope{Context: ctx, nest: caller.nest, writes: !m.set.kind().isReader, outer: outer}
		isIn, err := s.nest.admit(s, caller, m.set.nesting)
		if !isIn {
			leave(joined)
			return nil, err
		}
		joined, outer = append(joined, s), s
	}
	return joined, nil
}

// errHeldByItself is the error of Lock if the Mutex is held already, for kinds with sharesName.
var errHeldByItself = errors.New("redsync: this Mutex holds the lock already: use a Mutex for each holder")

// awaitOwn waits until m itself is not held: for kinds with sharesName the nodes would grant m a second hold. Each look
// that finds m held uses one of the limit tries (0: no limit). left is how many are left.
func (m *Mutex) awaitOwn(
	ctx context.Context, t *lease.Terms, start clock.Instant, limit int, waits *queue.Wait,
) (left int, err error) {
	for try := 1; ; try++ {
		h := m.current()
		free := h == nil || h.Remaining(clock.Now()) == 0
		switch {
		case free && limit == 0:
			return 0, nil
		case free:
			return limit - (try - 1), nil
		case try == limit:
			return 0, fail("", "", ErrFailed, errHeldByItself)
		}
		if t.Events != nil {
			waits.Begin(ctx, t.Events, start)
		}
		delay := t.Delay(try)
		if delay < 0 {
			return 0, outOfRange("WithRetryDelayFunc", delay, "0 or more")
		}
		if !m.core.keeper.Pause(ctx, max(delay, time.Millisecond), h.Done()) {
			return 0, m.interrupted(ctx, fail("", "", ErrFailed, errHeldByItself))
		}
	}
}

// A nest is the hold of a Do and the calls on it: the outermost, which has locked, and those that have joined. The hold
// lasts until all their functions have returned.
type nest struct {
	mutex *Mutex // of the outermost call
	hold  *lease.Lease
	limit int // its WithNesting; 0: no limit
	first scope

	mu      sync.Mutex          // guards what follows, and what scopes say is guarded
	joined  map[*scope]struct{} // calls whose functions have not returned
	writers int                 // how many joined calls are exclusive
	stopped bool
	cause   error         // why it was stopped; nil if the outermost function has returned
	shared  bool          // no exclusive call may join
	over    bool          // Unlock has ended the hold
	alone   chan struct{} // closed when no joined call is left: finish waits for it
}

// A scope is the parent of the context of a Do's function, which works under the hold of nest.
type scope struct {
	context.Context //nolint:containedctx // the one that Do was called with

	nest   *nest
	writes bool   // joined, and exclusive
	outer  *scope // nil if there is none

	// Guarded by nest.mu.
	cancel   context.CancelCauseFunc // nil before begins
	returned bool
}

type scopeKey struct{}

func scopeOf(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{}).(*scope)
	return s
}

func (s *scope) Value(key any) any {
	if key == (scopeKey{}) || key == (bondKey{}) {
		return s
	}
	return s.Context.Value(key)
}

func (s *scope) parent() context.Context { return s.Context }

// held implements bond. The context may also end because a function has returned.
func (s *scope) held() *lease.Lease {
	s.nest.mu.Lock()
	defer s.nest.mu.Unlock()
	if s.nest.cause != nil {
		return nil
	}
	return s.nest.hold
}

func (m *Mutex) newNest(ctx context.Context, h *lease.Lease) *scope {
	n := &nest{mutex: m, hold: h, limit: m.set.nesting, shared: h.Claim().Shares()}
	n.first = scope{Context: ctx, nest: n, outer: scopeOf(ctx)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hold != h {
		n.over = true // unlocked by another call
		return &n.first
	}
	if m.nest != nil && m.nest.hold == h { // Downgrade came first
		n.shared = true
	}
	m.nest = n
	return &n.first
}

// Ended implements lease.Listener. After an Unlock inside a function, the functions go on.
func (n *nest) Ended(loss error) {
	if loss != nil {
		n.stop(loss)
	}
}

// stop ends the contexts of all functions on the hold, also of later ones. The first call counts.
func (n *nest) stop(cause error) {
	cancels := make([]context.CancelCauseFunc, 0, 4) // on the stack
	n.mu.Lock()
	if !n.stopped {
		n.stopped, n.cause = true, cause
		cancels = append(cancels, n.first.cancel)
		for s := range n.joined {
			cancels = append(cancels, s.cancel)
		}
	}
	n.mu.Unlock()
	for _, cancel := range cancels {
		if cancel != nil { // the function has begun
			cancel(cause)
		}
	}
}

// begins precedes the call of the function of s. cancel ends its context.
func (n *nest) begins(s *scope, cancel context.CancelCauseFunc) {
	n.mu.Lock()
	s.cancel = cancel
	stopped, cause := n.stopped, n.cause
	n.mu.Unlock()
	if stopped {
		cancel(cause)
	}
}

// finish comes after the outermost function. It ends the contexts of the joined calls and waits for their functions.
// Then no call can join.
func (n *nest) finish(s *scope) {
	n.mu.Lock()
	s.returned = true
	if len(n.joined) > 0 {
		n.alone = make(chan struct{})
	}
	alone := n.alone
	n.mu.Unlock()
	n.stop(nil)
	if alone != nil {
		<-alone
	}
}

func (s *scope) isLive() bool {
	s.nest.mu.Lock()
	defer s.nest.mu.Unlock()
	return s.liveLocked()
}

// liveLocked reports whether a call inside the function of s joins, because the release of the hold would wait for that
// function. A goroutine that has outlived the function must not join: the hold might never end. Once false, it stays
// false.
func (s *scope) liveLocked() bool {
	return !s.returned && !s.nest.over && s.nest.hold.NotHeld(clock.Now()) == nil
}

// admit lets s, a call inside the function of caller, join the hold. It returns false if the hold can no longer be
// joined.
func (n *nest) admit(s, caller *scope, limit int) (isIn bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !caller.liveLocked() {
		return false, nil
	}
	if s.writes && n.shared {
		return false, n.upgradeError()
	}
	calls := 1 + len(n.joined)
	for _, limit := range []int{n.limit, limit} {
		if limit != 0 && calls >= limit {
			return false, fmt.Errorf("%w: WithNesting(%d): the hold of %s has %d already",
				ErrNested, limit, quoted(n.hold.Claim().Name()), calls)
		}
	}
	if n.joined == nil {
		n.joined = map[*scope]struct{}{}
	}
	n.joined[s] = struct{}{}
	if s.writes {
		n.writers++
	}
	return true, nil
}

func (n *nest) upgradeError() error {
	return fmt.Errorf("%w: an exclusive lock within a shared one: %s", ErrNested, quoted(n.hold.Claim().Name()))
}

func leave(joined []*scope) {
	for _, s := range joined {
		s.leave()
	}
}

func (s *scope) leave() {
	n := s.nest
	n.mu.Lock()
	defer n.mu.Unlock()
	s.returned = true
	delete(n.joined, s)
	if s.writes {
		n.writers--
	}
	if len(n.joined) == 0 && n.alone != nil {
		close(n.alone) // once: no call can join any more
	}
}

// endByHand ends the hold for an Unlock that is not Do's. It fails if joined calls would lose the lock.
func (n *nest) endByHand() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.joined) > 0 && n.hold.NotHeld(clock.Now()) == nil {
		return fmt.Errorf("%w: joined calls on the hold: %d", ErrNested, len(n.joined))
	}
	n.over = true
	return nil
}

// shareNest keeps exclusive calls from joining h, which Downgrade is about to share. It fails if some are on h.
func (m *Mutex) shareNest(h *lease.Lease) error {
	m.mu.Lock()
	if m.hold != h { // unlocked by another call
		m.mu.Unlock()
		return nil
	}
	if m.nest == nil || m.nest.hold != h {
		m.nest = &nest{mutex: m, hold: h} // newNest finds it if a Do with h begins just now
	}
	n := m.nest
	m.mu.Unlock()
	return n.makeShared()
}

func (n *nest) makeShared() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.writers > 0 {
		return fmt.Errorf("%w: exclusive joined calls on the hold: %d", ErrNested, n.writers)
	}
	n.shared = true
	return nil
}

func (n *nest) isShared() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.shared
}
