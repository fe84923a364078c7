package redsync

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/script"
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

// WithTries sets how many tries Lock has before it gives up, with a retry delay between them. The first attempt
// uses a try, and so does each attempt after a retry delay. An attempt that a release has caused uses none. While
// other Lock calls of the same process are ahead in line, Lock makes no attempt, but each of its retry delays
// still uses a try. With 0 there is no limit: only the context or Close ends Lock. A negative number is out of range. With
// 1, Lock does what TryLock does. The option has no effect on TryLock and on Lead, which has no limit.
//
// The default is 32 tries, which take about 4.7 s with the default delay, as in redsync v4. THAT IS SHORTER THAN THE
// DEFAULT EXPIRY (8 s): when a holder crashes, every Lock that waits at that time gives up before the lock expires. To
// outwait a crashed holder use WithWait, or WithTries(0) to wait until the context ends.
func WithTries(tries int) Option {
	return OptionFunc(func(m *Mutex) {
		set := m.change()
		set.tries, set.givenTries = tries, true
		if !set.givenWait {
			set.wait = 0
		}
	})
}

// WithWait sets how long Lock, Do and Lead wait for the lock, whatever the number of tries: d, more than 0. Then they
// return the error of a last try: it matches ErrFailed if the lock is taken, or ErrNoQuorum. It is never the error of a
// deadline. The work is not bounded: the function of a Do has the context that the caller gave, so it may run for as long as
// that allows. After a term that was lost, Lead waits for up to d again.
//
// A d of more than the expiry outwaits a holder that has crashed. With WithFair the place in the queue is kept for d. The
// option has no effect on TryLock and TryDo. WithWait and WithTries exclude each other on one Mutex; one of them given to
// NewMutex, Do or Lead replaces the other one given to Redsync.With.
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

// WithTimeoutFactor sets the node deadline, as a fraction of the expiry: how long an operation waits for a node that does
// not answer. The range is 0 < factor <= 1. The deadline is at least 50 ms, but never more than half of the validity.
// Without this option the factor is 0.05, and the deadline is at most 2 s. An operation does not wait for such a node
// once the other nodes have decided it. Lock has three exceptions (see the package's documentation, What is guaranteed).
// See WithNodeTimeout.
func WithTimeoutFactor(factor float64) Option {
	return OptionFunc(func(m *Mutex) {
		set := m.change()
		set.timeoutFactor, set.ownFactor = factor, true
	})
}

// WithNodeTimeout sets the node deadline as a duration, in place of WithTimeoutFactor. The
// range is 0 < timeout <= half of the validity. A short deadline gives up on slow nodes
// soon; a long one tolerates slow networks.
func WithNodeTimeout(timeout time.Duration) Option {
	return OptionFunc(func(m *Mutex) {
		if timeout <= 0 {
			m.change().fail(outOfRange("WithNodeTimeout", timeout, "more than 0, at most half of the validity"))
		}
		m.change().nodeTimeout = timeout
	})
}

// WithGenValueFunc sets the function that makes the value of each attempt. The value proves the ownership of
// the keys that the attempt has set. The default is 130 bits from crypto/rand. A value should be hard to guess,
// because everybody who knows it can release the lock, with ForceUnlock or WithValue, and can pass its Sequencer off
// as current.
//
// The function may return one value again, such as the ID of a worker. On another name it is always free. On the same name
// these rules keep the locks apart:
//
//   - While a lock of this process has the value, every other Mutex of the process finds the name taken (*ErrTaken), and
//     leaves the keys alone. That includes a lock that was detached, and keys that stay for WithMinHold or WithLockDelay.
//   - A late release of the earlier lock would delete the key of the new one. So a node that may still run a command of
//     the earlier lock does not count for the new lock. The error of that node says so. Normally the node has answered
//     before the new lock asks it. If its answer was lost, it counts again once it has been restarted, or once it
//     answers two minutes later.
//   - Two processes must not use one value for one name. Each would release the lock of the other.
//   - Nobody can tell the Sequencer of one lock from that of the next. Do not use such a value with Current or Detach.
//
// Lock fails, without a further attempt, if the function returns an error, an empty value or a value that begins with
// "readers\n", or with WithShared a value that contains "\n". Many goroutines may call the function at once.
// The option excludes WithOwner.
func WithGenValueFunc(genValueFunc func() (string, error)) Option {
	return OptionFunc(func(m *Mutex) {
		if genValueFunc == nil {
			m.change().fail(errors.New("redsync: WithGenValueFunc(nil)"))
		}
		set := m.change()
		set.genValue, set.isOwn = &genValueFunc, true
	})
}

// WithOwner makes the value of each lock say its owner: label, such as "worker-7@host", the process, and the time. So
// an operator who finds a lock on the nodes sees whom to ask, with Mutex.Inspect or with GET. All who may read the nodes
// see the label, so it must be no secret. By default a value says nothing.
//
// The range is 1 to 128 bytes of UTF-8, without control characters, invisible format characters (such as U+200B or
// U+202E), and spaces at the ends, because people read the label in terminals.
//
// The value is then the 26 random characters of a value without an owner, "~", the process (16 digits), a space, the time
// (13 digits), a space, and the label. To redsync v4 and to the nodes it is a value like any other. The process is a
// random number that stands for it in the queues of the nodes, too. The time is that of the attempt that acquired the lock,
// in milliseconds since 1970, by the clock of this machine. A clock before 1970 or after 2286 gives the first or the last
// moment of that range.
//
// The label must be equal where one value serves several calls: a lock is handed over within the process only to a waiter
// with the same label (see WithHandOver), and readers share a hold only if they have the same label (see WithShared). The
// time of a lock that was handed over stays that of its acquisition. A hold that is adopted with WithSequencer keeps the
// owner of its giver, until the next Lock. A Do that joins the hold of another Do does not change its owner.
//
// A holder with an owner hears of ForceUnlock. For that, once it has had a lock for a second, its process listens on one
// connection to each node, which serves waiters, too, and it asks each node once. Shorter locks cost nothing.
//
// Each attempt allocates once more, for the longer value. A call that finds the lock taken and gives up sends one more
// command to each node, and takes up to 50 ms longer: see ErrTaken. WithOwner excludes WithValue and WithGenValueFunc.
func WithOwner(label string) Option {
	return OptionFunc(func(m *Mutex) {
		if err := script.CheckLabel(label); err != nil {
			m.change().fail(outOfRange("WithOwner", quoted(label), script.LabelRange+"; "+err.Error()))
			return
		}
		m.change().owner = label
	})
}

// WithPrefix puts prefix before the names of locks, so that programs with different prefixes can share nodes: a lock and
// all that belongs to it are keys of the prefixed name. The default is "", no prefix.
//
// One rule says all: with WithPrefix("app:"), NewMutex("orders") is what NewMutex("app:orders") is without it. So the two
// are one lock. Programs give the name without the prefix; what the library tells always has the prefix, as the nodes
// have it: Name, Names, errors, events, the log, Status, Holder and Sequencer. To make a Mutex of such a name, switch the
// prefix off:
//
//	m := rs.With(redsync.WithPrefix("")).NewMutex(status.Name)
//
// WithSequencer needs that not: NewMutex(s.Name, WithSequencer(s)) does not repeat the prefix. A Sequencer of a lock with
// another prefix is refused: by WithSequencer, because its name is another one, and by Redsync.Current.
//
// A later WithPrefix replaces an earlier one, so that of NewMutex replaces that of With. Every operation fails if it is
// applied to a Mutex that NewMutex or NewMultiMutex has returned, because its keys are fixed.
//
// If a name has a hash tag, the tag decides about the slot on a Redis Cluster, with the prefix as without. A prefix may
// contain a hash tag of its own, as in {app}:, and then all its locks lie in one slot, whatever tags their names
// have. Any other braces are out of range: a tag that is not closed or is empty, or a closing brace alone. They would
// change or spoil the tags of names.
//
// A hook of go-redis that rewrites keys has no effect on locks: see pool.New. Use WithPrefix with the same prefix instead.
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

// WithValue adopts a lock that was acquired elsewhere with this value, so that one
// process can give a lock to another. At first the Mutex does not know when the lock
// ends, so Unlock and Valid depend on the nodes' votes alone. A successful Extend
// makes the hold this Mutex's own: from then on it has Until, Remaining and Lost. Lock
// starts a hold of its own with a fresh value, and does not release the adopted one.
//
// The giver should use Mutex.Detach, which returns a Sequencer with the value and ends
// the giver's hold. A giver that only reads Mutex.Value still holds the lock: if both
// sides unlock or extend it, neither knows of the other. The giver's Close then unlocks
// it too, unless the giver's Until has passed.
//
// Set WithSetNXOnExtend and WithFencing as the giver has them. With either, the giver may
// have sent the value to a node more than once, so Unlock repeats its release until the
// keys have run out. Without them, a node on which Unlock finds the value needs only one release.
//
// Use WithSequencer if the giver has this library. WithValue is for a value without a Sequencer, such
// as one of redsync v4. It excludes WithShared, because a value does not say that its hold is shared, and WithOwner.
func WithValue(v string) Option {
	return OptionFunc(func(m *Mutex) {
		set := m.change()
		set.adopts = set.adopts.with(func(a *adoption) { a.value = v })
	})
}

// WithSequencer adopts the hold that s belongs to, as WithValue does with its value. In addition, Fence
// returns the token of s once Extend or Do has adopted the hold, and with WithFencing the release of that
// hold raises the nodes' registers to the token.
//
// If the hold of s is shared, the Mutex is a reader, as with WithShared.
//
// The name of the Mutex must be s.Name. Every operation fails
//
//   - with another name, or without a value in s;
//   - together with WithValue;
//   - with WithShared if the hold of s is exclusive;
//   - if other readers of the giver's process shared the hold when s was made (see WithShared).
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

// WithShufflePools is accepted for compatibility and has no effect: all nodes
// are asked at once.
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

// WithMinHold makes the nodes keep the lock for at least d, counted from before the first request of the attempt
// that acquired it. If d has passed, Unlock and Close release the lock as usual. If not, they let the keys stay for
// the rest of d. If the holder crashes, or loses the lock, the keys stay for at least d as well. After a crash
// they also stay until the lock expires (8 s by default): ticks before that have no run. The default is off.
// d must be more than 0, and together with its drift (d * 0.01 + 2 ms by default) at most 292 years. With
// pool.WithRestartGuard it must also fit into the limit of the guard.
//
// It is for jobs that several processes start at the same time, by a schedule. With TryDo, at most one process runs
// the job at each tick, even if the clock of another process is behind and its call comes after the job has ended.
// For that, d must be longer than the greatest difference between the start times of the processes. d plus its drift
// must be shorter than the time between two ticks: see docs/cron.md. A long d tolerates clocks that differ more. With
// a short d another process can lock sooner after a crash.
//
// The option changes neither Until nor what Unlock returns. A failed attempt releases its keys at once. After Unlock, a
// Lock of the name waits until d has passed, also in the same process and with the same Mutex. Redsync.Current asks
// only whether the nodes have the keys. So while the keys stay, it still says that a Sequencer of the hold is current.
// A process that adopts the hold by its Sequencer (WithSequencer) knows nothing of d, so its Unlock frees the lock at
// once.
//
// Locks with this option are not handed over within the process (WithHandOver), and cannot be detached or downgraded.
// WithMinHold excludes WithShared, WithValue and WithSequencer: with any of these, every operation fails. The idea is
// that of ShedLock's lockAtLeastFor.
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

// WithFencing gives each hold a fencing token: see Mutex.Fence. Every client that locks the
// name and writes to what it protects must set it: a Lock without it gets no token. The
// default is off.
//
// The nodes keep a register beside the lock, {name}:fence, for 24 hours after the last use: about
// 100 bytes for each name. With this option each attempt sends a script. It takes one round trip,
// as without tokens. It may take one or two more if the last token is ahead of this client's clock.
// Locks are not handed over within the process, because each holder needs a token of its own.
//
// The order of the tokens has limits. The 24 hours must exceed the skew of the clients' clocks
// and the time that an attempt takes. A node that loses its data loses its register, too.
// pool.WithRestartGuard covers that while the clients' clocks differ by no more than 10 s.
// Without the guard, one node that restarts empty can break the order if the clients' clocks
// differ. If they agree, the order holds even then, but two holds may get the same token.
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

// WithHandOver decides whether Unlock may hand the lock to the next waiter of the same process
// (of the same New or Open) without telling the nodes. This direct hand-off is many times faster
// than releasing and acquiring the lock. The default is true.
//
// A lock is handed over only within 20 ms of its acquisition, and within a tenth of the expiry. After
// that Unlock releases it, and waiters of other processes have their turn. The receiver has at least
// nine tenths of the validity. A lock is handed over only to a waiter with the same expiry, drift,
// node deadline, lock delay and owner (WithOwner). It is never handed over with WithFair, WithFencing, WithMaxHold,
// WithMinHold, WithValue, WithSequencer or WithGenValueFunc. If your code has read the value of a
// lock (Mutex.Value, Mutex.Sequencer), Unlock releases that lock instead of handing it over.
//
// A shared lock is never handed over. With false, a reader does not share its hold with other readers of
// the process (see WithShared).
func WithHandOver(b bool) Option {
	return OptionFunc(func(m *Mutex) { m.change().noHandOver = !b })
}

// WithObserver adds an observer: a value that implements one or more of the interfaces in package observe,
// such as observe.LostObserver. Package observe says when each event comes, with which context, and on which
// goroutine. The default is none. The observers of a Mutex are told after those of its Redsync, and do not
// replace them. An observer that is set twice is told once. A value that implements none of the interfaces makes every
// operation fail.
//
// Close waits for events at most for the node deadline: see package observe.
func WithObserver(observer any) Option {
	return OptionFunc(func(m *Mutex) {
		if !isObserver(observer) {
			m.change().fail(fmt.Errorf("redsync: WithObserver(%T): it has no method of an observer (see package observe)", observer))
			return
		}
		set := m.change()
		set.observers, set.isOwn = set.observers.with(observer), true
	})
}

// WithLogger writes a log. The default is none. Its levels:
//
//   - Error: each lock that is lost, except by Close.
//   - Warn: troubles that last (no quorum answers, a node is down), once at their beginning, and every 10 s while
//     operations show that they last. Also what Close has left on a node, and what needs a change of the nodes, at most
//     once in 10 s.
//   - Info: the end of such a trouble.
//   - Debug: everything that happens to one lock: each attempt, extension and Unlock, whether or not it failed.
//
// While all is well there is nothing above Debug. Each logger reports a trouble once for each New or Open, however many
// locks, goroutines and copies (With) meet it. At most 16 loggers do so: make one logger for a Redsync, not one for
// each lock. A logger that is given twice writes each line once. Lines about troubles that last come from the goroutine
// of background events (see package observe), without the context of a call. docs/operating.md lists all lines.
//
// The messages begin with "redsync: " and are constant. The attribute "lock" is the name, and "error" is the cause. The
// others are named like the fields of the events. No attribute contains a lock's value.
func WithLogger(logger *slog.Logger) Option {
	if logger == nil {
		return OptionFunc(func(m *Mutex) { m.change().fail(errors.New("redsync: WithLogger(nil)")) })
	}
	return OptionFunc(func(m *Mutex) {
		set := m.change()
		set.observers, set.isOwn = set.observers.withLogger(logger, m.core.journal()), true
	})
}
