package redsync

import (
	"context"
	"fmt"
	"sync"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// This file has the calls that are on the hold of one Do. nesting.go decides which calls join.

// A nest is the hold of a Do and the calls that are on it: the outermost call, which has locked, and those that have
// joined. The hold goes on until the functions of all of them have returned.
type nest struct {
	mutex *Mutex // of the outermost call
	hold  *lease.Lease
	limit int   // WithNesting of the outermost call; 0: no limit
	first scope // of the outermost call

	mu      sync.Mutex          // guards what follows, and what scopes say is guarded
	joined  map[*scope]struct{} // of the calls that have joined and whose functions have not returned
	writers int                 // how many of the joined calls are exclusive
	stopped bool                // stop was called
	cause   error               // why stop was called; nil if the outermost function has returned
	shared  bool                // no exclusive call may join: the hold is a reader's, or Downgrade has begun
	over    bool                // Unlock has ended the hold
	alone   chan struct{}       // for finish, which waits for joined calls: closed when none is left
}

// A scope is the context that the context of a Do's function is derived from. It says that the function works under the
// hold of nest. A call that has joined several holds has a scope for each; its context comes from the innermost.
type scope struct {
	context.Context //nolint:containedctx // the one that Do was called with

	nest   *nest
	writes bool   // the call has joined, and is exclusive
	outer  *scope // the scope around this one; nil if there is none

	// Guarded by nest.mu.
	cancel   context.CancelCauseFunc // ends the context of the function; nil before begins
	returned bool                    // the function has returned
}

type scopeKey struct{}

// scopeOf returns the scope of the innermost Do around ctx, nil if there is none.
func scopeOf(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{}).(*scope)
	return s
}

// Value implements context.Context.
func (s *scope) Value(key any) any {
	if key == (scopeKey{}) || key == (bondKey{}) {
		return s
	}
	return s.Context.Value(key)
}

func (s *scope) parent() context.Context { return s.Context }

// held implements bond. The context of s may also end because its function, or the outermost one, has returned.
func (s *scope) held() *lease.Lease {
	s.nest.mu.Lock()
	defer s.nest.mu.Unlock()
	if s.nest.cause != nil {
		return nil
	}
	return s.nest.hold
}

// The outermost call.

// newNest returns the scope of the function of a Do of m that has h. ctx is the context of the Do.
func (m *Mutex) newNest(ctx context.Context, h *lease.Lease) *scope {
	n := &nest{mutex: m, hold: h, limit: m.set.nesting, shared: h.Claim().Shares()}
	n.first = scope{Context: ctx, nest: n, outer: scopeOf(ctx)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hold != h {
		n.over = true // another call has unlocked m since
		return &n.first
	}
	if m.nest != nil && m.nest.hold == h { // Downgrade came first
		n.shared = true
	}
	m.nest = n
	return &n.first
}

// Ended implements lease.Listener. It ends the contexts of all functions on the hold if the hold is lost. They do not end
// if one of the functions unlocks the hold.
func (n *nest) Ended(loss error) {
	if loss != nil {
		n.stop(loss)
	}
}

// stop ends the contexts of all functions on the hold, and of those that begin later. Only its first call does
// anything.
func (n *nest) stop(cause error) {
	cancels := make([]context.CancelCauseFunc, 0, 4) // on the stack: mostly there are no more calls on a hold
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

// begins says that the function of s is about to be called. stop will call cancel, which ends the function's context.
func (n *nest) begins(s *scope, cancel context.CancelCauseFunc) {
	n.mu.Lock()
	s.cancel = cancel
	stopped, cause := n.stopped, n.cause
	n.mu.Unlock()
	if stopped {
		cancel(cause)
	}
}

// finish is called when the outermost function, that of s, has returned. It ends the contexts of the joined calls, and
// waits until their functions have returned, too. After that no call can join: see liveLocked.
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

// Calls that join.

// isLive reports whether a call inside the function of s would join the hold.
func (s *scope) isLive() bool {
	s.nest.mu.Lock()
	defer s.nest.mu.Unlock()
	return s.liveLocked()
}

// liveLocked reports whether the hold of s is held and its release must wait for the function of s. A call inside that
// function must not wait for the release, because the release waits for the call. A call that comes later, from a
// goroutine that has outlived the function, must not join: the hold might never end. Once liveLocked has reported
// false it never reports true again.
func (s *scope) liveLocked() bool {
	return !s.returned && !s.nest.over && s.nest.hold.NotHeld(clock.Now()) == nil
}

// admit lets s join the hold. The call of s was made inside the function of caller, which is on the hold. limit is the
// WithNesting of the call. If the hold cannot be joined any more, admit returns false without an error.
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
	delete(n.joined, s)
	if s.writes {
		n.writers--
	}
	if len(n.joined) == 0 && n.alone != nil {
		close(n.alone) // once: all functions on the hold have returned, so no call can join any more
	}
}

// Unlock and Downgrade of the hold while calls are on it.

// endByHand ends the hold for an Unlock that does not come from Do. If joined calls are still on the hold, endByHand
// returns an error instead, because these calls would go on without the lock.
func (n *nest) endByHand() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.joined) > 0 && n.hold.NotHeld(clock.Now()) == nil {
		return fmt.Errorf("%w: joined calls on the hold: %d", ErrNested, len(n.joined))
	}
	n.over = true
	return nil
}

// shareNest keeps exclusive calls from joining h, the hold of m, because Downgrade is about to share it. If exclusive joined
// calls are still on it, shareNest returns an error instead, because readers would come in beside these calls.
func (m *Mutex) shareNest(h *lease.Lease) error {
	m.mu.Lock()
	if m.hold == h && (m.nest == nil || m.nest.hold != h) {
		m.nest = &nest{mutex: m, hold: h} // newNest finds it if h is that of a Do whose function begins just now
	}
	n := m.nest
	m.mu.Unlock()
	if n == nil || n.hold != h {
		return nil // another call has unlocked m since
	}
	return n.makeShared()
}

// makeShared is shareNest's.
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
