package redsyncgocron_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/redsyncgocron"
)

// leads checks whether an Elector leads.
func (k *kit) leads(e *redsyncgocron.Elector, want bool) {
	synctest.Wait()
	err := e.IsLeader(k.Context())
	if want {
		require.NoError(k, err)
	} else {
		require.ErrorIs(k, err, redsync.ErrNotHeld)
	}
}

// One of three schedulers runs the job, until its process resigns. Then another one runs it, from the next tick on.
func TestElectorOneProcessRunsTheJob(t *testing.T) {
	play(t, func(k *kit) {
		var electors []*redsyncgocron.Elector
		runs := make([]ticks, 3)
		pastTick()
		for i := range 3 {
			e := k.elector(k.nodes.Process())
			electors = append(electors, e)
			k.starts(runs[i].run, gocron.WithDistributedElector(e))
		}
		time.Sleep(3 * every)
		assert.Equal(k, map[int]int{1: 3}, runs[0].counts())
		k.resigns(electors[0])
		k.leads(electors[0], false)
		require.EqualError(k, electors[0].IsLeader(k.Context()), `redsyncgocron: "jobs" has resigned: redsync: lock not held`)
		time.Sleep(3 * every)
		assert.Equal(k, map[int]int{1: 3}, runs[0].counts())
		others := []map[int]int{runs[1].counts(), runs[2].counts()}
		assert.ElementsMatch(k, []map[int]int{{1: 3}, {}}, others)
		for _, e := range electors {
			k.resigns(e) // also a second time
		}
		k.nodes.RequireFree("jobs")
		k.reported()
	})
}

// A leader that is cut off leads until Until, and not a nanosecond longer. Its jobs stop then, before another process leads.
func TestElectorLeadsUntilUntil(t *testing.T) {
	play(t, func(k *kit) {
		cut := k.nodes.Process()
		first := k.elector(cut)
		k.leads(first, true)
		second := k.elector(k.nodes.Process())
		k.leads(second, false)
		time.Sleep(20 * time.Second) // a watchdog extends it
		k.leads(first, true)
		k.nodes.CutOff(cut)
		until := first.Until()
		require.Greater(k, time.Until(until), validity/2)
		time.Sleep(time.Until(until) - time.Nanosecond)
		k.reported()
		assert.NoError(k, first.IsLeader(k.Context()))
		time.Sleep(time.Nanosecond)
		require.ErrorIs(k, first.IsLeader(k.Context()), redsync.ErrNotHeld) // no timer has been waited for
		e := k.reported(redsyncgocron.Lost)
		require.ErrorIs(k, e[0].Err, redsync.ErrLockLost)
		assert.Equal(k, "jobs", e[0].Name)
		k.leads(second, false)
		time.Sleep(time.Second)
		k.leads(second, true)
		e = k.reported(redsyncgocron.NotElected) // the first one cannot reach the nodes
		require.ErrorIs(k, e[0].Err, redsync.ErrNoQuorum)
		k.nodes.Reconnect(cut)
		time.Sleep(10 * time.Second)
		k.leads(first, false)
		require.NotErrorIs(k, first.IsLeader(k.Context()), redsync.ErrNoQuorum) // others have the lock
		k.resigns(second)
		k.leads(first, true)
		k.resigns(first)
		k.reported()
	})
}

// A WithWait of the Redsync ends no campaign, and lets no Locker wait.
func TestWithWaitHasNoEffect(t *testing.T) {
	play(t, func(k *kit) {
		first := k.elector(k.nodes.Process())
		second := k.elector(k.rs.With(redsync.WithWait(time.Second)))
		time.Sleep(time.Minute)
		k.leads(second, false)
		k.resigns(first)
		time.Sleep(time.Second)
		k.leads(second, true)
		k.resigns(second)

		lock := k.locks(k.other())
		start := time.Now()
		_, err := k.locker(k.rs.With(redsync.WithWait(time.Hour))).Lock(k.Context(), "report")
		require.ErrorIs(k, err, redsync.ErrFailed)
		assert.Zero(k, time.Since(start))
		require.NoError(k, lock.Unlock(k.Context()))
		k.reported()
	})
}

// The end of the context is a resignation. Nothing goes on after it: TestMain finds goroutines that are left.
func TestElectorResignsWithItsContext(t *testing.T) {
	play(t, func(k *kit) {
		ctx, cancel := context.WithCancel(k.Context())
		e, err := redsyncgocron.NewElector(ctx, k.rs, "jobs", redsyncgocron.WithReport(k.report), redsyncgocron.WithPrefix("cron:"))
		require.NoError(k, err)
		k.leads(e, true)
		k.nodes.RequireHeld("cron:jobs")
		cancel()
		k.leads(e, false)
		k.nodes.RequireFree("cron:jobs")
		done, stop := context.WithCancel(k.Context())
		stop()
		require.NoError(k, e.Shutdown(done)) // it has ended already
		k.reported()
	})
}

// What can be known at once is an error of NewElector.
func TestNewElectorRefuses(t *testing.T) {
	play(t, func(k *kit) {
		ended, cancel := context.WithCancelCause(k.Context())
		cancel(assert.AnError)
		closed := k.nodes.Process()
		require.NoError(k, closed.Close(k.Context()))
		for want, c := range map[string]struct {
			ended   bool
			rs      *redsync.Redsync
			name    string
			options []redsyncgocron.Option
		}{
			"must not be empty":             {rs: k.rs},
			"is reserved":                   {rs: k.rs, name: "{jobs}:queue"},
			"no pools":                      {name: "jobs"},
			"closed":                        {rs: closed, name: "jobs"},
			"WithExpiry(-1ns) is out of ra": {rs: k.rs.With(redsync.WithExpiry(-1)), name: "jobs"},
			"an option is nil":              {rs: k.rs, name: "jobs", options: []redsyncgocron.Option{nil}},
			"WithReport(nil)":               {rs: k.rs, name: "jobs", options: []redsyncgocron.Option{redsyncgocron.WithReport(nil)}},
			assert.AnError.Error():          {rs: k.rs, name: "jobs", ended: true},
		} {
			ctx := context.Context(nil) // stands for the background context
			if c.ended {
				ctx = ended
			}
			e, err := redsyncgocron.NewElector(ctx, c.rs, c.name, c.options...)
			require.ErrorContains(k, err, want)
			assert.Nil(k, e)
		}
		k.nodes.RequireFree("jobs")
	})
}

// What only Lead finds out ends the campaign. IsLeader says why, for good.
func TestElectorThatCannotCampaign(t *testing.T) {
	plays(t, map[string]redsync.Option{
		"Lead excludes WithShared": redsync.WithShared(),
		"Lead excludes WithValue":  redsync.WithValue("somebody's"),
		assert.AnError.Error():     redsync.WithGenValueFunc(func() (string, error) { return "", assert.AnError }),
	}, func(k *kit, text string, option redsync.Option) {
		e := k.elector(k.rs.With(option))
		k.leads(e, false)
		told := k.reported(redsyncgocron.NotElected)
		require.ErrorContains(k, told[0].Err, text)
		time.Sleep(time.Hour)
		k.leads(e, false)
		require.ErrorIs(k, e.IsLeader(k.Context()), told[0].Err)
		k.resigns(e)
		k.reported()
	})
}

// Close of the Redsync ends the leadership and the campaign.
func TestElectorAfterClose(t *testing.T) {
	play(t, func(k *kit) {
		e := k.elector(k.rs)
		k.leads(e, true)
		require.NoError(k, k.rs.Close(k.Context()))
		k.leads(e, false)
		require.ErrorIs(k, e.IsLeader(k.Context()), redsync.ErrClosed)
		for _, told := range k.reported(redsyncgocron.Lost, redsyncgocron.NotElected) {
			require.ErrorIs(k, told.Err, redsync.ErrClosed)
		}
	})
}

// While too few nodes answer, no process leads and no job runs. That is reported once, however many attempts are made.
func TestElectorReportsThatNoQuorumAnswers(t *testing.T) {
	play(t, func(k *kit) {
		k.freeze()
		e := k.elector(k.rs)
		for range 3 {
			time.Sleep(10 * time.Second)
			k.leads(e, false)
			require.ErrorIs(k, e.IsLeader(k.Context()), redsync.ErrNoQuorum)
		}
		told := k.reported(redsyncgocron.NotElected)
		require.ErrorIs(k, told[0].Err, redsync.ErrNoQuorum)
		k.thaw()
		time.Sleep(10 * time.Second)
		k.leads(e, true)
		k.freeze()
		time.Sleep(10 * time.Second)
		k.leads(e, false)
		k.reported(redsyncgocron.Lost, redsyncgocron.NotElected)
		k.thaw()
		k.resigns(e)
		k.leads(e, false)
		require.NotErrorIs(k, e.IsLeader(k.Context()), redsync.ErrNoQuorum)
		k.reported()
	})
}

// A leader that resigns while no quorum answers cannot know that the leadership is released.
func TestElectorReportsAResignationThatIsNotConfirmed(t *testing.T) {
	play(t, func(k *kit) {
		e := k.elector(k.rs)
		k.leads(e, true)
		k.freeze()
		short, cancel := context.WithTimeout(k.Context(), time.Millisecond)
		defer cancel()
		err := e.Shutdown(short)
		require.ErrorIs(k, err, context.DeadlineExceeded)
		require.ErrorContains(k, err, "the resignation goes on")
		k.leads(e, false)
		err = e.Shutdown(k.Context())
		require.ErrorIs(k, err, redsync.ErrNoQuorum)
		told := k.reported(redsyncgocron.NotReleased)
		assert.Equal(k, err, told[0].Err)
	})
}

// denying returns five nodes that deny the lock, and a Redsync on them.
func denying(t *testing.T) (embedded.Nodes, *redsync.Redsync) {
	nodes := embedded.Start(5)
	var pools []pool.Pool
	for _, n := range nodes {
		client := n.Client()
		t.Cleanup(func() { client.Close() })
		pools = append(pools, pool.New(client))
		n.On("evalsha", 1<<20, embedded.Fault{Err: "NOPERM this user has no permissions"})
	}
	rs := redsync.New(pools...)
	t.Cleanup(func() {
		assert.NoError(t, rs.Close(context.Background()))
		nodes.Close()
		time.Sleep(time.Minute)
	})
	return nodes, rs
}

// Who has not led has nothing to release, so a Shutdown just as nodes deny the lock is confirmed.
func TestElectorResignsWithoutATermAsNodesDeny(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, rs := denying(t)
		k := &kit{T: t}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		// It shuts the Elector down at the moment in which its campaign has failed.
		shutter := &observe.Hooks{NotAcquired: func(context.Context, observe.NotAcquired) { cancel() }}
		e, err := redsyncgocron.NewElector(ctx, rs.With(redsync.WithHooks(shutter)), "jobs", redsyncgocron.WithReport(k.report))
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.NoError(t, e.Shutdown(t.Context()))
		for _, event := range k.events {
			require.NotEqual(t, redsyncgocron.NotReleased, event.Kind)
		}
	})
}

// Nodes that deny the lock end Lead. The Elector tries again, and leads once somebody has changed the nodes.
func TestElectorTriesAgainAfterADenial(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes, rs := denying(t)
		k := &kit{T: t}
		e := k.elector(rs)
		time.Sleep(redsyncgocron.Again + redsyncgocron.Again/2)
		told := k.reported(redsyncgocron.NotElected)
		for _, is := range []error{told[0].Err, e.IsLeader(t.Context())} {
			require.ErrorContains(t, is, "NOPERM")
		}
		for _, n := range nodes {
			n.Heal()
		}
		time.Sleep(redsyncgocron.Again)
		k.leads(e, true)
		require.NoError(t, e.Shutdown(t.Context()))
		k.reported()
	})
}
