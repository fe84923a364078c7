package redsyncgocron_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testmain"
	"github.com/seed14bd9ef4/redsync/redsyncgocron"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

const (
	every    = 10 * time.Second // between two ticks
	tens     = "*/10 * * * * *" // the same as a crontab
	minHold  = 5 * time.Second
	validity = 8*time.Second - 82*time.Millisecond // of the default expiry, after drift
)

func TestMain(m *testing.M) { testmain.RunWaiting(m) }

// A kit is five nodes in a bubble, and the events that were reported.
type kit struct {
	*testing.T
	nodes *redsynctest.Nodes
	rs    *redsync.Redsync

	mu     sync.Mutex
	events []redsyncgocron.Event
}

// play plays a test in a bubble, while the tests on real servers wait.
func play(t *testing.T, test func(k *kit)) {
	t.Parallel()
	playAlone(t, test)
}

// plays plays a test once for each case.
func plays[C any](t *testing.T, cases map[string]C, test func(k *kit, name string, c C)) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			play(t, func(k *kit) { test(k, name, c) })
		})
	}
}

// playAlone plays a test in a bubble.
func playAlone(t *testing.T, test func(k *kit)) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redsynctest.Start(t, 5)
		t.Cleanup(func() { time.Sleep(time.Minute) }) // until the minimal holds are over
		test(&kit{T: t, nodes: nodes, rs: nodes.Redsync()})
	})
}

// freeze freezes a majority, and thaw ends that.
func (k *kit) freeze() { k.majority((*redsynctest.Node).Freeze) }
func (k *kit) thaw()   { k.majority((*redsynctest.Node).Thaw) }

func (k *kit) majority(do func(*redsynctest.Node)) {
	for i := range 3 {
		do(k.nodes.Node(i))
	}
}

func (k *kit) report(e redsyncgocron.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.events = append(k.events, e)
}

// reported returns the events since the last call, and checks their kinds.
func (k *kit) reported(kinds ...redsyncgocron.Kind) []redsyncgocron.Event {
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	events := k.events
	k.events = nil
	var got []redsyncgocron.Kind
	for _, e := range events {
		got = append(got, e.Kind)
		require.Error(k, e.Err)
	}
	require.Equal(k, kinds, got, events)
	return events
}

// holds returns a minHold of the same length for each job.
func holds(d time.Duration) func(string) time.Duration {
	return func(string) time.Duration { return d }
}

// locker returns a Locker of a process, with the minimal hold of these tests.
func (k *kit) locker(rs *redsync.Redsync, options ...redsyncgocron.Option) gocron.Locker {
	options = append([]redsyncgocron.Option{redsyncgocron.WithReport(k.report)}, options...)
	return redsyncgocron.NewLocker(rs, holds(minHold), options...)
}

// other returns a locker of another process.
func (k *kit) other() gocron.Locker { return k.locker(k.nodes.Process()) }

func (k *kit) resigns(e *redsyncgocron.Elector) { require.NoError(k, e.Shutdown(k.Context())) }

// locks locks the job.
func (k *kit) locks(l gocron.Locker) gocron.Lock {
	lock, err := l.Lock(k.Context(), "report")
	require.NoError(k, err)
	return lock
}

// elector returns an Elector of a process, which the end of the context resigns.
func (k *kit) elector(rs *redsync.Redsync, options ...redsyncgocron.Option) *redsyncgocron.Elector {
	options = append([]redsyncgocron.Option{redsyncgocron.WithReport(k.report)}, options...)
	e, err := redsyncgocron.NewElector(k.Context(), rs, "jobs", options...)
	require.NoError(k, err)
	synctest.Wait()
	return e
}

// A shifted clock is so far ahead.
type shifted struct {
	clockwork.Clock
	by time.Duration
}

// Now implements clockwork.Clock. gocron asks for the time, and starts timers for differences.
func (s shifted) Now() time.Time { return s.Clock.Now().Add(s.by) }

// ahead makes the clock of a scheduler so far ahead.
func ahead(by time.Duration) gocron.SchedulerOption {
	return gocron.WithClock(shifted{clockwork.NewRealClock(), by})
}

// starts starts a scheduler with one job, "report", at each tick. The end of the test shuts it down. A job must not sleep
// then: gocron waits in a loop, so that the time of the bubble stands still.
func (k *kit) starts(do func(context.Context), options ...gocron.SchedulerOption) gocron.Scheduler {
	s, err := gocron.NewScheduler(append(options, gocron.WithLocation(time.UTC))...)
	require.NoError(k, err)
	_, err = s.NewJob(gocron.CronJob(tens, true), gocron.NewTask(do), gocron.WithName("report"))
	require.NoError(k, err)
	s.Start()
	k.Cleanup(func() { assert.NoError(k, s.Shutdown()) })
	return s
}

// works takes d, unless the scheduler is shut down.
func works(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// A ticks counts the runs of a job by tick.
type ticks struct {
	mu   sync.Mutex
	runs map[int]int
}

// run notes a run. The clock of no process is further off than half of the time between two ticks.
func (t *ticks) run(context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.runs == nil {
		t.runs = map[int]int{}
	}
	t.runs[int(time.Now().Round(every).Unix()/int64(every/time.Second))]++
}

// counts returns how many ticks had how many runs.
func (t *ticks) counts() map[int]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := map[int]int{}
	for _, n := range t.runs {
		counts[n]++
	}
	return counts
}
