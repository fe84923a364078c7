package redsyncgocron_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/redsyncgocron"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// pastTick waits until the middle between the next tick and the one after it.
func pastTick() {
	time.Sleep(time.Until(time.Now().Truncate(every).Add(every + every/2)))
	synctest.Wait()
}

// Three processes run the job, which ends at once. Their clocks differ; the control has a minimal hold that is shorter than the
// difference. A job may have a Locker of its own, with other lengths, or none.
func TestLockerEachTickRunsOnce(t *testing.T) {
	plays(t, map[string]int{"half of the time between ticks": 1, "control": 3, "a job without a Locker": 3, "a job with its own": 1}, func(k *kit, name string, want int) {
		var all ticks
		pastTick()
		for _, by := range []time.Duration{-time.Second, 0, time.Second} {
			var locker gocron.Locker = refusing{}
			var ofJob []gocron.JobOption
			own := k.other()
			switch name {
			case "a job without a Locker":
				ofJob = append(ofJob, gocron.WithDisabledDistributedJobLocker(true))
			case "a job with its own":
				ofJob = append(ofJob, gocron.WithDistributedJobLocker(own))
			case "control":
				locker = redsyncgocron.NewLocker(k.nodes.Process(), holds(100*time.Millisecond), redsyncgocron.WithReport(k.report))
			default:
				locker = own
			}
			k.starts(all.run, ahead(by), gocron.WithDistributedLocker(locker), gocron.WithGlobalJobOptions(ofJob...))
		}
		time.Sleep(50 * every)
		assert.Equal(k, map[int]int{want: 50}, all.counts())
		k.reported()
	})
}

// gocron skips a tick without a word if Lock fails. So what is wrong is reported.
func TestLockerReportsWhatIsWrong(t *testing.T) {
	play(t, func(k *kit) {
		report := redsyncgocron.WithReport(k.report)
		closed := k.nodes.Process()
		require.NoError(k, closed.Close(k.Context()))
		for text, locker := range map[string]gocron.Locker{
			`job "report": minHold is nil`:                      redsyncgocron.NewLocker(k.rs, nil, report),
			`job "report": minHold has returned 0s: it must be`: redsyncgocron.NewLocker(k.rs, holds(0), report),
			`minHold has returned -1s: it must be more than 0`:  redsyncgocron.NewLocker(k.rs, holds(-time.Second), report),
			"an option is nil":                                  redsyncgocron.NewLocker(k.rs, holds(1), report, nil),
			"WithReport(nil)":                                   redsyncgocron.NewLocker(k.rs, holds(1), report, redsyncgocron.WithReport(nil)),
			"WithMinHold excludes WithShared":                   k.locker(k.rs.With(redsync.WithShared())),
			"WithExpiry(-1s) is out of range":                   k.locker(k.rs.With(redsync.WithExpiry(-time.Second))),
			`redsync: lock "{report}:queue": the na`:            prefixed{k.locker(k.rs)},
			"no pools":                                          k.locker(nil),
			"closed":                                            k.locker(closed),
		} {
			lock, err := locker.Lock(k.Context(), "report")
			require.ErrorContains(k, err, text)
			assert.Nil(k, lock)
			e := k.reported(redsyncgocron.NotLocked)
			assert.Equal(k, err, e[0].Err)
		}
		k.nodes.RequireFree("report")
	})
}

// A prefixed Locker locks a name that is reserved.
type prefixed struct{ gocron.Locker }

func (p prefixed) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	return p.Locker.Lock(ctx, "{"+key+"}:queue")
}

// The name is that of the job. That another scheduler has the lock is the normal outcome, and is not reported.
func TestLockerDoesNotReportAJobThatRunsElsewhere(t *testing.T) {
	play(t, func(k *kit) {
		lock := k.locks(k.locker(k.rs, redsyncgocron.WithPrefix("cron:")))
		k.nodes.RequireHeld("cron:report")
		time.Sleep(5 * time.Minute) // a watchdog extends it
		_, err := k.locker(k.nodes.Process(), redsyncgocron.WithPrefix("cron:")).Lock(k.Context(), "report")
		require.ErrorIs(k, err, redsync.ErrFailed)
		other := k.locks(k.other())
		require.NoError(k, other.Unlock(k.Context()))
		require.NoError(k, lock.Unlock(k.Context()))
		k.reported()
		k.nodes.RequireFree("cron:report")
	})
}

// What minHold returns counts from the attempt, and minHold is asked each time with the name of the job.
func TestLockerKeepsTheLockForMinHold(t *testing.T) {
	play(t, func(k *kit) {
		lengths := map[string]time.Duration{"short": time.Second, "long": time.Minute}
		locker := redsyncgocron.NewLocker(k.rs, func(job string) time.Duration { return lengths[job] }, redsyncgocron.WithReport(k.report))
		for job, d := range lengths {
			lock, err := locker.Lock(k.Context(), job)
			require.NoError(k, err)
			require.NoError(k, lock.Unlock(k.Context()))
			time.Sleep(d)
			k.nodes.RequireHeld(job)
			time.Sleep(d/100 + 3*time.Millisecond) // drift
			k.nodes.RequireFree(job)
		}
		k.reported()
	})
}

// gocron tells its listener of each error of Lock, and counts a skip.
func TestLockerWithoutAQuorum(t *testing.T) {
	play(t, func(k *kit) {
		k.majority((*redsynctest.Node).Down)
		var heard []error
		listener := gocron.AfterLockError(func(_ uuid.UUID, job string, err error) {
			assert.Equal(k, "report", job)
			heard = append(heard, err)
		})
		var all ticks
		pastTick()
		k.starts(all.run, gocron.WithDistributedLocker(k.locker(k.rs)), gocron.WithGlobalJobOptions(gocron.WithEventListeners(listener)))
		pastTick()
		pastTick()
		for i, e := range k.reported(redsyncgocron.NotLocked, redsyncgocron.NotLocked) {
			require.ErrorIs(k, e.Err, redsync.ErrNoQuorum)
			assert.Equal(k, "report", e.Name)
			assert.Equal(k, e.Err, heard[i])
		}
		assert.Empty(k, all.counts())
		k.majority((*redsynctest.Node).Up)
		time.Sleep(10 * every)
		assert.Equal(k, map[int]int{1: 10}, all.counts())
		k.reported()
	})
}

// While a run goes on, no process begins another one, however many ticks pass.
func TestLockerJobThatIsLongerThanItsInterval(t *testing.T) {
	plays(t, map[string][]gocron.JobOption{
		"plain":     nil,
		"singleton": {gocron.WithSingletonMode(gocron.LimitModeReschedule)},
	}, func(k *kit, _ string, options []gocron.JobOption) {
		var runs, now, most atomic.Int32
		long := func(ctx context.Context) {
			runs.Add(1)
			most.Store(max(most.Load(), now.Add(1)))
			works(ctx, 3*every+every/2)
			now.Add(-1)
		}
		pastTick()
		for range 3 {
			k.starts(long, gocron.WithDistributedLocker(k.other()), gocron.WithGlobalJobOptions(options...))
		}
		time.Sleep(40*every + every/4)
		assert.Equal(k, int32(1), most.Load())
		assert.Equal(k, int32(10), runs.Load()) // every fourth tick
		k.reported()
	})
}

// The process that runs the job is cut off. It hears of the loss at the end of the validity, and goes on. Another process
// runs the job. When the first one ends, gocron drops what Unlock returns, and the loss is not reported again.
func TestLockerReportsALossOnce(t *testing.T) {
	play(t, func(k *kit) {
		var done atomic.Bool
		cut := k.nodes.Process()
		pastTick()
		k.starts(func(ctx context.Context) {
			if !done.Load() {
				k.nodes.CutOff(cut)
				works(ctx, 4*every)
				done.Store(true)
			}
		}, gocron.WithDistributedLocker(k.locker(cut)), ahead(time.Second),
			gocron.WithGlobalJobOptions(gocron.WithSingletonMode(gocron.LimitModeReschedule)))
		time.Sleep(every/2 - time.Second)
		synctest.Wait() // the job has begun
		time.Sleep(validity - time.Millisecond)
		k.reported()
		time.Sleep(time.Millisecond)
		e := k.reported(redsyncgocron.Lost)
		require.ErrorIs(k, e[0].Err, redsync.ErrLockLost)
		assert.Equal(k, "report", e[0].Name)
		assert.False(k, done.Load())

		var all ticks
		k.starts(all.run, gocron.WithDistributedLocker(k.other()))
		time.Sleep(2 * every)
		assert.False(k, done.Load()) // the first job goes on
		assert.Equal(k, map[int]int{1: 2}, all.counts())
		k.nodes.Reconnect(cut)
		time.Sleep(2 * every)
		assert.True(k, done.Load())
		k.reported()
	})
}

// Unlock may find the loss first: the watchdog has not asked since.
func TestLockerReportsALossThatUnlockFinds(t *testing.T) {
	play(t, func(k *kit) {
		lock := k.locks(k.locker(k.rs))
		k.nodes.Steal("report")
		require.ErrorIs(k, lock.Unlock(k.Context()), redsync.ErrLockAlreadyExpired)
		e := k.reported(redsyncgocron.Lost)
		require.ErrorIs(k, e[0].Err, redsync.ErrLockAlreadyExpired)
		k.nodes.Expire("report")
	})
}

func TestLockerReportsALockThatIsNotReleased(t *testing.T) {
	play(t, func(k *kit) {
		lock := k.locks(k.locker(k.rs))
		k.freeze()
		start := time.Now()
		require.ErrorIs(k, lock.Unlock(k.Context()), redsync.ErrNoQuorum)
		assert.LessOrEqual(k, time.Since(start), time.Second)
		e := k.reported(redsyncgocron.NotReleased)
		require.ErrorIs(k, e[0].Err, redsync.ErrNoQuorum)
	})
}

// gocron ends the context of the job, and then calls Unlock with it. The lock is released all the same, and nothing is
// reported. After that another process gets the job at once.
func TestLockerReleasesWhenTheSchedulerStops(t *testing.T) {
	plays(t, map[string]func(gocron.Scheduler) error{
		"StopJobs": gocron.Scheduler.StopJobs,
		"Shutdown": gocron.Scheduler.Shutdown,
	}, func(k *kit, _ string, stop func(gocron.Scheduler) error) {
		var ended atomic.Bool
		pastTick()
		s := k.starts(func(ctx context.Context) {
			<-ctx.Done()
			ended.Store(true)
		}, gocron.WithDistributedLocker(k.locker(k.rs)))
		pastTick()
		time.Sleep(2 * minHold)
		k.nodes.RequireHeld("report")
		require.NoError(k, stop(s))
		assert.True(k, ended.Load())
		k.reported()
		k.nodes.RequireFree("report")
	})
}

// A call of Lock that the end of the scheduler has cut short is nothing to report.
func TestLockerOfAContextThatHasEnded(t *testing.T) {
	play(t, func(k *kit) {
		for i := range 5 {
			k.nodes.Node(i).Freeze()
		}
		ctx, cancel := context.WithTimeout(k.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := k.locker(k.rs).Lock(ctx, "report")
		require.ErrorIs(k, err, context.DeadlineExceeded)
		k.reported()
	})
}

// A job that panics ends its lock.
func TestLockerJobPanics(t *testing.T) {
	play(t, func(k *kit) {
		var panics atomic.Int32
		listener := gocron.AfterJobRunsWithPanic(func(uuid.UUID, string, any) { panics.Add(1) })
		pastTick()
		for range 3 {
			k.starts(func(context.Context) { panic("work") }, gocron.WithDistributedLocker(k.other()),
				gocron.WithGlobalJobOptions(gocron.WithEventListeners(listener)))
		}
		time.Sleep(10 * every)
		assert.Equal(k, int32(10), panics.Load())
		time.Sleep(time.Second)
		k.nodes.RequireFree("report")
		k.reported()
	})
}

// A refusing Locker never locks.
type refusing struct{}

func (refusing) Lock(context.Context, string) (gocron.Lock, error) { return nil, errors.New("refused") }

// Without WithReport the events are written to the log of the program.
func TestEventsAreLoggedByDefault(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	var log bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	playAlone(t, func(k *kit) {
		_, err := redsyncgocron.NewLocker(k.rs, nil).Lock(k.Context(), "report")
		require.Error(k, err)
		assert.Contains(k, log.String(), `level=WARN msg="redsyncgocron: not locked" name=report error="redsyncgocron: job \"report\": minHold is nil`)
		lock := k.locks(redsyncgocron.NewLocker(k.rs, holds(1)))
		require.NoError(k, k.rs.Close(k.Context()))
		synctest.Wait()
		assert.Contains(k, log.String(), `level=ERROR msg="redsyncgocron: lost" name=report`)
		require.Error(k, lock.Unlock(k.Context()))
	})
}

// A start between ticks runs the job if the minimal hold of the last run is over, and not before. The time is past the middle
// between two ticks, so such a run counts for the next tick.
func TestLockerRunNow(t *testing.T) {
	play(t, func(k *kit) {
		var all ticks
		pastTick()
		s := k.starts(all.run, gocron.WithDistributedLocker(k.locker(k.rs)))
		pastTick() // the lock stays for another 52 ms
		for _, want := range []map[int]int{{1: 1}, {1: 2}} {
			require.NoError(k, s.Jobs()[0].RunNow())
			synctest.Wait()
			assert.Equal(k, want, all.counts())
			time.Sleep(time.Second)
		}
		k.reported()
	})
}
