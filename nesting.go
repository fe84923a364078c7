package redsync

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// This file is about calls inside the function of a Do. The context says who the owner is: a Do whose context comes
// from a Do on the same name joins the hold of that Do, and sends nothing to the nodes. nest.go has the calls that are
// on one hold.

// WithNesting limits how many calls of Do and TryDo are on one hold at once: at most n, the outermost one included. A
// call beyond n fails at once with ErrNested. See Mutex.Do for how calls join a hold.
//
// Two limits count for a call that joins: the limit of the outermost call, and its own limit. So with WithNesting(1)
// no other call joins the hold of the Mutex, and the Mutex joins no hold. A call inside a call counts as a second
// one, also on the same goroutine. The default is no limit, the range 1 or more. A limit finds recursion that does
// not end, and bounds how many goroutines work under one hold.
func WithNesting(n int) Option {
	return OptionFunc(func(m *Mutex) {
		if n < 1 {
			m.change().fail(outOfRange("WithNesting", n, "1 or more"))
			return
		}
		m.change().nesting = n
	})
}

// join lets a Do of m join the holds that the Dos around ctx have of m's names. It returns a scope for each hold, from
// the outside to the inside. It returns none if there is nothing to join, so that the Do locks. The caller must leave
// each of the scopes.
func (m *Mutex) join(ctx context.Context) (joined []*scope, err error) {
	if scopeOf(ctx) == nil {
		return nil, nil
	}
	if _, from := m.holdOrAdopted(); from != nil {
		return nil, nil // Do adopts that hold
	}
	t, err := m.beginCall()
	if err != nil {
		return nil, m.failure("lock", err)
	}
	defer m.core.endCall()
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

// around finds the holds that the Dos around ctx have of m's names. live has the innermost live scope of each such
// hold, from the inside to the outside. lines are the lines of m (see claim.Claim.Lines) that these holds have.
// around looks only at Dos of the same core.
func (m *Mutex) around(ctx context.Context, t *lease.Terms) (live []*scope, lines []string) {
	s := scopeOf(ctx)
	if s == nil {
		return nil, nil
	}
	missing := slices.Clone(t.Claim.Lines())
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

// checkJoin returns why a Do of m with ctx cannot join the holds in live, nil if it can. lines are the
// lines of m that these holds have.
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

// checkNested returns an error if a Do around ctx holds one of m's names, because m must not lock then: the call
// could wait for the end of that Do, and the Do waits for the call.
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

// checkUpgrade returns ErrNested if m is exclusive and one of the holds is shared.
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

// waitsForItself returns the error of a call of m that could wait for the end of a Do around it. lines are those
// that the Do has, and missing says what it does not have.
func (m *Mutex) waitsForItself(lines []string, missing string) error {
	slices.Sort(lines)
	has := "holds " + quotedAll(lines)
	if alone := m.set.kind().alone; alone != "" {
		has = "has " + alone + " " + quoted(m.label())
	}
	return fmt.Errorf("%w: a Do around the call %s%s, so the call could wait for itself", ErrNested, has, missing)
}

// checkTerms returns an error if an option of m asks for more than h has, the hold that a call of m would join. The
// error names the first such option. want are the times of m.
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

// joinAll joins the holds of all scopes, which are in the order of around, or none of them. If one of the holds cannot
// be joined any more, it returns fewer scopes than there are holds, without an error.
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

// whileJoined calls fn on the holds that the scopes have joined. Its error is the reasons why holds were lost, joined
// with that of fn.
func (m *Mutex) whileJoined(joined []*scope, fn func(context.Context) error) (err error) {
	working, cancel := context.WithCancelCause(joined[len(joined)-1])
	defer func() {
		for _, s := range slices.Backward(joined) {
			if lost := overSince(s.nest.hold); lost != nil {
				err = withLoss(m.failure("do", lost), lost, err)
			}
		}
		cancel(nil)
		leave(joined)
	}()
	for _, s := range joined {
		s.nest.begins(s, cancel)
	}
	return m.endedBy(joined[len(joined)-1].Context, working, fn(working))
}
