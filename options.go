package redsync

import (
	"errors"
	"log/slog"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/observe"
)

// WithExpiry sets how long the nodes keep the lock unless it is extended; after
// that they free it by themselves. The holder may rely on the lock for the expiry minus
// drift (1 % + 2 ms by default). The default is 8 s. The expiry is cut to whole
// milliseconds. It must be longer than drift: at least 3 ms by default. Together with the delay of
// WithLockDelay it is at most 100 years (of 365 days). Otherwise every operation fails. A short expiry
// frees the lock of a dead holder soon; a long one tolerates longer pauses of a live one.
func WithExpiry(expiry time.Duration) Option {
	return OptionFunc(func(m *Mutex) {
		set := m.change()
		set.expiry, set.ownExpiry = expiry, true
	})
}

// WithTries sets how many tries Lock has, with a retry delay between them. 0 means no limit: only the context or
// Close ends Lock. A negative number is out of range. An attempt that a release has caused uses no try. A retry delay
// uses one, even while other callers of the process are ahead. The option has no effect on TryLock and on Lead.
//
// The default is 32 tries, about 4.7 s, as in redsync v4. THAT IS SHORTER THAN THE DEFAULT EXPIRY (8 s): when a
// holder crashes, every Lock that waits then gives up before the lock expires. To outwait a crashed holder use
// WithWait, or WithTries(0).
func WithTries(tries int) Option {
	return OptionFunc(func(m *Mutex) {
		set := m.change()
		set.tries, set.givenTries = tries, true
		if !set.givenWait {
			set.wait = 0
		}
	})
}

// WithWait sets how long Lock, Do and Lead wait for the lock, whatever the number of tries: d, more than 0. Then the
// error is that of a last try: ErrFailed if the lock is taken, or ErrNoQuorum, and never that of a deadline. The work
// is not bounded: the function of a Do has the context that the caller gave. After a lost term, Lead waits for up to
// d again.
//
// A d of more than the expiry outwaits a crashed holder. The option has no effect on TryLock and TryDo. WithWait and
// WithTries exclude each other on one Mutex; either, given to NewMutex, Do or Lead, replaces the other one of
// Redsync.With.
func WithWait(d time.Duration) Option {
	return OptionFunc(func(m *Mutex) {
		set := m.change()
		if set.wait, set.givenWait = d, true; d <= 0 {
			set.fail(outOfRange("WithWait", d, "more than 0"))
		}
	})
}

// WithRetryDelay sets the time between two attempts of Lock, 0 or more. The
// default is random between 50 ms and 250 ms. Clients with equal delays
// collide again and again; prefer the default or WithRetryDelayFunc.
//
// With the default, a try asks no node while a quorum of nodes can wake the waiter: it counts toward WithTries, and the
// process asks each node about twice a second. A delay that you set makes an attempt each time. So set one if other
// programs release the lock without a wake-up, as redsync v4 does, and half a second is too long.
func WithRetryDelay(delay time.Duration) Option {
	return OptionFunc(func(m *Mutex) {
		if delay < 0 {
			m.change().fail(outOfRange("WithRetryDelay", delay, "0 or more"))
		}
		set := m.change()
		set.retryDelay, set.delayFunc = delay, nil
	})
}

// WithRetryDelayFunc sets the function that returns the retry delay. Its argument is the number of
// tries so far, 1 or more. A negative delay makes Lock fail. Many goroutines may call the function
// at once. See WithRetryDelay.
func WithRetryDelayFunc(delayFunc DelayFunc) Option {
	return OptionFunc(func(m *Mutex) {
		if delayFunc == nil {
			m.change().fail(errors.New("redsync: WithRetryDelayFunc(nil)"))
		}
		set := m.change()
		set.delayFunc, set.isOwn = &delayFunc, true
	})
}

// WithDriftFactor sets the allowance for clocks that run at different rates, as a
// fraction of the expiry. The holder's validity is shorter than the expiry by this fraction and
// another 2 ms. The default is 0.01, the range 0 <= factor < 1.
func WithDriftFactor(factor float64) Option {
	return OptionFunc(func(m *Mutex) { m.change().driftFactor = factor })
}

// WithTimeoutFactor is only for programs from redsync v4: others use WithNodeTimeout. It sets the node deadline as a
// fraction of the expiry. The range is 0 < factor <= 1. The deadline is at least 50 ms, but never more than half of the
// validity. Without this option the factor is 0.05, and the deadline is at most 2 s.
func WithTimeoutFactor(factor float64) Option {
	return OptionFunc(func(m *Mutex) {
		set := m.change()
		set.timeoutFactor, set.ownFactor = factor, true
	})
}

// WithNodeTimeout sets the node deadline: how long an operation waits for a node that does not answer. The default is 5 %
// of the expiry (0.4 s), at least 50 ms, and at most 2 s and half of the validity. The range is 0 < timeout <= half of the
// validity. A short deadline gives up on slow nodes soon; a long one tolerates slow networks. Once the other nodes have
// decided an operation, it does not wait, except in three waits of Lock (docs/safety.md).
func WithNodeTimeout(timeout time.Duration) Option {
	return OptionFunc(func(m *Mutex) {
		if timeout <= 0 {
			m.change().fail(outOfRange("WithNodeTimeout", timeout, "more than 0, at most half of the validity"))
		}
		m.change().nodeTimeout = timeout
	})
}

// WithGenValueFunc sets the function that makes the value of each attempt. The default is 130 bits from crypto/rand.
// The value must be hard to guess: who knows it can release the lock.
//
// Two processes must never use one value for one name: each would release the lock of the other. One process may use
// a value again: while one of its locks has it, its other Mutexes find that name taken. Do not use such a value with
// Current or Detach.
//
// Lock fails at once if the function returns an error, an empty value, one that begins with "readers\n", or with
// WithShared one that contains "\n". Many goroutines may call the function at once. WithGenValueFunc excludes
// WithOwner. See docs/reference.md.
func WithGenValueFunc(genValueFunc func() (string, error)) Option {
	return OptionFunc(func(m *Mutex) {
		if genValueFunc == nil {
			m.change().fail(errors.New("redsync: WithGenValueFunc(nil)"))
		}
		set := m.change()
		set.genValue, set.isOwn = &genValueFunc, true
	})
}

// WithOwner makes the value of each lock name its owner: label, such as "worker-7@host", the process, and the time.
// So Mutex.Inspect and GET show whom to ask. Everybody who may read the nodes sees it: put no secret into it. By
// default a value names nobody.
//
// label is 1 to 128 bytes of UTF-8, without control characters, invisible format characters, and spaces at the ends.
//
// A holder with an owner hears of ForceUnlock. A lock is handed over, or shared by readers, only between Mutexes with
// one label. A call that finds the lock taken and gives up takes up to 50 ms longer, to learn ErrTaken.Owner.
//
// WithOwner excludes WithValue and WithGenValueFunc. See docs/owners.md.
func WithOwner(label string) Option {
	return OptionFunc(func(m *Mutex) {
		if err := script.CheckLabel(label); err != nil {
			m.change().fail(outOfRange("WithOwner", quoted(label), script.LabelRange+"; "+err.Error()))
			return
		}
		m.change().owner = label
	})
}

// WithPrefix puts prefix before the names of locks, so that programs with different prefixes can share nodes. The
// default is none. A hook of go-redis that rewrites keys has no effect on locks: use WithPrefix instead.
//
// With WithPrefix("app:"), NewMutex("orders") is the lock "app:orders". What the library tells always has the prefix:
// names, errors, events, the log, Status and Sequencer. To lock such a name, switch the prefix off:
//
//	m := rs.With(redsync.WithPrefix("")).NewMutex(status.Name)
//
// WithSequencer(s) needs NewMutex(s.Name), and does not repeat the prefix.
//
// A later WithPrefix replaces an earlier one. For a Mutex that exists it is an error. Braces are out of range, except
// those of a hash tag, as in {app}:, which puts all locks into one slot.
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
// The giver still has the lock: it must neither unlock nor extend it, and its Close unlocks it too. Mutex.Detach ends
// that: use it with WithSequencer if the giver has this library.
//
// Set WithSetNXOnExtend and WithFencing as the giver has them: with either, Unlock repeats its release until the keys
// have run out.
//
// WithValue excludes WithSequencer, WithShared, WithOwner and more: see docs/reference.md, and docs/workers.md for an
// example.
func WithValue(v string) Option {
	return OptionFunc(func(m *Mutex) {
		set := m.change()
		set.adopts = set.adopts.with(func(a *adoption) { a.value = v })
	})
}

// WithSequencer adopts the lock that s belongs to, as WithValue does with its value. Fence returns the token of s
// once Extend or Do has adopted the lock. If the lock of s is shared, the Mutex is a reader, as with WithShared.
//
// Every operation fails
//
//   - if the name of the Mutex is not s.Name, or s has no value;
//   - together with WithValue;
//   - with WithShared if the lock of s is exclusive;
//   - if other readers of the giver's process shared the lock when s was made (see WithShared).
func WithSequencer(s Sequencer) Option {
	return OptionFunc(func(m *Mutex) {
		set := m.change()
		if s.Value == "" {
			set.fail(errors.New("redsync: WithSequencer: the sequencer has no value, so it belongs to no hold"))
		}
		set.adopts = set.adopts.with(func(a *adoption) { a.sequencer = s })
	})
}

// WithFailFast decides when a call returns. With true, the default, it returns once its result is certain, and its
// requests to slow nodes go on in the background. With false it also waits for the slow nodes, until the node deadline.
// The result is the same, but the error may say more: it tells of every node that did not grant, and the reason may be
// more definite (ErrLockLost in place of ErrExtendFailed).
//
// With false, an attempt of Lock that has failed waits at most 250 ms longer, because meanwhile it keeps others from the
// nodes that have granted. Its error does not tell of nodes that are silent for so long. In three cases Lock waits longer
// even with true: see the package's documentation, What is guaranteed.
func WithFailFast(b bool) Option {
	return OptionFunc(func(m *Mutex) { m.change().waitAll = !b })
}

// WithShufflePools is only for programs from redsync v4, and has no effect: all nodes are asked at once.
func WithShufflePools(bool) Option {
	return OptionFunc(func(*Mutex) {})
}

// WithSetNXOnExtend makes Extend set the key again on nodes where it is missing, so that nodes
// that lost their data hold the lock again. It does so only while the lock is held, and a key that
// was set again does not count as a grant in the same Extend. With this option, keys that are missing
// do not prove a loss before Until has passed. The lock is lost earlier only if so many nodes have
// the values of other holders that no quorum is left. So do not unlock the same lock elsewhere
// (WithValue) or delete its keys by hand: the holder would not notice, and would set the keys again.
func WithSetNXOnExtend() Option {
	return OptionFunc(func(m *Mutex) { m.change().heals = true })
}

// WithWatchdog makes the lock extend itself from Lock (or the Extend that adopts it) until Unlock,
// or until it is lost. The watchdog extends it every third of the expiry, counted from the start of
// the hold. While the lock is held, the watchdog repeats an extension that failed. A lock has no
// goroutine and no timer of its own. The default is off: the lock ends with its expiry unless
// Extend is called. The watchdog keeps the lock of a caller that hangs, too: see WithMaxHold.
func WithWatchdog() Option {
	return OptionFunc(func(m *Mutex) { m.change().watchdog = true })
}

// WithMaxHold sets how long the lock can be held, from the start of the attempt
// that acquired it, however often it is extended: Until is never later than that limit. At the
// limit Lost is closed, Err matches ErrMaxHold, and the nodes free the lock when it expires. By
// default there is no limit. A limit must be more than 0. A short limit bounds how long a worker
// that hangs keeps others out; a long one leaves time for slow work.
func WithMaxHold(limit time.Duration) Option {
	return OptionFunc(func(m *Mutex) {
		if limit <= 0 {
			m.change().fail(outOfRange("WithMaxHold", limit, "more than 0"))
		}
		m.change().maxHold = limit
	})
}

// WithMinHold makes the nodes keep the lock for at least d, counted from before the first request of its attempt,
// also after Unlock, Close, a loss or a crash; after a crash at least until the lock expires (8 s by default). It changes
// neither Until nor what Unlock returns. The default is off.
// d is more than 0, and with its drift (d * 0.01 + 2 ms by default) at most the limit of pool.WithRestartGuard.
//
// With TryDo, at most one of several processes runs a scheduled job at each tick, if d is longer than their starts
// lie apart, and d plus drift is shorter than the time between two ticks: see docs/cron.md.
//
// Such a lock is never handed over, detached or downgraded. WithMinHold excludes WithShared, WithValue and
// WithSequencer.
func WithMinHold(d time.Duration) Option {
	return OptionFunc(func(m *Mutex) {
		if d <= 0 {
			m.change().fail(outOfRange("WithMinHold", d, "more than 0"))
		}
		m.change().minHold = d
	})
}

// WithLockDelay makes the nodes keep the lock for expiry + delay: longer than the holder may rely on
// it. If a holder ends without Unlock, the work that it had begun (a request on its way, say) has the
// delay as time to end, before another client acquires the lock. Unlock frees the lock at once. The
// delay is rounded up to milliseconds. The default is 0, the range 0 or more, and with the expiry at most 100 years. The idea is that of
// Chubby's lock-delay (Burrows, OSDI 2006).
func WithLockDelay(delay time.Duration) Option {
	return OptionFunc(func(m *Mutex) { m.change().lockDelay = delay })
}

// WithFair serves waiters in the order in which they called Lock, by their own clocks, in this and
// in other processes. Without it a first attempt may overtake waiters. Every client that locks the
// name must set it. With this option locks are not handed over within the process, and each Lock
// runs a script on the nodes. Choose WithFair where no caller may wait much longer than the others.
// The default is off.
//
// A crashed process holds up the waiters behind it for up to a second. If a node's ACL denies the
// key {name}:queue or the commands of the scripts, that node does not grant a fair lock.
func WithFair() Option {
	return OptionFunc(func(m *Mutex) { m.change().fair = true })
}

// WithFencing gives each lock a fencing token: see Mutex.Fence. The default is off. EVERY CLIENT THAT LOCKS THE NAME
// and writes to what it protects must set it: a Lock without it gets no token.
//
// Each node keeps the last token, in {name}:fence, for 24 hours. An attempt takes one round trip, and one or two more
// if the last token is ahead of this client's clock. Locks are not handed over within the process.
//
// The order of the tokens has limits: clocks of clients must differ by less than 24 hours, and a node that restarts
// empty can break the order, unless it has pool.WithRestartGuard and the clocks differ by at most 10 s. See
// docs/fencing.md.
func WithFencing() Option {
	return OptionFunc(func(m *Mutex) { m.change().fencing = true })
}

// WithPriority serves waiters with a higher priority before waiters with a lower one. A waiter with a low
// priority may wait forever. The option orders only callers that wait. Without WithFair the order is weaker.
// A caller that finds the lock free takes it, whatever its priority. A process that releases the lock may let
// its own waiters try first. A lock on several names is ordered only among the waiters for the same name. The
// default is 0, the range -999 to 999.
func WithPriority(priority int) Option {
	return OptionFunc(func(m *Mutex) {
		if priority < -script.MaxPriority || priority > script.MaxPriority {
			m.change().fail(outOfRange("WithPriority", priority, "-999 to 999"))
			return
		}
		m.change().priority = priority
	})
}

// WithHandOver decides whether Unlock may hand the lock to the next waiter of the same process (of the same New or
// Open) without telling the nodes. That is many times faster. The default is true.
//
// It does so only within 20 ms of the acquisition, and within a tenth of the expiry. Then waiters of other processes
// have their turn. The waiter must have the same expiry, drift, node deadline, lock delay and owner. A lock is never
// handed over if your code has read its value, or with WithFair, WithFencing, WithMaxHold, WithMinHold, WithValue,
// WithSequencer or WithGenValueFunc.
//
// For readers, false means that they do not share a lock (see WithShared).
func WithHandOver(b bool) Option {
	return OptionFunc(func(m *Mutex) { m.change().noHandOver = !b })
}

// WithHooks sets functions that the library calls with events, such as observe.Lost. Package observe says when each event
// comes, with which context, and on which goroutine. The default is none. The Hooks of a Mutex are called after those of its
// Redsync, and do not replace them. Hooks that are set twice, by the same pointer, are called once. Hooks without a function
// are the same as none. With nil every operation fails. The functions must not be replaced in hooks afterwards.
//
// Close waits for events at most for the node deadline: see package observe.
func WithHooks(hooks *observe.Hooks) Option {
	if hooks == nil {
		return OptionFunc(func(m *Mutex) { m.change().fail(errors.New("redsync: WithHooks(nil)")) })
	}
	return OptionFunc(func(m *Mutex) {
		set := m.change()
		set.observers, set.isOwn = set.observers.withHooks(hooks, m.core.queue()), true
	})
}

// WithLogger writes a log. The default is none. docs/operating.md lists all lines. Its levels:
//
//   - Error: each lock that is lost, except by Close.
//   - Warn: troubles that last (no quorum answers, a node is down), at the beginning and every 10 s. Also what Close
//     has left on a node.
//   - Info: the end of such a trouble.
//   - Debug: each attempt, extension and Unlock.
//
// Each logger reports a trouble once for each New or Open. At most 16 loggers do so: make one for a Redsync, not one
// for each lock.
//
// The messages begin with "redsync: " and are constant. The attribute "lock" is the name, and "error" is the cause.
// No attribute contains a lock's value.
func WithLogger(logger *slog.Logger) Option {
	if logger == nil {
		return OptionFunc(func(m *Mutex) { m.change().fail(errors.New("redsync: WithLogger(nil)")) })
	}
	return OptionFunc(func(m *Mutex) {
		set := m.change()
		set.observers, set.isOwn = set.observers.withLogger(logger, m.core.journal(), m.core.queue()), true
	})
}
