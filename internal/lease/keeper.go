package lease

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/alarm"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// A Keeper is what all leases of one Redsync share: the nodes, and the alarms.
type Keeper struct {
	Set     *quorum.Set
	Errors  *Errors
	Tokens  *Tokens
	Process script.Process // of the waiters of this process
	Waiters Waiters

	expiries   alarm.Schedule // ends of leases
	extensions alarm.Schedule // rounds of watchdogs, and their verdicts
	repeats    alarm.Schedule // releases to be sent again
	throttle   throttle
	drains     []drain       // by node; for Close
	unreached  atomic.Uint64 // nodes that have failed a release, and have not answered since

	operations inFlight // calls of the user
	unsettled  unsettled

	looked  time.Time             // only look uses it
	severed atomic.Pointer[error] // the user has closed the clients

	closed      atomic.Bool
	closing     chan struct{} // closed when Close begins
	lastSettled atomic.Int64  // monotonic: when Close began, or a node last settled a release since
}

// Waiters are the callers of this process that wait for a claim. Package queue implements it.
type Waiters interface {
	// Any reports whether anybody waits.
	Any() bool

	// ReleaseAndAdmit releases l, which has ended, and admits the next waiter.
	ReleaseAndAdmit(l *Lease)

	// Nudge makes the first waiter in each line try: the lease that it waited for has ended.
	Nudge(lines []string)

	// Wake tells the first waiter in the line that its lock is free on a node, where this process is first in the queue.
	// undoes is the failed attempt that the release undoes, if any: its waiter has no reason to try.
	Wake(line string, node int, undoes Turn)

	// Hear listens, until l ends, to messages that l was released by force. It calls l.Doubt for each, and when one may
	// have been missed. alarm.Schedule.firing may be held.
	Hear(l *Lease)
}

// repeatsInARow bounds the repetitions while nodes are down, between pauses of 1 ms.
const repeatsInARow = 64

// Init makes k ready, whose exported fields must be set.
func (k *Keeper) Init() {
	k.extensions.InARow, k.repeats.InARow = extensionsInARow, repeatsInARow
	k.throttle.init(&k.extensions, k.Set.IsBehind)
	k.expiries.Look = k.look
	k.drains = make([]drain, len(k.Set.Nodes))
	k.closing = make(chan struct{})
}

const lookPause = 500 * time.Millisecond

// look reports whether the user has closed so many clients that every lease is lost.
func (k *Keeper) look() bool {
	if time.Since(k.looked) < lookPause {
		return false
	}
	k.looked = time.Now()
	if k.severed.Load() == nil {
		res, severed := k.Set.Severed()
		if !severed {
			return false
		}
		err := k.Errors.Severed(res)
		k.severed.Store(&err)
	}
	return true
}

// BeginCall begins an operation, which EndCall ends. It reports false if Close has begun.
func (k *Keeper) BeginCall() bool {
	k.operations.add(1)
	if k.closed.Load() {
		k.EndCall()
		return false
	}
	return true
}

// EndCall ends an operation.
func (k *Keeper) EndCall() { k.operations.add(-1) }

// answered repeats the releases that have failed on node i: their keys keep everybody from it.
func (k *Keeper) answered(i int) {
	if bit := uint64(1) << i; k.unreached.And(^bit)&bit != 0 {
		k.repeats.Hurry(func(f alarm.Firer) bool { r, is := f.(repetition); return is && r.node == i })
	}
}

// CountAlarms returns how many alarms leases have set, and wait for. It is for tests.
func (k *Keeper) CountAlarms() (set, now int) {
	for _, s := range []*alarm.Schedule{&k.expiries, &k.extensions, &k.repeats} {
		more, on := s.Count()
		set, now = set+more, now+on
	}
	return set, now
}

// IsClosed reports whether Close has begun.
func (k *Keeper) IsClosed() bool { return k.closed.Load() }

// Closing returns a channel that is closed when Close begins.
func (k *Keeper) Closing() <-chan struct{} { return k.closing }

// Pause waits for d, or until early is closed, which may be nil. It returns false at once if ctx is done or Close has
// begun.
func (k *Keeper) Pause(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-early:
	case <-ctx.Done():
	case <-k.closing:
	}
	return ctx.Err() == nil && !k.closed.Load()
}

type inFlight struct {
	count   atomic.Int64
	waiting atomic.Bool
	none    chan struct{} // made by zero; closed once count is 0
	once    sync.Once
}

func (f *inFlight) add(n int) {
	if f.count.Add(int64(n)) == 0 && f.waiting.Load() {
		f.once.Do(func() { close(f.none) })
	}
}

// zero, called once, returns a channel that is closed once the count is 0.
func (f *inFlight) zero() <-chan struct{} {
	f.none = make(chan struct{})
	f.waiting.Store(true)
	f.add(0)
	return f.none
}

const maxSearched = 10_000

// HeldOn returns a lease that is held on one of these lines, if it is among the first maxSearched. It is for texts.
func (k *Keeper) HeldOn(lines []string) *Lease {
	for _, f := range k.expiries.First(maxSearched) {
		l, ok := f.(*Lease)
		on := func(line string) bool { return slices.Contains(lines, line) }
		if ok && l.NotHeld(clock.Now()) == nil && slices.ContainsFunc(l.Claim().Lines(), on) {
			return l
		}
	}
	return nil
}
