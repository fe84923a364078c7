package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
	"github.com/seed14bd9ef4/redsync/observe"
)

// patience is how long a run continues without an answer from a quorum of nodes.
const patience = 10 * time.Second

// A report prints and counts what happens to one worker.
type report struct {
	id       int
	nodes    int
	referee  *referee
	timeline *rig.Timeline
	giveUp   context.CancelCauseFunc // ends the run

	worked, lost int
	extended     atomic.Int64
	waiting      atomic.Bool // the worker waits, and has reported why
}

func (r *report) say(format string, args ...any) {
	r.timeline.Say("worker %d  %s", r.id, fmt.Sprintf(format, args...))
}

// enter reports that the worker has the lock. Call the returned function before the worker unlocks.
func (r *report) enter(mutex *redsync.Mutex) (leave func()) {
	r.worked++
	r.waiting.Store(false)
	r.say("has the lock: for %v, unless it is extended", round(mutex.Remaining()))
	return r.referee.enter(r.id, mutex)
}

// hasFinished reports that the work is done. The error is that of Valid: few of them mean that the lock is lost.
func (r *report) hasFinished(err error) {
	if err != nil {
		r.say("has finished its work, but the nodes do not confirm that it has the lock: %v", err)
		return
	}
	r.say("has finished its work; the nodes confirm that it still has the lock")
}

func (r *report) hasUnlocked() {
	r.referee.answered()
	r.say("has unlocked")
}

func (r *report) hasLost(err error) {
	r.lost++
	r.say("has LOST the lock: %v", err)
}

// errOutOfReach ends a run whose nodes do not answer any more.
var errOutOfReach = fmt.Errorf("no quorum of nodes reached for %v", patience)

// hooks returns what the library calls.
func (r *report) hooks() *observe.Hooks {
	return &observe.Hooks{Attempt: r.onAttempt, Extended: r.onExtended}
}

// onAttempt reports once for each Lock why the worker has to wait. It ends
// the run if no quorum of nodes has answered for longer than patience.
func (r *report) onAttempt(_ context.Context, a observe.Attempt) {
	if 2*(a.Granted+a.Refused) > r.nodes {
		r.referee.answered()
	}
	switch {
	case a.Err == nil:
	case r.referee.silence() > patience:
		r.giveUp(fmt.Errorf("%w: %w", errOutOfReach, a.Err))
	case r.waiting.Swap(true):
	case errors.Is(a.Err, redsync.ErrFailed):
		r.say("waits: another worker has the lock")
	default:
		r.say("waits: %v", a.Err)
	}
}

// onExtended reports the extensions that Do makes.
func (r *report) onExtended(_ context.Context, e observe.Extended) {
	if e.Err != nil {
		r.say("could not extend its lock, which ends in %v: %v", round(e.Left), e.Err)
		return
	}
	r.extended.Add(1)
	r.referee.answered()
	r.say("still works: its lock is extended, %v before it would have ended", round(e.Left))
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }

// A referee knows which workers have the lock, and checks that no two have it at once. It can know that only because all
// workers are in one process. It also knows when a quorum last answered one of the workers.
type referee struct {
	mu      sync.Mutex
	holders map[int]*redsync.Mutex // by worker
	heard   time.Time
}

func newReferee() *referee {
	return &referee{holders: make(map[int]*redsync.Mutex), heard: time.Now()}
}

// enter records that a worker has the lock. Call the returned function before the worker unlocks.
func (r *referee) enter(id int, mutex *redsync.Mutex) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holders[id] = mutex
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.holders, id)
	}
}

var errTwoHolders = errors.New("TWO HOLDERS AT ONCE")

// check returns an error if two workers rely on the lock at this moment. A worker whose validity has ended does not
// count, even if it has not noticed yet.
func (r *referee) check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var holders []int
	for id, mutex := range r.holders {
		if mutex.Remaining() > 0 {
			holders = append(holders, id)
		}
	}
	if len(holders) > 1 {
		return fmt.Errorf("%w: workers %v", errTwoHolders, holders)
	}
	return nil
}

// answered records that a quorum has answered.
func (r *referee) answered() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = time.Now()
}

// silence returns how long no quorum has answered.
func (r *referee) silence() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.heard)
}
