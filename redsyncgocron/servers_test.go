package redsyncgocron_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/redsyncgocron"
)

// This file plays schedulers in three processes, on real servers.

const (
	envChild = "REDSYNC_TEST_GOCRON_CHILD"
	envLong  = "REDSYNC_TEST_LONG" // repeats the scene, for the nightly run

	second  = 2 * time.Second // between two ticks of the processes
	seconds = "*/2 * * * * *"

	// The clocks lie 400 ms apart. So each process may be late by another 600 ms.
	heldFor = time.Second
	expiry  = time.Second

	apart   = 200 * time.Millisecond // from clock to clock
	working = 50 * time.Millisecond
	blocked = 2 // which run of the job blocks, in the processes that are killed and frozen
)

// lockers are the jobs of each process. All but "report" have a locker that the check must find broken.
func lockers(rs *redsync.Redsync, report redsyncgocron.Option) map[string]gocron.Locker {
	return map[string]gocron.Locker{
		"report": redsyncgocron.NewLocker(rs, holds(heldFor), report),
		"short":  redsyncgocron.NewLocker(rs, holds(time.Millisecond), report),
		"long":   redsyncgocron.NewLocker(rs, holds(second+second/2), report),
		"always": granting{},
	}
}

// A granting Locker always locks.
type granting struct{}

func (granting) Lock(context.Context, string) (gocron.Lock, error) { return granting{}, nil }
func (granting) Unlock(context.Context) error                      { return nil }

// A child is what a process is told.
type child struct {
	Process   int
	Addresses []string
	Ahead     time.Duration // of its clock
	Blocks    bool          // in run number blocked of "report"
}

// A record is a line that a process tells. Its times are those of the machine, not those of the process's clock.
type record struct {
	What    string // one of those below
	Process int
	Job     string
	Tick    int64     // the number of the tick, by the process's clock
	Asked   time.Time // when Lock was called
	At      time.Time // when it is told, which is after it has happened
	Why     string    // an error
}

const (
	saysReady   = "ready"
	saysLocked  = "locked"
	saysRefused = "refused" // because another process has the lock
	saysFailed  = "failed"  // Lock has failed for another reason
	saysRuns    = "runs"
	saysBlocks  = "blocks"
	saysEnded   = "ended"
	saysLost    = "lost"
)

// childJob returns what this process is told if it is a child.
func childJob() (c child, ok bool) {
	text, ok := os.LookupEnv(envChild)
	if ok && json.Unmarshal([]byte(text), &c) != nil {
		panic(text)
	}
	return c, ok
}

// runChild is the main function of a child. It starts the scheduler when its input has a line, goes on with a blocked job
// when its input has another, and ends with its input.
func runChild(c child) {
	if err := c.run(); err != nil {
		fmt.Fprintln(os.Stderr, "process", c.Process, err)
		os.Exit(1)
	}
}

func (c child) run() error {
	ctx := context.Background()
	// A machine that is busy with other tests may answer late.
	rs, err := redsync.Open(ctx, c.Addresses, redsync.WithExpiry(expiry), redsync.WithTimeoutFactor(0.3))
	if err != nil {
		return err
	}
	t := &teller{child: c, to: json.NewEncoder(os.Stdout)}
	s, err := gocron.NewScheduler(ahead(c.Ahead), gocron.WithLocation(time.UTC))
	if err != nil {
		return err
	}
	input, goOn := bufio.NewReader(os.Stdin), make(chan struct{})
	for job, locker := range lockers(rs, redsyncgocron.WithReport(t.event)) {
		runs := 0
		_, err := s.NewJob(gocron.CronJob(seconds, true), gocron.NewTask(func() {
			t.tell(record{What: saysRuns, Job: job})
			if runs++; job == "report" && c.Blocks && runs == blocked {
				t.tell(record{What: saysBlocks, Job: job})
				<-goOn
			}
			time.Sleep(working)
		}), gocron.WithName(job), gocron.WithDistributedJobLocker(&telling{locker, t}),
			gocron.WithSingletonMode(gocron.LimitModeReschedule))
		if err != nil {
			return err
		}
	}
	t.tell(record{What: saysReady})
	if _, err := input.ReadString('\n'); err != nil {
		return err
	}
	s.Start()
	if _, err := input.ReadString('\n'); err == nil {
		close(goOn)
		_, _ = io.Copy(io.Discard, input)
	}
	return errors.Join(s.Shutdown(), rs.Close(ctx))
}

// A teller tells what happens in a child.
type teller struct {
	child
	mu sync.Mutex
	to *json.Encoder
}

func (t *teller) tell(r record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Process, r.At = t.Process, time.Now()
	_ = t.to.Encode(r) // if nobody reads it any more, this process is about to be killed
}

func (t *teller) event(e redsyncgocron.Event) {
	if e.Kind == redsyncgocron.Lost {
		t.tell(record{What: saysLost, Job: e.Name, Why: e.Err.Error()})
	}
}

// A telling Locker tells what another one does.
type telling struct {
	gocron.Locker
	*teller
}

func (l *telling) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	r := record{What: saysLocked, Job: job, Asked: time.Now()}
	r.Tick = r.Asked.Add(l.Ahead).UnixNano() / int64(second)
	lock, err := l.Locker.Lock(ctx, job)
	if err != nil {
		r.What, r.Why = saysFailed, err.Error()
	}
	if errors.Is(err, redsync.ErrFailed) {
		r.What = saysRefused
	}
	l.tell(r)
	return &told{lock, r, l.teller}, err
}

type told struct {
	gocron.Lock
	record
	by *teller
}

func (t *told) Unlock(ctx context.Context) error {
	err := t.Lock.Unlock(ctx)
	t.by.tell(record{What: saysEnded, Job: t.Job, Tick: t.Tick, Asked: t.Asked})
	return err
}

// A scene is three processes on five servers.
type scene struct {
	*testing.T
	children []*process

	mu      sync.Mutex
	records []record
	heard   chan struct{} // closed, and replaced, when there is another record
}

// A process is a child, whose end is noted once all that it has told is read.
type process struct {
	*realredis.Child
	ended chan struct{}
	err   error // set before ended is closed
}

// Three processes have clocks that are 200 ms apart. The one whose clock is ahead wins each tick: it is killed in its second
// run. The next one is frozen in its second run, for longer than the expiry, and goes on while the last one has the lock. Each
// tick runs at most once, and exactly once unless a process died or froze in it.
func TestThreeSchedulersOnServers(t *testing.T) {
	t.Parallel()
	rounds := 1
	if os.Getenv(envLong) != "" {
		rounds = 10
	}
	for round := range rounds {
		t.Run(fmt.Sprint("round ", round), playScene)
	}
}

func playScene(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	s := &scene{T: t, heard: make(chan struct{})}
	var addresses []string
	for _, server := range realredis.Start(t, 5) {
		addresses = append(addresses, server.Addr())
	}
	for i := range 3 {
		s.startChild(ctx, child{Process: i, Addresses: addresses, Ahead: time.Duration(i) * apart, Blocks: i > 0})
	}
	for i := range s.children {
		s.await(ctx, i, saysReady, 1)
	}
	start := time.Now()
	for i := range s.children {
		s.write(i)
	}

	s.await(ctx, 2, saysBlocks, 1)
	require.NoError(t, s.children[2].Cmd.Process.Kill())
	killed := fault{2, time.Now()}
	s.await(ctx, 1, saysBlocks, 1)
	require.NoError(t, realredis.Pause(s.children[1].Cmd.Process))
	frozen := fault{1, time.Now()}
	s.await(ctx, 0, saysRuns, s.count(0, saysRuns)+2)
	require.NoError(t, realredis.Resume(s.children[1].Cmd.Process))
	s.write(1)
	s.await(ctx, 1, saysLost, 1)
	s.await(ctx, 1, saysRuns, blocked+2)
	end := time.Now()
	for i := range 2 {
		require.NoError(t, s.children[i].Stdin.Close())
		<-s.children[i].ended
		require.NoError(t, s.children[i].err)
	}
	<-s.children[2].ended

	s.mu.Lock()
	defer s.mu.Unlock()
	c := check{records: s.records, faults: []fault{killed, frozen}, first: start, last: end}
	for _, job := range []string{"report", "short", "long", "always"} {
		found := c.of(job)
		t.Logf("%s: runs by tick %v, %d ticks excused, wrong: %q", job, c.runs, c.excused, found)
		if job == "report" {
			assert.Empty(t, found)
		} else {
			assert.NotEmpty(t, found, "%s: the check does not find what is wrong", job)
		}
	}
}

// startChild starts a process, and notes what it tells.
func (s *scene) startChild(ctx context.Context, c child) {
	s.Helper()
	started, err := realredis.StartChild(ctx, envChild, c)
	require.NoError(s, err)
	p := &process{Child: started, ended: make(chan struct{})}
	s.children = append(s.children, p)
	s.Cleanup(func() {
		_ = p.Cmd.Process.Kill()
		<-p.ended
	})
	go func() {
		defer close(p.ended)
		for lines := json.NewDecoder(p.Stdout); ; {
			var r record
			if lines.Decode(&r) != nil {
				break
			}
			s.note(r)
		}
		p.err = p.Cmd.Wait()
	}()
}

func (s *scene) note(r record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, r)
	close(s.heard)
	s.heard = make(chan struct{})
}

// write writes a line to a process.
func (s *scene) write(process int) {
	s.Helper()
	_, err := io.WriteString(s.children[process].Stdin, "\n")
	require.NoError(s, err)
}

// count returns how often a process has told something of "report".
func (s *scene) count(process int, what string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.records {
		if r.Process == process && r.What == what && (r.Job == "report" || r.Job == "") {
			n++
		}
	}
	return n
}

// await waits until a process has told something n times.
func (s *scene) await(ctx context.Context, process int, what string, n int) {
	s.Helper()
	for {
		s.mu.Lock()
		heard := s.heard
		s.mu.Unlock()
		if s.count(process, what) >= n {
			return
		}
		select {
		case <-heard:
		case <-ctx.Done():
			require.Failf(s, "too late", "process %d has not told %q %d times: %v", process, what, n, ctx.Err())
		}
	}
}
