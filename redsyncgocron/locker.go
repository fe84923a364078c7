package redsyncgocron

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/seed14bd9ef4/redsync"
)

// NewLocker returns a Locker for gocron.WithDistributedLocker or gocron.WithDistributedJobLocker. Of all schedulers that
// have a job of the same name and a Locker on the same nodes, one runs the job at each tick.
//
// # Lock
//
// Lock makes one attempt, as Mutex.TryLockContext of rs does, and repeats it if the votes were split. So a free lock has a
// winner even if all schedulers call Lock in the same moment. If another scheduler has the lock, the error matches
// redsync.ErrFailed, and gocron skips the tick. The same happens if the former run of the job still goes on, in any of the
// processes. A watchdog extends the lock while the job runs.
//
// The name of the lock is that of the job, so the job excludes a TryDo with that name, too. Give each job a name, with
// gocron.WithName. Otherwise gocron uses the name of the Go function. This name may differ between two versions of a program,
// and jobs with the same function have the same.
//
// # How long the lock is kept
//
// minHold returns how long the lock of a job stays at least, counted from the attempt that acquired it. It is called at
// every tick, with the name of the job, perhaps by many goroutines at once. The lock stays that long even if the job ends
// earlier. So a scheduler whose clock is behind finds it taken, and does not run the job again.
//
// There is no default, because gocron does not tell a Locker the schedule. Choose d so that, if the starts of one tick lie
// apart by spread, because clocks differ or a process is busy,
//
//	spread + 1 s < d   and   1.01 d < (time between two ticks) - spread - 1 s
//
// If d is shorter, a tick may run twice. If it is longer, ticks are skipped: docs/cron.md of package redsync has the
// reasons. Half of the time between two ticks allows the largest spread. If minHold is nil, or returns 0 or less, Lock
// fails.
//
// # Unlock
//
// gocron calls Unlock when the job has returned or panicked. It passes the context of the job, which has ended if the
// scheduler is shutting down. Unlock releases the lock all the same, within two node deadlines of rs (0.8 s by default). Once
// gocron's Shutdown has returned without an error, no lock is held, although minHold may keep some.
//
// If the process crashes in a job, the lock stays for d or for the expiry of rs (8 s by default), whichever is longer.
// Ticks before that are skipped. So for jobs that run every few seconds pass rs.With(redsync.WithExpiry(d)).
//
// # Loss
//
// gocron gives Lock no way to stop a job. So if its lock is lost, the job goes on, and another scheduler may run it
// meanwhile. WithReport tells of that, and of all errors of Lock and Unlock that are not the normal outcome.
//
// Other options of the locks are those of rs: see redsync.Redsync.With. WithWatchdog and WithMinHold are always set. Lock
// does not wait, so WithTries and WithWait have no effect.
func NewLocker(rs *redsync.Redsync, minHold func(job string) time.Duration, options ...Option) gocron.Locker {
	return &locker{configured(options), rs, minHold}
}

type locker struct {
	config
	rs      *redsync.Redsync
	minHold func(job string) time.Duration
}

// Lock implements gocron.Locker.
func (l *locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	m, err := l.mutex(job)
	if err == nil {
		err = m.TryLockContext(ctx)
	}
	if err != nil {
		// If ctx has ended, gocron does not want the job any more.
		if !errors.Is(err, redsync.ErrFailed) && ctx.Err() == nil {
			l.report(Event{NotLocked, job, err})
		}
		return nil, err
	}
	return l.watched(ctx, m, job), nil
}

// mutex returns a new Mutex for one run of a job. A run that goes on has the Mutex of its own.
func (l *locker) mutex(job string) (*redsync.Mutex, error) {
	if l.err != nil {
		return nil, l.err
	}
	if l.minHold == nil {
		return nil, fmt.Errorf("redsyncgocron: job %q: minHold is nil: it must say how long the lock stays", job)
	}
	d := l.minHold(job)
	if d <= 0 {
		return nil, fmt.Errorf("redsyncgocron: job %q: minHold has returned %v: it must be more than 0", job, d)
	}
	return l.rs.NewMutex(l.prefix+job, redsync.WithWatchdog(), redsync.WithMinHold(d)), nil
}

// A lock is that of one run of a job.
type lock struct {
	mutex *redsync.Mutex
	job   string
	tell  func(Event)
	lost  sync.Once // reported
}

// watched returns the lock of m, which is held, and reports when it is lost. While it is held no goroutine waits for that.
func (l *locker) watched(ctx context.Context, m *redsync.Mutex, job string) *lock {
	k := &lock{mutex: m, job: job, tell: l.report}
	held := m.Context(context.WithoutCancel(ctx)) // gocron may end ctx long before the job has ended
	context.AfterFunc(held, func() {
		if err := context.Cause(held); errors.Is(err, redsync.ErrLockLost) {
			k.reportLost(err)
		}
	})
	return k
}

func (k *lock) reportLost(err error) {
	k.lost.Do(func() { k.tell(Event{Lost, k.job, err}) })
}

// Unlock implements gocron.Lock.
func (k *lock) Unlock(ctx context.Context) error {
	lost := k.mutex.Err() // also if no timer has noticed yet, as after a pause
	_, err := k.mutex.UnlockContext(context.WithoutCancel(ctx))
	switch {
	case lost != nil:
		k.reportLost(lost)
	case err == nil:
	case errors.Is(err, redsync.ErrLockAlreadyExpired):
		k.reportLost(err)
	default:
		k.tell(Event{NotReleased, k.job, err})
	}
	return err
}
