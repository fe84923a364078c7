package redsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// This file is about calls inside the function of a Do. The context says who the owner is: a Do whose context comes
// from a Do on the same name joins the hold of that Do, and sends nothing to the nodes.

// WithNesting limits how many calls of Do and TryDo are on one hold at once: at most n, the outermost one included. A
// call beyond n fails at once with ErrNested. See Mutex.Do for how calls join a hold.
//
// Two limits count for a call that joins: the one of the outermost call, and its own. So with WithNesting(1) no other
// call joins the hold of the Mutex, and the Mutex joins no hold. A call inside a call counts as a second one, also on
// the same goroutine. The default is no limit, the range 1 or more. A limit finds recursion that does not end, and
// bounds how many goroutines work under one hold.
func WithNesting(n int) Option {
	return OptionFunc(func(m *Mutex) {
		if n < 1 {
			m.change().fail(outOfRange("WithNesting", n, "1 or more"))
			return
		}
		m.change().nesting = n
	})
}

// A nest is the hold of a Do and the calls that are on it: the outermost call, which has locked, and those that have
// joined. The hold goes on until the functions of all of them have returned.
type nest struct {
	mutex    *Mutex // of the outermost call
	hold     *lease.Lease
	limit    int           // WithNesting of the outermost call; 0: no limit
	returned chan struct{} // closed when the outermost function has returned

	mu      sync.Mutex    // guards what follows, and scope.returned
	joined  int           // calls that have joined and whose functions have not returned
	writers int           // those of them that are exclusive
	shared  bool          // no exclusive call may join: the hold is a reader's, or Downgrade has begun
	over    bool          // Unlock has ended the hold
	alone   chan struct{} // for finish, which waits for joined calls: closed when none is left
}

// A scope is what the context of a Do's function carries: the function works under the hold of nest. If a call has
// joined several holds, its context carries a scope for each.
type scope struct {
	nest     *nest
	writes   bool   // the call has joined, and is exclusive
	outer    *scope // of the Do that calls this one; nil if there is none
	returned bool   // the function has returned; guarded by nest.mu
}

type scopeKey struct{}

// scopeOf returns the scope of the innermost Do around ctx, nil if there is none.
func scopeOf(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{}).(*scope)
	return s
}

// newNest returns the scope of the function of a Do of m that has h. outer is the scope around the Do.
func (m *Mutex) newNest(h *lease.Lease, outer *scope) *scope {
	n := &nest{
		mutex: m, hold: h, limit: m.set.nesting, returned: make(chan struct{}), shared: h.Claim().Shares(),
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hold == h {
		m.nest = n
	} else {
		n.over = true // another call has unlocked m since
	}
	return &scope{nest: n, outer: outer}
}

// watch ends a context once the hold is lost, or once the outermost function has returned.
func (n *nest) watch(working context.Context, cancel context.CancelCauseFunc) {
	select {
	case <-n.hold.Lost(clock.Now()):
		cancel(n.hold.Err(clock.Now()))
	case <-n.returned:
		cancel(nil)
	case <-working.Done():
	}
}

// finish is called when the outermost function, that of s, has returned. It ends the contexts of the joined calls, and
// waits until their functions have returned, too. No further call joins then: see liveLocked.
func (n *nest) finish(s *scope) {
	n.mu.Lock()
	s.returned = true
	if n.joined > 0 {
		n.alone = make(chan struct{})
	}
	alone := n.alone
	n.mu.Unlock()
	close(n.returned)
	if alone != nil {
		<-alone
	}
}

// isLive reports whether a call inside the function of s would join the hold.
func (s *scope) isLive() bool {
	s.nest.mu.Lock()
	defer s.nest.mu.Unlock()
	return s.liveLocked()
}

// liveLocked reports whether the hold of s is held and its release must wait for the function of s. A call inside that
// function must not wait for the release, because the release waits for the call. A call whose functions on the hold
// have all returned, such as a goroutine that they have left behind, must not join: the hold might never end. Once
// liveLocked has reported false it never reports true again.
func (s *scope) liveLocked() bool {
	return !s.returned && !s.nest.over && s.nest.hold.NotHeld(clock.Now()) == nil
}

// around returns what the Dos around ctx hold of the lines of m: in live the innermost live scope of each hold, from
// the inside to the outside, and in lines those that the holds have. It looks only at Dos of the same core.
func (m *Mutex) around(ctx context.Context) (live []*scope, lines []string) {
	s := scopeOf(ctx)
	if s == nil {
		return nil, nil
	}
	missing := slices.Clone(m.claimed().Lines())
	for ; s != nil && len(missing) > 0; s = s.outer {
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

// checkNested returns why m must not lock with ctx, nil if it may: a Do around ctx holds one of the names. The call
// could wait for the end of that Do, and the Do waits for the call.
func (m *Mutex) checkNested(ctx context.Context) error {
	live, lines := m.around(ctx)
	if len(live) == 0 {
		return nil
	}
	if err := m.checkUpgrade(live); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s, so the call could wait for itself", ErrNested, m.heldAround(lines))
}

// checkUpgrade returns ErrUpgrade if m is exclusive and one of the holds is shared.
func (m *Mutex) checkUpgrade(live []*scope) error {
	for _, s := range live {
		if !m.set.sharesName() && s.nest.isShared() {
			return s.nest.upgrade()
		}
	}
	return nil
}

func (n *nest) isShared() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.shared
}

func (n *nest) upgrade() error {
	return fmt.Errorf("%w: %q", ErrUpgrade, n.hold.Claim().Name())
}

// heldAround says that a Do around a call of m holds these lines.
func (m *Mutex) heldAround(lines []string) string {
	if m.set.permits != 0 {
		return fmt.Sprintf("a Do around the call has a permit of %q", m.name)
	}
	slices.Sort(lines)
	quoted := make([]string, 0, len(lines))
	for _, line := range lines {
		quoted = append(quoted, fmt.Sprintf("%q", line))
	}
	return "a Do around the call holds " + strings.Join(quoted, ", ")
}

// join lets a Do of m join the holds that the Dos around ctx have of m's names. It returns a scope for each hold, from
// the outside to the inside. It returns none if there is nothing to join, so that the Do locks. The caller must leave
// each of the scopes.
func (m *Mutex) join(ctx context.Context) (joined []*scope, err error) {
	if scopeOf(ctx) == nil {
		return nil, nil
	}
	if _, value := m.holdOrAdopted(); value != "" {
		return nil, nil // Do adopts the hold that has this value
	}
	t, err := m.beginCall()
	if err != nil {
		return nil, m.failure("lock", err, ErrFailed)
	}
	defer m.core.endCall()
	for {
		live, lines := m.around(ctx)
		err := m.checkJoin(ctx, live, lines, t.Timing)
		if err != nil {
			return nil, m.failure("lock", err, ErrFailed)
		}
		joined, err := m.joinAll(ctx, live)
		if err != nil {
			return nil, m.failure("lock", err, ErrFailed)
		}
		if len(joined) == len(live) {
			return joined, nil
		}
		// A hold has ended since. Look again.
	}
}

// checkJoin returns why a Do of m with ctx cannot join the holds in live, which have these of m's lines.
func (m *Mutex) checkJoin(ctx context.Context, live []*scope, lines []string, want lease.Timing) error {
	if len(live) == 0 {
		return nil
	}
	if err := m.checkUpgrade(live); err != nil {
		return err
	}
	if m.set.permits != 0 {
		return fmt.Errorf("%w: %s, so the call could wait for itself", ErrNested, m.heldAround(lines))
	}
	if len(lines) < len(m.claimed().Lines()) {
		return fmt.Errorf("%w: %s and not the other names, so the call could wait for itself",
			ErrNested, m.heldAround(lines))
	}
	for _, s := range live {
		if err := m.asksMore(s.nest.hold, want); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return m.withInterruption(ctx, nil)
	}
	return nil
}

// asksMore returns an error that names the first option of m that asks for more than the hold h has, which a call of m
// would join. want are the times of m.
func (m *Mutex) asksMore(h *lease.Lease, want lease.Timing) error {
	has := h.Terms().Timing
	delay, hasDelay := want.TTL-want.Expiry, has.TTL-has.Expiry
	tell := func(option string, wants, has any) error {
		return fmt.Errorf("%w: %s(%v): the hold of %q has %v", ErrNested, option, wants, h.Claim().Name(), has)
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
	case want.MinHold > has.MinHold:
		return tell("WithMinHold with drift", want.MinHold, has.MinHold)
	case m.set.fencing && h.Token() == 0:
		return tell("WithFencing", "", "no token")
	}
	return nil
}

// joinAll joins the holds of all scopes, which are in the order of around, or none of them. If one of the holds cannot
// be joined any more, it returns fewer scopes than there are holds, without an error.
func (m *Mutex) joinAll(ctx context.Context, live []*scope) (joined []*scope, err error) {
	outer := scopeOf(ctx)
	for _, by := range slices.Backward(live) {
		s := &scope{nest: by.nest, writes: !m.set.shared, outer: outer}
		isIn, err := s.nest.admit(s, by, m.set.nesting)
		if !isIn {
			leave(joined)
			return nil, err
		}
		joined, outer = append(joined, s), s
	}
	return joined, nil
}

// admit lets s join the hold. The call of s is inside the function of by, which is on the hold, and limit is that of
// the call. If the hold cannot be joined any more, admit returns false without an error.
func (n *nest) admit(s, by *scope, limit int) (isIn bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !by.liveLocked() {
		return false, nil
	}
	if s.writes && n.shared {
		return false, n.upgrade()
	}
	calls := 1 + n.joined
	for _, limit := range []int{n.limit, limit} {
		if limit != 0 && calls >= limit {
			return false, fmt.Errorf("%w: WithNesting(%d): the hold of %q has %d already",
				ErrNested, limit, n.hold.Claim().Name(), calls)
		}
	}
	n.joined++
	if s.writes {
		n.writers++
	}
	return true, nil
}

// leave ends the calls that have joined with these scopes: their functions have returned.
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
	n.joined--
	if s.writes {
		n.writers--
	}
	if n.joined == 0 && n.alone != nil {
		close(n.alone) // once: the outermost function has returned as well, so nobody joins any more
	}
}

// whileJoined calls fn on the holds that the scopes have joined. Its error is that of fn, joined with the reasons why
// holds were lost.
func (m *Mutex) whileJoined(ctx context.Context, joined []*scope, fn func(context.Context) error) (err error) {
	working, cancel := context.WithCancelCause(context.WithValue(ctx, scopeKey{}, joined[len(joined)-1]))
	defer func() {
		for _, s := range joined {
			if lost := s.nest.hold.Err(clock.Now()); lost != nil {
				err = errors.Join(err, m.failure("do", lost))
			}
		}
		cancel(nil)
		leave(joined)
	}()
	for _, s := range joined {
		select {
		case <-s.nest.returned:
			cancel(nil) // fn may tell at once that it must end
		default:
			go s.nest.watch(working, cancel)
		}
	}
	return fn(working)
}

// endByHand ends the hold for an Unlock that does not come from Do. While calls are on the hold that have joined it,
// endByHand returns an error instead, because they would go on without the lock.
func (n *nest) endByHand() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.joined > 0 && n.hold.NotHeld(clock.Now()) == nil {
		return fmt.Errorf("%w: joined calls on the hold: %d", ErrNested, n.joined)
	}
	n.over = true
	return nil
}

// share says that h, the hold of m, becomes shared. While exclusive calls are on the hold that have joined it, share
// returns an error instead, because readers would come in beside them.
func (m *Mutex) share(h *lease.Lease) error {
	n := m.nestOf(h)
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.writers > 0 {
		return fmt.Errorf("%w: exclusive joined calls on the hold: %d", ErrNested, n.writers)
	}
	n.shared = true
	return nil
}

// nestOf returns the calls on h, the hold of m, nil if it is not that of a Do.
func (m *Mutex) nestOf(h *lease.Lease) *nest {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nest == nil || m.nest.hold != h {
		return nil
	}
	return m.nest
}
