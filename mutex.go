package redsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/journal"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/queue"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/observe"
)

// A Mutex is a lock on a name. It excludes every other client that locks the same name on the same nodes. Make one
// with Redsync.NewMutex. WithShared makes it a reader, and WithPermits makes it take one of n permits. A Mutex of
// Redsync.NewMultiMutex is a lock on several names.
//
// Many goroutines may use a Mutex at once. As with sync.Mutex, no goroutine owns a lock: one may lock it and another
// may unlock it. A nil context stands for context.Background().
//
// The zero Mutex is a stub for tests, as in redsync v4: Unlock and Valid return true, Extend returns ErrExtendFailed,
// Lock panics, and all other operations return ErrNoPools.
type Mutex struct {
	core    *core
	room    claim.Keyed // the name, and room for the claim, of a lock on one name
	several *several    // of a lock on several names; nil if it has one
	set     *settings   // those of the Redsync or of many Mutexes, unless changed; nil in the zero Mutex
	terms   lease.Terms // derived from set; in use only if set has a policy, because an option may be applied after NewMutex

	mu       sync.Mutex    // guards hold, unlocks, nest, adopts and usedByDo
	hold     *lease.Lease  // the current term; nil before the first, and after Unlock and Detach
	unlocks  lease.Unlocks // the last Unlock, until m is locked again
	nest     *nest         // of the last Do or Downgrade: its hold (perhaps not the current term) and the calls on it
	adopts   *adoption     // the hold of WithValue or WithSequencer, until there is a hold; nil without
	usedByDo bool          // a Do uses m; only with WithShared or WithPermits: see forDo
	changed  bool          // set is m's own: see change
}

// A several is the names of a lock on several names.
type several struct {
	label string   // what Name returns, but "" if there are no names or too many
	names []string // sorted and distinct
}

// NewMutex returns a lock with the given name, which is its Redis key (WithPrefix puts a prefix before it). It sends nothing. The lock is
// exclusive, unless WithShared makes it a reader, or WithPermits makes it take a permit. The name must not be
// empty. Names of the form {x}:queue, {x}:fence, {x}:slots and {x}:slot:0 (or another number) are reserved,
// because they are keys that belong to the name x. With an empty or reserved name, or an out-of-range option,
// every operation fails and says so.
func (r *Redsync) NewMutex(name string, options ...Option) *Mutex {
	m := r.newMutex(r.prefix() + name)
	m.configure(options)
	return m
}

// newMutex returns a Mutex with a key, which configure must make ready.
func (r *Redsync) newMutex(key string) *Mutex {
	if r == nil {
		r = &Redsync{} // r comes from an Open that failed, and has no nodes
	}
	m := &Mutex{core: r.core, set: r.set}
	m.room.Init(key)
	return m
}

// With returns a Redsync on the same nodes. The options change the defaults of its locks.
// Close of r or of any Redsync that With returned closes all of them.
func (r *Redsync) With(options ...Option) *Redsync {
	m := r.newMutex(r.prefix())
	m.apply(options)
	m.settle()
	return &Redsync{core: m.core, set: m.set}
}

// Current asks the nodes whether s belongs to the current hold of its lock. It returns nil if
// a quorum holds the value of s. The error matches ErrLockAlreadyExpired if the nodes prove
// that the hold is over. Any other error leaves open whether the hold is over.
//
// Ask through the same set of nodes as the holder. While the nodes change, a Redsync of NewJoint finds only the holds
// of NewJoint. A Redsync of New also finds the holds of a NewJoint that has the same nodes as one of its two sets.
//
// The hold may end right after the answer. A server that cannot accept that must compare
// tokens instead.
func (r *Redsync) Current(ctx context.Context, s Sequencer) error {
	if s.Name == "" || s.Value == "" {
		return fmt.Errorf("redsync: a sequencer without a hold: %w", ErrNotHeld)
	}
	as := observe.Mode("") // that of the kind of lock that finds the value
	if s.Mode == modePlain {
		as = observe.Plain
	}
	if s.Mode == modePlain || s.Mode == modeReaders {
		s.Mode = modeRead // the holder may have downgraded the lock; valid_shared.lua finds the value in either form
	}
	adopts := func(m *Mutex) {
		set := m.change()
		set.takeAsIs(&adoption{sequencer: s, mode: as})
		set.prefix = "" // the name has it already
	}
	if prefix := r.prefix(); !s.isUnder(prefix) {
		return fail("current", s.Name, fmt.Errorf("the lock is not one of WithPrefix(%s)", quoted(prefix)))
	}
	m := r.newMutex(s.Name)
	m.configure([]Option{OptionFunc(adopts)})
	_, err := m.valid(orBackground(ctx), "current")
	return err
}

// An Option configures a Mutex. An out-of-range option makes every operation fail with an error that names
// the option, the value and the range. Open, OpenJoint, With, NewMutex, NewMultiMutex, Do, TryDo and Lead
// take options. An option that is applied to a held Mutex takes effect with its next Lock.
type Option interface {
	Apply(*Mutex)
}

// OptionFunc is a function that configures a Mutex.
type OptionFunc func(*Mutex)

// Apply calls f(m).
func (f OptionFunc) Apply(m *Mutex) {
	if f == nil {
		m.change().fail(errors.New("redsync: nil OptionFunc"))
		return
	}
	f(m)
}

// change returns the settings of m for an option to change. Until the first change m shares its settings
// with others; change makes a copy that belongs to m alone.
func (m *Mutex) change() *settings {
	if !m.changed {
		base := &defaultOptions
		if m.set != nil {
			base = &m.set.options
		}
		m.set, m.changed = newSettings(base), true
		m.set.givenTries, m.set.givenWait = false, false // what is given now replaces the other
	}
	m.set.policy = nil
	return m.set
}

// apply lets options change the settings of m.
func (m *Mutex) apply(options []Option) {
	for i, o := range options {
		if o == nil {
			m.change().fail(fmt.Errorf("redsync: option #%d is nil", i))
			continue
		}
		o.Apply(m)
	}
}

// settle makes what follows from the settings of m. m then shares its settings with other Mutexes, if that is possible.
func (m *Mutex) settle() {
	if m.changed && m.core != nil {
		set, shared := m.core.recents.settle(m.set)
		m.set, m.changed = set, !shared
	}
}

// configure gives m, which is new, its options.
func (m *Mutex) configure(options []Option) {
	m.apply(options)
	if m.set != nil && m.set.adopts != nil {
		m.takeWholeName(m.set.adopts.sequencer)
	}
	m.checkNames()
	if m.set != nil && m.set.adopts != nil {
		m.adoptNamed()
	}
	m.settle()
	m.prepare()
}

// checkNames makes the operations of m fail if no lock can have its names.
func (m *Mutex) checkNames() {
	var err error
	prefix := m.prefix()
	if m.several != nil {
		err = m.core.checkNames(prefix, m.several.names)
	} else {
		err = checkName(prefix, m.room.Name())
	}
	if err != nil {
		m.change().fail(err)
	}
}

// adoptNamed makes m a lock such as the one whose hold it adopts. If m does not fit that hold, its operations will fail.
func (m *Mutex) adoptNamed() {
	set := m.change()
	own := *set.adopts // the Redsync may have the same for other Mutexes
	m.adopts, set.adopts = &own, &own
	names, err := set.adopt(m.label(), m.names())
	if err != nil {
		set.fail(err)
	} else if len(names) != len(m.names()) {
		m.setNames(names)
		m.checkNames()
	}
}

// setNames makes m a lock on several names, which are distinct. If there are no names or too many, m can never be held,
// and its label stays empty, so that no error lists thousands of names.
func (m *Mutex) setNames(names []string) {
	m.change().several, m.several = true, &several{names: names}
	if len(names) <= claim.MaxLines {
		m.several.label = joinNames(names)
	}
}

// prefix returns the prefix of r's locks. r may be nil.
func (r *Redsync) prefix() string {
	if r == nil || r.set == nil {
		return ""
	}
	return r.set.prefix
}

// prefix returns the prefix that the names of m have.
func (m *Mutex) prefix() string {
	if m.set == nil {
		return ""
	}
	return m.set.prefix
}

// replacePrefix gives the names of m, which is new, another prefix.
func (m *Mutex) replacePrefix(prefix string) {
	former := len(m.prefix())
	m.change().prefix = prefix
	if m.several == nil {
		m.room.Init(prefix + m.room.Name()[former:])
		return
	}
	names := make([]string, 0, len(m.several.names))
	for _, name := range m.several.names {
		names = append(names, prefix+name[former:])
	}
	m.setNames(names)
}

// takeWholeName takes the prefix off the names of m again if the program has given the names of s, which have it already.
func (m *Mutex) takeWholeName(s Sequencer) {
	prefix := m.prefix()
	switch names := s.Names(); {
	case prefix == "" || s.Name == "" || !s.isUnder(prefix):
	case m.several == nil:
		if m.room.Name() == prefix+s.Name {
			m.room.Init(s.Name)
		}
	case slices.EqualFunc(m.several.names, names, func(own, of string) bool { return own == prefix+of }):
		m.setNames(names)
	}
}

// prepare makes the terms of m, if its settings are in order. Only the settings of a core have a policy.
func (m *Mutex) prepare() {
	switch {
	case m.core == nil:
	case m.set.policy != nil:
		m.terms = m.termsBy(m.set.policy)
	default:
		m.terms.Keeper = &m.core.keeper // see isMade
	}
}

// isMade reports whether NewMutex or NewMultiMutex has made m, so that its names stay as they are: leases use their memory.
func (m *Mutex) isMade() bool { return m.terms.Keeper != nil }

// termsBy returns the terms of m's locks by a policy.
func (m *Mutex) termsBy(p *lease.Policy) lease.Terms {
	t := lease.Terms{Policy: p, Keeper: &m.core.keeper, Claim: m.set.kind().claim(&m.set.options, &m.room, m.names())}
	if m.set.observers != nil {
		e := &events{to: m.set.observers, notices: m.core.notices, name: m.label(), mode: m.set.kind().mode}
		if from := m.set.adopts; from != nil && from.mode != "" {
			e.mode = from.mode
		}
		t.Events = e
	}
	return t
}

// isZero reports whether m is the zero Mutex.
func (m *Mutex) isZero() bool {
	return m.core == nil && m.set == nil && m.several == nil && m.room.Name() == ""
}

// Name returns the name of the lock, its Redis key, with the prefix of WithPrefix. For a lock on several names it returns all of them,
// joined with ", ".
func (m *Mutex) Name() string {
	if label := m.label(); label != "" {
		return label
	}
	return joinNames(m.names())
}

// label returns the name for errors and events.
func (m *Mutex) label() string {
	if m.several != nil {
		return m.several.label
	}
	return m.room.Name()
}

// Names returns the names of the lock, its Redis keys, sorted and without duplicates. Most locks have one
// name. If NewMultiMutex was given too many names, or names that no lock can have, Names still returns them.
// If it was given no names, Names returns an empty list.
func (m *Mutex) Names() []string { return slices.Clone(m.names()) }

func (m *Mutex) names() []string {
	switch {
	case m.several != nil:
		return m.several.names
	case m.core == nil: // the zero Mutex
		return nil
	}
	return m.room.Lines()
}

// Value returns the value that the nodes hold for the current lock, also after a loss, until the next Lock or Unlock.
// Before the first Lock it is the value of WithValue or WithSequencer. Otherwise it is "".
//
// Who has the value can extend and release the lock. Once Value or Sequencer has returned it, no other lock of this
// process gets it: Unlock does not hand the lock over, no further reader shares it, and a later Lock of m does not
// release it. To give the lock away use Detach.
//
// A slow node may set its key after Lock has returned. To give the lock to a library that releases only once, acquire
// it with WithFailFast(false).
func (m *Mutex) Value() string {
	h, adopts := m.holdOrAdopted()
	if h != nil {
		return h.Show()
	}
	return adopts.valueOf()
}

// Until returns the time at which the lock ends unless it is extended. It still returns that time after the lock has
// expired. It returns the zero time before the first Lock, after Unlock or Detach, and once Close has ended
// the lock or the nodes have proved that it is lost. Use Until for display only. To decide whether you may go
// on, ask Remaining: it also notices a clock that was set and a machine that slept.
func (m *Mutex) Until() time.Time {
	if h := m.current(); h != nil {
		return h.Until()
	}
	return time.Time{}
}

// Remaining returns how long the holder may still rely on the lock. It goes by the wall clock and
// by the monotonic clock, and returns the shorter of the two times. It returns 0 when m is not
// held. It sends nothing, so call it before each step that needs the lock.
func (m *Mutex) Remaining() time.Duration {
	if h := m.current(); h != nil {
		return h.Remaining(clock.Now())
	}
	return 0
}

// Lost returns a channel that is closed when the lock has ended without Unlock or Detach. That is at Until, or soon after
// it if a timer is late, even if no node can be reached. It is earlier on Close, and when an extension or a Valid proves
// that the nodes no longer hold the lock. Err says why. If m is not held, Lost returns nil.
//
// While the machine is suspended, no timer fires. Once the machine runs again, the library notices the
// suspension within a tenth of the expiry (at least 10 ms, at most 1 s). It needs the same time to notice
// that a wall clock was set forward.
func (m *Mutex) Lost() <-chan struct{} {
	if h := m.current(); h != nil {
		return h.Lost(clock.Now())
	}
	return nil
}

// Err returns nil while m is held. Otherwise it returns why m is not held. Before the first
// Lock, and after Unlock or Detach, that is ErrNotHeld. In all other cases it is ErrLockLost
// together with its cause: ErrLockAlreadyExpired (Until has passed, or the nodes have proved the
// loss), ErrMaxHold or ErrClosed. Err sends nothing.
func (m *Mutex) Err() error {
	if h := m.current(); h != nil {
		return h.Err(clock.Now())
	}
	return ErrNotHeld
}

// Lock is LockContext without a context. By default it gives up after about 4.7 s: see WithTries.
func (m *Mutex) Lock() error {
	return m.LockContext(context.Background())
}

// LockContext acquires m. It tries until the tries of WithTries are used up, the time of WithWait is over, or ctx is
// done.
//
// BY DEFAULT LOCK GIVES UP AFTER ABOUT 4.7 S, before the lock of a crashed holder expires (8 s). WithWait sets how
// long it waits. With WithTries(0) it waits until ctx is done.
//
// On success m is held until Until, which counts from before the first request of the attempt that won, minus drift.
// After that another process may hold the name, even if Unlock was never called.
//
// If m is held already, Lock waits as for any other holder: only Do is reentrant.
//
// On failure nothing was acquired. Keys already set are released in the background.
//
// Errors:
//
//   - ErrFailed, if others have the lock. *ErrTaken comes with it unless only callers of this process are ahead, and
//     a *RedisError for each node that failed.
//   - ErrNoQuorum, if too few nodes answered in time.
//   - The error of ctx, and its cause, with ErrFailed or ErrNoQuorum if the last complete attempt before says so.
//   - ErrNested, if ctx comes from a Do that holds the name: call Do instead.
//   - ErrClosed, ErrDuplicateNode or ErrNoPools.
//   - The error of the function of WithGenValueFunc, or one that names an option or a name that cannot be used.
func (m *Mutex) LockContext(ctx context.Context) error {
	_, err := m.lock(ctx, false, false)
	return err
}

// TryLock is TryLockContext without a context.
func (m *Mutex) TryLock() error {
	return m.TryLockContext(context.Background())
}

// TryLockContext makes one attempt to acquire m, and does not wait for the lock. Its errors are those of LockContext.
//
// If some nodes granted the lock and others had another value, it repeats the attempt, up to three times, each after
// a random delay of a few milliseconds or a few round trips. Otherwise several calls at the same moment could all
// fail, although the lock was free. No repetition begins when ctx is done, or after the node deadline (with
// WithPermits it may, if a permit was seen free).
//
// By default a call fails at once if a quorum of nodes refuses before any node grants. With WithFailFast(false) it
// waits for all nodes. See docs/design.md.
func (m *Mutex) TryLockContext(ctx context.Context) error {
	_, err := m.lock(ctx, true, false)
	return err
}

// lock acquires m for a new term, returns the term, and tells the observers. If once is set, it acquires
// m as TryLock does. If inDo is set, the term is that of a Do.
func (m *Mutex) lock(ctx context.Context, once, inDo bool) (*lease.Lease, error) {
	ctx = orBackground(ctx)
	t, err := m.beginCall()
	if err != nil {
		return nil, m.failure("lock", err)
	}
	defer m.core.endCall()
	if ctx.Value(scopeKey{}) != nil { // a Do is around the call
		if err := m.checkNested(ctx, t); err != nil {
			return nil, m.failure("lock", err)
		}
	}
	if inDo {
		t = termsInDo(t)
	}
	m.dropOver()
	start := clock.Now()
	var waits queue.Wait
	returned := false
	if t.Events != nil {
		defer eventsOf(t).panicked(ctx, start, &waits, &returned)
	}
	h, err := m.acquire(ctx, t, start, once, &waits)
	returned = true
	if err != nil {
		tryDo := once && inDo // which returns no error
		if m.set.owner != "" && !m.set.leads && !tryDo && !m.core.keeper.IsClosed() {
			err = takenBy(t, err) //nolint:contextcheck // the context of the call may have ended
		}
		err = m.failure("lock", err)
		if t.Events != nil {
			eventsOf(t).notAcquired(ctx, start, waits, err)
		}
		return nil, err
	}
	if t.Events != nil {
		m.acquired(ctx, h, start, waits, nil)
	}
	return h, nil
}

// termsInDo returns the terms of a hold that a Do has. They are a changed copy of t, so that t stays as it is.
func termsInDo(t *lease.Terms) *lease.Terms {
	own := *t
	own.Policy = t.OfDo
	return &own
}

// acquire acquires a lease for m, and makes the lease the current term.
func (m *Mutex) acquire(ctx context.Context, t *lease.Terms, start clock.Instant, once bool, waits *queue.Wait) (*lease.Lease, error) {
	limit := m.set.tries
	switch {
	case t.EndsIfDenied: // Lead's
		limit = 0
	case once:
		limit = 1
	}
	if wait := m.set.wait; wait > 0 && !once {
		waiting, stop := context.WithTimeoutCause(ctx, wait, quorum.Waited{For: wait})
		defer stop()
		ctx, limit = waiting, 0
	}
	for {
		if m.set.kind().sharesName {
			var err error
			if limit, err = m.awaitOwn(ctx, t, start, limit, waits); err != nil {
				return nil, err
			}
		}
		h, why := m.core.member.Group.Lock(ctx, t, start, limit, waits)
		if why != nil {
			err := m.notAcquired(ctx, t, why)
			if notes := m.gaveUp(t, why, start); notes != nil {
				err = fail("", "", err, notes)
			}
			return nil, err
		}
		err := m.begin(h)
		switch {
		case errors.Is(err, errHeldByItself):
			continue // another call has locked m meanwhile, so this call waits for the end of that hold
		case errors.Is(err, ErrLockAlreadyExpired):
			return nil, errTooLate
		}
		return h, err
	}
}

// errHeldByItself is the error of Lock if the Mutex is held already, for kinds with sharesName.
var errHeldByItself = errors.New("redsync: this Mutex holds the lock already: use a Mutex for each holder")

// awaitOwn waits until m itself is not held. Locks with kind.sharesName need this, because the nodes would
// grant m a second hold. awaitOwn checks m, and checks again after each retry delay or when the hold ends. Each
// check that finds m held uses one of the limit tries. If m is not held, awaitOwn returns how many tries are left
// for the nodes, at least one. Once the tries are used up, it returns errHeldByItself. A limit of 0 means no limit,
// and awaitOwn then returns 0.
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

// notAcquired returns why Lock has acquired nothing: why the last attempt failed, and what kept Lock
// from making another one. Once ctx has ended, other callers who were ahead prove nothing.
func (m *Mutex) notAcquired(ctx context.Context, t *lease.Terms, why *queue.Failure) error {
	if why.Last.IsCut() && quorum.HasWaited(ctx) { // the only attempt: nodes that had not answered by then have failed
		why.Last.Result.Cut, why.Last.Told = false, nil
	}
	switch {
	case why.Delay < 0:
		return outOfRange("WithRetryDelayFunc", why.Delay, "0 or more")
	case why.Denied != nil:
		return deniedBy(m.core.keeper.Set, why.Denied)
	case why.Last.Kind == lease.Waiting && ctx.Err() != nil && !quorum.HasWaited(ctx):
		return m.interrupted(ctx, nil)
	case why.Interrupted:
		return m.interrupted(ctx, verdict(m.label(), t.Claim.Lines(), why.Last))
	}
	return verdict(m.label(), t.Claim.Lines(), why.Last)
}

// gaveUp says what a person wants to know of a call that began at start and has waited in vain: how long it tried, which
// Mutex of this process has the lock, and when the keys run out. It returns nil if there is nothing to say.
func (m *Mutex) gaveUp(t *lease.Terms, why *queue.Failure, start clock.Instant) error {
	if o := why.Last; why.Tries == 0 || o.Kind == lease.NotAsked || o.Kind == lease.Waiting || o.IsCut() {
		return nil
	}
	now, tries := clock.Now(), "1 try"
	if why.Tries > 1 {
		tries = fmt.Sprintf("%d tries", why.Tries)
	}
	tried := note(fmt.Sprintf("gave up after %s in %v", tries, journal.Rounded(now.Since(start))))
	if why.Last.Kind != lease.NotWon || !why.Last.Heard() {
		return fail("", "", tried)
	}
	holder := error(nil)
	if h := m.core.keeper.HeldOn(t.Claim.Lines()); h != nil {
		holder = note(fmt.Sprintf("another Mutex of this process has had it for %v", journal.Rounded(now.Since(h.First))))
		if h == m.current() {
			holder = note(fmt.Sprintf("this Mutex has had it for %v: is an Unlock missing? Use one Mutex for each caller",
				journal.Rounded(now.Since(h.First))))
		}
	}
	ends := error(nil)
	if left, ok := why.Last.Result.Ends(now); ok {
		ends = note(fmt.Sprintf("its key expires in %v at the latest, unless it is extended", journal.Rounded(left)))
	}
	return fail("", "", tried, holder, ends)
}

// interrupted returns the error of a call that waits for the lock: ErrClosed after Close, the error of ctx and its
// cause if ctx is done, and why the lock was not acquired before. After Close, that does not matter. After WithWait it is
// all that matters.
func (m *Mutex) interrupted(ctx context.Context, why error) error {
	if m.core.keeper.IsClosed() {
		return fail("", "", ErrClosed, contextErrors(ctx))
	}
	if quorum.HasWaited(ctx) {
		return cmp.Or(why, fail("", "", ErrFailed, errWaiting))
	}
	return fail("", "", contextErrors(ctx), why)
}

// acquired tells the observers, if there are any, that m holds h, after a call that began at start. If an observer
// panics, the caller does not learn of the hold, so m gives it up. A lock that the call acquired is
// released, as by Unlock; a lock that it adopted stays on the nodes, and m has its value as before.
func (m *Mutex) acquired(ctx context.Context, h *lease.Lease, start clock.Instant, waits queue.Wait, adopted *adoption) {
	told, e := false, eventsOf(h.Terms())
	defer func() {
		if !told {
			m.giveUp(h, adopted)
		}
	}()
	now := clock.Now()
	e.heldSince(ctx, h, now)
	took := now.Since(start)
	tell(ctx, e.to.now.Acquired, observe.Acquired{
		Name: e.name, Mode: e.mode, Start: start.Wall, Took: took, Waited: min(h.First.Since(start), took), Tries: int(h.Try),
		Left: h.Remaining(now), Call: waits.Number,
	})
	told = true
}

// giveUp ends h, unless another call has ended it meanwhile, and makes m what it was
// before: not held, or the holder of an adopted value, which stays on the nodes.
func (m *Mutex) giveUp(h *lease.Lease, adopted *adoption) {
	m.mu.Lock()
	mine := m.hold == h
	if mine {
		m.hold, m.adopts = nil, adopted
	}
	m.mu.Unlock()
	switch {
	case !mine:
	case adopted == nil:
		h.Abandon(errPanicked)
	default:
		h.End(errPanicked)
	}
}

// begin makes h, which has won, the current term of m. If m has a former term, that term is
// over: the grant of h proves it, or replaceBy has checked it. h cannot begin if its validity
// ended meanwhile, or if Close has begun. Then begin releases h, and the former term stays.
func (m *Mutex) begin(h *lease.Lease) error {
	former, err := m.replaceBy(h)
	if err != nil {
		h.Abandon(err)
		return err
	}
	switch {
	case former == nil:
	case !h.Claim().HoldsAlone(): // h was granted beside the keys of the former term, so they may be kept on purpose
		former.End(lost(nil))
		former.ClearUnlessDelayed()
	default:
		former.End(lost(nil))
		former.ClearAway()
	}
	return nil
}

// replaceBy makes h the current term, if it can begin, and returns the former term. It keeps m.mu
// locked from the check to the replacement. Otherwise h could end after the check, and then replace
// a term that began later.
func (m *Mutex) replaceBy(h *lease.Lease) (former *lease.Lease, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.set.kind().sharesName && m.hold != nil && m.hold.NotHeld(clock.Now()) == nil {
		return nil, errHeldByItself // the grant of h does not prove that the former term is over
	}
	if err := h.Begin(); err != nil {
		return nil, err
	}
	former = m.hold
	m.hold, m.adopts = h, nil
	m.unlocks.Forget()
	return former, nil
}

// dropOver ends the current term if its validity is over. It also releases the keys of that term, because
// they would stand in the way of the next one. With a lock delay, or if the user has seen the value, the
// keys stay.
func (m *Mutex) dropOver() {
	m.mu.Lock()
	h := m.hold
	if h == nil || h.NotHeld(clock.Now()) == nil {
		m.mu.Unlock()
		return
	}
	m.hold = nil
	m.mu.Unlock()
	h.End(ErrLockAlreadyExpired)
	h.ClearUnlessDelayed()
}

// Unlock is UnlockContext without a context.
func (m *Mutex) Unlock() (bool, error) {
	return m.UnlockContext(context.Background())
}

// UnlockContext releases m. It returns true once a quorum has deleted the keys before Until, or once it has handed
// the lock to the next waiter (see WithHandOver), or if other readers of the process go on with the lock (see
// WithShared).
//
// AFTER UNLOCKCONTEXT m IS NOT HELD, whatever it has returned, except for ErrNested. The release goes on in the
// background until every node has confirmed it or the keys have run out, whatever happens to ctx. If ctx was done
// before, the call still waits for the nodes, at most 500 ms: a program may exit right after it.
//
// A second call waits for the first. It returns true if a quorum has confirmed in time by then.
//
// Errors:
//
//   - ErrLockAlreadyExpired: the lock was over before a quorum confirmed the release. Another client may have held
//     it.
//   - ErrNoQuorum: too few nodes have answered. It is unknown whether the lock was released in time.
//   - ErrNotHeld, which matches ErrLockAlreadyExpired too: there was no Lock, Unlock has returned true already, or
//     the lock had ended before the first Unlock.
//   - ErrNested: other calls of Do have joined the lock, which goes on.
//   - The error of ctx, if ctx was done before the call.
func (m *Mutex) UnlockContext(ctx context.Context) (bool, error) {
	return m.unlockOnly(orBackground(ctx), nil)
}

// unlockOnly does what Unlock does. If only is not nil, it unlocks m only if only is the current term.
func (m *Mutex) unlockOnly(ctx context.Context, only *lease.Lease) (ok bool, err error) {
	if m.isZero() && only == nil {
		return true, nil
	}
	t, err := m.beginUnlock()
	if err != nil {
		return false, m.failure("unlock", err)
	}
	defer m.core.endCall()
	start := clock.Now()
	h, adopted, err := m.take(only)
	if err != nil {
		return false, m.failure("unlock", err)
	}
	switch {
	case h == nil && adopted == nil && only == nil:
		return m.unlockAgain(ctx)
	case h == nil && adopted == nil:
		return false, m.failure("unlock", ErrNotHeld)
	case h == nil:
		defer func() { m.unlocked(h, adopted, ok, err) }()
		waiting, _, stop := unhurried(ctx, t, nil)
		m.core.keeper.Set.Identify(waiting, t.Timing.NodeTimeout) // before Adopt, which notes which nodes may have the value
		stop()
		h = m.adoptLease(t, adopted, start)
	default:
		defer func() { m.unlocked(h, nil, ok, err) }()
	}
	if h.Terms().Events == nil {
		return m.unlock(ctx, h, h.EndHeld(start), start)
	}
	e := eventsOf(h.Terms())
	e.over(h)
	event := observe.Released{Name: e.name, Mode: e.mode, Start: start.Wall}
	if h.Begun() {
		event.Held, event.Left = start.Since(h.First), h.Remaining(start)
	}
	over := h.EndHeld(start)
	event.Ended = over == nil && h.Begun()
	ok, err = m.unlock(ctx, h, over, start)
	event.Took, event.Err = clock.Now().Since(start), err
	tell(ctx, e.to.now.Released, event)
	return ok, err
}

// unlock hands h over or releases it. over is what EndHeld returned at start.
func (m *Mutex) unlock(ctx context.Context, h *lease.Lease, over error, start clock.Instant) (bool, error) {
	group := m.core.member.Group
	if over != nil {
		late := endedEarly(h, over, start)
		h.End(nil)
		group.ReleaseAndAdmit(h)
		return false, m.failure("unlock", over, late)
	}
	waiting, ended, stop := unhurried(ctx, h.Terms(), h)
	defer stop()
	h.End(nil)
	if !h.Leave() || group.HandOver(h) {
		return true, nil // other readers of this process have the lock, or the next waiter
	}
	// Identify finds a server that is reached at two addresses. Otherwise it would be asked twice,
	// and would answer the second time that it has no such key.
	if set := m.core.keeper.Set; !set.IsIdentified() {
		set.Identify(waiting, h.Terms().Timing.NodeTimeout)
	}
	rel := group.ReleaseAwaited(ctx, h)
	res := rel.Wait(waiting)
	if !res.Won || ended {
		rel.Outlives(res)
	}
	res.Cut = res.Cut || ended // no deadline is the reason then
	group.Unlocked(h, rel)
	switch {
	case res.Won && rel.WasInTime() && !ended:
		return true, nil
	case res.Won && !rel.WasInTime(), res.Rejected:
		nodes := unconfirmed(m.label(), res)
		h.NoteLoss(lost(nodes))
		return false, m.failure("unlock", ErrLockAlreadyExpired, nodes, goneEarly(h, res, start))
	case !ended:
		ctx = waiting
	}
	return false, m.failure("unlock", m.interruption(ctx), unconfirmed(m.label(), res),
		note(fmt.Sprintf("the lock is no longer held; keys that are left go in %v at the latest", journal.Rounded(h.Terms().Timing.TTL))))
}

// unhurried returns the context with which the release of h is awaited, and is called before h ends: ctx apart from h, or
// the Grace of ctx if it has ended, because the program may exit right after the Unlock. h may be nil.
func unhurried(ctx context.Context, t *lease.Terms, h *lease.Lease) (waiting context.Context, ended bool, stop func()) {
	switch {
	case ctx.Done() == nil:
		return ctx, false, func() {}
	case ctx.Err() == nil:
		waiting, stop = apartFrom(ctx, h)
		return waiting, false, stop
	}
	waiting, stop = lease.Grace(ctx, t.Timing.NodeTimeout)
	return waiting, true, stop
}

// endedEarly says how long h had been over at now, when Unlock was called, if it has expired. Otherwise it returns nil.
func endedEarly(h *lease.Lease, over error, now clock.Instant) error {
	if errors.Is(over, ErrLockLost) || errors.Is(over, ErrMaxHold) || !errors.Is(over, ErrLockAlreadyExpired) || errors.Is(over, ErrNotHeld) {
		return nil
	}
	expiry := h.Terms().Timing.Expiry
	return note(fmt.Sprintf("it ended %v before Unlock (expiry %v, locked for %v), so another process may have worked meanwhile: "+
		"use Do or WithWatchdog, or a longer expiry", journal.Rounded(now.Wall.Sub(h.Until())), expiry, journal.Rounded(now.Since(h.First))))
}

// goneEarly says what may have become of h, which Unlock has ended at now, and whose keys it has found gone. Nodes do not
// tell a key that was released from one that has run out, so only time can. If another client has the lock, it returns nil.
func goneEarly(h *lease.Lease, res quorum.Result, now clock.Instant) error {
	switch {
	case !res.Rejected, res.IsTaken():
		return nil
	case !h.Begun():
		return note("its keys are gone: it was released already, or it has expired")
	}
	left, _ := h.EndLate(now) // more than 0, because EndHeld has found it held
	return note(fmt.Sprintf("its keys were gone %v before its end: it was released already, or somebody has deleted them",
		journal.Rounded(left)))
}

// take removes the current term, or the adopted value, from m and returns it. If only is not nil and is not
// the current term, take changes nothing and returns nothing. If only is nil, take fails and changes nothing
// if Lead has the current term, or if other calls have joined it.
func (m *Mutex) take(only *lease.Lease) (h *lease.Lease, adopted *adoption, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if only != nil && m.hold != only {
		if m.nest != nil && m.nest.hold == only {
			m.nest = nil // it would keep the context of its Do
		}
		return nil, nil, nil
	}
	if only == nil && m.set.leads {
		return nil, nil, errInLead
	}
	if n := m.nest; only == nil && n != nil && n.hold == m.hold {
		if err := n.endByHand(); err != nil {
			return nil, nil, err
		}
	}
	h, adopted = m.hold, m.adopts
	m.hold, m.adopts, m.nest = nil, nil, nil
	switch {
	case h != nil:
		m.unlocks.Begin(h, nil)
	case adopted != nil:
		m.unlocks.Begin(nil, adopted)
	}
	return h, adopted, nil
}

// unlocked notes how the Unlock of h, which was made from an adoption if that is not nil, has ended.
func (m *Mutex) unlocked(h *lease.Lease, from any, ok bool, err error) {
	if !ok && err == nil { // the call panics
		err = m.failure("unlock", errPanicked)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unlocks.End(h, from, ok, err)
}

// unlockAgain does what Unlock does if m is not held. While another Unlock of the last term is under way, it waits for its
// outcome. If that Unlock has failed, it waits for the release, which has gone on since.
func (m *Mutex) unlockAgain(ctx context.Context) (bool, error) {
	m.mu.Lock()
	last := m.unlocks.Last()
	m.mu.Unlock()
	if last == nil {
		return false, m.failure("unlock", ErrNotHeld)
	}
	again := last.HasEnded()
	if !last.Wait(ctx) {
		return false, m.failure("unlock", m.interruption(ctx))
	}
	ok, err, known := last.Outcome()
	switch {
	case !known:
		return false, m.failure("unlock", ErrNotHeld)
	case ok || !again || !last.Retry(ctx):
		return ok, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unlocks.Settle(last)
	return true, nil
}

// Detach gives the lock away without releasing it. Another Mutex, also of another process, takes it over with the
// Sequencer that Detach returns: see WithSequencer. It should call Extend or Do before Until has passed.
//
// After success m is not held, and nothing that m or its Redsync does later touches the lock: the watchdog has
// stopped, Close does not unlock it, and Lost is not closed. Detach waits until the nodes have answered what could
// set or prolong a key, at most for the node deadline or until ctx is done.
//
// Errors:
//
//   - ErrNotHeld, also for an adopted value that has not been extended, and for the second of two calls at once.
//   - ErrLockAlreadyExpired or ErrLockLost, if the lock is over. If Until passes while Detach waits, both match.
//   - The error of ctx, and its cause, if ctx is already done.
//   - ErrClosed.
//   - An error that says why this lock cannot be detached: Do or Lead will unlock it, other readers share it (see
//     WithShared), or it has WithMinHold.
//   - An error that names an option or a name that cannot be used.
func (m *Mutex) Detach(ctx context.Context) (Sequencer, error) {
	ctx = orBackground(ctx)
	if _, err := m.beginCall(); err != nil {
		return Sequencer{}, m.failure("detach", err)
	}
	defer m.core.endCall()
	start := clock.Now()
	h, err := m.cutOff(ctx)
	if err != nil {
		return Sequencer{}, m.failure("detach", err)
	}
	waiting, stop := apartFrom(ctx, h)
	defer stop()
	h.End(nil) // from here on nothing more is sent for h
	h.AwaitReplies(waiting)
	left, err := h.EndLate(clock.Now())
	// Waiters of this process relied on an Unlock of m, which will not come now. Make them ask the nodes.
	m.core.member.Group.Nudge(h.Claim().Lines())
	if err != nil {
		h.ClearUnlessDelayed()
		return Sequencer{}, m.failure("detach", err)
	}
	h.LeaveQueues()
	if h.Terms().Events != nil {
		told, e := false, eventsOf(h.Terms())
		e.over(h)
		defer func() {
			if !told { // an observer has panicked, so the caller gets no Sequencer to unlock with
				h.ClearAway()
			}
		}()
		tell(ctx, e.to.now.Detached, observe.Detached{
			Name: e.name, Mode: e.mode, Start: start.Wall, Took: clock.Now().Since(start), Held: start.Since(h.First), Left: left,
		})
		told = true
	}
	return sequencerOf(h), nil
}

// cutOff ends the current term for Detach and removes it from m. If the term may not be detached,
// cutOff changes nothing and returns why.
func (m *Mutex) cutOff(ctx context.Context) (*lease.Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, now := m.hold, clock.Now()
	if h == nil {
		return nil, ErrNotHeld
	}
	if err := h.NotHeld(now); err != nil {
		return nil, err
	}
	if h.Terms().InDo {
		return nil, errInDo
	}
	if h.Terms().Timing.MinHold > 0 {
		return nil, errMinHoldDetach
	}
	if !h.IsAlone(true) {
		return nil, errSharedByOthers
	}
	if ctx.Err() != nil {
		return nil, m.interruption(ctx)
	}
	if err := h.EndHeld(now); err != nil {
		return nil, err // h has ended since the check above, for example by Close or a loss
	}
	m.hold = nil
	return h, nil
}

var errSharedByOthers = errors.New("redsync: other readers of this process share the hold")

var (
	errInDo          = errors.New("redsync: Do unlocks it when its function returns")
	errInLead        = errors.New("redsync: Lead releases it when its function returns")
	errMinHoldDetach = errors.New(
		"redsync: a lock with WithMinHold cannot be detached: its receiver does not know when it was acquired")
)

// Extend is ExtendContext without a context.
func (m *Mutex) Extend() (bool, error) {
	return m.ExtendContext(context.Background())
}

// ExtendContext makes the lock last for its expiry from now on. It moves Until and returns
// true if a quorum confirms the extension before the old Until.
//
// It waits for the nodes at most until the old Until has passed or ctx is done. For an adopted
// value that has not been extended, the limit is the node deadline instead of the old Until.
// After ErrExtendFailed the lock is still held until the old Until, and Extend may be tried
// again. ErrNoQuorum comes with it if too few nodes answered. If the error also matches ErrMaxHold,
// WithMaxHold does not allow a longer hold. After ErrLockAlreadyExpired the lock is over; see ErrLockLost.
func (m *Mutex) ExtendContext(ctx context.Context) (bool, error) {
	ctx = orBackground(ctx)
	if m.isZero() {
		return false, ErrExtendFailed
	}
	h, from, err := m.open("extend")
	if err != nil {
		return false, err
	}
	defer m.core.endCall()
	start, left, adopted := clock.Now(), time.Duration(0), false
	var ok bool
	if h.Begun() {
		left = h.Remaining(start)
		ok, err = m.extend(ctx, h)
	} else {
		adopted, ok, err = m.adopt(ctx, h, from)
	}
	if !adopted { // adopt has already told the observers: observe.Acquired
		m.tellExtended(ctx, h, start, left, err)
	}
	return ok, err
}

// tellExtended tells the observers how an Extend has ended. left is how long h was valid at start.
func (m *Mutex) tellExtended(ctx context.Context, h *lease.Lease, start clock.Instant, left time.Duration, err error) {
	if h.Terms().Events != nil {
		eventsOf(h.Terms()).extended(ctx, h, start, left, err)
	}
}

// open begins an operation that needs a hold. It returns the current term, or a new one for an
// adopted hold; from is that adoption. It fails if m is not held. After success the caller must end the operation with
// m.core.endCall.
func (m *Mutex) open(op string) (h *lease.Lease, from *adoption, err error) {
	t, err := m.beginCall()
	if err != nil {
		return nil, nil, m.failure(op, err)
	}
	h, from = m.holdOrAdopted()
	switch {
	case h != nil:
		err = h.NotHeld(clock.Now())
	case from != nil:
		h = m.adoptLease(t, from, clock.Now())
	default:
		err = ErrNotHeld
	}
	if err != nil {
		m.core.endCall()
		return nil, nil, m.failure(op, err)
	}
	return h, from, nil
}

// extend makes one round that prolongs h, and acts on what the nodes say.
func (m *Mutex) extend(ctx context.Context, h *lease.Lease) (bool, error) {
	waiting, stop := apartFrom(ctx, h)
	defer stop()
	res, over := h.Extend(waiting)
	return m.extended(waiting, "extend", h, res, over)
}

// extended returns what an operation that prolongs h returns. res is what the nodes said, and over is why h
// is not held any more, or cannot be prolonged.
func (m *Mutex) extended(ctx context.Context, op string, h *lease.Lease, res quorum.Result, over error) (bool, error) {
	switch {
	case over == nil && res.Won:
		return true, nil
	case errors.Is(over, ErrLockAlreadyExpired) && !errors.Is(over, ErrLockLost) && !errors.Is(over, ErrNotHeld):
		// Until passed meanwhile. Even if a quorum has the value now, another client may have held the lock
		// in between.
		err := ranOut(over, res)
		h.End(err)
		return false, m.failure(op, err)
	case over != nil: // unlocked, lost or closed meanwhile, or held for as long as WithMaxHold allows
		return false, m.failure(op, over)
	case h.Disproved(res):
		return false, m.failure(op, h.Lose(ends.Rejected(m.label(), res)))
	}
	return false, m.failure(op, ErrExtendFailed, m.interruption(ctx), unconfirmed(m.label(), res), stillHeld(h))
}

// stillHeld says for how long h is still held, if it has begun: an adopted value may be nobody's.
func stillHeld(h *lease.Lease) error {
	left := h.Remaining(clock.Now())
	if left == 0 || !h.Begun() {
		return nil
	}
	return note(fmt.Sprintf("the lock is still held for %v", journal.Rounded(left)))
}

// adoptLease returns a lease for the hold that m adopts.
func (m *Mutex) adoptLease(t *lease.Terms, from *adoption, start clock.Instant) *lease.Lease {
	h := lease.Adopt(t, from.valueOf(), start)
	if adopted := m.set.kind().adopted; adopted != nil {
		h.Replace(adopted(h.Claim(), from.slots))
	}
	return h
}

// adopt extends a lock that was acquired elsewhere, and makes it m's own. from is what h was made from. adopted reports
// whether this call made it m's own: another call may have done so before.
func (m *Mutex) adopt(ctx context.Context, h *lease.Lease, from *adoption) (adopted, ok bool, err error) {
	res, e := h.Confirm(ctx, from.sequencer.Token)
	switch {
	case res.Won && h.NotHeld(clock.Now()) == nil:
		ok, err = m.takeOver(h, e)
		if adopted = ok && h.Begun(); adopted && h.Terms().Events != nil {
			m.acquired(ctx, h, h.First, queue.Wait{}, from)
		}
		return adopted, ok, err
	case res.Rejected:
		return false, false, m.failure("extend", ErrLockAlreadyExpired, unconfirmed(m.label(), res))
	}
	return false, false, m.failure("extend", ErrExtendFailed, m.interruption(ctx), unconfirmed(m.label(), res))
}

// takeOver makes h, an adopted hold that a quorum has confirmed, the current term. If another call has
// done the same meanwhile, takeOver prolongs that term instead.
func (m *Mutex) takeOver(h *lease.Lease, e lease.Extension) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.hold == nil && m.adopts != nil && m.adopts.valueOf() == h.Value():
		if err := h.Begin(); err != nil {
			return false, m.failure("extend", err)
		}
		m.hold, m.adopts = h, nil
		m.unlocks.Forget()
	case m.hold == nil || m.hold.Value() != h.Value():
		return false, m.failure("extend", ErrNotHeld)
	default:
		m.hold.Prolong(e, clock.Now())
		if err := m.hold.NotHeld(clock.Now()); err != nil {
			return false, m.failure("extend", err)
		}
	}
	return true, nil
}

// Valid is ValidContext without a context.
func (m *Mutex) Valid() (bool, error) {
	return m.ValidContext(context.Background())
}

// ValidContext asks the nodes whether they hold the lock. It returns true only if a
// quorum holds it, and if Until has not passed when the nodes have answered. If Until has
// passed before the call, it fails without asking. Remaining is the cheap local check.
//
// After ErrLockLost or ErrLockAlreadyExpired the lock is over. After any other error, such as ErrNoQuorum, nothing
// has changed: a lock that was held is held until Until.
func (m *Mutex) ValidContext(ctx context.Context) (bool, error) {
	if m.isZero() {
		return true, nil
	}
	return m.valid(orBackground(ctx), "valid")
}

// valid does what Valid does. op is the operation, for errors.
func (m *Mutex) valid(ctx context.Context, op string) (bool, error) {
	h, _, err := m.open(op)
	if err != nil {
		return false, err
	}
	defer m.core.endCall()
	waiting, stop := apartFrom(ctx, h)
	defer stop()
	return m.checked(waiting, op, h, h.Check(waiting))
}

// checked returns what Valid returns after a check with the result res.
func (m *Mutex) checked(ctx context.Context, op string, h *lease.Lease, res quorum.Result) (bool, error) {
	over := h.NotHeld(clock.Now())
	switch {
	case over != nil:
		return false, m.failure(op, over)
	case res.Won:
		return true, nil
	case !h.Begun() && res.Rejected: // adopted: there is no hold to lose
		return false, m.failure(op, ErrLockAlreadyExpired, unconfirmed(m.label(), res))
	case h.Begun() && h.Disproved(res):
		return false, m.failure(op, h.Lose(ends.Rejected(m.label(), res)))
	}
	return false, m.failure(op, m.interruption(ctx), unconfirmed(m.label(), res), stillHeld(h))
}

// Fence returns the fencing token of the current lock: a number for the resource that the lock protects. The resource
// refuses a write with a lower number than one it has seen (package fencing does that). So a late holder cannot
// overwrite what the next one wrote.
//
// If one Lock of a name returned before another began, the second gets the greater token, even if both had the lock
// at once and clocks differ. No two Locks get the same token. WithFencing names the limits.
//
// Fence is 0 without WithFencing, before the first Lock, and after Unlock or Detach. After a loss it stays until the
// next Lock or Unlock. An adopted lock has the token of its Sequencer.
func (m *Mutex) Fence() uint64 {
	if h := m.current(); h != nil {
		return h.Token()
	}
	return 0
}

// Sequencer returns the Sequencer of the current hold, or the zero value if m is not held.
// From then on the value belongs to this hold alone, as after Value: Unlock does not hand
// the lock over, so the Sequencer is no longer current after Unlock. If other readers share
// the hold by then (see WithShared), it is the Sequencer of all of them: it stays current until
// the last of them has unlocked, and nobody can adopt it.
func (m *Mutex) Sequencer() Sequencer {
	h := m.current()
	if h == nil {
		return Sequencer{}
	}
	if h.ShowHeld(clock.Now()) == "" {
		return Sequencer{}
	}
	return sequencerOf(h)
}

// beginCall begins an operation on m, and returns the terms of its holds; m.core.endCall ends it.
func (m *Mutex) beginCall() (*lease.Terms, error) {
	if err := m.core.beginCall(); err != nil {
		return nil, err
	}
	t, err := m.ready()
	if err == nil {
		err = m.core.allows(&t.Timing)
	}
	if err != nil {
		m.core.endCall()
		return nil, err
	}
	return t, nil
}

// beginUnlock is beginCall for Unlock. A hold can be ended whatever options have been applied since it began.
func (m *Mutex) beginUnlock() (*lease.Terms, error) {
	if m.current() == nil {
		return m.beginCall()
	}
	return &m.terms, m.core.beginCall()
}

// ready returns the terms of m's holds, or why m cannot be used.
func (m *Mutex) ready() (*lease.Terms, error) {
	if m.set.policy != nil {
		return &m.terms, nil
	}
	// An option is out of its range, or has been applied since NewMutex.
	p, err := m.set.check()
	if err != nil {
		return nil, err
	}
	t := m.termsBy(p)
	return &t, nil
}

func (m *Mutex) current() *lease.Lease {
	h, _ := m.holdOrAdopted()
	return h
}

// holdOrAdopted returns the current term, or the hold to adopt before there is one.
func (m *Mutex) holdOrAdopted() (*lease.Lease, *adoption) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hold != nil {
		return m.hold, nil
	}
	return nil, m.adopts
}

// endedBy returns err, with which a function has returned that had the context working. If the end of ctx, the context
// that the caller gave, is the reason, it says that the lock was acquired: a bare "context deadline exceeded" reads as if it
// was not.
func (m *Mutex) endedBy(ctx, working context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(context.Cause(working), ErrLockLost) {
		return err
	}
	var told *afterLock // in this branch alone, because it is allocated
	if errors.As(err, &told) || !errors.Is(err, ctx.Err()) && !errors.Is(err, context.Cause(ctx)) {
		return err // a Do inside of this one has said so, or fn has failed for another reason
	}
	return &afterLock{fmt.Sprintf("redsync: %s %s", m.set.doing(), quoted(m.label())), err}
}

// An afterLock is the error of a function that has stopped because the caller's context ended.
type afterLock struct {
	what string
	err  error
}

func (e *afterLock) Error() string {
	return fmt.Sprintf("%s: the caller's context ended after the lock was acquired: %v", e.what, e.err)
}

func (e *afterLock) Unwrap() error { return e.err }

// doing returns the operation that the error names if the lock was lost: "lead" or "do".
func (s *settings) doing() string {
	if s.leads {
		return "lead"
	}
	return "do"
}

// failure returns the error of an operation on m, as redsync v4 returns it: see inV4.
func (m *Mutex) failure(op string, why ...error) error {
	f := &failure{op: op, name: m.label()}
	for _, err := range why {
		f.add(err)
	}
	return f.inV4()
}

// interruption returns what may have ended an operation early: the error of ctx and its cause if ctx is done, and
// ErrClosed after Close. It returns nil if there is neither.
func (m *Mutex) interruption(ctx context.Context) error {
	var closed error
	if m.core.keeper.IsClosed() {
		closed = ErrClosed
	}
	return fail("", "", contextErrors(ctx), closed)
}
