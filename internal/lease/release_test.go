package lease

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/alarm"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file shows releases from inside; tests/unlock_test.go shows what nodes are sent.

// acquiredOn returns a lease whose acquire has been answered by its only node.
func acquiredOn(terms *Terms) *Lease {
	l := New(terms, "v", clock.Now())
	l.writes.sending(0)
	l.writes.answered(0, &wire.Reply{Fate: wire.Answered})
	return l
}

// A waiter that leaves releases its value a second time. That release is repeated for as long as the first
// was.
func TestReleaseOnceMoreIsRepeatedAsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reached atomic.Bool
		p := on(func(req wire.Request) (*wire.Reply, error) {
			if !reached.Load() {
				return broken(req)
			}
			return scripted.Yes(req)
		})
		terms := newTermsOf(t, timingOf(sec), p)
		l := acquiredOn(terms)
		for range 2 {
			before := p.Count("evalsha")
			l.Release(Releasing{})
			time.Sleep(5 * sec)
			assert.Equal(t, before+5, p.Count("evalsha"), "after 0, 50, 150, 350 and 750 ms")
		}
		reached.Store(true)
	})
}

// A ticket enters the queue with the first sending alone. Its waiter may have left since, and a ticket that nobody takes
// out keeps others back until it counts as dead.
func TestReleaseThatIsRepeatedEntersNoTicketAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := on(broken)
		terms := newTermsOf(t, timingOf(sec), p)
		l := acquiredOn(terms)
		ticket := script.NewTicket(0, 1, script.ProcessOf("2222222222222222"), 1)
		l.Release(Releasing{Enters: []script.Ticket{ticket}})
		time.Sleep(100 * ms)
		require.Equal(t, 2, p.Count("evalsha"), "after 0 and 50 ms")
		assert.Contains(t, p.Sent()[0].Args, any(ticket.String()))
		assert.NotContains(t, p.Sent()[1].Args, any(ticket.String()))
		time.Sleep(time.Minute)
	})
}

// never is the Firer of an alarm that does not fire.
type never struct{}

func (never) Fire(bool) {}

// A release that finds the bound reached is dropped, and the node counts as settled. Unlock does not wait for it.
func TestReleaseBeyondTheBoundIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := on(broken)
		terms := newTerms(t, p)
		k := terms.Keeper
		for range maxRepeats {
			require.True(t, k.repeats.SetUnlessFull(&alarm.Alarm{What: never{}}, time.Now().Add(time.Hour), maxRepeats))
		}
		l := New(terms, "v", clock.Now())
		l.writes.sending(0)
		start := time.Now()
		l.Release(Releasing{Caller: t.Context()}).Wait(t.Context())
		assert.Zero(t, time.Since(start))
		synctest.Wait()
		assert.Zero(t, k.unsettled.count())
		time.Sleep(time.Minute)
		assert.Equal(t, 1, p.Count("evalsha"))
	})
}

// How long keys last goes by the slowest clock, and by the monotonic one of this machine. Releases are repeated until then.
func TestKeysLastByTheSlowestClock(t *testing.T) {
	rests := timingOf(sec)
	rests.MinHold = 10 * sec
	for _, c := range []struct {
		timing Timing
		mono   time.Duration
		wall   time.Duration
		last   bool
	}{
		{timingOf(8 * sec), sec, time.Hour, true},
		{timingOf(8 * sec), 8*sec + 82*ms, 0, true},
		{timingOf(8 * sec), 8*sec + 83*ms, 0, false},
		{rests, 10*sec + 102*ms, 0, true},
		{rests, 10*sec + 103*ms, 0, false},
		{timingOf(longest), time.Hour, 0, true},
	} {
		assert.Equal(t, c.last, c.timing.lasts(0, at(c.mono, c.wall)) >= 0, "%+v", c)
	}
}

// After each reply there is at most one more thing to try: the script in full, or to touch no queue.
func TestReleaseNextForm(t *testing.T) {
	for reply, calls := range map[error]form{
		nil:       {},
		errBroken: {},
		noScript:  {as: quorum.InFull},
		answer("NOPERM this user has no permissions to access one of the keys"):           {quietly: true},
		answer("ERR The user executing the script can't access at least one of the keys"): {quietly: true},
		answer("CROSSSLOT Keys in request don't hash to the same slot"):                   {quietly: true},
		answer("TRYAGAIN Multiple keys request during rehashing of slot"):                 {quietly: true},
		answer("LOADING Redis is loading the dataset in memory"):                          {},
		answer("ERR not NOSCRIPT, NOPERM nor CROSSSLOT"):                                  {},
	} {
		for _, f := range []form{{}, {quietly: true}, {as: quorum.InFull}, {as: quorum.InFull, quietly: true}} {
			want := f
			want.as, want.quietly = max(f.as, calls.as), f.quietly || calls.quietly
			got, again := next(f, reply)
			assert.Equal(t, want, got, "%v to %+v", reply, f)
			assert.Equal(t, want != f, again, "%v to %+v", reply, f)
		}
	}
}
