package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/claimtest"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file has what more than one file of tests uses: what the root of the library and package queue
// hand down to leases, as plain as can be.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Rules.

const (
	ms  = time.Millisecond
	sec = time.Second
)

// A hundredth is the rule by which clocks differ by a hundredth of a time, and 2 ms.
type hundredth struct{}

func (hundredth) Of(d time.Duration) time.Duration { return d/100 + 2*ms }

// timingOf returns the timing of an expiry, as the defaults of the library make it.
func timingOf(expiry time.Duration) Timing {
	expiry = expiry.Truncate(ms)
	span := expiry - hundredth{}.Of(expiry)
	return Timing{
		Expiry: expiry, TTL: expiry, Validity: span,
		NodeTimeout: min(max(expiry/20, 50*ms), span/2), Drift: hundredth{},
	}
}

// The ends of a lease, for tests to tell apart.
var (
	errNotHeld = errors.New("not held")
	errExpired = errors.New("expired")
	errMaxHold = errors.New("expired, for good")
	errSpent   = errors.New("not for longer")
	errClosed  = errors.New("closed")
	errFailed  = errors.New("failed")
	errLost    = errors.New("lost")

	// errCause is why a test ends a lease.
	errCause = errors.New("the test's cause")
)

// asLost returns the end of a lease that somebody held.
func asLost(cause error, _ *quorum.Result) error {
	if errors.Is(cause, errLost) {
		return cause
	}
	return fmt.Errorf("%w: %w", errLost, cause)
}

// Waiters.

// A nobody is the Waiters of a process in which nobody waits.
type nobody struct{}

func (nobody) Any() bool                { return false }
func (nobody) ReleaseAndAdmit(l *Lease) { l.Release(Releasing{}) }
func (nobody) Nudge([]string)           {}
func (nobody) Wake(string, int, Turn)   {}
func (nobody) Hear(*Lease)              {}

// Leases.

// newTermsOf returns the terms of leases of the lock "lock" on the nodes behind pools. A nil pool is a node to
// which nothing may be sent.
// The end of the test closes their Keeper.
func newTermsOf(t *testing.T, timing Timing, pools ...wire.Pool) *Terms {
	t.Helper()
	k := &Keeper{
		Set: quorum.NewSet(pools, quorum.NewKnown(len(pools)), claimtest.Majority(len(pools))),
		Errors: &Errors{
			NotHeld: errNotHeld, Expired: errExpired, MaxHold: errMaxHold, Spent: errSpent, Closed: errClosed, Failed: errFailed,
			Lost:     asLost,
			Rejected: func(string, quorum.Result) error { return asLost(errors.New("rejected"), nil) },
		},
		Tokens: &Tokens{}, Waiters: nobody{},
	}
	k.Init()
	t.Cleanup(func() {
		if k.BeginClose() {
			assert.NoError(t, k.Close(context.WithoutCancel(t.Context()), sec, func() {}).Reason)
		}
	})
	var values atomic.Int64
	return &Terms{
		Keeper: k, Claim: claimtest.Exclusive("lock"), Policy: &Policy{
			Timing: timing,
			Value:  func() (string, error) { return "v" + strconv.FormatInt(values.Add(1), 10), nil },
		},
	}
}

// newTerms returns those of the default expiry.
func newTerms(t *testing.T, pools ...wire.Pool) *Terms {
	t.Helper()
	return newTermsOf(t, timingOf(8*sec), pools...)
}

// nowhere returns the terms of leases on n nodes that do not exist, with the default expiry.
func nowhere(t *testing.T, n int) *Terms { return newTerms(t, make([]wire.Pool, n)...) }

// begun returns a lease that has been acquired, and is held.
func begun(t *testing.T, terms *Terms) *Lease {
	t.Helper()
	l, o := Acquire(t.Context(), terms, clock.Now(), 1, script.Place{}, nil)
	require.Equal(t, Won, o.Kind)
	require.NoError(t, l.Begin())
	return l
}

// closes ends the Keeper of l as Close of a Redsync does, before the end of the test.
func closes(t *testing.T, l *Lease) {
	t.Helper()
	require.True(t, l.terms.Keeper.BeginClose())
	require.NoError(t, l.terms.Keeper.Close(t.Context(), sec, func() {}).Reason)
}

// unlock does what Unlock does.
func unlock(l *Lease) {
	l.End(nil)
	l.Release(Releasing{})
}

// at returns an instant: what each clock says since a common origin.
func at(mono, wall time.Duration) clock.Instant {
	return clock.Instant{Mono: mono, Wall: time.Unix(1e9, 0).Add(wall)}
}

// longest is the longest expiry.
const longest = time.Duration(math.MaxInt64)

// isOpen reports whether c has not been closed.
func isOpen(c <-chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

// isExtend reports whether a request of a plain lease is an extension: a script with one key.
func isExtend(req wire.Request) bool { return req.Args[0] != "set" && req.Args[2] == 1 }

// broken is the reply over a connection that broke.
func broken(wire.Request) (*wire.Reply, error) { return &wire.Reply{Err: errBroken, Conn: 1}, nil }

var errBroken = errors.New("the connection broke")

// on returns a fake node whose answers answer makes.
func on(answer func(wire.Request) (*wire.Reply, error)) *scripted.Node {
	return &scripted.Node{Answer: answer}
}

// An answer is what a node says instead of a result.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// said is a reply.
func said(value any) wire.Reply { return wire.Reply{Value: value, Fate: wire.Answered, Conn: 1} }

// tells answers a request later.
func tells(req wire.Request, reply wire.Reply) { req.To.Receive(req.Tag, reply) }

// answered is what a node answers at once.
func answered(value any) *wire.Reply {
	reply := said(value)
	return &reply
}

var (
	lost  = wire.Reply{Err: errBroken, Fate: wire.Unknown, Conn: 1}
	lacks = wire.Reply{Err: noScript, Fate: wire.Answered, Conn: 1}
)

const noScript answer = "NOSCRIPT No matching script. Please use EVAL."

// Events.

// A diary is the Events of a test: it keeps what it is told.
type diary struct {
	Events // nil: no test makes the others happen

	mu       sync.Mutex
	lost     []error
	extended []quorum.Result
	denied   []error
}

func (*diary) TracesVotes() bool                            { return false }
func (*diary) Voted(context.Context, quorum.Voted, bool)    {}
func (*diary) NodeDown(*quorum.Node, int, error)            {}
func (*diary) NodeStillDown(*quorum.Node, error)            {}
func (*diary) NodeUp(*quorum.Node, time.Duration)           {}
func (*diary) Left(*quorum.Node, int, time.Duration, error) {}
func (d *diary) Audience() any                              { return d }
func (*diary) Unconfirmed(*quorum.Node, int, bool, error)   {}

func (d *diary) Denied(_ *quorum.Node, _ string, err error) { d.denied = append(d.denied, err) }

func (d *diary) Lost(_ *Lease, _ time.Duration, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = append(d.lost, err)
}

func (d *diary) Extended(_ *Lease, res quorum.Result, _ bool, _ time.Time, _, _ time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.extended = append(d.extended, res)
}

func (d *diary) losses() []error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost
}

func (d *diary) extensions() []quorum.Result {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.extended
}
