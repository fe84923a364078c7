package redsync

import (
	"errors"
	"log/slog"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/observe"
)

// WithExpiry sets how long the nodes keep the lock unless it is extended. The holder may rely on it for the expiry
// minus drift (1 % + 2 ms by default). The default is 8 s. It must be longer than drift (at least 3 ms by default), and
// with WithLockDelay at most 100 years (of 365 days). It is cut to milliseconds. A short expiry frees the lock of a
// dead holder soon; a long one tolerates longer pauses.
func WithExpiry(expiry time.Duration) Option {
	return setting(func(s *settings) { s.expiry, s.ownExpiry = expiry, true })
}

// WithTries sets how many tries Lock has, with a retry delay between them: 0 (no limit) or more. An attempt that a
// release has caused uses no try. A retry delay uses one, even while other callers of the process are ahead. It has no
// effect on TryLock and Lead.
//
// The default is 32 tries, about 4.7 s. THAT IS SHORTER THAN THE DEFAULT EXPIRY (8 s): to outwait a crashed holder use
// WithWait, or WithTries(0).
func WithTries(tries int) Option {
	return setting(func(s *settings) {
		s.tries, s.givenTries = tries, true
		within(s, tries >= 0, "WithTries", tries, "0 (no limit) or more")
		if !s.givenWait {
			s.wait = 0
		}
	})
}

// WithWait sets how long Lock, Do and Lead wait for the lock, whatever the tries: d, more than 0. More than the
// expiry outwaits a crashed holder. The error is ErrFailed or ErrNoQuorum, never that of a deadline. The work is not
// bounded. After a lost term, Lead waits for up to d again.
//
// It has no effect on TryLock and TryDo. WithWait and WithTries exclude each other on one Mutex; either replaces the
// other one of Redsync.With.
func WithWait(d time.Duration) Option {
	return setting(func(s *settings) {
		s.wait, s.givenWait = d, true
		within(s, d > 0, "WithWait", d, "more than 0")
	})
}

// WithRetryDelay sets the time between two attempts of Lock, 0 or more. The default is random between 50 and 250 ms, so
// that clients do not collide again and again.
//
// With the default, a try asks no node while a quorum can wake the waiter: the process asks each about twice a second.
// A delay that you set makes an attempt each time: set one if programs such as redsync v4 release without a wake-up.
func WithRetryDelay(delay time.Duration) Option {
	return setting(func(s *settings) {
		within(s, delay >= 0, "WithRetryDelay", delay, "0 or more")
		s.retryDelay, s.delayFunc = delay, nil
	})
}

// WithRetryDelayFunc sets the function that returns the retry delay: see WithRetryDelay. Its argument is the number of
// tries so far, 1 or more. A negative delay makes Lock fail. Many goroutines may call it at once.
func WithRetryDelayFunc(delayFunc DelayFunc) Option {
	return setting(func(s *settings) {
		if delayFunc == nil {
			s.fail(errors.New("redsync: WithRetryDelayFunc(nil)"))
		}
		s.delayFunc, s.isOwn = &delayFunc, true
	})
}

// WithDriftFactor sets by how much clocks may drift: the holder's validity is the expiry minus this fraction of it and
// 2 ms. The default is 0.01, the range 0 <= factor < 1.
func WithDriftFactor(factor float64) Option {
	return setting(func(s *settings) { s.driftFactor = factor })
}

// WithTimeoutFactor is only for programs from redsync v4: others use WithNodeTimeout. It sets the node deadline as a
// fraction of the expiry, at least 50 ms and at most half of the validity. The range is 0 < factor <= 1. Without it the
// factor is 0.05, and the deadline at most 2 s.
func WithTimeoutFactor(factor float64) Option {
	return setting(func(s *settings) { s.timeoutFactor, s.ownFactor = factor, true })
}

// WithNodeTimeout sets the node deadline: how long an operation that is not decided yet waits for a silent node. The
// default is 5 % of the expiry (0.4 s), at least 50 ms, and at most 2 s and half of the validity. The range is 0 <
// timeout <= half of the validity. If the process was stopped meanwhile, or got no processor, the operation reads for
// another 0.1 s what the nodes have answered.
func WithNodeTimeout(timeout time.Duration) Option {
	return setting(func(s *settings) {
		within(s, timeout > 0, "WithNodeTimeout", timeout, "more than 0, at most half of the validity")
		s.nodeTimeout = timeout
	})
}

// WithGenValueFunc sets the function that makes the value of each attempt, in place of 130 bits from crypto/rand. The
// value must be hard to guess, because it releases the lock. Many goroutines may call the function at once.
//
// Two processes must never use one value for one name: each would release the lock of the other. One process may use a
// value again, but not with Current or Detach: its other Mutexes find the name taken while a lock has it.
//
// Lock fails at once if the function returns an error, an empty value, one that begins with "readers\n", or with
// WithShared one that contains "\n". It excludes WithOwner.
func WithGenValueFunc(genValueFunc func() (string, error)) Option {
	return setting(func(s *settings) {
		if genValueFunc == nil {
			s.fail(errors.New("redsync: WithGenValueFunc(nil)"))
		}
		s.genValue, s.isOwn = &genValueFunc, true
	})
}

// WithOwner makes the value of each lock name its owner: label, such as "worker-7@host", the process, and the time. So
// Mutex.Inspect and GET show whom to ask, and ForceUnlock tells the holder. Put no secret into it. The default is none.
// label is 1 to 128 bytes of UTF-8, without control characters, invisible format characters, and spaces at the ends.
//
// A lock is handed over, or shared by readers, only between Mutexes with one label. A call that gives up takes up to 50
// ms longer, to learn ErrTaken.Owner. WithOwner excludes WithValue and WithGenValueFunc. See docs/owners.md.
func WithOwner(label string) Option {
	return setting(func(s *settings) {
		if err := script.CheckLabel(label); err != nil {
			s.fail(outOfRange("WithOwner", quoted(label), script.LabelRange+"; "+err.Error()))
			return
		}
		s.owner = label
	})
}

// WithPrefix puts prefix before the names of locks, so that programs with different prefixes can share nodes. The
// default is none. Braces are out of range, except those of a hash tag, as in {app}:, which puts all locks into one
// slot.
//
// With WithPrefix("app:"), NewMutex("orders") is the lock "app:orders", also in errors, events, the log, Status and
// Sequencer. WithSequencer(s) needs NewMutex(s.Name), and does not repeat the prefix. To lock another such name:
//
//	m := rs.With(redsync.WithPrefix("")).NewMutex(status.Name)
//
// A later WithPrefix replaces an earlier one. For a Mutex that exists it is an error. A hook of go-redis that rewrites
// keys has no effect on locks.
func WithPrefix(prefix string) Option {
	return OptionFunc(func(m *Mutex) {
		switch {
		case !script.MayBePrefix(prefix):
			m.change().fail(outOfRange("WithPrefix", quoted(prefix), "no braces, except those of a hash tag, as in {app}:"))
		case m.isMade():
			m.change().fail(errors.New("redsync: WithPrefix: this Mutex has its keys already: give the option to With or NewMutex"))
		default:
			m.replacePrefix(prefix)
		}
	})
}

// WithValue adopts a lock that was acquired elsewhere with this value: Unlock releases it, and Extend or Do makes it
// this Mutex's own, with Until, Remaining and Lost. Before that, Unlock and Valid depend on the nodes' votes alone.
// Lock starts a lock of its own.
//
// The giver still has the lock: it must neither unlock nor extend it, and its Close unlocks it too. If it has this
// library, use Mutex.Detach and WithSequencer.
//
// Set WithSetNXOnExtend and WithFencing as the giver has them: with either, Unlock repeats its release until the keys
// have run out. WithValue excludes WithSequencer, WithShared, WithOwner and more: see docs/reference.md.
func WithValue(v string) Option {
	return setting(func(s *settings) {
		s.adopts = s.adopts.with(func(a *adoption) { a.value = v })
	})
}

// WithSequencer adopts the lock of s, as WithValue does with its value. Fence returns the token of s once Extend or Do
// has adopted the lock. If the lock is shared, the Mutex is a reader.
//
// Every operation fails
//
//   - if the name of the Mutex is not s.Name, or s has no value;
//   - together with WithValue;
//   - with WithShared if the lock of s is exclusive;
//   - if other readers of the giver's process shared the lock when s was made.
func WithSequencer(s Sequencer) Option {
	return setting(func(set *settings) {
		if s.Value == "" {
			set.fail(errors.New("redsync: WithSequencer: the sequencer has no value, so it belongs to no hold"))
		}
		set.adopts = set.adopts.with(func(a *adoption) { a.sequencer = s })
	})
}

// WithFailFast decides when a call returns. With true, the default, it returns once its result is certain. With false
// it also waits for slow nodes, until the node deadline, or for 250 ms after a failed attempt of Lock. The result is
// the same, but the error tells of every node that did not grant, and may be more definite (ErrLockLost in place of
// ErrExtendFailed). Even with true Lock waits longer in three cases: see docs/safety.md.
func WithFailFast(b bool) Option {
	return setting(func(s *settings) { s.waitAll = !b })
}

// WithShufflePools is only for programs from redsync v4, and has no effect: all nodes are asked at once.
func WithShufflePools(bool) Option {
	return OptionFunc(func(*Mutex) {})
}

// WithSetNXOnExtend makes Extend set missing keys again while the lock is held, so that nodes that lost their data hold
// it again. Such a key does not count as a grant in the same Extend.
//
// With it, missing keys do not prove a loss before Until: only values of others that leave no quorum do. So do not
// unlock the same lock elsewhere (WithValue) or delete its keys by hand: the holder would set them again.
func WithSetNXOnExtend() Option {
	return setting(func(s *settings) { s.heals = true })
}

// WithWatchdog makes the lock extend itself from Lock (or the Extend that adopts it) until Unlock, or until it is lost:
// every third of the expiry, and again while that fails. The default is off: the lock ends with its expiry unless
// Extend is called. It keeps the lock of a caller that hangs, too: see WithMaxHold.
func WithWatchdog() Option {
	return setting(func(s *settings) { s.watchdog = true })
}

// WithMaxHold sets for how long the lock can be held, more than 0, from the start of the attempt that acquired it,
// however often it is extended. At the limit Lost is closed, Err matches ErrMaxHold, and the nodes free the lock when
// it expires. The default is no limit.
func WithMaxHold(limit time.Duration) Option {
	return setting(func(s *settings) {
		within(s, limit > 0, "WithMaxHold", limit, "more than 0")
		s.maxHold = limit
	})
}

// WithMinHold makes the nodes keep the lock for at least d from before the first request of its attempt, also after
// Unlock, Close, a loss or a crash (then at least for the expiry). It changes neither Until nor what Unlock returns.
// The default is off. d is more than 0, and with its drift (d * 0.01 + 2 ms by default) at most the limit of
// pool.WithRestartGuard.
//
// With TryDo, at most one of several processes runs a scheduled job at each tick: docs/cron.md says how long d must be
// for that. Such a lock is never handed over, detached or downgraded. It excludes WithShared, WithValue and
// WithSequencer.
func WithMinHold(d time.Duration) Option {
	return setting(func(s *settings) {
		within(s, d > 0, "WithMinHold", d, "more than 0")
		s.minHold = d
	})
}

// WithLockDelay makes the nodes keep the lock for expiry + delay, though its holder may rely on the expiry alone: work
// of a holder that ends without Unlock has time to end. Unlock frees the lock at once. The delay is rounded up to
// milliseconds. The default is 0, the range 0 or more, with the expiry at most 100 years. Source: Chubby (Burrows, OSDI
// 2006).
func WithLockDelay(delay time.Duration) Option {
	return setting(func(s *settings) { s.lockDelay = delay })
}

// WithFair serves waiters in the order in which they called Lock, by their own clocks, in all processes. Without it a
// first attempt may overtake waiters. Every client that locks the name must set it. The default is off.
//
// Such locks are not handed over within the process, and each Lock runs a script. A crashed process holds up the
// waiters behind it for up to a second. A node that denies the key {name}:queue or the scripts does not grant a fair
// lock.
func WithFair() Option {
	return setting(func(s *settings) { s.fair = true })
}

// WithFencing gives each lock a fencing token: see Mutex.Fence. The default is off. EVERY CLIENT THAT LOCKS THE NAME
// and writes to what it protects must set it: a Lock without it gets no token.
//
// Each node keeps the last token, in {name}:fence, for 24 hours. An attempt takes one or two more round trips if the
// last token is ahead of this client's clock. Locks are not handed over.
//
// The tokens rise if clocks of clients differ by less than 24 hours, and no node restarts empty, unless it has
// pool.WithRestartGuard and the clocks differ by at most 10 s. See docs/fencing.md.
func WithFencing() Option {
	return setting(func(s *settings) { s.fencing = true })
}

// WithPriority serves waiters with a higher priority first; those with a low one may wait forever. The default is 0,
// the range -999 to 999. A caller that finds the lock free takes it. Without WithFair a process that releases the lock
// may let its own waiters try first. A lock on several names is ordered only among the waiters for the same name.
func WithPriority(priority int) Option {
	return setting(func(s *settings) {
		if within(s, -script.MaxPriority <= priority && priority <= script.MaxPriority, "WithPriority", priority, "-999 to 999") {
			s.priority = priority
		}
	})
}

// WithHandOver decides whether Unlock may hand the lock to the next waiter of the same process (of the same New or
// Open) without telling the nodes, which is many times faster. The default is true. It does so only within 20 ms of the
// acquisition, and within a tenth of the expiry: then other processes have their turn.
//
// The waiter must have the same expiry, drift, node deadline, lock delay and owner. A lock is never handed over if your
// code has read its value, or with WithFair, WithFencing, WithMaxHold, WithMinHold, WithValue, WithSequencer or
// WithGenValueFunc. With false, readers do not share a lock either (see WithShared).
func WithHandOver(b bool) Option {
	return setting(func(s *settings) { s.noHandOver = !b })
}

// WithShared makes a Mutex a reader: any number of readers can hold a name at once, but none together with a writer,
// which is any lock on the name without it, also of NewMultiMutex or redsync v4. The default is off. Later readers wait
// behind a writer that waits in Lock.
//
// Use a Mutex for each reader, or Do. A read inside a read needs Do with the context of the outer Do: otherwise it can
// deadlock with a writer that waits. Readers of one process may share a lock. See docs/readers.md, and
// docs/reference.md for what excludes WithShared.
func WithShared() Option {
	return setting(func(s *settings) { s.shared = true })
}

// WithPermits makes a Mutex take one of n permits of its name, 1 to 256, instead of the lock. Permits do not exclude
// the lock of the name. All clients should set the same n: the largest in use is the limit. A permit has no fencing
// token.
//
// Use a Mutex for each holder, or Do. Inside a Do that has a permit, a call for another of the name fails with
// ErrNested. See docs/permits.md, and docs/reference.md for what excludes WithPermits.
func WithPermits(n int) Option {
	return setting(func(s *settings) {
		if within(s, n >= 1 && n <= script.MaxPermits, "WithPermits", n, "1 to 256") {
			s.permits = n
		}
	})
}

// WithWeight makes a Mutex take k permits at once, all or none: 1 to the n of WithPermits, by default 1. It needs
// WithFair, which every client that takes permits of the name must then set: others could overtake again and again.
func WithWeight(k int) Option {
	return setting(func(s *settings) {
		if within(s, k >= 1 && k <= script.MaxPermits, "WithWeight", k, "1 to the n of WithPermits") {
			s.weight = k
		}
	})
}

// WithNesting limits how many calls of Do and TryDo are on one hold at once, the outermost one included: 1 or more. A
// call beyond n fails at once with ErrNested. The limits of the outermost call and of the one that joins both count:
// with WithNesting(1) the Mutex joins no hold, and no call joins its hold. The default is no limit.
func WithNesting(n int) Option {
	return setting(func(s *settings) {
		if within(s, n >= 1, "WithNesting", n, "1 or more") {
			s.nesting = n
		}
	})
}

// WithHooks sets functions that the library calls with events, such as observe.Lost: see package observe. The default
// is none. The Hooks of a Mutex are called after those of its Redsync, and equal pointers once. With nil every
// operation fails. The functions must not be replaced in hooks afterwards.
func WithHooks(hooks *observe.Hooks) Option {
	if hooks == nil {
		return setting(func(s *settings) { s.fail(errors.New("redsync: WithHooks(nil)")) })
	}
	return OptionFunc(func(m *Mutex) {
		set := m.change()
		set.observers, set.isOwn = set.observers.withHooks(hooks, m.core.queue()), true
	})
}

// WithLogger writes a log: see docs/operating.md. The default is none. Its levels:
//
//   - Error: each lock that is lost, except by Close.
//   - Warn: troubles that last (no quorum answers, a node is down), at the beginning and every 10 s. Also what Close
//     has left on a node.
//   - Info: the end of such a trouble.
//   - Debug: each attempt, extension and Unlock.
//
// Each of at most 16 loggers reports a trouble once for each New or Open: make one for a Redsync, not one for each
// lock. Messages are constant. The attribute "lock" is the name, and "error" is the cause. None contains a lock's
// value.
func WithLogger(logger *slog.Logger) Option {
	if logger == nil {
		return setting(func(s *settings) { s.fail(errors.New("redsync: WithLogger(nil)")) })
	}
	return OptionFunc(func(m *Mutex) {
		set := m.change()
		set.observers, set.isOwn = set.observers.withLogger(logger, m.core.journal(), m.core.queue()), true
	})
}
